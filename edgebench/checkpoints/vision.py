"""The part of a LLaVA that sees, as a function of pixels."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class VisionPart(nn.Module):
    """Vision tower, the layer that the checkpoint names, and the projector."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        config = model.config
        layers = config.vision_feature_layer
        self.layers = [layers] if isinstance(layers, int) else list(layers)
        self.drop_class_token = config.vision_feature_select_strategy == "default"
        self.tower = model.model.vision_tower
        self.projector = model.model.multi_modal_projector

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """float32 [tiles, 3, H, W] -> float32 [tiles, tokens, hidden]."""
        return self.attended(pixel_values, attentions=False)[0]

    def attended(self, pixel_values: torch.Tensor, *, attentions: bool = True) -> tuple[torch.Tensor, tuple[Any, ...]]:
        """The same, and the tower's attention maps [tiles, heads, tokens, tokens], a layer each."""
        dtype = next(self.projector.parameters()).dtype
        asked = {"output_attentions": True} if attentions else {}
        out = self.tower(pixel_values.to(dtype), output_hidden_states=True, **asked)
        hidden = out.hidden_states
        chosen = [hidden[layer][:, 1:] if self.drop_class_token else hidden[layer] for layer in self.layers]
        features: torch.Tensor = self.projector(torch.cat(chosen, dim=-1))
        return features.float(), tuple(out.attentions or ()) if attentions else ()

"""Attention times gradient in a LLaVA in transformers: which patches of its tiles an answer's probability hangs on.

Source: H. Chefer, S. Gur and L. Wolf, Generic Attention-model Explainability for Interpreting Bi-Modal and
Encoder-Decoder Transformers (ICCV 2021), section 3: in each layer the positive part of attention times its gradient,
the mean of the heads, is rolled out over the layers; here of the decoder, and of the vision tower in front of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from edgebench.checkpoints.vision import VisionPart
from edgebench.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence


def relevance(
    model: Any,
    pixels: torch.Tensor,
    used: torch.Tensor,
    ids: torch.Tensor,
    places: torch.Tensor,
    embedded: Any,
    answer: tuple[Sequence[int], Sequence[int]],
) -> tuple[torch.Tensor, float]:
    """The relevance of each patch.

    Args:
        model: a LLaVA in transformers with eager attention.
        pixels: float32 [tiles, 3, H, W].
        used: int64 [image tokens]; which features of all tiles stand in the prompt, in order.
        ids: int64 [tokens], the image tokens in place.
        places: bool [tokens]; where they are.
        embedded: ids and features -> embeddings [1, tokens, hidden].
        answer: tokens of the answer, and of what it is set against (none: against all).

    Returns:
        float32 [tiles, patches], at least 0; and the answer's ln P (or log-odds) as the first token.

    Raises:
        EngineError: the model shows no attention.
    """
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with torch.enable_grad():
        vision = VisionPart(model)
        features, seen = vision.attended(pixels.requires_grad_(True))
        per_tile = features.shape[1]
        decoder = model.model.language_model
        embeds = embedded(ids, features.flatten(0, 1)[used])
        out = decoder(inputs_embeds=embeds, output_attentions=True, use_cache=False)
        log_p = model.lm_head(out.last_hidden_state[0, -1]).float().log_softmax(-1)
        value = log_p[list(answer[0])].logsumexp(0)
        if answer[1]:
            value = value - log_p[list(answer[1])].logsumexp(0)
        read = [a for a in out.attentions or () if a is not None]
        looked = [a for a in seen if a is not None]
        if not read or not looked:
            raise EngineError("the model shows no attention", hint="take --method occlusion")
        found = torch.autograd.grad(value, [*read, *looked], allow_unused=True)
    with torch.no_grad():
        row = _rolled(read, found[: len(read)])[0, -1, places]
        per_feature = torch.zeros(len(features) * per_tile).index_add_(0, used, row.cpu()).reshape(len(features), -1)
        tower = _rolled(looked, found[len(read) :]).cpu()
        # The class token is no place; where it was dropped, features are those of the patches behind it.
        ahead = tower.shape[-1] - per_tile
        patches = torch.einsum("tf,tfp->tp", per_feature, tower[:, ahead:, :])
        first = tower.shape[-1] - _patches(model)
    return patches[:, first:], float(value.detach())


def _rolled(attentions: Sequence[Any], gradients: Sequence[Any]) -> torch.Tensor:
    """float32 [N, tokens, tokens] from maps [N, heads, tokens, tokens]. Layers without a gradient do not count."""
    size = attentions[0].shape[-1]
    rolled = torch.eye(size, device=attentions[0].device).repeat(attentions[0].shape[0], 1, 1)
    for attention, gradient in zip(attentions, gradients, strict=True):
        if gradient is not None:
            weighted = (attention.float() * gradient.float()).clamp(min=0).mean(dim=1)
            rolled = rolled + weighted @ rolled
    return rolled


def _patches(model: Any) -> int:
    """Of one tile."""
    config = model.config.vision_config
    return int((config.image_size // config.patch_size) ** 2)

"""A LLaVA checkpoint's own answers, and how far three graphs are from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.benches.base import Question
from edgebench.cache import cache_names, empty_cache, step_inputs, wanted_logits
from edgebench.errors import CheckpointError, one_line
from edgebench.export.graphs import quiet
from edgebench.export.parity import compare, fixed_images, session
from edgebench.media.pixels import pixels
from edgebench.prompts.placing import placing

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from edgebench.manifest import Decoder, Graph, ParityRow, Text
    from edgebench.prompts.conversation import Conversation

STEPS = 16
"""Decode steps of the parity check."""


def load_reference(folder: Path, kind_name: str = "LlavaForConditionalGeneration") -> Any:
    """The checkpoint in transformers, eager, float32.

    Raises:
        CheckpointError: it is damaged, or its keys do not fit.
    """
    import torch
    import transformers

    log: Any = transformers.utils.logging
    log.set_verbosity_error()
    log.disable_progress_bar()
    kind: Any = getattr(transformers, kind_name)
    try:
        with quiet():
            model, found = kind.from_pretrained(
                folder,
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
            )
    except Exception as error:  # damaged shards raise the errors of several libraries
        raise CheckpointError(f"cannot be loaded: {one_line(error)}", where=folder) from error
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        names = sorted(str(k) for k in found.get(kind, ()))
        if names:
            raise CheckpointError(
                f"{len(names)} {kind.replace('_', ' ')}, such as {', '.join(names[:3])}", where=folder
            )
    return model.eval()


class Reference:
    """The checkpoint itself, eager, fp32: what the graphs are compared with."""

    def __init__(self, model: Any, text: Text, conversation: Conversation, preprocess: Any) -> None:
        self.model, self.text, self.conversation, self.preprocess = model, text, conversation, preprocess

    def answer(self, images: int) -> dict[str, Any]:
        """Greedy answer to a fixed question on fixed images, through transformers' own forward.

        Returns:
            pixels [tiles, 3, H, W], ids [tokens], features [tiles, tokens, hidden], prefill logits [tokens, vocab],
            step logits [STEPS, vocab] and the greedy tokens.
        """
        import torch

        p = self.preprocess
        question = Question("What is the authenticity of the image?", {"A": "AI-generated", "B": "non AI-generated"})
        pictures = fixed_images(images, p.height, p.width)
        tiles = [pixels(picture, p) for picture in pictures]
        tokens_of_images = self.text.images
        placings = (
            []
            if tokens_of_images is None
            else [placing(i.shape[:2], len(t), p, tokens_of_images) for i, t in zip(pictures, tiles, strict=True)]
        )
        ids = self.conversation.ids(question, placings).tolist()
        batch = np.concatenate(tiles)
        with quiet(), torch.inference_mode():
            features = self.model.model.get_image_features(pixel_values=torch.from_numpy(batch))
            pooled = features.pooler_output if hasattr(features, "pooler_output") else features
            out = self.model(input_ids=torch.tensor([ids]), pixel_values=torch.from_numpy(batch), use_cache=True)
            prefill, cache, steps, tokens = out.logits[0].numpy(), out.past_key_values, [], []
            token = int(prefill[-1].argmax())
            for _ in range(STEPS):
                tokens.append(token)
                out = self.model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
                steps.append(out.logits[0, -1].numpy())
                token = int(steps[-1].argmax())
        stacked = torch.cat(list(pooled)) if isinstance(pooled, (list, tuple)) else pooled
        return {
            "images": images,
            "pixels": batch,
            "ids": ids,
            "features": stacked.reshape(-1, stacked.shape[-1]).numpy(),
            "prefill": prefill,
            "steps": np.stack(steps),
            "tokens": tokens,
            "image_token_id": None if tokens_of_images is None else tokens_of_images.id,
        }


def parity_rows(folder: Path, graphs: dict[str, Graph], decoder: Decoder, expected: dict[str, Any]) -> list[ParityRow]:
    """The graphs of a folder, fed as an engine feeds them, against the reference's answer, teacher-forced.

    Raises:
        CheckpointError: the prompt and the vision graph do not fit each other.
        ParityError: a graph does not load, or gives numbers that are not finite.
    """
    vision, embed, step = (session(folder / graphs[name].model.file) for name in ("vision", "embed", "decoder"))
    past_names, _ = cache_names(decoder.layers)
    ids = np.array([expected["ids"]], dtype=np.int64)
    batch = expected["pixels"].astype(graphs["vision"].inputs[0].dtype, copy=False)
    features: NDArray[np.float32] = vision.run(None, {"pixel_values": batch})[0].astype(np.float32, copy=False)
    features = features.reshape(-1, features.shape[-1])
    places = ids[0] == expected["image_token_id"]
    if int(places.sum()) != len(features):
        raise CheckpointError(
            f"the prompt holds {int(places.sum())} image tokens, the vision graph gives {len(features)}"
        )

    def run(
        embeds: NDArray[np.float32], cache: list[NDArray[Any]], wanted: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], list[NDArray[Any]]]:
        feeds = step_inputs(graphs["decoder"], embeds, cache[0].shape[2], wanted)
        logits, *present = step.run(None, {**feeds, **dict(zip(past_names, cache, strict=True))})
        return wanted_logits(graphs["decoder"], logits, wanted), present

    embeds = embed.run(None, {"input_ids": ids})[0].astype(np.float32)
    embeds[0, places] = features
    prefill, cache = run(embeds, empty_cache(decoder), np.arange(ids.shape[1], dtype=np.int64))
    steps = []
    for token in expected["tokens"]:
        logits, cache = run(
            embed.run(None, {"input_ids": np.array([[token]], dtype=np.int64)})[0], cache, np.zeros(1, dtype=np.int64)
        )
        steps.append(logits[0])
    against = "transformers, eager, fp32"
    inputs = f"fixed question, {expected['images']} fixed image{'s' if expected['images'] > 1 else ''}, {ids.shape[1]} tokens"
    return [
        compare("vision", against, inputs, expected["features"], features, top1=None),
        compare("prefill", against, inputs, expected["prefill"], prefill, top1="argmax"),
        compare(
            "decode",
            against,
            f"{inputs}, {STEPS} steps on the reference's own tokens",
            expected["steps"],
            np.stack(steps),
            top1="argmax",
        ),
    ]

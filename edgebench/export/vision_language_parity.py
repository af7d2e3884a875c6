"""A LLaVA checkpoint's own answers, and how far three graphs are from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.benches.base import Question
from edgebench.cache import empty_cache
from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError
from edgebench.export.parity import compare, fixed_images, reader, session
from edgebench.export.request import checked
from edgebench.media.pixels import pixels
from edgebench.prompts.conversation import Conversation
from edgebench.prompts.placing import chosen, placing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from edgebench.manifest import Decoder, Graph, Parity, ParityRow, Preprocess, Text
    from edgebench.recipes import Bound

STEPS = 16
"""Decode steps of the parity check."""


class Reference:
    """The checkpoint itself, eager, fp32: what the graphs are compared with."""

    def __init__(self, model: Any, text: Text, conversation: Conversation, preprocess: Any) -> None:
        self.model, self.text, self.conversation, self.preprocess = model, text, conversation, preprocess

    def answer(self, images: int) -> dict[str, Any]:
        """Greedy answer to a fixed question on fixed images, through transformers' own forward.

        Returns:
            pictures in the prompt, pixels [tiles, 3, H, W], ids [tokens], features [image tokens, hidden] without the
            ends of rows, prefill logits [tokens, vocab], step logits [STEPS, vocab] and the greedy tokens.
        """
        import torch

        p = self.preprocess
        question = Question("What is the authenticity of the image?", {"A": "AI-generated", "B": "non AI-generated"})
        tokens_of_images = self.text.images
        if tokens_of_images is None:
            raise CheckpointError("the model takes no pictures")
        pictures = fixed_images(images, p.height, p.width)
        if tokens_of_images.newline_id is not None:
            # Pictures that are wide, high and in between, so that there is padding to leave out.
            pictures = [np.repeat(i, 1 + (k != 1), axis=(k + 1) % 2)[: -3 - k] for k, i in enumerate(pictures)]
        sizes = [picture.shape[:2] for picture in pictures]
        tiles = [pixels(picture, p) for picture in pictures]
        placed = [placing(s, len(t), p, tokens_of_images) for s, t in zip(sizes, tiles, strict=True)]
        ids = self.conversation.ids(question, placed)
        batch = np.concatenate(tiles)
        asked = torch.from_numpy(np.where(ids == tokens_of_images.newline_id, tokens_of_images.id, ids)[None])
        shown: dict[str, Any] = {"pixel_values": torch.from_numpy(batch)}
        if tokens_of_images.newline_id is not None:
            shown["image_sizes"] = torch.tensor(sizes)
        with quiet(), torch.inference_mode():
            features = self.model.model.get_image_features(**shown)
            pooled = features.pooler_output if hasattr(features, "pooler_output") else features
            out = self.model(input_ids=asked, use_cache=True, **shown)
            prefill, cache, steps, tokens = out.logits[0].numpy(), out.past_key_values, [], []
            token = int(prefill[-1].argmax())
            for _ in range(STEPS):
                tokens.append(token)
                out = self.model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
                steps.append(out.logits[0, -1].numpy())
                token = int(steps[-1].argmax())
        each = [f.reshape(-1, f.shape[-1]).numpy() for f in pooled]
        inner = [
            f if s.row_ends is None else np.delete(f, s.row_ends, axis=0) for f, s in zip(each, placed, strict=True)
        ]
        return {
            "images": images,
            "pictures": placed,
            "pixels": batch,
            "ids": ids,
            "features": np.concatenate(inner),
            "prefill": prefill,
            "steps": np.stack(steps),
            "tokens": tokens,
            "image_token_id": tokens_of_images.id,
        }


def measured(
    load: Callable[[], Any],
    text: Text,
    preprocess: Preprocess,
    folder: Path,
    graphs: dict[str, Graph],
    decoder: Decoder,
    bound: Bound,
    say: Callable[[str], None],
) -> Parity:
    """Parity of three graphs with their checkpoint.

    Args:
        load: the checkpoint in transformers, eager, float32; it is held no longer than it is asked.
        text: the text side.
        preprocess: the model's own.
        folder: of the artifact, with the tokenizer in it.
        graphs: 'vision', 'embed' and 'decoder'.
        decoder: the cache's shape.
        bound: what has to be kept.
        say: called with the step's name.

    Raises:
        ParityError: a graph misses the bound.
    """
    say("asking the checkpoint")
    conversation = Conversation(text, folder / text.tokenizer.file)
    reference = Reference(load(), text, conversation, preprocess)
    expected = [reference.answer(images) for images in (1, 3)]
    del reference
    say("comparing with the checkpoint")
    return checked([row for answer in expected for row in parity_rows(folder, graphs, decoder, answer)], bound)


def parity_rows(folder: Path, graphs: dict[str, Graph], decoder: Decoder, expected: dict[str, Any]) -> list[ParityRow]:
    """The graphs of a folder, fed as an engine feeds them, against the reference's answer, teacher-forced.

    Raises:
        CheckpointError: the prompt and the vision graph do not fit each other.
        ParityError: a graph does not load, or gives numbers that are not finite.
    """
    vision, embed, step = (session(folder / graphs[name].model.file) for name in ("vision", "embed", "decoder"))
    forward = reader(step, graphs["decoder"], decoder)
    ids = expected["ids"][None]
    batch = expected["pixels"].astype(graphs["vision"].inputs[0].dtype, copy=False)
    features: NDArray[np.float32] = vision.run(None, {"pixel_values": batch})[0].astype(np.float32, copy=False)
    features = chosen(features.reshape(-1, features.shape[-1]), expected["pictures"])
    places = ids[0] == expected["image_token_id"]
    if int(places.sum()) != len(features):
        raise CheckpointError(
            f"the prompt holds {int(places.sum())} image tokens, the vision graph gives {len(features)}"
        )

    embeds = embed.run(None, {"input_ids": np.where(places, 0, ids)})[0].astype(np.float32)
    embeds[0, places] = features
    prefill, cache = forward(embeds, empty_cache(decoder))
    steps = []
    for token in expected["tokens"]:
        logits, cache = forward(embed.run(None, {"input_ids": np.array([[token]], dtype=np.int64)})[0], cache)
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

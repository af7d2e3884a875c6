"""Family text_classifier: an encoder of text with a classification head (RoBERTa, BERT, ...) -> P(forged), one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.checkpoints.files import copy_tokenizer, identify, read_json
from edgebench.checkpoints.reference import load_reference
from edgebench.errors import CheckpointError, UsageError
from edgebench.export.graphs import save, trace
from edgebench.export.imported.labels import forged_places
from edgebench.export.manifests import manifest_of
from edgebench.export.parity import compare, session
from edgebench.export.request import checked
from edgebench.forged import p_forged
from edgebench.manifest import TextInput

if TYPE_CHECKING:
    from edgebench.export.request import ExportRequest
    from edgebench.manifest import Manifest

OPSET = 18
FIXED = (
    "A ferry leaves the harbour on a calm morning.",
    "Doctors admit that plain water cures every known illness, and that nobody was allowed to say so.",
    "Rain.",
    'The minister said on Tuesday: "We have never sold an island to a penguin", and left for the airport at noon.',
    "Two dogs sleep on a red sofa while a third one watches the door of the kitchen.",
)
"""Texts of the parity check."""


def export_text_classifier(request: ExportRequest) -> Manifest:
    """Write the graph and the tokenizer, and measure parity with the checkpoint.

    Raises:
        CheckpointError: the checkpoint is not one, or is damaged.
        UsageError: it is not clear which labels mean forged, or another precision than fp32 was asked for.
        ParityError: the graph misses the recipe's bound.
    """
    import torch

    if request.precision != "fp32":
        raise UsageError(f"--{request.precision} is not there for classifiers of text", hint="export it in fp32")
    config = read_json(request.weights, "config.json")
    classes = [c for c in (config or {}).get("architectures") or [] if str(c).endswith("ForSequenceClassification")]
    if not classes:
        raise CheckpointError(
            "is no text classifier: its config.json names no ...ForSequenceClassification", where=request.weights
        )
    request.say("loading the weights")
    model: Any = load_reference(request.weights, str(classes[0]))
    named = model.config.id2label
    labels = tuple(str(named[k]) for k in range(len(named)))
    forged = forged_places(labels, request.recipe.forged)
    longest = _longest(request, model.config)
    tokenizer = copy_tokenizer(request.weights, request.folder)
    batch = [_ids(request, longest, text) for text in FIXED]
    request.say("tracing the network")
    proto = trace(
        _logits(model),
        (torch.from_numpy(batch[0][None]), torch.ones((1, len(batch[0])), dtype=torch.int64)),
        inputs=["input_ids", "attention_mask"],
        outputs=["logits"],
        dynamic=([1], [1]),
        opset=OPSET,
    )
    graph = save(proto, request.folder, "classifier", request.precision)
    manifest = manifest_of(
        request,
        graphs={"classifier": graph},
        preprocess=None,
        source=identify(
            request.weights, parameters=sum(p.numel() for p in model.parameters()), name=request.weights.resolve().name
        ),
        parity=None,
        labels=labels,
        output="logits",
        forged=forged,
        text_input=TextInput(tokenizer=tokenizer, longest=longest),
    )
    request.say("comparing with the checkpoint")
    run = session(request.folder / graph.model.file)
    pairs = []
    for ids in batch:
        with torch.inference_mode():
            reference = model(input_ids=torch.from_numpy(ids[None])).logits.numpy()
        exported = run.run(None, {"input_ids": ids[None], "attention_mask": np.ones_like(ids[None])})[0]
        pairs.append([p_forged(manifest, logits) for logits in (reference, exported)])
    reference, exported = (np.concatenate(side) for side in zip(*pairs, strict=True))
    inputs = f"{len(FIXED)} fixed texts"
    row = compare("classifier", "transformers, eager, fp32", inputs, reference, exported, top1="threshold")
    from dataclasses import replace

    return replace(manifest, parity=checked([row], request.recipe.bound(request.precision)))


def _longest(request: ExportRequest, config: Any) -> int:
    """How many tokens the network takes: what its tokenizer says, and no more than it has positions for.

    RoBERTa's positions begin behind its padding token's.
    """
    positions = int(getattr(config, "max_position_embeddings", 512))
    if config.model_type in {"roberta", "xlm-roberta", "camembert"}:
        positions -= int(config.pad_token_id) + 1
    stated = (read_json(request.weights, "tokenizer_config.json") or {}).get("model_max_length")
    return min(positions, stated) if isinstance(stated, int) and stated > 0 else positions


def _ids(request: ExportRequest, longest: int, text: str) -> Any:
    from edgebench.prompts.captions import CaptionTokens

    return CaptionTokens(request.folder / "tokenizer.json", longest).ids(text)


def _logits(model: Any) -> Any:
    import torch

    class Logits(torch.nn.Module):
        """Token ids and mask -> logits."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
            return logits

    return Logits().eval()

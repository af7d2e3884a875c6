"""Family image_text_classifier: a picture and its caption -> P(forged), one graph. Its only network is HAMMER.

The published code puts captions in lower case without their punctuation, fifty words of them, into BERT's word pieces,
and takes the end token off. The tokenizer of the artifact does all of that by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.checkpoints.files import source_of
from edgebench.errors import CheckpointError, UsageError, one_line
from edgebench.export.graphs import save, trace
from edgebench.export.manifests import manifest_of
from edgebench.export.parity import compare, fixed_images, session
from edgebench.export.request import checked
from edgebench.export.text_classifier import FIXED
from edgebench.forged import p_forged
from edgebench.manifest import TextInput, file_fact
from edgebench.media.pixels import pixels
from edgebench.prompts.captions import CaptionTokens

if TYPE_CHECKING:
    from edgebench.export.request import ExportRequest
    from edgebench.manifest import Manifest

OPSET = 18
WORDS = 50
LONGEST = 127
"""Tokens: the published 128 without the end token."""
DROPPED = r"""[,.'!?"()*#:;~]"""


def export_image_text_classifier(request: ExportRequest) -> Manifest:
    """Write the graph and the tokenizer, and measure parity with the checkpoint in torch.

    Raises:
        CheckpointError: the weights or the vocabulary are missing, damaged or of another network.
        UsageError: another precision than fp32 was asked for.
        ParityError: the graph misses the recipe's bound.
    """
    import torch

    from edgebench.checkpoints.networks.hammer import load_hammer

    recipe, p = request.recipe, request.recipe.preprocess
    if p is None or recipe.weights_file is None:
        raise CheckpointError("the recipe states no preprocessing or no weights file", where=recipe.name)
    if request.precision != "fp32":
        raise UsageError(
            f"--{request.precision} is not there for classifiers of pictures with captions", hint="export it in fp32"
        )
    folder, file = request.weights, request.weights / recipe.weights_file
    if folder.is_file():
        folder, file = folder.parent, folder
    tokenizer = _tokenizer(folder)
    request.say("loading the weights")
    network: Any = load_hammer(file)
    if (p.height, p.width) != (network.side, network.side):
        raise CheckpointError(
            f"takes pictures of {network.side} x {network.side}, the recipe {p.height} x {p.width}", where=file
        )
    if tokenizer.get_vocab_size() != network.vocabulary:
        raise CheckpointError(
            f"the vocabulary has {tokenizer.get_vocab_size()} words, the weights {network.vocabulary}", where=folder
        )
    tokenizer.save(str(request.folder / "tokenizer.json"))
    text_input = TextInput(file_fact(request.folder, "tokenizer.json"), min(LONGEST, network.positions))
    tokens = CaptionTokens(request.folder / "tokenizer.json", text_input.longest)
    batch = [
        (pixels(image, p), tokens.ids(text)[None])
        for image, text in zip(fixed_images(len(FIXED), p.height, p.width), FIXED, strict=True)
    ]
    request.say("tracing the network")
    example, ids = (torch.from_numpy(value) for value in batch[0])
    proto = trace(
        network,
        (example, ids, torch.ones_like(ids)),
        inputs=["pixel_values", "input_ids", "attention_mask"],
        outputs=["logits"],
        dynamic=([], [1], [1]),
        opset=OPSET,
    )
    graph = save(proto, request.folder, "classifier", request.precision)
    manifest = manifest_of(
        request,
        graphs={"classifier": graph},
        preprocess=p,
        source=source_of([file], name=recipe.name, parameters=sum(w.numel() for w in network.parameters())),
        parity=None,
        labels=("real", "fake"),
        output="logits",
        forged=(1,),
        text_input=text_input,
    )
    request.say("comparing with the network")
    run = session(request.folder / graph.model.file)
    pairs = []
    for picture, own in batch:
        feeds = {"pixel_values": picture, "input_ids": own, "attention_mask": np.ones_like(own)}
        with torch.inference_mode():
            reference = network(*map(torch.from_numpy, feeds.values())).numpy()
        pairs.append([p_forged(manifest, logits) for logits in (reference, run.run(None, feeds)[0])])
    reference, exported = (np.concatenate(side) for side in zip(*pairs, strict=True))
    row = compare(
        "classifier", "torch, eager, fp32", f"{len(FIXED)} fixed pairs", reference, exported, top1="threshold"
    )
    from dataclasses import replace

    return replace(manifest, parity=checked([row], recipe.bound(request.precision)))


def _tokenizer(folder: Path) -> Any:
    """BERT's word pieces behind the published cleaning of captions.

    Raises:
        CheckpointError: neither form of the vocabulary is there, or it is damaged.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    whole, words = folder / "tokenizer.json", folder / "vocab.txt"
    if not whole.is_file() and not words.is_file():
        raise CheckpointError(
            "has neither vocab.txt nor tokenizer.json",
            where=folder,
            hint="put bert-base-uncased's vocabulary beside the weights",
        )
    try:
        if words.is_file():
            vocabulary = models.WordPiece.read_file(str(words))
            found: Any = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
        else:
            found = Tokenizer.from_file(str(whole))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(
            f"is no vocabulary: {one_line(error)}", where=words if words.is_file() else whole
        ) from error
    start = found.token_to_id("[CLS]")
    if start is None:
        raise CheckpointError("its vocabulary has no [CLS]", where=folder, hint="bert-base-uncased's is the one")
    changed = ((DROPPED, ""), ("[-/]", " "), ("<person>", "person"), (r"\s{2,}", " "), (r"\n+$", ""), ("^ +| +$", ""))
    # What is kept of the match in front of \K stays.
    longest = rf"^(?:[^ ]* ){{{WORDS - 1}}}[^ ]*\K (?:.|\n)*$"
    found.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            *(normalizers.Replace(Regex(old), new) for old, new in (*changed, (longest, ""))),
            normalizers.BertNormalizer(lowercase=True),
        ]
    )
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", start)])
    return found

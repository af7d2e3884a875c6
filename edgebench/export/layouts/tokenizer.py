"""The tokenizer of a language model as one file, with a token for pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import read_json
from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError, one_line
from edgebench.manifest import file_fact

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.manifest import FileFact

IMAGE = "<image>"
"""LLaVA's placeholder (`llava/constants.py`), for which its tokenizers have no token: its code cuts the text there."""
_BPE, _UNKNOWN, _CONTROL = 2, 2, 3
"""Of sentencepiece_model.proto: the trainer's kind of model, and kinds of pieces."""
_HINT = "save the fast tokenizer (tokenizer.json) beside the weights"


def write_tokenizer(folder: Path, target: Path) -> tuple[FileFact, int]:
    """Write `tokenizer.json` with an image token into the artifact; also the id of that token.

    An image token that is missing gets the next free id. The embedding may have no row for it: a feature takes its
    place.

    Raises:
        CheckpointError: there is no tokenizer, or it is damaged.
    """
    from tokenizers import AddedToken, Tokenizer

    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise CheckpointError(f"is no tokenizer: {one_line(error)}", where=path) from error
    elif (folder / "tokenizer.model").is_file():
        tokenizer = _converted(folder)
    else:
        raise CheckpointError("has neither tokenizer.json nor tokenizer.model", where=folder, hint=_HINT)
    if tokenizer.token_to_id(IMAGE) is None:
        tokenizer.add_special_tokens([AddedToken(IMAGE, special=True, normalized=False)])
    tokenizer.save(str(target / "tokenizer.json"))
    return file_fact(target, "tokenizer.json"), int(tokenizer.token_to_id(IMAGE))


def _converted(folder: Path) -> Any:
    """A SentencePiece BPE model as a fast tokenizer.

    Every piece of text between images begins with a space of its own, as in LLaVA (`tokenizer_image_token` of
    `llava/mm_utils.py` encodes each by itself) and XTuner. `Prepend` does that as sentencepiece does, `Metaspace`,
    which transformers takes since its version 5, leaves it out before a space.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, processors

    path = folder / "tokenizer.model"
    try:
        with quiet():
            from transformers.convert_slow_tokenizer import import_protobuf
            from transformers.tokenization_utils_base import generate_merges

            protobuf: Any = import_protobuf
            model: Any = protobuf().ModelProto()
            model.ParseFromString(path.read_bytes())
            if model.trainer_spec.model_type != _BPE:
                raise CheckpointError("is no BPE model", where=path, hint=_HINT)
            vocabulary = {piece.piece: k for k, piece in enumerate(model.pieces)}
            unknown = next(piece.piece for piece in model.pieces if piece.type == _UNKNOWN)
            merges = generate_merges(vocabulary)
        fast = Tokenizer(models.BPE(vocabulary, merges, fuse_unk=True, byte_fallback=True, unk_token=unknown))
        fast.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        fast.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        fast.add_special_tokens([piece.piece for piece in model.pieces if piece.type in {_UNKNOWN, _CONTROL}])
        added = read_json(folder, "added_tokens.json") or {}
        fast.add_special_tokens([token for token, _ in sorted(added.items(), key=lambda item: int(item[1]))])
        if (read_json(folder, "tokenizer_config.json") or {}).get("add_bos_token", True):
            start = next(piece.piece for piece in model.pieces if piece.type == _CONTROL)
            fast.post_processor = processors.TemplateProcessing(
                single=f"{start} $A", special_tokens=[(start, vocabulary[start])]
            )
    except CheckpointError:
        raise
    except Exception as error:  # protobuf and the tokenizers library raise many kinds
        raise CheckpointError(f"cannot be converted: {one_line(error)}", where=path, hint=_HINT) from error
    return fast

"""An engine whose answers are written down: the runner, the tokenizer and the process around it are the real ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from edgebench.manifest import Artifact, file_fact, read_artifact, write_manifest

SCRIPT = "EDGEBENCH_TEST_SCRIPT"
"""Environment: a JSON file of [words of the prompt, answer] pairs, the first that fits; calls are logged beside it."""


class ScriptedEngine:
    keeps_prefix = True

    def __init__(self, artifact: Artifact, profile: object, options: dict[str, str]) -> None:
        from tokenizers import Tokenizer

        text = artifact.manifest.text
        assert text is not None
        assert text.images is not None
        self._per_tile, self._vocabulary, self._end = text.images.per_tile, text.vocab_size, text.eos_token_ids[0]
        self._tokenizer: Any = Tokenizer.from_file(str(artifact.path(text.tokenizer)))
        self._path = Path(os.environ[SCRIPT])
        self._script = json.loads(self._path.read_text())
        self._answer: list[int] = []

    def __enter__(self) -> ScriptedEngine:
        return self

    def __exit__(self, *reason: object) -> None:
        return None

    def facts(self) -> dict[str, Any]:
        return {"engine": "scripted"}

    def see(self, pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self._log({"see": len(pixels)})
        return np.zeros((len(pixels) * self._per_tile, 8), dtype=np.float32)

    def prefill(self, ids: Any, features: Any, *, keep: int = 0) -> np.ndarray[Any, Any]:
        prompt = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        answer = next(answer for words, answer in self._script if all(w in prompt for w in words))
        self._log({"prompt": prompt, "keep": keep, "tokens": len(ids), "features": len(features), "answer": answer})
        self._answer = [*self._tokenizer.encode(answer, add_special_tokens=False).ids, self._end]
        return self._next()

    def step(self, token: int) -> np.ndarray[Any, Any]:
        return self._next()

    def _next(self) -> np.ndarray[Any, Any]:
        logits = np.zeros(self._vocabulary, dtype=np.float32)
        logits[self._answer.pop(0)] = 1
        return logits

    def _log(self, value: dict[str, Any]) -> None:
        with self._path.with_suffix(".log").open("a") as stream:
            stream.write(json.dumps(value) + "\n")


def calls(script: Path) -> list[dict[str, Any]]:
    """What the engine was asked, in order; the warm-up too."""
    return [json.loads(line) for line in script.with_suffix(".log").read_text().splitlines()]


def bytewise(artifact: Path, target: Path) -> Artifact:
    """A copy of an artifact whose tokenizer can write anything: a token a byte, the special tokens as they were."""
    import dataclasses

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    old = read_artifact(artifact)
    text = old.manifest.text
    assert text is not None
    target.mkdir()
    for file in artifact.iterdir():
        if file.is_file() and file.name != "manifest.json":
            (target / file.name).hardlink_to(file)
    specials = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
    vocabulary = {w: i for i, w in enumerate([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer: Any = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    (target / text.tokenizer.file).unlink()
    tokenizer.save(str(target / text.tokenizer.file))
    fact = file_fact(target, text.tokenizer.file)
    write_manifest(
        target,
        dataclasses.replace(old.manifest, text=dataclasses.replace(text, tokenizer=fact, max_new_tokens=200)),
    )
    return read_artifact(target)

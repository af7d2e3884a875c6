"""Latency without a benchmark: synthetic inputs of given sizes, put to an engine again and again.

Pixels and token ids are random by a fixed seed and made before the clock starts. Timed are vision, prefill and decode;
an answer has as many tokens as it is told to have, whether or not the model would end it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from edgebench.errors import SampleError, UsageError, did_you_mean
from edgebench.media.pixels import pixels
from edgebench.prompts.placing import chosen, placing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.batches import BatchRunner
    from edgebench.engines.base import Batched
    from edgebench.manifest import Artifact, Preprocess
    from edgebench.prompts.placing import Placing

SEED = 0
AXES = ("batch", "images", "prompt", "output")
MOST_CASES = 256
MOST_WARMUPS = 20
NOT_FASTER = 0.95
WARMUP = (
    "a case is warm when two calls in a row took at least 95 % of the shortest before them; "
    f"{MOST_WARMUPS} calls at most; the first of them is told apart"
)


@dataclass(frozen=True)
class Case:
    """Sizes of one measurement."""

    batch: int = 1
    images: int | None = None
    """Per row; None: one where the model sees, else none."""
    prompt: int | None = None
    """Tokens of each row's prompt, those of its images in them; None: 64 beside them."""
    output: int = 1


@dataclass(frozen=True)
class Rule:
    """When a case is measured long enough: both have to be reached."""

    seconds: float
    count: int


@dataclass(frozen=True)
class Measured:
    """What came of one case."""

    case: Case
    """As it was measured, nothing left open."""
    first_ns: int
    """The first call of these sizes, which allocates and may compile."""
    warmups: int
    """Calls before the first that counts, the first one in them."""
    samples_ns: dict[str, list[int]] = field(default_factory=dict)
    """vision, prefill, decode, total, ttft_from_tensor and tpot, where there are such: one value a call."""


@dataclass(frozen=True)
class _Inputs:
    tiles: NDArray[np.float32] | None
    pictures: list[Placing]
    ids: NDArray[np.int64] | None


def cases(text: str) -> list[Case]:
    """Every combination of a sweep such as 'batch=1,2 prompt=128,512 output=1,16'.

    Raises:
        UsageError: it is of another form.
    """
    axes: dict[str, list[int]] = {}
    for part in text.split():
        name, _, values = part.partition("=")
        if name not in AXES or name in axes:
            what = "twice" if name in axes else "no size of it"
            raise UsageError(f"--sweep: {name!r} is {what}", hint=did_you_mean(name, AXES))
        found = values.split(",")
        least = 0 if name == "images" else 1
        if not all(v.isascii() and v.isdigit() and least <= int(v) < 1_000_000 for v in found):
            raise UsageError(f"--sweep: {part!r} is no list of numbers from {least} on", hint="such as prompt=128,512")
        axes[name] = [int(v) for v in found]
    made = [Case(**dict(zip(axes, values, strict=True))) for values in itertools.product(*axes.values())]
    if len(made) > MOST_CASES:
        raise UsageError(f"--sweep: {len(made)} cases, {MOST_CASES} at most", hint="sweep fewer sizes at a time")
    return made


def measure(runner: BatchRunner, case: Case, rule: Rule) -> Measured:
    """One case, in the engine's process.

    Raises:
        SampleError: the model or the engine does not take such sizes.
        EngineError: the runtime failed.
    """
    if runner.artifact is None or runner.chat is not None:
        raise SampleError("synthetic inputs are for an engine with an artifact")
    case, inputs = _inputs(runner.artifact, case)
    if case.batch > 1 and not runner.can_batch:
        raise SampleError("this engine or artifact takes one row at a time")
    clock = runner.clock
    first = best = sum(_call(runner, case, inputs).values())
    warmups, level = 1, 0
    while level < 2 and warmups < MOST_WARMUPS:
        took = sum(_call(runner, case, inputs).values())
        level = level + 1 if took >= NOT_FASTER * best else 0
        best, warmups = min(best, took), warmups + 1
    samples: dict[str, list[int]] = {}
    count, begin = 0, clock()
    while count < rule.count or clock() - begin < rule.seconds * 1e9:
        stages = _call(runner, case, inputs)
        for name, ns in (stages | _derived(stages, case)).items():
            samples.setdefault(name, []).append(ns)
        count += 1
    return Measured(case, first, warmups, samples)


def _derived(stages: dict[str, int], case: Case) -> dict[str, int]:
    found = {"total": sum(stages.values())}
    if "prefill" in stages:
        found["ttft_from_tensor"] = stages.get("vision", 0) + stages["prefill"]
    if case.output > 1 and "decode" in stages:
        found["tpot"] = stages["decode"] // (case.output - 1)
    return found


def _call(runner: BatchRunner, case: Case, inputs: _Inputs) -> dict[str, int]:
    """Nanoseconds of each stage."""
    engine, clock, stages = runner.engine, runner.clock, {}
    begin = clock()
    if inputs.ids is None and inputs.tiles is not None:
        engine.classify(inputs.tiles)
        return {"vision": clock() - begin}
    ids = cast("NDArray[np.int64]", inputs.ids)
    if runner.conversation is None:
        engine.read(ids[0])
        return {"vision": clock() - begin}
    decoder = None if runner.artifact is None else runner.artifact.manifest.decoder
    features = np.zeros((0, 0 if decoder is None else decoder.hidden_size), dtype=np.float32)
    if inputs.tiles is not None:
        features = chosen(engine.see(inputs.tiles), inputs.pictures)
        stages["vision"] = clock() - begin
    seen = clock()
    many = cast("Batched", engine)
    logits = many.prefill_batch(ids, features) if case.batch > 1 else engine.prefill(ids[0], features)[None]
    filled = clock()
    stages["prefill"] = filled - seen
    for _ in range(case.output - 1):
        following = logits.argmax(axis=1).astype(np.int64)
        logits = many.step_batch(following) if case.batch > 1 else engine.step(int(following[0]))[None]
    if case.output > 1:
        stages["decode"] = clock() - filled
    return stages


def _inputs(artifact: Artifact, case: Case) -> tuple[Case, _Inputs]:
    """The case with nothing left open, and what is put to the engine."""
    rng, manifest = np.random.default_rng(SEED), artifact.manifest
    text, p = manifest.text, manifest.preprocess
    images = (0 if p is None else 1) if case.images is None else case.images
    if images and p is None:
        raise SampleError("the model takes text alone, so images=0")
    if manifest.kind == "image-text-classifier":
        raise SampleError("a classifier of pictures with captions is not measured with synthetic inputs")
    if text is None:
        if case.output != 1 or (p is not None and (case.prompt is not None or images != 1)):
            raise SampleError("a classifier takes one image a row (or one text), and has no output tokens")
        if p is None:
            tokens = min(case.prompt or 64, manifest.text_input.longest if manifest.text_input else 64)
            return Case(case.batch, 0, tokens, 1), _Inputs(None, [], rng.integers(1, 100, (1, tokens)))
    tiles, pictures = [], []
    for _ in range(case.batch * images):
        p = cast("Preprocess", p)
        picture = rng.integers(0, 256, (max(1, p.height), max(1, p.width), 3), dtype=np.uint8)
        if p.kind == "face_crop":
            tiles.append(rng.standard_normal((1, 3, p.height, p.width), dtype=np.float32))
        else:
            tiles.append(pixels(picture, p))
        if text is not None and text.images is not None:
            pictures.append(placing(picture.shape[:2], len(tiles[-1]), p, text.images))
    together = np.concatenate(tiles) if tiles else None
    if text is None:
        return Case(case.batch, 1, None, 1), _Inputs(together, [], None)
    seen = sum(one.tokens for one in pictures[:images])
    prompt = seen + 64 if case.prompt is None else case.prompt
    if prompt <= seen:
        raise SampleError(f"prompt={prompt} has no room beside the {seen} image tokens")
    if prompt + case.output > text.context_length:
        raise SampleError(f"prompt={prompt} output={case.output}: the model takes {text.context_length} tokens")
    apart = {*text.eos_token_ids}
    if text.images is not None:
        apart |= {text.images.id, text.images.newline_id or text.images.id}
    plain = np.array([i for i in range(min(text.vocab_size, 4096)) if i not in apart], dtype=np.int64)
    ids = rng.choice(plain, (case.batch, prompt))
    if text.images is not None:
        at = 0
        for one in pictures[:images]:
            ids[:, at : at + one.tokens] = text.images.id
            if one.row_ends is not None and text.images.newline_id is not None:
                ids[:, at + one.row_ends] = text.images.newline_id
            at += one.tokens
    return Case(case.batch, images, prompt, case.output), _Inputs(together, pictures, ids)

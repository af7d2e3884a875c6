"""Which parts of a picture an answer hangs on: occlusion, on any engine; attention is `edgebench.attended`.

A grey patch slides over the picture, and the model is asked again each time. The map is how far the answer that the run
holds falls: the log-probability of its letter, or the log-odds of real against forged. A place is given the mean over the
patches that cover it. It says what this answer hangs on, and not where a forgery is.

Source: M. D. Zeiler and R. Fergus, Visualizing and Understanding Convolutional Networks (ECCV 2014), section 4.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgebench.answers import judge, says_forged
from edgebench.artifacts import is_remote
from edgebench.attended import ENGINE, attended
from edgebench.benches import BENCHES
from edgebench.benches.base import Image
from edgebench.benches.container import ready
from edgebench.benches.taxonomy import FAMILY
from edgebench.engines.others import engine_class
from edgebench.errors import EdgebenchError, EngineError, RunError, UsageError, did_you_mean, one_line
from edgebench.manifest import MANIFEST, read_artifact
from edgebench.media.decode import decode
from edgebench.media.encode import encode
from edgebench.media.perturb import Perturbation, perturb
from edgebench.media.pixels import pixels
from edgebench.places import cache_folder
from edgebench.profiles import load_profile
from edgebench.records import NO_ANSWER
from edgebench.registry import load, lookup
from edgebench.runner import HowToAsk, Query, Runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from numpy.typing import NDArray

    from edgebench.benches.base import Sample
    from edgebench.manifest import Artifact
    from edgebench.records import Record, Run, RunHeader

    class Progress(Protocol):
        """Who watches."""

        def begin(self, total: int, done: int) -> None:
            """So many questions will be asked."""

        def advance(self, failed: bool) -> None:
            """One more was."""


GREY = 128
BATCH = 16
"""Patches that a classifier is asked about at once, where its engine takes several."""
GRIDS = {"occlusion": 8, "attention": 24}
Method = Literal["occlusion", "attention"]
SMALLEST = 1e-9
"""A probability nearer to 0 or 1 counts as that near."""


@dataclass(frozen=True)
class Explanation:
    """The maps of one answer."""

    sample: str
    answer: str
    """The letter, or 'real' or 'forged'."""
    method: Method
    meaning: str
    """What it says."""
    measure: str
    """What falls: 'ln P' of the letter, or 'log-odds' of real against forged."""
    value: float
    """Of that answer with nothing covered."""
    recorded: float
    """The same in the run's record."""
    questions: int
    """How often the model was asked."""
    cell: int
    """Side of a map's cell, in pixels; a patch is two cells wide."""
    pictures: list[NDArray[np.uint8]]
    """As the model was shown them: uint8 [H, W, 3]."""
    maps: list[NDArray[np.float64]]
    """One a picture, [rows, columns]. occlusion: by how much it falls; above 0 the place speaks for the answer.
    attention: relevance, at least 0, without a unit."""


@dataclass(frozen=True)
class Means:
    """What a run does not keep itself."""

    artifact: Path | None = None
    """None: it is looked for here, beside the run and in the cache, by its manifest's SHA-256."""
    data: Path | None = None
    weights: str | None = None
    profile: str = "cpu"
    grid: int | None = None
    """Cells along the longer side; None: as many as `GRIDS` says."""
    method: Method = "occlusion"


def find_record(run: Run, identity: str) -> Record:
    """The record of a sample that was answered.

    Raises:
        RunError: there is none.
    """
    seen = []
    for record in run.records():
        if record.id == identity:
            reason = record.error or record.not_asked
            if reason is not None:
                raise RunError(f"the sample {identity!r} has no answer: {reason}", where=run.folder)
            return record
        seen.append(record.id)
    hint = did_you_mean(identity, seen) if len(seen) <= 1000 else "its ids are in records.jsonl"
    raise RunError(f"holds no answer to a sample {identity!r}", where=run.folder, hint=hint)


def explain(run: Run, record: Record, means: Means, progress: Progress) -> Explanation:
    """Ask about covered pictures until the map is whole.

    Raises:
        UsageError: this answer has no probability, the sample no picture, or the model is not found.
        RunError: the artifact or the data are not the run's.
        EngineError: the engine cannot be loaded, or fails.
        SampleError: the sample cannot be put to the model again.
    """
    settings = run.header.settings
    if settings.bench in FAMILY and (settings.protocol or settings.prompts):
        raise UsageError(
            f"the questions of this run were put otherwise ({settings.protocol or settings.prompts}), which cannot be repeated here",
            hint="explain a run of the plain questions",
        )
    answer, _ = judge(record, scoring=settings.scoring, matcher=settings.matcher)
    answer, meaning = _chosen(record, answer)
    artifact = _artifact(run, means.artifact)
    sample = _sample(run.header, record.id, means.data, artifact)
    pictures = _pictures(sample, run.header, artifact)
    if not pictures:
        raise UsageError(f"the sample {record.id!r} has no picture")
    cell = max(1, math.ceil(max(max(p.shape[:2]) for p in pictures) / (means.grid or GRIDS[means.method])))
    told = partial(
        Explanation,
        sample=record.id,
        answer=answer,
        method=means.method,
        meaning=meaning,
        measure="ln P" if record.options and record.option_logprobs else "log-odds",
        recorded=_recorded(record, answer),
        cell=cell,
        pictures=pictures,
    )
    if means.method == "attention":
        options = _options(run.header, means) if settings.engine == ENGINE else {}
        options |= {} if means.weights is None else {"weights": means.weights}
        progress.begin(1, 0)
        maps, value = attended(
            artifact,
            sample.question,
            pictures,
            answer,
            style=settings.prompt_style,
            cell=cell,
            profile=means.profile,
            options=options,
        )
        progress.advance(failed=False)
        return told(value=value, questions=1, maps=maps)
    how = HowToAsk("logits", settings.prompt_style, "lossless", settings.max_new_tokens)
    shapes = [(math.ceil(p.shape[0] / cell), math.ceil(p.shape[1] / cell)) for p in pictures]
    total = 1 + sum((rows + 1) * (columns + 1) for rows, columns in shapes)
    progress.begin(total, 0)
    engine = load(engine_class(settings.engine))(artifact, load_profile(means.profile), _options(run.header, means))
    getattr(engine, "prepare", lambda: False)()
    try:
        with engine as opened:
            asked = _asked(_covered(pictures, cell), Runner(opened, artifact, how), sample)
            found = []
            for score, logprobs in asked:
                found.append(_value(record, answer, score, logprobs))
                progress.advance(failed=False)
    except EdgebenchError:
        raise
    except Exception as error:  # engines of others raise what they like
        raise EngineError(f"the engine {settings.engine!r} failed: {one_line(error)}") from error
    falls = np.array(found[0]) - np.array(found[1:])
    maps, begin = [], 0
    for rows, columns in shapes:
        size = (rows + 1) * (columns + 1)
        own = falls[begin : begin + size].reshape(rows + 1, columns + 1)
        maps.append((own[:-1, :-1] + own[1:, :-1] + own[:-1, 1:] + own[1:, 1:]) / 4)
        begin += size
    return told(value=found[0], questions=total, maps=maps)


def _chosen(record: Record, answer: str | None) -> tuple[str, str]:
    """The answer whose probability is looked at, and what it says."""
    if record.option_logprobs is None and record.score is None:
        raise UsageError(
            f"the answer to {record.id!r} is a text without an option's probability, so there is nothing to map",
            hint="-o FILE.md writes what was said",
        )
    if record.options and record.option_logprobs:
        if answer is None or answer == NO_ANSWER:
            answer = max(record.option_logprobs, key=record.option_logprobs.__getitem__)
        return answer, record.options.get(answer, answer)
    if answer is None or answer == NO_ANSWER:
        answer = "forged" if (record.score or 0.0) >= 0.5 else "real"
    return answer, "forged" if says_forged(record, answer) else "real"


def _recorded(record: Record, answer: str) -> float:
    return _value(record, answer, record.score, record.option_logprobs)


def _value(record: Record, answer: str, score: float | None, logprobs: dict[str, float] | None) -> float:
    """Log-probability of the answer's letter as the first token, or the answer's log-odds from P(forged)."""
    if record.options and logprobs:
        return logprobs[answer]
    if score is None:
        raise EngineError("the model gave no probability this time")
    forged = min(1 - SMALLEST, max(SMALLEST, score))
    return (1 if says_forged(record, answer) else -1) * math.log(forged / (1 - forged))


def _covered(pictures: list[NDArray[np.uint8]], cell: int) -> Iterator[list[NDArray[np.uint8]]]:
    """The pictures as they are, then with each patch in turn; patches begin one cell outside."""
    yield pictures
    for number, picture in enumerate(pictures):
        height, width = picture.shape[:2]
        for top in range(-cell, height, cell):
            for left in range(-cell, width, cell):
                covered = picture.copy()
                covered[max(0, top) : top + 2 * cell, max(0, left) : left + 2 * cell] = GREY
                yield [*pictures[:number], covered, *pictures[number + 1 :]]


def _asked(
    shown: Iterator[list[NDArray[np.uint8]]], runner: Runner, sample: Sample
) -> Iterator[tuple[float | None, dict[str, float] | None]]:
    """P(forged) and the options' log-probabilities for each set of pictures."""
    artifact = runner.artifact
    preprocess = None if artifact is None else artifact.manifest.preprocess
    if artifact is None or artifact.manifest.kind != "classifier" or preprocess is None:
        for pictures in shown:
            files = [Image(str(k), encode(picture, "png")[1]) for k, picture in enumerate(pictures)]
            answer = runner.ask(Query(sample.id, tuple(files), sample.question))
            yield answer.score, answer.option_logprobs
        return
    size, ended = BATCH, False
    while not ended:
        batch: list[NDArray[np.float32]] = []
        while len(batch) < size and not ended:
            pictures = next(shown, [])
            ended = not pictures
            batch += [pixels(pictures[0], preprocess)[:1]] if pictures else []
        try:
            scores: Any = runner.engine.classify(np.concatenate(batch)) if batch else []
        except EngineError:
            if len(batch) == 1:
                raise
            size = 1  # an engine that was built for one picture at a time
            scores = [runner.engine.classify(one)[0] for one in batch]
        for score in scores:
            yield float(score), None


def _options(header: RunHeader, means: Means) -> dict[str, str]:
    settings = header.settings
    found = {} if settings.provider == "default" else {"provider": settings.provider}
    if settings.memory != "normal":
        found["memory"] = settings.memory
    if settings.endpoint is not None:
        sent = settings.endpoint
        found |= {"base_url": sent.base_url, "model": sent.model, "image": sent.image}
        found |= {} if sent.max_side is None else {"max_side": str(sent.max_side)}
    if means.weights is not None:
        found["weights"] = means.weights
    return found | dict(option.split("=", 1) for option in settings.options)


def _artifact(run: Run, folder: Path | None) -> Artifact | None:
    fact = run.header.artifact
    if fact is None:
        if not is_remote(run.header.settings.engine):
            raise UsageError("this run had no model", hint="explain a run of an artifact")
        return None
    if folder is not None:
        found = read_artifact(folder)
        if found.manifest_sha256 != fact.manifest_sha256:
            raise RunError(f"{run.folder} is of another artifact", where=folder, hint=f"it was of {fact.name!r}")
        return found
    for place in (Path(), run.folder.resolve().parent, cache_folder()):
        for path in sorted((*place.glob(MANIFEST), *place.glob(f"*/{MANIFEST}"))):
            artifact = _readable(path.parent)
            if artifact is not None and artifact.manifest_sha256 == fact.manifest_sha256:
                return read_artifact(path.parent)
    raise UsageError(f"the artifact of the run, {fact.name!r}, is not here", hint="pass --artifact FOLDER")


def _readable(folder: Path) -> Artifact | None:
    try:
        return read_artifact(folder, verify=False)
    except EdgebenchError:
        return None


def _sample(header: RunHeader, identity: str, data: Path | None, artifact: Artifact | None) -> Sample:
    """The sample as the run put it, its files made alike where the run's were."""
    settings = header.settings
    bench: Any = load(lookup(BENCHES, settings.bench, what="bench")[0]).open(data, limit=settings.limit)
    if bench.data().fingerprint != header.data.fingerprint:
        raise RunError(f"the run's data, {header.data.name}, were others", hint="pass the run's own by --data")
    sample: Sample | None = next((s for s in bench.samples() if s.id == identity), None)
    if sample is None:
        raise RunError(f"the data hold no sample {identity!r}")
    p = None if artifact is None else artifact.manifest.preprocess
    how: dict[str, Any] = {} if p is None else {"orientation": p.orientation, "alpha": p.alpha}
    if settings.image_path == "official-jpeg75":
        how["orientation"] = "ignore"
    return ready(sample, settings.equalize, **how)


def _pictures(sample: Sample, header: RunHeader, artifact: Artifact | None) -> list[NDArray[np.uint8]]:
    """The pixels that the model was shown."""
    settings, p = header.settings, None if artifact is None else artifact.manifest.preprocess
    how: dict[str, Any] = {} if p is None else {"orientation": p.orientation, "alpha": p.alpha}
    how["image_path"] = settings.image_path
    found = [decode(image.read(), **how) for image in sample.images]
    if settings.perturbation is None:
        return found
    perturbation = Perturbation.parse(settings.perturbation)
    return [perturb(picture, perturbation, sample.id, frame=k) for k, picture in enumerate(found)]

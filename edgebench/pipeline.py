"""The one place that knows the whole road: artifact + bench -> questions -> engine -> records."""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from edgebench import __version__
from edgebench.artifacts import check_place, fact_of, is_remote
from edgebench.benches import BENCHES
from edgebench.benches.container import ready
from edgebench.desk import Desk
from edgebench.endpoint import endpoint_of
from edgebench.engines import ENGINES
from edgebench.engines.others import engine_class
from edgebench.environment import now
from edgebench.errors import RunError, UsageError, did_you_mean
from edgebench.media.decode import MAX_PIXELS
from edgebench.media.perturb import Perturbation
from edgebench.offline import OfflineDesk
from edgebench.profiles import load_profile
from edgebench.prompts.matchers import DEFAULT as DEFAULT_MATCHER
from edgebench.prompts.matchers import MATCHERS
from edgebench.prompts.styles import style as check_style
from edgebench.prompts.verdicts import READERS
from edgebench.protocols import open_protocol
from edgebench.records import (
    CHECKPOINT,
    FORMAT,
    Limits,
    Record,
    Run,
    RunHeader,
    Settings,
    Sitting,
    Store,
    is_run,
)
from edgebench.registry import load, lookup
from edgebench.runner import HowToAsk
from edgebench.sensors.watch import Watch, check_energy, on_gpu
from edgebench.worker import WorkerPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgebench.benches.base import Bench, Sample
    from edgebench.benches.container import Equalize
    from edgebench.manifest import Artifact
    from edgebench.media.decode import ImagePath
    from edgebench.protocols import Procedure
    from edgebench.windows import Window

DEFAULT_BATCH = 8


class Progress(Protocol):
    """Who watches a run."""

    def begin(self, total: int, done: int) -> None:
        """The run has `total` samples, `done` of which were answered in an earlier sitting."""

    def advance(self, failed: bool) -> None:
        """One more is on the disk."""

    def note(self, line: str) -> None:
        """Something that the user should know at once."""

    def say(self, step: str) -> None:
        """What the engine does before it can answer."""


@dataclass(frozen=True)
class RunPlan:
    """What `edgebench run` was asked for."""

    artifact: Artifact | None
    engine: str
    bench: str
    data: Path | None
    output: Path | None
    """None: a new folder in `runs/`."""
    resume: bool = False
    retry_failed: bool = False
    """Continue the run, and ask the failed questions again."""
    limit: int | None = None
    provider: str | None = None
    profile: str = "cpu"
    scoring: Literal["generate", "logits"] = "generate"
    matcher: str = DEFAULT_MATCHER
    prompt_style: str | None = None
    image_path: ImagePath = "lossless"
    max_new_tokens: int | None = None
    perturb: str | None = None
    """Such as 'noise:3'."""
    equalize: Equalize | None = None
    """All pictures are encoded anew in this way before they are put; see `edgebench.benches.container`."""
    max_pixels: int = MAX_PIXELS
    reuse: bool = False
    warmup: bool = True
    scenario: Literal["single-stream", "offline"] = "single-stream"
    batch: int | None = None
    """Offline: the most questions in one call of the engine."""
    memory: Literal["normal", "low"] = "normal"
    """low: weights stay in mapped files, for machines whose memory is smaller than the model; engine 'ort'."""
    protocol: str | None = None
    """How MMFakeBench is asked; see `edgebench.protocols`."""
    prompts: str | None = None
    knowledge: str | None = None
    detectors: dict[str, Artifact] = field(default_factory=dict)
    """Stage of `mixed` -> its own artifact."""
    endpoint: dict[str, str] = field(default_factory=dict)
    """Of an engine whose model is elsewhere; see `edgebench.endpoint.endpoint_of`."""
    engine_options: tuple[str, ...] = ()
    """'name=value' each: what the engine's own `OPTIONS` lists."""
    weights: str | None = None
    """The checkpoint, for engines that run it and not the artifact's graphs."""
    limits: Limits = field(default_factory=Limits)
    energy: str = "auto"
    """'auto', 'rapl', 'nvml', 'jetson', or an external meter's CSV; see `edgebench.sensors.energy`."""


def run(plan: RunPlan, progress: Progress) -> Path:
    """Ask every question once, keep every answer, and return the run's folder.

    Raises:
        EdgebenchError: of the family that fits. What was answered before stays answered.
    """
    engine = engine_class(plan.engine)
    bench_class, _ = lookup(BENCHES, plan.bench, what="bench")
    lookup({**MATCHERS, **READERS}, plan.matcher, what="answer matcher")
    perturbation = None if plan.perturb is None else Perturbation.parse(plan.perturb)
    if perturbation is not None:
        perturbation.check()
    if plan.memory == "low" and not hasattr(_built_in(plan.engine), "prepare"):
        raise UsageError(f"the engine {plan.engine!r} has no low-memory mode", hint="leave --memory out")
    remote = check_place(plan.engine, plan.endpoint)
    if remote and (plan.reuse or plan.provider):
        raise UsageError(f"--reuse and --provider are not for the engine {plan.engine!r}", hint="leave them out")
    own = own_options(plan)
    batch = _batch(plan, remote=remote)
    check_energy(plan.energy)
    bench: Bench = load(bench_class).open(plan.data, limit=plan.limit)
    protocol = open_protocol(bench, plan)
    if batch is not None and protocol is not None and protocol.several_calls:
        raise UsageError(f"--scenario offline is not for the protocol {protocol.name!r}, whose calls follow each other")
    header = _header(plan, bench, protocol)
    folder, store, done, sitting = _open_store(plan, header)
    with store:
        total = header.data.questions
        progress.begin(total, len(done))
        if len(done) >= total:
            return folder
        how = HowToAsk(
            scoring=plan.scoring,
            prompt_style=header.settings.prompt_style,
            image_path=plan.image_path,
            max_new_tokens=header.settings.max_new_tokens,
            perturbation=perturbation,
            max_pixels=plan.max_pixels,
            reuse=plan.reuse or (protocol is not None and protocol.several_calls),
            batch=batch,
        )
        options = engine_options(plan) | own
        profile = load_profile(plan.profile)
        watch = Watch(folder, sitting, energy=plan.energy, gpu=on_gpu(plan.engine, plan.provider))
        worker = WorkerPlan(engine, plan.artifact, profile, options, how)
        desk = (Desk if batch is None else OfflineDesk)(
            worker, store, sitting, plan, progress, watch, protocol, remote=remote
        )
        kind = "vision-language" if plan.artifact is None else plan.artifact.manifest.kind
        made_ready = _made_ready(plan)
        asked = ((made_ready(s), bench.suits(kind, s)) for s in bench.samples() if s.id not in done)
        with contextlib.ExitStack() as stack:
            if not remote:
                stack.enter_context(watch)
            if protocol is not None:
                desk.look_up = protocol.begin(folder, stack)
            at_once = remote and (protocol is None or not protocol.several_calls)
            records: Iterator[Record | Window]
            if isinstance(desk, OfflineDesk) and batch is not None:
                records = desk.windows(asked, batch, stack)
            else:
                records = desk.called(asked) if at_once else (desk.record(*sample, stack) for sample in asked)
            for record in records:
                store.append(record)
                if isinstance(record, Record):
                    progress.advance(record.error is not None)
            watch.look(last=True)
    return folder


def _batch(plan: RunPlan, *, remote: bool) -> int | None:
    """Offline: the most questions in one call; None where questions are asked one at a time.

    Raises:
        UsageError: the options do not go together.
    """
    if plan.scenario != "offline":
        if plan.batch is not None:
            raise UsageError("--batch is for --scenario offline")
        return None
    if remote or plan.reuse:
        what = f"the engine {plan.engine!r}, whose model is elsewhere" if remote else "--reuse"
        raise UsageError(f"--scenario offline does not go with {what}", hint="leave --scenario out")
    return plan.batch or DEFAULT_BATCH


def engine_options(plan: RunPlan) -> dict[str, str]:
    """What an engine is opened with, but for its own settings."""
    options = {} if plan.provider is None else {"provider": plan.provider}
    if plan.memory != "normal":
        options["memory"] = plan.memory
    options |= plan.endpoint
    if plan.weights is not None:
        options["weights"] = plan.weights
    return options


def _made_ready(plan: RunPlan) -> Callable[[Sample], Sample]:
    """What is done to each sample before it is put, untimed: its files' facts are read, and `--equalize`."""
    preprocess = None if plan.artifact is None else plan.artifact.manifest.preprocess
    how: dict[str, Any] = {"max_pixels": plan.max_pixels}
    if preprocess is not None:
        # The published scores' own JPEG pass leaves pictures as they lie.
        turned = "ignore" if plan.image_path == "official-jpeg75" else preprocess.orientation
        how |= {"orientation": turned, "alpha": preprocess.alpha}
    return lambda sample: ready(sample, plan.equalize, **how)


def _built_in(engine: str) -> Any:
    """The class of an engine of ours; None of another package's, which may end the process that imports it."""
    return load(ENGINES[engine][0]) if engine in ENGINES else None


def own_options(plan: RunPlan) -> dict[str, str]:
    """The engine's own settings of a plan, by name.

    Raises:
        UsageError: the engine has no such setting, or takes no checkpoint.
    """
    engine = _built_in(plan.engine)
    known, found = getattr(engine, "OPTIONS", {}), {}
    for text in plan.engine_options:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise UsageError(f"the engine {plan.engine!r} has no option {text!r}", hint=did_you_mean(name, known))
        found[name] = value
    if plan.weights is not None and not getattr(engine, "TAKES_WEIGHTS", False):
        raise UsageError(f"the engine {plan.engine!r} runs the artifact's own weights", hint="leave --weights out")
    return found


def _header(plan: RunPlan, bench: Bench, protocol: Procedure | None) -> RunHeader:
    manifest = None if plan.artifact is None else plan.artifact.manifest
    text = None if manifest is None else manifest.text
    style = plan.prompt_style or (text.prompt_style if text else "default")
    check_style(style)
    scores = manifest is not None and manifest.kind in {"classifier", "text-classifier"}
    if plan.scoring == "logits" and scores:
        raise UsageError("a classifier gives a probability, not tokens", hint="leave --scoring out")
    fact = None if plan.artifact is None else fact_of(plan.artifact)
    if fact is not None and getattr(_built_in(plan.engine), "TAKES_WEIGHTS", False):
        # Its weights are the checkpoint's: what stands in the artifact's files says nothing of this run.
        own = own_options(plan).get("dtype", "fp32")
        fact = replace(fact, dialect=CHECKPOINT, precision=own, bytes=None, parity=None, work={})
    settings = Settings(
        engine=plan.engine,
        provider=plan.provider or "default",
        bench=plan.bench,
        scoring="threshold" if scores else plan.scoring,
        matcher=plan.matcher,
        prompt_style=style,
        image_path=plan.image_path,
        max_new_tokens=plan.max_new_tokens or (text.max_new_tokens if text else 512),
        limit=plan.limit,
        perturbation=None if plan.perturb is None else str(Perturbation.parse(plan.perturb)),
        equalize=plan.equalize,
        reuse=plan.reuse,
        memory=plan.memory,
        endpoint=endpoint_of(plan.endpoint)[0] if is_remote(plan.engine) else None,
        options=tuple(sorted(plan.engine_options)),
        scenario=plan.scenario,
        batch=_batch(plan, remote=is_remote(plan.engine)),
        protocol=None if protocol is None else protocol.label,
        prompts=None if protocol is None else protocol.instructions.label,
        knowledge=None if protocol is None or protocol.source is None else protocol.source.name,
    )
    return RunHeader(
        format=FORMAT,
        created=now(),
        edgebench=__version__,
        settings=settings,
        artifact=fact,
        data=bench.data(),
        limits=plan.limits,
    )


def _open_store(plan: RunPlan, header: RunHeader) -> tuple[Path, Store, set[str], int]:
    """The run's folder, opened; the ids that are answered already; and the number of this sitting."""
    folder, resume = plan.output, plan.resume or plan.retry_failed
    if folder is None and resume:
        folder = _unfinished(header)
    if folder is not None and resume and is_run(folder):
        store = Store.resume(folder)
        try:
            run = Run(folder)
            _same(run, header)
            done: set[str] = set()
            sittings = 0
            for line in run.lines():
                if isinstance(line, Sitting):
                    sittings += 1
                elif line.error is None or not plan.retry_failed:
                    done.add(line.id)
        except BaseException:
            store.close()
            raise
        return folder, store, done, sittings + 1
    if folder is None:
        name = "no-model" if header.artifact is None else f"{header.artifact.name}-{header.artifact.precision}"
        if header.settings.endpoint is not None:
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", header.settings.endpoint.model)[-60:].strip(".-") or "model"
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
        folder = Path("runs") / f"{name}-{plan.engine}-{plan.bench}-{stamp}"
    return folder, Store.create(folder, header), set(), 1


def _identity(header: RunHeader) -> tuple[Any, ...]:
    artifact = None if header.artifact is None else header.artifact.manifest_sha256
    return header.settings, artifact, header.data.fingerprint


def _unfinished(header: RunHeader) -> Path | None:
    """The newest run in `runs/` of the same model, data and settings."""
    runs = sorted((p.parent for p in Path("runs").glob("*/run.json")), key=lambda p: p.stat().st_mtime_ns, reverse=True)
    for folder in runs:
        with contextlib.suppress(RunError):
            if _identity(Run(folder).header) == _identity(header):
                return folder
    return None


def _same(run: Run, header: RunHeader) -> None:
    """Refuse to continue a run of another model, other data or other settings."""
    old, new = run.header, header
    differences = [
        f"{k} {v!r} -> {asdict(new.settings)[k]!r}"
        for k, v in asdict(old.settings).items()
        if v != asdict(new.settings)[k]
    ]
    if _identity(old)[1] != _identity(new)[1]:
        differences.append("another artifact")
    if old.data.fingerprint != new.data.fingerprint:
        differences.append("other data")
    if differences:
        raise RunError(
            f"cannot be continued: {'; '.join(differences)}",
            where=run.folder,
            hint="pass the same options, or another --output",
        )

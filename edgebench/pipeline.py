"""The one place that knows the whole road: artifact + bench -> questions -> engine -> records."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from edgebench import __version__
from edgebench.answers import judge
from edgebench.apart import Died
from edgebench.benches import BENCHES
from edgebench.engines import DIALECTS
from edgebench.engines.others import engine_class
from edgebench.environment import describe_host
from edgebench.errors import EngineError, RunError, UsageError
from edgebench.manifest import MANIFEST, is_artifact, read_artifact
from edgebench.media.decode import MAX_PIXELS
from edgebench.media.perturb import Perturbation
from edgebench.profiles import load_profile
from edgebench.prompts.matchers import DEFAULT as DEFAULT_MATCHER
from edgebench.prompts.matchers import MATCHERS
from edgebench.prompts.styles import style as check_style
from edgebench.recipes import load_recipe
from edgebench.records import FORMAT, ArtifactFact, Limits, Record, Run, RunHeader, Settings, Sitting, Store, is_run
from edgebench.registry import load, lookup
from edgebench.runner import HowToAsk, Query
from edgebench.worker import Reply, Worker, WorkerPlan

if TYPE_CHECKING:
    from edgebench.benches.base import Bench, Sample
    from edgebench.manifest import Artifact
    from edgebench.media.decode import ImagePath

FAILURES_IN_A_ROW = 10
"""So many engine errors in a row end the sitting: the fault is not the samples'."""


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
    max_pixels: int = MAX_PIXELS
    reuse: bool = False
    warmup: bool = True
    memory: Literal["normal", "low"] = "normal"
    """low: weights stay in mapped files, for machines whose memory is smaller than the model; engine 'ort'."""
    limits: Limits = field(default_factory=Limits)


def find_artifact(name: str | None, engine: str, say: Any) -> Artifact | None:
    """The artifact to run: a folder, a recipe's newest export here, or the newest export here.

    Args:
        name: a folder, a recipe's name, or None.
        engine: 'null' needs none.
        say: called with one line when something was chosen for the user.

    Raises:
        ArtifactError: the folder is no finished artifact.
        UsageError: nothing fits; the advice says what to export.
    """
    if name is not None and (Path(name).exists() or "/" in name):
        return read_artifact(Path(name))
    if name is None and engine == "null":
        return None
    exports = [(p.stat().st_mtime_ns, p.parent) for p in (*Path().glob(MANIFEST), *Path().glob(f"*/{MANIFEST}"))]
    folders = [folder for _, folder in sorted(exports, reverse=True)]
    if (wanted := DIALECTS.get(engine)) is not None:
        folders.sort(key=lambda folder: read_artifact(folder, verify=False).manifest.dialect != wanted)
    for folder in folders:
        artifact = read_artifact(folder, verify=False)
        if name is None or artifact.manifest.name == name:
            say(f"taking the newest export here: {folder}")
            return read_artifact(folder)
    if name is not None:
        recipe = load_recipe(name)
        raise UsageError(
            f"{recipe.name!r} has no export here",
            hint=f"run `edgebench export {recipe.name}` first, or pass the artifact's folder",
        )
    return _embedded("portable" if wanted == "portable" else "ort", say)


def _embedded(dialect: Literal["ort", "portable"], say: Any) -> Artifact:
    """The embedded demo model, exported once into the user's cache."""
    from edgebench.export.run import export
    from edgebench.places import cache_folder

    folder = cache_folder() / f"edgebench-demo-fp32-{dialect}-{__version__}"
    say(f"no export here; taking the embedded demo model: {folder}")
    if is_artifact(folder):
        return read_artifact(folder)
    return export(
        load_recipe("edgebench-demo"), weights=None, precision="fp32", dialect=dialect, output=folder, say=say
    )


def run(plan: RunPlan, progress: Progress) -> Path:
    """Ask every question once, keep every answer, and return the run's folder.

    Raises:
        EdgebenchError: of the family that fits. What was answered before stays answered.
    """
    engine = engine_class(plan.engine)
    bench_class, _ = lookup(BENCHES, plan.bench, what="bench")
    lookup(MATCHERS, plan.matcher, what="answer matcher")
    perturbation = None if plan.perturb is None else Perturbation.parse(plan.perturb)
    if perturbation is not None:
        perturbation.check()
    if plan.memory == "low" and not hasattr(load(engine), "prepare"):
        raise UsageError(f"the engine {plan.engine!r} has no low-memory mode", hint="leave --memory out")
    bench: Bench = load(bench_class).open(plan.data, limit=plan.limit)
    header = _header(plan, bench)
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
            reuse=plan.reuse,
        )
        options = {} if plan.provider is None else {"provider": plan.provider}
        if plan.memory != "normal":
            options["memory"] = plan.memory
        profile = load_profile(plan.profile)
        desk = _Desk(WorkerPlan(engine, plan.artifact, profile, options, how), store, sitting, plan, progress)
        kind = "vision-language" if plan.artifact is None else plan.artifact.manifest.kind
        with contextlib.ExitStack() as stack:
            for sample in bench.samples():
                if sample.id in done:
                    continue
                record = desk.record(sample, bench.suits(kind, sample), stack)
                store.append(record)
                progress.advance(record.error is not None)
    return folder


def _header(plan: RunPlan, bench: Bench) -> RunHeader:
    manifest = None if plan.artifact is None else plan.artifact.manifest
    text = None if manifest is None else manifest.text
    style = plan.prompt_style or (text.prompt_style if text else "default")
    check_style(style)
    if plan.scoring == "logits" and manifest is not None and manifest.kind == "classifier":
        raise UsageError("a classifier gives a probability, not tokens", hint="leave --scoring out")
    fact = None
    if plan.artifact is not None and manifest is not None:
        fact = ArtifactFact(
            name=manifest.name,
            family=manifest.family,
            dialect=manifest.dialect,
            precision=manifest.precision,
            bytes=manifest.bytes,
            manifest_sha256=plan.artifact.manifest_sha256,
            source_sha256=manifest.source.sha256,
            passport=None if manifest.preprocess is None else manifest.preprocess.passport(),
            parity=None if manifest.parity is None else asdict(manifest.parity),
        )
    settings = Settings(
        engine=plan.engine,
        provider=plan.provider or "default",
        bench=plan.bench,
        scoring="threshold" if manifest is not None and manifest.kind == "classifier" else plan.scoring,
        matcher=plan.matcher,
        prompt_style=style,
        image_path=plan.image_path,
        max_new_tokens=plan.max_new_tokens or (text.max_new_tokens if text else 512),
        limit=plan.limit,
        perturbation=None if plan.perturb is None else str(Perturbation.parse(plan.perturb)),
        reuse=plan.reuse,
        memory=plan.memory,
    )
    return RunHeader(
        format=FORMAT,
        created=_now(),
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


class _Desk:
    """Puts samples to the worker, starts it when the first one needs it, and starts it again when it dies."""

    def __init__(self, worker: WorkerPlan, store: Store, sitting: int, plan: RunPlan, progress: Progress) -> None:
        self._plan, self._store, self._sitting, self._run, self._progress = worker, store, sitting, plan, progress
        self._kind = "vision-language" if plan.artifact is None else plan.artifact.manifest.kind
        self._worker: Worker | None = None
        self._described = False
        self._deaths = 0
        self._failures = 0
        self._end: EngineError | None = None
        """Why no further question is asked."""
        how = worker.how.perturbation
        self._facts = {} if how is None else how.facts()

    def record(self, sample: Sample, suits: bool, stack: contextlib.ExitStack) -> Record:
        """The record of one sample.

        Raises:
            EngineError: the engine cannot be started, or fails again and again.
        """
        record = Record(
            id=sample.id,
            sitting=self._sitting,
            target=sample.target,
            category=sample.category,
            options=dict(sample.question.options) or None,
            forged_option=sample.question.forged_option,
            facts=sample.facts | self._facts,
        )
        if sample.problem is not None:
            return replace(record, error=sample.problem)
        if not suits:
            return replace(record, not_asked=f"this question does not suit a {self._kind} model")
        query = Query(sample.id, sample.images, sample.question)
        try:
            reply = self._ask(query, stack)
        except Died as death:
            self._worker = None
            self._count_death(death, f"sample {sample.id!r}")
            return replace(record, error=f"engine: {death}")
        record = replace(
            record,
            peak_memory_bytes=reply.peak_memory_bytes,
            peak_anonymous_bytes=reply.peak.anonymous,
            peak_file_backed_bytes=reply.peak.file_backed,
        )
        if reply.answer is None:
            self._count_failure(reply.error or "")
            return replace(record, error=reply.error)
        self._failures = 0
        record = replace(record, **vars(reply.answer))
        answer, method = judge(record, scoring=self._run.scoring, matcher=self._run.matcher)
        return replace(record, answer=answer, method=method)

    def _ask(self, query: Query, stack: contextlib.ExitStack) -> Reply:
        if self._worker is None:
            self._worker = self._start(stack)
            warmup = self._worker.ask(replace(query, warmup=True)).answer if self._run.warmup else None
            if not self._described:
                self._store.append(self._sitting_line(self._worker, warmup.stages_ns["total"] if warmup else None))
                self._described = True
        return self._worker.ask(query)

    def _start(self, stack: contextlib.ExitStack) -> Worker:
        while self._end is None:
            try:
                return stack.enter_context(Worker(self._plan, self._run.limits, self._progress.say))
            except Died as death:
                self._count_death(death, "loading", again=not death.overdue)
        raise self._end

    def _sitting_line(self, worker: Worker, warmup: int | None) -> Sitting:
        ready = worker.ready
        return Sitting(
            sitting=self._sitting,
            started=_now(),
            host=describe_host(),
            engine=ready.facts,
            load_ns=ready.load_ns,
            warmup_ns=warmup,
            memory_after_load_bytes=ready.memory_bytes,
            anonymous_after_load_bytes=ready.resident.anonymous,
            file_backed_after_load_bytes=ready.resident.file_backed,
            memory_method=ready.memory_method,
            memory_kinds_method=ready.kinds_method,
            profile=self._plan.profile.name,
            limits=self._run.limits,
        )

    def _count_death(self, death: Died, where: str, *, again: bool = True) -> None:
        self._deaths += 1
        allowed = self._run.limits.restarts
        if again and self._deaths <= allowed:
            self._progress.note(f"{where}: {death}; it is started again ({self._deaths} of {allowed})")
            return
        self._end = EngineError(
            f"{where}: {death}" + (f"; it was started again {allowed} times (--restarts)" if again else ""),
            hint="what was answered is kept; --resume continues, --retry-failed asks the failed samples too",
        )

    def _count_failure(self, error: str) -> None:
        self._failures = self._failures + 1 if error.startswith("engine: ") else 0
        if self._failures >= FAILURES_IN_A_ROW:
            raise EngineError(
                f"{FAILURES_IN_A_ROW} samples in a row failed in the engine; the last one: {error.removeprefix('engine: ')}",
                hint="the answers so far are kept; --resume continues, --retry-failed asks the failed samples too",
            )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")

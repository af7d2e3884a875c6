"""The one place that knows the whole road: artifact + bench -> questions -> engine -> records."""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench import __version__
from edgebench.ahead import AheadDesk
from edgebench.artifacts import check_place, fact_of, is_remote
from edgebench.benches import BENCHES
from edgebench.benches.attribution import PROTOCOL as ATTRIBUTION
from edgebench.benches.attribution import Attribution
from edgebench.benches.container import ready
from edgebench.benches.forensics import Forensics
from edgebench.benches.selected import Selected
from edgebench.benches.taxonomy import FAMILY
from edgebench.desk import Desk, Staff
from edgebench.endpoint import endpoint_of
from edgebench.engines.others import engine_class
from edgebench.environment import now
from edgebench.errors import RunError, UsageError
from edgebench.lookahead import Lookahead
from edgebench.media.perturb import Perturbation
from edgebench.offline import CellDesk, OfflineDesk
from edgebench.plan import batch_of, built_in, engine_options, own_options
from edgebench.profiles import load_profile
from edgebench.prompts.matchers import MATCHERS
from edgebench.prompts.styles import style as check_style
from edgebench.prompts.variants import load_variant
from edgebench.prompts.verdicts import READERS
from edgebench.protocols import open_protocol
from edgebench.records import (
    CHECKPOINT,
    FORMAT,
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
from edgebench.subset import half_width
from edgebench.worker import WorkerPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edgebench.benches.base import Bench, Sample
    from edgebench.plan import Progress, RunPlan
    from edgebench.prompts.variants import Variant
    from edgebench.protocols import Procedure
    from edgebench.windows import Window


def run(plan: RunPlan, progress: Progress) -> Path:
    """Ask every question once, keep every answer, and return the run's folder.

    Raises:
        EdgebenchError: of the family that fits. What was answered before stays answered.
    """
    return run_side_by_side([plan], progress)[0]


def run_side_by_side(plans: Sequence[RunPlan], progress: Progress) -> list[Path]:
    """Runs of one artifact over the same questions: every question is put in all their ways before the next one.

    The engine is loaded once, a sample's pictures are decoded once, and a way that shows a model exactly what another
    has shown takes its answer. Each run is a folder of its own, and is continued where it was.

    Args:
        plans: they differ in the perturbation, the variant, the prompt style or the limits of an answer, and in the
            folder.
        progress: counts the answers of all runs.

    Raises:
        EdgebenchError: of the family that fits. What was answered before stays answered.
    """
    first = plans[0]
    engine = engine_class(first.engine)
    bench_class, _ = lookup(BENCHES, first.bench, what="bench")
    remote = check_place(first.engine, first.endpoint)
    for plan in plans:
        _check(plan, remote)
    own = own_options(first)
    check_energy(first.energy)
    bench, protocol = _opened(first, load(bench_class), progress)
    kind = "vision-language" if first.artifact is None else first.artifact.manifest.kind
    batch = batch_of(first, remote=remote)
    if batch is not None and protocol is not None and protocol.several_calls:
        raise UsageError(f"--scenario offline is not for the protocol {protocol.name!r}, whose calls follow each other")
    if batch is not None and len(plans) > 1:
        raise UsageError("--scenario offline is not for runs that are asked side by side", hint="leave it out")
    options = engine_options(first) | own
    made_ready = _made_ready(first)
    variants = [load_variant(plan.variant, plan.boxes) for plan in plans]
    if first.boxes is not None and not any(variant.given for variant in variants):
        raise UsageError("--boxes is for the variant given-boxes", hint="pass --variant given-boxes, or leave it out")
    headers = [_header(plan, bench, protocol, variant) for plan, variant in zip(plans, variants, strict=True)]
    with contextlib.ExitStack() as stores, contextlib.ExitStack() as stack:
        opened = [_open_store(plan, header) for plan, header in zip(plans, headers, strict=True)]
        for _, store, _, _ in opened:
            stores.enter_context(store)
        total = headers[0].data.questions
        progress.begin(total * len(plans), sum(len(done) for _, _, done, _ in opened))
        folders = [folder for folder, _, _, _ in opened]
        if all(len(done) >= total for _, _, done, _ in opened):
            return folders
        watch = Watch(opened[0][0], opened[0][3], energy=first.energy, gpu=on_gpu(first.engine, first.provider))
        cells = len(plans) > 1 and all(plan.scenario == "offline" for plan in plans[1:])
        staff = Staff(by_turns=not cells) if len(plans) > 1 else None
        alone = staff is None and protocol is None and not remote
        desks: list[Desk] = []
        for plan, header, (_, store, _, sitting) in zip(plans, headers, opened, strict=True):
            how = HowToAsk(
                scoring=plan.scoring,
                prompt_style=header.settings.prompt_style,
                image_path=plan.image_path,
                max_new_tokens=header.settings.max_new_tokens,
                perturbation=None if plan.perturb is None else Perturbation.parse(plan.perturb),
                max_pixels=plan.max_pixels,
                reuse=plan.reuse or (protocol is not None and protocol.several_calls),
                batch=batch,
            )
            worker = WorkerPlan(engine, plan.artifact, load_profile(plan.profile), options, how)
            if cells and desks:  # the process is that of the plain run, whichever of them starts it
                worker = replace(worker, how=replace(how, perturbation=None))
                desks.append(CellDesk(how, worker, store, sitting, plan, progress, watch, protocol, staff=staff))
                continue
            made = OfflineDesk if batch is not None else AheadDesk if alone else Desk
            desks.append(made(worker, store, sitting, plan, progress, watch, protocol, remote=remote, staff=staff))
        if not remote:
            stack.enter_context(watch)
        if protocol is not None:
            for desk, folder in zip(desks, folders, strict=True):
                desk.look_up = protocol.begin(folder, stack)
        at_once = remote and (protocol is None or not protocol.several_calls)
        if at_once or batch is not None or alone:
            for desk, variant, (_, store, done, _) in zip(desks, variants, opened, strict=True):
                samples = (variant.put(made_ready(s)) for s in bench.samples() if s.id not in done)
                asked = ((s, bench.suits(kind, s)) for s in samples)
                found: Iterator[Record | Window]
                if isinstance(desk, OfflineDesk) and batch is not None:
                    found = desk.windows(asked, batch, stack)
                elif isinstance(desk, AheadDesk):
                    found = desk.records(asked, stack)
                else:
                    found = desk.called(asked)
                for line in found:
                    store.append(line)
                    if isinstance(line, Record):
                        progress.advance(line.error is not None)
            watch.look(last=True)
            return folders
        if cells:
            rows = list(
                zip(desks, (store for _, store, _, _ in opened), (done for _, _, done, _ in opened), strict=True)
            )
            ready_samples = ((sample := made_ready(s), bench.suits(kind, sample)) for s in bench.samples())
            for store, record in _by_cells(rows, Lookahead(ready_samples), stack):
                store.append(record)
                progress.advance(record.error is not None)
            watch.look(last=True)
            return folders
        for sample in bench.samples():
            ready_sample = None
            for desk, variant, (_, store, done, _) in zip(desks, variants, opened, strict=True):
                if sample.id not in done:
                    ready_sample = ready_sample or made_ready(sample)
                    put = variant.put(ready_sample)
                    record = desk.record(put, bench.suits(kind, put), stack)
                    store.append(record)
                    progress.advance(record.error is not None)
        watch.look(last=True)
    return folders


def _by_cells(
    rows: Sequence[tuple[Desk, Store, set[str]]], samples: Lookahead[tuple[Sample, bool]], stack: contextlib.ExitStack
) -> Iterator[tuple[Store, Record]]:
    """Each sample in the plain run, alone and timed, and then in all cells at once; the next one is read meanwhile."""
    (first, plainly, plain_done), *others = rows
    cells = {desk: (store, done) for desk, store, done in others if isinstance(desk, CellDesk)}
    for sample, suits in samples:
        plain = None
        if sample.id not in plain_done:
            plain = first.record(sample, suits, stack)
            yield plainly, plain
        left = [desk for desk, (_, done) in cells.items() if sample.id not in done]
        if left:
            for desk, record in left[0].together(left[1:], sample, suits, plain, stack, samples.fetch):
                yield cells[desk][0], record


def _check(plan: RunPlan, remote: bool) -> None:
    """Refuse early what cannot go well."""
    lookup({**MATCHERS, **READERS}, plan.matcher, what="answer matcher")
    if plan.perturb is not None:
        Perturbation.parse(plan.perturb).check()
    if plan.variant is not None and plan.bench not in FAMILY:
        raise UsageError(f"the bench {plan.bench!r} has no prompt variants", hint="they are Forensics-Bench's")
    if plan.memory == "low" and not hasattr(built_in(plan.engine), "prepare"):
        raise UsageError(f"the engine {plan.engine!r} has no low-memory mode", hint="leave --memory out")
    if remote and (plan.reuse or plan.provider):
        raise UsageError(f"--reuse and --provider are not for the engine {plan.engine!r}", hint="leave them out")


def _opened(plan: RunPlan, bench_class: Any, progress: Progress) -> tuple[Bench, Procedure | None]:
    """The bench with the questions that are asked, and how MMFakeBench is asked."""
    attributed = plan.protocol == ATTRIBUTION and issubclass(bench_class, Forensics)
    if plan.introductions and not attributed:
        raise UsageError("--introductions is for --protocol attribution")
    if not attributed and plan.subset is None:
        bench: Bench = bench_class.open(plan.data, limit=plan.limit)
        return bench, open_protocol(bench, plan)
    if not issubclass(bench_class, Forensics):
        raise UsageError(f"--subset is drawn by Forensics-Bench's categories, and {plan.bench!r} has none")
    if plan.subset is not None and plan.limit is not None:
        raise UsageError("--subset and --limit both say how many", hint="leave one of them out")
    whole = bench_class.open(plan.data, limit=None if attributed else plan.limit)
    if attributed and plan.artifact is not None and plan.artifact.manifest.text is None:
        raise UsageError(
            f"a {plan.artifact.manifest.kind} cannot say which forgery model it was", hint="take a language model"
        )
    chosen = Selected(
        whole,
        subset=plan.subset,
        seed=plan.subset_seed,
        limit=plan.limit,
        attribution=Attribution(introductions=plan.introductions) if attributed else None,
    )
    if chosen.subset is not None:
        expected = half_width(chosen.subset.strata, chosen.asked)
        total = sum(chosen.subset.strata.values())
        shown = (
            "unknown: some categories are left out" if expected is None else f"{100 * expected:.2f} points at the most"
        )
        progress.note(
            f"a subset of {chosen.subset.size} of {total} questions in {len(chosen.subset.strata)} categories; "
            f"expected half-width of the overall accuracy's 95 % interval: {shown}"
        )
    return chosen, open_protocol(chosen, replace(plan, protocol=None))


def _made_ready(plan: RunPlan) -> Callable[[Sample], Sample]:
    """What is done to each sample before it is put, untimed: its files' facts are read, and `--equalize`."""
    preprocess = None if plan.artifact is None else plan.artifact.manifest.preprocess
    how: dict[str, Any] = {"max_pixels": plan.max_pixels}
    if preprocess is not None:
        # The published scores' own JPEG pass leaves pictures as they lie.
        turned = "ignore" if plan.image_path == "official-jpeg75" else preprocess.orientation
        how |= {"orientation": turned, "alpha": preprocess.alpha}
    return lambda sample: ready(sample, plan.equalize, **how)


def _header(plan: RunPlan, bench: Bench, protocol: Procedure | None, variant: Variant) -> RunHeader:
    manifest = None if plan.artifact is None else plan.artifact.manifest
    text = None if manifest is None else manifest.text
    style = plan.prompt_style or (text.prompt_style if text else "default")
    check_style(style)
    scores = manifest is not None and "classifier" in manifest.graphs
    if plan.scoring == "logits" and scores:
        raise UsageError("a classifier gives a probability, not tokens", hint="leave --scoring out")
    fact = None if plan.artifact is None else fact_of(plan.artifact)
    if fact is not None and getattr(built_in(plan.engine), "TAKES_WEIGHTS", False):
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
        batch=batch_of(plan, remote=is_remote(plan.engine)),
        protocol=getattr(bench, "protocol", None) if protocol is None else protocol.label,
        prompts=variant.label if protocol is None else protocol.instructions.label,
        knowledge=None if protocol is None or protocol.source is None else protocol.source.name,
        subset=None if plan.subset is None else f"{plan.subset} of seed {plan.subset_seed}",
    )
    return RunHeader(
        format=FORMAT,
        created=now(),
        edgebench=__version__,
        settings=settings,
        artifact=fact,
        data=bench.data(),
        limits=plan.limits,
        subset=getattr(bench, "subset", None),
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

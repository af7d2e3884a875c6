"""`run --scenario latency`: a sweep over sizes, measured in the engine's process and kept in a folder of its own."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench import __version__
from edgebench.apart import Died
from edgebench.artifacts import fact_of, is_remote
from edgebench.engines.others import engine_class
from edgebench.errors import RunError, UsageError
from edgebench.metrics.latency import ESTIMATORS, stage_ms
from edgebench.metrics.validity import validity
from edgebench.plan import engine_options, own_options
from edgebench.profiles import load_profile
from edgebench.report.tables import STAGE_NAMES, UNKNOWN, Table, mebibytes, milliseconds
from edgebench.runner import HowToAsk
from edgebench.sensors.observation import read_observations
from edgebench.sensors.watch import Watch, check_energy, on_gpu
from edgebench.sweep import SEED, WARMUP
from edgebench.worker import Worker, WorkerPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgebench.plan import Progress, RunPlan
    from edgebench.sweep import Case, Rule
    from edgebench.worker import CaseReply

FORMAT = "edgebench-latency/1"
FILE = "latency.json"
NOTE = (
    "synthetic pixels and token ids of a fixed seed, made before the clock starts: reading, decoding and the tokenizer are "
    "not in it; prompt counts all tokens of a row, those of its images in them; TTFT is vision + prefill of the whole "
    "batch; an answer has as many tokens as asked for, ended or not; peak: of the process up to the end of that case"
)


def sweep(plan: RunPlan, cases: Sequence[Case], rule: Rule, progress: Progress) -> tuple[Path, dict[str, Any]]:
    """Measure every case, and return the folder and what stands in its `latency.json`.

    A case that the model does not take is a row with its reason. The file is written anew behind each case.

    Raises:
        EdgebenchError: of the family that fits.
    """
    artifact = plan.artifact
    if artifact is None or is_remote(plan.engine):
        raise UsageError(f"--scenario latency needs an artifact, which the engine {plan.engine!r} does not run")
    check_energy(plan.energy)
    options = engine_options(plan) | own_options(plan)
    profile = load_profile(plan.profile)
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    name = f"{artifact.manifest.name}-{artifact.manifest.precision}-{plan.engine}-latency-{stamp}"
    folder = plan.output or Path("runs") / name
    if folder.exists() and any(folder.iterdir()):
        raise RunError("is not empty", where=folder, hint="pass another --output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot be written: {error.strerror or error}", where=folder) from error
    how = HowToAsk("generate", "default", "lossless", max(case.output for case in cases), batch=1)
    worker_plan = WorkerPlan(engine_class(plan.engine), artifact, profile, options, how)
    found: list[dict[str, Any]] = []
    progress.begin(len(cases), 0)
    watch = Watch(folder, 1, energy=plan.energy, gpu=on_gpu(plan.engine, plan.provider))
    with watch, Worker(worker_plan, plan.limits) as worker:
        sitting = worker.only_sitting()
        head = {
            "format": FORMAT,
            "created": sitting.started,
            "edgebench": __version__,
            "settings": {"engine": plan.engine, "scenario": "latency", "seed": SEED, "options": options}
            | {"min_seconds": rule.seconds, "min_count": rule.count, "warmup": WARMUP},
            "artifact": asdict(fact_of(artifact)),
            "sitting": asdict(sitting),
            "note": NOTE,
            "latency_estimators": ESTIMATORS,
        }
        watch.begin(worker.pid)
        for case in cases:
            try:
                reply = worker.measure(case, rule)
            except Died as death:
                found.append({"case": asdict(case), "error": f"engine: {death}"})
                break
            finally:
                watch.look(last=True)
            found.append(_row(case, reply))
            progress.advance(reply.error is not None)
            _write(folder, head | {"cases": found})
    for case in cases[len(found) :]:
        found.append({"case": asdict(case), "error": "not measured: the engine's process died before"})
    value = head | {"cases": found, "validity": validity([sitting], list(read_observations(folder)), {})}
    _write(folder, value)
    return folder, value


def _row(case: Case, reply: CaseReply) -> dict[str, Any]:
    measured = reply.measured
    if measured is None:
        return {"case": asdict(case), "error": reply.error}
    return {
        "case": asdict(measured.case),
        "error": None,
        "first_ms": measured.first_ns / 1e6,
        "warmups": measured.warmups,
        "latency_ms": {stage: stage_ms(values) for stage, values in measured.samples_ns.items()},
        "peak_memory_bytes": reply.peak_memory_bytes,
        "samples_ns": measured.samples_ns,
    }


def _write(folder: Path, value: dict[str, Any]) -> None:
    partial = folder / (FILE + ".partial")
    try:
        partial.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(folder / FILE)
    except OSError as error:
        raise RunError(f"cannot be written: {error.strerror or error}", where=folder / FILE) from error


def sweep_tables(value: dict[str, Any]) -> list[Table]:
    """A row for each case and stage; then the conditions."""
    rows = []
    for row in value["cases"]:
        case = row["case"]
        sizes = tuple(UNKNOWN if case[k] is None else str(case[k]) for k in ("batch", "images", "prompt", "output"))
        if row["error"] is not None:
            rows.append((*sizes, row["error"], *[UNKNOWN] * 6))
            continue
        for stage, name in STAGE_NAMES.items():
            if (found := row["latency_ms"].get(stage)) is not None:
                times = (milliseconds(found[k]) for k in ("p50", "p90", "p99", "mean"))
                rows.append((*sizes, name, *times, str(found["n"]), mebibytes(row["peak_memory_bytes"])))
                sizes = ("", "", "", "")
        first = f"first call {milliseconds(row['first_ms'])} ms, warm after {row['warmups']}"
        rows.append(("", "", "", "", first, *[""] * 6))
    columns = ("batch", "images", "prompt", "output", "stage", "p50", "p90", "p99", "mean", "n", "peak memory")
    sitting, settings, verdict = value["sitting"], value["settings"], value["validity"]
    load = UNKNOWN if sitting["load_ns"] is None else f"{milliseconds(sitting['load_ns'] / 1e6)} ms"
    facts = (
        ("engine", f"{settings['engine']}, profile {sitting['profile']}"),
        ("load time", load),
        ("warm-up", settings["warmup"]),
        ("measured for", f"{settings['min_seconds']:g} s and {settings['min_count']} calls at least, each case"),
        ("timing", f"{verdict['timing'].upper()} {'; '.join(verdict['reasons'] + verdict['unknown'])}".strip()),
        ("host", f"{sitting['host']['cpu'] or UNKNOWN}, {sitting['host']['logical_cores']} cores"),
    )
    artifact = value["artifact"]
    title = f"Latency, ms: {artifact['name']} {artifact['precision']} / {settings['engine']}, synthetic inputs"
    return [Table(title, columns, tuple(rows), value["note"]), Table("Conditions", ("", ""), facts)]

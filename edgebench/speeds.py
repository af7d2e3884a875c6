"""How fast each form of one language model is on each engine that takes it, measured in rounds that turn.

One process at a time is loaded, so that a large model needs no more memory than a run. What is fastest, of the forms
whose top-1 agreement with the checkpoint is high enough, goes into the manifests with its figures.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.engines import DIALECTS
from edgebench.engines.others import engine_class
from edgebench.environment import describe_host, now
from edgebench.errors import EdgebenchError, RunError, UsageError
from edgebench.export.precision import AGREES, agreement
from edgebench.manifest import write_manifest
from edgebench.metrics.latency import percentile_ns, stage_ms
from edgebench.metrics.validity import validity
from edgebench.profiles import load_profile
from edgebench.runner import HowToAsk
from edgebench.sensors.observation import read_observations
from edgebench.sensors.watch import Watch
from edgebench.sweep import Case, Rule
from edgebench.worker import Worker, WorkerPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgebench.manifest import Artifact
    from edgebench.plan import Progress

PACKAGES = {"ort": "onnxruntime", "openvino": "openvino", "genai": "onnxruntime_genai"}
"""Engine that is asked by default -> what it needs."""
WAYS: dict[str, tuple[dict[str, str], ...]] = {"openvino": ({}, {"cache": "passed"})}
"""Engine -> the options that it is asked with in turn, where one way is quicker with prompts, another by the token."""
PROMPT, OUTPUT = 512, 33
"""Tokens of a prompt of text alone (64 beside its pictures otherwise), and of an answer, one from the prompt."""
CALLS = 3
"""Of each pair in each round, behind those that warm it up."""
MEASURED = "; measured "
"""What begins the second part of `decoder.prefill`."""
NOTE = (
    "medians over all calls of all rounds (nearest rank); prefill: tokens of the prompt / its time, without vision; "
    "decode: 1 / TPOT; top-1 agreement: the artifact's, at its export"
)


def speeds(
    forms: Mapping[str, Artifact], engines: Sequence[str], rounds: int, profile_name: str, bar: Progress
) -> dict[str, Any]:
    """Measure.

    Args:
        forms: name -> artifact of a language model, all of one checkpoint.
        engines: names; none: those of `PACKAGES` that are installed.
        rounds: how often each pair is loaded and measured.
        profile_name: what the engines may use.
        bar: who watches.

    Returns:
        `rows`, one a pair: form, engine with its options, prefill_tokens_s, decode_tokens_s, latency_ms, samples_ns, top1, error;
        `prefill` and `decode`: the places in it of what is fastest, None where nothing is; the conditions.

    Raises:
        UsageError: nothing takes any of the forms.
    """
    profile = load_profile(profile_name)
    asked = engines or [name for name, package in PACKAGES.items() if find_spec(package) is not None]
    ways = {_way(engine, options): (engine, options) for engine in asked for options in WAYS.get(engine, ({},))}
    pairs = [(f, way) for f, artifact in forms.items() for way, (engine, _) in ways.items() if _takes(engine, artifact)]
    if not pairs:
        raise UsageError(f"--speed: none of {', '.join(asked)} takes {', '.join(forms)}")
    how = HowToAsk("generate", "default", "lossless", OUTPUT, batch=1)
    samples: dict[tuple[str, str], dict[str, list[int]]] = {pair: {"prefill": [], "tpot": []} for pair in pairs}
    prompts: dict[tuple[str, str], int | None] = {}
    failed: dict[tuple[str, str], str] = {}
    sitting = None
    with tempfile.TemporaryDirectory() as place, Watch(Path(place), 1) as watch:
        bar.begin(rounds * len(pairs), 0)
        for number in range(rounds):
            first = number * len(pairs) // rounds
            for pair in pairs[first:] + pairs[:first]:
                form, (engine, options) = pair[0], ways[pair[1]]
                bar.say(f"{form} in {pair[1]}, round {number + 1} of {rounds}")
                if pair not in failed:
                    plan = WorkerPlan(engine_class(engine), forms[form], profile, options, how)
                    try:
                        with Worker(plan) as worker:
                            watch.begin(worker.pid)
                            text = forms[form].manifest.preprocess is None
                            reply = worker.measure(Case(prompt=PROMPT if text else None, output=OUTPUT), Rule(0, CALLS))
                            sitting = sitting or worker.only_sitting()
                            if reply.measured is None:
                                failed[pair] = reply.error or "unknown"
                            else:
                                prompts[pair] = reply.measured.case.prompt
                                for stage, values in samples[pair].items():
                                    values += reply.measured.samples_ns[stage]
                    except EdgebenchError as error:
                        failed[pair] = str(error)
                bar.advance(pair in failed)
        watch.look(last=True)
        seen = list(read_observations(Path(place)))
    rows = [_row(pair, forms[pair[0]], samples[pair], prompts.get(pair), failed.get(pair)) for pair in pairs]
    agreeing = [k for k, r in enumerate(rows) if r["top1"] is not None and r["top1"] >= AGREES]
    host = describe_host()
    return {
        "created": now(),
        "host": {"cpu": host.cpu, "logical_cores": host.logical_cores, "packages": host.packages},
        "profile": profile.name,
        "rounds": rounds,
        "validity": validity([sitting] if sitting else [], seen, {}),
        "note": NOTE,
        "left_out": [name for name in PACKAGES if not engines and name not in asked],
        "agrees": AGREES,
        "rows": rows,
        "prefill": _fastest(rows, agreeing, "prefill_tokens_s"),
        "decode": _fastest(rows, range(len(rows)), "decode_tokens_s"),
    }


def _way(engine: str, options: Mapping[str, str]) -> str:
    """As it is asked for on the command line."""
    return " ".join([engine, *(f"--option {name}={value}" for name, value in options.items())])


def _takes(engine: str, artifact: Artifact) -> bool:
    m = artifact.manifest
    return m.dialect == DIALECTS.get(engine, "ort") and (engine != "genai" or m.kind == "language")


def _row(
    pair: tuple[str, str], artifact: Artifact, samples: dict[str, list[int]], prompt: int | None, error: str | None
) -> dict[str, Any]:
    agreed = agreement(artifact.manifest.parity)
    prefill, token = (percentile_ns(samples[stage], 50) for stage in ("prefill", "tpot"))
    known = error is None
    return {
        "form": pair[0],
        "engine": pair[1],
        "prompt_tokens": prompt,
        "prefill_tokens_s": None if prefill is None or prompt is None or not known else prompt / prefill * 1e9,
        "decode_tokens_s": None if token is None or not known else 1e9 / token,
        "top1": None if agreed is None else agreed[0],
        "error": error,
        "latency_ms": {stage: stage_ms(values) for stage, values in samples.items()},
        "samples_ns": samples,
    }


def _fastest(rows: list[dict[str, Any]], places: Sequence[int], key: str) -> int | None:
    return max((k for k in places if rows[k][key] is not None), key=lambda k: float(rows[k][key]), default=None)


def write_choice(forms: Mapping[str, Artifact], found: dict[str, Any]) -> None:
    """Into each manifest: how fast its form reads prompts, which one is chosen, and why.

    Raises:
        RunError: a manifest cannot be written.
    """
    for form, artifact in forms.items():
        decoder, own = artifact.manifest.decoder, [r for r in found["rows"] if r["form"] == form]
        if decoder is None or not own:
            continue
        prefill = (decoder.prefill.partition(MEASURED)[0] or "as exported") + MEASURED + statement(form, own, found)
        try:
            write_manifest(artifact.folder, replace(artifact.manifest, decoder=replace(decoder, prefill=prefill)))
        except OSError as error:
            raise RunError(f"cannot be written: {error.strerror or error}", where=artifact.folder) from error


def statement(form: str, own: list[dict[str, Any]], found: dict[str, Any]) -> str:
    """When and where it was measured, the figures of one form, and whether it is chosen for prompts."""

    def speed(row: dict[str, Any], name: str) -> str:
        value = row["prefill_tokens_s"]
        return f"{name} {'failed' if value is None else f'{value:.0f}'}"

    host = found["host"]
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    where = f"{day} on {host['cpu'] or 'an unknown CPU'}, {host['logical_cores']} cores, profile {found['profile']}"
    timing = found["validity"]["timing"]
    quiet = "" if timing == "valid" else f" (timing {timing})"
    figures = ", ".join(speed(row, row["engine"]) for row in own)
    least = f"{100 * AGREES:.0f} %"
    best = None if found["prefill"] is None else found["rows"][found["prefill"]]
    if best is None:
        verdict = f"nothing is chosen: no form is known to agree in {least}"
    elif best["form"] == form:
        verdict = f"chosen for prompts, in {best['engine']}: the fastest of those that agree in {least}"
    else:
        top1 = own[0]["top1"]
        if top1 is None:
            why = "its agreement is unknown"
        else:
            why = f"it agrees in less than {least}" if top1 < AGREES else "it is slower"
        verdict = f"not chosen for prompts, since {why}: {speed(best, best['form'] + ' in ' + best['engine'])} is"
    return f"{where}{quiet}, prefill in tokens/s: {figures}; {verdict}"

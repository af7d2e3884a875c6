"""A summary as plain tables of text. Unknown is shown as '–'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

UNKNOWN = "–"
STAGE_NAMES = {
    "preprocess": "preprocess",
    "vision": "vision",
    "prefill": "prefill",
    "decode": "decode",
    "ttft": "TTFT",
    "ttft_from_tensor": "TTFT from the input tensors",
    "tpot": "TPOT (a token)",
    "total": "total",
}


@dataclass(frozen=True)
class Table:
    """One table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def percent(value: float | None, interval: Sequence[float] | None = None) -> str:
    """A fraction in percent, with its interval."""
    if value is None:
        return UNKNOWN
    shown = f"{100 * value:.1f} %"
    return shown if interval is None else f"{shown}  [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def counted(number: int, what: str) -> str:
    """A number of things, such as '1 tile'."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def milliseconds(value: float | None) -> str:
    """Milliseconds with three figures that mean something."""
    if value is None:
        return UNKNOWN
    return (
        f"{value:.0f}"
        if value >= 100
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
        if value >= 0.1
        else f"{value:.3f}"
    )


def mebibytes(value: float | None) -> str:
    """Bytes as MiB, or as KiB below a tenth of one."""
    if value is None:
        return UNKNOWN
    return f"{value / 2**20:.1f} MiB" if value >= 2**20 / 10 else f"{value / 2**10:.1f} KiB"


def label(summary: dict[str, Any]) -> str:
    """A short name of a run: model, precision, engine."""
    artifact, settings = summary["artifact"], summary["settings"]
    if settings["endpoint"] is not None:
        return f"{settings['endpoint']['model']} / {settings['engine']}"
    if artifact is None:
        return f"no model / {settings['engine']}"
    return f"{artifact['name']} {artifact['precision']} / {settings['engine']}"


def run_tables(summary: dict[str, Any]) -> list[Table]:
    """The report of one run."""
    from edgebench.report.machine import machine_tables, offline_table

    s = summary["summary"]
    rows = [
        ("accuracy", percent(s["accuracy"], s["accuracy_interval"])),
        (
            "questions",
            f"{s['questions']}"
            + ("" if s["complete"] else f" of {summary['data']['questions']}: the run is not finished"),
        ),
        ("answered", f"{s['answered']}"),
        ("unparsed", f"{s['unparsed']} (counted as wrong)"),
        ("failed", f"{s['failed']} (left out)"),
    ]
    if (part := summary["subset"]) is not None:
        what = f"accuracy of all {part['of']}, estimated"
        rows.insert(1, (what, f"{percent(part['accuracy'], part['interval'])} from {part['size']} by category"))
    if s["refused"]:
        rows.insert(4, ("refused", f"{s['refused']} (counted as wrong)"))
    if s["not_asked"]:
        rows.append(("not asked", f"{s['not_asked']} (do not suit this kind of model)"))
    if s["cut_off_at_token_limit"]:
        rows.append(
            ("cut off", f"{s['cut_off_at_token_limit']} at the limit of {summary['settings']['max_new_tokens']} tokens")
        )
    rows.append(("found by", ", ".join(f"{k} {v}" for k, v in s["methods"].items()) or UNKNOWN))
    tables = [
        Table(
            f"Answers: {label(summary)} on {summary['settings']['bench']} ({summary['data']['name']})",
            ("", ""),
            tuple(rows),
        )
    ]
    tables += _score_tables(summary["scores"])
    if "mmfakebench" in summary["scores"]:
        from edgebench.report.mmfakebench import mmfakebench_tables

        tables += mmfakebench_tables(summary["scores"]["mmfakebench"])
    if summary["published"] is not None:
        from edgebench.report.published import published_tables

        tables += published_tables(summary["published"])
    if summary["container"] is not None:
        from edgebench.report.container import container_table

        tables.append(container_table(summary["container"]))
    tables.append(_latency(summary) if summary["throughput"]["scenario"] != "offline" else offline_table(summary))
    tables.append(_memory(summary) if summary["service"] is None else _service(summary["service"]))
    if s["errors"]:
        tables.append(
            Table(
                "Failed",
                ("samples", "which", "reason"),
                tuple((str(e["samples"]), _ids(e), e["error"]) for e in s["errors"]),
                "the most frequent reasons; all are in records.jsonl, and `--retry-failed` asks them again",
            )
        )
    tables += machine_tables(summary)
    tables.append(_conditions(summary))
    return tables


def _ids(error: dict[str, Any]) -> str:
    return ", ".join(error["ids"]) + (", ..." if len(error["ids"]) < error["samples"] else "")


def _score_tables(scores: dict[str, Any]) -> list[Table]:
    found = []
    if "forensics" in scores:
        f = scores["forensics"]
        rows = [("overall", percent(f["overall"]), f"{f['categories']} categories")]
        rows += [
            (name, percent(p["score"]), ", ".join(f"{k} {100 * v:.1f}" for k, v in p["values"].items()))
            for name, p in f["perspectives"].items()
        ]
        found.append(
            Table(
                "Scores by the five perspectives",
                ("perspective", "score", "by value"),
                tuple(rows),
                "means over the categories that were asked",
            )
        )
    if "binary" in scores:
        b = scores["binary"]
        rows2 = (
            ("balanced accuracy", percent(b["balanced_accuracy"], b["balanced_accuracy_interval"])),
            (f"accuracy on real ({b['real']})", percent(b["accuracy_on_real"])),
            (f"accuracy on forged ({b['forged']})", percent(b["accuracy_on_forged"])),
            ("AUROC", percent(b["auroc"], b["auroc_interval"])),
            ("EER", percent(b["eer"], b["eer_interval"])),
        )
        found.append(
            Table("Real against forged", ("", ""), rows2, "95 % bootstrap intervals, 1000 draws within each class")
        )
    return found


def _latency(summary: dict[str, Any]) -> Table:
    rows = tuple(
        (name, *(_percentile(row, q) for q in (50, 90, 99)), milliseconds(row["mean"]), str(row["n"]))
        for stage, name in STAGE_NAMES.items()
        if (row := summary["latency_ms"].get(stage)) is not None
    )
    speed = summary["throughput"]["questions_per_s"]
    note = f"{UNKNOWN if speed is None else f'{speed:.2f}'} questions/s one at a time; nearest-rank percentiles with 95 % order-statistic intervals; '–' where there are too few samples for that percentile or interval"
    if summary["service"] is not None:
        note = "an API's latency, not a device's: network and queue included. " + note
    return Table("Latency, ms", ("stage", "p50", "p90", "p99", "mean", "n"), rows, note)


def _service(service: dict[str, Any]) -> Table:
    """Of a model that is elsewhere; its memory is unknown."""
    tokens = [service["prompt_tokens"], service["output_tokens"]]
    rows = (
        ("answered by", ", ".join(f"{name} ({n})" for name, n in service["models"].items()) or UNKNOWN),
        ("requests under way at once", str(service["at_once"] or UNKNOWN)),
        ("requests sent again", str(service["retries"])),
        ("tokens read / written", " / ".join(UNKNOWN if n is None else str(n) for n in tokens)),
        ("cost", UNKNOWN if service["cost"] is None else f"{service['cost']:.6g}"),
        ("memory", UNKNOWN),
    )
    return Table("Service", ("", ""), rows, f"cost: {service['cost_note']}")


def _percentile(row: dict[str, Any], q: int) -> str:
    """A percentile and its interval."""
    value, interval = row[f"p{q}"], row.get(f"p{q}_interval")
    if value is None:
        return UNKNOWN
    ends = UNKNOWN if interval is None else ", ".join(milliseconds(v) for v in interval)
    return f"{milliseconds(value)}  [{ends}]"


def _memory(summary: dict[str, Any]) -> Table:
    memory = summary["memory"]
    prepack_s = (summary["engine"] or {}).get("prepack_s")
    rows = [
        ("model on disk", mebibytes(memory["artifact_bytes"])),
        ("engine process after loading", mebibytes(memory["after_load_bytes"])),
        ("engine process, peak", mebibytes(memory["peak_bytes"])),
        ("engine process, peak anonymous", mebibytes(memory["peak_anonymous_bytes"])),
        ("engine process, peak file-backed", mebibytes(memory["peak_file_backed_bytes"])),
        ("load time", UNKNOWN if summary["load_ms"] is None else f"{milliseconds(summary['load_ms'])} ms"),
    ]
    if (first := summary["first_question"])["ms"] is not None:
        rows.append(("first question, in no figure above", f"{milliseconds(first['ms'])} ms"))
    if prepack_s is not None:
        what = "building the plans" if (summary["engine"] or {}).get("plans") else "pre-packing the weights"
        rows.append((f"{what}, once, before loading", f"{prepack_s:.1f} s"))
    kinds = memory["kinds_method"] or UNKNOWN
    note = f"peak: {memory['method'] or UNKNOWN}; anonymous memory cannot be dropped, file-backed can: {kinds}"
    return Table("Memory", ("", ""), tuple(rows), note)


def _conditions(summary: dict[str, Any]) -> Table:
    host, settings, artifact, engine = (
        summary["host"],
        summary["settings"],
        summary["artifact"],
        summary["engine"] or {},
    )
    rows = [
        (
            "host",
            UNKNOWN
            if host is None
            else f"{host['device_model'] or host['cpu'] or UNKNOWN}, {host['logical_cores']} cores, {mebibytes(host['memory_bytes'])}, {host['system']}",
        )
    ]
    versions = {} if host is None else {"edgebench": host["edgebench"], "python": host["python"], **host["packages"]}
    rows.append(("versions", ", ".join(f"{k} {v}" for k, v in versions.items()) or UNKNOWN))
    shown = {k: v for k, v in engine.items() if k != "engine"}
    rows.append(("engine", f"{settings['engine']}, provider {settings['provider']}" + (f", {shown}" if shown else "")))
    rows.append(
        (
            "asked by",
            f"scoring {settings['scoring']}, matcher {settings['matcher']}, prompt {settings['prompt_style']}, images {settings['image_path']}"
            + (f", files made alike as {settings['equalize']}" if settings["equalize"] else "")
            + (f", perturbed {settings['perturbation']}" if settings["perturbation"] else "")
            + (", --reuse: pictures and prefixes of the question before" if settings["reuse"] else ""),
        )
    )
    if (rule := summary["first_question"]["warmup"]) is not None:
        rows.append(("warm-up", rule))
    if settings["protocol"] is not None:
        shown_protocol = f"{settings['protocol']}, instructions {settings['prompts']}"
        if settings["knowledge"] is not None:
            shown_protocol += f", knowledge {settings['knowledge']}"
        if artifact is not None and artifact["family"] == "language":
            shown_protocol += "; the model takes text alone: it saw no picture"
        rows.append(("protocol", shown_protocol))
    if settings["endpoint"] is not None:
        endpoint = settings["endpoint"]
        side = "own size" if endpoint["max_side"] is None else f"longest side {endpoint['max_side']}"
        rows.append(
            ("endpoint", f"{endpoint['model']} at {endpoint['base_url']}, pictures {endpoint['image']}, {side}")
        )
    if (limits := summary["limits"]) is not None:
        shown_limits = (
            f"{limits['question_s']:g} s a question, {limits['load_s']:g} s to load, {limits['restarts']} restarts"
        )
        rows.append(("limits", shown_limits))
    if artifact is not None:
        rows.append(
            (
                "artifact",
                f"{artifact['name']}, {artifact['family']}, {artifact['precision']}, dialect {artifact['dialect']}, source {artifact['source_sha256'][:12]}",
            )
        )
        rows.append(("parity at export", parity(artifact)))
    rows += [("note", note) for note in summary["notes"]]
    return Table("Conditions", ("", ""), tuple(rows))


def parity(artifact: dict[str, Any] | None) -> str:
    """The worst of each part, in words."""
    found = None if artifact is None else artifact["parity"]
    if found is None:
        return "the checkpoint itself" if artifact is not None and artifact["dialect"] == "checkpoint" else UNKNOWN
    worst: dict[str, tuple[float, float | None]] = {}
    for row in found["rows"]:
        largest, agreement = worst.get(row["what"], (0.0, None))
        agreements = [a for a in (agreement, row["top1_agreement"]) if a is not None]
        worst[row["what"]] = (max(largest, row["max_abs_difference"]), min(agreements) if agreements else None)
    return "; ".join(
        f"{what} max |d| {d:.2g}" + ("" if a is None else f", top-1 {100 * a:.1f} %") for what, (d, a) in worst.items()
    )

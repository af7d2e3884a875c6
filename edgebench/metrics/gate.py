"""A run against budgets: PASS, FAIL, or UNKNOWN, which is not PASS."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edgebench.errors import ConfigError

if TYPE_CHECKING:
    from edgebench.profiles import DeviceProfile


def gate(summary: dict[str, Any], profile: DeviceProfile, pair: dict[str, Any] | None) -> dict[str, Any]:
    """The verdict on each budget and on all of them.

    Args:
        summary: of the run, see `edgebench.metrics.summary`.
        profile: whose budgets are asked for.
        pair: the run against its base, see `edgebench.metrics.delta`; None where there is no base.

    Raises:
        ConfigError: the profile states no budget.
    """
    b = profile.budgets
    rows = []
    if b.latency_p90_ms is not None:
        rows.append(_row("latency p90, ms", b.latency_p90_ms, *_latency(summary)))
    if b.memory_mib is not None:
        rows.append(_row("memory, MiB", b.memory_mib, *_memory(summary, profile)))
    if b.accuracy_loss_points is not None:
        rows.append(_row("accuracy loss, points", b.accuracy_loss_points, *_loss(summary, pair)))
    if not rows:
        raise ConfigError(
            "states no budgets", where=profile.name, hint="add latency_p90_ms, memory_mib or accuracy_loss_points"
        )
    verdicts = {row["verdict"] for row in rows}
    verdict = "FAIL" if "FAIL" in verdicts else "UNKNOWN" if "UNKNOWN" in verdicts else "PASS"
    return {"run": summary["run"], "profile": profile.name, "verdict": verdict, "rows": rows}


def _row(budget: str, allowed: float, measured: float | None, why: str) -> dict[str, Any]:
    kept = None if measured is None else measured <= allowed
    verdict = {True: "PASS", False: "FAIL", None: "UNKNOWN"}[kept]
    return {"budget": budget, "allowed": allowed, "measured": measured, "verdict": verdict, "why": why}


def _latency(summary: dict[str, Any]) -> tuple[float | None, str]:
    total = summary["latency_ms"].get("total") or {"n": 0, "p90": None}
    timing = summary["validity"]
    if timing["timing"] != "valid":
        return None, f"timing is {timing['timing'].upper()}: {'; '.join(timing['reasons'] + timing['unknown'])}"
    if summary["pooled_sittings"]:
        return None, "the answers are of several sittings, whose times are not one population"
    return total["p90"], f"{total['n']} questions" + (", too few for a p90" if total["p90"] is None else "")


def _memory(summary: dict[str, Any], profile: DeviceProfile) -> tuple[float | None, str]:
    methods = {row["what"]: row for row in summary["memory_methods"]}
    # Where CPU and GPU share the memory, what the GPU takes is not in the process's peak.
    names = {"discrete": ("GPU",), "unified": ("process peak", "system")}.get(
        profile.memory_kind or "", ("process peak",)
    )
    rows = [methods[name] for name in names]
    if any(row["bytes"] is None for row in rows):
        return None, f"unknown: {', '.join(row['what'] for row in rows if row['bytes'] is None)}"
    largest = max(rows, key=lambda row: row["bytes"])
    return largest["bytes"] / 2**20, f"{largest['what']}: {largest['method']}"


def _loss(summary: dict[str, Any], pair: dict[str, Any] | None) -> tuple[float | None, str]:
    s = summary["summary"]
    if pair is None:
        return None, "pass --base RUN"
    if s["failed"] or not s["complete"]:
        return None, f"{s['failed']} questions failed" if s["failed"] else "the run is not complete"
    base, other = pair["accuracy"]
    if base is None or other is None:
        return None, "no question in common"
    lost, won, n = (pair["paired"][key] for key in ("lost", "won", "both"))
    loss, half = 100 * (base - other), 196 * math.sqrt((lost + won) - (lost - won) ** 2 / n) / n
    return loss, f"{n} questions, {lost} lost and {won} won; 95 % interval {loss - half:.2f} to {loss + half:.2f}"

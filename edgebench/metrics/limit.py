"""The physical limit: the least time that a device's peaks allow for the work of a question. Always an estimate.

Of each stage the larger of two times: its operations at the device's peak, and the bytes that it has to read at the
memory's peak bandwidth, less what the last-level cache may hold. Stages follow each other, so TTFT is at least vision
and prefill. (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgebench.work import pairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgebench.profiles import DeviceProfile
    from edgebench.work import Work

FASTER: dict[str, tuple[str, ...]] = {
    "fp32": ("fp32", "tf32"),
    "fp16": ("fp32", "tf32", "fp16", "bf16"),
    "bf16": ("fp32", "tf32", "fp16", "bf16"),
    "int8": ("fp32", "tf32", "fp16", "bf16", "fp8", "int8"),
    "w8a8": ("fp32", "tf32", "fp16", "bf16", "fp8", "int8"),
    "int4": ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4"),
}
"""Precision of a graph -> the arithmetic that a runtime may compute it in: the fastest of them sets the limit."""


@dataclass(frozen=True)
class Least:
    """The least time of a stage, and what sets it."""

    ns: float
    by: str
    """'operations' or 'memory'."""

    def __add__(self, other: Least) -> Least:
        """One after the other; the longer one gives the name."""
        return Least(self.ns + other.ns, self.by if self.ns >= other.ns else other.by)


def peak_operations(profile: DeviceProfile, precision: str) -> float | None:
    """Operations a second at most; None where one that could be the fastest is not known."""
    names = FASTER.get(precision, FASTER["int4"])
    found = [profile.peak_tera_operations[n].value for n in names if n in profile.peak_tera_operations]
    known = [value for value in found if value is not None]
    return 1e12 * max(known) if known and len(known) == len(found) else None


def least(work: Work, profile: DeviceProfile, items: int, *, seen: float = 0, more_bytes: float = 0) -> Least | None:
    """The least time of one call; None where nothing is known that would bound it.

    Args:
        work: of the graph.
        profile: the device.
        items: tiles or tokens.
        seen: positions that the tokens see in all.
        more_bytes: read besides the weights: the cache of keys and values.
    """
    operations, peak = work.operations(items, seen), peak_operations(profile, work.precision)
    bandwidth = None if profile.bandwidth_gb_s is None else profile.bandwidth_gb_s.value
    cached = 0.0 if profile.cache_mib is None else (profile.cache_mib.value or 0) * 2**20
    times = []
    if operations is not None and peak:
        times.append(Least(1e9 * operations / peak, "operations"))
    if bandwidth:
        times.append(Least(max(0.0, work.weight_bytes + more_bytes - cached) / bandwidth, "memory"))
    return max(times, key=lambda t: t.ns, default=None)


def least_stages(
    works: Mapping[str, Work],
    profile: DeviceProfile,
    *,
    tiles: int | None,
    prompt_tokens: int | None,
    output_tokens: int | None,
    cache_bytes_per_token: int | None,
    kept: int = 0,
) -> dict[str, Least]:
    """The least time of each stage that is known: vision, prefill, ttft, tpot from two output tokens on, and total.

    Decoding pictures and making pixels is not in it.

    Args:
        works: by graph.
        profile: the device.
        tiles: of the question's pictures.
        prompt_tokens: of the whole prompt.
        output_tokens: that the model gave.
        cache_bytes_per_token: keys and values.
        kept: tokens of the prompt whose cache was there already.
    """
    found: dict[str, Least] = {}
    for name in ("classifier", "vision"):
        if name in works and tiles and (time := least(works[name], profile, tiles)) is not None:
            found["vision"] = time
    decoder = works.get("decoder")
    if decoder is None:
        return found | ({"total": found["vision"]} if "vision" in found else {})
    if not prompt_tokens:
        return found
    time = least(decoder, profile, prompt_tokens - kept, seen=pairs(prompt_tokens, kept))
    if time is not None:
        found["prefill"] = time
        if "vision" in found or not tiles:
            found["ttft"] = time + found["vision"] if "vision" in found else time
    if output_tokens is not None and output_tokens >= 2 and cache_bytes_per_token is not None:
        seen = prompt_tokens + output_tokens / 2
        step = least(decoder, profile, 1, seen=seen, more_bytes=seen * cache_bytes_per_token)
        if step is not None:
            found["tpot"] = step
    if "ttft" in found and output_tokens is not None:
        steps = output_tokens - 1
        if steps < 1:
            found["total"] = found["ttft"]
        elif "tpot" in found:
            found["total"] = found["ttft"] + replace(found["tpot"], ns=steps * found["tpot"].ns)
    return found

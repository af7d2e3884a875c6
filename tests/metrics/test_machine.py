"""Validity, drift, limits, energy and the gate as pure functions of records; statistics against SciPy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.environment import Host
from edgebench.errors import ConfigError
from edgebench.metrics.drift import drift, mann_kendall, theil_sen
from edgebench.metrics.energy import EnergyTally
from edgebench.metrics.gate import gate
from edgebench.metrics.limit import least_stages, peak_operations
from edgebench.metrics.validity import background, validity
from edgebench.profiles import Budgets, DeviceProfile, Figure, load_profile, write_profile
from edgebench.records import Record, Sitting
from edgebench.sensors.observation import Observation
from edgebench.sensors.power_log import PowerLog
from edgebench.work import Work, pairs

SECOND = 1_000_000_000


def test_the_trend_test_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for seed in range(10):
        generator = np.random.default_rng(seed)
        x = generator.normal(size=40) + 0.05 * seed * np.arange(40)
        x = np.round(x, 1 if seed % 2 else 6)  # with ties, and without
        s, p = mann_kendall(list(x))
        tau = stats.kendalltau(np.arange(40), x, variant="b", method="asymptotic")
        assert np.sign(s) == np.sign(tau.statistic)
        # SciPy's has no continuity correction: p lies between those of |S| - 2 and |S|.
        assert tau.pvalue <= p <= tau.pvalue * 1.6 + 0.06
        assert theil_sen(list(x)) == pytest.approx(stats.theilslopes(x).slope)
    assert mann_kendall([1, 2, 3, 4, 5]) == (10, pytest.approx(0.02749, abs=1e-4))


def test_a_run_that_heats_up_drifts_and_a_steady_one_does_not() -> None:
    generator = np.random.default_rng(1)
    alarms = sum(bool((drift(list(generator.normal(100, 5, 300))) or {})["drifts"]) for _ in range(100))
    assert alarms <= 3
    alarms = 0
    for _ in range(100):  # a machine that is faster or slower for some seconds on its own
        levels = np.repeat(generator.normal(100, 8, 12), 100)
        alarms += bool((drift(list(levels + generator.normal(0, 10, 1200))) or {})["drifts"])
    assert alarms <= 8
    found = drift(list(generator.normal(100, 5, 5000) + np.linspace(0, 20, 5000)))
    assert found is not None
    assert found["drifts"]
    assert found["change"] == pytest.approx(0.18, abs=0.03)
    assert found["blocks"] == 16
    assert drift([1.0] * 9) is None
    constant = drift([1.0] * 50)
    assert constant is not None
    assert not constant["drifts"]


def host(**changes: Any) -> Host:
    return replace(Host("Linux 6", "x86_64", "a CPU", 2, 8 << 30, None, "3.11", "0", {}), **changes)


def sitting(number: int = 1, **changes: Any) -> Sitting:
    return replace(Sitting(number, "2026-01-01T00:00:00", host(), {}, "VmHWM", "cpu", load_ns=1), **changes)


def looks(others: list[float], **more: list[Any]) -> list[Observation]:
    """One a second; `others` cores are busy besides one of ours."""
    seen = [Observation(1, 0, "before", 100.0, 10.0), Observation(1, SECOND, "during", 101.0, 11.0)]
    for k, cores in enumerate(others):
        last = seen[-1]
        busy, own = (last.busy_s or 0) + cores + 1, (last.own_s or 0) + 1
        extra = {name: values[k] for name, values in more.items()}
        seen.append(Observation(1, last.unix_ns + SECOND, "during", busy, own, **extra))
    return seen


def verdict(seen: list[Observation], **changes: Any) -> tuple[str, str]:
    found = validity([sitting(**changes)], seen, {})
    assert found["accuracy"] == "valid"
    return found["timing"], "; ".join(found["reasons"] + found["unknown"])


def test_what_makes_a_runs_times_invalid() -> None:
    quiet = [0.02] * 20
    assert verdict(looks(quiet)) == ("valid", "")
    assert verdict(looks([0.02] * 19 + [0.9])) == ("valid", ""), "one second in twenty"
    assert verdict(looks([0.02] * 16 + [0.35] * 4)) == ("valid", ""), "a machine's own services"
    assert verdict(looks([0.3] * 20))[0] == "invalid", "little, and all the time"
    timing, why = verdict(looks([0.02] * 15 + [0.9] * 5))
    assert timing == "invalid"
    assert "0.24 cores on average, 0.90 at most" in why
    for name, values, says in (
        ("throttle_events", [3] * 10 + [5] * 10, "held back 2 times"),
        ("held_back", [()] * 19 + [("undervoltage",)], "undervoltage, in 1 of"),
        ("governor", ["powersave"] * 5 + ["performance"] * 15, "powersave -> performance"),
        ("power_mode", ["0"] * 5 + ["2"] * 15, "the power mode changed: 0 -> 2"),
        ("clock_mhz", [2400.0] * 15 + [1200.0] * 5, "CPU's clock fell to 1200 MHz from 2400"),
    ):
        timing, why = verdict(looks(quiet, **{name: values}))
        assert timing == "invalid"
        assert says in why
    # One question is no trend in the clock, and a count that never moved is no event.
    assert verdict(looks(quiet, clock_mhz=[2400.0] * 19 + [800.0], throttle_events=[9] * 20))[0] == "valid"


def test_what_is_not_known_is_not_valid() -> None:
    assert verdict([])[0] == "unknown"
    assert verdict([Observation(1, 0, "during"), Observation(1, 5 * SECOND, "during")])[0] == "unknown"
    short = [Observation(1, 0, "during", 1.0, 1.0), Observation(1, SECOND // 5, "during", 1.2, 1.2)]
    timing, why = verdict(short)
    assert timing == "unknown"
    assert "shorter than" in why
    assert background(short) is None
    assert validity([], [], {})["timing"] == "unknown"


def test_sittings_that_differ_and_times_that_drift() -> None:
    slow = [100.0 + k for k in range(100)]
    found = validity([sitting()], looks([0.0] * 5), {1: slow})
    assert found["timing"] == "invalid"
    assert "slower over the run" in found["reasons"][0]
    both = [sitting(), sitting(2, host=host(cpu="another CPU"), profile="cpu-1-thread")]
    seen = looks([0.0] * 5)
    found = validity(both, seen + [replace(o, sitting=2) for o in seen], {})
    assert found["timing"] == "invalid"
    assert [r.split(" differs")[0] for r in found["reasons"]] == ["the machine", "the device profile"]


def device(**changes: Any) -> DeviceProfile:
    peaks = {"fp32": Figure(1.0, "a"), "int8": Figure(4.0, "b")}
    made = DeviceProfile(
        "board", "", bandwidth_gb_s=Figure(10.0, "c"), cache_mib=Figure(1.0, "d"), peak_tera_operations=peaks
    )
    return replace(made, **changes)


def test_limits_by_hand() -> None:
    decoder = Work("int8", 2_000_000, 1_000, 500_000, 50_000_000 + 2**20)
    vision = Work("fp32", 3_000_000_000, weight_bytes=2**20 + 10_000_000)
    asked: dict[str, Any] = {"prompt_tokens": 100, "output_tokens": 5, "cache_bytes_per_token": 1000}
    found = least_stages({"vision": vision, "decoder": decoder}, device(), tiles=2, **asked)
    assert found["vision"].ns == pytest.approx(6e9 / 1e12 * 1e9)
    assert found["vision"].by == "operations"
    assert found["prefill"].ns == pytest.approx(max((200e6 + 5050e3 + 5e5) / 4e12, 50e6 / 10e9) * 1e9)
    assert found["prefill"].by == "memory"
    assert found["ttft"].ns == pytest.approx(found["vision"].ns + found["prefill"].ns)
    assert found["tpot"].ns == pytest.approx((50e6 + 102.5 * 1000) / 10e9 * 1e9)
    assert pairs(100) == 5050
    assert pairs(100, 90) == sum(range(91, 101))
    whole = least_stages({"decoder": decoder}, device(cache_mib=Figure(1e3, "")), tiles=None, **asked)
    assert whole["tpot"].by == "operations", "what the cache holds needs no bandwidth"
    assert "tpot" not in least_stages({"decoder": decoder}, device(), tiles=None, **{**asked, "output_tokens": 1})
    no_eyes = least_stages({"vision": replace(vision, operations_per_item=None), "decoder": decoder}, device(bandwidth_gb_s=None), tiles=1, **asked)  # fmt: skip
    assert "ttft" not in no_eyes, "vision is not known, so neither is TTFT"
    assert "prefill" in no_eyes


def test_an_unknown_peak_that_could_be_the_fastest_bounds_nothing() -> None:
    peaks = {"fp32": Figure(1.0, ""), "int8": Figure(None, "not stated")}
    assert peak_operations(device(peak_tera_operations=peaks), "fp32") == 1e12
    assert peak_operations(device(peak_tera_operations=peaks), "int8") is None
    assert peak_operations(device(), "int4") == 4e12
    assert peak_operations(device(peak_tera_operations={}), "fp32") is None


def test_joules_a_sample_and_a_right_answer() -> None:
    answer = Record("1", 1, "A", "c", answer="A", took_ns=SECOND, asked_unix_ns=10 * SECOND)
    tally = EnergyTally(None)
    for right, joules in ((True, 2.0), (False, 4.0), (False, 6.0), (True, None)):
        tally.add(replace(answer, energy_j=joules), right)
    found = tally.found([sitting(energy_source="rapl: package-0")])
    assert (found["joules_per_sample"], found["joules_per_right_answer"], found["watts_mean"]) == (4.0, 12.0, 4.0)
    assert (found["measured"], found["answered"], found["source"]) == (3, 4, "rapl: package-0")
    nothing = EnergyTally(None)
    nothing.add(answer, True)
    found = nothing.found([sitting(no_energy="RAPL: no package")])
    assert (found["joules"], found["joules_per_sample"], found["joules_per_right_answer"]) == (None, None, None)
    assert found["unsupported"] == "RAPL: no package"
    metered = EnergyTally(PowerLog([9.0, 12.0], [5.0, 5.0]))
    metered.add(answer, False)
    metered.add(replace(answer, asked_unix_ns=50 * SECOND), True)
    found = metered.found([sitting()])
    assert (found["joules"], found["measured"], found["joules_per_right_answer"]) == (5.0, 1, None)


def summary(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "run": "r",
        "summary": {"failed": 0, "complete": True},
        "latency_ms": {"total": {"n": 100, "p90": 80.0}},
        "validity": {"timing": "valid", "reasons": [], "unknown": []},
        "pooled_sittings": False,
        "memory_methods": [
            {"what": "process peak", "bytes": 100 << 20, "method": "VmHWM"},
            {"what": "system", "bytes": 120 << 20, "method": "MemAvailable"},
            {"what": "GPU", "bytes": None, "method": "NVML"},
        ],
    }
    return made | changes


PAIR = {"accuracy": [0.80, 0.795], "paired": {"lost": 3, "won": 2, "both": 200}}


def test_the_gate() -> None:
    board = device(budgets=Budgets(100, 128, 1))
    assert gate(summary(), board, PAIR)["verdict"] == "PASS"
    assert gate(summary(), board, None)["verdict"] == "UNKNOWN"
    assert gate(summary(), board, {**PAIR, "accuracy": [0.8, 0.785]})["verdict"] == "FAIL"
    assert gate(summary(latency_ms={"total": {"n": 9, "p90": None}}), board, PAIR)["verdict"] == "UNKNOWN"
    invalid = {"timing": "invalid", "reasons": ["others"], "unknown": []}
    found = gate(summary(validity=invalid), board, PAIR)
    assert [row["verdict"] for row in found["rows"]] == ["UNKNOWN", "PASS", "PASS"]
    assert "INVALID: others" in found["rows"][0]["why"]
    assert gate(summary(pooled_sittings=True), board, PAIR)["verdict"] == "UNKNOWN"
    assert gate(summary(), replace(board, memory_kind="discrete"), PAIR)["verdict"] == "UNKNOWN"
    assert gate(summary(), replace(board, memory_kind="unified"), PAIR)["rows"][1]["measured"] == 120
    assert gate(summary(), device(budgets=Budgets(memory_mib=64)), None)["verdict"] == "FAIL"
    assert gate(summary(summary={"failed": 1, "complete": True}), board, PAIR)["verdict"] == "UNKNOWN"
    with pytest.raises(ConfigError, match="states no budgets"):
        gate(summary(), device(), None)


def test_a_written_profile_is_read_as_it_was(tmp_path: Path) -> None:
    made = device(name="mine", peak_tera_operations={"fp32": Figure(1e-5, "a"), "int8": Figure(None, "b: 'c'")})
    write_profile(tmp_path / "mine.yaml", made)
    assert load_profile(str(tmp_path / "mine.yaml")) == made
    (tmp_path / "bad.yaml").write_text("name: bad\nsummary: x\npeak_tera_operations:\n  fp33: {value: 1, source: x}\n")
    with pytest.raises(ConfigError, match="unknown precision 'fp33'"):
        load_profile(str(tmp_path / "bad.yaml"))

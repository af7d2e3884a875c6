"""Statistics against scikit-learn, SciPy and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebench.metrics.binary import auroc, balanced_accuracy, binary_scores, eer, roc
from edgebench.metrics.intervals import (
    difference_interval,
    early_stopping_rank,
    order_statistics,
    ratio_interval,
    wilson,
)
from edgebench.metrics.latency import derived_ns, percentile_ns, stage_ms
from edgebench.metrics.paired import mcnemar_exact, paired
from edgebench.metrics.pareto import pareto


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ties", [False, True])
def test_auroc_and_roc_agree_with_scikit_learn(seed: int, ties: bool) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(seed)
    n = int(generator.integers(5, 200))
    forged = generator.random(n) < 0.4
    forged[:2] = [True, False]
    score = generator.random(n) + 0.3 * forged
    score = np.round(score, 1) if ties else score
    assert auroc(forged, score) == pytest.approx(metrics.roc_auc_score(forged, score))
    false, true, _ = metrics.roc_curve(forged, score, drop_intermediate=False)
    assert np.allclose(roc(forged, score), (false, true))
    right = score > 0.6
    right = right == forged
    assert balanced_accuracy(forged, right) == pytest.approx(metrics.balanced_accuracy_score(forged, score > 0.6))


def test_eer_at_its_corners() -> None:
    forged = np.array([True, True, False, False])
    assert eer(forged, np.array([0.9, 0.8, 0.2, 0.1])) == 0
    assert eer(forged, np.array([0.1, 0.2, 0.8, 0.9])) == 1
    assert eer(forged, np.array([0.9, 0.3, 0.5, 0.1])) == pytest.approx(0.5)
    assert eer(forged, np.full(4, 0.5)) == pytest.approx(0.5)
    assert eer(np.array([True, True]), np.array([0.1, 0.2])) is None


def test_one_class_is_unknown_not_zero() -> None:
    found = binary_scores(np.array([True, True]), np.array([True, False]), np.array([0.2, 0.9]))
    assert found["auroc"] is None
    assert found["eer"] is None
    assert found["balanced_accuracy"] is None
    assert found["accuracy_on_real"] is None
    assert found["accuracy_on_forged"] == 0.5


@given(total=st.integers(1, 3000), data=st.data())
@settings(max_examples=60, deadline=None)
def test_wilson_agrees_with_scipy(total: int, data: st.DataObject) -> None:
    stats = pytest.importorskip("scipy.stats")
    right = data.draw(st.integers(0, total))
    low, high = wilson(right, total) or (0, 0)
    reference = stats.binomtest(right, total).proportion_ci(method="wilson")
    assert low == pytest.approx(reference.low, abs=1e-12)
    assert high == pytest.approx(reference.high, abs=1e-12)


def test_wilson_of_nothing() -> None:
    assert wilson(0, 0) is None


def test_bootstrap_covers() -> None:
    """A 95 % interval of a balanced accuracy holds the true one in about 95 of 100 samples."""
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        forged = np.arange(200) % 2 == 0
        right = generator.random(200) < 0.7
        low, high = binary_scores(forged, right, None)["balanced_accuracy_interval"]
        covered += low <= 0.7 <= high
    assert covered >= 88


@pytest.mark.parametrize(("lost", "won"), [(0, 1), (5, 1), (10, 10), (3, 17), (120, 80)])
def test_mcnemar_agrees_with_scipy(lost: int, won: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert mcnemar_exact(lost, won) == pytest.approx(stats.binomtest(min(lost, won), lost + won, 0.5).pvalue)


def test_paired_counts_only_common_questions() -> None:
    found = paired({"a": True, "b": True, "c": False}, {"b": False, "c": True, "d": True})
    assert (found["both"], found["only_base"], found["only_other"], found["lost"], found["won"]) == (2, 1, 1, 1, 1)
    assert found["difference"] == 0
    assert paired({}, {})["difference"] is None
    assert mcnemar_exact(0, 0) is None


def test_percentiles_are_measured_values_or_unknown() -> None:
    values = list(range(1, 101))
    assert percentile_ns(values, 50) == 50
    assert percentile_ns(values, 90) == 90
    assert percentile_ns(values, 99) == 99
    assert percentile_ns(values[:99], 99) is None
    assert percentile_ns(values[:9], 90) is None
    assert percentile_ns([7, 5], 50) == 5
    assert percentile_ns([], 50) is None
    assert stage_ms([])["mean"] is None
    assert stage_ms([2_000_000])["mean"] == 2.0


@pytest.mark.parametrize("n", [1, 2, 5, 6, 10, 44, 45, 100, 367, 368, 500, 1176, 20000])
@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_the_interval_of_a_percentile_agrees_with_scipy(n: int, q: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    reference = stats.quantile_test(np.arange(1.0, n + 1), q=0, p=q).confidence_interval(0.95)
    known = not np.isnan([reference.low, reference.high]).any()
    assert order_statistics(n, q) == ((reference.low, reference.high) if known else None)


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_the_upper_bound_is_mlperf_s_early_stopping_estimate(q: float) -> None:
    special = pytest.importorskip("scipy.special")

    def needed(t: int) -> int:
        """LoadGen's smallest h with betainc(h, t + 1, q) < 1 - 0.99, and t beside it."""
        h = 1
        while special.betainc(h, t + 1, q) >= 0.01:
            h += 1
        return h + t

    for n in (1, 10, 44, 64, 65, 400, 661, 662, 1176):
        t = 1
        if n < needed(1):
            assert early_stopping_rank(n, q) is None
            continue
        while n >= needed(t + 1):
            t += 1
            if t > 40:
                break
        if t <= 40:
            assert early_stopping_rank(n, q) == n - t + 1
    assert early_stopping_rank(661, 0.99) is None
    assert early_stopping_rank(662, 0.99) == 662, "MLPerf's 662 queries for the 99th percentile"
    assert early_stopping_rank(64, 0.9) == 64, "and its 64 for the 90th"
    assert early_stopping_rank(700, 0.9) == 650, 'LoadGen 6.0.17: "Would discard 50 highest latency queries"'


def test_a_percentile_has_an_interval_only_from_enough_samples() -> None:
    found = stage_ms([k * 1_000_000 for k in range(1, 101)])
    assert (found["p50"], found["p90"], found["p99"]) == (50, 90, 99)
    assert found["p50_interval"] == [40, 61]
    assert found["p90_interval"] == [84, 96]
    assert found["p99_interval"] is None, "100 samples have no upper end for p99"
    assert stage_ms([1] * 9)["p90"] is None
    assert stage_ms([])["p50_interval"] is None


def test_first_tokens_and_times_per_token() -> None:
    stages = {"preprocess": 5, "vision": 20, "prefill": 30, "decode": 12, "total": 67}
    assert derived_ns(stages, 4) == {"ttft": 55, "ttft_from_tensor": 50, "tpot": 4}
    assert "tpot" not in derived_ns(stages, 1), "one token has no time per token"
    assert "tpot" not in derived_ns(stages, None)
    assert derived_ns({"preprocess": 5, "vision": 20, "total": 25}, None) == {}, "a classifier has no first token"


def test_two_runs_of_one_artifact_are_no_difference_and_a_planted_loss_is_found() -> None:
    generator = np.random.default_rng(7)
    questions, verdicts, covered = 2000, [], 0
    for _ in range(100):
        base = generator.random(questions) < 0.7
        flipped = generator.random(questions) < 0.04
        other = np.where(flipped, generator.random(questions) < 0.7, base)
        pair = paired(dict(enumerate(base.tolist())), dict(enumerate(other.tolist())))
        verdicts.append(pair["verdict"])
        low, high = pair["difference_interval"]
        covered += low <= 0 <= high
    assert verdicts.count("no difference") >= 95
    assert covered >= 90
    base = generator.random(questions) < 0.7
    noise = np.where(generator.random(questions) < 0.04, generator.random(questions) < 0.7, base)
    lost = noise.copy()
    lost[generator.choice(np.flatnonzero(noise), 60, replace=False)] = False
    pair = paired(dict(enumerate(base.tolist())), dict(enumerate(lost.tolist())))
    assert pair["verdict"] == "worse"
    assert pair["difference_interval"][1] < 0
    same = paired({1: True, 2: False}, {1: True, 2: False})
    assert (same["difference"], same["difference_interval"], same["verdict"]) == (0, None, "no difference")
    assert paired({}, {})["verdict"] is None


def test_ratios_of_medians_are_paired_and_cover_the_truth() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(3)
    base = generator.lognormal(3, 1, 800)
    other = base * 0.8 * generator.lognormal(0, 0.02, 800)
    low, high = ratio_interval(base, other) or (0, 0)
    assert 0.77 < low < 0.8 < high < 0.83, "the spread over questions is in both and cancels"
    reference = stats.bootstrap(
        (base, other),
        lambda a, b, axis: np.median(b, axis=axis) / np.median(a, axis=axis),
        paired=True,
        method="percentile",
        vectorized=True,
        n_resamples=2000,
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert (low, high) == pytest.approx((reference.low, reference.high), abs=0.006)
    assert ratio_interval(base[:19], other[:19]) is None
    low, high = difference_interval(30, 10, 1000) or (0, 0)
    assert (low, high) == pytest.approx((-0.032, -0.008), abs=0.003), "the normal approximation of 20 in 1000"


def test_the_pareto_front() -> None:
    def run(accuracy: float | None, ms: float | None, size: float | None) -> dict[str, float | None]:
        return {"accuracy": accuracy, "latency_ms": ms, "memory_bytes": size}

    runs = [
        run(0.8, 10, 100),
        run(0.8, 12, 90),
        run(0.7, 11, 95),
        run(0.79, 10, 100),
        run(0.9, None, 50),
        run(0.8, 10, 100),
    ]
    assert pareto(runs) == [[], [], [], [0, 5], None, []], "equal runs do not dominate each other"
    assert pareto(runs, ["latency_ms"]) == [[], [0, 5], [0, 3, 5], [0, 5], None, []]
    assert pareto(runs, ["memory_bytes"])[4] == []

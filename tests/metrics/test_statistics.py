"""Statistics against scikit-learn, SciPy and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebench.metrics.binary import auroc, balanced_accuracy, binary_scores, eer, roc
from edgebench.metrics.intervals import bootstrap, wilson
from edgebench.metrics.latency import percentile_ns, stage_ms
from edgebench.metrics.paired import mcnemar_exact, paired


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
        low, high = bootstrap(lambda i, f=forged, r=right: balanced_accuracy(f[i], r[i]), forged) or (0, 0)
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

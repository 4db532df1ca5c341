"""The corrected t-test and Holm's adjustment against numbers worked out by hand and literal definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from usboost.evaluation import metrics, ranking
from usboost.evaluation.statistics import corrected_t_test, holm, paired_interval, randomization_test


def test_worked_example():
    # mean 0.02; squared deviations (1, 1, 0, 4, 4)e-4, sum 1e-3, variance 2.5e-4
    differences = [0.03, 0.01, 0.02, 0.04, 0.00]
    t, p = corrected_t_test(differences, ratio=1 / 4)
    # sqrt((1/5 + 1/4) · 2.5e-4) = sqrt(1.125e-4) = 0.0106066
    assert t == pytest.approx(0.02 / 0.010606601717798213)
    assert t == pytest.approx(1.885618, abs=1e-6)
    # t of 4 degrees of freedom has the tail ½ − x(3/2 − x²/2)/2 with x = t/√(4 + t²)
    x = t / np.sqrt(4 + t**2)
    assert p == pytest.approx(1 - x * (3 - x**2) / 2, rel=1e-12)
    assert p == pytest.approx(0.1324, abs=1e-4)
    # the uncorrected test would call it significant
    assert stats.ttest_1samp(differences, 0).pvalue < 0.05


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30), st.floats(0.01, 2))
def test_is_the_uncorrected_test_with_a_larger_variance(differences, ratio):
    t, p = corrected_t_test(differences, ratio)
    if np.ptp(differences) > 1e-6:
        plain = stats.ttest_1samp(differences, 0)
        assert t == pytest.approx(plain.statistic / np.sqrt(1 + len(differences) * ratio), abs=1e-9)
        assert p >= plain.pvalue - 1e-12
    assert 0 <= p <= 1
    back = corrected_t_test([-d for d in differences], ratio)
    assert back == pytest.approx((-t, p))


def test_equal_differences():
    assert corrected_t_test([0.0, 0.0, 0.0], 0.25) == (0.0, 1.0)
    assert corrected_t_test([0.1, 0.1, 0.1], 0.25) == (np.inf, 0.25)  # a sign test's
    assert corrected_t_test([-0.1, -0.1], 0.25) == (-np.inf, 0.5)


def test_holm_by_hand():
    # sorted: 0.005·4, 0.01·3, 0.03·2, 0.04·1 → 0.02, 0.03, 0.06, then not below 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert len(holm([])) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_as_the_stepwise_procedure(p):
    adjusted = holm(p)
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for step, k in enumerate(sorted(range(len(p)), key=lambda k: p[k])):
            if p[k] * (len(p) - step) > level:
                break
            rejected.add(k)
        assert {k for k in range(len(p)) if adjusted[k] <= level} == rejected


def test_randomization_against_every_swap():
    """Six rows have 64 equally likely swaps, which can be gone through."""
    labels = np.array([0, 1, 1, 0, 1, 1])
    first, second = labels.copy(), np.array([1, 0, 1, 0, 0, 1])
    seen = metrics.accuracy(labels, first) - metrics.accuracy(labels, second)
    swaps = (np.arange(64)[:, None] >> np.arange(6)) % 2 == 1
    differences = [
        metrics.accuracy(labels, np.where(s, second, first))
        - metrics.accuracy(labels, np.where(s, first, second))
        for s in swaps
    ]
    exact = np.mean(np.abs(differences) >= seen - 1e-12)  # all three differing rows the same way: 2/8
    assert exact == 0.25
    found = randomization_test(labels, first, second, metrics.accuracy, draws=4000)
    assert found == pytest.approx(exact, abs=0.03)


def test_randomization_finds_what_is_there_and_nothing_else():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)

    def wrong(share):
        return np.where(rng.random(400) < share, 1 - labels, labels)

    good = wrong(0.1)
    assert randomization_test(labels, good, wrong(0.3), metrics.accuracy, draws=500) < 0.01
    assert randomization_test(labels, good, good, metrics.accuracy, draws=100) == 1.0
    p = [randomization_test(labels, wrong(0.2), wrong(0.2), metrics.accuracy, draws=99) for _ in range(60)]
    assert np.mean(np.array(p) < 0.05) < 0.15
    low, high = paired_interval(labels, good, wrong(0.3), metrics.accuracy)
    assert 0 < low < 0.2 < high < 0.4


def test_validation_scores_choose_and_ties_have_an_order():
    fits = [
        ("a", {"f1": 0.8, "log_loss": 0.5}),
        ("b", {"f1": 0.8, "log_loss": 0.4}),
        ("c", {"f1": 0.8, "log_loss": 0.4}),
        ("none", {"f1": float("nan"), "log_loss": 0.1}),
        ("nothing", {}),
    ]
    assert ranking.best(fits, "f1") == "b"
    assert ranking.best(fits, "log_loss") == "none"
    assert ranking.best([fits[0], fits[2]], "log_loss") == "c"
    assert ranking.best(fits[3:], "f1") is None


def test_what_is_level_with_the_best_is_known_and_a_sum_in_another_order_is_level():
    fits = [
        ("a", {"f1": 0.1 + 0.2, "log_loss": 0.5}),
        ("b", {"f1": 0.3, "log_loss": 0.4}),
        ("c", {"f1": 0.2, "log_loss": 0.1}),
        ("none", {}),
    ]
    assert ranking.best(fits, "f1") == "b"
    assert ranking.tied(fits, "f1") == ["a", "b"] and ranking.tied(fits, "log_loss") == ["c"]
    assert ranking.tied(fits[3:], "f1") == [] == ranking.tied([], "f1")
    assert ranking.tie_note(1, "f1", 0.3) == "" and "2 models tie at validation F1 0.3000" in (
        ranking.tie_note(2, "f1", 0.3)
    )


def test_probabilities_are_compared_with_the_priors():
    from sklearn.dummy import DummyClassifier
    from sklearn.metrics import log_loss

    train, test = np.repeat([0, 1, 2], [50, 30, 20]), np.repeat([0, 1, 2], [5, 5, 2])
    prior = DummyClassifier().fit(np.zeros((100, 1)), train)
    known = log_loss(test, prior.predict_proba(np.zeros((12, 1))))
    counts = {"train": [50, 30, 20], "test": [5, 5, 2]}
    card = {"splits": {k: {"classes": dict(zip("abc", n, strict=True))} for k, n in counts.items()}}
    assert ranking.prior_log_loss(card, "test") == pytest.approx(known)
    worse, better = {"log_loss": known + 0.01}, {"log_loss": known - 0.01}
    assert f"against {known:.4f} on the test split" in ranking.probability_note({}, worse, card)
    assert ranking.probability_note(worse, better, card) == ""
    for odd in ({}, {"splits": {"train": {"rows": 3}, "test": {"rows": 3}}}, {"splits": [1]}):
        assert ranking.prior_log_loss(odd, "test") is None

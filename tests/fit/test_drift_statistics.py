"""Drift against literal definitions and against samples of one distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from usboost.fit import drift

COUNTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12)


@given(COUNTS)
def test_the_index_is_its_definition(pairs):
    reference, found = ([pair[k] for pair in pairs] for k in (0, 1))
    total, expected = len(pairs) / 2, 0.0
    for before, now in pairs:
        e, a = (before + 0.5) / (sum(reference) + total), (now + 0.5) / (sum(found) + total)
        expected += (a - e) * math.log(a / e)
    assert drift.psi(np.array(reference), np.array(found)) == pytest.approx(expected, abs=1e-12)
    assert drift.psi(np.array(found), np.array(reference)) == pytest.approx(expected, abs=1e-12)
    assert expected >= 0


@given(
    st.lists(st.integers(-5, 5) | st.just(math.nan), min_size=1, max_size=40),
    st.lists(st.integers(-5, 5) | st.just(math.nan), min_size=1, max_size=40),
)
def test_bins_and_distances_are_counted_one_by_one(reference, found):
    known, seen = (np.array([v for v in values if v == v]) for values in (reference, found))
    if not len(known) or not len(seen):
        return
    inner = drift.edges(known)
    counts = drift.number_counts(np.array(reference, float), np.array(found, float))
    for values, counted in zip((known, seen), counts, strict=True):
        for b, count in enumerate(counted):
            low = -math.inf if b == 0 else inner[b - 1]
            high = math.inf if b == len(inner) else inner[b]
            assert count == sum(low <= value < high for value in values)
    farthest = max(abs((known <= v).mean() - (seen <= v).mean()) for v in [*known, *seen])
    assert drift.ks(np.array(reference, float), np.array(found, float)) == pytest.approx(farthest)


def test_bins_hold_equal_counts_and_a_repeated_value_is_one_bin():
    counts, _ = drift.number_counts(np.arange(1000.0), np.zeros(1))
    assert counts.tolist() == [100] * 10
    counts, _ = drift.number_counts(np.array([0.0] * 95 + [1, 2, 3, 4, 5]), np.zeros(1))
    assert counts[0] == 95 and counts.sum() == 100


def test_samples_of_one_distribution_exceed_the_noise_as_often_as_it_says():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=4000)
    inner = drift.edges(reference)
    expected = np.full(10, 400)
    above = dict.fromkeys((100, 400), 0)
    for n in above:
        limit = drift.noise(10, 4000, n, level=0.1)
        for _ in range(1000):
            found = np.bincount(np.searchsorted(inner, rng.normal(size=n)), minlength=10)
            above[n] += drift.psi(expected, found) > limit
    assert all(50 < count < 160 for count in above.values()), above
    assert drift.noise(1, 10, 10, 0.1) == 0


def test_a_share_that_chance_does_not_explain():
    # of 10 rows, each with probability ½, 9 or more have it with (10 + 1) / 1024
    assert drift.improbable(9, 10, 0.5, 11 / 1024 + 1e-9)
    assert not drift.improbable(9, 10, 0.5, 11 / 1024 - 1e-9)

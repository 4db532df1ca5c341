"""Random choices that keep the classes' shares."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from usboost.datasets.sampling import stratified_sample
from usboost.evaluation.folds import stratified_order, stratified_parts, stream

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=300)
SEEDS = st.integers(0, 2**32)


@given(labels=LABELS, seed=SEEDS, data=st.data())
def test_every_run_of_the_order_has_the_shares(labels: list[int], seed: int, data: st.DataObject) -> None:
    y = np.array(labels)
    order = stratified_order(y, seed)
    assert sorted(order.tolist()) == list(range(len(y)))
    start = data.draw(st.integers(0, len(y)))
    stop = data.draw(st.integers(start, len(y)))
    found = y[order[start:stop]]
    classes = len(set(labels))
    for k in set(labels):
        # The run's own length is right to a row a class, and so is the class's count in it.
        assert abs((found == k).sum() - (stop - start) * np.mean(y == k)) <= 1 + classes


@given(counts=st.lists(st.integers(2, 30), min_size=2, max_size=6), seed=SEEDS)
def test_two_thirds_hold_every_class_of_two_rows_or_more(counts: list[int], seed: int) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    order = stratified_order(y, seed)
    assert set(y[order[: -(-2 * len(y) // 3)]].tolist()) == set(range(len(counts)))


@given(labels=LABELS, seed=SEEDS, size=st.none() | st.integers(0, 400))
def test_a_sample_is_sorted_and_without_repeats(labels: list[int], seed: int, size: int | None) -> None:
    rows = stratified_sample(labels, size, seed)
    assert len(rows) == (len(labels) if size is None else min(size, len(labels)))
    assert (np.diff(rows) > 0).all() and set(rows) <= set(range(len(labels)))


@given(labels=LABELS, seed=SEEDS)
def test_parts_are_of_the_shares_and_cut_every_row_once(labels: list[int], seed: int) -> None:
    parts = stratified_parts(labels, (0.7, 0.15, 0.15), seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    for part, share in zip(parts, (0.7, 0.15, 0.15)):
        assert abs(len(part) - share * len(labels)) <= 1
        assert (np.diff(part) > 0).all()


def test_rows_are_drawn_uniformly() -> None:
    y = np.repeat([0, 1], [30, 10])
    counts = np.zeros(40)
    for seed in range(2000):
        counts[stratified_sample(y, 10, seed)] += 1
    # Each row is drawn in a quarter of 2000 samples: 500 with a standard deviation of 19.
    assert np.abs(counts - 500).max() < 5 * 19


def test_streams_differ() -> None:
    seeds = {stream(seed, *keys) for seed in (0, 1) for keys in ((0,), (1,), (0, 0), (0, 1), (1, 0))}
    assert len(seeds) == 10 and stream(3, 1) == stream(3, 1)

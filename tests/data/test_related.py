"""Related rows are divided by whole groups, or so that the later ones judge."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import refuses
from usboost.errors import UsboostError
from usboost.evaluation.folds import Related


@st.composite
def some_rows(draw) -> tuple[Related, np.ndarray]:
    n = draw(st.integers(6, 80))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    y = rng.integers(0, draw(st.integers(1, 4)), n) if draw(st.booleans()) else rng.normal(size=n)
    key = rng.integers(0, draw(st.integers(2, 30)), n)
    return Related(**{draw(st.sampled_from(["groups", "times"])): key}), y


@settings(max_examples=150, deadline=None)
@given(some_rows(), st.integers(2, 6), st.integers(0, 5))
def test_no_split_sees_across(rows, most, seed):
    related, y = rows
    key = related.groups if related.groups is not None else related.times
    if not related.several:
        refuses(r"leave `(group|time)` out", related.parts, most, y, seed)
        return
    try:
        part = related.parts(most, y, seed)
    except UsboostError as error:  # one row of each class
        assert related.groups is not None and "2 rows of a class" in str(error)
        return
    assert set(part) == set(range(part.max() + 1)) and 2 <= part.max() + 1 <= most
    assert all(len(set(part[key == each])) == 1 for each in key)
    if related.times is not None:
        assert (np.diff(part[np.argsort(key, kind="stable")]) >= 0).all()
    try:
        train, held = related.hold_out(0.2, y, seed)
        assert sorted([*train, *held]) == list(range(len(y))) and len(train) and len(held)
        assert not set(key[train]) & set(key[held])
        assert y.dtype.kind == "f" or related.times is not None or set(y[train]) == set(y)
        folds = related.folds(most, y, seed)
    except UsboostError:
        classes = np.unique(y)
        assert y.dtype.kind == "i"
        if related.times is not None:  # some class is among the latest rows only
            assert any(key[y == each].min() >= np.median(key) for each in classes)
        return
    assert 1 <= len(folds) <= most
    judged = np.concatenate([held for _, held in folds])
    assert len(set(judged)) == len(judged)
    for train, held in folds:
        assert len(held) and not set(key[train]) & set(key[held])
        assert y.dtype.kind == "f" or set(y[train]) == set(y)
        if related.times is not None:
            assert key[train].max() < key[held].min()
            assert set(train) == set(np.flatnonzero(key < key[held].min()))  # all that is earlier
    if related.groups is not None and y.dtype.kind == "f":
        assert len(judged) == len(y)
    again = related.folds(most, y, seed)
    assert all(np.array_equal(a, b) for one, two in zip(folds, again) for a, b in zip(one, two))


def test_by_time_the_later_half_is_judged_the_last_rows_first():
    rng = np.random.default_rng(0)
    times = rng.permutation(100)
    folds = Related(times=times).folds(5, np.zeros(100), 0)
    assert [(len(train), len(out)) for train, out in folds] == [(90 - 10 * k, 10) for k in range(5)]
    assert [set(times[out]) for _, out in folds] == [set(range(90 - 10 * k, 100 - 10 * k)) for k in range(5)]


def test_the_only_group_of_a_class_is_always_fitted_to():
    groups = np.repeat(np.arange(6), 5)
    y = (groups == 2).astype(int)
    folds = Related(groups=groups).folds(3, y, 0)
    assert {int(g) for _, held in folds for g in groups[held]} == {0, 1, 3, 4, 5}
    assert all(2 in groups[train] for train, _ in folds)
    for seed in range(20):  # the rows that stop a fit, too
        assert 2 in groups[Related(groups=groups).hold_out(0.4, y, seed)[0]]
    with pytest.raises(UsboostError, match="each class is in one group"):
        Related(groups=np.repeat([0, 1], 5)).folds(3, np.repeat([0, 1], 5), 0)
    with pytest.raises(UsboostError, match="no row is later than rows of every class"):
        Related(times=np.arange(20)).folds(3, (np.arange(20) == 19).astype(int), 0)


def test_what_a_person_gives():
    assert Related.of(None, None, 3) is None
    found = Related.of(["b", "a", "b"], None, 3)
    assert found is not None and found.groups is not None and found.groups.tolist() == [1, 0, 1]
    assert found[np.array([0, 2])].several is False
    refuses(r"groups has the shape \(2,\); give one for each of 3 rows", Related.of, [1, 2], None, 3)
    refuses("divided in one way", Related.of, [1, 2], [1, 2], 2)


def test_which_groups_are_held_out_is_drawn():
    """Also where some groups are of one class, which scikit-learn deals out first, to the first part."""
    groups = np.repeat(np.arange(40), 6)
    y = np.where(groups < 8, 1, np.arange(240) % 2)  # 8 groups of one class
    related = Related(groups=groups)
    held = [set(groups[related.hold_out(0.2, y, seed)[1]]) for seed in range(30)]
    often = np.array([sum(each in one for one in held) for each in range(40)])
    assert len(set(map(frozenset, held))) >= 5
    assert often.max() < 20  # of 30; 6 are expected


def test_of_numbers_the_parts_are_about_as_large():
    sizes = np.array([60, 40, 20, *[2] * 40])
    groups = np.repeat(np.arange(len(sizes)), sizes)
    for seed in range(10):
        part = Related(groups=groups).parts(3, np.zeros(len(groups), float), seed)
        assert np.bincount(part).max() <= 200 / 3 + 60 * 2 / 3  # Graham's bound of dealing to the smallest


def test_a_class_that_is_in_one_mixed_group_takes_the_group_with_it():
    """Class 1 is two rows of the five of group 2: no row of the group is held out, by any seed."""
    groups = np.repeat(np.arange(6), 5)
    y = np.zeros(30, dtype=int)
    y[[10, 13]] = 1
    for seed in range(4):
        folds = Related(groups=groups).folds(3, y, seed)
        assert sorted({int(g) for _, held in folds for g in groups[held]}) == [0, 1, 3, 4, 5]
        for train, held in folds:
            assert not set(groups[train]) & set(groups[held])
            assert sorted([*train, *held]) == list(range(30))

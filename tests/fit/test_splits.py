"""Rows are divided by group, time or as the user says; nothing is on two sides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import refuses
from tests.fit.conftest import accepted, numbers, run
from usboost.errors import UsboostError
from usboost.evaluation.folds import Divisible


@st.composite
def some_rows(draw) -> Divisible:
    n = draw(st.integers(40, 120))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    codes = np.arange(n) % 3 if draw(st.booleans()) else None
    known = draw(st.sampled_from(["nothing", "groups", "times", "splits"]))
    given = {
        "nothing": {},
        "groups": {"groups": np.arange(n) // 2},
        "times": {"times": rng.integers(0, draw(st.integers(8, 60)), n)},
        "splits": {"splits": np.array(["train", "val", "test"])[np.arange(n) % 3]},
    }[known]
    order = rng.permutation(n)
    return Divisible(n, codes, **given)[order]


@settings(max_examples=80, deadline=None)
@given(some_rows(), st.integers(2, 4), st.integers(0, 5))
def test_folds_keep_their_promises(rows, folds, seed):
    if rows.times is not None and len(np.unique(rows.times)) < folds + 2:
        refuses("different times", list, rows.folds(folds, 1, seed))
        return
    found = list(rows.folds(folds, 2, seed))
    once = rows.times is not None or rows.splits is not None
    assert len(found) == (1 if rows.splits is not None else folds if once else 2 * folds)
    for each in found:
        parts = (each.train, each.val, each.test)
        assert all(len(part) for part in parts)
        together = np.concatenate(parts)
        assert len(np.unique(together)) == len(together)
        if rows.times is None:
            assert len(together) == rows.n
        else:
            times = [rows.times[part] for part in parts]
            assert times[0].max() < times[1].min() and times[1].max() < times[2].min()
        if rows.groups is not None:
            groups = [set(rows.groups[part]) for part in parts]
            assert not (groups[0] & groups[1] or groups[0] & groups[2] or groups[1] & groups[2])
        if rows.splits is not None:
            assert [set(rows.splits[part]) for part in parts] == [{"train"}, {"val"}, {"test"}]
    if rows.splits is None:
        tested = np.concatenate([each.test for each in found if each.repeat == 1])
        assert len(np.unique(tested)) == len(tested)
        assert len(tested) == rows.n or rows.times is not None
    again = list(rows.folds(folds, 2, seed))
    assert all(np.array_equal(a.train, b.train) for a, b in zip(found, again, strict=True))


def test_by_time_the_folds_are_about_as_long():
    rows = Divisible(600, times=np.arange(600))
    assert [(len(f.train) + len(f.val), len(f.test)) for f in rows.folds(5, 1, 0)] == [
        (100 * k, 100) for k in range(1, 6)
    ]


@pytest.mark.parametrize("known", [{}, {"groups": np.arange(400) // 4}, {"times": np.arange(400)}])
@pytest.mark.parametrize("codes", [None, np.arange(400) % 2])
def test_the_share_that_is_held_out(known, codes):
    train, held = Divisible(400, codes, **known).hold_out(3)
    assert len(held) == pytest.approx(60, abs=8)
    if codes is not None:
        assert codes[held].mean() == pytest.approx(0.5, abs=0.05)
    assert sorted([*train, *held]) == list(range(400))


@pytest.mark.parametrize(
    ("known", "message"),
    [({"groups": np.zeros(40, int)}, "there is one group"), ({"times": np.zeros(40)}, "the same time")],
)
def test_one_group_or_time_is_refused(known, message):
    refuses(message, Divisible(40, **known).hold_out, 0)


def test_fewer_parts_than_folds_are_refused():
    """Three groups of one row each and one that holds the rest: the parts that are left have no row."""
    groups = np.array([0] * 9 + [1, 2, 3])
    for codes, folds in ((np.array([0, 1, 0] * 3 + [1, 1, 0]), 4), (np.repeat([0, 1, 2], [9, 2, 1]), 4)):
        try:
            found = list(Divisible(12, codes, groups)._parts(folds, 0))
        except UsboostError as error:
            assert "ask for" in str(error) and "folds, or leave `group` out" in str(error)
        else:
            assert all(len(train) and len(test) for train, test in found) and len(found) == folds


def test_a_comparison_needs_test_rows_and_a_fit_does_not():
    rows = Divisible(40, splits=np.array(["train", "val"])[np.arange(40) % 2])
    train, held = rows.hold_out(0)
    assert train.tolist() == list(range(0, 40, 2)) and held.tolist() == list(range(1, 40, 2))
    refuses("needs rows whose `split` is test", list, rows.folds(5, 1, 0))


def test_an_auc_without_rows_of_a_class_is_explained(tmp_path):
    frame = numbers(120)
    held = (frame["kind"] == "no") & (np.arange(120) % 3 == 0)
    frame.assign(part=np.where(held, "val", "train")).to_csv(tmp_path / "t.csv", index=False)
    words = ("fit", tmp_path / "t.csv", "--label", "kind", "--split", "part", "--model", "logistic")
    result = accepted(*words, "--out", tmp_path / "m")
    assert "AUC nan" in result.stdout
    assert "note: AUC is nan, since the validation rows lack a class\n" in result.stderr


def test_a_rare_class_that_is_never_the_answer_is_told(tmp_path):
    kinds = np.where(np.arange(200) % 20 == 0, "rare", "often")
    numbers(200).assign(kind=kinds).to_csv(tmp_path / "t.csv", index=False)
    words = ("fit", tmp_path / "t.csv", "--label", "kind", "--model", "prior", "--no-refit")
    result = accepted(*words, "--out", tmp_path / "m")
    assert "F1 0.0000" in result.stdout
    said = "note: no validation row gets the answer 'rare' rightly; --threshold f1 answers it more often\n"
    assert said in result.stderr
    again = run(*words, "--threshold", "f1", "--out", tmp_path / "n")
    assert "gets the answer" not in again.stderr

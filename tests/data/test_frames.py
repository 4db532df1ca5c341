"""Sequences in all forms that are taken, the mistakes that are not, and views that stay aligned."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import KFold

from tests.conftest import make_views, refuses
from usboost.data.table import Table
from usboost.data.views import Frame, Views, as_sequences, frame_name
from usboost.errors import UsboostError


def test_forms_of_the_same_sequences() -> None:
    x = np.random.default_rng(0).normal(size=(4, 5, 2))
    for form in (x, list(x), tuple(x), x.tolist(), as_sequences(x)):
        taken = as_sequences(form)
        np.testing.assert_array_equal(taken.values, x)
        assert taken.lengths.tolist() == [5] * 4
    flat = x[:, :, 0]
    for form in (flat, list(flat), pd.DataFrame(flat), flat[:, :, None]):
        assert as_sequences(form).values.shape == (4, 5, 1)
        np.testing.assert_array_equal(as_sequences(form).values[:, :, 0], flat)


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=8), d=st.integers(1, 3))
def test_ragged_lists(lengths: list[int], d: int) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(length, d)) for length in lengths]
    ragged = np.empty(len(parts), dtype=object)
    ragged[:] = parts
    for form in (parts, ragged):
        taken = as_sequences(form)
        assert taken.lengths.tolist() == lengths
        assert taken.n_frames == max(lengths)
        for t in range(1, max(lengths) + 3):
            frame = taken.frame(t)
            assert frame.present.tolist() == [length >= t for length in lengths]
            for i, part in enumerate(parts):
                expected = part[t - 1] if t <= len(part) else np.zeros(d)
                np.testing.assert_array_equal(frame.values[i], expected)


def test_frames_are_cut_by_rows() -> None:
    frame = Frame(np.arange(6.0).reshape(3, 2), np.array([True, False, True]))
    cut = frame[[2, 0]]
    np.testing.assert_array_equal(cut.values, [[4, 5], [0, 1]])
    names = as_sequences([[1.0], [2.0, 3.0]]).views(4).names
    assert names == ("frame_001", "frame_002", "frame_003", "frame_004")


@pytest.mark.parametrize(
    ("X", "said"),
    [
        ([], "X has no sequences"),
        (np.zeros((0, 3, 2)), "none 0"),
        (np.zeros((2, 0, 2)), "none 0"),
        (np.zeros(3), r"not \(3,\)"),
        (np.zeros((2, 2, 2, 2)), "needs the shape"),
        ([np.zeros((2, 2)), np.zeros((0, 2))], r"sequence 1 needs the shape .*not \(0, 2\)"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], "sequence 1 has 3 features, sequence 0 2"),
        ([np.zeros((2, 2)), "text"], "sequence 1 is not an array of numbers"),
        ([["a", "b"]], "sequence 0 is not an array of numbers"),
        (np.array([["a", "b"]]), "X is not an array of numbers"),
        (np.array([[0.0, np.nan]]), "sequence 0 has nan in frame 2, feature 0"),
        ([[1.0], [2.0, np.inf]], "sequence 1 has inf in frame 2"),
    ],
)
def test_mistakes_are_named(X: object, said: str) -> None:
    refuses(said, as_sequences, X)


def test_what_a_model_was_trained_on_must_fit() -> None:
    x = np.zeros((2, 4, 3))
    refuses("the frames have 3 features, those of the fit 2", as_sequences, x, n_features=2)
    refuses("4 frames but the model was trained on 3", as_sequences, x, n_features=3, n_frames=3)
    assert as_sequences(x, 3, 9).n_frames == 4


def test_frames_are_read_in_the_order_of_their_numbers():
    """As text "frame_10" comes before "frame_2", and "frame_1000" before "frame_999"."""
    for name in (frame_name, lambda t: f"frame {t}", lambda t: f"t{t}"):
        views = Views({name(t): Table.from_numeric([[float(t)]]) for t in (10, 2, 1, 999, 1000, 11)})
        assert as_sequences(views).values[0, :, 0].tolist() == [1, 2, 10, 11, 999, 1000]
    coded = Views(t1=Table(np.zeros((1, 1), np.float32), np.zeros((1, 1), np.int32), (2,)))
    refuses("view 't1' has categories", as_sequences, coded)
    refuses("row 1 of X holds nan in column b", Table.from_numeric, [[0, 1], [0, np.nan]], ("a", "b"))
    refuses("row 0 of X holds 1e[+]300 in column 0", Table.from_numeric, np.array([[1e300]]))
    refuses("view 'last' is no frame", as_sequences, Views(last=Table.from_numeric([[1.0]])))


def test_rows_that_do_not_match_are_refused():
    views, _ = make_views(n=20)
    refuses(r"rows do not match: U has 20, S has 19", Views, U=views["U"], S=views["S"][:19])
    refuses("3 rows, others 2", Table, np.zeros((3, 1), np.float32), np.zeros((2, 1), np.int32), (2,))
    with pytest.raises(UsboostError, match="unknown view 'V'"):
        views["V"]
    refuses("at least one view", Views)
    for ask in (np.asarray, lambda given: given[:, [0]]):
        refuses("views are several arrays.*SplitColumns", ask, views)


def test_slices_masks_and_folds_cut_every_view_alike():
    views, _ = make_views(n=30)
    rows = np.array([3, 1, 20])
    mask = np.zeros(30, dtype=bool)
    mask[rows] = True
    np.testing.assert_array_equal(views[rows]["U"].numeric, views["U"].numeric[rows])
    np.testing.assert_array_equal(views[mask]["S"].codes, views["S"].codes[np.sort(rows)])
    assert len(views[5:9]) == 4 and len(views[7]) == 1
    assert sum(len(views[held]) for _, held in KFold(3).split(views)) == 30


def test_tables_side_by_side_keep_numbers_first():
    views, _ = make_views(n=10)
    joined = views["U"].beside(views["S"])
    assert joined.n_numeric == 6 and joined.categorical == (6, 7, 8, 9)
    matrix = joined.matrix()
    assert matrix.flags["F_CONTIGUOUS"] and matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix[:, 3:6], views["S"].numeric)
    np.testing.assert_array_equal(matrix[:, 8:], views["S"].codes)

"""Sequences in all forms that are taken, and the mistakes that are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import refuses
from usboost.data.table import Table
from usboost.data.views import Frame, Views, as_sequences, frame_name


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
    assert len(cut) == 2
    np.testing.assert_array_equal(cut.values, [[4, 5], [0, 1]])
    names = as_sequences([[1.0], [2.0, 3.0]]).views(4).names
    assert names == ("frame_001", "frame_002", "frame_003", "frame_004")


@pytest.mark.parametrize(
    ("X", "said"),
    [
        ([], "X has no sequences"),
        (np.zeros((0, 3, 2)), "none of them 0"),
        (np.zeros((2, 0, 2)), "none of them 0"),
        (np.zeros(3), r"not \(3,\)"),
        (np.zeros((2, 2, 2, 2)), "must have the shape"),
        ([np.zeros((2, 2)), np.zeros((0, 2))], r"sequence 1 must have the shape .*not \(0, 2\)"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], "sequence 1 has 3 features but sequence 0 has 2"),
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
    refuses("the frames have 3 features but the model was trained on 2", as_sequences, x, n_features=2)
    refuses("4 frames but the model was trained on 3", as_sequences, x, n_features=3, n_frames=3)
    assert as_sequences(x, 3, 9).n_frames == 4


def test_frames_are_read_in_the_order_of_their_numbers():
    """As text "frame_10" comes before "frame_2", and "frame_1000" before "frame_999"."""
    for name in (frame_name, lambda t: f"frame {t}", lambda t: f"t{t}"):
        views = Views({name(t): Table.from_numeric([[float(t)]]) for t in (10, 2, 1, 999, 1000, 11)})
        assert as_sequences(views).values[0, :, 0].tolist() == [1, 2, 10, 11, 999, 1000]
    refuses("view 'last' is no frame", as_sequences, Views(last=Table.from_numeric([[1.0]])))

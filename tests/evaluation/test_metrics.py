"""Scores against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from usboost.evaluation.metrics import best_threshold, f1, score

rows = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0])), min_size=1)


def f1_at(y: np.ndarray, p: np.ndarray, threshold: float) -> float:
    return f1(y, (p >= threshold).astype(int), 2)


@given(rows.filter(lambda rows: any(label for label, _ in rows)))
def test_no_other_threshold_has_a_higher_f1(rows: list[tuple[int, float]]) -> None:
    y, p = np.array([label for label, _ in rows]), np.array([value for _, value in rows])
    found = f1_at(y, p, best_threshold(y, p))
    assert found == max(f1_at(y, p, threshold) for threshold in [0.0, *p, 1.1])


def test_a_threshold_lies_between_two_probabilities() -> None:
    y, p = np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.4, 0.9])
    assert np.isclose(best_threshold(y, p), 0.3)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1))
def test_f1_is_scikit_learns(rows: list[tuple[int, int]]) -> None:
    y, predicted = np.array(rows).T
    expected = f1_score(y, predicted, labels=[0, 1, 2], average="macro", zero_division=0)
    assert np.isclose(f1(y, predicted, 3), expected)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1))
def test_f1_of_two_classes_is_that_of_class_1(rows: list[tuple[int, int]]) -> None:
    y, predicted = np.array(rows).T
    assert np.isclose(f1(y, predicted, 2), f1_score(y, predicted, zero_division=0))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_are_scikit_learns(n_classes: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, 60)
    p = rng.random((60, n_classes)) + 0.3 * np.eye(n_classes)[y]
    p /= p.sum(axis=1, keepdims=True)
    found = score(y, p)
    assert found["accuracy"] == accuracy_score(y, p.argmax(axis=1))
    assert np.isclose(found["log_loss"], -np.log(p[np.arange(60), y]).mean())
    pairs = [(p[y == k, k][:, None] > p[y != k, k]).mean() for k in range(n_classes)]
    assert np.isclose(found["auc"], np.mean(pairs))  # of two classes both are the same

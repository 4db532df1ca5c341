"""A threshold is chosen on the validation rows, and the test rows have no say in it."""

import numpy as np
import pytest

from benchmarks.study.cells import predicted_of
from benchmarks.study.rows import Predicted
from tasks.fits import scores
from usboost.evaluation import metrics
from usboost.evaluation.task import TASKS

CLASSES = TASKS["classification"]


def predicted(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Labels of which a quarter are 1, and probabilities of class 1 that know something of them."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.25).astype(int)
    p = np.clip(rng.normal(0.2 + 0.15 * y, 0.15), 0.01, 0.99)
    return y, np.column_stack([1 - p, p])


def brute_force(y: np.ndarray, p: np.ndarray) -> float:
    """The highest F1 of all thresholds."""
    return max(metrics.f1(y, (p >= threshold).astype(int), 2) for threshold in p)


def test_the_threshold_is_the_best_one_of_the_validation_rows() -> None:
    val, test = predicted(0), predicted(1)
    found = scores.score(CLASSES, {"val": val, "test": test})
    assert found["val"]["f1_tuned"] == pytest.approx(brute_force(val[0], val[1][:, 1]), abs=1e-12)
    threshold = metrics.best_threshold(val[0], val[1][:, 1])
    expected = metrics.f1(test[0], (test[1][:, 1] >= threshold).astype(int), 2)
    assert found["test"]["f1_tuned"] == expected
    assert expected < brute_force(test[0], test[1][:, 1])  # or the test rows could have chosen it


def test_test_rows_do_not_move_the_threshold() -> None:
    val, (y, p) = predicted(0), predicted(1)
    clean = scores.score(CLASSES, {"val": val, "test": (y, p)})
    for spoiled in ((1 - y, p), (y, 1 - p), (y[:1], p[:1])):
        forbidden = scores.score(CLASSES, {"val": val, "test": spoiled})
        assert forbidden["val"] == clean["val"]
    moved = val[0].copy()
    moved[:60] = 1 - moved[:60]
    allowed = scores.score(CLASSES, {"val": (moved, val[1]), "test": (y, p)})
    assert allowed["test"]["f1_tuned"] != clean["test"]["f1_tuned"]
    # what is not tuned knows nothing of the validation rows either
    for name in ("f1", "accuracy", "log_loss", "auc"):
        assert clean["test"][name] == metrics.score(y, p)[name]


def test_each_test_row_is_judged_alone() -> None:
    val, (y, p) = predicted(0), predicted(1)
    whole = scores.score(CLASSES, {"val": val, "test": (y, p)})["test"]
    halves = slice(100), slice(100, 200)
    parts = [scores.score(CLASSES, {"val": val, "test": (y[k], p[k])})["test"] for k in halves]
    for name in ("log_loss", "accuracy"):
        assert whole[name] == pytest.approx(np.mean([part[name] for part in parts]), abs=1e-12)


def test_the_studys_threshold_is_that_of_the_validation_rows() -> None:
    """benchmarks/study keeps what models say of the test rows, with a threshold for the tuned F1."""

    def said(val: int, test: int) -> Predicted:
        return predicted_of({"val": predicted(val), "test": predicted(test)})

    clean, forbidden, allowed = said(1, 2), said(1, 3), said(3, 2)
    assert clean.threshold == forbidden.threshold != allowed.threshold
    y, probabilities = predicted(1)
    assert clean.threshold == metrics.best_threshold(y, probabilities[:, 1])
    np.testing.assert_array_equal(clean.y, predicted(2)[0])
    np.testing.assert_array_equal(clean.probabilities, predicted(2)[1])

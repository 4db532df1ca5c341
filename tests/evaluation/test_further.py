"""Scores by scikit-learn's names, against its own scorers, and those of groups of rows."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import average_precision_score, get_scorer, make_scorer

from tests.conftest import refuses
from usboost.evaluation.intervals import intervals
from usboost.evaluation.ranking import LOWER_IS_BETTER, NAMES, RANKING, SCIKIT, check_metric
from usboost.evaluation.task import ALL, TASKS, score_slices, table_of, table_of_models

OF_CLASSES = [
    *("accuracy", "balanced_accuracy", "average_precision", "neg_log_loss", "neg_brier_score"),
    *("matthews_corrcoef", "f1_macro", "f1_micro", "f1_weighted", "precision_macro", "recall_macro"),
    *("precision_micro", "recall_micro", "precision_weighted", "recall_weighted", "roc_auc_ovr"),
]
OF_TWO = ["roc_auc", "f1", "precision", "recall"]
OF_NUMBERS = [
    *("r2", "neg_root_mean_squared_error", "neg_mean_squared_error", "neg_mean_absolute_error"),
    *("neg_median_absolute_error", "neg_mean_absolute_percentage_error", "neg_max_error"),
    "explained_variance",
]


class Known(ClassifierMixin, BaseEstimator):
    """Predicts the rows of X themselves."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Known":
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return X

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X.argmax(axis=1)


class KnownNumber(RegressorMixin, BaseEstimator):
    def fit(self, X: np.ndarray, y: np.ndarray) -> "KnownNumber":
        self.n_features_in_ = 1
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X[:, 0]


def scikit(name: str, model: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> float:
    scorer = get_scorer(name)
    if name == "average_precision" and X.shape[1] > 2:
        scorer = make_scorer(average_precision_score, response_method="predict_proba", average="macro")
    if name == "neg_max_error" or weight is None:  # the largest error knows no weights
        return float(scorer(model, X, y))
    return float(scorer(model, X, y, sample_weight=weight))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_scores_of_classes_are_scikit_learns(n_classes: int, weighted: bool) -> None:
    """With few rows, so that some class is often never predicted, and few levels, so that scores tie."""
    names = [*OF_CLASSES, *(OF_TWO if n_classes == 2 else [])]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y = rng.permutation(np.append(np.arange(n_classes), rng.integers(0, n_classes, 12)))
        sixteenths = 1 + rng.multinomial(16 - n_classes, np.full(n_classes, 1 / n_classes), len(y))
        p, weight = sixteenths / 16, rng.random(len(y)) + 0.1 if weighted else None
        found, model = TASKS["classification"].ranked(y, p, weight), Known().fit(p, y)
        for name in names:
            own = check_metric(name, RANKING["classification"])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # classes that are never predicted
                expected = scikit(name, model, p, y, weight)
            sign = -1 if name.startswith("neg_") else 1
            assert sign * found[own] == pytest.approx(expected, abs=1e-9), name


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_of_numbers_are_scikit_learns(weighted: bool) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y, predicted = rng.normal(size=(2, 15 + seed % 2))
        weight = rng.integers(1, 4, len(y)).astype(float) if weighted else None
        found = TASKS["regression"].ranked(y, predicted, weight)
        model = KnownNumber().fit(predicted[:, None], y)
        for name in OF_NUMBERS:
            own = check_metric(name, RANKING["regression"])
            sign = -1 if name.startswith("neg_") else 1
            expected = scikit(name, model, predicted[:, None], y, weight)
            assert sign * found[own] == pytest.approx(expected, abs=1e-9), name


def test_every_name_is_known_printed_and_ranked_the_right_way_round() -> None:
    tested = {SCIKIT.get(name, name) for name in [*OF_CLASSES, *OF_TWO, *OF_NUMBERS]}
    assert tested == {each for scores in RANKING.values() for each in scores} and tested <= NAMES.keys()
    assert SCIKIT.keys() <= {*OF_CLASSES, *OF_TWO, *OF_NUMBERS}
    for name in [*OF_CLASSES, *OF_TWO, *OF_NUMBERS]:
        assert name.startswith("neg_") == (SCIKIT.get(name, name) in LOWER_IS_BETTER), name
    refuses(r"'neg_f1'.* accuracy, f1, auc", check_metric, "neg_f1", RANKING["classification"])
    for task, scores in RANKING.items():
        y = np.arange(4) % 2
        predicted = np.full((4, 2), 0.5) if task == "classification" else np.ones(4)
        assert set(TASKS[task].ranked(y, predicted)) == set(scores)


def test_a_class_that_is_missing_leaves_the_others_recall() -> None:
    p = np.array([[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    found = TASKS["classification"].ranked(np.array([0, 1, 1]), p)
    assert found["balanced_accuracy"] == 0.75 and found["recall_macro"] == 0.5
    assert np.isnan(found["pr_auc"])


RNG = np.random.default_rng(0)


def test_classes():
    labels, codes = RNG.integers(0, 2, 200), RNG.integers(0, 3, 200)
    predicted = RNG.dirichlet([1, 1], 200)
    weight = RNG.uniform(0.5, 2, 200)
    found = score_slices(labels, predicted, ["a", "b", "c", "nobody"], codes, weight)
    assert [each.name for each in found] == [ALL, "a", "b", "c"]
    for k, each in enumerate(found[1:]):
        rows = codes == k
        assert each.rows == rows.sum()
        assert each.scores == intervals(labels[rows], predicted[rows], weight[rows])
    assert found[0].scores == intervals(labels, predicted, weight)


def test_f1_of_several_classes_is_left_out_and_small_groups_say_so():
    labels, predicted = np.arange(90) % 3, RNG.dirichlet([1, 1, 1], 90)
    found = score_slices(labels, predicted, ["a", "b"], (np.arange(90) > 9).astype(int))
    table = table_of(found)
    assert list(table["columns"]) == ["rows", "accuracy", "auc", "log_loss"]
    assert [row["cells"]["rows"] for row in table["rows"]] == [("90", ""), ("10", "few"), ("80", "")]
    one = score_slices(labels, predicted, ["class 0"], np.where(labels, -1, 0))[1]
    assert table_of([one])["rows"][0]["cells"]["auc"] == ("–", "")
    one = score_slices(0 * labels, predicted[:, :2], ["class 0"], 0 * labels)[1]
    assert table_of([one])["rows"][0]["cells"]["f1"] == ("–", "")


def test_numbers_of_several_models():
    y, codes = RNG.normal(size=60), np.arange(60) % 2
    models = {name: y + RNG.normal(size=60) for name in ("good", "bad")}
    found = {name: score_slices(y, predicted, ["even", "odd"], codes) for name, predicted in models.items()}
    table = table_of_models(found, "rmse")
    assert list(table["columns"]) == ["rows", "good", "bad"]
    odd = np.sqrt(np.square(models["bad"] - y)[1::2].mean())
    assert table["rows"][2]["name"] == "odd" and table["rows"][2]["cells"]["bad"][0] == f"{odd:.4f}"

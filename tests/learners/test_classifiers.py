"""scikit-learn classifiers as weak learners: their own answers and weights, arrays and back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from tests.conftest import refuses
from usboost import Table
from usboost.data.views import Frame
from usboost.learners.base import FittedLearner, Target
from usboost.learners.estimators import ClassifierLearner, FittedClassifiers

ESTIMATORS = [
    DecisionTreeClassifier(max_depth=3, random_state=0),
    ExtraTreeClassifier(max_depth=4, random_state=0),
    LogisticRegression(),
    GaussianNB(),
    RandomForestClassifier(5, random_state=0),
]


def frame(n: int = 80, d: int = 3, absent: float = 0, seed: int = 0) -> tuple[Frame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    signs = np.where(x[:, :2] + 0.5 * rng.normal(size=(n, 2)) > 0, 1.0, -1.0)
    return Frame(x, rng.random(n) >= absent), signs, rng.random((n, 2)) + 0.01


def fitted(estimator: Any, view: Any, target: Target, seed: int = 7) -> tuple[FittedClassifiers, Any]:
    learner = ClassifierLearner(estimator)
    prepared = learner.prepare(view)
    return learner.trainer(prepared, target.values.shape[1]).fit(target, seed=seed), prepared


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_answers_are_the_estimators_own(estimator: Any) -> None:
    """One clone per column, with that column's weights of mean 1, and the round's seed."""
    view, signs, weights = frame()
    model, prepared = fitted(estimator, view, Target(signs, weights))
    for k in range(2):
        alone = type(estimator)(**estimator.get_params())
        if "random_state" in alone.get_params():
            alone.set_params(random_state=7)
        alone.fit(view.values, signs[:, k], sample_weight=weights[:, k] / weights[:, k].mean())
        np.testing.assert_array_equal(model.predict(prepared)[:, k], alone.predict(view.values))
    assert model.predict(prepared).dtype == np.float32
    assert isinstance(model, FittedLearner)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), depth=st.integers(1, 6), digits=st.integers(0, 3))
def test_trees_agree_on_unseen_rows_with_many_ties(seed: int, depth: int, digits: int) -> None:
    view, signs, weights = frame(seed=seed)
    view = Frame(view.values.round(digits), view.present)
    model, _ = fitted(DecisionTreeClassifier(max_depth=depth), view, Target(signs, weights), seed)
    unseen = np.random.default_rng(seed + 1).normal(size=(200, 3)).round(digits)
    alone = DecisionTreeClassifier(max_depth=depth, random_state=seed)
    alone.fit(view.values, signs[:, 0], sample_weight=weights[:, 0] / weights[:, 0].mean())
    prepared = ClassifierLearner().prepare(Frame(unseen, np.ones(200, dtype=bool)))
    np.testing.assert_array_equal(model.predict(prepared)[:, 0], alone.predict(unseen))


def test_weights_matter_and_their_scale_does_not() -> None:
    view, signs, weights = frame()
    heavy = np.where(np.arange(80)[:, None] < 10, 1.0, 1e-9) * np.ones((1, 2))
    for estimator in (LogisticRegression(), DecisionTreeClassifier(max_depth=2)):
        by_first, prepared = fitted(estimator, view, Target(signs, heavy))
        by_all, _ = fitted(estimator, view, Target(signs, weights))
        scaled, _ = fitted(estimator, view, Target(signs, weights / weights.sum()))
        assert (by_first.predict(prepared)[:10] == signs[:10]).mean() >= 0.8
        assert not np.array_equal(by_first.predict(prepared), by_all.predict(prepared))
        np.testing.assert_array_equal(scaled.predict(prepared), by_all.predict(prepared))


def test_absent_rows_are_neither_fitted_nor_answered() -> None:
    view, signs, weights = frame(absent=0.4)
    noise = Frame(np.where(view.present[:, None], view.values, 1e6), view.present)
    model, prepared = fitted(None, view, Target(signs, weights))
    other, _ = fitted(None, noise, Target(np.where(view.present[:, None], signs, -signs), weights))
    np.testing.assert_array_equal(model.predict(prepared), other.predict(prepared))
    out = model.predict(prepared)
    assert (out[~view.present] == 0).all()
    assert set(np.unique(out[view.present])) == {-1, 1}


@pytest.mark.parametrize("estimator", [None, LogisticRegression(), GaussianNB()])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_single_class_gives_a_constant(estimator: Any, sign: float) -> None:
    view, signs, weights = frame()
    model, prepared = fitted(estimator, view, Target(np.full_like(signs, sign), weights))
    assert (model.predict(prepared) == sign).all()
    none_there = Frame(view.values, np.zeros(80, dtype=bool))
    model, prepared = fitted(estimator, none_there, Target(signs, weights))
    assert (model.predict(prepared) == 0).all()


def test_weights_that_underflowed_count_the_same() -> None:
    view, signs, _ = frame()
    model, prepared = fitted(LogisticRegression(), view, Target(signs, np.zeros((80, 2))))
    equal, _ = fitted(LogisticRegression(), view, Target(signs))
    np.testing.assert_array_equal(model.predict(prepared), equal.predict(prepared))


@pytest.mark.parametrize("estimator", ESTIMATORS[:3], ids=lambda e: type(e).__name__)
def test_arrays_and_back(estimator: Any, tmp_path: Path) -> None:
    view, signs, weights = frame()
    signs[:, 1] = 1.0  # a constant beside a real one
    model, prepared = fitted(estimator, view, Target(signs, weights))
    arrays, meta = model.to_arrays()
    save_file(arrays, tmp_path / "learner.safetensors")
    again = FittedClassifiers.from_arrays(load_file(tmp_path / "learner.safetensors"), meta)
    np.testing.assert_array_equal(again.predict(prepared), model.predict(prepared))
    assert FittedClassifiers.kind == "classifier"


def test_other_classifiers_are_refused_on_the_way_to_a_file() -> None:
    view, signs, weights = frame()
    model, _ = fitted(GaussianNB(), view, Target(signs, weights))
    refuses(r"GaussianNB .*use a single tree", model.to_arrays)
    refuses("unknown kind of weak estimator 'spell'", FittedClassifiers.from_arrays, {}, {"rules": ["spell"]})


@pytest.mark.parametrize("estimator", [KNeighborsClassifier(), DecisionTreeRegressor()])
def test_estimators_that_do_not_suit(estimator: Any) -> None:
    view, signs, weights = frame()
    refuses("takes sample_weight", fitted, estimator, view, Target(signs, weights))


class Picky(ClassifierMixin, BaseEstimator):
    def fit(self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> "Picky":
        raise ValueError("too few rows")


@pytest.mark.filterwarnings("ignore::RuntimeWarning:sklearn", "ignore::RuntimeWarning:numpy")
def test_what_the_classifier_refuses_is_passed_on() -> None:
    view, signs, weights = frame()
    refuses(r"Picky\(\) could not be fitted: too few rows", fitted, Picky(), view, Target(signs, weights))
    huge = Frame(view.values * 1e300, view.present)
    refuses("too large for dtype", fitted, None, huge, Target(signs, weights))


def test_targets_must_be_signs_and_views_frames_or_tables() -> None:
    view, signs, weights = frame()
    refuses("learns targets −1 and 1", fitted, None, view, Target(0.5 * signs, weights))
    refuses("reads frames or tables, not ndarray", fitted, None, view.values, Target(signs, weights))
    table = Table.from_numeric(view.values)
    model, prepared = fitted(None, table, Target(signs, weights[:, 0]))
    assert (model.predict(prepared) == signs).mean() > 0.8

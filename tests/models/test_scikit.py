"""Other packages' estimators on views."""

import sys

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.svm import SVC, LinearSVC

from tests.conftest import refuses
from usboost import Table, UsboostError, Views
from usboost.fit.trials import space_of
from usboost.models.baselines.packages import ScikitBaseline, ScikitBaselineRegressor, check_outside, outside


def table(n=120, seed=0):
    """Numbers of large scale and a category, and a class and a number that depend on them."""
    rng = np.random.default_rng(seed)
    numeric = rng.normal(500, 100, (n, 2)).astype(np.float32)
    codes = rng.integers(0, 3, (n, 1)).astype(np.int32)
    score = (numeric[:, 0] - 500) / 100 + (codes[:, 0] == 1)
    return Views(S=Table(numeric, codes, (3,))), (score > 0.3).astype(int), 1000.0 * score


def matrix(views, fitted):
    """Brute force: standardised numbers and indicators."""
    x, mean = views["S"].numeric.astype(float), fitted["S"].numeric.astype(float)
    x = (x - mean.mean(axis=0)) / mean.std(axis=0)
    return np.column_stack([x, *(views["S"].codes[:, 0] == k for k in range(3))])


def test_it_reads_the_standardised_matrix_and_learns_from_validation_rows_too():
    views, y, _ = table()
    train, held, new = views[:80], views[80:100], views[100:]
    model = ScikitBaseline(SVC(), ("S",), random_state=3).fit(train, y[:80], (held, y[80:100]))
    rest = np.concatenate([matrix(train, train), matrix(held, train)])
    # without predict_proba the decisions are calibrated, and the order of the rows stays that of decisions
    expected = SVC().fit(rest, y[:100]).decision_function(matrix(new, train))
    p = model.predict_proba(new)
    assert p.shape == (20, 2) and np.allclose(p.sum(axis=1), 1)
    assert np.array_equal(np.argsort(p[:, 1]), np.argsort(expected))


def test_a_number_in_its_own_units():
    views, _, y = table()
    model = ScikitBaselineRegressor(LinearRegression(), ("S",)).fit(
        views[:80], y[:80], (views[80:90], y[80:90])
    )
    assert np.allclose(model.predict(views[90:]), y[90:], atol=1)


def test_any_class_by_its_import_path():
    views, y, target = table()
    linear = outside("sklearn.svm:LinearSVC", "classification", views=("S",), seed=5)
    assert isinstance(linear.estimator, LinearSVC)
    assert (linear.fit(views, y).predict(views) == y).mean() > 0.9
    assert linear.estimator_.estimator.random_state == 5
    forest = outside("sklearn.ensemble:RandomForestRegressor", "regression", views=("S",), seed=5)
    assert np.corrcoef(forest.fit(views, target).predict(views), target)[0, 1] > 0.9
    assert forest.estimator_.random_state == 5


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SVC", "'SVC' names no class; write module:Class"),
        ("sklearn.nothing:SVC", "No module named 'sklearn.nothing'; install it"),
        ("sklearn.svm:Nothing", "sklearn.svm has no class 'Nothing'"),
        ("pathlib:Path", "pathlib:Path is no scikit-learn estimator"),
        ("sklearn.multioutput:MultiOutputClassifier", "cannot be made without arguments"),
        ("sklearn.svm:SVR", "sklearn.svm:SVR is no classifier, which this label needs"),
    ],
)
def test_what_cannot_be_compared_with(name, words):
    refuses(words, check_outside, name, "classification")


STAND_IN = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin


class _Base(BaseEstimator):
    def __init__(self, PARAMETERS):
        for name, value in list(locals().items()):
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def fit(self, x, y, sample_weight=None, **given):
        self.seen_, self.given_, self.classes_ = len(x), given, np.unique(y)
        self.x_, self.best_iteration, self.best_iteration_ = x, 11, 11
        return self


class _Kept(_Base):
    # as CatBoost: parameters that it was made with as None are not among its own

    def __init__(self, PARAMETERS):
        self.kept = {name: value for name, value in locals().items() if value is not None and name != "self"}
        self.kept.pop("__class__", None)

    def __getattr__(self, name):
        if name not in type(self)._get_param_names():
            raise AttributeError(name)
        return self.kept.get(name)

    def get_params(self, deep=True):
        return dict(self.kept)

    def set_params(self, **given):
        self.kept |= given
        return self


class Pool:
    def __init__(self, data, label, cat_features=None, weight=None):
        self.data, self.label, self.cat_features, self.weight = data, label, cat_features, weight


class CLASSIFIER(ClassifierMixin, _Base):
    def predict_proba(self, x):
        return np.full((len(x), len(self.classes_)), 1 / len(self.classes_), dtype=np.float32)

    def predict(self, x):
        return np.zeros(len(x))


class REGRESSOR(RegressorMixin, _Base):
    def predict(self, x):
        return np.zeros((len(x), 1))
"""


@pytest.mark.parametrize(
    ("package", "prefix", "parameters", "stops"),
    [
        (
            "xgboost",
            "XGB",
            "n_estimators learning_rate early_stopping_rounds n_jobs random_state enable_categorical "
            "max_depth min_child_weight subsample colsample_bytree reg_lambda",
            True,
        ),
        (
            "catboost",
            "CatBoost",
            "iterations learning_rate early_stopping_rounds thread_count random_seed allow_writing_files "
            "verbose depth l2_leaf_reg random_strength",
            True,
        ),
        ("tabpfn", "TabPFN", "random_state", False),
        ("tabicl", "TabICL", "random_state n_jobs", False),
    ],
)
def test_packages_that_may_be_installed(package, prefix, parameters, stops, tmp_path, monkeypatch):
    """Stand-ins with the packages' interfaces; that the packages take these arguments was tried by hand."""
    views, y, target = table()
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not (path and package in path)])
    with monkeypatch.context() as without:
        without.setattr("usboost.models.baselines.packages.find_spec", lambda name: None)
        with pytest.raises(UsboostError, match=f"{package} is not installed; install it with `pip install"):
            check_outside(package, "classification")
    given = ", ".join(f"{name}=None" for name in parameters.split())
    stand_in = STAND_IN.replace("Mixin, _Base)", "Mixin, _Kept)") if package == "catboost" else STAND_IN
    code = stand_in.replace("PARAMETERS", given).replace("CLASSIFIER", f"{prefix}Classifier")
    (tmp_path / f"{package}.py").write_text(code.replace("REGRESSOR", f"{prefix}Regressor"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package, raising=False)
    for task, labels in (("classification", y), ("regression", target)):
        model = outside(package, task, views=("S",), seed=7)
        assert bool(space_of(model)) == stops
        model.fit(views[:80], labels[:80], (views[80:], labels[80:]))
        found = model.estimator_
        assert 7 in found.get_params().values()
        assert found.seen_ == (80 if stops else 120)
        told = {"cat_features"} if package == "catboost" else set()
        assert set(found.given_) == ({"eval_set", "verbose"} | told if stops else set())
        if stops:  # numbers, and then categories as they are, all codes known in any rows
            assert found.given_.get("cat_features", [2]) == [2]
            for rows, seen in ((views[:80], found.x_), (views[80:], found.given_["eval_set"][0][0])):
                np.testing.assert_array_equal(seen[2].cat.codes, rows["S"].codes[:, 0])
                assert len(seen[2].cat.categories) == rows["S"].cardinalities[0]
        else:
            assert found.x_.shape[1] == 2 + sum(views["S"].cardinalities)
        if stops:
            assert found.early_stopping_rounds == 50 and len(found.given_["eval_set"][0][0]) == 40
        if stops:  # validation rows count in early stopping as much as in the scores
            weights = np.arange(1.0, 121)
            held = views[80:], labels[80:], weights[80:]
            given = outside(package, task, views=("S",)).fit(views[:80], labels[:80], held, weights[:80])
            heard = given.estimator_.given_
            rows = heard["sample_weight_eval_set"][0] if package == "xgboost" else heard["eval_set"].weight
            np.testing.assert_array_equal(rows, weights[80:])
            assert package == "xgboost" or heard["eval_set"].cat_features == [2]
        again = model.for_all_rows().fit(views, labels)  # for as many rounds, none of them watched
        if stops:
            assert again.estimator_.early_stopping_rounds is None
            assert 12 in (getattr(again.estimator_, name, 0) for name in ("iterations", "n_estimators"))
        assert again.estimator_.seen_ == 120 and "eval_set" not in again.estimator_.given_
        predicted = model.predict(views)
        assert predicted.shape == (120,)
        if task == "classification":
            assert model.predict_proba(views).dtype == np.float64
    if package == "xgboost":  # one that was told to take no categories is given indicators
        model = outside(package, "classification", views=("S",))
        model.estimator.set_params(enable_categorical=False)
        assert model.fit(views, y).estimator_.x_.shape == (120, 2 + sum(views["S"].cardinalities))
    sys.modules.pop(package, None)

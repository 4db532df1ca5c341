"""Other packages' estimators on views; a plain matrix for classifiers on views, in scikit-learn's tools."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from tests.conftest import refuses
from tests.small_models import boosting
from usboost import LightGBMBaseline, SplitColumns, Table, TreeLearner, UsboostError, Views
from usboost.fit.trials import space_of
from usboost.models.baselines.packages import ScikitBaseline, ScikitBaselineRegressor, check_outside, outside
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier


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
    fit = ScikitBaselineRegressor(LinearRegression(), ("S",)).fit
    own = fit(views[:80], y[:80], (views[80:90], y[80:90]))
    assert np.allclose(own.predict(views[90:]), y[90:], atol=1)


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
        assert model.predict(views).shape == (120,)
        if task == "classification":
            assert model.predict_proba(views).dtype == np.float64
    if package == "xgboost":  # one that was told to take no categories is given indicators
        model = outside(package, "classification", views=("S",))
        model.estimator.set_params(enable_categorical=False)
        assert model.fit(views, y).estimator_.x_.shape == (120, 2 + sum(views["S"].cardinalities))
    sys.modules.pop(package, None)


def test_a_matrix_is_dealt_out_to_the_views() -> None:
    X, y = make_blobs(90, 5, random_state=0)
    model = SplitColumns(boosting(random_state=2)).fit(X, y)
    assert {view: columns.tolist() for view, columns in model.positions_.items()} == {
        "U": [0, 1],
        "S": [2, 3, 4],
    }
    views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    direct = boosting(random_state=2).fit(views, y)
    for method in ("predict", "predict_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(model, method)(X), getattr(direct, method)(views))
    np.testing.assert_array_equal(list(model.staged_predict(X))[-1], model.predict(X))
    for p, dealt in ((1, [[0], [0]]), (2, [[0], [1]]), (3, [[0], [1, 2]])):
        columns = SplitColumns(boosting(n_rounds=1)).fit(X[:, :p], y).positions_
        assert [columns["U"].tolist(), columns["S"].tolist()] == dealt
    three = boosting(learners={"a": TreeLearner(), "b": TreeLearner(), "both": TreeLearner(reads=("a", "b"))})
    assert list(SplitColumns(three).fit(X, y).positions_) == ["a", "b"]


def test_columns_given_by_number_or_name() -> None:
    X, y = make_blobs(90, 4, random_state=0)
    frame = pd.DataFrame(X, columns=list("abcd"))
    by_name = SplitColumns(boosting(), {"U": ["d", "a"], "S": ["b", "a"]}).fit(frame, y)
    by_number = SplitColumns(boosting(), {"U": [3, 0], "S": [1, -4]}).fit(X, y)
    np.testing.assert_array_equal(by_name.predict_proba(frame), by_number.predict_proba(X))
    assert by_name.feature_names_in_.tolist() == list("abcd")
    assert by_name.classifier_.feature_names_.tolist() == ["b", "a"]
    for views, said in (
        ({"U": ["e"], "S": ["b"]}, "gives view 'U' column 'e', which X has not"),
        ({"U": [0], "S": [4]}, "gives view 'S' column 4"),
        ({"U": [0], "S": []}, "gives view 'S' no column"),
    ):
        refuses(said, SplitColumns(boosting(), views).fit, frame, y)
    refuses("not a StandardScaler", SplitColumns(StandardScaler()).fit, X, y)
    refuses(r"usboost\.models\.split_columns", boosting().fit, X, y)


def test_pipelines_and_searches_over_a_matrix() -> None:
    X, y = make_blobs(150, 4, random_state=0)
    pipeline = make_pipeline(StandardScaler(), SplitColumns(boosting()))
    assert cross_val_score(pipeline, X, y, cv=3, error_score="raise").mean() > 0.8
    grid = {"splitcolumns__classifier__n_rounds": [1, 4], "splitcolumns__classifier__shrinkage": [0.5]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    fitted = search.best_estimator_[-1].classifier_
    assert fitted.n_rounds in (1, 4)
    assert fitted.shrinkage == 0.5


def test_methods_that_the_classifier_lacks_are_not_there() -> None:
    assert not hasattr(SplitColumns(TwoBranchNetworkClassifier()), "decision_function")
    assert not hasattr(SplitColumns(TwoBranchNetworkClassifier()), "staged_predict")
    assert hasattr(SplitColumns(), "staged_predict")
    for model in (SplitColumns(LightGBMBaseline()), LightGBMBaseline(), boosting()):
        with pytest.raises(NotFittedError):
            model.predict(np.zeros((2, 2)))


def test_early_stopping_through_the_adapter() -> None:
    X, y = make_blobs(120, 4, cluster_std=4.0, random_state=0)
    model = SplitColumns(boosting(n_rounds=30, patience=2)).fit(X[:80], y[:80], (X[80:], y[80:]))
    history = [row["f1_val"] for row in model.classifier_.history_]
    assert max(history) == history[model.classifier_.best_round_ - 1]

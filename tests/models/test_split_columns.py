"""A plain matrix for classifiers on views, in scikit-learn's pipelines and searches."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.conftest import refuses
from tests.small_models import boosting
from usboost import LightGBMBaseline, SplitColumns, Table, TreeLearner, Views
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier


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
    with pytest.raises(NotFittedError):
        SplitColumns(LightGBMBaseline()).predict(np.zeros((2, 2)))


def test_early_stopping_through_the_adapter() -> None:
    X, y = make_blobs(120, 4, cluster_std=4.0, random_state=0)
    model = SplitColumns(boosting(n_rounds=30, patience=2)).fit(X[:80], y[:80], (X[80:], y[80:]))
    history = [row["f1_val"] for row in model.classifier_.history_]
    assert max(history) == history[model.classifier_.best_round_ - 1]

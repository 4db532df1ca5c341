"""What every estimator owes scikit-learn's tools and a user who looks at a fitted one."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    learning_curve,
    train_test_split,
)

from tests.conftest import make_views, refuses, reloaded
from tests.small_models import boosting, lgbm, network, on_features, two_branches
from usboost import Checkpoint, Images, Table, TreeLearner, Views
from usboost.boosting.callbacks import Callback, History, ShowRounds
from usboost.models.methods.boosted_network import BoostedNetworkClassifier, BoostedNetworkRegressor
from usboost.models.methods.earlyboost import EarlyBoostClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier


def networks(**changes: Any) -> BoostedNetworkClassifier:
    return BoostedNetworkClassifier(learner=network(), n_rounds=4, **changes)


ON_VIEWS = {
    "2wl": boosting,
    "two branches": two_branches,
    "bfv_dnn": on_features,
    "lgbm": lgbm,
    "bnn": networks,
}


@pytest.mark.parametrize("name", ON_VIEWS)
def test_cross_validation_cuts_views(name: str) -> None:
    views, y = make_views(3, n=240)
    model, folds = ON_VIEWS[name](), StratifiedKFold(3)
    scores = cross_val_score(model, views, y, cv=folds, error_score="raise")
    by_hand = [
        clone(model).fit(views[seen], y[seen]).score(views[unseen], y[unseen])
        for seen, unseen in folds.split(views, y)
    ]
    np.testing.assert_allclose(scores, by_hand)
    assert cross_val_predict(model, views, y, cv=KFold(2), method="predict_proba").shape == (240, 3)


def test_rows_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    views, y = make_views(3, n=240)
    model, val = boosting(), views[:60]
    with pytest.warns(DataConversionWarning):
        model.fit(views, y, (val, y[:60, None]))
    assert model.best_round_ == boosting().fit(views, y, (val, y[:60])).best_round_
    for n, labels in ((60, 1), (60, 50), (0, 0)):
        refuses("one label for each|give one for each", boosting().fit, views, y, (views[:n], y[:labels]))
    for name, lack in (("groups", None), ("times", np.nan)):
        refuses(f"{name} has no value in row 0", model.fit, views, y, **{name: [lack, *range(239)]})
    refuses("every row needs a label", model.fit, views, np.array([None, *"ab" * 119, "a"], dtype=object))
    refuses("'S' is a DataFrame", model.fit, {"S": pd.DataFrame({"x": y})}, y)
    refuses("shrinkage=0 not above", boosting(shrinkage=0).fit, views, y)
    late = np.sort(y)  # the last class is in none of the rows that are fitted to
    assert reloaded(on_features(validation_fraction=0.3).fit(views, late, times=late), tmp_path).gbm_


@pytest.mark.parametrize("name", ["2wl", "lgbm"])
def test_other_columns_than_those_of_the_fit_are_refused(name: str) -> None:
    y = np.arange(240) % 2
    view = {names: Table.from_numeric(np.eye(240)[:, :3], names) for names in ("abc", "cba")}
    model = boosting(learners={"S": TreeLearner()}) if name == "2wl" else lgbm(views=("S",))
    model.fit(Views(S=view["abc"]), y)
    refuses("column 0 of view 'S' is 'c', was 'a' in the fit", model.predict, Views(S=view["cba"]))


def test_grid_search_over_views() -> None:
    views, y = make_views(2, n=200)
    learners = [{"S": TreeLearner(1)}, {"U": TreeLearner(2), "S": TreeLearner(2)}]
    grid = {"n_rounds": [1, 3], "learners": learners}
    search = GridSearchCV(boosting(), grid, cv=3, error_score="raise").fit(views, y)
    by_hand = [
        cross_val_score(boosting(**candidate), views, y, cv=3).mean()
        for candidate in search.cv_results_["params"]
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand)
    assert search.best_score_ == pytest.approx(max(by_hand))
    assert search.best_score_ > 0.6
    assert search.predict(views).shape == (200,)
    nested = GridSearchCV(on_features(), {"features__n_trees": [2, 4], "network__dnn3": [(2,)]}, cv=2)
    assert nested.fit(views, y).best_estimator_.n_estimators_ in (2, 4)
    sizes, _, scores = learning_curve(boosting(), views, y, cv=2, train_sizes=[0.5, 1.0], error_score="raise")
    assert sizes.tolist() == [50, 100]
    assert np.isfinite(scores).all()


def test_every_kind_of_view_is_cut_as_scikit_learn_cuts() -> None:
    n = 12
    pixels = np.random.default_rng(0).integers(0, 255, (n, 1, 8, 8), dtype=np.uint8)
    views = Views(image=Images(pixels), table=Table.from_numeric(np.arange(2.0 * n).reshape(n, 2)))
    y = np.arange(n) % 2
    first, second, _, _ = train_test_split(views, y, test_size=5, stratify=y, random_state=0)
    assert (len(first), len(second)) == (7, 5)
    for part in (first, second):
        rows = (part["table"].numeric[:, 0] / 2).astype(int)
        np.testing.assert_array_equal(part["image"].pixels, pixels[rows])
    rows = np.array([4, -1, 0])
    np.testing.assert_array_equal(views[rows, ...]["image"].pixels, pixels[rows])
    assert views[-1]["table"].numeric.tolist() == [[22.0, 23.0]]
    assert len(views[[3, 4], ...]) == 2


@pytest.mark.parametrize("name", ON_VIEWS)
def test_rounds_kept(name: str) -> None:
    views, y = make_views(3, n=200)
    model = ON_VIEWS[name](validation_fraction=0).fit(views, y)
    kept = {"two branches": 1, "bfv_dnn": 6, "lgbm": 6}.get(name, 4)
    assert model.n_estimators_ == kept
    assert model.best_round_ == (6 if name == "lgbm" else 4)
    if name in ("two branches", "bfv_dnn"):
        return
    staged = list(model.staged_predict(views))
    assert len(staged) == kept
    np.testing.assert_array_equal(staged[-1], model.predict(views))
    assert not np.array_equal(staged[0], staged[-1])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_lightgbms_stages_are_models_of_fewer_trees(n_classes: int) -> None:
    views, y = make_views(n_classes, n=200)
    model = lgbm(validation_fraction=0).fit(views, y)
    for n_trees, predicted in enumerate(model.staged_predict(views), start=1):
        fewer = lgbm(n_trees=n_trees, validation_fraction=0).fit(views, y)
        np.testing.assert_array_equal(predicted, fewer.predict(views))


def test_a_regressors_stages() -> None:
    X = np.random.default_rng(0).normal(size=(80, 3))
    model = BoostedNetworkRegressor(network(), n_rounds=3).fit(X, X[:, 0])
    staged = list(model.staged_predict(X))
    assert model.n_estimators_ == len(staged) == 3
    assert staged[0].shape == (80,)
    assert not np.array_equal(staged[0], staged[2])
    np.testing.assert_allclose(staged[2], model.predict(X), rtol=1e-5, atol=1e-6)


def test_names_of_a_dataframe_are_saved(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=list("abc"))
    model = networks().fit(frame, frame["a"] > 0)
    assert model.feature_names_in_.tolist() == list("abc")
    again = reloaded(model, tmp_path / "m")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    refuses("feature names", again.predict, frame[list("bac")])
    assert not hasattr(model.fit(Table.from_numeric(frame.to_numpy()), frame["a"] > 0), "feature_names_in_")


@pytest.mark.parametrize("name", ON_VIEWS)
def test_representations_stay_short(name: str, tmp_path: Path) -> None:
    views, y = make_views(2, n=200)
    given = {"callbacks": [History(), ShowRounds(print)]}
    if name != "lgbm":
        given["checkpoint"] = Checkpoint(tmp_path / "c")
    model = ON_VIEWS[name](**given)
    for fitted in (model, model.fit(views, y)):
        for value in fitted.get_params().values():
            assert "\n" not in repr(value) or hasattr(value, "get_params")
            assert len(repr(value)) < 250
        assert len(repr(fitted)) < 1200
        assert fitted._repr_html_().startswith("<style>")


def test_three_views_with_names_of_their_own() -> None:
    rng = np.random.default_rng(0)
    n = 240
    signals = rng.normal(size=(n, 3))
    y = signals.sum(axis=1) > 0
    brightness = np.clip(128 + 60 * signals[:, 0], 0, 255)[:, None, None, None]
    pixels = np.broadcast_to(brightness, (n, 1, 16, 16)).astype(np.uint8)
    embedding = signals[:, 2:] @ rng.normal(size=(1, 6)) + 0.1 * rng.normal(size=(n, 6))
    views = Views(
        {
            "image": Images(np.ascontiguousarray(pixels)),
            "table": Table.from_numeric(signals[:, 1:2], ("height",)),
            "text_embedding": Table.from_numeric(embedding),
        }
    )
    learners = {
        "image": network(hidden=(4,), optimizer="adam", learning_rate=0.01, batch_size=32, epochs=4),
        "table": TreeLearner(2),
        "text_embedding": network(optimizer="adam", learning_rate=0.02, batch_size=32, epochs=4),
    }
    model = TwoWeakLearnerClassifier(learners, n_rounds=3, validation_fraction=0).fit(views, y)
    for stage in model.stages_:
        assert set(stage.steps) == set(learners)
        assert all(abs(step) > 1e-3 for step in stage.steps.values())
    risks = [row["risk_train"] for row in model.history_]
    assert risks == sorted(risks, reverse=True)
    # searched jointly: no single step can be moved to a lower risk
    codes, loss, last = y.astype(int), model._loss(), model.stages_[-1]
    prepared = model._prepare(views)
    outputs = {view: learner.predict(prepared[view]) for view, learner in last.learners.items()}
    f = model._f(views)
    for view, step in last.steps.items():
        for change in (-0.05, 0.05):
            assert loss.risk(f + change * step * outputs[view], codes) > loss.risk(f, codes)
    assert model.score(views, y) > 0.8
    assert model.feature_names_.tolist() == ["height"]


class StopAtThree(Callback):
    def on_round(self, round_):
        return round_.index == 3


@pytest.mark.parametrize("make", [boosting, two_branches, on_features, networks])
def test_a_callback_in_three_lines_stops_at_round_3(make: Any) -> None:
    views, y = make_views(2, n=150)
    model = make(callbacks=[StopAtThree()], validation_fraction=0).fit(views, y)
    assert len(model.history_) == model.best_round_ == 3


def test_a_callback_stops_earlyboost_and_a_regressor() -> None:
    X = np.random.default_rng(0).normal(size=(80, 6))
    early = EarlyBoostClassifier(callbacks=[StopAtThree()]).fit(X, X[:, 0] > 0)
    assert early.n_estimators_ == early.best_round_ == early.n_frames_ == 3
    regressor = BoostedNetworkRegressor(network(), 5, callbacks=[StopAtThree()]).fit(X, X[:, 0])
    assert regressor.n_estimators_ == regressor.best_round_ == 3

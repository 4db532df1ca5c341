"""What every regressor on views owes: units, seeds, files, checkpoints, unseen rows, clear errors."""

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.model_selection import train_test_split

from tests.boosting.test_checkpoint import Dies
from tests.conftest import make_views, refuses, reloaded
from tests.leaks.probes import same_start, spoiled, training, watched
from tests.small_models import network
from usboost import Checkpoint, RidgeLearner, Table, TreeLearner, UsboostError, Views, load, save
from usboost.models.baselines.linear import RidgeBaseline
from usboost.models.baselines.trees import LightGBMBaselineRegressor
from usboost.models.methods.bfv_network import BoostedFeatureNetworkRegressor
from usboost.models.methods.boosted_features import BoostedFeatures
from usboost.models.methods.two_branch import TwoBranchNetworkRegressor
from usboost.models.methods.two_weak_learner import TwoWeakLearnerRegressor

VIEWS, _ = make_views(2, n=240)
RNG = np.random.default_rng(0)
Y = 200 + 30 * (VIEWS["U"].numeric[:, 0] * 2 + VIEWS["S"].numeric[:, 0] + 0.3 * RNG.normal(size=240))


def boosting(**changes: Any) -> TwoWeakLearnerRegressor:
    learners = {"U": network(), "S": TreeLearner(min_samples_leaf=5)}
    return TwoWeakLearnerRegressor(**{"learners": learners, "n_rounds": 4, **changes})


def two_branches(**changes: Any) -> TwoBranchNetworkRegressor:
    settings = {"dnn1": (4,), "dnn2": (4,), "dnn3": (4,), "n_epochs": 4, "batch_size": 32, "device": "cpu"}
    return TwoBranchNetworkRegressor(**{**settings, **changes})


def on_features(**changes: Any) -> BoostedFeatureNetworkRegressor:
    return BoostedFeatureNetworkRegressor(BoostedFeatures(n_trees=6), two_branches(), **changes)


def lgbm(**changes: Any) -> LightGBMBaselineRegressor:
    return LightGBMBaselineRegressor(**{"n_trees": 20, **changes})


def linear_start(**changes: Any) -> TwoWeakLearnerRegressor:
    return boosting(learners={"S": TreeLearner(min_samples_leaf=5)}, start=RidgeBaseline(), **changes)


MODELS: dict[str, Any] = {
    "2wl": boosting,
    "2wl, absolute": lambda **changes: boosting(loss="absolute", **changes),
    "2wl, huber": lambda **changes: boosting(loss="huber", **changes),
    "2wl, quantile": lambda **changes: boosting(loss="quantile", quantile=0.8, **changes),
    "2wl, ridge": lambda **changes: boosting(learners={"U": RidgeLearner(), "S": TreeLearner()}, **changes),
    "linear start": linear_start,
    "two branches": two_branches,
    "bfv_dnn": on_features,
    "lgbm": lgbm,
    "lgbm, quantile": lambda **changes: lgbm(loss="quantile", quantile=0.8, **changes),
    "ridge": RidgeBaseline,
}
of_each = pytest.mark.parametrize("name", MODELS)


@of_each
def test_predictions_are_in_the_units_of_y(name: str) -> None:
    """Another unit, 1024 times as large and from another zero, changes nothing else."""
    one, other = MODELS[name]().fit(VIEWS, Y), MODELS[name]().fit(VIEWS, 1024 * Y + 2**20)
    predicted = one.predict(VIEWS)
    assert predicted.shape == (240,) and predicted.dtype == np.float64
    np.testing.assert_allclose((other.predict(VIEWS) - 2**20) / 1024, predicted, rtol=1e-4)
    assert one.score(VIEWS, Y) == pytest.approx(r2_score(Y, predicted))
    centre = abs(predicted.mean() - Y.mean()) / Y.std()
    assert centre < (1.5 if "quantile" in name else 0.3)


@of_each
def test_equal_seeds_give_equal_models_that_files_keep(name: str, tmp_path: Path) -> None:
    model = MODELS[name](random_state=3).fit(VIEWS, Y)
    expected = model.predict(VIEWS)
    np.testing.assert_array_equal(clone(model).fit(VIEWS, Y).predict(VIEWS), expected)
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict(VIEWS), expected)
    assert again.get_params().keys() == model.get_params().keys()
    np.testing.assert_array_equal(reloaded(again, tmp_path / "twice").predict(VIEWS), expected)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "ridge"])
def test_rows_set_aside_or_given_are_not_fitted_to(name: str) -> None:
    kept, held = train_test_split(np.arange(240), test_size=0.25, random_state=0)

    def fit(rows: np.ndarray) -> Any:
        y = Y.copy()
        y[rows] = -5 * y[rows]
        return MODELS[name](validation_fraction=0.25, random_state=0).fit(spoiled(VIEWS, rows), y)

    def given(rows: np.ndarray) -> Any:
        y, views = Y.copy(), spoiled(VIEWS, rows)
        y[rows] = -5 * y[rows]
        return MODELS[name](random_state=0).fit(views[kept], y[kept], (views[held], y[held]))

    for make in (fit, given):
        clean, forbidden, allowed = make(held[:0]), make(held), make(kept[:25])
        scale = (clean.target_centre_, clean.target_scale_)
        assert (forbidden.target_centre_, forbidden.target_scale_) == scale
        assert (allowed.target_centre_, allowed.target_scale_) != scale
        if "lgbm" in name:  # it tells nothing of its training rows; its first trees stand for it
            first, second = (each.gbm_.trees[0].value for each in (clean, forbidden))
            np.testing.assert_array_equal(first, second)
        else:
            assert same_start(training(clean), training(forbidden))
            assert not same_start(training(clean), training(allowed))
        assert not same_start(watched(clean), watched(forbidden))


@pytest.mark.parametrize("name", ["2wl", "2wl, absolute", "linear start", "two branches", "bfv_dnn"])
def test_a_killed_fit_goes_on_as_if_nothing_had_been(name: str, tmp_path: Path) -> None:
    whole = MODELS[name]().fit(VIEWS, Y)
    with pytest.raises(KeyboardInterrupt):
        MODELS[name](checkpoint=Checkpoint(tmp_path / "kept"), callbacks=[Dies(2)]).fit(VIEWS, Y)
    resumed = MODELS[name](checkpoint=Checkpoint(tmp_path / "kept")).fit(VIEWS, Y)
    np.testing.assert_array_equal(resumed.predict(VIEWS), whole.predict(VIEWS))
    with pytest.raises(UsboostError, match="checkpoint of another fit"):
        MODELS[name](checkpoint=Checkpoint(tmp_path / "kept")).fit(VIEWS, Y + 1)


def test_history_is_in_the_units_of_y_and_the_best_round_is_kept() -> None:
    train, held = slice(0, 180), slice(180, 240)
    for model in (boosting(n_rounds=30, patience=5, monitor="rmse_val"), two_branches(monitor="rmse_val")):
        model.fit(VIEWS[train], Y[train], (VIEWS[held], Y[held]))
        shown = [row["rmse_val"] for row in model.history_]
        assert model.best_round_ == int(np.argmin(shown)) + 1
        found = root_mean_squared_error(Y[held], model.predict(VIEWS[held]))
        assert min(shown) == pytest.approx(found, rel=1e-5)


def test_lightgbm_is_lightgbm() -> None:
    views = Views(S=Table.from_numeric(np.column_stack([VIEWS["U"].numeric, VIEWS["S"].numeric])))
    model = lgbm(views=("S",), validation_fraction=0).fit(views, Y)
    parameters = {"objective": "regression", "learning_rate": 0.05, "deterministic": True, "verbose": -1}
    dataset = lightgbm.Dataset(views["S"].matrix(), (Y - Y.mean()) / Y.std(), init_score=np.zeros(240))
    booster = lightgbm.train({**parameters, "num_threads": 1, "force_col_wise": True}, dataset, 20)
    expected = Y.mean() + Y.std() * booster.predict(views["S"].numeric)
    np.testing.assert_allclose(model.predict(views), expected, rtol=1e-6)
    assert model.feature_importances_.sum() == pytest.approx(1)


def test_ridge_is_scikit_learns_by_leave_one_out() -> None:
    numbers = np.column_stack([VIEWS["U"].numeric, VIEWS["S"].numeric])
    views = Views(U=Table.from_numeric(numbers[:, :2]), S=Table.from_numeric(numbers[:, 2:]))
    x = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    model = RidgeBaseline(penalties=(10.0, 0.1, 1e-3)).fit(views, Y)
    alphas = np.array([10.0, 0.1, 1e-3]) * 240  # the columns' mean eigenvalue
    expected = RidgeCV(alphas).fit(x, Y)
    assert model.penalty_ * 240 == pytest.approx(expected.alpha_, rel=1e-5)
    np.testing.assert_allclose(model.predict(views), expected.predict(x), rtol=1e-5, atol=1e-3)
    without = np.arange(240) != 7
    one = Ridge(expected.alpha_).fit(x[without], Y[without]).predict(x[[7]])
    z = (Y - Y.mean()) / Y.std()
    found = Y.mean() + Y.std() * model.out_of_fold(views, z)[7, 0]
    assert found == pytest.approx(one[0], rel=1e-4)
    again = model.for_all_rows().fit(views, Y)  # with the penalty that was chosen
    np.testing.assert_allclose(again.predict(views), model.predict(views), rtol=1e-6)


def test_boosting_goes_on_from_the_ridge_start_that_has_not_seen_the_row() -> None:
    model = linear_start(n_rounds=3, patience=None, validation_fraction=0, shrinkage=0.3).fit(VIEWS, Y)
    alone = RidgeBaseline().fit(VIEWS, Y)
    z = (Y - Y.mean()) / Y.std()
    start = model._start_f(VIEWS)[:, 0]
    np.testing.assert_allclose(Y.mean() + Y.std() * start, alone.predict(VIEWS), rtol=1e-5)
    unseen = np.square(z - alone.out_of_fold(VIEWS, z)[:, 0]).mean()
    assert model.history_[0]["risk_train"] < unseen


def test_a_view_that_says_nothing_is_left_out_and_one_that_helps_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table, wide = rng.normal(size=(300, 3)), rng.normal(size=(300, 100))
    y = table @ [3.0, 2.0, 1.0] + rng.normal(size=300)
    views = Views(U=Table.from_numeric(wide), S=Table.from_numeric(table))

    def fit(targets: np.ndarray) -> TwoWeakLearnerRegressor:
        learners = {"S": TreeLearner()}
        return TwoWeakLearnerRegressor(learners, start=RidgeBaseline(), optional=("U",), n_rounds=3).fit(
            views, targets
        )

    assert fit(y).left_out_ == ("U",)
    model = fit(y + 4 * wide[:, 0])
    assert model.left_out_ == ()
    np.testing.assert_array_equal(reloaded(model, tmp_path / "model").predict(views), model.predict(views))


def test_huber_delta_is_in_the_units_of_y() -> None:
    away = np.abs(Y - np.median(Y))
    model = boosting(loss="huber", delta_quantile=0.6, validation_fraction=0).fit(VIEWS, Y)
    assert model.delta_ == pytest.approx(np.quantile(away, 0.6))
    assert model._loss().delta == pytest.approx(model.delta_ / model.target_scale_)
    assert boosting(loss="huber", delta=5.0).fit(VIEWS, Y).delta_ == 5.0


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "the target y is None; pass the targets"),
        (np.zeros(3), "y must have one target for each of the 240 rows"),
        (np.full(240, np.nan), "y holds NaN or infinity"),
        (np.array(["a"] * 240), "y is not numeric"),
        (np.zeros((240, 2)), "y must have one target for each"),
    ],
)
def test_targets_that_are_none_are_refused(y: Any, message: str) -> None:
    refuses(message, RidgeBaseline().fit, VIEWS, y)


@of_each
def test_equal_targets_are_predicted(name: str) -> None:
    found = MODELS[name]().fit(VIEWS, np.full(240, 7.0)).predict(VIEWS)
    np.testing.assert_allclose(found, 7.0, atol=0.5)


def test_settings_that_are_none_are_refused() -> None:
    for model, message in (
        (boosting(loss="logistic"), "unknown loss 'logistic'"),
        (lgbm(loss="logistic"), "unknown loss 'logistic'"),
        (boosting(loss="huber", delta_quantile=1.5), "delta_quantile is a share"),
        (boosting(loss="absolute", step="newton"), "use the step rule 'closed'"),
        (RidgeBaseline(penalties=(-1.0,)), "penalties are one or more positive numbers"),
    ):
        refuses(message, model.fit, VIEWS, Y)


def test_files_of_other_targets_are_refused(tmp_path: Path) -> None:
    save(RidgeBaseline().fit(VIEWS, Y), tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    path.write_text(path.read_text().replace('"target_scale_": ', '"target_scale_": -'))
    refuses("its target_scale_ is -", load, tmp_path / "model")

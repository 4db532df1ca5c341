"""`sample_weight` of every estimator: a row of weight 2 is two rows, one of weight 0 is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from usboost import BoostedFeatures, NetworkLearner, RidgeLearner, Table, TreeLearner, UsboostError, Views
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.baselines.packages import PriorBaseline, PriorBaselineRegressor
from usboost.models.baselines.trees import (
    ForestBaseline,
    ForestBaselineRegressor,
    LightGBMBaseline,
    LightGBMBaselineRegressor,
)
from usboost.models.estimator import class_factors
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier, BoostedFeatureNetworkRegressor
from usboost.models.methods.boosted_network import BoostedNetworkClassifier, BoostedNetworkRegressor
from usboost.models.methods.earlyboost import EarlyBoostClassifier
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier, TwoBranchNetworkRegressor
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor
from usboost.models.prediction_intervals import PredictionIntervals
from usboost.models.split_columns import SplitColumns, SplitColumnsRegressor

RNG = np.random.default_rng(0)
N, HELD = 120, 40
U = RNG.normal(size=(N + HELD, 3)).round(1).astype(np.float32)
S = RNG.normal(size=(N + HELD, 3)).round(1).astype(np.float32)
Z = U[:, 0] + S[:, 1] * S[:, 2] + 0.5 * RNG.normal(size=N + HELD)
CODES = {2: (Z > 0.3).astype(int), 3: np.digitize(Z, [-0.5, 0.8])}
COUNTS = RNG.integers(1, 4, N + HELD)
FIT, STOP = np.arange(N), np.arange(N, N + HELD)

TREES = {name: TreeLearner(3, engine="histogram", min_samples_leaf=9, max_bin=16) for name in "US"}
WHOLE = {"U": NetworkLearner((6,), "sgd", 0.05, 10_000, 2), "S": TREES["S"]}  # all rows are one batch
BRANCHES: dict[str, Any] = {"dnn1": (6,), "dnn2": (6,), "dnn3": (4,), "n_epochs": 3, "batch_size": 10_000}
BRANCHES |= {"optimizer": "sgd", "learning_rate": 0.05}
START = {"all": TreeLearner(2, engine="histogram", reads=("U", "S"))}

EXACT: dict[str, Any] = {
    "prior": PriorBaseline(),
    "2wl of trees": TwoWeakLearnerClassifier(TREES, n_rounds=6),
    "2wl-newton of trees": TwoWeakLearnerClassifier(TREES, target="newton", n_rounds=6),
    "cross-entropy": TwoWeakLearnerClassifier(TREES, loss="cross_entropy", target="newton", n_rounds=6),
    "second order": TwoWeakLearnerClassifier(TREES, target="second_order", n_rounds=4, sequential=True),
    "fixed steps": TwoWeakLearnerClassifier(
        TREES, step="fixed", step_settings={"value": 0.5}, shrinkage=0.5, n_rounds=4
    ),
    "2wl": TwoWeakLearnerClassifier(WHOLE, n_rounds=3),
    "2wl-newton": TwoWeakLearnerClassifier(WHOLE, target="newton", n_rounds=3),
    "two branches": TwoBranchNetworkClassifier(**BRANCHES),
    "linear": LinearBaseline(penalties=(0.1, 0.03, 0.01)),
}
EXACT_REGRESSORS: dict[str, Any] = {
    "prior": PriorBaselineRegressor(),
    **{
        # after a median leaf residuals are 0 but for what is moved against ties, and so are their signs
        loss: TwoWeakLearnerRegressor(START, loss=loss, quantile=0.3, n_rounds=n_rounds)
        for loss, n_rounds in (("squared", 5), ("huber", 5), ("absolute", 1), ("quantile", 1))
    },
    "2wl": TwoWeakLearnerRegressor(WHOLE, n_rounds=3),
    "two branches": TwoBranchNetworkRegressor(**BRANCHES),
    "ridge": RidgeBaseline(penalties=(1.0,)),  # which is chosen by leaving rows out as wholes
    "intervals": PredictionIntervals(RidgeBaseline(), method="residuals"),
}
NOT_EXACT: dict[str, Any] = {
    "ridge and tree": TwoWeakLearnerClassifier({"U": RidgeLearner(), "S": TREES["S"]}, n_rounds=4),
    "linear start": TwoWeakLearnerClassifier(START, start=LinearBaseline(), optional=("U",), n_rounds=3),
    "lightgbm": LightGBMBaseline(n_trees=10),
    "forest": ForestBaseline(n_trees=10),
    "bfv": BoostedFeatureNetworkClassifier(
        BoostedFeatures(5), TwoBranchNetworkClassifier(**BRANCHES), out_of_fold=True
    ),
}
NOT_EXACT_REGRESSORS: dict[str, Any] = {
    "lightgbm": LightGBMBaselineRegressor(n_trees=10, loss="absolute"),
    "forest": ForestBaselineRegressor(n_trees=10),
    "bfv": BoostedFeatureNetworkRegressor(
        BoostedFeatures(5, engine="sklearn"), TwoBranchNetworkRegressor(**BRANCHES)
    ),
    "linear start": TwoWeakLearnerRegressor(START, start=RidgeBaseline(), n_rounds=4),
}
CASES = [(k, name, model) for k in (2, 3) for name, model in (EXACT | NOT_EXACT).items()]
CASES += [(1, name, model) for name, model in (EXACT_REGRESSORS | NOT_EXACT_REGRESSORS).items()]


def views(rows: np.ndarray) -> Views:
    return Views(U=Table.from_numeric(U[rows]), S=Table.from_numeric(S[rows]))


def answers(model: Any, k: int) -> np.ndarray:
    found = model.predict_proba(views(np.arange(N + HELD))) if k > 1 else model.predict(views(np.arange(N)))
    return np.asarray(found)


def fitted(model: Any, k: int, fit: np.ndarray, stop: np.ndarray, *weights: Any, **more: Any) -> np.ndarray:
    """What a model answers that was fitted to some rows, with weights of these and of the validation rows."""
    y = Z if k == 1 else CODES[k]
    of_fit, of_stop = weights or (None, None)
    held = (views(stop), y[stop]) if of_stop is None else (views(stop), y[stop], of_stop)
    return answers(clone(model).set_params(**more).fit(views(fit), y[fit], held, of_fit), k)


def cases(exact: bool) -> list[Any]:
    names = (EXACT, EXACT_REGRESSORS)
    return [
        pytest.param(k, model, id=f"{name} {k}")
        for k, name, model in CASES
        if not exact or name in names[k == 1]
    ]


@pytest.mark.parametrize("k, model", [each for each in cases(True) if "intervals" not in str(each.id)])
def test_a_row_of_weight_2_is_two_rows(k: int, model: Any) -> None:
    """Float32 in predictions: the order of sums is another one."""
    whole = fitted(model, k, np.repeat(FIT, COUNTS[FIT]), np.repeat(STOP, COUNTS[STOP]))
    found = fitted(model, k, FIT, STOP, COUNTS[FIT], COUNTS[STOP])
    np.testing.assert_allclose(found, whole, atol=1e-3 if isinstance(model, LinearBaseline) else 2e-5)
    assert np.abs(fitted(model, k, FIT, STOP) - found).max() > 1e-3


@pytest.mark.parametrize("k, model", cases(False))
def test_a_row_of_weight_0_is_no_row_and_weights_of_1_are_none(k: int, model: Any) -> None:
    plain = fitted(model, k, FIT, STOP)
    ones = np.ones(N), np.ones(HELD)
    np.testing.assert_array_equal(fitted(model, k, FIT, STOP, *ones), plain)
    weights = np.where(np.arange(N) % 4, COUNTS[FIT], 0), np.where(np.arange(HELD) % 4, 1.5, 0)
    fit, stop = FIT[weights[0] > 0], STOP[weights[1] > 0]
    expected = fitted(model, k, fit, stop, weights[0][fit], weights[1][stop - N])
    np.testing.assert_array_equal(fitted(model, k, FIT, STOP, *weights), expected)
    assert np.abs(expected - fitted(model, k, fit, stop)).max() > 1e-4


@pytest.mark.parametrize("k, model", cases(False)[::3])
def test_wrong_weights_are_refused(k: int, model: Any) -> None:
    y = Z if k == 1 else CODES[k]
    wrong = {
        "weights are finite and not negative": [-1.0, *np.ones(N - 1)],
        "sample_weight is nan in row 1": [1.0, np.nan, *np.ones(N - 2)],
        "give one number for each of the 120 rows": np.ones(N - 1),
        "no number": ["much"] * N,
        "zero in all 120 rows": np.zeros(N),
    }
    for said, weights in wrong.items():
        with pytest.raises(UsboostError, match=said):
            clone(model).fit(views(FIT), y[FIT], None, weights)
    with pytest.raises(UsboostError, match="the weight in validation is inf in row 0"):
        clone(model).fit(views(FIT), y[FIT], (views(STOP), y[STOP], np.full(HELD, np.inf)))


def test_trees_to_nine_digits() -> None:
    for name in ("2wl of trees", "cross-entropy"):
        y, found = CODES[3], []
        for rows, weights in ((np.repeat(FIT, COUNTS[FIT]), None), (FIT, COUNTS[FIT])):
            model = clone(EXACT[name]).set_params(validation_fraction=0)
            model.fit(views(rows), y[rows], sample_weight=weights)
            stages = [(s.steps["U"], s.steps["S"], *s.learners["S"].trees) for s in model.stages_]
            found.append([np.array([u, s, *tree.value.ravel()]) for u, s, tree in stages])
            risks = [row["risk_train"] for row in model.history_]
            found[-1].append(np.array(risks))
        # what a learner predicts is float32, and the rounds after the first see it
        np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-9, atol=1e-9)
        for one, other in zip(*found):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_boosted_networks(loss: str) -> None:
    x, whole = np.hstack([U, S]), np.repeat(FIT, COUNTS[FIT])
    model = BoostedNetworkClassifier(loss, NetworkLearner((5,), "sgd", 0.05, 10_000, 3), n_rounds=2)
    y = CODES[3]
    found = clone(model).fit(x[FIT], y[FIT], sample_weight=COUNTS[FIT])
    np.testing.assert_allclose(
        found.decision_function(x), clone(model).fit(x[whole], y[whole]).decision_function(x), atol=2e-5
    )
    held = (x[STOP], y[STOP], COUNTS[STOP])
    risk = clone(model).fit(x[FIT], y[FIT], held, COUNTS[FIT]).history_[-1]["risk_val"]
    repeated = np.repeat(STOP, COUNTS[STOP])
    again = clone(model).fit(x[whole], y[whole], (x[repeated], y[repeated])).history_[-1]["risk_val"]
    assert risk == pytest.approx(again, rel=1e-5)


def test_boosted_networks_of_numbers() -> None:
    x, whole = np.hstack([U, S]), np.repeat(FIT, COUNTS[FIT])
    model = BoostedNetworkRegressor(NetworkLearner((5,), "sgd", 0.05, 10_000, 3), n_rounds=2)
    found = clone(model).fit(x[FIT], Z[FIT], sample_weight=COUNTS[FIT]).predict(x)
    np.testing.assert_allclose(found, clone(model).fit(x[whole], Z[whole]).predict(x), atol=2e-5)
    with pytest.raises(UsboostError, match="sample_weight has the shape"):
        model.fit(x[FIT], Z[FIT], sample_weight=COUNTS)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("estimator", [None, LogisticRegression(C=0.1, tol=1e-9)])
def test_earlyboost(k: int, estimator: Any) -> None:
    frames = RNG.normal(size=(N, 4, 3)) + 0.5 * CODES[k][:N, None, None]
    rows, y = np.repeat(FIT, COUNTS[FIT]), CODES[k]
    found = EarlyBoostClassifier(estimator).fit(frames, y[FIT], sample_weight=COUNTS[FIT])
    whole = EarlyBoostClassifier(estimator).fit(frames[rows], y[rows])
    for name in ("alphas_", "errors_", "r_"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), atol=1e-9)


def test_wrappers() -> None:
    x = np.hstack([U, S])
    for wrapper, k in ((SplitColumns(EXACT["2wl of trees"]), 2), (SplitColumnsRegressor(RidgeBaseline()), 1)):
        y = Z if k == 1 else CODES[k]
        found = wrapper.fit(x[FIT], y[FIT], (x[STOP], y[STOP], COUNTS[STOP]), COUNTS[FIT])
        model = EXACT["2wl of trees"] if k == 2 else RidgeBaseline()
        inner = fitted(model, k, FIT, STOP, COUNTS[FIT], COUNTS[STOP])
        given = found.predict_proba(x) if k == 2 else found.predict(x)[:N]
        np.testing.assert_array_equal(given, inner)


def test_lightgbm_and_forests_count_as_their_libraries_do() -> None:
    """A weight of the rows of one class moves probabilities to it, in LightGBM as if they were repeated."""
    y = CODES[2]
    weights = np.where(y == 1, 3.0, 1.0)
    rows = np.repeat(FIT, weights[FIT].astype(int))
    model = LightGBMBaseline(n_trees=20, min_samples_leaf=1, num_leaves=4)
    found, whole, plain = (
        fitted(model, 2, *at, validation_fraction=0)
        for at in ((FIT, STOP, weights[FIT], weights[STOP]), (rows, STOP), (FIT, STOP))
    )
    assert np.abs(found - whole).mean() < 0.3 * np.abs(found - plain).mean()
    forest = fitted(ForestBaseline(n_trees=30), 2, FIT, STOP, weights[FIT], weights[STOP])
    assert forest[:, 1].mean() > fitted(ForestBaseline(n_trees=30), 2, FIT, STOP)[:, 1].mean() + 0.03


def test_intervals_hold_the_weight_that_is_asked_for() -> None:
    model = PredictionIntervals(RidgeBaseline(), level=0.8, method="residuals", calibration_fraction=0.5)
    model.fit(views(FIT), Z[FIT], sample_weight=COUNTS[FIT])
    _, held = train_test_split(FIT, test_size=0.5, random_state=0)
    off = np.abs(Z[held] - model.predict(views(held)))
    n = COUNTS[held].sum() ** 2 / (COUNTS[held] ** 2).sum()
    share = np.ceil((n + 1) * 0.8) / n
    within = [COUNTS[held][off <= each].sum() / COUNTS[held].sum() >= share - 1e-9 for each in off]
    assert model.margin_ == off[within].min()
    for scale in (1e-3, 1e3):
        other = clone(model).fit(views(FIT), Z[FIT], sample_weight=np.full(N, scale))
        alike = clone(model).fit(views(FIT), Z[FIT])
        assert other.margin_ == pytest.approx(alike.margin_, rel=0.1)  # the ridge's penalties have a scale
        with pytest.raises(UsboostError, match="calibration samples are too few"):
            clone(model).set_params(calibration_fraction=3).fit(
                views(FIT), Z[FIT], sample_weight=np.full(N, scale)
            )


def test_a_rank_that_is_whole_is_not_rounded_up() -> None:
    """.9 · (n + 1) and such are whole for some n, and a little more as floats for some of these."""
    for n, level, place in ((9, 0.9, 9), (19, 0.95, 19), (99, 0.9, 90), (39, 0.7, 28), (49, 0.58, 29)):
        y = np.linspace(0, 1, 2 * n) ** 2
        model = PredictionIntervals(
            PriorBaselineRegressor(), level=level, method="residuals", calibration_fraction=n
        )
        seen = Views({"S": np.zeros((2 * n, 1), np.float32)})
        model.fit(seen, y)
        _, held = train_test_split(np.arange(2 * n), test_size=n, random_state=0)
        assert model.margin_ == np.sort(np.abs(y[held] - model.predict(seen)[0]))[place - 1]


def test_a_checkpoint_of_other_weights_is_refused(tmp_path: Path) -> None:
    model = TwoWeakLearnerClassifier(TREES, n_rounds=2, validation_fraction=0, checkpoint=tmp_path / "kept")
    model.fit(views(FIT), CODES[2][FIT], sample_weight=COUNTS[FIT])
    model.fit(views(FIT), CODES[2][FIT], sample_weight=COUNTS[FIT])
    with pytest.raises(UsboostError, match="another fit"):
        model.fit(views(FIT), CODES[2][FIT], sample_weight=COUNTS[FIT] + 1)


def test_balanced_classes() -> None:
    codes = np.array([0, 0, 0, 2, 2, 0])
    np.testing.assert_allclose(class_factors("balanced", codes, "abc"), [0.75, 1, 1.5])
    weights = np.array([1.0, 2, 3, 1, 1, 0])
    found = class_factors("balanced", codes, "abc", weights)[codes] * weights
    assert found.sum() == pytest.approx(weights.sum())
    assert found[codes == 0].sum() == pytest.approx(found[codes == 2].sum())
    np.testing.assert_array_equal(class_factors({"c": 3}, codes, "abc"), [1, 1, 3])
    for wrong, said in (({"d": 1.0}, "'d', which is none"), ({"a": 0}, "positive"), ("even", "'balanced'")):
        with pytest.raises(UsboostError, match=said):
            class_factors(wrong, codes, "abc")  # type: ignore[arg-type]

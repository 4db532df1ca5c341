"""`sample_weight` of every estimator: a row of weight 2 is two rows, one of weight 0 is none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score

from tests.conftest import refuses
from tests.tables import crossed, one, two
from usboost import BoostedFeatures, NetworkLearner, RidgeBaseline, RidgeLearner, TreeLearner, UsboostError
from usboost.boosting.context import FitContext
from usboost.evaluation.folds import Related
from usboost.evaluation.intervals import conformal
from usboost.evaluation.metrics import row_losses
from usboost.models.baselines.linear import FOLDS, LinearBaseline, _turns
from usboost.models.baselines.packages import PriorBaseline, PriorBaselineRegressor, ScikitBaseline
from usboost.models.baselines.trees import (
    ForestBaseline,
    ForestBaselineRegressor,
    LightGBMBaseline,
    LightGBMBaselineRegressor,
)
from usboost.models.estimator import class_factors
from usboost.models.methods.bfv_network import (
    BFV,
    BoostedFeatureNetworkClassifier,
    BoostedFeatureNetworkRegressor,
)
from usboost.models.methods.boosted_network import BoostedNetworkClassifier, BoostedNetworkRegressor
from usboost.models.methods.earlyboost import EarlyBoostClassifier
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier, TwoBranchNetworkRegressor
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor
from usboost.models.methods.weak_learners import fit_start
from usboost.models.split_columns import SplitColumns, SplitColumnsRegressor

N = 200
FIT, STOP = np.arange(120), np.arange(120, N)
VIEWS, Z = crossed(N)
X = np.hstack([VIEWS["U"].numeric, VIEWS["S"].numeric])
Y = {1: Z, 2: (Z > 0.3).astype(int), 3: np.digitize(Z, [-0.5, 0.8])}
"""By the number of classes; 1 is a regression."""
RNG = np.random.default_rng(0)
COUNTS, GROUPS = RNG.integers(1, 6, N), RNG.integers(0, 30, N)
HEAVY = np.where(Y[3] == 1, 6.0, 1.0)

TREES = {name: TreeLearner(3, engine="histogram", min_samples_leaf=9, max_bin=16) for name in "US"}
WHOLE = {"U": NetworkLearner((6,), "sgd", 0.05, 10_000, 2), "S": TREES["S"]}  # all rows are one batch
BRANCHES: dict[str, Any] = {"dnn1": (6,), "dnn2": (6,), "dnn3": (4,), "n_epochs": 3, "batch_size": 10_000}
BRANCHES |= {"optimizer": "sgd", "learning_rate": 0.05, "device": "cpu"}
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
}
NOT_EXACT: dict[str, Any] = {
    "ridge and tree": TwoWeakLearnerClassifier({"U": RidgeLearner(), "S": TREES["S"]}, n_rounds=4),
    "linear start": TwoWeakLearnerClassifier(START, start=LinearBaseline(), optional=("U",), n_rounds=3),
    "lightgbm": LightGBMBaseline(n_trees=10),
    "forest": ForestBaseline(n_trees=10, leaf_sizes=(1, 20)),
    "bfv": BoostedFeatureNetworkClassifier(
        BoostedFeatures(5), TwoBranchNetworkClassifier(**BRANCHES), out_of_fold=True
    ),
}
NOT_EXACT_REGRESSORS: dict[str, Any] = {
    "lightgbm": LightGBMBaselineRegressor(n_trees=10, loss="absolute"),
    "forest": ForestBaselineRegressor(n_trees=10, leaf_sizes=(1, 20)),
    "bfv": BoostedFeatureNetworkRegressor(
        BoostedFeatures(5, engine="sklearn"), TwoBranchNetworkRegressor(**BRANCHES)
    ),
    "linear start": TwoWeakLearnerRegressor(START, start=RidgeBaseline(), n_rounds=4),
}
CLASSIFIERS, REGRESSORS = EXACT | NOT_EXACT, EXACT_REGRESSORS | NOT_EXACT_REGRESSORS


def cases(classifiers: dict[str, Any], regressors: dict[str, Any]) -> list[Any]:
    numbered = [(k, each) for k in (2, 3) for each in classifiers.items()]
    numbered += [(1, each) for each in regressors.items()]
    return [pytest.param(k, model, id=f"{name} {k}") for k, (name, model) in numbered]


def fit(model: Any, k: int, rows: np.ndarray, stop: np.ndarray, own: Any = None, of_stop: Any = None) -> Any:
    """A model that was fitted to some rows and stopped on others, with weights of these and of those."""
    held = (VIEWS[stop], Y[k][stop]) if of_stop is None else (VIEWS[stop], Y[k][stop], of_stop)
    return clone(model).fit(VIEWS[rows], Y[k][rows], held, own)


def fitted(model: Any, k: int, *rows_and_weights: Any) -> np.ndarray:
    """What it answers."""
    model = fit(model, k, *rows_and_weights)
    return np.asarray(model.predict_proba(VIEWS) if k > 1 else model.predict(VIEWS[FIT]))


@pytest.mark.parametrize(("k", "model"), cases(EXACT, EXACT_REGRESSORS))
def test_a_row_of_weight_2_is_two_rows(k: int, model: Any) -> None:
    """Float32 in predictions: the order of sums is another one."""
    whole = fitted(model, k, np.repeat(FIT, COUNTS[FIT]), np.repeat(STOP, COUNTS[STOP]))
    found = fitted(model, k, FIT, STOP, COUNTS[FIT], COUNTS[STOP])
    np.testing.assert_allclose(found, whole, atol=1e-3 if isinstance(model, LinearBaseline) else 2e-5)
    assert np.abs(fitted(model, k, FIT, STOP) - found).max() > 1e-3


@pytest.mark.parametrize(("k", "model"), cases(CLASSIFIERS, REGRESSORS))
def test_a_row_of_weight_0_is_no_row_and_weights_of_1_are_none(k: int, model: Any) -> None:
    plain = fitted(model, k, FIT, STOP)
    np.testing.assert_array_equal(fitted(model, k, FIT, STOP, np.ones(120), np.ones(80)), plain)
    weights = np.where(np.arange(N) % 4, np.where(np.arange(N) < 120, COUNTS, 1.5), 0)
    rows, stop = (each[weights[each] > 0] for each in (FIT, STOP))
    expected = fitted(model, k, rows, stop, weights[rows], weights[stop])
    np.testing.assert_array_equal(fitted(model, k, FIT, STOP, weights[FIT], weights[STOP]), expected)
    assert np.abs(expected - fitted(model, k, rows, stop)).max() > 1e-4


@pytest.mark.parametrize(("k", "model"), cases(CLASSIFIERS, REGRESSORS)[::3])
def test_wrong_weights_are_refused(k: int, model: Any) -> None:
    for said, weights in {
        "weights are finite and not negative": [-1.0, *np.ones(119)],
        "sample_weight is nan in row 1": [1.0, np.nan, *np.ones(118)],
        "each of the 120 rows": np.ones(119),
        "no number": ["much"] * 120,
        "zero in all 120 rows": np.zeros(120),
    }.items():
        refuses(said, fit, model, k, FIT, STOP, weights)
    refuses("validation is inf in row 0", fit, model, k, FIT, STOP, None, np.full(80, np.inf))


BATCH = NetworkLearner((5,), "sgd", 0.05, 10_000, 3)


@pytest.mark.parametrize(
    "model",
    [
        BoostedNetworkClassifier("squared", BATCH, n_rounds=2),
        BoostedNetworkClassifier("cross_entropy", BATCH, n_rounds=2),
        BoostedNetworkRegressor(BATCH, n_rounds=2),
    ],
)
def test_boosted_networks(model: Any) -> None:
    y = Y[1 if is_regressor(model) else 3]
    (rows, stop) = (np.repeat(each, COUNTS[each]) for each in (FIT, STOP))
    found = clone(model).fit(X[FIT], y[FIT], (X[STOP], y[STOP], COUNTS[STOP]), COUNTS[FIT])
    whole = clone(model).fit(X[rows], y[rows], (X[stop], y[stop]))
    answers = "predict" if is_regressor(model) else "decision_function"
    np.testing.assert_allclose(getattr(found, answers)(X), getattr(whole, answers)(X), atol=2e-5)
    risks = [each.history_[-1]["risk_val"] for each in (found, whole)]
    assert risks[0] == pytest.approx(risks[1], rel=1e-5)
    refuses("sample_weight", model.fit, X[FIT], y[FIT], sample_weight=COUNTS)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("estimator", [None, LogisticRegression(C=0.1, tol=1e-9)])
def test_earlyboost(k: int, estimator: Any) -> None:
    frames = np.random.default_rng(2).normal(size=(120, 4, 3)) + 0.5 * Y[k][FIT, None, None]
    rows = np.repeat(FIT, COUNTS[FIT])
    found = EarlyBoostClassifier(estimator).fit(frames, Y[k][FIT], sample_weight=COUNTS[FIT])
    whole = EarlyBoostClassifier(estimator).fit(frames[rows], Y[k][rows])
    for name in ("alphas_", "errors_", "r_"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), atol=1e-9)


@pytest.mark.parametrize(
    ("wrapper", "k"), [(SplitColumns(EXACT["2wl of trees"]), 2), (SplitColumnsRegressor(RidgeBaseline()), 1)]
)
def test_wrappers(wrapper: Any, k: int) -> None:
    y, inner = Y[k], wrapper.classifier if k == 2 else wrapper.regressor
    found = wrapper.fit(X[FIT], y[FIT], (X[STOP], y[STOP], COUNTS[STOP]), COUNTS[FIT])
    given = found.predict_proba(X) if k == 2 else found.predict(X[FIT])
    np.testing.assert_array_equal(given, fitted(inner, k, FIT, STOP, COUNTS[FIT], COUNTS[STOP]))


def test_lightgbm_and_forests_count_as_their_libraries_do() -> None:
    """A weight of the rows of one class moves probabilities to it, in LightGBM as if they were repeated."""
    weights = np.where(Y[2] == 1, 3, 1)
    rows = np.repeat(FIT, weights[FIT])
    model = LightGBMBaseline(n_trees=20, min_samples_leaf=1, num_leaves=4, validation_fraction=0)
    own = weights[FIT], weights[STOP]
    found, whole, plain = (fitted(model, 2, *at) for at in ((FIT, STOP, *own), (rows, STOP), (FIT, STOP)))
    assert np.abs(found - whole).mean() < 0.3 * np.abs(found - plain).mean()
    forest = fitted(ForestBaseline(n_trees=30), 2, FIT, STOP, *own)
    assert forest[:, 1].mean() > fitted(ForestBaseline(n_trees=30), 2, FIT, STOP)[:, 1].mean() + 0.03


def test_intervals_hold_the_weight_that_is_asked_for() -> None:
    off, weights = np.random.default_rng(1).random(120), COUNTS[FIT]
    n = weights.sum() ** 2 / (weights**2).sum()
    share = np.ceil((n + 1) * 0.8) / n
    within = [weights[off <= each].sum() / weights.sum() >= share - 1e-9 for each in off]
    assert conformal(off, 0.8, weights.astype(float)) == off[within].min()
    alike = conformal(off, 0.8)
    for scale in (1e-3, 1e3):
        assert conformal(off, 0.8, np.full(120, scale)) == alike
        assert conformal(off[:3], 0.8, np.full(3, scale)) == np.inf


def test_a_rank_that_is_whole_is_not_rounded_up() -> None:
    """.9 · (n + 1) and such are whole for some n, and a little more as floats for some of these."""
    for n, level, place in ((9, 0.9, 9), (19, 0.95, 19), (99, 0.9, 90), (39, 0.7, 28), (49, 0.58, 29)):
        off = np.random.default_rng(n).random(n)
        assert conformal(off, level) == np.sort(off)[place - 1]


def test_a_checkpoint_of_other_weights_is_refused(tmp_path: Path) -> None:
    model = TwoWeakLearnerClassifier(TREES, n_rounds=2, validation_fraction=0, checkpoint=tmp_path / "kept")
    for _ in range(2):
        model.fit(VIEWS[FIT], Y[2][FIT], sample_weight=COUNTS[FIT])
    refuses("another fit", model.fit, VIEWS[FIT], Y[2][FIT], sample_weight=COUNTS[FIT] + 1)


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


# Rows that a fit stops on.


@pytest.mark.parametrize("name", ["linear", "forest", "cross-entropy", "two branches", "bfv"])
def test_what_is_told_of_classes_of_rows_that_stop_a_fit(name: str) -> None:
    model, y, weights = fit(CLASSIFIERS[name], 3, FIT, STOP, None, HEAVY[STOP]), Y[3][STOP], HEAVY[STOP]
    told, p = model.history_[model.best_round_ - 1], model.predict_proba(VIEWS[STOP])
    answers, losses = p.argmax(axis=1), row_losses(y, p)
    expected = {
        "risk_val": np.average(losses, weights=weights),
        "f1_val": f1_score(y, answers, average="macro", sample_weight=weights),
        "accuracy_val": accuracy_score(y, answers, sample_weight=weights),
    }
    known = {key: value for key, value in expected.items() if key in told}
    assert "risk_val" in known and {key: told[key] for key in known} == pytest.approx(known, rel=1e-5)
    assert losses.mean() != pytest.approx(expected["risk_val"], rel=1e-3)


@pytest.mark.parametrize("name", ["ridge", "forest", "squared", "two branches", "bfv"])
def test_what_is_told_of_numbers_of_rows_that_stop_a_fit(name: str) -> None:
    model, weights = fit(REGRESSORS[name], 1, FIT, STOP, None, HEAVY[STOP]), HEAVY[STOP]
    told, off = model.history_[model.best_round_ - 1], Z[STOP] - model.predict(VIEWS[STOP])
    square = np.average(np.square(off), weights=weights)
    expected = {
        "risk_val": square / getattr(model, "regressor_", model).target_scale_ ** 2,
        "rmse_val": np.sqrt(square),
        "mae_val": np.average(np.abs(off), weights=weights),
    }
    known = {key: value for key, value in expected.items() if key in told}
    assert "risk_val" in known and {key: told[key] for key in known} == pytest.approx(known, rel=1e-4)
    assert np.square(off).mean() != pytest.approx(square, rel=1e-2)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (LinearBaseline(penalties=(3.0, 0.3, 0.03, 0.003)), "penalties"),
        (ForestBaseline(n_trees=10, leaf_sizes=(1, 5, 20, 60)), "leaf_sizes"),
    ],
)
def test_of_some_candidates_the_best_by_weight_is_kept(model: Any, name: str) -> None:
    """For some of these weights it is another one than for equal rows; a fit to all rows keeps to it."""
    candidates, kept, y = getattr(model, name), [], Y[3]
    alone = [clone(model).set_params(**{name: (each,), "validation_fraction": 0.0}) for each in candidates]
    losses = [row_losses(y[STOP], fitted(each, 3, FIT, STOP)[STOP]) for each in alone]
    for weights in (np.ones(N), *(np.where(k == y, 30.0, 1.0) for k in range(3))):
        found = fit(model, 3, FIT, STOP, None, weights[STOP])
        risks = [np.average(each, weights=weights[STOP]) for each in losses]
        kept.append(candidates[int(np.argmin(risks))])
        assert candidates[found.best_round_ - 1] == kept[-1]
        again = found.for_all_rows()
        assert getattr(again, name) == (kept[-1],) and again.validation_fraction == 0
    assert len(set(kept)) > 1


@pytest.mark.parametrize("weighs", ["none", "training", "validation", "both"])
def test_an_estimator_that_does_not_stop_learns_from_all_rows_as_they_count(weighs: str) -> None:
    own, of_stop = (weighs in each for each in (("training", "both"), ("validation", "both")))
    given = HEAVY[FIT] if own else None, HEAVY[STOP] if of_stop else None
    model = fit(ScikitBaseline(LogisticRegression(C=0.1)), 3, FIT, STOP, *given)
    counts = np.where(np.arange(N) < 120, HEAVY if own else 1, HEAVY if of_stop else 1)
    expected = LogisticRegression(C=0.1).fit(model._rows(VIEWS), Y[3], counts)
    np.testing.assert_allclose(model.estimator_.coef_, expected.coef_, atol=1e-4)


# Linear models that boosting starts from: by fits without the row.


def test_ridge_regressions_leave_rows_out_as_wholes() -> None:
    penalties, n = (30.0, 3.0, 0.3, 0.03), 90
    views, weights = VIEWS[:n], COUNTS[:n].astype(float)
    model = RidgeBaseline(penalties=penalties).fit(views, Z[:n], None, weights)
    y, read = (Z[:n] - model.target_centre_) / model.target_scale_, model._rows(views).astype(np.float64)
    mean = np.average(read, axis=0, weights=weights)
    scale = (weights @ np.square(read - mean)).sum() / read.shape[1]
    left_out = {}
    for penalty in penalties:
        rest = [np.arange(n) != k for k in range(n)]
        fits = [Ridge(penalty * scale).fit(read[seen], y[seen], weights[seen]) for seen in rest]
        left_out[penalty] = np.array([each.predict(read[[k]])[0] for k, each in enumerate(fits)])
    risks = {key: np.average(np.square(each - y), weights=weights) for key, each in left_out.items()}
    best = min(risks, key=risks.__getitem__)
    assert model.penalty_ == pytest.approx(best)
    assert model.history_[0]["risk_train"] == pytest.approx(risks[best], rel=1e-4)
    found = model.out_of_fold(views, y, weights)[:, 0]
    np.testing.assert_allclose(found, left_out[best], atol=1e-4)
    assert np.abs(model.out_of_fold(views, y)[:, 0] - found).max() > 1e-2


@pytest.mark.parametrize("related", [None, Related(groups=GROUPS), Related(times=GROUPS)])
def test_logistic_regressions_score_a_fold_by_the_others_as_they_count(related: Related | None) -> None:
    y, weights = Y[3], COUNTS.astype(float)
    model = LinearBaseline(penalties=(0.03,), random_state=3).fit(VIEWS, y, (VIEWS, y), weights)
    read = model._rows(VIEWS).astype(np.float64)
    turn = _turns(y, 3, FOLDS, 3) if related is None else related.parts(FOLDS, y, 3)
    found = model.out_of_fold(VIEWS, y, weights, related)
    for fold in range(turn.max() + 1):
        seen = turn != fold
        expected = LogisticRegression(C=1 / (0.03 * weights[seen].sum()), tol=1e-9, max_iter=2000)
        scores = expected.fit(read[seen], y[seen], weights[seen]).decision_function(read[~seen])
        np.testing.assert_allclose(found[~seen], scores - scores.mean(axis=1, keepdims=True), atol=0.02)
    assert np.abs(model.out_of_fold(VIEWS, y, None, related) - found).max() > 0.1


def test_a_view_is_left_out_by_what_rows_count_for() -> None:
    """One that tells the heavy rows and harms the light ones is read; where these are heavy it is not."""
    rng = np.random.default_rng(0)
    n = 600
    told, y = np.arange(n) % 3 == 0, rng.integers(0, 2, n)
    wide = rng.normal(size=(n, 40))
    wide[told, 0] += 3 * (2 * y[told] - 1)
    wide[~told, 0] *= 4  # is as large, and means nothing
    views = two(wide, rng.normal(size=(n, 1)) + 0.2 * y[:, None])
    settings = LinearBaseline(penalties=(0.01,), validation_fraction=0)

    def left_out(weights: np.ndarray) -> tuple[str, ...]:
        def work(model: Any) -> None:
            model.fit_codes(views, y, 2, FitContext())

        return fit_start(settings, ("U",), views, y, work, weights)[2]

    models = [clone(settings).set_params(views=names).fit(views, y) for names in (("S",), ("U", "S"))]
    losses = [model.losses(model.out_of_fold(views, y), y) for model in models]
    assert (losses[0] - losses[1])[told].mean() > 0 > (losses[0] - losses[1])[~told].mean()
    assert left_out(np.where(told, 1.0, 1e-3)) == () and left_out(np.where(told, 1e-3, 1.0)) == ("U",)


def test_a_starts_folds_are_drawn_by_the_models_seed() -> None:
    start, risks = LinearBaseline(penalties=(0.03,), validation_fraction=0), []
    for seed in (3, 4):
        settings = {"loss": "cross_entropy", "n_rounds": 1, "shrinkage": 1e-9, "validation_fraction": 0}
        model = TwoWeakLearnerClassifier(START, start=start, random_state=seed, **settings).fit(VIEWS, Y[3])
        alone = clone(start).set_params(random_state=seed).fit(VIEWS, Y[3])
        risks.append(model.history_[0]["risk_train"])
        expected = alone.losses(alone.out_of_fold(VIEWS, Y[3]), Y[3]).mean()
        assert risks[-1] == pytest.approx(expected, rel=1e-5)
    assert risks[0] != pytest.approx(risks[1], rel=1e-4)


# Boosted features: the GBM, its folds and the network have the fit's weights, groups and seed.


@pytest.mark.parametrize("out_of_fold", [False, True])
@pytest.mark.parametrize("groups", [None, GROUPS])
def test_boosted_features_by_hand(out_of_fold: bool, groups: Any) -> None:
    features, table, y = BoostedFeatures(4, min_samples_leaf=10), VIEWS["S"], Y[2]
    network = TwoBranchNetworkClassifier(**BRANCHES)
    model = BoostedFeatureNetworkClassifier(
        features, network, out_of_fold=out_of_fold, validation_fraction=0, random_state=5
    )
    model.fit(VIEWS, y, sample_weight=COUNTS, groups=groups)
    gbm = clone(features).fit(table, y, COUNTS).gbm_
    read = gbm.features(table)
    np.testing.assert_array_equal(model.gbm_.features(table), read)
    if out_of_fold:
        related = None if groups is None else Related(groups=groups)
        for rows, block in features.out_of_fold(table, y, weights=COUNTS, related=related):
            read[rows] = block
    mean = np.average(read, axis=0, weights=COUNTS)
    deviation = np.sqrt(np.average(np.square(read - mean), axis=0, weights=COUNTS))
    np.testing.assert_allclose(model.mean_, mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.scale_, 1 / deviation, rtol=1e-4)
    standardised = VIEWS.with_view(BFV, one((read - model.mean_) * model.scale_)["S"])
    network.set_params(views=("U", BFV), validation_fraction=0, random_state=5)
    network.fit(standardised, y, sample_weight=COUNTS)
    expected = network.predict_proba(model._read_views(VIEWS))
    np.testing.assert_allclose(model.predict_proba(VIEWS), expected, atol=1e-6)


def test_features_out_of_fold_are_of_weighted_fits() -> None:
    features, table, y = BoostedFeatures(4, min_samples_leaf=10), VIEWS["S"], Y[2]
    for related in (None, Related(groups=GROUPS)):
        for unseen, block in features.out_of_fold(table, y, 3, COUNTS, related):
            seen = np.setdiff1d(np.arange(N), unseen)
            alone = clone(features).fit(table[seen], y[seen], COUNTS[seen])
            np.testing.assert_array_equal(block, alone.transform(table[unseen]))

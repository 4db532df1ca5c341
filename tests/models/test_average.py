"""The average of models: its formula, its weights, what columns add to it, files, and resumed fits."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from tests.conftest import refuses, reloaded
from tests.learners.trees.test_shapley import brute_force
from tests.models.test_shapley import MATRIX, NAMES, SCORE, owners, views
from usboost import NetworkLearner, TreeLearner
from usboost.boosting.callbacks import Callback
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.baselines.packages import PriorBaseline
from usboost.models.baselines.trees import ForestBaseline, ForestBaselineRegressor, LightGBMBaseline
from usboost.models.inspection.attribution import direction, shapley
from usboost.models.methods.average import AverageClassifier, AverageRegressor
from usboost.models.methods.ensemble import EnsembleClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor

Y = np.digitize(SCORE, [-0.4, 0.9])
ALL, ROWS, REFERENCE = views(MATRIX), MATRIX[:6], MATRIX[100:132]


def members(n_rounds: int = 6) -> dict:
    trees, own = {"S": TreeLearner(max_depth=3)}, {"loss": "cross_entropy", "n_rounds": n_rounds}
    both = {"U": NetworkLearner(hidden=(8,)), "S": TreeLearner()}
    return {
        "start": TwoWeakLearnerClassifier(trees, target="newton", start=LinearBaseline(("S",)), **own),
        "both": TwoWeakLearnerClassifier(both, target="newton", monitor="risk_val", **own),
        "forest": ForestBaseline(("S",), n_trees=20),
    }


@pytest.mark.parametrize("classes", [2, 3])
def test_the_answer_is_a_geometric_mean(classes: int, tmp_path: Path) -> None:
    model = AverageClassifier(members(), weights={"start": 2.0, "both": 1.0, "forest": 1.0})
    model.fit(ALL, np.minimum(Y, classes - 1))
    assert model.weights_ == {"start": 0.5, "both": 0.25, "forest": 0.25}
    assert set(model.losses_) == set(model.fits_) and model.blend_loss_ > 0 and model.n_estimators_ == 3
    rounds = [row for row in model.history_ if row.pop("member") == "both"]
    assert rounds == model.fits_["both"][0].history_
    logs = sum(model.weights_[name] * np.log(fit.predict_proba(ALL)) for name, (fit,) in model.fits_.items())
    expected = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(ALL), expected, rtol=1e-9)
    again = reloaded(model, tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(ALL), model.predict_proba(ALL))
    assert again.members_ == model.members_ and (again.feature_names_ == model.feature_names_).all()


BLENDS = {
    "average": AverageClassifier(members(), weights=dict.fromkeys(members(), 1.0)),
    "ensemble": EnsembleClassifier(members() | {"lgbm": LightGBMBaseline(("S",), n_trees=20)}, folds=2),
}


@pytest.mark.slow
@pytest.mark.parametrize(("blend", "tolerance"), [("average", 0.05), ("ensemble", 0.1)])
def test_what_columns_add_is_what_they_add_to_the_members(blend: str, tolerance: float) -> None:
    model = clone(BLENDS[blend]).fit(ALL, Y)
    assert len(model.weights_) > 1
    given = model, views(ROWS), views(REFERENCE), owners, 3, 0
    found = shapley(*given)
    expected = brute_force(lambda each: model._f(views(each)), ROWS, REFERENCE, owners(NAMES), 3)
    # those of networks, forests and LightGBM are estimated
    assert np.abs(found.values - expected).max() < tolerance * np.abs(expected).max()
    for each in range(3):
        alone = shapley(*given, alone=each)
        np.testing.assert_allclose(alone.values[:, each], found.values[:, each], rtol=0, atol=1e-6)
    f = model._f(views(ROWS))
    np.testing.assert_allclose(found.values.sum(axis=1) + found.mean, f, rtol=0, atol=1e-5)
    margin = (direction(model, np.zeros(6, dtype=int)) * f).sum(axis=1)
    logs = np.log(model.predict_proba(views(ROWS)))
    np.testing.assert_allclose(margin, logs[:, 0] - logs[:, 1:].mean(axis=1), rtol=0, atol=1e-9)


def test_numbers_and_what_columns_add_in_their_units(tmp_path: Path) -> None:
    start = TwoWeakLearnerRegressor({"S": TreeLearner()}, start=RidgeBaseline(("S",)), n_rounds=9)
    both = {"start": start, "forest": ForestBaselineRegressor(("S",), n_trees=20)}
    model = AverageRegressor(both, weights={"start": 3, "forest": 1}).fit(ALL, 100 + 50 * SCORE)
    own = {name: fit.predict(ALL) for name, (fit,) in model.fits_.items()}
    expected = model.target_centre_ + model.target_scale_ * (0.75 * own["start"] + 0.25 * own["forest"])
    np.testing.assert_allclose(model.predict(ALL), expected, rtol=1e-12)
    found = shapley(model, views(ROWS), views(REFERENCE), owners, 3, 0)
    whole = model.predict(views(ROWS)) - model.target_centre_
    turn = direction(model, np.zeros(6))
    np.testing.assert_allclose(turn @ found.mean + found.values.sum(axis=(1, 2)) * turn[:, 0], whole, 1e-5)
    np.testing.assert_array_equal(reloaded(model, tmp_path / "m").predict(ALL), model.predict(ALL))


def test_weights_are_equal_within_noise_and_else_those_of_the_largest_gain() -> None:
    rng, y = np.random.default_rng(0), np.arange(300) % 3
    model = AverageClassifier({"any": PriorBaseline()})
    model.classes_ = np.arange(3)

    def knowing(share: float) -> np.ndarray:
        right = rng.random(len(y)) < share
        return np.where(np.eye(3)[np.where(right, y, rng.integers(0, 3, len(y)))], 0.8, 0.1)

    good = knowing(0.9)
    assert model.choose_weights({"a": good, "b": good}, y, None) == {"a": 0.5, "b": 0.5}
    found = model.choose_weights({"a": good, "blind": knowing(0.0), "b": knowing(0.9)}, y, None)
    assert set(found) == {"a", "b"} and sum(found.values()) == pytest.approx(1.0)
    few = np.arange(99)  # so few choose none, were one ever so bad
    same = model.choose_weights({"a": good[few], "blind": knowing(0.0)[few]}, y[few], None)
    assert same == {"a": 0.5, "blind": 0.5}
    rng, more = np.random.default_rng(4), np.arange(120)
    alike = {"a": knowing(0.8), "b": knowing(0.8)}
    losses = [-np.log(each[more, y[more]]).mean() for each in alike.values()]
    assert losses[0] != losses[1]  # by chance
    same = model.choose_weights({name: each[more] for name, each in alike.items()}, y[more], None)
    assert same == {"a": 0.5, "b": 0.5}
    # a row of weight 0 says nothing: with the first hundred alone the blind one is as good
    blind = np.where(np.arange(300)[:, None] < 100, good, knowing(0.0))
    only = (np.arange(300) < 100).astype(float)
    assert model.choose_weights({"a": good, "blind": blind}, y, only) == {"a": 0.5, "blind": 0.5}


def test_the_copy_for_all_rows_goes_as_far_with_the_weights_chosen() -> None:
    most = dict.fromkeys(members(), int(0.95 * len(Y)))  # more than it is fitted to, fewer than all
    model = AverageClassifier(members(20), most_rows=most).fit(ALL, Y)
    copy = model.for_all_rows()
    assert copy.weights == model.weights_ and copy.validation_fraction == 0
    whole = copy.fit(ALL, Y)
    assert whole.weights_ == pytest.approx(model.weights_) and whole.members_ == model.members_
    for name, (fit,) in whole.fits_.items():
        again = model.fits_[name][0].for_all_rows().fit(ALL, Y)
        np.testing.assert_array_equal(fit.predict_proba(ALL), again.predict_proba(ALL))


def test_members_that_are_left_out() -> None:
    model = AverageClassifier(members(), most_rows={"forest": 200}).fit(ALL, Y)
    assert "forest" not in model.fits_ and "200 rows" in model.members_["forest"].left_out
    refuses("members is empty", AverageClassifier({}).fit, ALL, Y)
    refuses("weights are positive", AverageClassifier(members(), weights={"both": 0.0}).fit, ALL, Y)
    refuses("200 rows", AverageClassifier(members(), most_rows=dict.fromkeys(members(), 200)).fit, ALL, Y)


class Killed(Callback):
    """Ends the process, so to say, in the second member's third round."""

    fits = 0

    def on_fit_begin(self, fit: object) -> None:
        self.fits += 1

    def on_round(self, round_) -> bool:
        if self.fits == 2 and round_.index == 3:
            raise KeyboardInterrupt
        return False


def test_a_killed_fit_is_resumed_to_the_same_model(tmp_path: Path) -> None:
    whole = AverageClassifier(members()).fit(ALL, Y)
    with pytest.raises(KeyboardInterrupt):
        AverageClassifier(members(), checkpoint=tmp_path / "c", callbacks=[Killed()]).fit(ALL, Y)
    resumed = AverageClassifier(members(), checkpoint=tmp_path / "c").fit(ALL, Y)
    assert resumed.weights_ == whole.weights_
    np.testing.assert_array_equal(resumed.predict_proba(ALL), whole.predict_proba(ALL))
    other = AverageClassifier(members(7), random_state=1, checkpoint=tmp_path / "c")
    refuses("another fit", other.fit, ALL, Y)

"""Our own parts, and a user's, pass the checks of `usboost.testing`; broken ones do not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from tests.conftest import make_views, refuses, reloaded
from tests.examples.least_squares import FittedLeastSquares, LeastSquaresLearner, LeastSquaresTrainer
from usboost.boosting.checkpoint import Checkpoint
from usboost.data.images import Images
from usboost.data.views import Frame, Views
from usboost.errors import UsboostError
from usboost.learners.base import LEARNERS
from usboost.learners.estimators import RegressorLearner
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.tree_learner import TreeLearner
from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.losses.exponential import CodewordExponential, Exponential
from usboost.losses.regression import Squared
from usboost.models.losses import LOSSES
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier
from usboost.models.persistence import save
from usboost.testing import check_learner, check_loss, check_view, example_table

LEARNING = {
    "network": NetworkLearner((4,), batch_size=64, device="cpu"),
    "network, warm": NetworkLearner((4,), batch_size=64, start="warm", device="cpu"),
    "tree": TreeLearner(min_samples_leaf=5),
    "tree, scikit-learn's": TreeLearner(min_samples_leaf=5, engine="sklearn"),
    "ridge, scikit-learn's": RegressorLearner(),
    "linear": RegressorLearner(LinearRegression()),
    "regression tree": RegressorLearner(DecisionTreeRegressor(max_depth=2)),
    "a user's own": LeastSquaresLearner(),
}


@pytest.mark.parametrize("name", LEARNING)
def test_learners(name: str) -> None:
    check_learner(LEARNING[name])


def test_a_network_on_images() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (60, 1, 8, 8)).astype(np.uint8)
    check_learner(
        NetworkLearner(
            (3,),
            batch_size=32,
            backbone=Backbone("small_cnn", pretrained=False, finetune="all"),
            device="cpu",
        ),
        Images(pixels),
    )


def test_a_learner_that_breaks_a_promise_is_told() -> None:
    class Unregistered(LeastSquaresLearner):
        pass

    with pytest.raises(AssertionError, match="register Unregistered"):
        check_learner(Unregistered())

    class Careless(FittedLeastSquares):
        kind = "careless"

        def check(self, n_outputs: Any = None, n_columns: Any = None) -> None:
            pass

    class Trainer(LeastSquaresTrainer):
        def fit(self, target: Any, *, seed: int, start: Any) -> Careless:
            return Careless(super().fit(target, seed=seed, start=start).weights)

    class CarelessLearner(LeastSquaresLearner):
        kind = "careless"
        fitted = Careless

        def trainer(self, prepared: Any, n_outputs: int) -> Trainer:
            return Trainer(self.alpha, prepared)

    LEARNERS.register(CarelessLearner)
    with pytest.raises(AssertionError, match="must refuse a learner of another number of outputs"):
        check_learner(CarelessLearner())
    refuses("kind 'least_squares' is taken", LEARNERS.register, type("Other", (LeastSquaresLearner,), {}))


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_losses(n_classes: int) -> None:
    codes = np.arange(40) % n_classes
    check_loss(CodewordExponential.simplex(n_classes), codes)
    check_loss(CodewordExponential.unit(n_classes), codes)
    check_loss(SoftmaxCrossEntropy(n_classes), np.eye(n_classes)[codes])
    check_loss(Squared(n_classes), np.eye(n_classes)[codes])
    check_loss(Exponential(n_classes), 2 * np.eye(n_classes)[codes] - 1)
    with pytest.raises(AssertionError, match="gradient"):
        check_loss(_Steep(np.eye(n_classes)), codes)


class _Steep(CodewordExponential):
    def w(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 2 * super().w(f, y)


class _Bent(SoftmaxCrossEntropy):
    def hessian(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -super().hessian(f, y)


class _Astray(SoftmaxCrossEntropy):
    def newton_direction(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -super().newton_direction(f, y)


class _Uncounted(SoftmaxCrossEntropy):
    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
        return super().risk(f, y)


@pytest.mark.parametrize(
    ("broken", "said"), [(_Bent, "hessian must be"), (_Astray, "must solve H d"), (_Uncounted, "as often as")]
)
def test_a_losss_further_methods_are_checked(broken: type, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_loss(broken(3), np.eye(3)[np.arange(40) % 3])


@LOSSES.register
class Smoothed(SoftmaxCrossEntropy):
    """A loss of somebody's own: a tenth of each label is shared among the classes."""

    kind = "smoothed"

    def labels(self, codes: np.ndarray) -> np.ndarray:
        return 0.9 * super().labels(codes) + 0.1 / self.n_classes


def test_a_model_is_boosted_on_a_loss_of_ones_own(tmp_path: Path) -> None:
    views, y = Views(x=example_table()), np.arange(240) % 3
    check_loss(Smoothed(3), Smoothed(3).labels(y))
    model = TwoWeakLearnerClassifier({"x": TreeLearner()}, "newton", loss="smoothed", n_rounds=3)
    found = model.fit(views, y).predict_proba(views)
    assert not np.array_equal(
        found, clone(model).set_params(loss="cross_entropy").fit(views, y).predict_proba(views)
    )
    np.testing.assert_array_equal(reloaded(model, tmp_path / "m").predict_proba(views), found)


def test_views() -> None:
    check_view(example_table())
    check_view(Images(np.zeros((9, 3, 8, 8), np.uint8)))
    check_view(Frame(np.zeros((5, 2)), np.ones(5, dtype=bool)))


def test_a_learner_that_cannot_be_written_is_refused_before_training(tmp_path: Any) -> None:
    views, y = make_views(n=120)
    neighbours = {"S": KNeighborsRegressor(5)}
    rounds: list[Any] = []
    model = TwoWeakLearnerClassifier(neighbours, n_rounds=2, checkpoint=Checkpoint(tmp_path / "kept"))
    refuses("a KNeighborsRegressor has no file form", model.fit, views, y)
    assert not rounds and not (tmp_path / "kept").exists()
    fitted = model.set_params(checkpoint=None).fit(views, y)
    assert np.mean(fitted.predict(views) == y) > 0.6
    refuses("a KNeighborsRegressor has no file form", save, fitted, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    unknown = type("Unknown", (LeastSquaresLearner,), {})()
    with pytest.raises(UsboostError, match="learner 'S', a Unknown, is not registered"):
        TwoWeakLearnerClassifier({"S": unknown}, checkpoint=tmp_path / "kept").fit(views, y)


def test_a_scikit_learn_regressor_is_a_learner_as_it_is(tmp_path: Any) -> None:
    views, y = make_views(3, n=200)
    model = TwoWeakLearnerClassifier({"S": DecisionTreeRegressor(max_depth=2)}, n_rounds=4).fit(views, y)
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(views), model.predict_proba(views))


def test_a_round_of_a_learner_that_is_not_known_here_is_no_damage(tmp_path: Any) -> None:
    views, y = make_views(n=120)
    model = TwoWeakLearnerClassifier({"S": LeastSquaresLearner()}, n_rounds=3, checkpoint=tmp_path / "kept")
    model.fit(views, y)
    known = LEARNERS._parts.pop("least_squares")
    try:
        with pytest.raises(UsboostError, match="kind 'least_squares', which is not registered here; import"):
            Checkpoint(tmp_path / "kept").rounds()
    finally:
        LEARNERS._parts["least_squares"] = known
    assert len(Checkpoint(tmp_path / "kept").rounds()) == 3


def test_a_step_rule_of_ones_own_is_refused_on_the_way_to_a_file(tmp_path: Any) -> None:
    class Half:
        def search(self, line: Any, n_steps: int, seed: int) -> np.ndarray:
            return np.full(n_steps, 0.5)

    views, y = make_views(n=120)
    fitted = TwoWeakLearnerClassifier({"S": TreeLearner()}, step=Half(), n_rounds=2).fit(views, y)
    refuses("TwoWeakLearnerClassifier's step, a Half, has no file form", save, fitted, tmp_path / "model")


def test_registries_say_what_there_is() -> None:
    refuses("unknown learner kind 'forest'; known are network, tree", LEARNERS.__getitem__, "forest")
    refuses("needs a class attribute `kind`", LEARNERS.register, int)
    assert replace(FittedLeastSquares(np.ones((2, 1)))).kind == "least_squares"

"""What a round starts from, reports and leaves; callbacks that stop a fit keep what was fitted so far."""

import os
import signal
import time
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import Ridge

from tests.conftest import refuses
from usboost import Table, Views
from usboost.boosting.callbacks import (
    TOGETHER,
    Callback,
    EarlyStopping,
    History,
    Interrupt,
    TimeLimit,
    improves,
)
from usboost.boosting.loop import StagewiseLoop, fit_error
from usboost.boosting.rounds import Round
from usboost.boosting.steps import Bayes, Fixed, Newton
from usboost.boosting.targets import Gradient, SecondOrder
from usboost.learners.base import Target
from usboost.learners.estimators import RegressorLearner
from usboost.losses.exponential import CodewordExponential
from usboost.models.methods.boosted_network import BoostedNetworkClassifier


class Linear:
    """Weighted least squares with an intercept, in float64, scaled; its fits hold what they were given."""

    kind = "linear"

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.fits: list[Linear] = []

    def prepare(self, view: Table) -> np.ndarray:
        return np.column_stack([np.ones(len(view)), view.numeric.astype(np.float64)])

    def trainer(self, prepared: np.ndarray, n_outputs: int) -> "Linear":
        self.design = prepared
        return self

    def fit(self, target: Target, *, seed: int, start: Any) -> "Linear":
        fitted = Linear()
        fitted.target, fitted.start, fitted.seed = target, start, seed
        root = 1.0 if target.weights is None else np.sqrt(target.weights).reshape(len(self.design), -1)
        solution = np.linalg.lstsq(self.design * root, target.values * root, rcond=None)[0]
        fitted.coefficients = self.scale * solution
        self.fits.append(fitted)
        return fitted

    def predict(self, prepared: np.ndarray) -> np.ndarray:
        return prepared @ self.coefficients


def data(n_classes: int = 3, n: int = 80) -> tuple[Views, np.ndarray]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, 4)), rng.integers(0, n_classes, n)
    x[:, 0] += y
    return Views(U=Table.from_numeric(x[:, :2]), S=Table.from_numeric(x[:, 2:])), y


def run(learners: "dict[str, Linear]", **more: Any) -> tuple[list[Any], list[dict[str, float]]]:
    views, y = data()
    history = History()
    settings = {"target": Gradient(), "step": Newton(), "n_rounds": 3, "callbacks": [history], **more}
    loop = StagewiseLoop(CodewordExponential.simplex(3), learners, **settings)
    return loop.run(views, y), history.rounds


def test_a_round_starts_from_the_learners_of_the_round_before() -> None:
    learners = {"U": Linear(), "S": Linear()}
    stages, _ = run(learners)
    for learner in learners.values():
        assert len(learner.fits) == 3
        assert learner.fits[0].start is None
        for before, after in zip(learner.fits, learner.fits[1:]):
            assert after.start is before
        assert len({fitted.seed for fitted in learner.fits}) == 3
    assert [stage.learners["U"] for stage in stages] == learners["U"].fits


@pytest.mark.parametrize("sequential", [False, True])
def test_the_risk_of_a_round_is_that_of_the_scores_after_it(sequential: bool) -> None:
    """With shrinkage: the steps as they were taken, not as they were found."""
    views, y = data()
    loss, f = CodewordExponential.simplex(3), np.zeros((80, 2))
    stages, rounds = run({"U": Linear(), "S": Linear()}, shrinkage=0.4, sequential=sequential)
    for stage, row in zip(stages, rounds, strict=True):
        for name, fitted in stage.learners.items():
            f += stage.steps[name] * fitted.predict(Linear().prepare(views[name]))
        assert row["risk_train"] == pytest.approx(loss.risk(f, y), rel=1e-12)


def test_inner_iterations_go_on_from_the_steps_found() -> None:
    """Algorithm 2: the second fits of a round are to the targets at the steps that the first ones got."""
    views, y = data()
    loss, f = CodewordExponential.simplex(3), np.zeros((80, 2))
    learners = {"U": Linear(), "S": Linear()}
    run(learners, target=SecondOrder(n_inner=3), n_rounds=1)
    targets_at, steps = SecondOrder().targets(loss, f, y, 2), np.array([0.1, 0.1])
    for inner in range(3):
        expected = targets_at(steps)
        fits = [learner.fits[inner] for learner in learners.values()]
        for fitted, target in zip(fits, expected, strict=True):
            np.testing.assert_allclose(fitted.target.values, target.values, rtol=1e-9)
        outputs = [each.predict(Linear().prepare(views[name])) for name, each in zip(learners, fits)]
        steps = Newton().search(loss.line(f, y, outputs), 2, 0)
    assert np.abs(steps - 0.1).min() > 0.01


def test_the_error_of_a_fit_by_hand() -> None:
    values, output = np.array([[1.0, 0.0], [3.0, 1.0]]), np.array([[0.0, 0.0], [1.0, 2.0]])
    assert fit_error(Target(values), output) == pytest.approx((1 + 4 + 1) / 2)
    # weights 1 and 3 are counted as ½ and 3/2, of whatever size they are
    for scale in (1.0, 40.0):
        weighted = Target(values, scale * np.array([1.0, 3.0]))
        assert fit_error(weighted, output) == pytest.approx((0.5 * 1 + 1.5 * 5) / 2)


def test_better_is_lower_for_risks_and_higher_for_scores_and_equal_is_not_better() -> None:
    assert improves({"risk_val": 1.0}, {"risk_val": 2.0}, "risk_val")
    assert not improves({"risk_val": 2.0}, {"risk_val": 1.0}, "risk_val")
    assert improves({"f1_val": 0.5}, {"f1_val": 0.4}, "f1_val")
    assert not improves({"f1_val": 0.4}, {"f1_val": 0.5}, "f1_val")
    for metrics in ({"f1_val": 0.4}, {"f1_val": 0.4, "risk_val": 1.0}):
        assert not improves(metrics, metrics, "f1_val")
    lower, higher = {"f1_val": 0.4, "risk_val": 1.0}, {"f1_val": 0.4, "risk_val": 2.0}
    assert improves(lower, higher, "f1_val") and not improves(higher, lower, "f1_val")


def test_patience_is_counted_from_the_best_round() -> None:
    values = [0.1, 0.3, 0.3, 0.2, 0.4, 0.4, 0.1, 0.0]
    stopping = EarlyStopping("f1_val", 3)
    stopping.on_fit_begin(None)
    asked = [stopping.on_round(Round(k, None, {"f1_val": v}, {})) for k, v in enumerate(values, start=1)]
    assert asked == [False] * 7 + [True]
    assert stopping.best_round == 5


@pytest.mark.parametrize(
    "patience, stops",
    [(3, 13), ((3, 0.0), 13), ((3, 0.2), 13), ((3, 0.5), 15), ((7, 0.5), 17), ((0, 0.35), 14), (None, None)],
)
def test_patience_may_grow_with_the_rounds(patience, stops) -> None:
    stopping = EarlyStopping("risk_val", patience)
    stopping.on_fit_begin(None)
    values = [1.0 / k for k in range(1, 11)] + [1.0] * 10
    rounds = [Round(k, None, {"risk_val": value}, {}) for k, value in enumerate(values, start=1)]
    asked = [round_.index for round_ in rounds if stopping.on_round(round_)]
    assert (asked[0] if asked else None) == stops
    assert stopping.best_round == 10


def test_a_patience_below_nothing_is_refused() -> None:
    for patience in ((-1, 0.2), (3, -0.1), (3, 0.2, 1)):
        refuses("patience", EarlyStopping, "risk_val", patience)


def test_bayes_asks_as_often_as_the_paper_says() -> None:
    """10 random points and 20 guided ones, then the best of them against not moving at all."""

    class Bowl:
        """(step − 3)² + 1, counting."""

        asked = 0

        def risk(self, steps: np.ndarray) -> float:
            self.asked += 1
            return float((steps[0] - 3) ** 2 + 1)

    bowl = Bowl()
    found = Bayes(n_random=4, n_guided=5).search(bowl, 1, seed=0)
    assert bowl.asked == 4 + 5 + 2
    assert 0 <= found[0] <= 10
    assert (Bayes().n_random, Bayes().n_guided) == (10, 20)


def test_a_fixed_step_shrunk_is_taken_shrunk() -> None:
    stages, _ = run({"U": Linear()}, step=Fixed(0.5), shrinkage=0.2, n_rounds=2)
    assert [stage.steps["U"] for stage in stages] == pytest.approx([0.1, 0.1])


def test_gains_that_are_small_together_count_as_rest() -> None:
    """The best round is kept all the same; a risk that falls slowly, but on and on, is no rest."""
    risks = [1.0, 0.5, 0.4, *(0.4 - 1e-6 * k for k in range(1, 30))]
    for least, stopped in ((0.0, None), (1e-3, 8)):
        stopping = EarlyStopping("risk_val", 5, least)
        asked = [stopping.on_round(Round(k, None, {"risk_val": risk}, {})) for k, risk in enumerate(risks, 1)]
        assert (asked.index(True) + 1 if True in asked else None) == stopped
        assert stopping.best_round == len(risks)
    slowly = EarlyStopping("risk_val", 5, 1e-3)
    assert not any(slowly.on_round(Round(k, None, {"risk_val": 1 - 3e-4 * k}, {})) for k in range(1, 200))


X, Y = make_classification(200, 6, random_state=0)


class Each(Callback):
    """Does something after each round."""

    def __init__(self, work) -> None:
        self.work = work

    def on_round(self, round_: Round) -> bool:
        self.work(round_.index)
        return False


def fitted(*callbacks: Callback, rounds: int = 6) -> BoostedNetworkClassifier:
    model = BoostedNetworkClassifier(learner=RegressorLearner(Ridge()), n_rounds=rounds, callbacks=callbacks)
    return model.fit(X, Y)


def press(index: int) -> None:
    if index == 2:
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_keeps_the_rounds_so_far():
    before, said = signal.getsignal(signal.SIGINT), []
    model = fitted(Each(press), Interrupt(lambda: said.append("ends")))
    assert len(model.stages_) == 2 and said == ["ends"]
    np.testing.assert_array_equal(model.predict_proba(X), fitted(rounds=2).predict_proba(X))
    assert signal.getsignal(signal.SIGINT) is before


def test_again_stops_at_once():
    before, within = signal.getsignal(signal.SIGINT), []

    def later(index: int) -> None:
        if index == 2:
            time.sleep(TOGETHER)
            within.append(index)
            press(index)

    with pytest.raises(KeyboardInterrupt):
        fitted(Each(press), Each(later), Interrupt())
    assert signal.getsignal(signal.SIGINT) is before and within == [2]


def test_quick_presses_are_one():
    model = fitted(Each(press), Each(press), Each(press), Interrupt())
    assert len(model.stages_) == 2


def test_a_fit_ends_in_time():
    limit = TimeLimit(0.6)
    model = fitted(Each(lambda index: time.sleep(0.25)), limit, rounds=50)
    assert limit.reached and 1 <= len(model.stages_) <= 2
    assert len(fitted(TimeLimit(0.0)).stages_) == 1  # one round always runs
    limit = TimeLimit(1000.0)
    assert len(fitted(limit).stages_) == 6 and not limit.reached

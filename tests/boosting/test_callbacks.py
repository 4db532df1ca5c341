"""Callbacks that stop a fit: what was fitted so far is kept."""

import os
import signal
import time

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import Ridge

from usboost.boosting.callbacks import TOGETHER, Callback, Interrupt, TimeLimit
from usboost.boosting.rounds import Round
from usboost.learners.estimators import RegressorLearner
from usboost.models.methods.boosted_network import BoostedNetworkClassifier

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


def test_one_round_always_runs_and_time_that_is_not_used_up_stops_nothing():
    assert len(fitted(TimeLimit(0.0)).stages_) == 1
    limit = TimeLimit(1000.0)
    assert len(fitted(limit).stages_) == 6 and not limit.reached

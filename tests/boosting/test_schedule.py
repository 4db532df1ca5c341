"""Learners that change from round to round: what is prepared when, and what a round may see."""

import gc
import weakref
from typing import Any

import numpy as np

from tests.conftest import refuses
from usboost import Table, TreeLearner, Views
from usboost.boosting.callbacks import History
from usboost.boosting.loop import StagewiseLoop
from usboost.boosting.steps import ClosedForm, Newton
from usboost.boosting.targets import Gradient, NewtonTarget
from usboost.learners.base import Target
from usboost.losses.exponential import CodewordExponential
from usboost.losses.regression import Squared


def data(n: int = 120, frames: int = 4, seed: int = 0) -> tuple[Views, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, frames, 2))
    y = (x.sum(axis=(1, 2)) > 0).astype(int)
    return Views({f"frame {t + 1}": Table.from_numeric(x[:, t]) for t in range(frames)}), y


def loop(learners: Any, n_rounds: int = 4, **more: Any) -> StagewiseLoop:
    loss = CodewordExponential.simplex(2)
    return StagewiseLoop(loss, learners, Gradient(), Newton(), n_rounds=n_rounds, **more)


class Watched(TreeLearner):
    """A tree learner that remembers what it prepared, weakly."""

    def __init__(self, max_depth: int = 2, engine: str = "sklearn") -> None:
        super().__init__(max_depth=max_depth, min_samples_leaf=2, engine=engine)
        self.alive: list[weakref.ref] = []
        self.trainers = 0
        self.most_alive = 0

    def prepare(self, view: Any) -> Any:
        prepared = super().prepare(view)
        self.alive.append(weakref.ref(prepared.matrix))
        self.most_alive = max(self.most_alive, sum(ref() is not None for ref in self.alive))
        return prepared

    def trainer(self, prepared: Any, n_outputs: int) -> Any:
        self.trainers += 1
        return super().trainer(prepared, n_outputs)


def test_each_round_has_the_learners_that_the_function_names() -> None:
    views, y = data()
    learner = TreeLearner(engine="sklearn")
    stages = loop(lambda t: {f"frame {t}": learner}).run(views, y)
    assert [list(stage.learners) for stage in stages] == [[f"frame {t}"] for t in (1, 2, 3, 4)]


def test_views_are_prepared_once_in_their_round_and_dropped_after_it() -> None:
    views, y = data(frames=6)
    learner = Watched()
    loop(lambda t: {f"frame {t}": learner}, 6).run(views, y, (views, y))
    assert len(learner.alive) == 12  # six frames of two data sets
    assert learner.trainers == 6
    # this round's and, until they are replaced, the last round's: never all twelve
    assert learner.most_alive <= 4
    gc.collect()
    assert not any(ref() is not None for ref in learner.alive)


def test_a_view_that_stays_is_prepared_once() -> None:
    views, y = data()
    fixed, changing = Watched(), Watched()
    loop(lambda t: {"frame 1": fixed, f"frame {2 + t % 2}": changing}, 4).run(views, y)
    assert (len(fixed.alive), fixed.trainers) == (1, 1)
    assert (len(changing.alive), changing.trainers) == (4, 4)


def test_a_function_of_constant_learners_is_the_mapping() -> None:
    views, y = data()
    learners = {"frame 1": TreeLearner(max_depth=1), "frame 2": TreeLearner(max_depth=2)}
    risks = []
    for given in (learners, lambda t: learners):
        history = History()
        loop(given, 5, callbacks=[history]).run(views, y, (views, y))
        risks.append([(row["risk_train"], row["risk_val"], row["step_frame 1"]) for row in history.rounds])
    assert risks[0] == risks[1]


def test_a_round_sees_no_view_but_its_own() -> None:
    views, y = data()
    learner = TreeLearner(engine="sklearn")
    plain = loop(lambda t: {f"frame {t}": learner}, 2).run(views, y)
    other = views.with_view("frame 3", np.full(len(y), np.nan)).with_view("frame 4", np.zeros(len(y)))
    cut = loop(lambda t: {f"frame {t}": learner}, 2).run(other, y)
    assert [stage.steps for stage in plain] == [stage.steps for stage in cut]


def test_a_method_says_what_is_recorded_of_a_round() -> None:
    views, y = data()
    history = History()
    loop(
        {"frame 1": TreeLearner()},
        3,
        callbacks=[history],
        describe=lambda stage, train, targets, outputs: {
            "alpha": stage.steps["frame 1"],
            "spread": float(np.std(outputs[0])),
            "largest": float(np.abs(train.f).max()),
            "target": float(np.abs(targets[0].values).max()),
        },
    ).run(views, y)
    assert set(history.rounds[0]) >= {"risk_train", "alpha", "spread", "largest", "target"}
    assert not any(name.startswith(("step_", "fit_error")) for name in history.rounds[0])
    assert history.rounds[0]["largest"] < history.rounds[2]["largest"]


class Silent:
    """A learner whose outputs are all zero from a given round on."""

    kind = "silent"

    def __init__(self, until: int) -> None:
        self.until, self.fits = until, 0

    def prepare(self, view: Any) -> Any:
        return view

    def trainer(self, prepared: Any, n_outputs: int) -> "Silent":
        return self

    def fit(self, target: Target, *, seed: int, start: Any) -> "Silent":
        self.fits += 1
        fitted = Silent(self.until)
        noise = np.random.default_rng(seed).normal(size=target.values.shape)
        fitted.values = noise if self.fits < self.until else 0 * noise
        return fitted

    def predict(self, prepared: Any) -> np.ndarray:
        return self.values


def test_a_learner_without_output_is_named_by_its_round() -> None:
    views, _ = data()
    y = np.random.default_rng(1).normal(size=(len(views), 3))
    silent = StagewiseLoop(Squared(3), {"frame 1": Silent(3)}, NewtonTarget(), ClosedForm(), n_rounds=5)
    refuses(r"round 3: .* all zero", silent.run, views, y)


def test_an_unknown_view_of_a_later_round_is_a_clear_error() -> None:
    views, y = data(frames=2)
    refuses("unknown view 'frame 3'", loop(lambda t: {f"frame {t}": TreeLearner()}).run, views, y)

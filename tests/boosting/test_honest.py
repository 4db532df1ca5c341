"""Honest learners: steps are searched on what a learner gives rows that it has not seen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.boosting.test_checkpoint import Dies, Sees, assert_same, outcome
from tests.conftest import make_views
from usboost import Checkpoint, RidgeLearner, Table, TreeLearner, UsboostError, Views
from usboost.boosting.callbacks import History
from usboost.boosting.loop import StagewiseLoop
from usboost.boosting.steps import Newton
from usboost.boosting.targets import Gradient
from usboost.learners.base import Target
from usboost.losses.exponential import CodewordExponential
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier


def wide(n: int = 150, p: int = 120, seed: int = 0, classes: int = 3) -> tuple[Views, np.ndarray]:
    """A table with the label in it, and a wide view of noise."""
    views, y = make_views(classes, n=n, seed=seed)
    noise = np.random.default_rng(seed + 100).normal(size=(n, p)).astype(np.float32)
    return Views(U=Table.from_numeric(noise), S=views["S"]), y


def test_rounds_by_hand() -> None:
    """Leave-one-out outputs make the steps, plain ones the scores."""
    views, y = make_views(3, n=120)
    held, y_held = make_views(3, n=80, seed=1)
    loss, learner, history = CodewordExponential.simplex(3), RidgeLearner(alpha=20.0), History()
    settings: dict[str, Any] = {"target": Gradient(), "step": Newton(), "n_rounds": 3, "shrinkage": 0.7}
    StagewiseLoop(loss, {"S": learner}, callbacks=[history], **settings).run(views, y, (held, y_held))
    f, f_held = np.zeros((120, 2)), np.zeros((80, 2))
    prepared, others = learner.prepare(views["S"]), learner.prepare(held["S"])
    trainer = learner.trainer(prepared, 2)
    for row in history.rounds:
        fitted = trainer.fit(Target(loss.w(f, y)), seed=0)
        output = trainer.outputs(fitted).astype(np.float64)
        assert np.abs(output - fitted.predict(prepared)).max() > 1e-3
        step = 0.7 * Newton().search(loss.line(f, y, [output]), 1, 0)[0]
        f += step * fitted.predict(prepared)
        f_held += step * fitted.predict(others)
        assert row["step_S"] == pytest.approx(step, rel=1e-9)
        assert row["risk_train"] == pytest.approx(loss.risk(f, y), rel=1e-9)
        assert row["risk_val"] == pytest.approx(loss.risk(f_held, y_held), rel=1e-6)


def test_a_learner_that_follows_noise_gets_no_step() -> None:
    """A penalty far too small: as a learner sees it a perfect fit, as it is worth nothing."""
    views, y = wide()
    steps = {}
    for leave_one_out in (False, True):
        learners = {"U": RidgeLearner(alpha=1e-3, leave_one_out=leave_one_out)}
        model = TwoWeakLearnerClassifier(learners, n_rounds=1, validation_fraction=0).fit(views, y)
        steps[leave_one_out] = abs(model.stages_[0].steps["U"])
    assert steps[False] > 1.0 > 0.2 > steps[True]


@pytest.mark.parametrize("target", ["gradient", "newton"])
@pytest.mark.parametrize("loss", ["exponential", "cross_entropy"])
def test_noise_alone_leaves_the_scores_where_they_are(target: str, loss: str) -> None:
    classes = 3 if target == "gradient" else 2
    views, y = wide(200, 300, classes=classes)
    settings: dict[str, Any] = {"n_rounds": 6, "patience": None, "validation_fraction": 0}
    model = TwoWeakLearnerClassifier({"U": RidgeLearner()}, target, loss=loss, **settings).fit(views, y)
    risks = [row["risk_train"] for row in model.history_]
    before = model._loss().risk(np.zeros((200, model._loss().n_outputs)), model._loss().labels(y))
    assert all(0.98 * before < risk < 1.001 * before for risk in risks)
    other = wide(200, 300, seed=3)[0]
    assert np.abs(model.predict_proba(other) - 1 / classes).max() < 0.05


def test_it_takes_no_metric_of_three_classes() -> None:
    views, y = wide(60, 5)
    with pytest.raises(UsboostError, match=r"'U' .* use target 'gradient'"):
        TwoWeakLearnerClassifier({"U": RidgeLearner()}, "newton", n_rounds=1).fit(views, y)


MODEL: dict[str, Any] = {
    "learners": {"U": RidgeLearner(), "S": TreeLearner(min_samples_leaf=5)},
    "n_rounds": 7,
    "patience": None,
    "random_state": 1,
    "shrinkage": 0.5,
}


def model(**changes: Any) -> TwoWeakLearnerClassifier:
    return TwoWeakLearnerClassifier(**{**MODEL, **changes})


@pytest.mark.parametrize("settings", [{}, {"step_fraction": 0.2}, {"sequential": True}, {"target": "newton"}])
@pytest.mark.parametrize("written", [False, True])
def test_it_resumes_bit_for_bit_whenever_it_is_killed(
    tmp_path: Path, settings: dict[str, Any], written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checkpoint, "state_is_due", lambda self: written)
    views, y = wide(200, 20, classes=2 if "target" in settings else 3)
    views = views.with_view("U", views["U"].beside(views["S"]))
    whole = outcome(model(**settings).fit(views, y), views)
    for index in (2, 4):
        with pytest.raises(KeyboardInterrupt):
            model(checkpoint=tmp_path / "kept", callbacks=[Dies(index)], **settings).fit(views, y)
    sees = Sees()
    resumed = model(checkpoint=tmp_path / "kept", callbacks=[sees], **settings).fit(views, y)
    assert (sees.old, sees.new) == ([1, 2, 3, 4], [5, 6, 7])
    assert_same(outcome(resumed, views), whole)

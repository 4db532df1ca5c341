"""Views that some rows lack: their learner is fitted to the others, and adds exactly 0 to these."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import make_views, refuses, reloaded
from usboost import NetworkLearner, RidgeLearner, Table, TreeLearner, Views
from usboost.boosting.loop import StagewiseLoop
from usboost.boosting.steps import Newton
from usboost.boosting.targets import Gradient
from usboost.learners.base import Learner, PresentRows, PresentTrainer, Target, predict, prepare, weighted_sum
from usboost.losses.exponential import CodewordExponential
from usboost.models.inspection.inspect import view_contributions, view_importance
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier

LEARNERS: dict[str, Learner] = {
    "ridge": RidgeLearner(),
    "tree": TreeLearner(min_samples_leaf=3),
    "network": NetworkLearner((4,), batch_size=32, device="cpu"),
}


def lacking(n: int = 240, share: float = 0.3, seed: int = 0) -> tuple[Views, np.ndarray, np.ndarray]:
    """Views, labels, and which rows lack U: what it holds there is beyond everything."""
    views, y = make_views(3, n=n, seed=seed)
    absent = np.random.default_rng(seed + 50).random(n) < share
    return views.with_view("U", without(views["U"], absent)), y, absent


def without(table: Table, absent: np.ndarray) -> Table:
    numeric = np.where(absent[:, None], np.float32(1e30), table.numeric)
    return replace(table, numeric=numeric, absent=absent)


def model(learner: Learner, **changes: Any) -> TwoWeakLearnerClassifier:
    learners = {"U": learner, "S": TreeLearner(max_depth=2)}
    given = {"n_rounds": 4, "patience": None, "validation_fraction": 0.2, **changes}
    return TwoWeakLearnerClassifier(learners, **given)


@pytest.mark.parametrize("name", LEARNERS)
def test_rows_without_a_view_are_the_other_learners_alone(name: str, tmp_path: Path) -> None:
    views, y, absent = lacking()
    fitted = model(LEARNERS[name]).fit(views, y)
    alone = {"S": TreeLearner().prepare(views["S"])}
    expected = np.zeros((240, 3))
    for stage in fitted.stages_:
        expected += np.float64(stage.steps["S"]) * stage.learners["S"].predict(alone["S"])
    *_, staged = fitted._staged_f(views)
    np.testing.assert_array_equal(staged[absent], expected[absent])
    np.testing.assert_allclose(fitted._f(views)[absent], expected[absent], rtol=1e-6)
    assert np.abs(staged[~absent] - expected[~absent]).max(axis=1).min() > 0
    read = reloaded(fitted, tmp_path / "model")
    np.testing.assert_array_equal(read.predict_proba(views), fitted.predict_proba(views))
    few = views[np.flatnonzero(absent)[:3]]
    np.testing.assert_allclose(read.predict_proba(few), fitted.predict_proba(views)[absent][:3], rtol=1e-6)
    assert list(read.staged_predict(few))[-1].tolist() == read.predict(few).tolist()
    assert view_importance(fitted, views, y, 1)["mean"].notna().all()
    assert (view_contributions(fitted, few).query("view == 'U'")["contribution"] == 0).all()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(sorted(LEARNERS)), st.sampled_from(["none", "out", "weights"]))
def test_a_learner_is_that_of_the_rows_that_have_its_view(data: st.DataObject, name: str, kind: str) -> None:
    learner, n = LEARNERS[name], 40
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    masks = st.lists(st.booleans(), min_size=n, max_size=n).filter(lambda mask: sum(mask) < 30)
    absent = np.array(data.draw(masks))
    table = make_views(2, n=n)[0]["U"]
    target = Target(
        rng.normal(size=(n, 2)),
        rng.uniform(0.1, 1, n) if kind == "weights" else None,
        rng.random(n) < 0.3 if kind == "out" else None,
    )
    prepared = prepare(learner, without(table, absent))
    made = PresentTrainer(learner, prepared, 2)
    fitted = made.fit(target, seed=3, start=None)
    rest = table[~absent]
    alone = PresentTrainer(learner, prepare(learner, rest), 2)
    expected = alone.fit(target.of(np.flatnonzero(~absent)), seed=3, start=None)
    outputs = predict(expected, learner.prepare(rest), 2)
    np.testing.assert_array_equal(predict(fitted, prepared, 2)[~absent], outputs)
    given = [predict(fitted, prepared, 2), made.predict(fitted)]
    if made.leave_one_out:
        given.append(made.outputs(fitted))
        np.testing.assert_array_equal(given[-1][~absent], alone.outputs(expected))
    for found in given:
        assert found.shape == (n, 2) and found.dtype == np.float32 and not found[absent].any()
    summed = weighted_sum([fitted, fitted], [1.0, 0.5], prepared, 2)
    assert summed.dtype == np.float64 and not summed[absent].any()
    np.testing.assert_allclose(summed[~absent], 1.5 * outputs, rtol=1e-5, atol=1e-6)


def test_a_fit_is_that_of_the_rows_that_have_the_view_where_there_is_no_other() -> None:
    views, y, absent = lacking()
    settings: dict[str, Any] = {"n_rounds": 3, "patience": None, "validation_fraction": 0}
    learners = {"U": TreeLearner(max_depth=2)}
    with_them = TwoWeakLearnerClassifier(learners, **settings).fit(views, y)
    alone = TwoWeakLearnerClassifier(learners, **settings).fit(views[~absent], y[~absent])
    for mine, other in zip(with_them.stages_, alone.stages_, strict=True):
        # rows without a direction do not move the lowest point of the risk
        assert mine.steps["U"] == pytest.approx(other.steps["U"], rel=1e-4)
    np.testing.assert_allclose(
        with_them.predict_proba(views[~absent]), alone.predict_proba(views[~absent]), rtol=1e-4
    )


@pytest.mark.parametrize("sequential", [False, True])
def test_with_steps_on_other_rows(sequential: bool) -> None:
    """Two rows have the view: in some rounds both are among those drawn for the steps."""
    views, y = make_views(2, n=60)
    absent = np.arange(60) > 1
    views = views.with_view("U", without(views["U"], absent))
    learners = {"U": RidgeLearner(), "S": TreeLearner(max_depth=1)}
    loop = StagewiseLoop(
        CodewordExponential.simplex(2),
        learners,
        Gradient(),
        Newton(),
        n_rounds=12,
        step_fraction=0.5,
        sequential=sequential,
    )
    assert any(loop._draw(k, list(learners), 60).held_out[:2].all() for k in range(1, 13))
    stages = loop.run(views, y, (views[30:], y[30:]))
    assert all(np.isfinite(list(stage.steps.values())).all() for stage in stages)


def test_a_view_that_no_training_row_has() -> None:
    views, y, _ = lacking()
    views = views.with_view("U", without(views["U"], np.ones(240, dtype=bool)))
    refuses("learner 'U': no training row has its view", model(RidgeLearner()).fit, views, y)


def test_an_absent_row_of_none_is_no_absent_row() -> None:
    table = make_views()[0]["U"]
    learner = TreeLearner()
    assert not isinstance(prepare(learner, replace(table, absent=np.zeros(300, dtype=bool))), PresentRows)
    refuses("absent must be 300 booleans", replace, table, absent=np.zeros(3, dtype=bool))


def test_side_by_side_it_is_a_column(tmp_path: Path) -> None:
    """A tree that reads both tables knows that a row lacks one; what that holds there does not count."""
    views, y, absent = lacking(400)
    y = np.where(absent, 2, y % 2)
    learners = {"both": TreeLearner(reads=("S", "U")), "U": TreeLearner()}
    model = TwoWeakLearnerClassifier(learners, n_rounds=3, patience=None, validation_fraction=0).fit(views, y)
    assert model.columns_["both"] == ("x0", "x1", "x2", "x0", "x1", "x2", "U_missing", "x3", "x4", "x3", "x4")
    assert model.reading_.absent == ("U",)
    assert (model.predict(views) == y)[absent].all()
    np.testing.assert_array_equal(model.reading_(views)["both"].numeric[:, 6], absent.astype(np.float32))
    read = reloaded(model, tmp_path / "model")
    whole = model.predict_proba(views)
    np.testing.assert_array_equal(read.predict_proba(views), whole)
    sevens = np.where(absent[:, None], np.float32(7), views["U"].numeric)
    other = views.with_view("U", replace(views["U"], numeric=sevens))
    np.testing.assert_array_equal(read.predict_proba(other), whole)
    # rows that all have it need not say so
    there = Views(U=replace(views["U"][~absent], absent=None), S=views["S"][~absent])
    np.testing.assert_allclose(read.predict_proba(there), whole[~absent], rtol=1e-12)
    # a model that has seen no absent row has no such column, whoever lacks the view later
    plain = TwoWeakLearnerClassifier(learners, n_rounds=2, validation_fraction=0).fit(there, y[~absent] % 2)
    assert plain.reading_.absent == () and len(plain.columns_["both"]) == 10
    assert plain.predict(views).shape == (400,)

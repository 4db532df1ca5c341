"""The library against the method in one page: the same learners, rounds and steps give the same model."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.tables import two
from usboost import NetworkLearner, TreeLearner, TwoWeakLearnerClassifier
from usboost.boosting.steps import Newton
from usboost.losses.exponential import CodewordExponential

PAGE = Path(__file__).parents[2] / "examples/nano.py"
nano = SimpleNamespace(**runpy.run_path(str(PAGE)))
ROUNDS, SEED = 12, 5


def test_it_is_one_page_and_stands_alone() -> None:
    lines = PAGE.read_text().splitlines()
    assert len(lines) <= 150
    assert not [line for line in lines if "import" in line and "usboost" in line]


def test_the_librarys_rounds_are_the_pages() -> None:
    """Risk, steps and scores of every round; the network's arithmetic is float32, hence the tolerance."""
    (U, S, c), (U_new, S_new, _) = nano.make_data(600, seed=0), nano.make_data(300, seed=1)
    network = NetworkLearner((32,), "sgd", learning_rate=0.2, batch_size=32, epochs=4, device="cpu")
    tree = TreeLearner(max_depth=3, min_samples_leaf=20, engine="sklearn")
    model = TwoWeakLearnerClassifier(
        {"U": network, "S": tree}, n_rounds=ROUNDS, validation_fraction=0, random_state=SEED
    ).fit(two(U, S), c)
    assert len(model.history_) == model.best_round_ == ROUNDS
    f = np.zeros((len(U_new), 4))
    staged = model.staged_predict(two(U_new, S_new))
    for row, answers, (g, h, epsilon, delta, risk) in zip(
        model.history_, staged, nano.boost(U, S, c, ROUNDS, seed=SEED)
    ):
        assert row["risk_train"] == pytest.approx(risk, rel=1e-6)
        assert (row["step_U"], row["step_S"]) == pytest.approx((epsilon, delta), rel=1e-4)
        f += epsilon * g(U_new) + delta * h(S_new)
        np.testing.assert_array_equal(answers, f.argmax(axis=1))
    np.testing.assert_allclose(model.decision_function(two(U_new, S_new)), f, atol=1e-4)


def test_its_formulas_are_the_losses() -> None:
    rng = np.random.default_rng(0)
    f, g, h = rng.normal(size=(3, 50, 4))
    c, loss = rng.integers(0, 4, 50), CodewordExponential.unit(4)
    assert nano.risk(f, c) == pytest.approx(loss.risk(f, c), rel=1e-12)
    np.testing.assert_allclose(nano.negative_gradient(f, c), loss.w(f, c), atol=1e-12)
    steps = nano.best_steps(f, g, h, c)
    np.testing.assert_allclose(steps, Newton().search(loss.line(f, c, [g, h]), 2, 0), atol=1e-6)
    for away in ([1e-3, 0], [-1e-3, 0], [0, 1e-3], [0, -1e-3]):
        epsilon, delta = steps + away
        assert nano.risk(f + epsilon * g + delta * h, c) > nano.risk(f + steps[0] * g + steps[1] * h, c)

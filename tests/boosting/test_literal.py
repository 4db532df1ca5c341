"""The fast path against the paper done literally, on small data: targets, trees, networks, steps, F1."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeRegressor
from torch import nn

from benchmarks.speed.literal import LiteralBoosting, dense, leaf_values
from tests.conftest import make_views, refuses
from usboost import BoostedFeatures, NetworkLearner, Table, TreeLearner, Views
from usboost.boosting.steps import Bayes
from usboost.learners.base import Target
from usboost.learners.networks.inputs import initialise, table_network
from usboost.losses.base import simplex_codewords
from usboost.losses.exponential import CodewordExponential
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor


def fixed(steps):
    return lambda risk, index: steps


def coarse(table):
    """Few distinct numbers, no categories: LightGBM's bins then hold every split scikit-learn can make."""
    numbers = np.concatenate([np.round(table.numeric), table.codes], axis=1)
    return Table.from_numeric(numbers)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("order", ["gradient", "second_order"])
def test_boosted_trees_are_the_literal_ones(n_classes, order):
    """Exact trees give the paper's margins with equal steps; for two classes in one coordinate, not two."""
    views, y = make_views(n_classes, n=300)
    second = order == "second_order"
    literal = LiteralBoosting(n_classes, second, search=fixed([0.7]), views="S", min_samples_leaf=5)
    literal.fit(np.zeros((300, 1), np.float32), views["S"].matrix(), y, 6)
    model = TwoWeakLearnerClassifier(
        {"S": TreeLearner(engine="sklearn", min_samples_leaf=5)},
        target=order,
        step="fixed",
        step_settings={"value": 0.7},
        n_rounds=6,
        validation_fraction=0,
    ).fit(views, y)
    loss = model._loss()
    expected = literal.decision_function(np.zeros((300, 1), np.float32), views["S"].matrix())
    got = loss.scores(model._f(views))
    np.testing.assert_allclose(got - got[:, :1], expected - expected[:, :1], rtol=1e-5, atol=1e-6)
    assert model.history_[-1]["risk_train"] == pytest.approx(literal.risk(literal.f_, y))


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "highest"), [(2, 100.0), (3, 1.5)])
def test_the_inner_loop_is_algorithm_2s(n_classes, highest):
    """N₂ = 3, Bayesian steps of equal evaluations: ε_{j+1} is fed back, the best j kept."""
    views, y = make_views(n_classes, n=200)
    rule = Bayes(n_random=2, n_guided=1, bounds=(0.0, highest))

    class Along:
        def __init__(self, risk):
            self.risk = risk

    def search(risk, index, inner):
        step_seed = np.random.SeedSequence((5, index)).generate_state(3).tolist()[1]
        return rule.search(Along(risk), 1, (step_seed + inner) % 2**32)

    codewords = simplex_codewords(2) if n_classes == 2 else None
    literal = LiteralBoosting(
        n_classes, True, codewords=codewords, n_inner=3, search=search, views="S", min_samples_leaf=5
    )
    literal.fit(np.zeros((200, 1), np.float32), views["S"].matrix(), y, 3)
    model = TwoWeakLearnerClassifier(
        {"S": TreeLearner(engine="sklearn", min_samples_leaf=5)},
        target="second_order",
        n_inner=3,
        step=rule,
        n_rounds=3,
        validation_fraction=0,
        random_state=5,
    ).fit(views, y)
    steps = [stage.steps["S"] for stage in model.stages_]
    np.testing.assert_allclose(steps, [taken[0] for _, _, taken in literal.stages_], rtol=1e-4)
    np.testing.assert_allclose(model._f(views), literal.f_, rtol=1e-4, atol=1e-6)
    # above ε = 2 the published target turns round, so within wide bounds the first fit stays the best
    assert any(j for j, _ in literal.kept_) == (highest < 2)


def test_lightgbms_tree_fits_as_well_as_the_exact_one():
    """Where bins hold all splits, the squared error is the exact tree's, round after round."""
    views, y = make_views(2, n=400)
    table, loss = coarse(views["S"]), CodewordExponential.simplex(2)
    learner = TreeLearner(min_samples_leaf=10)
    prepared = learner.prepare(table)
    trainer = learner.trainer(prepared, 1)
    literal = LiteralBoosting(2, search=fixed([1.0]), views="S", min_samples_leaf=10)
    empty = np.zeros((400, 1), np.float32)
    for rounds in range(5):
        literal.fit(empty, table.matrix(), y, rounds)
        w = loss.w(0.5**0.5 * np.diff(literal.f_, axis=1), y)
        exact = DecisionTreeRegressor(max_depth=3, min_samples_leaf=10).fit(table.matrix(), w)
        ours = trainer.fit(Target(w), seed=0).predict(prepared)
        error = np.square(w[:, 0] - exact.predict(table.matrix())).sum()
        assert np.square(w - ours).sum() <= error * (1 + 1e-5)


def dense_twin(spec, widths, seed):
    """The network with one dense first layer: the same function of one-hot inputs."""
    network = table_network(spec, widths)
    initialise(network, seed)
    first = nn.Linear(spec["n_numeric"] + sum(spec["cardinalities"]), widths[0])
    with torch.no_grad():
        first.weight.copy_(torch.cat([network[0].weight, network[0].lookup.T], dim=1))
        first.bias.copy_(network[0].bias)
    return nn.Sequential(first, *network[1:])


def test_networks_and_trees_together_are_the_literal_ones():
    """2WL for two classes with the same initial weights, batches and steps."""
    views, y = make_views(2, n=300)
    seeds = [np.random.SeedSequence((5, index)).generate_state(3).tolist() for index in range(5)]
    spec = {"n_numeric": views["U"].n_numeric, "cardinalities": list(views["U"].cardinalities)}

    def order(index, n):
        generator = torch.Generator().manual_seed(seeds[index][0])
        return torch.randperm(n, generator=generator).tolist()

    literal = LiteralBoosting(
        2,
        codewords=simplex_codewords(2),
        hidden=(8, 4),
        batch_size=64,
        min_samples_leaf=5,
        search=fixed([0.5, 0.5]),
        network=lambda index: dense_twin(spec, [8, 4, 1], seeds[index][0]),
        orders=order,
    ).fit(dense(views["U"]), views["S"].matrix(), y, 4)
    model = TwoWeakLearnerClassifier(
        {
            "U": NetworkLearner(hidden=(8, 4), batch_size=64, device="cpu"),
            "S": TreeLearner(engine="sklearn", min_samples_leaf=5),
        },
        step="fixed",
        step_settings={"value": 0.5},
        n_rounds=4,
        validation_fraction=0,
        random_state=5,
    ).fit(views, y)
    got = model._f(views)
    np.testing.assert_allclose(got, literal.f_, rtol=1e-3, atol=1e-3)


def test_leaf_values_are_the_loops():
    views, y = make_views(3, n=200)
    features = BoostedFeatures(n_trees=4, engine="sklearn").fit(views["S"], y)
    paper = GradientBoostingClassifier(n_estimators=4, max_depth=3, min_samples_leaf=20, random_state=0).fit(
        views["S"].matrix(), y
    )
    np.testing.assert_allclose(
        features.transform(views["S"]), leaf_values(paper, views["S"].matrix()), rtol=1e-4, atol=1e-5
    )


# Friedman's algorithms (2001), with exact trees.


ROUNDS, SHRINKAGE = 12, 0.3


def waves() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    # one column: where two columns' splits gain the same, scikit-learn draws lots
    X = np.round(rng.normal(size=(201, 1)), 2)
    return X, 50 + 9 * np.sin(3 * X[:, 0]) + 4 * rng.standard_t(2, size=201)


def tree_boost(X: np.ndarray, y: np.ndarray, start: float, pseudo: Callable, best: Callable) -> np.ndarray:
    """TreeBoost: F = F + ν Σ_j γ_j 1(x in R_j), regions by least squares, γ_j the loss's own constant."""
    f = np.full(len(y), start)
    for _ in range(ROUNDS):
        tree = DecisionTreeRegressor(max_depth=3, min_samples_leaf=5, random_state=0)
        leaf = tree.fit(X.astype(np.float32), pseudo(y - f)).apply(X.astype(np.float32))
        for j in np.unique(leaf):
            f[leaf == j] += SHRINKAGE * best((y - f)[leaf == j])
    return f


def lower_quantile(alpha: float) -> Callable[[np.ndarray], float]:
    return lambda r: np.quantile(r, alpha, method="inverted_cdf")


CASES: dict[str, tuple[dict[str, Any], Callable, Callable, Callable]] = {
    "squared": ({"loss": "squared"}, np.mean, lambda r: r, np.mean),
    "absolute": ({"loss": "absolute"}, lower_quantile(0.5), np.sign, lower_quantile(0.5)),
    "quantile": (
        {"loss": "quantile", "quantile": 0.8},
        lower_quantile(0.8),
        lambda r: np.where(r > 0, 0.8, np.where(r < 0, -0.2, 0.0)),
        lower_quantile(0.8),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_boosted_trees_are_friedmans(name: str) -> None:
    settings, start, pseudo, best = CASES[name]
    X, y = waves()
    model = TwoWeakLearnerRegressor(
        {"S": TreeLearner(engine="sklearn", min_samples_leaf=5)},
        step="fixed",
        step_settings={"value": SHRINKAGE},
        n_rounds=ROUNDS,
        validation_fraction=0,
        **settings,
    ).fit(Views(S=Table.from_numeric(X)), y)
    found = model.predict(Views(S=Table.from_numeric(X)))
    expected = tree_boost(X, y, start(y), pseudo, best)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    staged = list(model.staged_predict(Views(S=Table.from_numeric(X))))
    assert len(staged) == ROUNDS
    np.testing.assert_allclose(staged[-1], found, rtol=1e-6)


def test_the_exact_step_of_refitted_leaves_is_one() -> None:
    """Each leaf is at its lowest point already, so no common factor of the leaves lowers the risk."""
    X, y = waves()
    model = TwoWeakLearnerRegressor(
        {"S": TreeLearner(min_samples_leaf=5)}, loss="absolute", n_rounds=3, validation_fraction=0
    ).fit(Views(S=Table.from_numeric(X)), y)
    np.testing.assert_allclose([row["step_S"] for row in model.history_], 1.0, rtol=1e-5)


# Cross-entropy.


def boosted(**changes) -> TwoWeakLearnerClassifier:
    trees = {view: TreeLearner(max_depth=2, min_samples_leaf=5) for view in ("U", "S")}
    given = {"learners": trees, "target": "newton", "loss": "cross_entropy", "n_rounds": 8}
    return TwoWeakLearnerClassifier(**{**given, "validation_fraction": 0, "patience": None, **changes})


def test_one_view_with_fixed_steps_is_logitboost():
    """Friedman, Hastie and Tibshirani's Algorithm 3, with F = f/√2 in our one coordinate of two classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] ** 2 + 0.5 * rng.normal(size=200) > 0.5).astype(int)
    stumps = {"S": TreeLearner(max_depth=1, min_samples_leaf=1, engine="sklearn")}
    fitted = boosted(learners=stumps, step="fixed", step_settings={"value": 1.0}, n_rounds=5)
    fitted.fit(Views(S=Table.from_numeric(x)), y)
    score = np.zeros(len(y))  # half the log-odds
    for _ in range(5):
        p = 1 / (1 + np.exp(-2 * score))
        weight = p * (1 - p)
        stump = DecisionTreeRegressor(max_depth=1).fit(x, (y - p) / weight, sample_weight=weight)
        score += 0.5 * stump.predict(x)
    expected = 1 / (1 + np.exp(-2 * score))
    found = fitted.predict_proba(Views(S=Table.from_numeric(x)))[:, 1]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("target", ["newton", "gradient"])
def test_the_risk_is_the_log_loss_and_never_rises(two_views, n_classes, target):
    views, y = two_views(n_classes)
    fitted = boosted(target=target).fit(views, y)
    risks = [row["risk_train"] for row in fitted.history_]
    assert np.all(np.diff(risks) <= 1e-12)
    assert risks[0] < np.log(n_classes)
    assert risks[-1] == pytest.approx(log_loss(y, fitted.predict_proba(views)))


def test_labels_that_trees_separate_do_not_end_the_fit(two_views):
    views, _ = two_views(2)
    fitted = boosted(n_rounds=5).fit(views, views["S"].numeric[:, 0] > 0)
    assert len(fitted.stages_) == 5
    assert (fitted.predict(views) == (views["S"].numeric[:, 0] > 0)).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"loss": "hinge"}, "unknown loss kind 'hinge'"), ({"target": "second_order"}, "needs w_tilde")],
)
def test_mistakes_get_one_sentence(two_views, changes, said):
    views, y = two_views(2)
    refuses(said, boosted(**changes).fit, views, y)

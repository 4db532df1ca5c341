"""The stagewise loop: a round by hand, the papers' algorithms done literally, stopping and failing."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.tree import DecisionTreeRegressor

from tests.conftest import make_views, reloaded
from usboost import Images, NetworkLearner, Table, TreeLearner, UsboostError, Views
from usboost.boosting.callbacks import History
from usboost.boosting.loop import StagewiseLoop, bounded
from usboost.boosting.steps import Fixed, Newton
from usboost.boosting.targets import Gradient, NewtonDirection, SecondOrder
from usboost.learners.base import Target
from usboost.learners.networks.backbones import Backbone, embedded
from usboost.losses.exponential import CodewordExponential
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier


def two_views(n_classes, n=400, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    z = x[:, 0] + np.sin(2 * x[:, 3]) + x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=n)
    y = np.digitize(z, np.quantile(z, np.linspace(0, 1, n_classes + 1)[1:-1]))
    return Views(U=Table.from_numeric(x[:, :3]), S=Table.from_numeric(x[:, 3:])), y


def stump(**changes):
    return TreeLearner(**{"max_depth": 1, "min_samples_leaf": 1, "engine": "sklearn", **changes})


def test_a_round_by_hand():
    """Four samples, one stump a side: w = ±½·(√2/2)·… worked out on paper.

    f = 0, so e = 1 and w = ½(y_i − y^k): in the one coordinate of two classes, ±½·√2 = ±0.7071.
    U splits the classes but for sample 3, S but for sample 0, so each leaf is a mean of those.
    """
    u = np.array([[0.0], [0.0], [1.0], [0.0]], dtype=np.float32)
    s = np.array([[1.0], [0.0], [1.0], [1.0]], dtype=np.float32)
    y = np.array([0, 0, 1, 1])
    loop = StagewiseLoop(
        CodewordExponential.simplex(2), {"U": stump(), "S": stump()}, Gradient(), Fixed(0.1), n_rounds=1
    )
    (stage,) = loop.run(Views(U=Table.from_numeric(u), S=Table.from_numeric(s)), y)
    w = np.sqrt(2) / 2
    learner = loop.learners["U"]
    g = stage.learners["U"].predict(learner.prepare(Table.from_numeric(u)))[:, 0]
    h = stage.learners["S"].predict(learner.prepare(Table.from_numeric(s)))[:, 0]
    np.testing.assert_allclose(g, [-w / 3, -w / 3, w, -w / 3], rtol=1e-6)
    np.testing.assert_allclose(h, [w / 3, -w, w / 3, w / 3], rtol=1e-6)
    assert stage.steps == {"U": 0.1, "S": 0.1}
    # margins ⟨f, y − y^k⟩ = √2 f for class 1 and −√2 f for class 0
    f = 0.1 * (g + h)
    expected = 1 + np.mean(np.exp(-0.5 * np.sqrt(2) * np.where(y == 1, f, -f)))
    history = History()
    loop.callbacks = [history]
    loop.run(Views(U=Table.from_numeric(u), S=Table.from_numeric(s)), y)
    assert history.rounds[0]["risk_train"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("order", ["first", "second"])
def test_the_loop_is_the_papers_algorithm_done_literally(n_classes, order):
    """Algorithms 1 and 2 in plain numpy: unit codewords in R^M, scikit-learn trees, fixed steps."""
    views, y = two_views(n_classes)
    unit = np.eye(n_classes)
    f = np.zeros((len(y), n_classes))
    for _ in range(5):
        e = np.exp(-0.5 * (f[np.arange(len(y)), y][:, None] - f))
        difference = unit[y][:, None, :] - unit[None, :, :]
        w = 0.5 * np.einsum("nk,nkd->nd", e, difference)
        tilde = np.einsum("nk,nkd->nd", np.sqrt(e), difference)
        target = w if order == "first" else 0.1 * w - 0.01 / 4 * tilde - 0.01 / 2 * w
        for name in ("U", "S"):
            x = views[name].numeric
            tree = DecisionTreeRegressor(max_depth=2, min_samples_leaf=5, random_state=0).fit(x, target)
            f = f + 0.1 * tree.predict(x)
    model = TwoWeakLearnerClassifier(
        {name: stump(max_depth=2, min_samples_leaf=5) for name in ("U", "S")},
        target="gradient" if order == "first" else "second_order",
        step="fixed",
        step_settings={"value": 0.1},
        n_rounds=5,
        validation_fraction=0,
    ).fit(views, y)
    scores = model._loss().scores(list(model._staged_f(views))[-1])
    np.testing.assert_allclose(
        scores - scores.mean(axis=1, keepdims=True), f - f.mean(axis=1, keepdims=True), atol=1e-5
    )
    assert (scores.argmax(axis=1) == f.argmax(axis=1)).mean() > 0.995


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("target", [Gradient(), SecondOrder(n_inner=2), NewtonDirection()])
def test_searched_steps_never_raise_the_risk(n_classes, target):
    views, y = two_views(n_classes)
    history = History()
    loop = StagewiseLoop(
        CodewordExponential.simplex(n_classes),
        {"U": NetworkLearner(hidden=(8,), batch_size=64), "S": TreeLearner(max_depth=2)},
        target,
        Newton(),
        n_rounds=8,
        callbacks=[history],
    )
    stages = loop.run(views, y)
    risks = [n_classes, *(row["risk_train"] for row in history.rounds)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(risks))
    assert risks[-1] < 0.9 * n_classes
    assert len(stages) == 8


def test_reported_risk_and_scores_are_those_of_the_stages():
    views, y = two_views(3)
    held, y_held = two_views(3, seed=1)
    model = TwoWeakLearnerClassifier(
        {"U": NetworkLearner(hidden=(8,), batch_size=64), "S": TreeLearner(max_depth=2)},
        n_rounds=6,
        patience=None,
        shrinkage=0.5,
    ).fit(views, y, (held, y_held))
    model.n_rounds_run_ = 6
    best = model.history_[model.best_round_ - 1]
    f = list(model._staged_f(held))[-1]
    assert model._loss().risk(f, y_held) == pytest.approx(best["risk_val"], rel=1e-6)
    assert model.score(held, y_held) == pytest.approx(best["accuracy_val"])
    assert best["f1_val"] == max(row["f1_val"] for row in model.history_)
    staged = list(model.staged_predict(held))
    assert len(staged) == model.best_round_ == model.n_estimators_
    np.testing.assert_array_equal(staged[-1], model.predict(held))


def test_inner_iterations_keep_the_best():
    views, y = two_views(2)

    def risk_after(n_inner):
        model = TwoWeakLearnerClassifier(
            {"U": stump(), "S": stump()}, "second_order", n_inner, n_rounds=1, validation_fraction=0
        )
        return model.fit(views, y).history_[0]["risk_train"]

    assert risk_after(4) <= risk_after(1) + 1e-12


@pytest.mark.parametrize(
    ("labels", "views", "said"),
    [
        (np.zeros(50), None, "two classes are needed"),
        (np.zeros(49), None, "one label for each of the 50 rows"),
        (None, {"learners": {"missing": stump()}}, "unknown view 'missing'"),
        (None, {"target": "third"}, "no target rule"),
        (None, {"step": "golden"}, "unknown step rule"),
    ],
)
def test_mistakes_get_one_sentence(labels, views, said):
    data, y = two_views(2, n=50)
    with pytest.raises(UsboostError, match=said):
        TwoWeakLearnerClassifier(**{"learners": {"S": stump()}, **(views or {})}).fit(
            data, y if labels is None else labels
        )


def sequence_of(views, y, **changes):
    settings = {"loss": CodewordExponential.simplex(3), "target": Gradient(), "step": Newton(), "n_rounds": 4}
    return StagewiseLoop(**{**settings, **changes}).run(views, y)


def test_one_after_another_is_rounds_of_one_view_each():
    """Tree on S, then tree on U on what is left: two rounds of one learner for each of one after another."""
    views, y = make_views(3, n=200)
    trees = {name: TreeLearner(min_samples_leaf=5) for name in ("S", "U")}
    together = sequence_of(views, y, learners=trees, sequential=True)

    def in_turn(index):
        name = "US"[index % 2]
        return {name: trees[name]}

    apart = sequence_of(views, y, n_rounds=8, learners=in_turn)
    for index, stage in enumerate(together):
        for offset, name in enumerate(("S", "U")):
            alone = apart[2 * index + offset]
            assert stage.steps[name] == pytest.approx(alone.steps[name], rel=1e-6)
            for mine, other in zip(stage.learners[name].trees, alone.learners[name].trees):
                np.testing.assert_allclose(mine.value, other.value, rtol=1e-4, atol=1e-6)


def test_steps_on_samples_that_learners_did_not_see():
    views, y = make_views(2, n=300)
    coarse = Table.from_numeric(views["S"].numeric.round())
    views, loss = Views(S=coarse), CodewordExponential.simplex(2)
    learner = TreeLearner(min_samples_leaf=1, max_depth=2)
    settings = {"loss": loss, "learners": {"S": learner}, "step_fraction": 0.3, "n_rounds": 3, "seed": 4}
    stages = sequence_of(views, y, **settings)
    loop = StagewiseLoop(target=Gradient(), step=Newton(), **settings)
    f = np.zeros((300, 1))
    masks = []
    for index, stage in enumerate(stages, start=1):
        held = loop._draw(index, ["S"], 300).held_out
        masks.append(held)
        assert held.sum() == 90
        seen = learner.prepare(coarse[~held])
        expected = learner.trainer(seen, 1).fit(Target(loss.w(f, y)[~held]), seed=0)
        np.testing.assert_allclose(
            stage.learners["S"].predict(seen), expected.predict(seen), rtol=1e-3, atol=1e-5
        )
        output = stage.learners["S"].predict(learner.prepare(coarse)).astype(np.float64)
        line = loss.line(f[held], y[held], [output[held]])
        assert stage.steps["S"] == pytest.approx(Newton().search(line, 1, 0)[0], rel=1e-6)
        f += stage.steps["S"] * output
    assert not np.array_equal(masks[0], masks[1])


def test_a_tree_beside_images_reads_their_frozen_embeddings(tmp_path):
    """The label is whether brightness and a number agree: no sum of two functions says so."""
    rng = np.random.default_rng(0)
    bright, number = rng.integers(0, 2, 600), rng.normal(size=600).astype(np.float32)
    pixels = rng.integers(0, 60, (600, 1, 8, 8)).astype(np.uint8) + (
        100 * bright[:, None, None, None]
    ).astype("u1")
    views = Views(U=Images(pixels), S=Table.from_numeric(number[:, None]))
    y = (bright == (number > 0)).astype(int)
    backbone = Backbone("small_cnn", False, "all", random=True)
    network = NetworkLearner((4,), backbone=backbone, device="cpu")
    learners = {"U": network, "both": TreeLearner(reads=("S", "U"))}
    settings = {"n_rounds": 20, "patience": None, "validation_fraction": 0}
    model = TwoWeakLearnerClassifier(learners, **settings).fit(views[:400], y[:400])
    assert np.mean(model.predict(views[400:]) == y[400:]) > 0.85
    apart = TwoWeakLearnerClassifier({"U": learners["U"], "S": TreeLearner()}, **settings)
    assert np.mean(apart.fit(views[:400], y[:400]).predict(views[400:]) == y[400:]) < 0.65
    table = embedded(views["U"], backbone, torch.device("cpu"))
    assert model.columns_["both"] == ("x0", *table.names)
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(views), model.predict_proba(views))


class _Far:
    """A step rule that knows nothing of the risk."""

    def search(self, line, n_steps, seed):
        return np.full(n_steps, 64.0)


def test_steps_from_held_out_rows_hardly_raise_the_risk_of_all():
    views, y = two_views(2)
    history = History()
    loop = StagewiseLoop(
        CodewordExponential.simplex(2),
        {"S": TreeLearner(max_depth=2)},
        Gradient(),
        _Far(),
        n_rounds=4,
        step_fraction=0.3,
        callbacks=[history],
    )
    stages = loop.run(views, y)
    risks = [2, *(row["risk_train"] for row in history.rounds)]
    assert all(later <= 1.1 * earlier for earlier, later in pairwise(risks))
    halvings = [np.log2(64 / stage.steps["S"]) for stage in stages]
    assert all(number > 0 and number == int(number) for number in halvings)
    loss = CodewordExponential.simplex(2)
    line = loss.line(np.zeros((9, 1)), loss.labels(np.zeros(9, dtype=int)), [np.ones((9, 1))])
    uphill = np.sign(line.expand(np.zeros(1))[1])
    step = bounded(line, 50 * uphill)
    assert line.risk(step) <= 1.1 * line.risk(np.zeros(1)) < line.risk(2 * step)
    np.testing.assert_array_equal(bounded(line, -uphill), -uphill)

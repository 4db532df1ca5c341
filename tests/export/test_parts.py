"""The nodes of parts against the parts themselves: trees, dates, images, losses, weak learners."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_iris
from sklearn.neighbors import KNeighborsRegressor

from tests.conftest import refuses
from tests.tables import two
from usboost import (
    BoostedNetworkClassifier,
    LightGBMBaseline,
    NetworkLearner,
    RidgeLearner,
    Table,
    TreeLearner,
    TwoWeakLearnerClassifier,
    Views,
)
from usboost.data.images import MODES
from usboost.datasets.image_files import sized
from usboost.export.images import image_input
from usboost.files.onnx_graph import Graph, TableNodes, Value, joined
from usboost.learners.tree import Tree
from usboost.learners.tree_nodes import tree_sum
from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.losses.exponential import CodewordExponential
from usboost.losses.regression import Squared
from usboost.models.baselines.linear import LinearBaseline
from usboost.models.baselines.packages import tree_of
from usboost.models.methods.ensemble import EnsembleClassifier
from usboost.table.columns.encoding import PARTS, DateParts
from usboost.table.images import ImageColumns


def answers(value: Value, **given: np.ndarray) -> np.ndarray:
    """What a value of a graph is for these inputs."""
    value.graph.output("out", value.cast(np.float64), ["k"])
    session = onnxruntime.InferenceSession(value.graph.model({}).SerializeToString())
    return session.run(None, given)[0]


def inputs(graph: Graph, table: Table, name: str = "x") -> tuple[TableNodes, dict[str, np.ndarray]]:
    """A table's columns as inputs of a graph, and their values."""
    given, names = {}, []
    for part, values in ((f"{name}.numeric", table.numeric), (f"{name}.codes", table.codes.astype(np.int64))):
        names.append(graph.input(part, values.dtype, [values.shape[1]]) if values.shape[1] else None)
        given |= {part: values} if values.shape[1] else {}
    return TableNodes(*names, table.n_numeric, table.cardinalities), given


def predicted(model, views: Views) -> np.ndarray:
    """What a model's nodes give of some tables."""
    graph, nodes, given = Graph(), {}, {}
    for name in views.names:
        nodes[name], own = inputs(graph, views[name], name)
        given |= own
    return answers(model.to_onnx(nodes), **given)


def mixed(n: int, seed: int = 0) -> Table:
    """Three numbers of few values, and two categories."""
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, 5, n), rng.integers(0, 40, n)]).astype(np.int32)
    return Table(rng.normal(size=(n, 3)).round(1).astype(np.float32), codes, (5, 40))


def grown(rng: np.random.Generator, depth: int, k: int) -> Tree:
    """A random tree, full to its depth, on the columns of `mixed`."""
    inner = 2**depth - 1
    nodes = []
    for node in range(inner):
        column, children = int(rng.integers(0, 5)), [2 * node + 1, 2 * node + 2]
        left, right = (each if each < inner else ~(each - inner) for each in children)
        codes = rng.permutation((5, 40)[column - 3])[: rng.integers(1, 5)].tolist() if column > 2 else []
        nodes.append((column, round(rng.normal(), 1), left, right, codes))
    return Tree._build(nodes, rng.normal(size=(inner + 1, k)).astype(np.float32), [0.0] * inner)


@pytest.mark.parametrize("k", [1, 3])
def test_trees_add_up_to_the_same(k: int) -> None:
    rng, table = np.random.default_rng(k), mixed(800)
    trees = [Tree._build([], np.full((1, k), 0.25, np.float32)), *(grown(rng, d % 6, k) for d in range(150))]
    weights = rng.normal(size=len(trees))
    total = sum(weight * tree.predict(table.matrix()) for weight, tree in zip(weights, trees, strict=True))
    graph = Graph()
    nodes, given = inputs(graph, table)
    assert np.abs(answers(tree_sum(nodes, trees, weights), **given) - total).max() < 1e-5


def test_parts_of_dates_are_those_of_pandas() -> None:
    days = pd.date_range("1599-12-25", "2401-03-05", freq="37h").to_series()
    days = pd.concat([days, pd.date_range("1999-12-30", "2001-01-02", freq="12h").to_series()])
    rule = DateParts("2001-05-06T07:00:00", PARTS)
    expected = rule.expand("day", days.reset_index(drop=True).astype("datetime64[us]"))
    seconds = days.to_numpy().astype("datetime64[us]").astype(np.int64) / 1e6
    found = rule.to_onnx("day", Graph().input("day", np.float64, []))
    given = answers(joined([found[name].Unsqueeze([1]) for name in expected]), day=seconds)
    assert np.abs(given - np.column_stack(list(expected.values()))).max() < 1e-9


def test_a_tree_of_xgboosts_json() -> None:
    grown = {"left_children": [1, 3, -1, -1, -1], "right_children": [2, 4, -1, -1, -1]}
    grown |= {"split_indices": [0, 3, 0, 0, 0], "split_conditions": [0.1, 1e-45, 7.0, 8.0, 9.0]}
    grown |= {"categories": [1, 3], "categories_nodes": [1]}
    grown |= {"categories_segments": [0], "categories_sizes": [2]}
    table = mixed(300)  # of rows that are at the condition, too
    below, of_set = table.numeric[:, 0] < np.float32(0.1), np.isin(table.codes[:, 0], [1, 3])
    expected = np.where(below, np.where(of_set, 9.0, 8.0), 7.0)
    assert (table.numeric[:, 0] == np.float32(0.1)).any()
    assert np.array_equal(tree_of(grown).predict(table.matrix())[:, 0], expected)


SIZES = ((100, 70), (70, 100), (32, 32), (5, 200), (200, 5), (1, 1), (31, 301), (33, 64), (96, 129))


@pytest.mark.parametrize(("aspect", "channels"), [("crop", 3), ("pad", 1), ("stretch", 3)])
def test_images_are_those_of_pillow_to_the_bit(aspect: str, channels: int) -> None:
    rng, graph = np.random.default_rng(0), Graph()
    made = image_input(graph, ImageColumns(("x",), 32, channels, aspect), "x")
    graph.output("absent", made.absent.cast(np.float64))
    graph.output("out", made.pixels.cast(np.float64), [channels, 32, 32])
    session = onnxruntime.InferenceSession(graph.model({}).SerializeToString())
    for width, height in SIZES:
        pixels = rng.integers(0, 256, (2, height, width, 3)).astype(np.uint8)
        absent, found = session.run(None, {"x": pixels})
        images = [sized(Image.fromarray(each), 32, aspect).convert(MODES[channels]) for each in pixels]
        expected = np.stack([np.asarray(each).reshape(32, 32, -1).transpose(2, 0, 1) for each in images])
        assert not absent.any() and np.array_equal(found, expected), (width, height)
    absent, found = session.run(None, {"x": np.zeros((2, 0, 0, 3), np.uint8)})
    assert absent.all() and not found.any()


@pytest.mark.parametrize(
    "loss", [CodewordExponential.simplex(3), SoftmaxCrossEntropy(2), SoftmaxCrossEntropy(4), Squared(3)]
)
def test_probabilities_of_losses(loss) -> None:
    f = np.random.default_rng(0).normal(size=(200, loss.n_outputs))
    found = answers(loss.to_onnx(Graph().input("f", np.float64, [loss.n_outputs])), f=f)
    assert np.abs(found - loss.probabilities(f)).max() < 1e-12


def wide(n: int = 160) -> tuple[Views, np.ndarray]:
    """Numbers and categories in two views, three classes."""
    table = mixed(n)
    y = np.digitize(table.numeric[:, 0] + (table.codes[:, 0] == 2), [-0.3, 0.6])
    return Views(U=Table.from_numeric(table.numeric), S=mixed(n, 1).beside(table)), y


def test_networks_of_several_shapes_and_a_blend() -> None:
    views, y = wide()
    network = NetworkLearner((9, 4), batch_size=32, reads=("U", "S"), device="cpu")
    both = {"U": network, "S": TreeLearner(max_depth=2), "R": RidgeLearner(reads=("S",))}
    boosted = TwoWeakLearnerClassifier(both, n_rounds=6, loss="cross_entropy", patience=None)
    linear = LinearBaseline(("U", "S"), penalties=(0.1,))
    few = LightGBMBaseline(("U", "S"), n_trees=8, num_leaves=4)
    model = EnsembleClassifier({"few": few, "linear": linear, "boosted": boosted}, folds=2, repeats=1)
    model.fit(views, y)
    for each in (model, *(fits[0] for fits in model.fits_.values())):
        assert np.abs(predicted(each, views) - each.predict_proba(views)).max() < 1e-6
    started = TwoWeakLearnerClassifier({"S": TreeLearner()}, n_rounds=4, start=linear, patience=None)
    started.fit(views, y)
    assert np.abs(predicted(started, views) - started.predict_proba(views)).max() < 1e-6


def test_boosted_networks_on_iris() -> None:
    x, y = load_iris(return_X_y=True)
    model = BoostedNetworkClassifier(n_rounds=3).fit(x, y)
    table = Table.from_numeric(x)
    assert np.abs(predicted(model, Views(x=table)) - model.predict_proba(x)).max() < 1e-6


def test_a_learner_without_a_form_is_refused_by_its_name() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 2
    views = two(x[:, :2], x[:, 2:])
    model = TwoWeakLearnerClassifier({"U": KNeighborsRegressor(3)}, n_rounds=2, patience=None).fit(views, y)
    refuses("KNeighborsRegressor", predicted, model, views)
    learners = {"S": TreeLearner(max_depth=1)}
    model = TwoWeakLearnerClassifier(learners, n_rounds=2, patience=None).fit(views, y)
    Own = type("Own", (), {"predict": lambda self, prepared: prepared})
    model.stages_ = [replace(stage, learners={"S": Own()}) for stage in model.stages_]
    refuses(r"Own, of the learner 'S', has no ONNX form", predicted, model, views)

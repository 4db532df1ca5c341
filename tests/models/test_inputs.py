"""What learners read: images as embeddings or as their principal components, of the training rows alone."""

import numpy as np
import pytest

from tests.conftest import refuses, reloaded
from tests.tables import bright
from usboost import Backbone, Images, Table, TreeLearner, Views
from usboost.models.baselines.trees import LightGBMBaseline
from usboost.models.inputs import InputReader, InputSpec, Projection
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier


@pytest.fixture
def images(untrained: Backbone) -> tuple[Views, np.ndarray, Backbone]:
    return *bright(200), untrained


def test_components_are_those_of_the_rows_fitted_to() -> None:
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32) * [5, 4, 3, 2, 1] + 7
    projection = Projection.fit(Table.from_numeric(x), 2)
    vectors = np.linalg.eigh(np.cov(x.T))[1][:, ::-1][:, :2]
    expected = (x - x.mean(axis=0)) @ vectors
    found = projection(Table.from_numeric(x)).numeric
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-3)


def test_directions_without_variance_are_left_out() -> None:
    """Eight columns of rank three, and one image in all rows: rounding would be read as a feature."""
    random = np.random.default_rng(0)
    x = (random.normal(size=(60, 3)) @ random.normal(size=(3, 8)) + 5).astype(np.float32)
    for weights in (None, np.ones(60)):
        assert Projection.fit(Table.from_numeric(x), 8, weights).axes.shape == (8, 3)
        Projection.fit(Table.from_numeric(x[:1].repeat(60, axis=0)), 8, weights)


def test_what_each_learner_reads(images) -> None:
    views, _, backbone = images
    wanted = {
        "U": InputSpec(("U",), images=True),
        "tree": InputSpec(("S", "U"), components=4),
        "all": InputSpec(("U",)),
    }
    reading = InputReader(wanted, backbone)
    read = reading.fit(views[:100])
    shapes = {name: read[name].numeric.shape for name in ("tree", "all")}
    assert isinstance(read["U"], Images) and shapes == {"tree": (100, 6), "all": (100, 256)}
    assert read["tree"].names[2:] == tuple(f"image component {k}" for k in range(4))  # nobody's own
    later = reading(views[100:])["tree"].numeric
    embeddings = reading(views, ["all"])["all"].numeric
    expected = Projection.fit(Table.from_numeric(embeddings[:100]), 4)(Table.from_numeric(embeddings[100:]))
    np.testing.assert_allclose(later[:, 2:], expected.numeric, rtol=1e-4, atol=1e-4)


def test_a_row_without_an_image_has_the_training_images_mean(images) -> None:
    views, _, backbone = images
    reading = InputReader({"all": InputSpec(("U", "S"))}, backbone)
    seen = reading.fit(views[:100])["all"].numeric[:, :256]
    rows = Views(U=Images(views["U"].pixels[:100], absent=np.arange(100) % 2 == 0), S=views["S"][:100])
    for numbers in (reading(rows)["all"].numeric, reading.fit(rows)["all"].numeric):
        mean = seen.mean(axis=0) if numbers.shape[1] == 258 else seen[1::2].mean(axis=0)
        np.testing.assert_allclose(numbers[::2, :256], np.tile(mean, (50, 1)), rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(numbers[1::2, :256], seen[1::2])


def test_other_rows_leave_no_trace_in_the_components(images) -> None:
    views, y, backbone = images
    spoiled = Views(
        U=Images(np.concatenate((views["U"].pixels[:150], 255 - views["U"].pixels[150:]))), S=views["S"]
    )
    for make in (
        lambda: LightGBMBaseline(components=3, n_trees=5, patience=9, backbone=backbone),
        lambda: TwoWeakLearnerClassifier(
            {"S": TreeLearner(reads=("S", "U"), components=3)}, n_rounds=3, patience=None, backbone=backbone
        ),
    ):
        one = make().fit(views[:150], y[:150], (views[150:], y[150:]))
        other = make().fit(spoiled[:150], y[:150], (spoiled[150:], y[150:]))
        first, second = one.reading_.projections["U", 3], other.reading_.projections["U", 3]
        np.testing.assert_array_equal(first.axes, second.axes)


@pytest.mark.parametrize("which", ["lightgbm", "boosting"])
def test_saved_components(images, tmp_path, which: str) -> None:
    views, y, backbone = images
    if which == "lightgbm":
        model = LightGBMBaseline(components=3, n_trees=5, backbone=backbone)
    else:
        learners = {"S": TreeLearner(reads=("S", "U"), components=3)}
        model = TwoWeakLearnerClassifier(learners, n_rounds=3, backbone=backbone)
    model.fit(views, y)
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(views), model.predict_proba(views))
    del again.reading_.projections["U", 3]
    refuses("no components of view 'U'", again.predict, views)

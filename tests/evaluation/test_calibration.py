"""The temperature against a grid and the literal formula; kept where rows that it did not see gain by it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from usboost.evaluation.calibration import calibrated, clip_lower, floor_of, temperature_of, tempered


def drawn(n: int, classes: int, seed: int, overconfidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from probabilities, and these made `overconfidence` times as sure."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes))
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = np.array([rng.choice(classes, p=row) for row in true])
    sure = np.exp(overconfidence * logits)
    return sure / sure.sum(axis=1, keepdims=True), y


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_it_is_the_lowest_of_a_grid_and_undoes_what_was_done(classes, factor):
    probabilities, y = drawn(2000, classes, 0, factor)
    found = temperature_of(probabilities, y)
    grid = np.geomspace(0.1, 10, 201)
    losses = [log_loss(y, tempered(probabilities, each), labels=range(classes)) for each in grid]
    assert found == pytest.approx(grid[int(np.argmin(losses))], rel=0.03)
    assert found == pytest.approx(factor, rel=0.15)
    assert calibrated(probabilities, y) == found


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.floats(0.1, 10), st.integers(0, 9))
def test_it_gives_probabilities_in_the_same_order(classes, temperature, seed):
    probabilities, _ = drawn(20, classes, seed, 1.0)
    found = tempered(probabilities, temperature)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_array_equal(found.argsort(axis=1), probabilities.argsort(axis=1))


def test_what_is_right_already_stays():
    kept = [calibrated(*drawn(400, 3, seed, 1.0)) for seed in range(20)]
    assert kept.count(1.0) >= 15


def test_a_row_of_weight_two_is_two_rows_of_many():
    probabilities, y = drawn(6000, 3, 5, 2.0)
    weight = np.random.default_rng(0).integers(0, 3, 6000)
    repeated = np.repeat(np.arange(6000), weight)
    found = temperature_of(probabilities, y, weight.astype(float))
    assert found == pytest.approx(temperature_of(probabilities[repeated], y[repeated]), rel=0.01)


def test_only_the_ratios_of_weights_count():
    probabilities, y = drawn(60, 3, 5, 3.0)
    weight = np.random.default_rng(0).random(60)
    found = temperature_of(probabilities, y, weight)
    assert temperature_of(probabilities, y, 1e-3 * weight) == pytest.approx(found)
    found = temperature_of(probabilities, y)
    assert temperature_of(probabilities, y, np.full(60, 7.0)) == pytest.approx(found)
    weight[30:] = 0
    first = temperature_of(probabilities[:30], y[:30], weight[:30])
    assert temperature_of(probabilities, y, weight) == pytest.approx(first)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_that_of_the_rows_of_twenty_as_predicted_and_of_a_surprise(weighted):
    """Literally: each row once, 20 rows by their expected log-loss and one of any class, on a fine grid."""
    probabilities, y = drawn(25, 3, 1, 3.0)
    weight = np.random.default_rng(0).random(25) if weighted else np.ones(25)
    rows = weight.sum() ** 2 / np.square(weight).sum()
    losses = []
    grid = np.geomspace(0.1, 10, 2001)
    for each in grid:
        after = np.log(tempered(probabilities, each))
        own = sum(-w * after[i, y[i]] for i, w in enumerate(weight)) / weight.sum() * rows
        prior = sum(-w * probabilities[i] @ after[i] for i, w in enumerate(weight)) / weight.sum() * 20
        surprise = sum(-w * after[i].mean() for i, w in enumerate(weight)) / weight.sum()
        losses.append(own + prior + surprise)
    found = temperature_of(probabilities, y, weight if weighted else None)
    assert found == pytest.approx(grid[int(np.argmin(losses))], rel=0.005)


def test_few_rows_that_are_all_right_do_not_make_a_model_certain():
    """Of 19 rows at .9 all come out as predicted: one of ten was expected to be wrong, so 19 are no proof."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 19)
    sure = rng.uniform(0.8, 0.97, 19)
    probabilities = np.repeat((1 - sure)[:, None] / 2, 3, axis=1)
    probabilities[np.arange(19), y] = sure
    found = calibrated(probabilities, y)
    assert 0.5 < found <= 1.0
    assert tempered(probabilities, found).max() < 0.999


@pytest.mark.parametrize("n", [18, 150, 5000])
def test_a_model_is_as_sure_as_so_many_right_rows_let_it_be(n):
    """n rows that are all right, at 1 − 1e-9: one in n + 1 may be another, and no surer is the answer."""
    y = np.random.default_rng(0).integers(0, 3, n)
    probabilities = np.full((n, 3), 5e-10)
    probabilities[np.arange(n), y] = 1 - 1e-9
    found = tempered(probabilities, calibrated(probabilities, y))
    wrong = 1 - found[np.arange(n), y]
    assert 0.3 / n < wrong.mean() < 1 / n
    assert calibrated(probabilities, y) > 1.0


def test_few_rows_and_certain_ones_are_no_error():
    assert calibrated(np.eye(2)[[0, 1]], np.array([0, 1])) == 1.0
    certain = np.eye(2)[np.arange(40) % 2]
    assert calibrated(certain, np.arange(40) % 2) > 1.0
    wrong = np.arange(40) % 2
    wrong[:4] = 1 - wrong[:4]
    assert temperature_of(certain, wrong) > 1.0


@pytest.mark.parametrize(
    ("labels", "floor"),
    [
        ([0, 0, 0, 5], 0.0),  # counts
        ([1.0, 40, 90, 3000], 1.0),  # prices
        ([11.0, 18, 22, 31], None),  # a summer's temperatures
        ([-0.1, 40, 90], None),
        ([-9.0, -5, -1], None),
        ([0.0, 0, 0], 0.0),
    ],
)
def test_where_numbers_come_near_0_and_never_below_it_ends(labels: list[float], floor: float | None):
    assert floor_of(np.array(labels, dtype=np.float64)) == floor


def test_nothing_is_below_the_floor() -> None:
    numbers = np.array([-2.0, 0.5, 3.0])
    np.testing.assert_array_equal(clip_lower(numbers, 0.0), [0, 0.5, 3])
    assert clip_lower(numbers, None) is numbers

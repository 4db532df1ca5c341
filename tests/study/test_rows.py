"""The intervals over test rows in docs/results/papers.md, against scores of the rows drawn by hand."""

import numpy as np
import pytest

from benchmarks.study.rows import Predicted, drawn, draws, row, spread
from tests.conftest import refuses
from usboost.evaluation import metrics


def fit(n_classes=2, n=200, seed=0):
    """Labels, the same for every seed, and probabilities that know something of them."""
    y = np.random.default_rng(99).integers(n_classes, size=n)
    rng = np.random.default_rng(seed)
    raw = rng.random((n, n_classes)) + 0.4 * np.eye(n_classes)[y]
    return Predicted(y, raw / raw.sum(axis=1, keepdims=True), 0.45 if n_classes == 2 else float("nan"))


def scored(found, metric, rows):
    y, probabilities = found.y[rows], found.probabilities[rows]
    if metric == "f1_tuned":
        return metrics.f1(y, (probabilities[:, 1] >= found.threshold).astype(int), 2)
    return metrics.score(y, probabilities)[metric]


@pytest.mark.parametrize(
    ("metric", "n_classes"), [("f1", 2), ("f1_tuned", 2), ("log_loss", 2), ("f1", 4), ("log_loss", 4)]
)
def test_a_draw_is_the_score_of_its_rows(metric, n_classes):
    fits = [fit(n_classes, seed=seed) for seed in range(3)]
    draws = np.random.default_rng(5).integers(200, size=(7, 200))
    counts = np.stack([np.bincount(rows, minlength=200) for rows in draws]).astype(float)
    by_hand = [np.mean([scored(found, metric, rows) for found in fits]) for rows in draws]
    np.testing.assert_allclose(drawn(fits, metric, counts), by_hand, rtol=1e-12)


def test_the_spread_is_that_of_the_mean():
    """Log-loss is a mean over rows, so its spread is known: 1.96 standard errors of the paired difference."""
    one, other = fit(n=4000, seed=1), fit(n=4000, seed=2)
    losses = [-np.log(found.probabilities[np.arange(4000), found.y]) for found in (one, other)]
    expected = 1.96 * (losses[0] - losses[1]).std() / np.sqrt(4000)
    drawn_one, drawn_other = (draws([found], 2000)["log_loss"] for found in (one, other))
    assert spread(drawn_one, drawn_other) == pytest.approx(expected, rel=0.06)


def test_a_model_against_itself_differs_by_nothing():
    fits = [fit(seed=1), fit(seed=2)]
    assert row(fits, fits, draws(fits), draws(fits)) == ["+0.0000 ± 0.0000 ± 0.0000"] * 3


def test_bold_is_what_leaves_0_outside_both_intervals_together():
    """A model that is better on each of three seeds, by about as much: the luck of the rows decides."""
    y = np.arange(40) % 2
    sure, unsure = np.eye(2)[y] * 0.8 + 0.1, np.eye(2)[y] * 0.6 + 0.2
    better = [Predicted(y, sure + 0.001 * k * (1 - 2 * np.eye(2)[y]), 0.5) for k in range(3)]
    worse = [Predicted(y, unsure, 0.5)] * 3
    for luck, bold in ((0.001, True), (1.0, False)):
        d = {m: np.random.default_rng(1).normal(0, luck, 4000) for m in ("f1", "f1_tuned", "log_loss")}
        still = {m: np.zeros(4000) for m in d}
        cell = row(better, worse, d, still)[2]
        assert cell.startswith("**-0.1") if bold else cell.startswith("-0.1"), cell


def test_more_classes_have_no_threshold():
    one, other = [fit(3), fit(3, seed=1)], [fit(3, seed=2), fit(3, seed=3)]
    assert row(one, other, draws(one), draws(other))[1] == "–"


def test_other_rows_are_refused():
    other = Predicted(fit().y[::-1], fit().probabilities, 0.5)
    refuses("test rows", row, [fit()], [other], {}, {})

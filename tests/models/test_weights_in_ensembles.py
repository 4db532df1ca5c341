"""What rows count for in an ensemble: in weights, in the choice of one model, in the fits inside."""

from typing import Any

import numpy as np
import pytest

from tests.tables import crossed
from usboost.evaluation.folds import inner_folds
from usboost.evaluation.metrics import row_losses
from usboost.models.baselines.linear import LinearBaseline
from usboost.models.methods.ensemble import EnsembleClassifier
from usboost.models.methods.fold_fits import FoldFits, Unseen, blended, seen_by_all

Seen = dict[str, np.ndarray]


def judged(seed: int, classes: int) -> tuple[np.ndarray, Seen, np.ndarray]:
    """Labels, what three models say of them, and counts; each model is good at rows of its own."""
    rng = np.random.default_rng(seed)
    n, good = 90, rng.integers(0, 3, 90)
    counts = rng.integers(1, 4, n) + 5 * (good == 2)
    if not classes:
        y = rng.normal(size=n)
        found = {m: y + rng.normal(size=n) * np.where(good == k, 0.3, 2) for k, m in enumerate("abc")}
        return y, found, counts
    y = rng.integers(0, classes, n)
    right = {m: np.where(good == k, 0.9, 0.3)[:, None] for k, m in enumerate("abc")}
    noise = {m: rng.dirichlet(np.ones(classes), n) for m in "abc"}
    return y, {m: right[m] * np.eye(classes)[y] + (1 - right[m]) * noise[m] for m in "abc"}, counts


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_row_that_counts_twice_is_two_rows(seed: int, classes: int) -> None:
    y, predicted, counts = judged(seed, classes)
    rows = np.repeat(np.arange(len(y)), counts)
    repeated = {name: each[rows] for name, each in predicted.items()}
    by_count, by_rows = Unseen(y, counts.astype(float)), Unseen(y[rows])
    kept = by_count.greedy_weights(predicted)
    assert kept == by_rows.greedy_weights(repeated) != Unseen(y).greedy_weights(predicted)
    expected = by_rows.without_each(repeated, kept)
    assert by_count.without_each(predicted, kept) == pytest.approx(expected, rel=1e-12)
    for name, each in predicted.items():
        assert by_count.loss(each) == pytest.approx(row_losses(y[rows], repeated[name]).mean())


@pytest.mark.parametrize("classes", [0, 3])
def test_the_mix_is_the_best_on_the_path(classes: int) -> None:
    """The path by hand; on some it is not the last mix, and not one of a single model."""
    lengths = []
    for seed in range(6):
        y, predicted, _ = judged(seed, classes)
        chosen, losses = list[str](), list[float]()
        for _ in range(50):
            tried = {
                name: row_losses(y, np.mean([predicted[each] for each in [*chosen, name]], axis=0)).mean()
                for name in predicted
            }
            chosen.append(min(tried, key=tried.__getitem__))
            losses.append(tried[chosen[-1]])
        lengths.append(1 + int(np.argmin(losses)))
        best = chosen[: lengths[-1]]
        expected = {name: best.count(name) / len(best) for name in predicted if name in best}
        found = Unseen(y).greedy_weights(predicted)
        assert found == pytest.approx(expected)
        assert row_losses(y, blended(predicted, found)).mean() == pytest.approx(min(losses))
    assert any(1 < each < 50 for each in lengths)


def test_a_blend_that_helps_light_rows_only_is_not_kept() -> None:
    """Of 100 rows 90 are better off, each a hundredth of one of the others, which are worse off."""
    rng = np.random.default_rng(0)
    heavy = np.arange(100) < 10
    gain = np.where(heavy, -0.5, 0.5) + 0.1 * rng.normal(size=100)
    y, single = np.zeros(100), np.ones(100)  # squared errors of 1
    blend = np.sqrt(1 - gain)
    assert Unseen(y).better_than_noise(blend, single)
    assert not Unseen(y, np.where(heavy, 100.0, 1.0)).better_than_noise(blend, single)
    assert Unseen(y, np.where(heavy, 1.0, 100.0)).better_than_noise(blend, single)


def test_the_error_of_a_gain_is_that_of_the_weights() -> None:
    """Nearly all of the weight is on two rows: by these alone nothing is sure."""
    gain = np.where(np.arange(100) % 2, 0.9, -0.1)
    weights = np.where(np.arange(100) < 2, 1e4, 1.0)
    rows = Unseen(np.zeros(100), weights)
    mean = weights @ gain / weights.sum()
    error = np.sqrt(np.square(weights / weights.sum()) @ np.square(gain - mean))
    assert mean == pytest.approx(0.4) and error == pytest.approx(0.35, abs=0.01)
    assert rows.better_than_noise(np.sqrt(1 - gain), np.ones(100))
    assert not rows.better_than_noise(np.sqrt(1 - gain + 0.1), np.ones(100))
    assert Unseen(np.zeros(100)).better_than_noise(np.sqrt(1 - gain + 0.1), np.ones(100))


def test_rows_that_all_members_have_predicted() -> None:
    """Of members that were fitted to one, two and no fold: those of the first fold."""
    splits = [(np.zeros(0, int), np.array(held)) for held in ([4, 0], [3, 1], [5, 2])]

    def member(fits: int) -> FoldFits:
        return FoldFits(None, lambda model, views: np.zeros(0), np.arange(6.0) * fits, [None] * fits)

    rows, seen = seen_by_all({"one": member(1), "two": member(2), "none": member(0)}, splits)
    assert rows.tolist() == [0, 4]
    assert {name: each.tolist() for name, each in seen.items()} == {"one": [0.0, 4.0], "two": [0.0, 8.0]}
    rows, seen = seen_by_all({"three": member(3), "two": member(2)}, splits)
    assert rows.tolist() == [0, 1, 3, 4] and seen["two"].tolist() == [0.0, 2.0, 6.0, 8.0]


VIEWS, Z = crossed(150, noise=1.0)
Y = np.digitize(Z, [-0.5, 0.8])
COUNTS = np.random.default_rng(0).integers(1, 6, 150)


def test_fits_to_folds_stop_on_rows_as_they_count() -> None:
    model = EnsembleClassifier({"linear": LinearBaseline(("S",), penalties=(0.1,))}, folds=3)
    weights = np.where(Y == 1, 5.0, 1.0)
    model.fit(VIEWS, Y, sample_weight=weights)
    for fit, (_, held) in zip(model.fits_["linear"], inner_folds(Y, 3, 0), strict=True):
        losses = row_losses(Y[held], fit.predict_proba(VIEWS[held]))
        expected = float(np.average(losses, weights=weights[held]))
        assert fit.history_[0]["risk_val"] == pytest.approx(expected, rel=1e-6)
        assert losses.mean() != pytest.approx(expected, rel=1e-2)
    expected = float(np.average(row_losses(Y, model.out_of_fold_), weights=weights))
    assert model.losses_["linear"] == pytest.approx(expected)
    assert model.blend_loss_ == pytest.approx(expected)


def test_the_penalty_of_a_fold_turns_with_the_weights() -> None:
    """By hand: of all penalties the one of the lowest weighted loss; for some fold it is another without."""
    penalties, turned = (1.0, 0.1, 0.01, 0.001), 0
    weights = np.where(np.abs(Z - 0.8) < 0.4, 20.0, 1.0)
    model = EnsembleClassifier({"linear": LinearBaseline(("S",), penalties=penalties)}, folds=4)
    model.fit(VIEWS, Y, sample_weight=weights)
    for fit, (train, held) in zip(model.fits_["linear"], inner_folds(Y, 4, 0), strict=True):
        losses = []
        for penalty in penalties:
            alone = LinearBaseline(("S",), penalties=(penalty,), validation_fraction=0)
            alone.fit(VIEWS[train], Y[train], sample_weight=weights[train])
            losses.append(row_losses(Y[held], alone.predict_proba(VIEWS[held])))
        best = int(np.argmin([np.average(each, weights=weights[held]) for each in losses]))
        assert fit.penalty_ == penalties[best]
        turned += best != int(np.argmin([each.mean() for each in losses]))
    assert turned


def test_the_seed_draws_the_folds() -> None:
    groups = np.arange(150) // 5

    def folds(seed: int, **related: Any) -> list[list[int]]:
        model = EnsembleClassifier({"linear": LinearBaseline(("S",), penalties=(0.1,))}, folds=3)
        model.set_params(random_state=seed).fit(VIEWS, Y, **related)
        at = [np.abs(model.out_of_fold_ - f.predict_proba(VIEWS)).max(axis=1) for f in model.fits_["linear"]]
        return [np.flatnonzero(each < 1e-12).tolist() for each in at]

    for related in ({}, {"groups": groups}):
        assert folds(0, **related) == folds(0, **related) != folds(1, **related)
        assert sorted(row for rows in folds(1, **related) for row in rows) == list(range(150))

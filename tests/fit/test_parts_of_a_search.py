"""A trial is scored by samples of each part, and taken where it is better beyond noise."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fit.conftest import numbers
from usboost.evaluation.task import TASKS
from usboost.fit.build import by_name
from usboost.fit.evaluate import FitData
from usboost.fit.trials import DRAWS, NOISE, ModelTrials, State, Trial, drawn, error_of_difference
from usboost.fit.tune import Plan, search_folds, tune
from usboost.fit.workers import Job, SearchTask, draws_of, run_trial
from usboost.models.baselines.linear import LinearBaseline
from usboost.models.tuned_images import fit_weighted
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table


@pytest.fixture(scope="module")
def table() -> UserTable:
    frame = numbers(150).assign(w=np.arange(150) % 4 + 1.0)
    frame["group"] = np.random.default_rng(0).integers(0, 40, 150)
    return read_table(FrameRows(frame), TableSpec(label="kind", weight="w", group="group"))


def test_draws_are_the_mean_of_those_of_the_parts(table: UserTable, tmp_path: Path) -> None:
    parts = [FitData.of(table, fold) for fold in search_folds(table, 3, 0)]
    model = LinearBaseline(("S",), penalties=(0.1, 0.01))
    task = SearchTask({"m": model}, parts, "classification", "log_loss")
    trial = run_trial(task, Job(Trial("m", 0, {}), tmp_path))
    scores, draws = [], []
    for k, part in enumerate(parts):
        own = LinearBaseline(("S",), penalties=(0.1, 0.01))
        fit_weighted(own, part.train, part.val, part.related)
        views, labels, weights = part.test
        predicted = own.predict_proba(views)
        scores.append(TASKS["classification"].ranked(labels, predicted, weights)["log_loss"])
        draws.append(draws_of(task, part, predicted, k))
    assert trial.folds == pytest.approx(scores) and trial.score == pytest.approx(np.mean(scores))
    assert trial.draws == pytest.approx(np.mean(draws, axis=0).tolist())


def test_the_seed_draws_what_is_tried(table: UserTable, tmp_path: Path) -> None:
    models = by_name(("linear_trees",), images=None, rounds=1)

    def tried(seed: int) -> list[dict]:
        plan = Plan(trials=3, batch=3, seed=seed)
        found = tune(table, models, out=tmp_path / f"{seed}", folds=0, plan=plan)
        return [dict(trial.settings) for trial in found.models["linear_trees"].trials]

    first, second = tried(0), tried(1)
    assert first[0] == second[0]  # the model's own
    assert all(one != other for one, other in zip(first[1:], second[1:], strict=True))


def test_draws_are_of_the_same_rows_for_all_trials() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.exponential(size=400), rng.exponential(size=400)
    samples: list[np.ndarray] = []
    both = [drawn(lambda rows, each=each: float(each[rows].mean()), 400) for each in (first, second)]
    drawn(lambda rows: float(samples.append(rows) or 0), 400)
    assert [len(each) for each in samples] == [400] * DRAWS
    for each, found in zip((first, second), both):
        np.testing.assert_allclose(found, [each[rows].mean() for rows in samples])
    exact = (first - second).std() / np.sqrt(400)
    assert error_of_difference(*map(list, both)) == pytest.approx(exact, rel=0.25)
    assert error_of_difference(list(both[0]), list(both[0] + 3)) == pytest.approx(0, abs=1e-12)


def test_folds_have_samples_of_their_own() -> None:
    """In a table sorted by label rows of one class stand at the same place of every fold."""
    rng = np.random.default_rng(4)
    place = np.repeat([0.0, 4.0], 100)  # what a model loses, by the row's place in its fold
    folds = [place + rng.normal(size=200) for _ in range(5)]
    both = [drawn(lambda rows, e=each: float(e[rows].mean()), 200, None, k) for k, each in enumerate(folds)]
    found = error_of_difference(np.mean(both, axis=0).tolist(), [0.0] * DRAWS)
    assert found == pytest.approx(np.concatenate(folds).std() / np.sqrt(1000), rel=0.25)


def test_rows_of_one_group_are_drawn_together() -> None:
    rng = np.random.default_rng(2)
    groups = rng.permutation(np.repeat(np.arange(60), rng.integers(1, 9, 60)))
    samples: list[np.ndarray] = []
    drawn(lambda rows: float(samples.append(rows) or 0), len(groups), groups)
    assert len(samples) == DRAWS
    for rows in samples:
        counts = np.bincount(rows, minlength=len(groups))
        times = [set(counts[groups == each].tolist()) for each in np.unique(groups)]
        assert all(len(each) == 1 for each in times)  # each row as often as the others of its group
        assert sum(each.pop() for each in times) == len(np.unique(groups))


def test_copies_of_a_row_do_not_make_a_difference_more_certain() -> None:
    gain = np.random.default_rng(3).normal(size=100)
    copies = np.repeat(gain, 10)

    def mean(rows: np.ndarray) -> float:
        return float(copies[rows].mean())

    nothing = [0.0] * DRAWS
    alone = error_of_difference(nothing, drawn(mean, 1000).tolist())
    together = error_of_difference(nothing, drawn(mean, 1000, np.repeat(range(100), 10)).tolist())
    assert together == pytest.approx(gain.std() / 10, rel=0.25)
    assert alone < together / 2


def test_a_sample_without_a_score_is_left_out() -> None:
    assert error_of_difference([1.0, None, 3.0, 4.0], [0.0, 1.0, 1.0, None]) == pytest.approx(np.sqrt(0.5))
    assert error_of_difference([1.0, None], [None, 1.0]) == error_of_difference([], [1.0]) == 0


def test_a_pruned_trial_is_compared_by_the_fold_that_it_knows() -> None:
    """The first fold may be an easy one: .3 there is no better than .5 on all five."""
    easy = ModelTrials(
        "m",
        lambda score: score,
        [
            Trial("m", 0, {"depth": 0}, "finished", 0.5, folds=[0.3, 0.55, 0.55, 0.55, 0.55]),
            Trial("m", 1, {"depth": 1}, "finished", 0.48, folds=[0.29, 0.53, 0.53, 0.53, 0.52]),
            Trial("m", 2, {"depth": 2}, "pruned", 0.32, folds=[0.32]),
            Trial("m", 3, {"depth": 3}, "failed"),
        ],
    )
    harder = (0.2 + 0.19) / 2
    assert easy.losses() == pytest.approx([0.5, 0.48, 0.32 + harder, 0.32 + harder])
    assert easy.promising is None
    good = Trial("m", 2, {"depth": 2}, "pruned", 0.25, folds=[0.25])
    assert ModelTrials("m", easy.loss, [*easy.trials[:2], good]).promising is good
    hard = ModelTrials(
        "m",
        lambda score: -score,  # an AUC, say; the first fold is the hardest
        [
            Trial("m", 0, {"depth": 0}, "finished", 0.8, folds=[0.7, 0.9]),
            Trial("m", 1, {"depth": 1}, "pruned", 0.75, folds=[0.75]),
        ],
    )
    assert hard.promising is hard.trials[1]
    assert ModelTrials("m", easy.loss, []).losses() == []


def of(number: int, score: float, draws: Sequence[float], state: State = "finished") -> Trial:
    return Trial("m", number, {"depth": number}, state, score if state != "failed" else None, draws=draws)


@given(
    own=st.floats(0.1, 1),
    gain=st.floats(-0.2, 0.2),
    noise=st.floats(0.001, 0.2),
    higher_is_better=st.booleans(),
)
def test_gains_beyond_noise_are_taken(own: float, gain: float, noise: float, higher_is_better: bool) -> None:
    sign = -1 if higher_is_better else 1
    spread = noise * np.random.default_rng(0).standard_normal(DRAWS)
    trials = [of(0, own, [own] * DRAWS), of(1, own - sign * gain, list(own - sign * gain + spread))]
    found = ModelTrials("m", lambda score: sign * score, trials)
    beyond = gain > NOISE * error_of_difference(trials[0].draws, trials[1].draws)
    assert found.chosen is trials[int(beyond)]
    assert found.best is trials[int(gain > 0 and sign * trials[1].score < sign * own)]  # type: ignore[operator]


def test_without_own_settings_that_finished_the_best_is_taken() -> None:
    best = of(2, 0.3, [0.3, 0.4])
    for first in (of(0, 0.5, [], "failed"), of(0, 0.2, [0.2, 0.2], "pruned")):
        assert ModelTrials("m", float, [first, of(1, 0.4, [0.4, 0.3]), best]).chosen is best
    assert ModelTrials("m", float, [of(0, 0.5, [], "failed")]).chosen is None

"""A trial is scored on each part by the samples of that part; the seed draws what is tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.fit.conftest import numbers
from usboost.evaluation.task import TASKS
from usboost.fit.build import by_name
from usboost.fit.evaluate import FitData
from usboost.fit.trials import Trial
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

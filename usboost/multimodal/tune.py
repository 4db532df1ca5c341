"""Settings for a table's models, chosen on rows that they are not fitted to, and what was found as files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from usboost.datasets.sampling import stream
from usboost.errors import UsboostError, option
from usboost.evaluation.ranking import RANKING, check_metric, metric_name, number
from usboost.evaluation.task import TASKS
from usboost.files import write_atomically
from usboost.models.entry import settings_text
from usboost.models.settings import with_settings
from usboost.models.tuned_images import Weighted
from usboost.multimodal.compare.compare import Build
from usboost.multimodal.compare.finished_fits import rows_digest, table_digest
from usboost.multimodal.fit.embedded import Embedded
from usboost.multimodal.fit.splits import counted_rows, folds_of, hold_out, related_of, rows_of, weights_of
from usboost.multimodal.fit.table_fit import check_classes
from usboost.table.user_table import UserTable
from usboost.tuning.propose import space_of
from usboost.tuning.run import Part, Task
from usboost.tuning.search import ModelTrials, OnTrialEnd, Plan, SearchResult, drawn, search
from usboost.tuning.trials import Trial

TRIALS = "trials"
"""The folder of trials in that of a search."""

FEW, FOLDS = 2000, 5
"""Of fewer rows the 15 % that a fit holds out are too few to choose by: so many folds are the default."""

_NOT_COMPARE = 1
"""Of the seed's streams that of a search's folds: `compare` with the same seed has others."""

DEFAULT = {"classification": "log_loss", "regression": "rmse"}
"""By what settings are chosen."""


@dataclass(frozen=True)
class Scored:
    """All scores of a model on some rows, and that by which settings are chosen in samples of them."""

    task: str
    by: str

    def __call__(
        self, model: Any, rows: Weighted, groups: np.ndarray | None = None, part: int = 0
    ) -> tuple[dict[str, float], np.ndarray]:
        views, labels, weights = rows
        task = TASKS[self.task]
        found = task.predict(model, views)

        def score(rows: np.ndarray) -> float:
            weight = None if weights is None else weights[rows]
            return task.ranked(labels[rows], found[rows], weight)[self.by]

        return task.ranked(labels, found, weights), drawn(score, len(labels), groups, part)


def tune(
    table: UserTable,
    models: Mapping[str, Build],
    *,
    out: Path,
    folds: int | None = None,
    by: str | None = None,
    fixed: Mapping[str, Any] | None = None,
    plan: Plan | None = None,
    on_trial_end: OnTrialEnd | None = None,
) -> SearchResult:
    """Try settings of every model, each as often, on the rows that `usboost fit` holds out.

    Everything that a model does not say of itself (`space`) stays as it is. Encoders, embeddings and views
    are made once for all trials. What is in the folder is resumed, see `usboost.tuning.search`.

    Parameters
    ----------
    models : by name; each is built with the plan's seed, and is the first trial as it is.
    out : the folder of the search.
    folds : instead of one split, a cross-validation with so many folds; 0 for none; by default
        `default_folds`.
    by : the score that settings are chosen by; by default log-loss, or RMSE.
    fixed : settings by path that are not chosen; models that have no such setting go without.

    Raises
    ------
    UsboostError
        If the rows cannot be divided, or the folder holds another search.
    """
    by, plan = check_metric(by or DEFAULT[table.task], RANKING[table.task]), plan or Plan()
    parts = parts_of(table, default_folds(table, plan.seed) if folds is None else folds, plan.seed)
    built = {name: _with(build(plan.seed), fixed or {}) for name, build in models.items()}
    images = tuple(table.images)
    spaces = {name: space_of(model, images, fixed or ()) for name, model in built.items()}
    images_of = Embedded(table)
    for model in built.values():
        images_of.prepare(model)
    task = Task(built, [part_of(table, *each) for each in parts], Scored(table.task, by), by)
    identity = {
        "table": table_digest(table),
        "rows": rows_digest(rows for part in parts for rows in part),
        "seed": plan.seed,
    }
    return search(task, spaces, Path(out) / TRIALS, plan, identity, on_trial_end)


def fixed_of(models: Mapping[str, Build], fixed: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By model, those of the fixed settings that it has.

    Raises UsboostError if no model has some setting, or it takes no such value.
    """
    built = {name: build(0) for name, build in models.items()}
    known = {name: model.get_params(deep=True).keys() for name, model in built.items()}
    for path in fixed:
        if not any(path in paths for paths in known.values()):
            name, model = next(iter(built.items()))
            with_settings(model, {path: fixed[path]}, name)  # which says what there is
    return {name: {path: value for path, value in fixed.items() if path in known[name]} for name in models}


Divided = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Positions of rows that are fitted to, that stop the fit, and that are scored."""


def default_folds(table: UserTable, seed: int) -> int:
    """`FOLDS` of fewer than `FEW` rows that can be divided so and that no column divides; else 0."""
    rows = rows_of(table)
    if len(counted_rows(table)) >= FEW or rows.splits is not None or rows.times is not None:
        return 0
    try:
        parts_of(table, FOLDS, seed)
    except UsboostError:
        return 0
    return FOLDS


def parts_of(table: UserTable, folds: int, seed: int) -> list[Divided]:
    """How a table's rows are divided for a search; of a split that the table gives, test rows are in no part.

    Raises UsboostError if there are too few rows of a class, groups or times for the folds.
    """
    counted = counted_rows(table)
    rows = rows_of(table)[counted]
    if not folds:
        train, held = (counted[each] for each in hold_out(rows, seed))
        check_classes(table, train, held)
        return [(train, held, held)]
    if rows.splits is not None:
        own = np.flatnonzero(rows.splits != "test")
        counted, rows = counted[own], replace(rows[own], splits=None)
    if rows.codes is not None and np.bincount(rows.codes, minlength=len(table.classes)).min() <= folds:
        raise UsboostError(
            f"{table.file}: some class of {table.spec.label!r} has too few rows for {folds} folds; ask for "
            f"fewer {option('folds')}, or leave the class out"
        )
    found = [
        (counted[each.train], counted[each.val], counted[each.test])
        for each in folds_of(rows, folds, 1, stream(seed, _NOT_COMPARE))
    ]
    for train, _, _ in found:
        check_classes(table, train)
    return found


def part_of(table: UserTable, train: np.ndarray, held: np.ndarray, scored: np.ndarray) -> Part:
    """The rows as models take them; encoders learn from the training rows only."""
    encoding = table.fit_encoding(train)

    def of(rows: np.ndarray) -> Weighted:
        return table.views(encoding, rows), table.labels[rows], weights_of(table, rows)

    stopping = of(held)
    unseen = stopping if scored is held else of(scored)
    groups = None if table.groups is None else table.groups[scored]
    return Part(of(train), stopping, unseen, related_of(table, train), groups)


def _with(model: Any, fixed: Mapping[str, Any]) -> Any:
    """The model with those of the fixed settings that it has."""
    known = model.get_params(deep=True)
    return with_settings(model, {path: v for path, v in fixed.items() if path in known}, type(model).__name__)


SETTINGS, CSV = "settings.yaml", "trials.csv"


def settings_of(
    models: Mapping[str, ModelTrials], fixed: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The settings chosen for each model that finished a trial, by path, with those that were fixed."""
    return {
        name: {**fixed.get(name, {}), **chosen.settings}
        for name, each in models.items()
        if (chosen := each.chosen) is not None
    }


def write(
    models: Mapping[str, ModelTrials], fixed: Mapping[str, Mapping[str, Any]], folder: Path, what: str
) -> list[Path]:
    """Leave `CSV`, a row a trial, in the folder, and `SETTINGS`, in the form of params.yaml's `models`, if a
    trial has finished.

    Parameters
    ----------
    fixed : settings that were not chosen, by model.
    what : was searched, in words.

    Returns
    -------
    The files.
    """
    files = []
    if chosen := settings_of(models, fixed):
        text = settings_text(chosen, f"chosen by usboost tune: {what}")
        files.append(folder / SETTINGS)
        write_atomically(files[-1], text.encode())
    rows = [
        {
            "model": each.model,
            "trial": each.number,
            "state": each.state,
            "chosen": each is one.chosen,
            **each.scores,
            "rounds": each.rounds,
            "best_round": each.best_round,
            "seconds": each.seconds,
            "reason": each.reason,
            **each.settings,
        }
        for one in models.values()
        for each in one.trials
    ]
    files.append(folder / CSV)
    write_atomically(files[-1], pd.DataFrame(rows).to_csv(index=False).encode())
    return files


def rendered(models: Mapping[str, ModelTrials], by: str) -> Table:
    """The table of a search for a terminal: a row a model, the best score first."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    rows = table_rows(models, by)
    for title in rows[0]:
        right = title not in ("model", "settings")
        shown.add_column(title, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for each in rows:
        shown.add_row(*each.values())
    return shown


def table_rows(models: Mapping[str, ModelTrials], by: str) -> list[dict[str, str]]:
    """The table of a search, cells by title: a row a model, the best score first."""
    score, rows = metric_name(by), []
    for each in ranked(models):
        ended = [trial for trial in each.trials if trial.state != "proposed"]
        rows.append(
            {
                "model": each.model,
                f"{score} as it is": _score(each.first),
                f"{score} tuned": _score(each.chosen),
                "trials": f"{len(ended)}",
                "pruned": f"{sum(trial.state == 'pruned' for trial in ended)}",
                "seconds": f"{sum(trial.seconds for trial in ended):,.1f}",
                "settings": chosen_in_words(each),
            }
        )
    return rows


def ranked(models: Mapping[str, ModelTrials]) -> list[ModelTrials]:
    """The models, the best score first; last those without a finished trial."""

    def order(each: ModelTrials) -> tuple[bool, float]:
        score = each.chosen.score if each.chosen is not None else None
        return score is None, 0.0 if score is None else each.loss(score)

    return sorted(models.values(), key=order)


def chosen_in_words(found: ModelTrials) -> str:
    """The settings chosen where they differ from the model's own, or why they do not."""
    chosen, best = found.chosen, found.best
    if chosen is None or best is None:
        reasons = [each.reason for each in found.trials if each.reason]
        return f"failed: {reasons[0]}" if reasons else "no trial has finished"
    own = found.trials[0].settings
    if not own:
        return "nothing to choose"
    if chosen is not best:
        return f"as it is; {_score(best)} of trial {best.number} is within noise"
    changed = {path: value for path, value in chosen.settings.items() if value != own[path]}
    return ", ".join(f"{path} {_short(value)}" for path, value in changed.items()) or "as it is"


def _score(trial: Trial | None) -> str:
    return "–" if trial is None or trial.score is None else number(trial.score)


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "+".join(map(str, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

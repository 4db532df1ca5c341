"""What a search found, as files and a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from usboost.evaluation.names import metric_name, number
from usboost.files import write_atomically
from usboost.models.catalogue.settings_file import settings_text
from usboost.tuning.search import ModelTrials
from usboost.tuning.trials import Trial

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

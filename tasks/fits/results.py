"""A dataset's results: the record that each cell leaves, and what DVC and the terminal show of them.

The folder of a cell, data/results/<dataset>/<model>/seed-<seed>, has ``record.json`` (its fingerprint,
scores, rounds, seconds and what made it), ``trace.parquet`` (its rounds), ``rows.parquet`` (the test rows'
predictions, see `tasks.fits.scores.test_rows`; not of folds) and, for seed 0, ``inspection/``. Metrics,
tables and pages are made of these.
"""

import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tasks.fits.cell import Cell
from tasks.folders import RESULTS, prepared_folder, task_of
from tasks.settings import Settings
from usboost.evaluation import ranking
from usboost.evaluation.ranking import metric_name, number
from usboost.files import replacing, write_atomically
from usboost.models import catalogue
from usboost.report.results import dataset_name, read_trace

RECORD, TRACE, ROWS = "record.json", "trace.parquet", "rows.parquet"

ARTIFACT = "cell"
"""The folder of an MLflow run that holds its cell's record, for a results folder elsewhere."""

METRICS = ("f1", "log_loss", "rmse", "r2")
"""The scores that DVC compares and lines of the terminal have, as far as a task has them."""

CURVES = {"score": ("f1_val", "rmse_val"), "epsilon": ("epsilon",), "delta": ("delta",)}
"""The columns of a trace that are a curve, of which a fit has one at most."""
OF_KIND = {"two_branch": ("score",), "bfv_network": ("score",), "boosting": tuple(CURVES)}
"""The curves of each kind of model; those of other kinds have no score of each round."""


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record in a cell's folder; None if there is none, or it is damaged."""
    try:
        found = json.loads((folder / RECORD).read_text())
        return dict(found) if {"seed", "scores"} <= found.keys() else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def records(dataset: str, model: str) -> list[dict[str, Any]]:
    """Return the records of a model, in the order of its seeds."""
    found = map(read_record, (RESULTS / dataset / model).glob("seed-*"))
    return sorted((record for record in found if record), key=lambda record: int(record["seed"]))


def is_finished(cell: Cell) -> bool:
    """Return whether the record of a fit is there, and of nothing else than what the cell is now."""
    return (read_record(cell.results) or {}).get("fingerprint") == cell.fingerprint


def write(cell: Cell, record: Path) -> None:
    """Put the files of a cell's record in place, all or none of them."""
    with replacing(cell.results) as fresh:
        shutil.copytree(record, fresh, dirs_exist_ok=True)


def keep_only(dataset: str, wanted: Collection[Cell]) -> None:
    """Remove the records of all other cells; they stay in MLflow, and are downloaded when they are wanted."""
    kept = {cell.results for cell in wanted}
    for folder in [*(RESULTS / dataset).glob("*/*"), *(RESULTS / dataset).glob("*")]:
        if folder not in kept and not any(folder in each.parents for each in kept):
            shutil.rmtree(folder, ignore_errors=True) if folder.is_dir() else folder.unlink()


def write_metrics(dataset: str, models: Iterable[str]) -> None:
    """Write what `dvc metrics` compares: `METRICS` of each model and split, means over the seeds.

    They are below the dataset's name, as DVC else puts the file's path before each of them.
    """
    scores = {model: metrics(found) for model in models if (found := records(dataset, model))}
    text = json.dumps({dataset: scores}, indent=1) + "\n"
    write_atomically(Path("data/metrics") / f"{dataset}.json", text.encode())


def metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Average `METRICS` of each split over records, where they have them."""
    found: dict[str, dict[str, float]] = {}
    for split in records[0]["scores"]:
        scores = pd.DataFrame([record["scores"][split] for record in records])
        found[split] = {name: float(scores[name].mean()) for name in METRICS if name in scores}
    return found


def write_curves(folder: Path, cells: Iterable[tuple[str, str]], settings: Settings) -> None:
    """Write what `dvc plots` draws: ``<curve>/<dataset>-<model>.csv``, means over the seeds.

    A curve that a fit does not have has no file: DVC draws empty values as 0.
    """
    with replacing(folder) as fresh:
        for dataset, model in cells:
            curves = OF_KIND.get(settings.model(model).kind, ())
            trace = read_trace(RESULTS, dataset, model) if curves else None
            for name in curves if trace is not None else ():
                if found := curve(trace, name):
                    (fresh / name).mkdir(exist_ok=True)
                    (fresh / name / f"{dataset}-{model}.csv").write_text(found)


def curve(trace: pd.DataFrame, name: str) -> str | None:
    """Write a row per round as CSV, ``round`` and the curve's name; None where the fit does not have it."""
    for column in CURVES[name]:
        if column in trace and trace[column].notna().any():
            found = trace.groupby("round")[column].mean().dropna().rename(name)
            return found.to_csv(float_format="%.6g", lineterminator="\n")
    return None


def best_fits(settings: Settings) -> Iterator[str]:
    """Name the best model by the validation rows, and its scores, of each dataset of the run with results.

    A dataset that is cross-validated has no validation rows; there the folds' mean decides, as is said.
    """
    for dataset in settings.run.datasets:
        if not (prepared_folder(dataset) / "card.json").is_file():
            continue
        task = task_of(dataset)
        fits = [(name, record) for name in settings.models_of(dataset) for record in records(dataset, name)]
        validated = ((fit, fit[1]["scores"].get("val", fit[1]["scores"]["test"])) for fit in fits)
        best = ranking.best(validated, task.chooses)
        if best is None:
            continue
        title, scores = catalogue.title(best[0]), best[1]["scores"]
        shown = ("f1", "log_loss") if task.name == "classification" else ("rmse", "r2")
        listed = ", ".join(
            f"{metric_name(m)} {number(scores['test'][m])}" for m in shown if m in scores["test"]
        )
        how = "on test rows" if "val" in scores else "mean of the folds"
        models = len({model for model, _ in fits})
        chosen = f"best of {models} models is {title}" if models > 1 else title
        yield f"{dataset_name(dataset):<15} {chosen}: {listed} ({how})"

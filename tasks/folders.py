"""A workspace's folders, the code that decides what a step leaves in them, and the records of fits: metrics,
curves, and what the terminal shows of them.

The folder of a cell, data/results/<dataset>/<model>/seed-<seed>, has ``record.json`` (its fingerprint,
scores, rounds, seconds and what made it), ``trace.parquet`` (its rounds), ``rows.parquet`` (the test rows'
predictions, see `tasks.fits.scores.test_rows`; not of folds) and, for seed 0, ``inspection/``. Metrics,
tables and pages are made of these.
"""

import json
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tasks.settings import Settings
from usboost.boosting.code import PACKAGE, closure
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.evaluation import ranking
from usboost.evaluation.ranking import metric_name, number
from usboost.evaluation.task import TASKS, Task
from usboost.files import replacing, write_atomically
from usboost.models import catalogue
from usboost.report.results import CURVES, curve, dataset_name, read_trace

RESULTS = Path("data/results")  # a folder for each dataset, in it one for each model, in it one for each seed
CHECKPOINTS = Path("data/checkpoints")  # rounds of cells that have no record yet: no output of a stage
REPORTS = Path("reports")  # of all datasets: tables, pages, figures, and the curves that `dvc plots` draws


def raw_folder(dataset: str) -> Path:
    return Path("data/raw") / dataset


def prepared_folder(dataset: str) -> Path:
    return Path("data/prepared") / dataset


def work_folder(dataset: str) -> Path:
    """Return the place of a preparation that has not ended, and of locks: no output of a stage."""
    return Path("data/work") / dataset


def features_folder(dataset: str, seed: int) -> Path:
    """Return the place of boosted feature vectors and their GBM: no output of a stage."""
    return Path("data/features") / dataset / f"seed-{seed}"


def tuning_folder(dataset: str) -> Path:
    """Return the place of searches: no output of a stage; params.yaml gets what they choose."""
    return Path("data/tuning") / dataset


def task_of(dataset: str) -> Task:
    """Return what is predicted of a prepared dataset. Raises `UsboostError` if it is not prepared."""
    card = prepared_folder(dataset) / "card.json"
    if not card.is_file():
        raise UsboostError(
            f"{card} is missing; run `python -m flows.data {dataset}` or the deployment data/data first"
        )
    return TASKS[store.task_of(store.read_card(card.parent))]


NOT_DECIDING = (
    *("tasks.fits.models", "tasks.flow_page", "tasks.folders", "tasks.machine"),
    *("tasks.mlflow_log", "tasks.mlflow_runs", "tasks.settings", "usboost.models.build"),
)
"""Modules that decide no number: what they give to a step is in its fingerprint, or nowhere."""


def code_of(modules: Iterable[str]) -> dict[str, Path]:
    """Return the modules, of `tasks` or the library, that decide what these do, with their source files."""
    return closure(modules, [Path(__file__).parent, PACKAGE], NOT_DECIDING)


RECORD, TRACE, ROWS = "record.json", "trace.parquet", "rows.parquet"

ARTIFACT = "cell"  # the folder of an MLflow run that holds its cell's record, for a results folder elsewhere
METRICS = ("f1", "log_loss", "rmse", "r2")  # of the terminal's lines, as far as a task has them
LOSSES = ("log_loss", "rmse")  # what DVC compares, and what tells how far a model is ahead of the prior

OF_KIND = {"two_branch": ("score",), "bfv_network": ("score",), "boosting": tuple(CURVES)}
"""The curves of each kind of model; those of other kinds have no score of each round."""


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record in a cell's folder; None if there is none, or it is damaged."""
    try:
        record = json.loads((folder / RECORD).read_text())
        return dict(record) if {"seed", "scores"} <= record.keys() else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def records(dataset: str, model: str) -> list[dict[str, Any]]:
    """Return the records of a model, in the order of its seeds."""
    loaded = map(read_record, (RESULTS / dataset / model).glob("seed-*"))
    return sorted((record for record in loaded if record), key=lambda record: int(record["seed"]))


def keep_only(dataset: str, folders: Collection[Path]) -> None:
    """Remove all records but those in these folders; MLflow has them, when they are wanted again."""
    for folder in [*(RESULTS / dataset).glob("*/*"), *(RESULTS / dataset).glob("*")]:
        if folder not in folders and not any(folder in each.parents for each in folders):
            shutil.rmtree(folder, ignore_errors=True) if folder.is_dir() else folder.unlink()


def write_metrics(dataset: str, models: Iterable[str]) -> None:
    """Write what `dvc metrics` compares: a number for each model, its test log-loss or RMSE.

    The mean over the seeds, alone and not below the dataset's name: DVC makes a column of each.
    """
    scores = {model: test_loss(fits) for model in models if (fits := records(dataset, model))}
    write_atomically(Path(f"data/metrics/{dataset}.json"), f"{json.dumps(scores, indent=1)}\n".encode())


def test_loss(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Average the first of `LOSSES` that the test rows' scores have over records; None if they have none."""
    scores = pd.DataFrame([record["scores"]["test"] for record in records])
    return next((float(scores[name].mean()) for name in LOSSES if name in scores), None)


def write_curves(folder: Path, cells: Iterable[tuple[str, str]], settings: Settings) -> None:
    """Write what `dvc plots` draws: ``<curve>/<dataset>-<model>.csv``, means over the seeds.

    A curve that a fit does not have has no file: DVC draws empty values as 0.
    """
    with replacing(folder) as fresh:
        for dataset, model in cells:
            curves = OF_KIND.get(settings.model(model).kind, ())
            trace = read_trace(RESULTS, dataset, model) if curves else None
            for name in curves if trace is not None else ():
                if text := curve(trace, name):
                    (fresh / name).mkdir(exist_ok=True)
                    (fresh / name / f"{dataset}-{model}.csv").write_text(text)


def best_fits(settings: Settings) -> list[str]:
    """Tabulate the best model by the validation rows of each dataset that has results, next to two others.

    Of a dataset that is cross-validated the folds' mean decides and is shown.
    """
    heads = ("dataset", "best of the models", "score", "", "log-loss, RMSE", "prior", "LightGBM")
    rows: list[tuple[str, ...]] = [heads]
    for dataset in settings.run.datasets:
        if not (prepared_folder(dataset) / "card.json").is_file():
            continue
        task, of = task_of(dataset), {name: records(dataset, name) for name in settings.models_of(dataset)}
        fits = [(fit["model"], fit["scores"]) for each in of.values() for fit in each]
        best = ranking.best((((name, s), s.get("val", s["test"])) for name, s in fits), task.chooses)
        if best is None:
            continue
        losses = [test_loss(of.get(name, [])) for name in (best[0], catalogue.PRIOR, "lgbm")]
        shown = ("–" if each is None else number(each) for each in losses)
        first = "r2" if task.name == "regression" else task.chooses
        score = best[1]["test"].get(first)
        title = catalogue.title(best[0]) + f", of {len(of)}" * (len(of) > 1)
        named = (dataset_name(dataset), title, metric_name(first), "–" if score is None else number(score))
        rows.append((*named, *shown))
    if len(rows) == 1:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]

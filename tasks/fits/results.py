"""A dataset's results: what its fits have left for the report, for DVC to compare and for the terminal.

Each model has a folder with ``scores.json`` (a record for each seed), ``trace.parquet`` (the rounds of all
seeds), ``rows.parquet`` (the test rows' predictions, see `tasks.fits.scores.test_rows`; not of folds) and
``inspection/`` of seed 0. A record names the fingerprint of the fit it is of.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tasks.folders import metrics_file, prepared_folder, results_folder
from tasks.prepared import task_of
from tasks.settings import Settings
from usboost.datasets import store
from usboost.evaluation import ranking
from usboost.evaluation.ranking import metric_name, number
from usboost.files import replacing, write_atomically
from usboost.models import catalogue
from usboost.report.results import dataset_name

METRICS = ("f1", "log_loss", "rmse", "r2")
CURVES = {"score": ("f1_val", "rmse_val"), "epsilon": ("epsilon",), "delta": ("delta",)}
"""The columns of a trace that are a curve, of which a fit has one at most."""
OF_KIND = {"two_branch": ("score",), "bfv_network": ("score",), "boosting": tuple(CURVES)}
"""The curves of each kind of model; those of other kinds have no score of each round."""

RECORD, TRACE, ROWS, INSPECTION = "record.json", "trace.parquet", "rows.parquet", "inspection"
"""What a fit leaves."""


def records(dataset: str, model: str) -> list[dict[str, Any]]:
    """Of each seed of a model that there is a result of."""
    try:
        found = json.loads((results_folder(dataset, model) / "scores.json").read_text())
        return [dict(record) for record in found["seeds"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def has(dataset: str, model: str, seed: int, fingerprint: str) -> bool:
    """Whether the result of a fit is there."""
    return any((r.get("seed"), r.get("fingerprint")) == (seed, fingerprint) for r in records(dataset, model))


def add(dataset: str, model: str, seed: int, fit: Path) -> None:
    """Put what a fit has left among the results, in place of an earlier one with the same seed."""
    folder = results_folder(dataset, model)
    kept = [record for record in records(dataset, model) if record["seed"] != seed]
    kept.append(json.loads((fit / RECORD).read_text()))
    with replacing(folder) as fresh:
        _write_scores(fresh, dataset, model, kept)
        for name in (TRACE, ROWS):
            _write_table(
                fresh / name, folder / name, {record["seed"] for record in kept} - {seed}, fit / name
            )
        shown = fit if seed == 0 else folder
        if (shown / INSPECTION).is_dir():
            shutil.copytree(shown / INSPECTION, fresh / INSPECTION)


def keep_only(dataset: str, wanted: Collection[tuple[str, int]]) -> None:
    """Remove all results but those of some models and seeds; others are in MLflow, and are brought back."""
    for folder in results_folder(dataset).iterdir():
        seeds = {seed for model, seed in wanted if model == folder.name}
        found = records(dataset, folder.name)
        kept = [record for record in found if record["seed"] in seeds]
        if not kept:
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
        elif len(kept) < len(found):
            with replacing(folder) as fresh:
                _write_scores(fresh, dataset, folder.name, kept)
                for name in (TRACE, ROWS):
                    _write_table(fresh / name, folder / name, {record["seed"] for record in kept})
                if 0 in seeds and (folder / INSPECTION).is_dir():
                    shutil.copytree(folder / INSPECTION, fresh / INSPECTION)


def _write_scores(fresh: Path, dataset: str, model: str, kept: Sequence[Mapping[str, Any]]) -> None:
    profile = store.read_card(prepared_folder(dataset))["profile"]
    ordered = sorted(kept, key=lambda record: int(record["seed"]))
    document = {"dataset": dataset, "model": model, "profile": profile, "seeds": ordered}
    (fresh / "scores.json").write_text(json.dumps(document, indent=1) + "\n")


def _write_table(target: Path, earlier: Path, seeds: Collection[int], fit: Path | None = None) -> None:
    """Rows of some seeds of a table, and those of a fit; nothing where neither is there."""
    tables = [pd.read_parquet(fit)] if fit is not None and fit.is_file() else []
    if seeds and earlier.is_file():
        table = pd.read_parquet(earlier)
        tables.append(table[table["seed"].isin(seeds)])
    if tables:
        joined = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
        joined.sort_values("seed", kind="stable", ignore_index=True).to_parquet(target, index=False)


def write_metrics(dataset: str, models: Iterable[str]) -> None:
    """Write what `dvc metrics` compares: `METRICS` of each model and split, means over the seeds.

    They are below the dataset's name, as DVC else puts the file's path before each of them.
    """
    scores = {model: metrics(found) for model in models if (found := records(dataset, model))}
    write_atomically(metrics_file(dataset), (json.dumps({dataset: scores}, indent=1) + "\n").encode())


def write_curves(folder: Path, cells: Iterable[tuple[str, str]], settings: Settings) -> None:
    """Write what `dvc plots` draws: ``<curve>/<dataset>-<model>.csv``, means over the seeds.

    A curve that a fit does not have has no file: DVC draws empty values as 0.
    """
    with replacing(folder) as fresh:
        for dataset, model in cells:
            trace = results_folder(dataset, model) / TRACE
            for name in OF_KIND.get(settings.model(model).kind, ()) if trace.is_file() else ():
                found = curve(pd.read_parquet(trace), name)
                if found is not None:
                    (fresh / name).mkdir(exist_ok=True)
                    (fresh / name / f"{dataset}-{model}.csv").write_text(found)


def metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """`METRICS` of each split, where a fit has them."""
    found: dict[str, dict[str, float]] = {}
    for split in records[0]["scores"]:
        scores = pd.DataFrame([record["scores"][split] for record in records])
        found[split] = {name: float(scores[name].mean()) for name in METRICS if name in scores}
    return found


def curve(trace: pd.DataFrame, name: str) -> str | None:
    """A row per round as CSV, ``round`` and the curve's name; None where the fit does not have it."""
    for column in CURVES[name]:
        if column in trace and trace[column].notna().any():
            found = trace.groupby("round")[column].mean().dropna().rename(name)
            return found.to_csv(float_format="%.6g", lineterminator="\n")
    return None


SHOWN = {"classification": ("f1", "log_loss"), "regression": ("rmse", "r2")}


def best_fits(settings: Settings) -> Iterator[str]:
    """Of each dataset of the run that has results: its best model by the validation rows, and its scores.

    A dataset that is cross-validated has no validation rows; there the folds' mean decides, and is said to.
    """
    for dataset in settings.run.datasets:
        if not (prepared_folder(dataset) / "card.json").is_file():
            continue
        task = task_of(dataset)
        fits = [(name, record) for name in settings.models_of(dataset) for record in records(dataset, name)]
        best = ranking.best(((each, _chosen_by(each[1])) for each in fits), task.chooses)
        if best is not None:
            name, record = best
            test = record["scores"]["test"]
            scores = ", ".join(f"{metric_name(m)} {number(test[m])}" for m in SHOWN[task.name] if m in test)
            how = "on test rows" if "val" in record["scores"] else "mean of the folds"
            models = len({model for model, _ in fits})
            said = (
                f"best of {models} models is {catalogue.title(name)}" if models > 1 else catalogue.title(name)
            )
            yield f"{dataset_name(dataset):<15} {said}: {scores} ({how})"


def _chosen_by(record: dict[str, Any]) -> dict[str, float]:
    scores: dict[str, dict[str, float]] = record["scores"]
    return scores.get("val", scores["test"])

"""One fit: read what is prepared, fit, score, log to MLflow, and write the cell's record."""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.tracking import MlflowClient
from prefect import task
from prefect.cache_policies import NO_CACHE
from sklearn.base import clone

from tasks import flow_page as page
from tasks import machine
from tasks import mlflow_log as log
from tasks import mlflow_runs as runs
from tasks.fits import scores as scores_of
from tasks.fits.features import fit_features, read_features
from tasks.fits.models import Cell
from tasks.folders import (
    ARTIFACT,
    CHECKPOINTS,
    RECORD,
    REPORTS,
    ROWS,
    TRACE,
    features_folder,
    prepared_folder,
)
from usboost.boosting.checkpoint import Checkpoint
from usboost.data.images import EncodedImages, Images
from usboost.data.views import Views
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.evaluation.intervals import margins
from usboost.files.arrays import sha256
from usboost.fit.bundle import Bundle, bundle_of, example_of
from usboost.fit.table_fit import TableFit
from usboost.models.catalogue import model_colour
from usboost.models.entry import KINDS
from usboost.models.estimator import ViewsEstimator
from usboost.models.inspection.inspect import informative_columns
from usboost.models.methods import bfv_network
from usboost.models.methods.bfv_network import BFV
from usboost.models.methods.boosted_features import load_gbm
from usboost.models.methods.early_trigger import EarlyTrigger
from usboost.models.methods.earlyboost import EarlyBoostClassifier
from usboost.process import limit_threads, processor
from usboost.report.results import history_frame
from usboost.table.prepared import ROW, SPLITS, read_prepared

INSPECTED, INSPECTED_IMAGES = 2000, 400  # samples on which views are shuffled


@task(
    cache_policy=NO_CACHE,
    task_run_name="{cell.name}",
    retry_delay_seconds=1,
    retry_condition_fn=machine.worth_retrying,
)
def fit_cell(cell: Cell, tracking_uri: str, threads: int) -> str:
    """Fit a cell in an MLflow run, write its record, the run's artifacts, and return the run's id.

    Raises `UsboostError` if the fit fails, or MLflow does not take what is logged.
    """
    mlflow.set_tracking_uri(tracking_uri)
    place = machine.place()
    limit_threads(threads)
    with machine.gpu_slot(machine.devices(cell.identity["model"]), cell.settings.fits.gpu_slots):
        if cell.entry.needs_features:
            fit_features(cell.dataset, cell.seed, cell.settings, cell.identity["features"])
        with runs.one_sentence(), checkpoint(cell) as resumable, tempfile.TemporaryDirectory() as folder:
            named, out = resumable.folder / "mlflow.json", Path(folder)
            abandoned = f"attributes.status = 'RUNNING' and tags.cell = '{cell.name}'"
            for run in runs.runs_of(cell.dataset, abandoned):  # by processes of this folder
                if run.data.tags.get("place") == place and run.info.run_id != runs.read_run_id(named):
                    runs.supersede(run.info.run_id)
            resumable.begin(cell.identity)  # also of models without rounds, whose run is resumed all the same
            card = store.read_card(prepared_folder(cell.dataset))
            tags = tags_of(cell, card["profile"]) | {"place": place}
            with runs.tracked_run(f"usboost-{card['profile']}", cell.title, tags, named) as run_id:
                runs.log_datasets(run_id, card, prepared_folder(cell.dataset))
                page.link_run(run_id, cell.name)
                fit(replace(cell, estimator=clone(cell.estimator)), out, run_id, resumable)
                if sha256(prepared_folder(cell.dataset) / "card.json") != cell.identity["data"]:
                    raise UsboostError(f"{cell.dataset} was made again while it was fitted; fit it again")
                log.log_files(run_id, out, ARTIFACT)
                if MlflowClient().get_run(run_id).data.tags.get(runs.SUPERSEDED):
                    raise runs.Superseded(f"{cell.name} was given to another worker; its result counts")
            # last: a record that is here is of a run that has ended well
            cell.write(out)
    return run_id


def tags_of(cell: Cell, profile: str) -> dict[str, str]:
    """Return the tags of a cell's run: what it is, its origin, its description."""
    entry, inputs = cell.entry, {"prepared": prepared_folder(cell.dataset)}
    if entry.needs_features:
        inputs["features"] = features_folder(cell.dataset, cell.seed)
    about = f"**{entry.title}**, {entry.about}, fitted to `{cell.dataset}` with seed {cell.seed}."
    places = {"report": REPORTS / "index.html", "results": cell.results}
    words = [cell.dataset, "--model", cell.model, "--seeds", str(cell.seed + 1)]
    given = runs.described(about, inputs, ["python", "-m", "flows.fit", *words], **places)
    given |= {"dataset": cell.dataset, "model": cell.model, "seed": str(cell.seed), "profile": profile}
    given |= {"title": entry.title, "kind": entry.kind, "task": cell.task.name}
    given |= {"mlflow.runColor": colour} if (colour := model_colour(cell.model)) else {}
    return given | {"cell": cell.name, "fingerprint": cell.fingerprint}


@contextmanager
def checkpoint(cell: Cell) -> Iterator[Checkpoint]:
    """Keep the rounds of a fit until its record is written; those of other data, settings or code go.

    While another process fits the same here (one that was given up, but is only slow), they are elsewhere.
    """
    folder = CHECKPOINTS / cell.name
    with (
        machine.locked(folder.with_suffix(".lock"), wait=False) as free,
        tempfile.TemporaryDirectory() as elsewhere,
    ):
        resumable = Checkpoint(folder if free else Path(elsewhere) / "kept", cell.identity)
        if resumable.of_another_fit():
            print(f"{resumable.folder} is of other data, parameters or code; starting again", file=sys.stderr)
            runs.supersede(runs.read_run_id(resumable.folder / "mlflow.json"))
            resumable.clear()
        try:
            yield resumable
        except BaseException:
            if not resumable.began():
                resumable.clear()
            raise
        resumable.clear()


@dataclass(frozen=True)
class FittedCell:
    """A fitted model, what its fit took, and what it predicts, by split."""

    model: Any  # whose rounds, and inspection, are shown
    bundle: Bundle  # what is logged as the model
    took: tuple[int, float, float]  # the best round, seconds, and those in which rounds were logged
    validation: tuple[Views, np.ndarray]
    predicted: dict[str, Any]
    scores: scores_of.Scores


def fit(cell: Cell, out: Path, run_id: str, resumable: Checkpoint) -> dict[str, Any]:
    """Fit and score in the MLflow run `run_id`; return the record. `out` gets the files of `tasks.folders`.

    Rounds are written to the checkpoint `resumable` and resumed from it.
    """
    folder = prepared_folder(cell.dataset)
    card = store.read_card(folder)
    of: dict[str, Any] = {"dataset": cell.dataset, "model": cell.model, "seed": cell.seed}
    log.log_estimator(run_id, cell.estimator, **of)
    if card.get("folds"):
        folds, history, seconds = scores_of.fit_folds(cell.task, cell.estimator, folder, cell.seed)
        # the mean of the folds is the seed's score, and that of their rounds its rounds
        scores = {"test": {name: float(np.mean([fold[name] for fold in folds])) for name in folds[0]}}
        every = pd.concat([history_frame(each, cell.seed) for each in history])
        rounds = every.groupby("round", as_index=False).mean(numeric_only=True)
        rounds = rounds.astype({"seed": "int64", "round": "int64"})
        cost = {"rounds": len(rounds), "fit_seconds": seconds}
        log.log_scores(run_id, scores, **cost, folds=len(folds))
        log.log_folds(run_id, rounds, folds)
        page.log(f"{cell.entry.title} on folds of {cell.dataset}, repetition {cell.seed}, {seconds:.1f} s")
        result: dict[str, Any] = {**cost, "best_round": len(rounds), "scores": scores}
    else:
        counts = ", ".join(f"{card['splits'].get(split, {}).get('rows', 0):,} {split}" for split in SPLITS)
        page.log(f"{cell.entry.title} on {cell.dataset}, seed {cell.seed}; rows: {counts}")
        fitted = (_fit_table if store.is_user_table(card) else _fit_splits)(cell, run_id, resumable)
        scores_of.test_rows(fitted.predicted, cell.seed).to_parquet(out / ROWS, index=False)
        rounds = history_frame(fitted.model.history_, cell.seed)
        best, seconds, logging = fitted.took
        cost, took = {"fit_seconds": seconds}, f"{seconds:.1f} s"
        if KINDS[cell.entry.kind].rounds:
            cost |= {"rounds": max(len(rounds), best), "best_round": best}
            took = f"best round {best} of {cost['rounds']}, {took}"
        page.log(took)
        # once each, however often the fit is resumed
        with tempfile.TemporaryDirectory() as place, log.once(run_id, "model_logged") as first:
            if first:
                bundle, saved = fitted.bundle, Path(place) / "bundle"
                bundle.save(saved)
                example = example_of(bundle.card, folder)
                tags = {name: str(value) for name, value in of.items()}
                log.log_model(run_id, saved, bundle.card, example, cell.title, tags)
        with log.once(run_id, "scored") as first:
            if first:
                log.log_scores(run_id, fitted.scores, **cost, logging_seconds=logging)
        if cell.seed == 0:
            write_inspection(fitted.model, cell.dataset, fitted.validation, fitted.predicted["val"][1], out)
        result = {**cost, "scores": fitted.scores}
        if margin := fitted.bundle.card.margin:
            result |= {"margin": margin, "floor": fitted.bundle.card.floor}
        if cell.entry.needs_features:
            alone = features_folder(cell.dataset, cell.seed) / "scores.json"
            result["gbm"] = json.loads(alone.read_text())
    page.log(page.scores_in_words(result["scores"]))
    of |= {"profile": card["profile"], "fingerprint": cell.fingerprint, "processor": processor()}
    run = MlflowClient().get_run(run_id)
    origin = run.data.tags
    made = {"mlflow_run": run.info.run_id, "mlflow_experiment": run.info.experiment_id}
    made |= {"prefect_flow_run": origin.get("prefect.flow_run_id"), "stage": origin.get("stage")}
    inputs = {name[6:]: origin[name] for name in sorted(origin) if name.startswith("input.")}
    record = {**of, **result, "made": {**made, "inputs": inputs}}
    (out / RECORD).write_text(json.dumps(record, indent=1) + "\n")
    rounds.to_parquet(out / TRACE, index=False)
    return record


def _fit_splits(cell: Cell, run_id: str, resumable: Checkpoint) -> FittedCell:
    """Fit a dataset of the papers: the training rows, while the validation rows choose the rounds."""
    dataset, estimator = cell.dataset, cell.estimator
    card = store.read_card(prepared_folder(dataset))
    splits = {split: store.read(prepared_folder(dataset), split) for split in SPLITS}
    if cell.entry.needs_features:
        folder = features_folder(dataset, cell.seed)
        splits = {
            split: (views.with_view(BFV, read_features(folder, split, len(y))), y)
            for split, (views, y) in splits.items()
        }
        estimator.set_params(gbm=load_gbm(folder / "gbm"))
    logger = log.MLflowCallback(run_id)
    estimator.set_params(callbacks=[page.ShowProgress(cell.title), logger])
    if "checkpoint" in estimator.get_params(deep=False):
        estimator.set_params(checkpoint=resumable)
    started = time.perf_counter()
    estimator.fit(*splits["train"], validation=splits["val"])
    seconds = time.perf_counter() - started - logger.seconds + logger.earlier
    predicted = scores_of.predict(cell.task, estimator, splits)
    scores = scores_of.score(cell.task, predicted)
    if isinstance(estimator, EarlyBoostClassifier):
        how = cell.settings.earlyboost
        trigger = EarlyTrigger(threshold=how.threshold, by=how.trigger).use(estimator)
        for split, metrics in scores.items():
            views, labels = splits[split][0], estimator.classes_[splits[split][1]]
            figures = trigger.figures(views, labels)
            metrics.update(zip(("harmonic_mean", "early_accuracy", "earliness"), figures, strict=True))
            for row, answers in zip(estimator.history_, estimator.staged_predict(views), strict=True):
                row[f"accuracy_{split}"] = float(np.mean(answers == labels))
    margin = None if card["classes"] else margins(*predicted["val"])
    bundle = bundle_of(estimator, card, name=cell.model, seed=cell.seed, scores=scores["val"], margin=margin)
    took = estimator.best_round_, seconds, logger.seconds
    return FittedCell(estimator, bundle, took, splits["val"], predicted, scores)


def _fit_table(cell: Cell, run_id: str, resumable: Checkpoint) -> FittedCell:
    """Fit a user's table as `usboost fit` does, watched, and score it on the test rows.

    What is logged as the model, and scored on the test rows, is the bundle that `usboost fit` saves, fitted
    to training and validation rows. Its rounds, the validation scores and the inspection are of the fit
    before, which saw no validation row. Rounds of both are written to the checkpoint and resumed from it.
    """
    table = read_prepared(prepared_folder(cell.dataset))
    test = np.flatnonzero(table.split == "test")
    logger = log.MLflowCallback(run_id)
    watchers = [page.ShowProgress(cell.title), logger]
    own: dict[str, Any] = {"seed": cell.seed, "callbacks": watchers, "callbacks_of_all": ()}
    fitted = TableFit(table, cell.estimator, cell.model, keep=_TwoCheckpoints(resumable), **own).run()
    predicted = {
        "val": (fitted.labels, fitted.predicted),
        "test": (table.labels[test], fitted.bundle.predicted_of(table, test)),
    }
    took = fitted.best_round, fitted.seconds - logger.seconds + logger.earlier, logger.seconds
    validation, scores = (fitted.views, fitted.labels), scores_of.score(cell.task, predicted)
    return FittedCell(cell.estimator, fitted.bundle, took, validation, predicted, scores)


class _TwoCheckpoints:
    """The rounds of the first fit in a checkpoint, those of the fit to all rows in a folder in it."""

    def __init__(self, resumable: Checkpoint) -> None:
        self._places = [resumable, Checkpoint(resumable.folder / "all-rows", resumable.identity)]

    def keep(self, model: Any, *samples: tuple[Any, ...]) -> None:
        """See `usboost.fit.record.Keep`."""
        place = self._places.pop(0)
        if "checkpoint" in model.get_params(deep=False):
            model.set_params(checkpoint=place)


def write_inspection(
    estimator: ViewsEstimator,
    dataset: str,
    validation: tuple[Views, np.ndarray],
    predicted: np.ndarray,
    out: Path,
) -> None:
    """Inspect a model on the validation split; write ``<out>/inspection``, which is logged with the record.

    Parameters
    ----------
    predicted : its probabilities for the validation split, (n, M), or numbers, (n,)
    """
    # here, because matplotlib takes long to import
    from usboost.report.inspection import FOLDER, as_shown, inspect, write

    views, y = validation
    folder = prepared_folder(dataset)
    card = store.read_card(folder)
    with_images = card.get("images", {}).get("view")
    rows = INSPECTED_IMAGES if with_images else INSPECTED
    inspected = inspect(
        estimator,
        _read(estimator, views),
        y,
        [str(name) for name in card["classes"]],
        label=str(card.get("roles", {}).get("label", "the label")),
        predicted=predicted,
        sample=np.sort(np.random.default_rng(0).permutation(len(y))[:rows]),  # the same every time
    )
    shown: Any = views[with_images] if with_images else None
    images: dict[int, bytes] = {}
    for row in inspected.tables["worst"]["row"].tolist() if isinstance(shown, Images | EncodedImages) else ():
        if picture := shown.picture(row):
            images[row] = as_shown(picture)
    write(inspected, out / FOLDER, _informative(store.read_frame(folder, "val"), card), images)


def _read(estimator: ViewsEstimator, views: Views) -> Views:
    """Return the views without the table that BFVs stand for, which the model then does not read."""
    kinds = bfv_network.BoostedFeatureNetworkClassifier, bfv_network.BoostedFeatureNetworkRegressor
    if not (isinstance(estimator, kinds) and BFV in views.names):
        return views
    return Views({name: views[name] for name in views.names if name != estimator.structured})


def _informative(frame: pd.DataFrame, card: Mapping[str, Any]) -> pd.DataFrame:
    """Return the columns to show of a sample; first, if known, its class before a label was switched."""
    from usboost.report.inspection import COLUMNS

    y = frame[store.LABEL].to_numpy()
    raw = frame.drop(columns=[store.LABEL, store.CLEAN, ROW], errors="ignore")
    out = raw[informative_columns(raw, y, COLUMNS)]
    if store.CLEAN in frame:
        names = np.asarray([str(name) for name in card["classes"]], dtype=object)
        out.insert(0, store.CLEAN, names[frame[store.CLEAN].to_numpy()])
    return out.astype(object).where(out.notna(), "–")

"""Fit the models of a dataset, with every seed, side by side; skip the fits that nothing has changed."""

import os
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated

from pydantic import Field

from flows.data import prepare_again
from flows.flow import Dataset, Model, command, flow
from flows.local import runtime
from tasks import flow_page as page
from tasks import folders, machine, mlflow_runs
from tasks import settings as params
from tasks.fits import run_cells
from tasks.fits.fit_cell import fit_cell
from tasks.fits.models import Cell, grid, of_task, plan
from usboost.errors import UsboostError
from usboost.evaluation.ranking import metric_name, number
from usboost.process import thread_share

tell = partial(print, flush=True)


@flow(name="fit", flow_run_name="fit-{dataset}")
def fit(
    dataset: Dataset,
    models: Sequence[Model] = (),
    seeds: Annotated[int, Field(ge=1)] | None = None,
    new_data: bool = False,
) -> Path:
    """Fit a dataset's models; data/results/<dataset>, a table, an MLflow run for each fit.

    A fit whose data, settings and code have not changed is skipped, whoever has made it. One that fails
    leaves the others alone; run again, only those that are missing are fitted.

    Args:
        dataset: prepared dataset, e.g. ci_a
        models: models to fit, e.g. 2wl; empty: all that params.yaml names for the dataset
        seeds: number of seeds; empty: as in params.yaml
        new_data: first read the raw data again, and prepare the dataset if they have changed
    """
    settings = params.load()
    prepare_again(dataset, settings, new_data)
    chosen = list(models) or of_task(dataset, settings.models_of(dataset), settings)
    cells = grid(dataset, chosen, seeds or settings.sizes.seeds, settings)
    running = f"the fits of {dataset} are running in this folder; wait for them"
    with runtime.alone(folders.work_folder(dataset) / "fit.lock", running):
        # of flows and processes that begin at once, one makes the store and the experiment
        with machine.locked(runtime.home() / "services/mlflow.lock", wait=True), mlflow_runs.one_sentence():
            mlflow_runs.experiment_id(f"usboost-{settings.profile}")
        todo = run_cells.missing(cells)
        page.log(f"{dataset}: {len(cells)} fits, {len(cells) - len(todo)} of them as they were")
        tell(f"{dataset}: {len(todo)} of {len(cells)} fits to make")
        ended = count(1 + len(cells) - len(todo))

        def on_end(cell: Cell) -> None:
            """Print the scores of a fit that has ended, wherever it was made."""
            run_cells.missing([cell])
            record = folders.read_record(cell.results) or {"scores": {"test": {}}, "fit_seconds": 0.0}
            test = record["scores"]["test"]
            scores = [f"{metric_name(name)} {number(test[name])}" for name in folders.METRICS if name in test]
            place = f"{dataset} [{next(ended):>{len(str(len(cells)))}}/{len(cells)}]"
            named = f"{cell.model} seed {cell.seed}"
            tell(f"{place} {named:<24} {record['fit_seconds']:6.1f} s  {'  '.join(scores)}")

        if settings.fits.runner == "deployments":
            reasons = run_cells.run_on_workers(dataset, todo, settings.fits, on_end, tell)
        else:
            reasons = run_cells.run_locally(todo, settings.fits, on_end)
        for cell, reason in reasons.items():
            tell(f"{cell.name} failed: {reason}")
            page.log(f"{cell.name} failed: {reason}")
        if not models:
            folders.keep_only(dataset, [cell.results for cell in cells])
        # the records of fits that failed are of other settings, data or code
        failed = {cell.model for cell in reasons}
        folders.write_metrics(dataset, [each for each in settings.models_of(dataset) if each not in failed])
    records = [record for model in chosen for record in folders.records(dataset, model)]
    page.show_scores(page.key("scores", dataset), records, f"Scores of the fits of {dataset}")
    if len(todo) > len(reasons):
        page.emit("usboost.fitted", dataset, {"dataset": dataset})
    if reasons:
        cell, reason = next(iter(reasons.items()))
        raise UsboostError(
            f"{len(reasons)} of {len(cells)} fits of {dataset} failed, {cell.name} because: "
            f"{reason.rstrip('.')}; the others are kept, and the same command fits what is missing"
        )
    return runtime.finished(folders.RESULTS / dataset)


@flow(name="fit-one", flow_run_name="fit-{dataset}-{model}-seed{seed}")
def fit_one(dataset: Dataset, model: Model, seed: Annotated[int, Field(ge=0)] = 0, expected: str = "") -> str:
    """Fit one model with one seed, unless that has been done; return the id of its MLflow run.

    The flow `fit` starts these on the workers of a pool, and gathers their folders.

    Args:
        dataset: prepared dataset, e.g. ci_a
        model: a model of the catalogue or of params.yaml, e.g. 2wl
        seed: seed of the fit
        expected: fingerprint that the fit must have; empty: any
    """
    settings = params.load()
    cell = plan(dataset, model, seed, settings)
    if expected not in ("", cell.fingerprint):
        raise UsboostError(
            f"{cell.name}: params.yaml, the data or the code here are not those of the flow that asks; "
            "bring this worker's folder up to date"
        )
    if not run_cells.missing([cell]):  # a process that was only slow has fitted it
        return str((folders.read_record(cell.results) or {})["made"]["mlflow_run"])
    task = fit_cell.with_options(retries=settings.fits.retries)
    return str(task(cell, os.environ["MLFLOW_TRACKING_URI"], thread_share(1)))


app = command(__name__, fit)

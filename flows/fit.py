"""Fit the models of a dataset, with every seed, side by side; skip the fits that nothing has changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from flows.local import runtime

runtime.configure()

import mlflow  # noqa: E402
import typer  # noqa: E402
from pydantic import Field  # noqa: E402

from flows.data import data  # noqa: E402
from flows.flow import Dataset, Model, command, flow  # noqa: E402
from tasks import machine, tracking  # noqa: E402
from tasks import settings as params  # noqa: E402
from tasks.catalog import own_table_has_changed  # noqa: E402
from tasks.fits import results, runs  # noqa: E402
from tasks.fits.cell import Cell, grid, of_task, plan  # noqa: E402
from tasks.fits.fit_cell import fit_cell  # noqa: E402
from tasks.fits.run_cells import run_locally, run_on_workers  # noqa: E402
from tasks.folders import RESULTS, work_folder  # noqa: E402
from tasks.pages import flow_page as page  # noqa: E402
from usboost.errors import UsboostError  # noqa: E402
from usboost.evaluation.ranking import metric_name, number  # noqa: E402

tell = partial(print, flush=True)


class Progress:
    """Prints a line when a fit has ended.

    Parameters
    ----------
    cells : number of all fits; todo : of those to be made
    """

    def __init__(self, dataset: str, cells: int, todo: int) -> None:
        self._total, self._done, self._began = cells, cells - todo, time.monotonic()
        tell(f"{dataset}: {todo} of {cells} fits to make")

    def on_end(self, cell: Cell) -> None:
        """Print the scores of a fit that has ended, wherever it was made."""
        runs.missing([cell])
        record = results.read_record(cell.results) or {}
        self._done += 1
        test = record.get("scores", {}).get("test", {})
        scores = [f"{metric_name(name)} {number(test[name])}" for name in results.METRICS if name in test]
        count = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
        seconds = record.get("fit_seconds", time.monotonic() - self._began)
        tell(f"{count} {f'{cell.model} seed {cell.seed}':<24} {seconds:6.1f} s  {'  '.join(scores)}")


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
    if dataset == "user_table" and own_table_has_changed(settings):
        tell("the table, or an image of it, has changed; it is prepared again")
        data(dataset)
    elif new_data:
        data(dataset)
    chosen = list(models) or of_task(dataset, settings.models_of(dataset), settings)
    cells = grid(dataset, chosen, seeds or settings.sizes.seeds, settings)
    running = f"the fits of {dataset} are running in this folder; wait for them"
    with runtime.alone(work_folder(dataset) / "fit.lock", running):
        with tracking.one_sentence():  # before several processes make it
            tracking.experiment_id(f"usboost-{settings.profile}")
        todo = runs.missing(cells)
        page.log(f"{dataset}: {len(cells)} fits, {len(cells) - len(todo)} of them as they were")
        progress = Progress(dataset, len(cells), len(todo))
        if settings.fits.runner == "deployments":
            reasons = run_on_workers(dataset, todo, settings.fits, progress.on_end, tell)
        else:
            reasons = run_locally(todo, settings.fits, progress.on_end)
        for cell, reason in reasons.items():
            tell(f"{cell.name} failed: {reason}")
            page.log(f"{cell.name} failed: {reason}")
        if not models:
            results.keep_only(dataset, cells)
        results.write_metrics(dataset, settings.models_of(dataset))
    records = [record for model in chosen for record in results.records(dataset, model)]
    page.show_scores(page.key("scores", dataset), records, f"Scores of the fits of {dataset}")
    if len(todo) > len(reasons):
        page.emit("usboost.fitted", dataset, {"dataset": dataset})
    if reasons:
        cell, reason = next(iter(reasons.items()))
        raise UsboostError(
            f"{len(reasons)} of {len(cells)} fits of {dataset} failed, {cell.name} because: "
            f"{reason.rstrip('.')}; the others are kept, and the same command fits what is missing"
        )
    return runtime.finished(RESULTS / dataset)


@flow(name="fit-one", flow_run_name="fit-{dataset}-{model}-seed{seed}")
def fit_one(dataset: Dataset, model: Model, seed: Annotated[int, Field(ge=0)] = 0, expected: str = "") -> str:
    """Fit one model with one seed, unless that has been done; the id of its MLflow run.

    The flow `fit` starts these on the workers of a pool, and gathers their results.

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
    if run := runs.finished(cell):  # by a process that was only slow
        return str(run.info.run_id)
    task = fit_cell.with_options(retries=settings.fits.retries)
    return str(task(cell, mlflow.get_tracking_uri(), machine.thread_share(1)))


main = command(fit)

if __name__ == "__main__":
    typer.run(main)

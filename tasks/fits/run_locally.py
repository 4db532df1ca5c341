"""The fits of a dataset side by side on a Prefect task runner: threads, processes or Dask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlflow
from prefect.futures import as_completed
from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from tasks import machine
from tasks.fits.cells import Cell, fit_cell
from tasks.settings import Fits, Settings
from usboost.errors import UsboostError


def task_runner(chosen: Fits) -> TaskRunner[Any]:
    """The task runner that the settings name.

    Raises `UsboostError` if Dask is asked for and not installed.
    """
    if chosen.runner == "threads":
        return ThreadPoolTaskRunner(max_workers=chosen.workers)
    if chosen.runner == "processes":
        return ProcessPoolTaskRunner(max_workers=chosen.workers)
    try:
        import dask
        from prefect_dask import DaskTaskRunner
    except ImportError:
        raise UsboostError("Dask is not installed; install usboost[dask] or choose another runner") from None
    if chosen.dask_address:
        return DaskTaskRunner(address=chosen.dask_address)
    # Dask has malloc give every array back at once, and a training then spends half its time getting memory
    dask.config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None})
    cluster = {
        "n_workers": chosen.workers,
        "threads_per_worker": 1,
        "dashboard_address": "127.0.0.1:0",
        "resources": {"GPU": 1},
    }
    return DaskTaskRunner(cluster_class="distributed.LocalCluster", cluster_kwargs=cluster)


def annotated(chosen: Fits, cell: Cell) -> AbstractContextManager[Any]:
    """In the block, a cell that is submitted to Dask goes to a worker with a GPU, if it needs one."""
    if chosen.runner != "dask" or not machine.on_gpu(set(cell.devices)):
        return nullcontext()
    import dask

    return dask.annotate(resources={"GPU": 1})


def run_cells(cells: Sequence[Cell], settings: Settings, ended: Callable[[Cell], None]) -> dict[Cell, str]:
    """Fit the cells; why those failed that failed, each in a sentence.

    A cell that raises is retried by Prefect. One whose process died took its pool with it, and
    others that were in it: they are tried again in a new one.

    Parameters
    ----------
    ended : called with each cell that has been fitted
    """
    chosen = settings.fits
    task = fit_cell.with_options(retries=chosen.retries)
    threads = machine.thread_share(chosen.workers)
    reasons: dict[Cell, str] = {}
    left = list(cells)
    for _ in range(1 + chosen.retries):
        if not left:
            break
        with task_runner(chosen) as runner:
            futures = {}
            for cell in left:
                with annotated(chosen, cell):
                    parameters = {
                        "cell": cell,
                        "settings": settings,
                        "tracking_uri": mlflow.get_tracking_uri(),
                        "threads": threads,
                    }
                    futures[runner.submit(task, parameters)] = cell
            left = []
            for future in as_completed(list(futures)):
                cell = futures[future]
                try:
                    future.result()
                except Exception as error:
                    reasons[cell] = str(error) or type(error).__name__
                    if not future.state.is_final():
                        reasons[cell] = f"its process died ({type(error).__name__})"
                        left.append(cell)
                else:
                    reasons.pop(cell, None)
                    ended(cell)
    return reasons

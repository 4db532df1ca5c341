"""Search the settings of models of a prepared dataset on its validation rows."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from flows.data import prepare_again
from flows.flow import Dataset, Model, command, flow
from flows.local import runtime
from tasks import settings as params
from tasks import tuning
from tasks.fits.models import entry_of, of_task
from tasks.folders import tuning_folder
from usboost.fit.tune import BATCH, SETTINGS, Plan

Score = Literal["auto", "log_loss", "accuracy", "f1", "auc", "rmse", "mae", "r2"]


@flow(name="tune", flow_run_name="tune-{dataset}")
def tune(
    dataset: Dataset,
    models: Sequence[Model] = (),
    trials: Annotated[int, Field(ge=1)] = 20,
    by: Score = "auto",
    jobs: Annotated[int, Field(ge=1)] | None = None,
    minutes: Annotated[float, Field(gt=0)] | None = None,
    prune: bool = True,
    apply: bool = False,
) -> Path:
    """Choose settings of models, as many trials each; data/tuning/<dataset>.

    A search that was stopped goes on with what is there.

    Args:
        dataset: prepared dataset, e.g. ci_a
        models: models of params.yaml, e.g. 2wl; empty: all of params.yaml's run
        trials: trials of each model, the first with its settings as they are
        by: score of the validation rows that settings are chosen by; auto: log-loss, or RMSE of a number
        jobs: trials at a time; empty: fits.workers of params.yaml
        minutes: after these no new round begins; empty: no limit
        prune: whether fits end early that are behind others
        apply: whether params.yaml gets the settings found
    """
    settings = params.load()
    prepare_again(dataset, settings)
    # models whose features are fitted before them have no settings of their own alone
    offered = settings.models_of(dataset)
    own = [name for name in offered if not entry_of(name, dataset, settings).needs_features]
    names = list(models) or of_task(dataset, own, settings)
    deadline = time.time() + 60 * minutes if minutes else float("inf")
    plan = Plan(trials, BATCH, 0, prune, jobs or settings.fits.workers, deadline)
    running = f"a search for {dataset} is running in this folder; wait for it"
    with runtime.alone(tuning_folder(dataset) / ".lock", running):
        folder = tuning.tune(dataset, names, settings, plan, by)
    print(f"written {folder / SETTINGS}" + (" and params.yaml" if apply else ""))
    if apply:
        tuning.apply(folder / SETTINGS)
    elif words := tuning.overrides(folder / SETTINGS):
        print("to fit with it: dvc exp run " + " ".join(f"-S '{word}'" for word in words))
    return runtime.finished(folder)


app = command(__name__, tune)

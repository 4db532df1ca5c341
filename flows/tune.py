"""Search the settings of models of a prepared dataset on its validation rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from flows.local import runtime

runtime.configure()

import typer  # noqa: E402
from pydantic import Field  # noqa: E402

from flows.data import data  # noqa: E402
from flows.flow import Dataset, Model, command, flow  # noqa: E402
from tasks import settings as params  # noqa: E402
from tasks import tuning  # noqa: E402
from tasks.catalog import own_table_has_changed  # noqa: E402
from tasks.fits.cell import of_task  # noqa: E402
from tasks.fits.models import entry_of  # noqa: E402
from tasks.folders import tuning_folder  # noqa: E402
from usboost.fit.tune import (  # noqa: E402
    BATCH,
    SETTINGS,
    Plan,
)

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
    if dataset == "user_table" and own_table_has_changed(settings):
        print("the table, or an image of it, has changed; it is prepared again", flush=True)
        data(dataset)
    # models whose features are fitted before them have no settings of their own alone
    own = [
        name for name in settings.models_of(dataset) if not entry_of(name, dataset, settings).needs_features
    ]
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


main = command(tune)

if __name__ == "__main__":
    typer.run(main)

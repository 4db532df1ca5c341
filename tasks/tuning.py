"""Settings of a dataset's models, searched on its training and validation rows, with an MLflow run each."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from prefect import task
from prefect.cache_policies import NO_CACHE
from ruamel.yaml import YAML

from tasks import flow_page as page
from tasks import mlflow_log, mlflow_runs
from tasks.fits import models
from tasks.folders import prepared_folder, task_of, tuning_folder
from tasks.settings import Settings
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.evaluation.ranking import check_metric, metric_name, number
from usboost.files import write_atomically
from usboost.files.arrays import sha256
from usboost.fit import tune as tuned
from usboost.fit.evaluate import FitData
from usboost.fit.trials import Trial, space_of
from usboost.fit.tune import DEFAULT, TRIALS, Plan, search, search_folds
from usboost.fit.workers import SearchTask
from usboost.models.entry import read_settings
from usboost.table.prepared import read_prepared

NAMED = "mlflow.json"  # names the MLflow run of a search or of a trial, in its folder


@task(cache_policy=NO_CACHE, task_run_name="{dataset}-search")
def tune(dataset: str, names: Sequence[str], settings: Settings, plan: Plan, by: str) -> Path:
    """Search the settings of models of a prepared dataset; the test rows are not read.

    Leaves `tune.SETTINGS`, `tune.CSV` and all trials in data/tuning/<dataset>, goes on with what is there,
    and logs an MLflow run with one below it for each trial.

    Raises `UsboostError` if the dataset is not prepared or has folds, a model has no settings of its own to
    choose, or no trial has finished.
    """
    goal = task_of(dataset)
    by = DEFAULT[goal.name] if by == "auto" else check_metric(by, goal.metrics)
    job, spaces = _task(dataset, names, settings, plan.seed, by)
    folder, card = tuning_folder(dataset), prepared_folder(dataset) / "card.json"
    identity = {"card": mlflow_runs.digest(card.parent), "file": sha256(card), "seed": plan.seed}
    profile = store.read_card(card.parent)["profile"]
    about = (
        f"**Settings** of {', '.join(names)} for `{dataset}`, {plan.trials} trials each, chosen by the "
        f"{metric_name(by)} of the validation rows; a run for each trial is below this one."
    )
    command = ["python", "-m", "flows.tune", dataset, *(word for name in names for word in ("--model", name))]
    command += ["--trials", str(plan.trials)]
    tags = mlflow_runs.described(about, {"prepared": card.parent}, command, results=folder)
    tags |= {"dataset": dataset, "profile": profile, "seed": str(plan.seed)}
    experiment = f"usboost-{profile}-tuning"
    with mlflow_runs.tracked_run(experiment, f"{dataset} tuning", tags, folder / NAMED) as run_id:
        page.link_run(run_id, f"{dataset}/tuning")
        given = {"dataset": dataset, "models": ", ".join(names), "by": by, "seed": plan.seed}
        given |= {"batch": plan.batch, "prune": plan.prune}
        with mlflow_log.once(run_id, "parameters") as first:
            if first:
                mlflow_log.log_parameters(run_id, given)
        below = {key: value for key, value in tags.items() if not key.startswith("mlflow.")}
        below[MLFLOW_PARENT_RUN_ID] = run_id

        def on_trial_end(trial: Trial, ended: int, total: int) -> None:
            log_trial(trial, experiment, below, folder)
            score = f"{metric_name(by)} {'–' if trial.score is None else number(trial.score)}"
            page.log(f"{trial.model} {trial.number}: {trial.state}, {score}; {ended} of {total}")

        result = search(job, spaces, folder / TRIALS, plan, identity, on_trial_end)
        for each in (trial for one in result.models.values() for trial in one.trials):
            log_trial(each, experiment, below, folder)  # those that had ended before a kill
        rows = tuned.table_rows(result.models, by)
        page.show_table(page.key("tuning", dataset), rows, f"Settings chosen for {dataset}")
        for name, searched in result.models.items():
            for what, one in (("own", searched.first), ("tuned", searched.chosen)):
                if one is not None and one.score is not None:
                    mlflow_log.log_scores(run_id, {what: {name: one.score}})
        for file in tuned.write(result.models, {}, folder, f"{dataset}, by {metric_name(by)}"):
            MlflowClient().log_artifact(run_id, str(file))
        if all(each.chosen is None for each in result.models.values()):
            raise UsboostError(f"no trial of {dataset} has finished; {folder / tuned.CSV} gives the reasons")
    return folder


def overrides(path: Path) -> list[str]:
    """Return a settings file as words for ``dvc exp run -S``, one for each model.

    A path, ``models.2wl.set`` say, is none to Hydra where a name begins with a digit.
    """
    return [
        f"++models={{{name}: {{set: {{{', '.join(f'{key}: {json.dumps(each[key])}' for key in each)}}}}}}}"
        for name, each in read_settings(path).items()
        if each
    ]


def apply(path: Path, params: Path = Path("params.yaml")) -> None:
    """Put a settings file into params.yaml, whose comments and lines stay."""
    file = YAML()
    document = file.load(params)
    for name, chosen in read_settings(path).items():
        name = f"_{name}" if f"_{name}" in document["models"] else name
        if document["models"].get(name) is None:
            document["models"][name] = {}
        own = document["models"][name]
        own["set"] = {**(own.get("set") or {}), **chosen}
    text = io.StringIO()
    file.dump(document, text)
    write_atomically(params, text.getvalue().encode())


def log_trial(trial: Trial, experiment: str, tags: Mapping[str, str], folder: Path) -> None:
    """Log a trial's run once: settings, scores, its risk at each rung; one that has not ended is left out."""
    if trial.state == "proposed":
        return
    tags = {**tags, "model": trial.model, "trial": str(trial.number), "state": trial.state}
    named = folder / TRIALS / trial.model / f"{trial.number:03d}" / NAMED
    with (
        mlflow_runs.tracked_run(experiment, f"{trial.model} {trial.number}", tags, named) as run_id,
        mlflow_log.once(run_id, f"logged_{trial.state}") as first,
    ):
        if not first:
            return
        mlflow_log.log_parameters(run_id, {"model": trial.model, "trial": trial.number, **trial.settings})
        took = {"rounds": trial.rounds, "best_round": trial.best_round, "fit_seconds": trial.seconds}
        mlflow_log.log_scores(run_id, {"val": trial.scores}, **took)
        risks = dict(trial.risks) | ({} if trial.end is None else {trial.rounds: trial.end})
        curve = [mlflow_log.metric("risk/val_best", risk, step) for step, risk in risks.items()]
        mlflow_log.log_metrics(run_id, curve)
        if trial.reason:
            MlflowClient().set_tag(run_id, "error", trial.reason[:500])


def _task(
    dataset: str, names: Sequence[str], settings: Settings, seed: int, by: str
) -> tuple[SearchTask, dict[str, Any]]:
    built = {}
    for name in names:
        if models.entry_of(name, dataset, settings).needs_features:
            raise UsboostError(
                f"{name} reads features that are fitted before it, so its settings are not all its own; "
                "tune a model `like` it with `features: in_sample`"
            )
        built[name] = models.build(name, dataset, settings, seed, task_of(dataset).name)
    folder = prepared_folder(dataset)
    if store.read_card(folder).get("folds"):
        raise UsboostError(f"{dataset} has folds and no validation rows; tune a dataset with a split")
    if store.is_user_table(store.read_card(folder)):
        table = read_prepared(folder)
        part = FitData.of(table, search_folds(table, 0, seed)[0])
    else:  # the validation rows stop fits and score them
        (train, y), validation = store.read(folder, "train"), store.read(folder, "val")
        part = FitData((train, y, None), (*validation, None), (*validation, None))
    views = part.train[0]
    images = [each for each in views.names if getattr(views[each], "kind", None) == "image"]
    spaces = {name: space_of(model, images) for name, model in built.items()}
    return SearchTask(built, [part], task_of(dataset).name, by), spaces

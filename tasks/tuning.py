"""Settings of a dataset's models, searched on its training and validation rows, with an MLflow run each."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mlflow.entities import Metric
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import tracking
from tasks.fits import models
from tasks.folders import prepared_folder, tuning_folder
from tasks.pages import flow_page as page
from tasks.pages import links
from tasks.prepared import task_of
from tasks.settings import Settings, editor
from usboost.datasets import store
from usboost.datasets.store import is_user_table
from usboost.errors import UsboostError
from usboost.evaluation.ranking import check_metric, metric_name, number
from usboost.files import write_atomically
from usboost.fit import tune as tuned
from usboost.fit.evaluate import FitData
from usboost.fit.trials import Trial, space_of
from usboost.fit.tune import DEFAULT, TRIALS, Plan, Scored, SearchResult, part_of, search, search_folds
from usboost.fit.workers import SearchTask
from usboost.models.entry import read_settings
from usboost.table.prepared import read_prepared

PARENT, CHILD = "mlflow.json", "mlflow.json"
"""Files that name the MLflow runs of a search and of a trial, in their folders."""


@task(cache_policy=NO_CACHE, task_run_name="{dataset}-search")
def tune(dataset: str, names: Sequence[str], settings: Settings, plan: Plan, by: str) -> Path:
    """Search the settings of models of a prepared dataset; the test rows are not read.

    Leaves `tuned.SETTINGS`, `tuned.CSV` and all trials in data/tuning/<dataset>, goes on with what is there,
    and logs an MLflow run with one below it for each trial.

    Raises `UsboostError` if the dataset is not prepared or has folds, a model has no settings of its own to
    choose, or no trial has finished.
    """
    asked = task_of(dataset)
    by = DEFAULT[asked.name] if by == "auto" else check_metric(by, asked.metrics)
    job, spaces = _task(dataset, names, settings, plan.seed, by)
    folder, card = tuning_folder(dataset), prepared_folder(dataset) / "card.json"
    identity = {"card": tracking.digest(card.parent), "file": _sha(card), "seed": plan.seed}
    profile = store.read_card(card.parent)["profile"]
    tags = _tags(dataset, names, profile, plan, by)
    with tracking.tracked_run(
        f"usboost-{profile}-tuning", f"{dataset} tuning", tags, folder / PARENT
    ) as run_id:
        links.link_run(run_id, f"{dataset}/tuning", tags)
        parameters = {"dataset": dataset, "models": ", ".join(names), "by": by, "seed": plan.seed}
        with tracking.once(run_id, "parameters") as first:
            if first:
                tracking.log_parameters(run_id, {**parameters, "batch": plan.batch, "prune": plan.prune})
        runs = TrialRuns(run_id, folder, f"usboost-{profile}-tuning", tags)

        def on_trial_end(trial: Trial, ended: int, total: int) -> None:
            runs.log(trial)
            score = "–" if trial.score is None else number(trial.score)
            page.say(
                f"{trial.model} {trial.number}: {trial.state}, {metric_name(by)} {score}; {ended} of {total}"
            )

        found = search(job, spaces, folder / TRIALS, plan, identity, on_trial_end)
        for each in (trial for one in found.models.values() for trial in one.trials):
            runs.log(each)  # those that had ended before a kill
        _show(dataset, found, by, run_id)
        for file in tuned.write(found.models, {}, folder, f"{dataset}, by {metric_name(by)}"):
            tracking.retry("the settings", partial(MlflowClient().log_artifact, run_id, str(file)))
        if all(each.chosen is None for each in found.models.values()):
            raise UsboostError(f"no trial of {dataset} has finished; {folder / tuned.CSV} gives the reasons")
    return folder


def overrides(path: Path) -> list[str]:
    """A settings file as words for ``dvc exp run -S``, one for each model.

    A path, ``models.2wl.set`` say, is none to Hydra where a name begins with a digit.
    """
    return [
        f"++models={{{name}: {{set: {{{', '.join(f'{key}: {json.dumps(each[key])}' for key in each)}}}}}}}"
        for name, each in read_settings(path).items()
        if each
    ]


def apply(path: Path, params: Path = Path("params.yaml")) -> None:
    """Put a settings file into params.yaml, whose comments and lines stay."""
    file = editor()
    document = file.load(params)
    for name, chosen in read_settings(path).items():
        if document["models"].get(name) is None:
            document["models"][name] = {}
        document["models"][name]["set"] = chosen
    text = io.StringIO()
    file.dump(document, text)
    write_atomically(params, text.getvalue().encode())


class TrialRuns:
    """An MLflow run below the search's for each trial that has ended."""

    def __init__(self, parent: str, folder: Path, experiment: str, tags: Mapping[str, str]) -> None:
        self._folder, self._experiment = folder / TRIALS, experiment
        self._tags = {key: value for key, value in tags.items() if not key.startswith("mlflow.")}
        self._tags[MLFLOW_PARENT_RUN_ID] = parent

    def log(self, trial: Trial) -> None:
        """Log a trial once: settings, scores, its risk at each rung; one that has not ended is left out."""
        if trial.state == "proposed":
            return
        name = f"{trial.model} {trial.number}"
        tags = {**self._tags, "model": trial.model, "trial": str(trial.number), "state": trial.state}
        kept = self._folder / trial.model / f"{trial.number:03d}" / CHILD
        with (
            tracking.tracked_run(self._experiment, name, tags, kept) as run_id,
            tracking.once(run_id, f"logged_{trial.state}") as first,
        ):
            if first:
                self._log(run_id, trial)

    def _log(self, run_id: str, trial: Trial) -> None:
        tracking.log_parameters(run_id, {"model": trial.model, "trial": trial.number, **trial.settings})
        now = int(time.time() * 1000)
        numbers = {f"val/{name}": value for name, value in trial.scores.items()}
        numbers |= {"rounds": trial.rounds, "best_round": trial.best_round, "fit_seconds": trial.seconds}
        logged = [Metric(name, float(value), now, 0) for name, value in numbers.items()]
        logged += [Metric("risk/val_best", risk, now, rung) for rung, risk in trial.risks.items()]
        if trial.end is not None:
            logged.append(Metric("risk/val_best", trial.end, now, trial.rounds))
        tracking.log_numbers(run_id, logged, "the trial")
        if trial.reason:
            tracking.retry("the reason", lambda: MlflowClient().set_tag(run_id, "error", trial.reason[:500]))


def _task(
    dataset: str, names: Sequence[str], settings: Settings, seed: int, by: str
) -> tuple[SearchTask, dict[str, Any]]:
    built = {}
    for name in names:
        entry = models.entry_of(name, dataset, settings)
        if entry.needs_features:
            raise UsboostError(
                f"{name} reads features that are fitted before it, so its settings are not all its own; "
                "tune a model `like` it with `features: in_sample`"
            )
        built[name] = models.build(name, dataset, settings, seed, task_of(dataset).name)
    folder = prepared_folder(dataset)
    if store.read_card(folder).get("folds"):
        raise UsboostError(f"{dataset} has folds and no validation rows; tune a dataset with a split")
    part = _part(folder, seed)
    views = part.train[0]
    images = [each for each in views.names if getattr(views[each], "kind", None) == "image"]
    spaces = {name: space_of(model, images) for name, model in built.items()}
    return SearchTask(built, [part], Scored(task_of(dataset).name, by), by), spaces


def _part(folder: Path, seed: int) -> FitData:
    """The training rows of a prepared dataset, and the validation rows, which stop fits and score them."""
    if is_user_table(store.read_card(folder)):
        table = read_prepared(folder)
        return part_of(table, *search_folds(table, 0, seed)[0])
    (train, y), (held, held_y) = (store.read(folder, split) for split in ("train", "val"))
    stopping = (held, held_y, None)
    return FitData((train, y, None), stopping, stopping)


def _tags(dataset: str, names: Sequence[str], profile: str, plan: Plan, by: str) -> dict[str, str]:
    inputs = {"prepared": prepared_folder(dataset)}
    given = tracking.lineage(inputs) | {"dataset": dataset, "profile": profile, "seed": str(plan.seed)}
    about = (
        f"**Settings** of {', '.join(names)} for `{dataset}`, {plan.trials} trials each, chosen by the "
        f"{metric_name(by)} of the validation rows; a run for each trial is below this one."
    )
    command = ["python", "-m", "flows.tune", dataset, *(word for name in names for word in ("--model", name))]
    command += ["--trials", str(plan.trials)]
    return given | tracking.described(about, given, inputs, command, results=tuning_folder(dataset))


def _show(dataset: str, found: SearchResult, by: str, run_id: str) -> None:
    """The best of each model, on the page of the flow run and in MLflow."""
    rows = tuned.table_rows(found.models, by)
    page.show_table(page.key("tuning", dataset), rows, f"Settings chosen for {dataset}")
    now, numbers = int(time.time() * 1000), {}
    for name, each in found.models.items():
        for what, trial in (("own", each.first), ("tuned", each.chosen)):
            if trial is not None and trial.score is not None:
                numbers[tracking.key_of(f"{what}/{name}")] = trial.score
    tracking.log_numbers(run_id, [Metric(key, value, now, 0) for key, value in numbers.items()], "the best")


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

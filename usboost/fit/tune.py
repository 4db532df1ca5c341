"""Settings for a table's models, chosen on rows that they are not fitted to, and the results as files."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from usboost.boosting.checkpoint import described
from usboost.boosting.code import code_digest
from usboost.errors import UsboostError, listed
from usboost.evaluation.folds import Fold, stream
from usboost.evaluation.ranking import RANKING, check_metric, metric_name, number
from usboost.files import write_atomically
from usboost.fit.evaluate import Build, Embedded, FitData, check_classes, divisible, folds_of
from usboost.fit.record import rows_digest, table_digest
from usboost.fit.trials import ModelTrials, Trial, Trials, own_values, space_of
from usboost.fit.workers import Job, SearchTask, Workers
from usboost.learners.search_space import Space
from usboost.models.entry import read_settings, settings_text
from usboost.models.settings import with_settings
from usboost.table.user_table import UserTable

TRIALS = "trials"
"""The folder of trials in that of a search."""

FEW, FOLDS = 2000, 5
"""Rows below which so many folds are the default: the 15 % that a fit holds out are too few to choose by."""

_NOT_COMPARE = 1
"""Stream of the seed for a search's folds: `compare` with the same seed has others."""

DEFAULT = {"classification": "log_loss", "regression": "rmse"}
"""By what settings are chosen."""

BATCH = 4
"""Trials that are proposed together, whatever the number of processes, so that it changes no result."""

OnTrialEnd = Callable[[Trial, int, int], None]
"""Called with a trial that has ended, how many have, and how many there are in all."""


@dataclass(frozen=True)
class Plan:
    """Options of a search.

    Attributes
    ----------
    trials : of each model; one of a model of which there is nothing to choose.
    batch : see `BATCH`.
    seed : of the proposals.
    prune : whether fits end that are behind at a rung, see `usboost.fit.workers`.
    jobs : trials at a time; more than one run in spawned processes, so that a script that asks for them needs
        the usual ``if __name__ == "__main__":``.
    deadline : a time (`time.time`) after which no round begins.
    """

    trials: int = 20
    batch: int = BATCH
    seed: int = 0
    prune: bool = True
    jobs: int = 1
    deadline: float = float("inf")


@dataclass(frozen=True)
class SearchResult:
    """The trials of a search by model; `interrupted`, whether Ctrl-C or the deadline ended it."""

    models: dict[str, ModelTrials]
    interrupted: bool


def search(
    task: SearchTask,
    spaces: Mapping[str, Space],
    folder: Path,
    plan: Plan,
    identity: Mapping[str, Any],
    on_trial_end: OnTrialEnd | None = None,
) -> SearchResult:
    """Search the spaces of all models together, batch by batch, and go on with what is in the folder.

    Every trial is on disk as soon as it ends, and every round of a fit that runs; equal arguments give equal
    trials, whatever was killed in between and however many run at a time. Raises UsboostError if the folder
    holds another search. A trial that fails stops no other.

    Parameters
    ----------
    spaces : by model.
    folder : has a folder for each model with its journal.
    identity : what decides the scores, as JSON: of the rows, the split, the scores.
    """
    studies: dict[str, Trials] = {}
    for name, model in task.models.items():
        decides = {
            **identity,
            "score": task.by,
            "batch": plan.batch,
            "proposals": plan.seed,
            "pruning": plan.prune,
            "model": described(model),
            "space": {path: repr(each) for path, each in spaces[name].items()},
            "code": code_digest(model, "usboost.fit.workers"),
        }
        own = own_values(model, spaces[name])
        studies[name] = Trials(folder / name, name, spaces[name], own, decides, plan.seed)
    results = {name: ModelTrials(name, task.loss) for name in task.models}
    counts = {name: plan.trials if spaces[name] else 1 for name in task.models}

    def run(trials: Sequence[Trial], prune: bool) -> bool:
        """Run trials, and return whether all have ended."""
        earlier = {name: each.ended_batches() if prune else [] for name, each in studies.items()}
        jobs = []
        for each in trials:
            name, folder = each.model, studies[each.model].checkpoint(each.number)
            jobs.append(Job(each, folder, earlier[name], results[name].trials[0].rounds, plan.deadline))
        if jobs and time.time() > plan.deadline:
            return False
        late = False
        for trial in workers.results(jobs):
            one = results[trial.model]
            one.trials[trial.number] = trial
            late = late or trial.state == "proposed"
            if trial.state != "proposed":
                studies[trial.model].add(trial, one.lost(trial))
            if on_trial_end is not None:
                ended = sum(each.state != "proposed" for one in results.values() for each in one.trials)
                on_trial_end(trial, ended, sum(counts.values()))
        return not late

    interrupted = False
    try:
        with Workers(task, plan.jobs) as workers:
            for k in range(-(-plan.trials // plan.batch)):
                for name, one in results.items():
                    numbers = range(k * plan.batch, min((k + 1) * plan.batch, counts[name]))
                    # what cannot be fitted at all is not tried again
                    if numbers and not (k and all(each.state == "failed" for each in one.trials)):
                        one.trials += studies[name].ask(numbers, k)
                proposed = [each for one in results.values() for each in one.trials[k * plan.batch :]]
                if not run([each for each in proposed if each.state == "proposed"], plan.prune):
                    interrupted = True
                    break
                for name, one in results.items():
                    studies[name].tell(one)
            # without limits; such a fit goes on from its checkpoint
            while not interrupted and (more := [each for one in results.values() if (each := one.promising)]):
                interrupted = not run(more, False)
    except KeyboardInterrupt:
        interrupted = True
    if not interrupted:
        for trials in studies.values():
            trials.forget_fits()
    return SearchResult(results, interrupted)


def tune(
    table: UserTable,
    models: Mapping[str, Build],
    *,
    out: Path,
    folds: int | None = None,
    by: str | None = None,
    fixed: Mapping[str, Any] | None = None,
    plan: Plan | None = None,
    on_trial_end: OnTrialEnd | None = None,
) -> SearchResult:
    """Try settings of every model, each as often, on the rows that `usboost fit` holds out.

    Everything that a model does not say of itself (`space`) stays as it is. Encoders, embeddings and views
    are made once for all trials. What is in the folder is resumed, see `search`.

    Raises `UsboostError` if the rows cannot be divided, or the folder holds another search.

    Parameters
    ----------
    models : by name; each is built with the plan's seed, and is the first trial as it is.
    out : the folder of the search.
    folds : instead of one split, a cross-validation with so many folds; 0 for none; by default
        `default_folds`.
    by : the score that settings are chosen by; by default log-loss, or RMSE.
    fixed : settings by path that are not chosen; models that have no such setting go without.
    """
    by, plan = check_metric(by or DEFAULT[table.task], RANKING[table.task]), plan or Plan()
    written = Path(out) / SETTINGS
    if others := (read_settings(written).keys() if written.exists() else {}) - models.keys():
        raise UsboostError(
            f"{written} has settings of {listed(sorted(others))}, which this search would replace; name "
            "another `out`, or remove it"
        )
    parts = search_folds(table, default_folds(table, plan.seed) if folds is None else folds, plan.seed)
    built, images, embeddings = {}, tuple(table.images), Embedded(table)
    for name, build in models.items():
        model = build(plan.seed)
        known = model.get_params(deep=True)
        own = {path: value for path, value in (fixed or {}).items() if path in known}
        built[name] = with_settings(model, own, type(model).__name__)
        embeddings.prepare(built[name])
    spaces = {name: space_of(model, images, fixed or ()) for name, model in built.items()}
    task = SearchTask(built, [FitData.of(table, fold) for fold in parts], table.task, by)
    rows = rows_digest(rows for fold in parts for rows in (fold.train, fold.val, fold.test))
    identity = {"table": table_digest(table), "rows": rows, "seed": plan.seed}
    return search(task, spaces, Path(out) / TRIALS, plan, identity, on_trial_end)


def fixed_of(models: Mapping[str, Build], fixed: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return by model those of the fixed settings that it has.

    Raises UsboostError if no model has some setting, or it takes no such value.
    """
    built = {name: build(0) for name, build in models.items()}
    known = {name: model.get_params(deep=True).keys() for name, model in built.items()}
    for path in fixed:
        if not any(path in paths for paths in known.values()):
            name, model = next(iter(built.items()))
            with_settings(model, {path: fixed[path]}, name)  # which says what there is
    return {name: {path: value for path, value in fixed.items() if path in known[name]} for name in models}


def default_folds(table: UserTable, seed: int) -> int:
    """Return `FOLDS` of fewer than `FEW` rows that can be divided so and that no column divides; else 0."""
    rows = divisible(table)
    if len(table) >= FEW or rows.splits is not None or rows.times is not None:
        return 0
    try:
        search_folds(table, FOLDS, seed)
    except UsboostError:
        return 0
    return FOLDS


def search_folds(table: UserTable, folds: int, seed: int) -> list[Fold]:
    """Return how a table's rows are divided for a search; of a split of the user's, test rows are in no part.

    Without folds the rows that stop a fit score it, too. Raises UsboostError if there are too few rows of a
    class, groups or times for the folds.
    """
    if folds:
        return folds_of(table, folds, 1, stream(seed, _NOT_COMPARE), test_is_seen=False)
    train, val = divisible(table).hold_out(seed)
    check_classes(table, train, val)
    return [Fold(1, 1, train, val, val)]


SETTINGS, CSV = "settings.yaml", "trials.csv"


Fixed = Mapping[str, Mapping[str, Any]]
"""By model, settings that are not chosen."""


def settings_of(models: Mapping[str, ModelTrials], fixed: Fixed) -> dict[str, dict[str, Any]]:
    """Return the settings chosen for each model that finished a trial, and those that were fixed."""
    return {
        name: {**fixed.get(name, {}), **chosen.settings}
        for name, each in models.items()
        if (chosen := each.chosen) is not None
    }


def write(models: Mapping[str, ModelTrials], fixed: Fixed, folder: Path, what: str) -> list[Path]:
    """Write `CSV`, a row a trial, and, if one has finished, `SETTINGS`, in params.yaml's form.

    Parameters
    ----------
    fixed : settings that were not chosen, by model.
    what : was searched, in words.
    """
    files = []
    if chosen := settings_of(models, fixed):
        text = settings_text(chosen, f"chosen by usboost tune: {what}")
        files.append(folder / SETTINGS)
        write_atomically(files[-1], text.encode())
    rows = []
    for one in models.values():
        for each in one.trials:
            about = {"model": each.model, "trial": each.number, "state": each.state}
            fit = {name: getattr(each, name) for name in ("rounds", "best_round", "seconds", "reason")}
            rows.append({**about, "chosen": each is one.chosen, **each.scores, **fit, **each.settings})
    files.append(folder / CSV)
    write_atomically(files[-1], pd.DataFrame(rows).to_csv(index=False).encode())
    return files


def rendered(models: Mapping[str, ModelTrials], by: str) -> Table:
    """Return the table of a search for a terminal: a row a model, the best score first."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    rows = table_rows(models, by)
    for title in rows[0]:
        right = title not in ("model", "settings")
        shown.add_column(title, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for each in rows:
        shown.add_row(*map(Text, each.values()))
    return shown


def table_rows(models: Mapping[str, ModelTrials], by: str) -> list[dict[str, str]]:
    """Return the table of a search, cells by title: a row a model, the best score first."""
    score, rows = metric_name(by), list[dict[str, str]]()
    for each in ranked(models):
        ended = [trial for trial in each.trials if trial.state != "proposed"]
        row = {"model": each.model}
        for title, trial in ((f"{score} as it is", each.first), (f"{score} tuned", each.chosen)):
            row[title] = "–" if trial is None or trial.score is None else number(trial.score)
        row["trials"] = f"{len(ended)}"
        row["pruned"] = f"{sum(trial.state == 'pruned' for trial in ended)}"
        row["seconds"] = f"{sum(trial.seconds for trial in ended):,.1f}"
        rows.append({**row, "settings": chosen_in_words(each)})
    return rows


def ranked(models: Mapping[str, ModelTrials]) -> list[ModelTrials]:
    """Return the models, the best score first; last those without a finished trial."""

    def order(each: ModelTrials) -> tuple[bool, float]:
        score = each.chosen.score if each.chosen is not None else None
        return score is None, 0.0 if score is None else each.loss(score)

    return sorted(models.values(), key=order)


def chosen_in_words(model_trials: ModelTrials) -> str:
    """Return the settings chosen where they differ from the model's own, or why they do not."""
    chosen, best = model_trials.chosen, model_trials.best
    if chosen is None or best is None:
        reasons = [each.reason for each in model_trials.trials if each.reason]
        return f"failed: {reasons[0]}" if reasons else "no trial has finished"
    if not (own := model_trials.trials[0].settings):
        return "nothing to choose"
    if chosen is not best:
        return f"as it is; {number(best.score or 0.0)} of trial {best.number} is within noise"
    words = []
    for path, value in chosen.settings.items():
        if value != own[path]:
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            several = isinstance(value, (list, tuple))
            words.append(f"{path} {('+'.join(map(str, value)) or 'none') if several else text}")
    return ", ".join(words) or "as it is"

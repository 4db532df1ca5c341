"""One trial: a fit to each part of the rows, watched and scored; by successive halving, one that is behind at
a rung of rounds ends there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.rounds import Round
from usboost.data.row_groups import Related
from usboost.errors import UsboostError
from usboost.evaluation.ranking import LOWER_IS_BETTER
from usboost.models.estimator import ViewsEstimator
from usboost.models.settings import with_settings
from usboost.models.tuned_images import Weighted, fit_weighted
from usboost.tuning.propose import one_thread, quiet
from usboost.tuning.trials import Trial, finite

if TYPE_CHECKING:
    import optuna

FIRST, SHARE = 8, 3
"""The rounds of the first rung, which are so many times as many at each further one, where one in so many
fits goes on."""

ROUNDS = tuple(FIRST * SHARE**k for k in range(8))
"""The rungs: 8, 24, 72, …"""

EARLIEST = 4
"""No fit ends before the model's own settings have done one in so many of their rounds: small steps begin
slowly."""


class Rungs(Callback):
    """Notes a fit's best validation risk at each rung, and ends a fit that is behind earlier ones there.

    Parameters
    ----------
    earlier : trials of the same model, the first with its own settings; without any no fit ends here.

    Attributes
    ----------
    risks : lowest "risk_val" so far, by rung reached; best : lowest "risk_val" so far
    pruned : whether the fit was ended here
    """

    def __init__(self, earlier: Sequence[Trial] = ()) -> None:
        self.risks: dict[int, float] = {}
        self.best, self.pruned = math.inf, False
        self._trial = _beside(earlier) if earlier else None

    def on_round(self, round_: Round) -> bool:
        risk = round_.metrics.get("risk_val", math.inf)
        self.best = min(self.best, risk if math.isfinite(risk) else math.inf)
        if round_.index in ROUNDS and math.isfinite(self.best):
            self.risks[round_.index] = self.best
            if self._trial is not None:
                self._trial.report(self.best, round_.index)
                self.pruned = self._trial.should_prune()
        return self.pruned


def _beside(earlier: Sequence[Trial]) -> optuna.Trial:
    """A trial of a study that holds what earlier ones have reported.

    The study is this fit's own: in a common one, who is pruned would depend on which fits are ahead.
    """
    import optuna

    skipped = sum(rung * EARLIEST < earlier[0].rounds for rung in ROUNDS)
    with quiet():
        study = optuna.create_study(pruner=optuna.pruners.SuccessiveHalvingPruner(FIRST, SHARE, skipped))
    for each in earlier:
        trial, end = study.ask(), each.end if each.state == "finished" else None
        for rung in ROUNDS:
            # one that ended by itself has its last risk at all later rungs, too
            if (risk := each.risks.get(rung, end)) is not None:
                trial.report(risk, rung)
                trial.should_prune()  # which takes note of the rung
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    return study.ask()


Score = Callable[[Any, Weighted, np.ndarray | None, int], tuple[Mapping[str, float], np.ndarray]]
"""All scores of a fitted model on some rows, given their groups and the number of their part; and of the one
that settings are chosen by, `search.drawn`."""


@dataclass(frozen=True)
class Part:
    """Rows to fit to, rows that stop the fit, and rows that are scored, which may be the same; how those
    to fit to are related; and the groups of those that are scored."""

    train: Weighted
    held: Weighted
    scored: Weighted
    related: Related | None = None
    groups: np.ndarray | None = None


@dataclass(frozen=True)
class Task:
    """What all trials have in common; it is sent to each process once.

    Attributes
    ----------
    models : unfitted, by name, with their own settings.
    parts : one, or those of a cross-validation.
    score : of a fitted model; by : the score that settings are chosen by.
    """

    models: Mapping[str, Any]
    parts: Sequence[Part]
    score: Score
    by: str

    def loss(self, score: float) -> float:
        """The score so that lower is better."""
        return score if self.by in LOWER_IS_BETTER else -score


@dataclass(frozen=True)
class Job:
    """A trial to run.

    Attributes
    ----------
    checkpoint : folder of its fits' rounds, which stays.
    earlier : trials whose risks the first part's fit is held against, see `Rungs`.
    deadline : a time (`time.time`) after which no round begins.
    """

    trial: Trial
    checkpoint: Path
    earlier: Sequence[Trial] = ()
    deadline: float = float("inf")


class OutOfTime(Exception):
    """A fit that goes on in another run, from its checkpoint."""


class _Deadline(Callback):
    def __init__(self, deadline: float) -> None:
        self._deadline, self._last = deadline, 0

    def on_fit_begin(self, fit: Any) -> None:
        self._last = fit.n_rounds

    def on_round(self, round_: Round) -> bool:
        if round_.index < self._last and time.time() > self._deadline:
            raise OutOfTime
        return False


def run_trial(task: Task, job: Job) -> Trial:
    """The trial with what came of it; one that is out of time is still "proposed".

    An error of a fit is in the answer. One thread each, so that results do not depend on how many run.
    """
    started = time.perf_counter()
    try:
        with one_thread():
            trial = _fitted(task, job)
    except OutOfTime:
        return job.trial
    except Exception as error:
        kind = "" if isinstance(error, UsboostError) else f"{type(error).__name__}: "
        reason = f"{kind}{error}".strip().splitlines()[0]
        trial = job.trial.of(state="failed", score=None, scores={}, reason=reason)
    return trial.of(seconds=round(time.perf_counter() - started, 3))


def _fitted(task: Task, job: Job) -> Trial:
    trial, scores, drawn = job.trial, list[Mapping[str, float]](), list[np.ndarray]()
    for k, part in enumerate(task.parts):
        if time.time() > job.deadline:
            raise OutOfTime
        model = with_settings(clone(task.models[trial.model]), trial.settings, trial.model)
        rungs = Rungs(job.earlier if k == 0 else ())
        watching: list[Callback] = [_Deadline(job.deadline)]
        model.set_params(callbacks=[rungs, *watching] if is_one_fit(model) else watching)
        if "checkpoint" in model.get_params(deep=False):
            decides = {"model": trial.model, "settings": repr(dict(trial.settings)), "part": k}
            kept = Checkpoint(job.checkpoint / str(k), decides)
            if kept.of_another_fit():  # another version of Optuna proposed other settings
                kept.clear()
            model.set_params(checkpoint=kept)
        fit_weighted(model, part.train, part.held, part.related)
        found, draws = task.score(model, part.scored, part.groups, k)
        scores.append(found)
        drawn.append(draws)
        if k == 0:
            end = finite({0: rungs.best}).get(0)
            trial = trial.of(risks=finite(rungs.risks), end=end, rounds=len(model.history_))
            trial = trial.of(best_round=int(model.best_round_))
            if rungs.pruned:
                break
    means = finite({name: float(np.mean([each[name] for each in scores])) for name in scores[0]})
    if task.by not in means:
        raise UsboostError(f"its {task.by} is no finite number")
    state = "pruned" if rungs.pruned else "finished"
    known = [float(each) if np.isfinite(each) else None for each in np.mean(drawn, axis=0)]
    folds = [float(each[task.by]) for each in scores]
    return trial.of(state=state, score=means[task.by], scores=means, folds=folds, draws=known)


def is_one_fit(model: Any) -> bool:
    """Whether a model's rounds are those of one fit, and not of several models that it holds."""
    parts = (
        each for v in model.get_params(deep=False).values() if isinstance(v, Mapping) for each in v.values()
    )
    return not any(isinstance(each, ViewsEstimator) for each in parts)

"""Trials of settings: what may be chosen of a model, what came of a trial, and a model's Optuna study."""

import json
import math
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import TypeAdapter
from threadpoolctl import get_cached_controller

from usboost.errors import UsboostError, silenced
from usboost.files import write_atomically
from usboost.fit.evaluate import torch_threads
from usboost.learners.base import view_names
from usboost.learners.search_space import Choice, Dimension, Integer, Real, Space
from usboost.models.estimator import ViewsEstimator

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

JOURNAL, CHECKPOINT = "journal.jsonl", "checkpoint"

RANDOM = 8
"""Trials before the Gaussian process is asked; the first of them has the model's own settings."""

FIRST, SHARE = 8, 3
"""The rounds of the first rung, which are so many times as many at each further one, where one in so many
fits goes on."""

ROUNDS = tuple(FIRST * SHARE**k for k in range(8))
"""The rungs: 8, 24, 72, …"""

DRAWS = 100
"""Bootstrap samples of the scored rows, the same for all trials."""

NOISE = 1.0
"""Standard errors of the difference by which a trial has to be better than the model's own settings."""

Settings = Mapping[str, Any]
"""Values by parameter path."""

Draws = Sequence[float | None]
"""A trial's score in each sample; None where the sample has none, an AUC of one class say."""

State = Literal["proposed", "finished", "pruned", "failed"]


def space_of(model: Any, images: Collection[str] = (), fixed: Collection[str] = ()) -> dict[str, Dimension]:
    """Return the dimensions of a model by parameter path, each with the model's own value in it.

    Left out are parameters whose value is of another kind than their dimension ("loo" for a penalty, say),
    and those that do nothing on the views that their owner reads.

    Parameters
    ----------
    images : the names of the views that hold images.
    fixed : paths that are not to be chosen.
    """
    values, space = model.get_params(deep=True), dict[str, Dimension]()
    for path, dimension in _dimensions(model, "", set(images)):
        if path in values and path not in fixed and (wide := dimension.widened(values[path])) is not None:
            space[path] = wide
    return space


def own_values(model: Any, space: Space) -> dict[str, Any]:
    """Return the model's own values of a space's parameters."""
    values = model.get_params(deep=True)
    return {path: tuple(v) if isinstance(v := values[path], list) else v for path in space}


def _dimensions(
    part: Any, prefix: str, images: set[str], reads: Sequence[str] | None = None
) -> Iterator[tuple[str, Dimension]]:
    read = set(getattr(part, "views", None) or () if reads is None else reads)
    for name, dimension in getattr(part, "space", {}).items():
        somewhere = bool(read & images)
        matters = {"everywhere": True, "images": somewhere, "images alone": somewhere and read <= images}
        if matters[dimension.where]:
            yield prefix + name, dimension
    for name, value in part.get_params(deep=False).items():
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if hasattr(inner, "get_params"):
                    views = None if isinstance(inner, ViewsEstimator) else view_names(key, inner)
                    yield from _dimensions(inner, f"{prefix}{name}__{key}__", images, views)
        elif hasattr(value, "get_params") and not isinstance(value, type):
            yield from _dimensions(value, f"{prefix}{name}__", images)


@dataclass(frozen=True)
class Trial:
    """One choice of settings, and what came of it.

    Attributes
    ----------
    model : its name; number : from 0, which has the model's own settings.
    settings : values by parameter path.
    state : "proposed" until its fit has ended; "pruned" if that was ended at a rung.
    score : by which settings are chosen; scores : all scores of the same rows, their means over folds.
    folds : the score of each fold, of a pruned trial of the first one only, as is then `score`.
    draws : the score in samples of these rows, see `drawn`.
    risks : the fit's lowest validation risk by rung of rounds; end : the one it ended with.
    rounds, best_round : that were fitted, and the one kept, of the first fold.
    seconds : of the fits, in the run that ended them.
    reason : of a failure.
    """

    model: str
    number: int
    settings: Settings
    state: State = "proposed"
    score: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    folds: Sequence[float] = ()
    draws: Draws = ()
    risks: Mapping[int, float] = field(default_factory=dict)
    end: float | None = None
    rounds: int = 0
    best_round: int = 0
    seconds: float = 0.0
    reason: str = ""


_ADAPTER = TypeAdapter(Trial)


def drawn(
    score: Callable[[np.ndarray], float], n: int, groups: np.ndarray | None = None, part: int = 0
) -> np.ndarray:
    """Return the score of each bootstrap sample of n rows, float64 (DRAWS,).

    Parameters
    ----------
    score : of rows, given by their positions.
    groups : codes (n,); whole groups are drawn, as many as there are, since rows of one group are alike.
    part : the number of the rows' fold. Each has samples of its own: with equal ones, rows that stand at the
        same place of their folds, of one class say, would be drawn together.
    """
    rng = np.random.default_rng([0, part])
    if groups is None:
        return np.array([score(rng.integers(0, n, n)) for _ in range(DRAWS)])
    sizes = np.unique(groups, return_counts=True)[1]
    rows = np.split(np.argsort(groups, kind="stable"), np.cumsum(sizes)[:-1])
    samples = (rng.integers(0, len(rows), len(rows)) for _ in range(DRAWS))
    return np.array([score(np.concatenate([rows[k] for k in chosen])) for chosen in samples])


def error_of_difference(first: Draws, second: Draws) -> float:
    """Return the standard error of the difference of two trials' scores on the same rows; 0 if not known."""
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if a is not None and b is not None]
    return float(np.std([a - b for a, b in pairs], ddof=1)) if len(pairs) > 1 else 0.0


@dataclass
class ModelTrials:
    """The trials of a model, by number, and how to compare them."""

    model: str
    loss: Callable[[float], float]
    trials: list[Trial] = field(default_factory=list)

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best score, the first of equals; None if there is none."""
        done = [each for each in self.trials if each.state == "finished"]
        return min(done, key=lambda each: self.lost(each) or 0.0, default=None)

    @property
    def chosen(self) -> Trial | None:
        """The trial whose settings are taken: the best, unless what it gains on the model's own is noise."""
        best, first = self.best, self.first
        if best is None or first is None or best.score is None or first.score is None:
            return best
        gain = self.loss(first.score) - self.loss(best.score)
        return best if gain > NOISE * error_of_difference(first.draws, best.draws) else first

    @property
    def first(self) -> Trial | None:
        """The trial of the model's own settings, if it has finished."""
        done = [each for each in self.trials[:1] if each.state == "finished"]
        return done[0] if done else None

    @property
    def promising(self) -> Trial | None:
        """The best trial, if it was pruned."""
        scored = [each for each in self.trials if each.score is not None]
        best = min(scored, key=lambda each: self.lost(each) or 0.0, default=None)
        return best if best is not None and best.state == "pruned" else None

    def lost(self, trial: Trial) -> float | None:
        """Return a trial's loss, None if it failed; of a pruned one, known on one fold, an estimate.

        It adds how much more finished trials lost on all folds than on the first one, on average.
        """
        if trial.score is None:
            return None
        done = [each for each in self.trials if each.state == "finished" and each.score is not None]
        more = [self.loss(each.score or 0.0) - self.loss(each.folds[0]) for each in done if each.folds]
        harder = sum(more) / len(more) if more and trial.state == "pruned" else 0.0
        return self.loss(trial.score) + harder

    def losses(self) -> list[float | None]:
        """Return the loss of each trial; a failed one has lost as much as the worst."""
        lost = [self.lost(each) for each in self.trials]
        worst = max((each for each in lost if each is not None), default=None)
        return [worst if each is None else each for each in lost]


class Trials:
    """The trials of one model: an Optuna study in a journal, which proposes settings and keeps results.

    A batch is proposed together, told when all of it has ended, and in the order of its numbers: so no
    result depends on how many fits run at a time, or on what was killed in between. Raises UsboostError if
    the folder holds another search, or its journal is damaged. A line that a kill cut short is not there.

    Parameters
    ----------
    folder : of the journal; each trial has a folder in it for its fit's checkpoint.
    model : its name; space : what may be chosen of it; own : its own values of that.
    identity : what decides the trials' results, as JSON; seed : of the proposals.

    Attributes
    ----------
    ended : trials by number.
    """

    def __init__(
        self,
        folder: Path,
        model: str,
        space: Space,
        own: Settings,
        identity: Mapping[str, Any],
        seed: int = 0,
    ) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

        self._folder, self._model, self._space, self._own, self._seed = folder, model, space, own, seed
        self._distributions = {path: _distribution(each) for path, each in space.items()}
        path, mine = folder / JOURNAL, json.loads(json.dumps(identity))
        if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
            write_atomically(path, content[: content.rfind(b"\n") + 1])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with quiet():
                # a lock that a kill has left is in the way for so many seconds
                lock = JournalFileSymlinkLock(str(path), grace_period=5)
                self._study = optuna.create_study(
                    storage=JournalStorage(JournalFileBackend(str(path), lock)),
                    study_name=model,
                    pruner=pruner_of_rungs(),
                    load_if_exists=True,
                )
            stored = self._study.user_attrs.get("search", mine)
            differing = sorted(key for key in {*mine, *stored} if mine.get(key) != stored.get(key))
            self._open([] if differing else self._study.trials)
        except OSError as error:
            raise UsboostError(f"{path} cannot be written: {error.strerror}; name another `out`") from None
        except Exception as error:  # Optuna checks nothing of a journal, which may hold anything
            raise UsboostError(f"{path} is damaged ({type(error).__name__}); remove its folder") from None
        if differing:
            raise UsboostError(
                f"{folder} holds another search ({', '.join(differing)} differ); remove it, or search in "
                "another folder"
            )
        if not self._study.user_attrs:
            self._study.set_user_attr("search", mine)

    def checkpoint(self, number: int) -> Path:
        """Return the folder of a trial's rounds."""
        return self._folder / f"{number:03d}" / CHECKPOINT

    def forget_fits(self) -> None:
        """Remove the rounds of all trials."""
        for folder in self._folder.glob(f"*/{CHECKPOINT}"):
            shutil.rmtree(folder, ignore_errors=True)

    def _open(self, trials: "Sequence[optuna.trial.FrozenTrial]") -> None:
        """Read what was proposed and what has ended."""
        from optuna.trial import TrialState

        for each in trials:
            # a kill has cut its proposal short: it is proposed again
            if each.state == TrialState.RUNNING and each.params.keys() != self._space.keys():
                self._study.tell(each.number, state=TrialState.FAIL)
        known = [e for e in trials if e.params.keys() == self._space.keys() and e.state != TrialState.WAITING]
        self._proposed: list[Any] = [each for each in known if "repeats" not in each.user_attrs]
        self.ended: dict[int, Trial] = {}
        for each in sorted(known, key=lambda each: "repeats" in each.user_attrs):
            if "result" in each.user_attrs:
                document = {"model": self._model, "settings": {}, **each.user_attrs["result"]}
                trial = _ADAPTER.validate_python(document)
                self.ended[trial.number] = replace(trial, settings=self._settings(trial.number, each.params))

    def ask(self, numbers: range, batch: int) -> list[Trial]:
        """Return the trials of a batch: those that are there, and for the others settings to try.

        Expected improvement under a Gaussian process, to which those already proposed within a batch are
        trials that run; the first trials are drawn at random.
        """
        import optuna

        missing = numbers.stop - len(self._proposed)
        if missing > 0:
            seed = int(np.random.SeedSequence([self._seed, batch]).generate_state(1)[0])
            coded = {
                path: each.options.index(self._own[path]) if isinstance(each, Choice) else self._own[path]
                for path, each in self._space.items()
            }
            with quiet(), one_thread():
                sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=RANDOM)
                # what was proposed before a kill is drawn again, so that the others are as they were
                again = optuna.create_study(sampler=sampler)
                again.add_trials(self.ended_batches())
                self._study.sampler = sampler
                for study in (again, self._study):
                    if not batch and not study.trials:
                        study.enqueue_trial(coded)
                for _ in range(numbers.start, len(self._proposed)):
                    again.ask(self._distributions)
                self._proposed += [self._study.ask(self._distributions) for _ in range(missing)]
        return [
            self.ended.get(number)
            or Trial(self._model, number, self._settings(number, self._proposed[number].params))
            for number in numbers
        ]

    def ended_batches(self) -> list[Any]:
        """Return the trials of all batches that have ended, with the rungs that each has passed."""
        return [each for each in self._study.trials if each.state.is_finished()]

    def add(self, trial: Trial, loss: float | None) -> None:
        """Write a trial that has ended; one that goes on after it was pruned is added."""
        import optuna

        result = asdict(trial)
        del result["model"], result["settings"]
        proposed = self._proposed[trial.number]
        if trial.number in self.ended:
            state = optuna.trial.TrialState.FAIL if loss is None else optuna.trial.TrialState.COMPLETE
            made = optuna.trial.create_trial(
                state=state,
                value=loss,
                params=proposed.params,
                distributions=self._distributions,
                user_attrs={"repeats": trial.number, "result": result},
            )
            self._study.add_trial(made)
        else:
            optuna.trial.Trial(self._study, proposed._trial_id).set_user_attr("result", result)
        self.ended[trial.number] = trial
        if trial.state != "pruned":  # such a fit may be the best in the end, and goes on then
            shutil.rmtree(self.checkpoint(trial.number), ignore_errors=True)

    def tell(self, model_trials: ModelTrials) -> None:
        """Tell the study of a batch that has ended.

        A pruned trial counts with its estimated loss, since the Gaussian process learns from complete trials
        only; so does a failed one.
        """
        import optuna

        states = optuna.trial.TrialState
        running = {each._trial_id for each in self._study.trials if each.state == states.RUNNING}
        for trial, loss in zip(model_trials.trials, model_trials.losses(), strict=True):
            proposed = self._proposed[trial.number]
            if proposed._trial_id in running:
                with quiet():
                    report_rungs(optuna.trial.Trial(self._study, proposed._trial_id), trial)
                    self._study.tell(proposed.number, loss, state=states.FAIL if loss is None else None)

    def _settings(self, number: int, params: Mapping[str, Any]) -> Settings:
        """Return settings as a user would write them: reals of four digits, within their range."""
        if not number:
            return self._own
        settings = {}
        for path, each in self._space.items():
            value = each.options[int(params[path])] if isinstance(each, Choice) else params[path]
            if isinstance(each, Real):
                value = min(max(float(f"{float(value):.4g}"), each.low), each.high)
            settings[path] = value
        return settings


def pruner_of_rungs() -> "optuna.pruners.BasePruner":
    """Return Optuna's successive halving, at the rungs `ROUNDS`."""
    import optuna

    return optuna.pruners.SuccessiveHalvingPruner(FIRST, SHARE)


def report_rungs(proposed: "optuna.Trial", trial: Trial) -> None:
    """Tell Optuna of a fit's risk at each rung; one that ended by itself has its last at later ones."""
    end = trial.end if trial.state == "finished" else None
    for rung in ROUNDS:
        if (risk := trial.risks.get(rung, end)) is not None:
            proposed.report(risk, rung)
            proposed.should_prune()  # which takes note of the rung


def _distribution(dimension: Dimension) -> "BaseDistribution":
    """Return a dimension as Optuna has it: of options their positions, since a journal holds no tuples."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        k = len(dimension.options)
        return IntDistribution(0, k - 1) if dimension.ordered else CategoricalDistribution(range(k))
    if isinstance(dimension, Integer):
        return IntDistribution(dimension.low, dimension.high, log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def finite(values: Mapping[Any, float]) -> dict[Any, float]:
    """Return those that are finite numbers, which is what JSON can hold."""
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


@contextmanager
def quiet() -> Iterator[None]:
    """Let Optuna log nothing: it has log lines of its own for every study that is made."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with silenced():
            yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread, so that results do not depend on how many there are."""
    with torch_threads(1), get_cached_controller().limit(limits=1):
        yield

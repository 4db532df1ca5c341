"""The trials of a model: an Optuna study, in memory for proposals and in a journal for what has ended."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from usboost.errors import UsboostError, option
from usboost.files import write_atomically
from usboost.learners.search_space import Space
from usboost.tuning.propose import Settings, coded, decoded, distribution, quiet

JOURNAL, CHECKPOINT = "journal.jsonl", "checkpoint"

State = Literal["proposed", "finished", "pruned", "failed"]


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
    draws : the score in samples of these rows, see `usboost.tuning.search`.
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
    draws: Sequence[float | None] = ()
    risks: Mapping[int, float] = field(default_factory=dict)
    end: float | None = None
    rounds: int = 0
    best_round: int = 0
    seconds: float = 0.0
    reason: str = ""

    def of(self, **changes: Any) -> Trial:
        """The trial with other values."""
        return replace(self, **changes)


_ADAPTER = TypeAdapter(Trial)


class Trials:
    """The trials of one model that have ended: an Optuna study in a journal, a line of JSON for each.

    Raises UsboostError if the folder holds another search, or its journal is damaged. A line that a kill cut
    short is not there.

    Parameters
    ----------
    folder : of the journal; each trial has a folder in it for its fit's checkpoint.
    model : its name; space : what may be chosen of it.
    identity : what decides the trials' results, as JSON.

    Attributes
    ----------
    ended : trials by number.
    """

    def __init__(self, folder: Path, model: str, space: Space, identity: Mapping[str, Any]) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

        self._folder, self._model, self._space = folder, model, space
        path, mine = folder / JOURNAL, json.loads(json.dumps(identity))
        if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
            write_atomically(path, content[: content.rfind(b"\n") + 1])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with quiet():
                # a lock that a kill has left is in the way for so many seconds
                lock = JournalFileSymlinkLock(str(path), grace_period=5)
                storage = JournalStorage(JournalFileBackend(str(path), lock))
                self._study = optuna.create_study(storage=storage, study_name=model, load_if_exists=True)
            found = self._study.user_attrs.get("search", mine)
            differing = sorted(key for key in {*mine, *found} if mine.get(key) != found.get(key))
            self.ended = {} if differing else {each.number: each for each in self._read()}
        except OSError as error:
            raise UsboostError(
                f"{path} cannot be written: {error.strerror}; name another {option('out')}"
            ) from None
        except Exception as error:  # Optuna checks nothing of a journal, which may hold anything
            raise UsboostError(f"{path} is damaged ({type(error).__name__}); remove its folder") from None
        if differing:
            raise UsboostError(
                f"{folder} holds another search ({', '.join(differing)} differ); name another "
                f"{option('out')}, or remove it"
            )
        if not self._study.user_attrs:
            self._study.set_user_attr("search", mine)

    def checkpoint(self, number: int) -> Path:
        """The folder of a trial's rounds."""
        return self._folder / f"{number:03d}" / CHECKPOINT

    def forget_fits(self) -> None:
        """Remove the rounds of all trials."""
        for folder in self._folder.glob(f"*/{CHECKPOINT}"):
            shutil.rmtree(folder, ignore_errors=True)

    def add(self, trial: Trial, loss: float | None) -> None:
        """Write a trial that has ended, in place of an earlier one with its number."""
        from optuna.trial import TrialState, create_trial

        result = asdict(trial)
        del result["model"], result["settings"]
        states = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        self._study.add_trial(
            create_trial(
                state=states[trial.state],
                value=loss if trial.state == "finished" else None,
                params=coded(self._space, trial.settings),
                distributions={path: distribution(each) for path, each in self._space.items()},
                intermediate_values=dict(trial.risks),
                user_attrs={"result": result},
            )
        )
        self.ended[trial.number] = trial
        if trial.state != "pruned":  # such a fit may be the best in the end, and goes on then
            shutil.rmtree(self.checkpoint(trial.number), ignore_errors=True)

    def _read(self) -> Iterator[Trial]:
        for each in self._study.trials:
            settings = decoded(self._space, each.params)
            document = {"model": self._model, "settings": settings, **each.user_attrs["result"]}
            yield _ADAPTER.validate_python(document).of(settings=settings)


def finite(values: Mapping[Any, float]) -> dict[Any, float]:
    """Those that are finite numbers, which is what JSON can hold."""
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}

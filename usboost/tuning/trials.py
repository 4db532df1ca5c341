"""Trials on disk: one folder each, with what is known of it and, while it runs, its fit's checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from usboost.errors import UsboostError, option
from usboost.files import write_atomically

FILE, CHECKPOINT = "trial.json", "checkpoint"
SEARCH = "search.json"

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
    draws : the score in samples of these rows, see `usboost.tuning.noise`.
    risks : the fit's lowest validation risk by rung of rounds; end : the one it ended with.
    rounds, best_round : that were fitted, and the one kept, of the first fold.
    seconds : of the fits, in the run that ended them.
    reason : of a failure.
    """

    model: str
    number: int
    settings: Mapping[str, Any]
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
    """The trials of one model in a folder.

    Parameters
    ----------
    folder : is made when the first trial is written.
    identity : what decides the trials' results, as JSON.

    Raises
    ------
    UsboostError
        If the folder holds another search, or a file in it is damaged.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        path, mine = self.folder / SEARCH, json.loads(json.dumps(identity))
        if not path.exists():
            write_atomically(path, json.dumps(mine, indent=1).encode())
            return
        found = _json(path)
        if found != mine:
            differing = sorted(key for key in {*mine, *found} if mine.get(key) != found.get(key))
            raise UsboostError(
                f"{self.folder} holds another search ({', '.join(differing)} differ); name another "
                f"{option('out')}, or remove it"
            )

    def place(self, number: int) -> Path:
        """The folder of a trial."""
        return self.folder / f"{number:03d}"

    def read(self) -> list[Trial]:
        """Those that are there, by number; none after one that is missing."""
        found: list[Trial] = []
        while (path := self.place(len(found)) / FILE).exists():
            found.append(read_trial(path))
        return found


def write_trial(folder: Path, trial: Trial) -> None:
    """Write a trial's file, whole or not at all."""
    document = {name: getattr(trial, name) for name in Trial.__dataclass_fields__}
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / FILE, text.encode())


def read_trial(path: Path) -> Trial:
    """What `write_trial` wrote.

    Raises
    ------
    UsboostError
        If the file is damaged.
    """
    try:
        trial = _ADAPTER.validate_python(_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsboostError(
            f"{path}: {where}: {first['msg']}; remove the file to run the trial again"
        ) from None
    return trial.of(settings={name: _value(value) for name, value in trial.settings.items()})


def finite(values: Mapping[Any, float]) -> dict[Any, float]:
    """Those that are finite numbers, which is what JSON can hold."""
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _json(path: Path) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsboostError(f"{path} is damaged ({type(error).__name__}); remove its folder") from None
    if not isinstance(found, dict):
        raise UsboostError(f"{path} is damaged (it holds no object); remove its folder")
    return found

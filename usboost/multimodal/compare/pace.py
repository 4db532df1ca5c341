"""How far the fits of a comparison are, and which models take far longer than the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import fmean, median
from threading import Lock
from typing import Any

from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import Round
from usboost.errors import option

TIMES = 10
"""So many times the others' median is far longer."""

SOME = 3
"""A fit is judged by its rounds once it has taken so many times the others' median."""

SHORT = 30.0
"""Seconds of all fits of a model that nobody needs to hear of."""


class Pace:
    """The seconds of the fits that have ended; tells once of a model that takes far longer than the others.

    Parameters
    ----------
    fits : of each model.
    told : is called with the sentence; None: nobody is told.
    """

    def __init__(self, fits: int, told: Callable[[str], None] | None = None) -> None:
        self._fits, self._tell = fits, told
        self._seconds: dict[str, list[float]] = {}
        self._known: set[str] = set()
        self._lock = Lock()

    def ended(self, model: str, seconds: float) -> None:
        """A fit of a model took so many seconds."""
        with self._lock:
            self._seconds.setdefault(model, []).append(seconds)
            for name, each in self._seconds.items():
                self._judge(name, fmean(each), "")

    def goes_on(self, model: str, seconds: float, whole: float, rounds: int) -> None:
        """A fit has taken so many seconds, and its rounds, if it needs all of them, will take `whole`."""
        with self._lock:
            usual = self._usual(model)
            if usual is not None and seconds >= SOME * usual:
                self._judge(model, whole, f" if it needs all of its {rounds:,} rounds")

    def _usual(self, model: str) -> float | None:
        others = [fmean(each) for name, each in self._seconds.items() if name != model]
        return median(others) if others else None

    def _judge(self, model: str, seconds: float, where: str) -> None:
        usual = self._usual(model)
        left = self._fits - len(self._seconds.get(model, []))
        slow = usual is not None and seconds > TIMES * usual and left * seconds >= SHORT
        if self._tell is None or model in self._known or not slow:
            return
        self._known.add(model)
        takes = "may take up to" if where else "will take about"
        self._tell(
            f"{model} {takes} {duration(seconds)} a fit{where}, {duration(left * seconds)} for the "
            f"{left} still to make; the other models' median is {duration(usual or 0.0)}. Leave it out of "
            f"{option('models')}, or allow fewer {option('rounds')}"
        )


def duration(seconds: float) -> str:
    """A time in words: seconds, or minutes, or hours."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Watched(Callback):
    """Shows the rounds of a fit while it runs, and lets `Pace` judge them.

    Parameters
    ----------
    show : is called with a line, such as "round 12 of 100".
    """

    def __init__(self, model: str, pace: Pace, show: Callable[[str], None]) -> None:
        self._model, self._pace, self._show = model, pace, show
        self._began = time.perf_counter()

    def on_fit_begin(self, fit: Any) -> None:
        # a model may be made of several fits, one after the other
        self._rounds, self._before = int(fit.n_rounds), time.perf_counter()

    def on_round(self, round_: Round) -> bool:
        now = time.perf_counter()
        self._show(f"round {round_.index:,} of {self._rounds:,}")
        whole = (self._before - self._began) + (now - self._before) * self._rounds / round_.index
        self._pace.goes_on(self._model, now - self._began, whole, self._rounds)
        return False

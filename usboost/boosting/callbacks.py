"""Callbacks, which watch a fit and may stop it: early stopping, time limits, Ctrl-C, progress.

A callback is any object with the three hooks of `Callback`; subclass it and override what is
needed. They serve boosting (a round is a stage) and whole networks (a round is an epoch).
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from usboost.data.progress import Progress
from usboost.errors import UsboostError
from usboost.evaluation.ranking import LOWER_IS_BETTER

if TYPE_CHECKING:
    from usboost.boosting.rounds import Round


TOGETHER = 1.0
"""Seconds within which a further Ctrl-C is part of the one before."""


class Callback:
    """Base of all callbacks: does nothing.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import Callback, Table, TreeLearner, TwoWeakLearnerClassifier, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> class Tell(Callback):
    ...     def on_round(self, round_):
    ...         print(round_.index, list(round_.stage.steps))
    >>> trees = {"S": TreeLearner()}
    >>> model = TwoWeakLearnerClassifier(trees, n_rounds=2, callbacks=[Tell()]).fit(views, y)
    1 ['S']
    2 ['S']
    """

    def on_fit_begin(self, fit: Any) -> None:
        """Before the first round; `fit` has ``n_rounds``."""

    def on_resume(self, rounds: "Sequence[Round]") -> bool:
        """Before the first new round of a fit that resumes from a checkpoint; True stops it.

        `rounds` are the checkpoint's, in order; by default each goes to `on_round`.
        """
        answers = [self.on_round(round_) for round_ in rounds]
        return any(answers)

    def on_round(self, round_: "Round") -> bool:
        """After each round; True asks the fit to stop."""
        return False

    def on_fit_end(self) -> None:
        """After the last round, and after a failure."""

    def time_left(self) -> float:
        """Return the seconds in which further fits may run, for a model of several; 0 for no more."""
        return math.inf


def notify(callbacks: Sequence[Callback], round_: "Round") -> bool:
    """Show a round to every callback; return whether any asks to stop (the others still see it)."""
    answers = [callback.on_round(round_) for callback in callbacks]
    return any(answers)


def notify_resumed(callbacks: Sequence[Callback], rounds: "Sequence[Round]") -> bool:
    """Show every callback the rounds of a checkpoint, if any; return whether any asks to stop."""
    answers = [callback.on_resume(rounds) for callback in callbacks if rounds]
    return any(answers)


@contextmanager
def begin_and_end(fit: Any, callbacks: Sequence[Callback]) -> Iterator[None]:
    """Begin and end the callbacks around a fit."""
    for callback in callbacks:
        callback.on_fit_begin(fit)
    try:
        yield
    finally:
        for callback in callbacks:
            callback.on_fit_end()


def improves(metrics: Mapping[str, float], best: Mapping[str, float] | None, monitor: str) -> bool:
    """Return whether a round's metrics are better than the best so far.

    Names that begin with "risk" or with a score that is better lower ("log_loss", "rmse") are better lower.
    Ties are broken by ``risk_val``: a network that predicts no positive yet has F1 = 0, but still learns.
    """
    if best is None:
        return True
    sign = -1.0 if monitor.startswith(("risk", *LOWER_IS_BETTER)) else 1.0
    now, before = sign * metrics[monitor], sign * best[monitor]
    if now != before:
        return now > before
    return metrics.get("risk_val", math.inf) < best.get("risk_val", math.inf)


Patience = int | tuple[int, float] | None
"""See `EarlyStopping`."""


class EarlyStopping(Callback):
    """Stops when the monitored metric has not improved for `patience` rounds.

    Parameters
    ----------
    monitor : a metric of `Round`; see `improves`
    patience : int, (int, float) or None
        With a pair, so many rounds at least, and that share of the rounds up to the best one: where small
        steps take hundreds of rounds, a metric can rest for dozens of them. None never stops, but the best
        round is still found.
    least : what these rounds have to gain together: a metric that gains less counts as at rest, though its
        best round is still the one that is kept
    before : the same metrics before the first round: the best round is then 0 until another is better

    Raises
    ------
    UsboostError
        If a sequence is no pair, or holds a number below 0.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import EarlyStopping, Table, TreeLearner, TwoWeakLearnerClassifier, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> flat = EarlyStopping("risk_val", patience=3)
    >>> model = TwoWeakLearnerClassifier({"S": TreeLearner()}, patience=None, callbacks=[flat]).fit(views, y)
    >>> len(model.history_) - flat.best_round
    3
    """

    def __init__(
        self,
        monitor: str = "f1_val",
        patience: Patience = 20,
        least: float = 0.0,
        before: Mapping[str, float] | None = None,
    ) -> None:
        if isinstance(patience, Sequence) and (len(patience) != 2 or min(patience) < 0):
            raise UsboostError(f"patience is a number of rounds and a share of them, not {patience}")
        self.monitor, self.patience = monitor, patience
        self.least, self.before = least, before
        self.on_fit_begin(None)

    def on_fit_begin(self, fit: Any) -> None:
        self.best_round = self._moved = 0
        self._best = self._at_rest = self.before

    def on_round(self, round_: "Round") -> bool:
        if self.monitor not in round_.metrics:
            if not any(name.endswith("_val") for name in round_.metrics):
                return False  # a fit to all rows, which others have told how far to go
            names = ", ".join(sorted(round_.metrics))
            raise UsboostError(f"early stopping monitors {self.monitor!r}, which is not among {names}")
        if improves(round_.metrics, self._best, self.monitor):
            self.best_round, self._best = round_.index, round_.metrics
            at_rest, now = self._at_rest, round_.metrics
            if at_rest is None or abs(now[self.monitor] - at_rest[self.monitor]) >= self.least:
                self._moved, self._at_rest = round_.index, now
        if self.patience is None:
            return False
        fewest, share = self.patience if isinstance(self.patience, Sequence) else (self.patience, 0.0)
        return round_.index - self._moved >= max(fewest, share * self._moved)


class TimeLimit(Callback):
    """Stops before a round that would not end in time; the first round always runs.

    A round is taken to last as long as the longest so far.

    Parameters
    ----------
    seconds : from now on, not from the beginning of the fit.

    Attributes
    ----------
    reached : bool, whether it has stopped a fit
    """

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self.reached = False

    def on_fit_begin(self, fit: Any) -> None:
        self._last, self._longest = time.monotonic(), 0.0

    def on_resume(self, rounds: "Sequence[Round]") -> bool:
        # rounds of an earlier run took none of this one's time
        return self.on_round(rounds[-1])

    def on_round(self, round_: "Round") -> bool:
        now = time.monotonic()
        self._last, self._longest = now, max(self._longest, now - self._last)
        self.reached = self.reached or now + self._longest > self._deadline
        return self.reached

    def time_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


class Interrupt(Callback):
    """Ctrl-C ends a fit after the round that runs, and the rounds so far are kept; again, it stops at once.

    Presses within `TOGETHER` seconds of the first one are part of it: what starts a command may send another.

    Parameters
    ----------
    on_press : called at the first Ctrl-C, to say so.

    Attributes
    ----------
    pressed : bool, whether Ctrl-C was pressed
    """

    def __init__(self, on_press: Callable[[], None] | None = None) -> None:
        self.on_press, self.pressed, self._first = on_press, False, 0.0

    def on_fit_begin(self, fit: Any) -> None:
        self._before: Any = None
        # elsewhere Python refuses to set a handler; Ctrl-C then stops at once
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)

    def _press(self, number: int, frame: Any) -> None:
        if self.pressed:
            if time.monotonic() < self._first + TOGETHER:
                return
            if callable(self._before):
                self._before(number, frame)
                return
            raise KeyboardInterrupt
        self.pressed, self._first = True, time.monotonic()
        if self.on_press is not None:
            self.on_press()

    def on_round(self, round_: "Round") -> bool:
        return self.pressed

    def time_left(self) -> float:
        return 0.0 if self.pressed else math.inf

    def on_fit_end(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None


class History(Callback):
    """Keeps every round's metrics and cumulative seconds, one dict a round, in ``rounds``."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, float]] = []

    def on_fit_begin(self, fit: Any) -> None:
        self.rounds = []

    def on_round(self, round_: "Round") -> bool:
        before = self.rounds[-1]["seconds"] if self.rounds else 0.0
        parts = {f"seconds_{part}": spent for part, spent in round_.seconds.items()}
        row = {"round": round_.index, "seconds": before + round_.seconds["total"]}
        self.rounds.append({**row, **round_.metrics, **parts})
        return False


class ShowRounds(Callback):
    """Shows the rounds of a fit: calls `progress` with (rounds done, rounds at most)."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def on_fit_begin(self, fit: Any) -> None:
        self._total = int(fit.n_rounds)

    def on_round(self, round_: "Round") -> bool:
        self.progress(round_.index, self._total)
        return False

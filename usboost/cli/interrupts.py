"""What Ctrl-C and SIGTERM do to a command in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, NoReturn

CODE = 130
"""The exit code of a command that was interrupted."""

TEXT = "interrupted; nothing already on disk was changed, and the same command can be given again"

TOGETHER = 1.0
"""Seconds within which a further Ctrl-C is part of the one before: what is there is being put in order. As
`usboost.boosting.callbacks.TOGETHER`, whose import would take longer than it may take to answer."""

LATER = 0.01
"""Seconds until it is looked again whether an import has ended."""

IMPORTING = "<frozen importlib._bootstrap>"


def _imports(frame: Any) -> bool:
    """Whether a module is being imported, of which an exception would make an ImportError, or none at all."""
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            return True
        frame = frame.f_back
    return False


class Interrupts:
    """Ctrl-C and SIGTERM as KeyboardInterrupt; once the command has told its end, they end the process.

    The exception waits for the end of an import, whose extension modules would turn it into another one.
    """

    def __init__(self) -> None:
        self._last = -TOGETHER
        self._told = False
        self._process = 0

    def install(self) -> None:
        """From now on, until the process ends."""
        self._process = os.getpid()
        for number in (signal.SIGINT, signal.SIGTERM):
            # what a shell lets a background command ignore stays ignored
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)
        if hasattr(signal, "SIGALRM"):
            signal.signal(signal.SIGALRM, self._interrupt)

    def heard(self) -> None:
        """Another handler has answered Ctrl-C; what follows at once is part of it."""
        self._last = time.monotonic()

    def told(self) -> None:
        """The command has said how it ended; the rest is waiting for threads and the like."""
        self._told = True

    def tell(self) -> None:
        """Say that the command was interrupted, if it has not."""
        if not self._told:
            sys.stderr.write(f"{TEXT}\n")
        self.told()

    def end(self) -> NoReturn:
        """Say so and end the process at once: no thread is waited for that still fits a model."""
        self.tell()
        sys.stdout.flush()
        sys.stderr.flush()
        # not by sys.exit: after some interruptions Python ends by the signal, whatever the exit code
        os._exit(CODE)

    def over(self) -> None:
        """The command is done; a late Ctrl-C does not make a failure of it."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __call__(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:  # a fork, which its parent ends
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self._told:
            os._exit(CODE)
        elif time.monotonic() >= self._last + TOGETHER:
            self._last = time.monotonic()
            self._interrupt(number, frame)

    def _interrupt(self, number: int, frame: Any) -> None:
        if hasattr(signal, "setitimer") and _imports(frame):
            signal.setitimer(signal.ITIMER_REAL, LATER)
        else:
            raise KeyboardInterrupt


interrupts = Interrupts()

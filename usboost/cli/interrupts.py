"""Ctrl-C and SIGTERM, and how a command in a process of its own ends by them."""

import os
import signal
import sys
import time
from typing import Any, NoReturn

CODE = 130  # the exit code of a command that was interrupted

TOGETHER = 1.0
"""Seconds within which a further Ctrl-C is part of the one before: what is there is being put in order. As
`usboost.boosting.callbacks.TOGETHER`, whose import would take longer than it may take to answer."""


class Interrupts:
    """Ctrl-C and SIGTERM as KeyboardInterrupt; once the command has reported its end, they end the process.

    The exception waits for the end of an import, whose extension modules would turn it into another one.
    """

    def __init__(self) -> None:
        self._last = -TOGETHER
        self._reported = False
        self._process = 0

    def install(self) -> None:
        """Answer both from now on, until the process ends."""
        self._process = os.getpid()
        for number in (signal.SIGINT, signal.SIGTERM):
            # what a shell lets a background command ignore stays ignored
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)
        if hasattr(signal, "SIGALRM"):
            signal.signal(signal.SIGALRM, self._interrupt)

    def answered(self) -> None:
        """Take note that another handler has answered Ctrl-C; what follows at once is part of it."""
        self._last = time.monotonic()

    def reported(self) -> None:
        """Take note that the command has reported its end; the rest is waiting for threads and the like."""
        self._reported = True

    def report(self) -> None:
        """Report that the command was interrupted, if it has not reported its end."""
        if not self._reported:
            text = "interrupted; nothing already on disk was changed, and the same command can be given again"
            sys.stderr.write(f"{text}\n")
        self.reported()

    def end(self) -> NoReturn:
        """Report it and end the process at once: no thread is waited for that still fits a model."""
        self.report()
        sys.stdout.flush()
        sys.stderr.flush()
        # not by sys.exit: after some interruptions Python ends by the signal, whatever the exit code
        os._exit(CODE)

    def over(self) -> None:
        """Ignore a late Ctrl-C of a command that is done: it is no failure."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __call__(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:  # a fork, which its parent ends
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self._reported:
            os._exit(CODE)
        elif time.monotonic() >= self._last + TOGETHER:
            self._last = time.monotonic()
            self._interrupt(number, frame)

    def _interrupt(self, number: int, frame: Any) -> None:
        # of an exception while a module is imported an ImportError would be made, or none at all
        while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
            frame = frame.f_back
        if frame is None or not hasattr(signal, "setitimer"):
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 0.01)  # seconds until it is looked again


interrupts = Interrupts()

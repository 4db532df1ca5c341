"""Progress of long work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

Progress = Callable[[int, int], None]
"""Called with (done, in all); the latter is 0 where it is unknown."""


class Running:
    """What runs at this moment, in the order in which it began.

    Parameters
    ----------
    told : called whenever something begins or ends.
    """

    def __init__(self, told: Callable[[Sequence[str]], None] | None) -> None:
        self._told = told
        self._now: list[str] = []
        self._lock = Lock()

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Runs while the block does; of any thread."""
        self._change(self._now.append, what)
        try:
            yield
        finally:
            self._change(self._now.remove, what)

    def _change(self, how: Callable[[str], None], what: str) -> None:
        with self._lock:
            how(what)
            if self._told is not None:
                self._told(list(self._now))

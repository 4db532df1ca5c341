"""Progress of long work."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (done, in all); the latter is 0 where it is unknown."""

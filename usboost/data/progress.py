"""How a long piece of work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (done, in all); the latter is 0 where it is unknown."""

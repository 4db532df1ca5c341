"""The one exception that usboost raises for a user's mistake, and how its messages name options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UsboostError(ValueError):
    """An input, file or parameter that usboost cannot work with.

    The message is one sentence that names the file, column or key and what to do. It is also
    a ``ValueError``, so code written for scikit-learn catches it.

    Examples
    --------
    >>> from usboost import Table
    >>> Table.from_numeric([1.0, 2.0])
    Traceback (most recent call last):
    usboost.errors.UsboostError: a numeric view needs two dimensions (rows, columns), not 1
    """


class Unsuited(UsboostError):
    """A model cannot be fitted to these rows on this computer; others may be."""


Style = Callable[[str, str], str]
"""Writes an option's name and value."""

_IN_PYTHON = {
    ("image", ""): "`images`",
    ("task", "regression"): "`MultimodalRegressor`",
    ("task", "classification"): "`MultimodalClassifier`",
}


def as_parameter(name: str, value: str = "") -> str:
    """An option as the estimators have it: `` `size` ``, or `` `missing='x'` ``."""
    return _IN_PYTHON.get((name, value)) or (f"`{name}={value}`" if value else f"`{name}`")


def option(name: str, value: str = "") -> str:
    """An option in a message, as its reader gives it: by default `as_parameter`, see `options_written`.

    Parameters
    ----------
    name : with underscores, ``skip_unreadable`` say; value : as it is to be written.
    """
    return _style(name, value)


@contextmanager
def options_written(style: Style) -> Iterator[None]:
    """Within it, messages write options so: what a command does for as long as it runs.

    It holds for the process, since messages are also made in threads of a pool.
    """
    before = write_options(style)
    try:
        yield
    finally:
        write_options(before)


def write_options(style: Style | None = None) -> Style:
    """Let messages write options so from now on, if a style is given; how they did before.

    What starts a process hands its own style on.
    """
    global _style
    before, _style = _style, style or _style
    return before


_style: Style = as_parameter

"""The exception that usboost raises for a user's mistake, its warning, and how messages name options."""

import codecs
import errno
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher, get_close_matches


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


def listed(names: Iterable[str]) -> str:
    """List names in a sentence; one of blanks, with some at its ends, or with line breaks is quoted."""
    names = list(names)
    plain = {each for each in names if each and each == each.strip() and each.isprintable()}
    return ", ".join(each if each in plain else repr(each) for each in names)


FEW, MOST = 12, 40
"""Names that are listed next to what may be meant, and at most without it."""


def choices(name: str, known: Sequence[str], has: str = "choose among", where: str = "") -> str:
    """Say what to write in place of a name that is not known: those like it, and all if they are few.

    Parameters
    ----------
    name : as it was given; known : the names that there are.
    has : before the list; where : the whole list is found, a sentence.

    Examples
    --------
    >>> from usboost.errors import choices
    >>> choices("wieght", ["weight", "hardness", " y"], "its columns are")
    "its columns are weight, hardness, ' y'; did you mean 'weight'?"
    """
    plain = {str(each): str(each).strip().casefold() for each in known}
    wanted, near = name.strip().casefold(), list[str]()
    for of in (lambda path: path, lambda path: path.rpartition("__")[2]):  # of a path, or its last part
        ends = {each: of(path) for each, path in plain.items()}
        alike = get_close_matches(of(wanted), list(ends.values()), 3, 0.6)
        likeness = {end: SequenceMatcher(None, end, of(wanted)).ratio() for end in alike}
        alike = [end for end in alike if likeness[end] > likeness[alike[0]] - 0.1]
        near = near or [each for each, end in ends.items() if wanted and end.startswith(of(wanted))][:3]
        near = near or list(dict.fromkeys(each for end in alike for each in ends if ends[each] == end))[:3]
    meant = f"did you mean {' or '.join(map(repr, near))}?" if near else ""
    if near and len(known) > FEW:
        return f"{meant} {where}".strip()
    more = f" and {len(known) - MOST:,} more" if len(known) > MOST else ""
    text = f"{has} {listed(known[:MOST]) or 'none'}{more}"
    return f"{text}; {meant}" if meant else text


class Unsuited(UsboostError):
    """A model cannot be fitted to these rows on this computer; others may be."""


_LACKING = (
    *("can't allocate memory", "Cannot allocate memory", "bad_alloc", "bad allocation"),
    *("can't start new thread", "Resource temporarily unavailable", "failed to map segment"),
)
"""Words of torch, gloo, C++, Python and the loader of libraries for it, without a MemoryError."""


@contextmanager
def within_memory() -> Iterator[None]:
    """Make a lack of memory within it a `UsboostError`, whichever library has run into it."""
    try:
        yield
    except UsboostError:
        raise
    except Exception as error:
        known = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
        if not known and (isinstance(error, OSError) or not any(words in str(error) for words in _LACKING)):
            raise
        raise UsboostError(
            "there is not enough memory; give the process more, fit fewer rows, or give them as tables that "
            "are on disk (Table.on_disk)"
        ) from error


@contextmanager
def refusals() -> Iterator[None]:
    """Make a package's refusal of a parameter within it a `UsboostError`."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ not in ("LightGBMError", "InvalidParameterError", "CatBoostError"):
            raise
        package, said = type(error).__module__.partition(".")[0], str(error).strip().splitlines()[0]
        raise UsboostError(f"{package} refuses to fit: {said}; change that setting") from error


class UsboostWarning(UserWarning):
    """A note of what usboost did, or found, that a user may not expect; the work went on.

    Columns that are left out or may be mistakes, categories that training did not have, values and images
    that could not be read and count as missing. The message is one sentence. Python's filters of warnings
    silence it, or make it an error.

    Examples
    --------
    >>> import warnings
    >>> from usboost import MultimodalClassifier, UsboostWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", UsboostWarning)
    ...     model = MultimodalClassifier("logistic").fit([[k, 0] for k in range(20)], ["a", "b"] * 10)
    """


def warn(text: str) -> None:
    """Warn whoever called usboost."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "usboost":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UsboostWarning, stacklevel=level)


_SILENCE = threading.Lock()
_silent: "list[warnings.catch_warnings[None]]" = []  # one for each block within `silenced`


@contextmanager
def silenced(message: str = "") -> Iterator[None]:
    """Ignore warnings of other packages that begin so, within it.

    The filters are the process's, and two blocks of `warnings.catch_warnings` that overlap in two threads
    leave it with those of the one that ends last. Here the last block restores what was before the first.
    """
    with _SILENCE:
        first = _silent[0] if _silent else warnings.catch_warnings()
        if not _silent:
            first.__enter__()
        _silent.append(first)
        warnings.filterwarnings("ignore", message=message)
    try:
        yield
    finally:
        with _SILENCE:
            _silent.pop()
            if not _silent:
                first.__exit__(None, None, None)


_IN_ASCII = {"±": "+/-", "−": "-", "–": "-", "—": "-", "×": "x", "≤": "<=", "≥": ">=", "…": "...", "·": "*"}


def _readable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    written = (_IN_ASCII.get(each, each.encode("ascii", "backslashreplace").decode()) for each in signs)
    return "".join(written), error.end


def print_readably() -> None:
    r"""Let this process print what the encoding of its output lacks as near as it can: +/- or \xe9, say."""
    codecs.register_error("readable", _readable)
    for stream in (sys.stdout, sys.stderr):
        # else somebody has chosen
        if getattr(stream, "errors", "") in ("strict", "surrogateescape", "backslashreplace"):
            with suppress(OSError):  # a pipe may refuse it, and then stays as it is
                stream.reconfigure(errors="readable")  # type: ignore[union-attr]


_OPTION = re.compile(r"`([a-z][a-z_]*)(?:=([^`]*))?`")


def rewrite_options(message: str, write: Callable[[str, str], str]) -> str:
    """Rewrite the options that a message names as its reader gives them.

    Messages name options as Python has them, `` `group` `` or `` `missing='x'` ``; `write` gets the name and
    the value, "" where there is none.

    Examples
    --------
    >>> from usboost.errors import rewrite_options
    >>> rewrite_options("leave `group` out", lambda name, value: name.upper())
    'leave GROUP out'
    """
    return _OPTION.sub(lambda each: write(each[1], each[2] or ""), message)

"""Docstrings of this project in the form that griffe reads.

Here a name is followed by its type or by what it is, and two short entries may share a line::

    rows : int
    folds, repeats : of the cross-validation, the same for all models
    model : its name; seed : of the fit

or a section begins with what it has in common with another: "As of `fit`, and".

griffe takes all that follows a colon for a type, and gives names that share an entry the default of the
first. So every name gets an entry of its own, and what is no type becomes the description; the type is
then the signature's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from griffe import Extension, Object

RULE = re.compile(r"-{3,}")
NAMES = r"\*{0,2}\w+(?:, \*{0,2}\w+)*"
ENTRY = re.compile(rf"({NAMES}) : (.+)")
NEXT_ENTRY = re.compile(rf"; (?={NAMES} : )")
INDENT = "    "


class OwnStyle(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = "\n".join(read(obj.docstring.value.splitlines()))


def read(lines: list[str]) -> Iterator[str]:
    titles = [k for k, below in enumerate(lines[1:]) if RULE.fullmatch(below)]
    for first, last in pairwise([0, *titles, len(lines)]):
        section = lines[first:last]
        title, body = section[:2], section[2:]
        if title[:1] in (["Parameters"], ["Attributes"]):
            if body and body[0].startswith("As "):
                same, *others = NEXT_ENTRY.split(body[0].removesuffix("."))
                body = [*others, *body[1:]]
                yield from [f"{title[0]}: a{same[1:]}{':' if any(body) else '.'}", ""]
            if any(body):
                yield from title
            yield from entries(body)
        elif title[:1] == ["Returns"]:
            yield from title
            yield from returned(body)
        else:
            yield from section


def entries(body: list[str]) -> Iterator[str]:
    starts = [k for k, line in enumerate(body) if line and not line.startswith(" ")]
    for first, last in pairwise([*starts, len(body)]):
        line, below = body[first], body[first + 1 : last]
        if not ENTRY.fullmatch(line):
            yield from body[first:last]
            continue
        *others, final = NEXT_ENTRY.split(line)
        for other in others:
            yield from one_each(other, [])
        yield from one_each(final, below)


def one_each(entry: str, below: list[str]) -> Iterator[str]:
    """An entry for each of its names."""
    names, _, text = entry.partition(" : ")
    for name in names.split(", "):
        yield from [f"{name} : {text}"] if is_type(text) else [name, INDENT + ended(text, below)]
        yield from below


def returned(body: list[str]) -> Iterator[str]:
    if not body or is_type(body[0]) or ENTRY.fullmatch(body[0]):
        yield from body
        return
    yield ":"
    for k, line in enumerate(body):
        yield INDENT + ended(line.strip(), body[k + 1 :]) if line else line


def is_type(text: str) -> bool:
    """Whether it reads as a type: ``int``, ``Views or None``, ``{"a", "b"}``, ``float64 (n, D)``."""
    try:
        ast.parse(text.removesuffix(", optional"), mode="eval")
    except SyntaxError:
        return False
    return True


def ended(text: str, below: list[str]) -> str:
    """With a full stop where a new sentence is below."""
    sentence = bool(below) and below[0].startswith(INDENT) and below[0].strip()[0].isupper()
    return text + "." * (sentence and text[-1] not in ".,;:")

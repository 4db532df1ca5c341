"""What can happen to a file: damage to its bytes, its text, and the values of its JSON."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

WILD_TEXT = (
    *("1e400", "-1e400", "NaN", "nan", "inf", "-Infinity", "9" * 400, "9" * 5000, "-1", "0", "1e-400"),
    *("", " ", "\0", "\ufeff", "\r\n", "\n\n", '"', '""', "'", ",", ",,,", ";", ":", "\t", "@", "@data"),
    *("?", "None", "null", "true", "0x10", "1_000", "１２", "²", "é", "\U0001f600", "\ud7ff", "𝟙"),
    *("../../etc/passwd", "/etc/passwd", "C:\\x", "<script>", "a" * 3000, "=1+1", "{{7*7}}", "%s%n"),
)
"""Values that a user's file may hold where another was meant."""

WILD_BYTES = (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xfe\xff", b"\0" * 9, b"\x1f\x8b", b"PK\x03\x04")

WILD_JSON: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "label", "../x", "/etc/passwd", "\0", "é", "a" * 2000, "OrderedDict", "Tree"),
    *([], {}, [None], [[]], ["x"], [1, 2], [[1, 2], [3]], {"": 0}, {"class": "X", "parameters": {}}),
    {"class": "TreeLearner", "parameters": {"max_depth": "x"}},
)

_LINE_ENDS = (b"\r\n", b"\r", b"\n\n", b" ", b"\x0b", "\u2028".encode())
_SEPARATORS = (b";", b"\t", b"", b",,", b":")
Mutate = Callable[[random.Random, bytes, bytes], bytes]
"""Damages the bytes of a file; the last ones are what splices are taken from."""


def damaged(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Return `data` with one to three pieces of damage; `other` is what splices are taken from."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(_BINARY)(rng, data, other)
    return data


def edited(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Return a text file with one to three wrong edits, of its fields and lines or of its bytes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice(_TEXT)(rng, data, other)
    return data


def changed(rng: random.Random, document: Any) -> Any:
    """Return a JSON document with one or two values replaced, left out, moved or repeated."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 2))):
        places = list(_places(document))
        if not places:
            return rng.choice(WILD_JSON)
        holder, key = rng.choice(places)
        what = rng.randrange(6)
        if what == 0:
            del holder[key]
        elif what == 1:
            there, other = rng.choice(places)
            known = other in there if isinstance(there, dict) else other < len(there)
            holder[key] = copy.deepcopy(there[other]) if known else None
        elif what == 2 and isinstance(holder, dict):
            holder[rng.choice(WILD_TEXT)] = holder.pop(key)
        elif what == 3 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif what == 4 and isinstance(holder[key], (int, float)):
            holder[key] = holder[key] * rng.choice((-1, 2, 0.5, 1000)) + rng.choice((0, 1, -1))
        else:
            holder[key] = copy.deepcopy(rng.choice(WILD_JSON))
    return document


def _places(document: Any) -> Any:
    if isinstance(document, (dict, list)):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield document, key
            yield from _places(value)


def _spot(rng: random.Random, data: bytes) -> int:
    return rng.randrange(len(data)) if data else 0


def _flip(rng: random.Random, data: bytes, other: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _leave_out(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = _spot(rng, data)
    return data[:at] + data[at + rng.choice((1, 2, 16, 300)) :]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at, start = _spot(rng, data), _spot(rng, other)
    return data[:at] + other[start : start + rng.choice((1, 8, 100, 1000))] + data[at:]


def _overwrite(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at, n = _spot(rng, data), rng.choice((1, 4, 8, 64))
    return data[:at] + rng.randbytes(n) + data[at + n :]


def _insert(pieces: tuple[bytes, ...]) -> Mutate:
    def mutate(rng: random.Random, data: bytes, other: bytes) -> bytes:
        at = _spot(rng, data)
        return data[:at] + rng.choice(pieces) + data[at:]

    return mutate


_BINARY: tuple[Mutate, ...] = (
    *(_flip, _flip, _flip, _flip, _leave_out, _splice, _overwrite, _overwrite, _insert(WILD_BYTES)),
    lambda rng, data, other: data[: _spot(rng, data)],
    lambda rng, data, other: rng.randbytes(rng.choice((0, 1, 10, 1000))),
)


def _field(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Put a wild value into one field of one line."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    fields = lines[at].split(b",")
    fields[rng.randrange(len(fields))] = rng.choice(WILD_TEXT).encode("utf-8", "surrogatepass")
    lines[at] = b",".join(fields)
    return b"\n".join(lines)


def _swap_columns(rng: random.Random, data: bytes, other: bytes) -> bytes:
    lines = [line.split(b",") for line in data.split(b"\n")]
    width = min(len(line) for line in lines if len(line) > 1) if any(len(li) > 1 for li in lines) else 1
    one, two = rng.randrange(width), rng.randrange(width)
    for line in lines:
        if len(line) > max(one, two):
            line[one], line[two] = line[two], line[one]
    return b"\n".join(b",".join(line) for line in lines)


def _drop_or_repeat_line(rng: random.Random, data: bytes, other: bytes) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at : at + 1] = [lines[at]] * rng.choice((0, 2, 5))
    return b"\n".join(lines)


def _other_encoding(rng: random.Random, data: bytes, other: bytes) -> bytes:
    if rng.random() < 0.4:
        return b"\xef\xbb\xbf" + data
    return data.decode("latin-1").encode(rng.choice(("utf-16", "utf-16-le", "utf-32")))


_TEXT: tuple[Mutate, ...] = (
    *(_field, _field, _field, _field, _field, _field, _swap_columns, _drop_or_repeat_line),
    *(_drop_or_repeat_line, _other_encoding, damaged, _insert((b'"', b'""', b"'", b'",', b'"\n'))),
    lambda rng, data, other: data.replace(b"\n", rng.choice(_LINE_ENDS)),
    lambda rng, data, other: data.replace(rng.choice((b",", b":", b" ")), rng.choice(_SEPARATORS)),
)

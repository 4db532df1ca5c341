"""Folders of Parquet files that are one table, as Hive, Spark and dask divide it: ``year=2020/p.parquet``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from usboost.errors import UsboostError

MISSING = "__HIVE_DEFAULT_PARTITION__"
"""The value of a folder whose rows have none."""

ADVICE = "a sub-folder is read if its name is column=value"

_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
"""Folders that say which of the files beside them count, and whose they are."""

_LOOKED_AT = 10_000  # files of a sub-folder, which may hold a million images


_SIGNS = set("*?[")


def is_pattern(path: Path) -> bool:
    """Whether it stands for the paths that are like it, such as ``rows/*.parquet``."""
    return bool(_SIGNS & set(str(path))) and not path.exists()


def base_of(path: Path) -> Path:
    """The folder that a table's files lie in: a folder itself; what stands before a pattern's first sign."""
    if not is_pattern(path):
        return path if path.is_dir() else path.parent
    return Path(*itertools.takewhile(lambda part: not _SIGNS & set(part), path.parts))


def parts_of(folder: Path) -> list[Path]:
    """The Parquet files of a folder, and of folders ``column=value`` in it, in the order of their names; or
    those that are like a pattern.

    Raises UsboostError if a log says which of the files count, or a column is in a path twice.
    """
    if is_pattern(folder):
        base = base_of(folder)
        return sorted(filter(_is_part, base.glob(str(folder.relative_to(base)))))
    for name, whose in _LOGS.items():
        if (folder / name).is_dir():
            raise UsboostError(
                f"{folder} is a {whose} table, in which files may be out of date; write it as Parquet anew"
            )
    return sorted(path for path in _below(folder, ()) if not path.is_dir())


def others_in(folder: Path) -> list[str]:
    """Folders with Parquet files that `parts_of` does not read, by their paths in this one."""
    plain = sorted(path for path in _below(folder, ()) if path.is_dir())
    return [
        path.relative_to(folder).as_posix()
        for path in plain
        if any(map(_is_part, itertools.islice(path.rglob("*"), _LOOKED_AT)))
    ]


def _below(folder: Path, above: tuple[str, ...]) -> Iterator[Path]:
    """The Parquet files, also of folders ``column=value``, and the other folders."""
    for path in folder.iterdir():
        if path.name.startswith((".", "_")):
            continue
        found = _pair(path.name)
        if _is_part(path) or (path.is_dir() and not found):
            yield path
        elif path.is_dir() and found:
            if found[0] in above:
                raise UsboostError(f"{path}: column {found[0]!r} is in the path twice; rename a folder")
            yield from _below(path, (*above, found[0]))


def partitions(
    folder: Path, paths: Sequence[Path], names: Sequence[str]
) -> tuple[dict[str, pa.Array], list[str]]:
    """The columns that the names of folders give, and notes for a user.

    Parameters
    ----------
    paths : of `parts_of`; names : the columns in the files, whose values go before those of folders.

    Returns
    -------
    By column a value for each file, int64 where all are whole numbers, else text; missing where the file lies
    above the folders that have it.

    Raises
    ------
    UsboostError
        If some folders are of one column and others beside them of another.
    """
    found = [_values(path.relative_to(folder)) for path in paths]
    keys = list(found[max(range(len(found)), key=lambda k: len(found[k]))])
    for path, values in zip(paths, found, strict=True):
        if list(values) != keys[: len(values)]:
            raise UsboostError(
                f"{folder} is divided in two ways, by {', '.join(keys)} and by {', '.join(values)} "
                f"({path.relative_to(folder)}); name one of its folders"
            )
    notes = [f"column {key!r} is in the files too, whose values are read" for key in keys if key in names]
    keys = [key for key in keys if key not in names]
    for path, values in zip(paths, found, strict=True):
        if lacking := [key for key in keys if key not in values]:
            where = path.relative_to(folder)
            notes.append(f"{where} lies above the folders of {', '.join(lacking)}: missing in its rows")
    return {key: _typed([values.get(key) for values in found]) for key in keys}, notes


def _values(path: Path) -> dict[str, str | None]:
    pairs = [pair for part in path.parent.parts if (pair := _pair(part))]
    return {key: None if value == MISSING else value for key, value in pairs}


def _typed(values: list[str | None]) -> pa.Array:
    """Whole numbers, unless one is written in another way: 01 is a code."""
    try:
        numbers = pa.array(values, pa.string()).cast(pa.int64())
    except pa.ArrowInvalid:
        return pa.array(values, pa.string())
    same = numbers.cast(pa.string()).to_pylist() == values
    return numbers if same else pa.array(values, pa.string())


def _pair(name: str) -> tuple[str, str] | None:
    """Column and value of a folder's name, percent-encoded as in Hive; None for another folder."""
    key, sign, value = name.partition("=")
    return (unquote(key), unquote(value)) if sign and key else None


def _is_part(path: Path) -> bool:
    named = path.suffix.lower() in (".parquet", ".pq") and not path.name.startswith((".", "_"))
    return named and path.is_file()

"""Compressed files: what is in them, as a stream of bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pyarrow as pa

from usboost.errors import UsboostError

PACKINGS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""pyarrow's names of them; a ``.zip`` is opened by Python."""


def kind_of_file(path: Path) -> tuple[str, bool]:
    """The end of the name of what the file holds, such as ``.csv``, and whether that is compressed.

    Raises
    ------
    UsboostError
        If an archive does not hold exactly one file.
    """
    packing = path.suffix.lower()
    if packing == ".zip":
        with zipfile.ZipFile(path) as archive:
            return PurePosixPath(_member(path, archive).filename).suffix.lower(), True
    if packing in PACKINGS:
        return path.with_suffix("").suffix.lower(), True
    return packing, False


@contextmanager
def unpacked(path: Path) -> Iterator[pa.NativeFile]:
    """The file's bytes as a stream, unpacked while they are read."""
    packing = path.suffix.lower()
    if packing == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(_member(path, archive)) as member:
            yield pa.PythonFile(member, mode="r")
        return
    with pa.OSFile(str(path)) as file:
        if packing not in PACKINGS:
            yield file
            return
        with pa.CompressedInputStream(file, PACKINGS[packing]) as stream:
            yield stream


def _member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The one file of an archive; what macOS adds does not count."""
    found = [
        info
        for info in archive.infolist()
        if not info.is_dir()
        and not info.filename.startswith("__MACOSX/")
        and ".DS_Store" not in info.filename
    ]
    if len(found) != 1:
        raise UsboostError(f"{path} holds {len(found)} files; a zip must hold one table, so unpack it")
    return found[0]

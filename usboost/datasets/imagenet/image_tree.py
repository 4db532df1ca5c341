"""Folders of images, on disk or in a zip archive, read alike."""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from functools import cached_property
from pathlib import Path
from typing import Protocol

from usboost.datasets.files.image_sources import Source, is_contained, unpack
from usboost.datasets.files.sources import sha256
from usboost.errors import UsboostError

LARGEST_TEXT = 1 << 28
"""Bytes of a text file in an archive above which it is refused, before it is unzipped."""


class Tree(Protocol):
    """Folders of images, on disk or in a zip; paths are relative, with slashes, "" the top."""

    path: Path

    def folders(self, path: str) -> list[str]: ...

    def files(self, path: str) -> list[str]: ...

    def text(self, path: str) -> str | None: ...

    def source(self, path: str) -> Source: ...

    def digest(self) -> str: ...


class Folder:
    """The tree in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def folders(self, path: str) -> list[str]:
        return self._names(path, folders=True)

    def files(self, path: str) -> list[str]:
        return self._names(path, folders=False)

    def text(self, path: str) -> str | None:
        file = self.path / path
        return decoded(file.read_bytes(), str(file)) if file.is_file() else None

    def source(self, path: str) -> Source:
        return self.path / path

    def digest(self) -> str:
        """Of the names of folders and validation files; hashing all images would read 150 GB."""
        names = [self.folders("train"), self.folders("val"), self.files("val")]
        return hashlib.sha256(repr(names).encode()).hexdigest()

    def _names(self, path: str, *, folders: bool) -> list[str]:
        if not (self.path / path).is_dir():
            return []
        with os.scandir(self.path / path) as found:
            entries = list(found)
        if path:  # train/ and val/ themselves may be links, to another disk for instance
            root = (self.path / path.split("/")[0]).resolve()
            for entry in entries:
                if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root):
                    raise UsboostError(f"{entry.path} is a link that leads out of {root}; remove it")
        return sorted(entry.name for entry in entries if entry.is_dir() == folders)


class Zip:
    """The tree in a zip archive, from the folder that holds ``train/`` on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if not name.endswith("/")]
        except Exception as error:  # zipfile raises nearly anything for a damaged directory
            raise UsboostError(f"{path} cannot be opened as a zip archive: {error}; fetch it again") from None
        names = [name for name in names if not name.startswith("__MACOSX/")]
        if outside := [name for name in names if not is_contained(name)]:
            raise UsboostError(f"{path} holds {outside[0]!r}, a path that leads out of it; do not trust it")
        tops = {name[: at.start()] for name in names if (at := re.search(r"(?<![^/])train/", name))}
        if len(tops) != 1:
            raise UsboostError(f"{path} holds {len(tops)} folders called train, but must hold one")
        self._top = tops.pop()
        self._files: dict[str, list[str]] = {"": []}
        for name in sorted(name.removeprefix(self._top) for name in names if name.startswith(self._top)):
            folder, _, file = name.rpartition("/")
            self._files.setdefault(folder, []).append(file)

    @cached_property
    def _folders(self) -> dict[str, set[str]]:
        folders: dict[str, set[str]] = {}
        for name in self._files:
            parts = name.split("/")
            for k in range(len(parts)):
                folders.setdefault("/".join(parts[:k]), set()).add(parts[k])
        return folders

    def folders(self, path: str) -> list[str]:
        return sorted(self._folders.get(path, ()))

    def files(self, path: str) -> list[str]:
        return self._files.get(path, [])

    def text(self, path: str) -> str | None:
        folder, _, file = path.rpartition("/")
        if file not in self._files.get(folder, ()):
            return None
        name = f"{path} in {self.path}"
        try:
            with zipfile.ZipFile(self.path) as archive:
                info = archive.getinfo(self._top + path)
                data = unpack(archive, info) if info.file_size <= LARGEST_TEXT else None
        except Exception as error:
            raise UsboostError(f"{name} cannot be unzipped ({error}); fetch the archive again") from error
        if data is None:
            raise UsboostError(f"{name} has {info.file_size:,} bytes, more than a list of labels may have")
        return decoded(data, name)

    def source(self, path: str) -> Source:
        return self.path, self._top + path

    def digest(self) -> str:
        return sha256(self.path)


def open_tree(raw: Path) -> Tree:
    """The tree in `raw`: a zip, a folder with ``train/``, or a folder with one zip.

    Raises UsboostError if there is no such thing, or the zip is damaged, holds no ``train/``, or a path out
    of it.
    """
    raw = Path(raw)
    if raw.is_file():
        return Zip(raw)
    if (raw / "train").is_dir():
        return Folder(raw)
    archives = sorted(raw.glob("*.zip"))
    if len(archives) == 1:
        return Zip(archives[0])
    raise UsboostError(
        f"{raw} holds neither a folder train/ (ILSVRC2012) nor one zip archive (Tiny ImageNet); "
        "put one of them there"
    )


def decoded(data: bytes, name: str) -> str:
    """UTF-8 text, with or without a byte order mark.

    Raises UsboostError if it is not UTF-8; the message calls it `name`.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsboostError(f"{name} is not text in UTF-8 ({error.reason})") from None

"""Folders of images as ILSVRC2012 and Tiny ImageNet have them, on disk or in a zip archive, read alike.

Which images there are, and what animals they show.
"""

import csv
import hashlib
import io
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from usboost.datasets.image_files import Source, is_contained, unpack
from usboost.errors import UsboostError
from usboost.files.arrays import sha256

ILSVRC = {
    "dog": (range(151, 269),),
    "feline": (range(281, 294),),
    "primate": (range(365, 385),),
    "reptile": (range(33, 69),),
    "bird": (range(7, 25), range(80, 101), range(127, 147)),
}
"""Indices of the animals' synsets among the 1000 of ILSVRC2012, sorted by wnid: 118 and 128 of them."""

TINY = {
    "dog": "n02085620 n02094433 n02099601 n02099712 n02106662 n02113799",
    "feline": "n02123045 n02123394 n02124075 n02125311 n02129165",
    "primate": "n02480495 n02481823 n02486410",
    "reptile": "n01698640 n01742172",
    "bird": "n01855672 n02002724 n02056570 n02058221",
}
"""Synsets of the animals in Tiny ImageNet-200; its amphibians are in neither class."""

INDEX = "index.csv"
ANNOTATIONS = "val_annotations.txt"
SOLUTION = "LOC_val_solution.csv"
MAPPING = "LOC_synset_mapping.txt"
TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
DEVKIT = "ILSVRC2012_devkit_t12/data"

LARGEST_TEXT = 1 << 28  # bytes of a text file in an archive above which it is refused, before it is unzipped


class FolderTree:
    """Folders of images on disk; paths are relative, with slashes, "" the top."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def folders(self, path: str) -> list[str]:
        return self._names(path, folders=True)

    def files(self, path: str) -> list[str]:
        return self._names(path, folders=False)

    def text(self, path: str) -> str | None:
        file = self.path / path
        return _decoded(file.read_bytes(), str(file)) if file.is_file() else None

    def source(self, path: str) -> Source:
        return self.path / path

    def digest(self) -> str:
        """Hash the names of folders and validation files; hashing all images would read 150 GB."""
        names = [self.folders("train"), self.folders("val"), self.files("val")]
        return hashlib.sha256(repr(names).encode()).hexdigest()

    def _names(self, path: str, *, folders: bool) -> list[str]:
        if not (self.path / path).is_dir():
            return []
        with os.scandir(self.path / path) as listing:
            entries = list(listing)
        if path:  # train/ and val/ themselves may be links, to another disk for instance
            root = (self.path / path.split("/")[0]).resolve()
            for entry in entries:
                if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root):
                    raise UsboostError(f"{entry.path} is a link that leads out of {root}; remove it")
        return sorted(entry.name for entry in entries if entry.is_dir() == folders)


class ZipTree:
    """The same in a zip archive, from the folder that holds ``train/`` on."""

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
        self._folders: dict[str, set[str]] = {}
        for name in sorted(name.removeprefix(self._top) for name in names if name.startswith(self._top)):
            folder, _, file = name.rpartition("/")
            self._files.setdefault(folder, []).append(file)
        for folder in self._files:
            parts = folder.split("/")
            for k in range(len(parts)):
                self._folders.setdefault("/".join(parts[:k]), set()).add(parts[k])

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
        return _decoded(data, name)

    def source(self, path: str) -> Source:
        return self.path, self._top + path

    def digest(self) -> str:
        return sha256(self.path)


ImageTree = FolderTree | ZipTree


def open_tree(raw: Path) -> ImageTree:
    """Open the tree in `raw`: a zip, a folder with ``train/``, or a folder with one zip.

    Raises UsboostError if it is not there, or the zip is damaged, lacks ``train/`` or has a path out of it.
    """
    raw = Path(raw)
    if raw.is_file():
        return ZipTree(raw)
    if (raw / "train").is_dir():
        return FolderTree(raw)
    archives = sorted(raw.glob("*.zip"))
    if len(archives) == 1:
        return ZipTree(archives[0])
    raise UsboostError(
        f"{raw} holds neither a folder train/ (ILSVRC2012) nor one zip archive (Tiny ImageNet); "
        "put one of them there"
    )


def _decoded(data: bytes, name: str) -> str:
    """Decode UTF-8 text, with or without a byte order mark; what is no text is refused by its `name`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsboostError(f"{name} is not text in UTF-8 ({error.reason})") from None


class LabelledImage(NamedTuple):
    """One image: its name within the archive or folder, its synset, and where it is."""

    file: str
    wnid: str
    source: Source


def animals(tree: ImageTree, root: Path) -> tuple[dict[str, str], str]:
    """Find the group of each synset that has training images, and say where the groups are from.

    In this order: the columns ``wnid, group`` of an ``index.csv`` near the zip or folder; the places of the
    synsets among the sorted 1000 of ILSVRC2012, which are the folders of ``train/`` if it has as many, else
    those in ``LOC_synset_mapping.txt`` or the devkit's ``meta.mat``; and, when each synset has a folder
    ``images/``, the table `TINY`. Raises UsboostError if none of these is there.
    """
    synsets = _synsets(tree, "train")
    if (root / INDEX).is_file():
        groups = {row["wnid"]: row["group"] for row in _index(root, ("wnid", "group"))}
        origin = INDEX
    elif len(every := synsets if len(synsets) == 1000 else _sorted_1000(root)) == 1000:
        groups = {every[k]: group for group, ranges in ILSVRC.items() for indices in ranges for k in indices}
        origin = "ILSVRC2012 indices"
    elif any("images" in tree.folders(f"train/{wnid}") for wnid in synsets):
        groups = {wnid: group for group, wnids in TINY.items() for wnid in wnids.split()}
        origin = "Tiny ImageNet-200"
    else:
        raise UsboostError(
            f"{tree.path}/train has {len(synsets)} synset folders, so it is unknown which of them are dogs: "
            f"have all 1000 there, or put {MAPPING}, {META} or an {INDEX} (columns wnid, group) beside it"
        )
    return {wnid: groups[wnid] for wnid in synsets if wnid in groups}, origin


def side(tree: ImageTree) -> int:
    """Return the pixels a side of the images: Tiny ImageNet's own 64, or 224, to which ILSVRC2012's are
    cropped for the networks that are trained on them."""
    return 64 if any("images" in tree.folders(f"train/{wnid}") for wnid in _synsets(tree, "train")) else 224


def of_synsets(tree: ImageTree, folder: str, wnids: Mapping[str, object]) -> list[LabelledImage]:
    """List the images of some synsets in ``train`` or ``val``, sorted by synset and name."""
    images = []
    for wnid in sorted(wnids):
        inner = f"{folder}/{wnid}"
        inner = f"{inner}/images" if "images" in tree.folders(inner) else inner
        paths = (f"{inner}/{name}" for name in _images(tree, inner))
        images += [LabelledImage(path, wnid, tree.source(path)) for path in paths]
    return images


def validation(tree: ImageTree, root: Path, wnids: Mapping[str, object]) -> list[LabelledImage]:
    """List the validation images of some synsets, sorted by synset and name.

    Folders ``val/<wnid>/`` say what their images show; for images in one folder, ``val/`` or ``val/images/``,
    one of these files does, in it or near: ``val_annotations.txt`` (Tiny ImageNet),
    ``LOC_val_solution.csv`` (Kaggle), ``ILSVRC2012_validation_ground_truth.txt`` with ``meta.mat`` (the
    devkit, whose numbers are **not** the sorted order of the synsets), or ``index.csv``. Raises UsboostError
    if there are no images, none of these files is there, or an image is not in it.
    """
    if _synsets(tree, "val"):
        return of_synsets(tree, "val", wnids)
    folder = "val/images" if "images" in tree.folders("val") else "val"
    if not (names := _images(tree, folder)):
        raise UsboostError(f"{tree.path} has no images in {folder}; the validation set is needed too")
    labels, file = _flat_labels(tree, root)
    if unknown := [name for name in names if _stem(name) not in labels]:
        raise UsboostError(f"{folder}/{unknown[0]} in {tree.path} has no label in {file}; add it there")
    chosen = sorted((labels[_stem(name)], name) for name in names if labels[_stem(name)] in wnids)
    return [LabelledImage(f"{folder}/{name}", wnid, tree.source(f"{folder}/{name}")) for wnid, name in chosen]


def _synsets(tree: ImageTree, folder: str) -> list[str]:
    return [name for name in tree.folders(folder) if re.fullmatch(r"n\d{8}", name)]


def _images(tree: ImageTree, folder: str) -> list[str]:
    endings = (".jpeg", ".jpg", ".png")
    return [name for name in tree.files(folder) if name.lower().endswith(endings) and name[0] != "."]


def _stem(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[0] or name


def _flat_labels(tree: ImageTree, root: Path) -> tuple[dict[str, str], str]:
    """Return the synset of each validation image by name without ending, and the file that has it."""
    if (text := tree.text(f"val/{ANNOTATIONS}")) is not None:
        fields = [line.split("\t") for line in text.splitlines() if line.strip()]
        return {_stem(row[0]): row[1] for row in fields if len(row) > 1}, ANNOTATIONS
    if (file := _file_near(root, SOLUTION)) is not None:
        rows = _rows(file)[1:]
        return {row[0]: row[1].split()[0] for row in rows if len(row) > 1 and row[1].split()}, SOLUTION
    if (file := _file_near(root, TRUTH)) is not None:
        if (meta := _file_near(root, META)) is None:
            raise UsboostError(
                f"{file} numbers the synsets as {META} of the devkit does, not in sorted order; "
                f"put {META} beside it"
            )
        synsets = _meta(meta)
        try:
            numbers = [int(line) for line in file.read_text(encoding="ascii").split()]
            named = {f"ILSVRC2012_val_{k:08d}": synsets[number] for k, number in enumerate(numbers, start=1)}
            return named, TRUTH
        except (ValueError, KeyError) as error:
            raise UsboostError(f"{file} must hold numbers 1..1000 that {meta} explains ({error})") from None
    if (root / INDEX).is_file():
        of_val = [row for row in _index(root, ("file", "wnid")) if "val" in row["file"].split("/")]
        return {_stem(row["file"]): row["wnid"] for row in of_val}, INDEX
    raise UsboostError(
        f"no labels found for the images in {tree.path}/val: sort them into folders val/<wnid>/, or put "
        f"{ANNOTATIONS}, {SOLUTION}, or {TRUTH} with {META} there"
    )


def _sorted_1000(root: Path) -> list[str]:
    """List the synsets of ILSVRC2012 sorted by wnid, from a file near the images; none without one."""
    if (file := _file_near(root, MAPPING)) is not None:
        lines = _decoded(file.read_bytes(), str(file)).splitlines()
        return sorted(line.split()[0] for line in lines if line.strip())
    if (file := _file_near(root, META)) is not None:
        return sorted(_meta(file).values())
    return []


def _file_near(root: Path, name: str) -> Path | None:
    places = (root, root / "val", root / DEVKIT)
    return next((place / name for place in places if (place / name).is_file()), None)


def _meta(path: Path) -> dict[int, str]:
    """Read the wnid of each ILSVRC2012_ID 1..1000 from the devkit's ``meta.mat``."""
    import scipy.io  # slow to import, and hardly ever needed

    try:
        synsets = scipy.io.loadmat(path, squeeze_me=True)["synsets"]
        ids, wnids = np.atleast_1d(synsets["ILSVRC2012_ID"]), np.atleast_1d(synsets["WNID"])
        return {int(k): str(wnid) for k, wnid in zip(ids, wnids, strict=True) if int(k) <= 1000}
    except Exception as error:  # scipy's reader raises nearly anything for a damaged file
        raise UsboostError(f"{path} cannot be read as the devkit's {META} ({error!r})") from error


def _index(root: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    head, *rows = _rows(root / INDEX) or [[]]
    if absent := [name for name in columns if name not in head]:
        raise UsboostError(f"{root / INDEX} has no column {absent[0]!r}")
    named = (dict(zip(head, row)) for row in rows)
    return [row for row in named if all(row.get(name) for name in columns)]


def _rows(path: Path) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(_decoded(path.read_bytes(), str(path)))))
    except csv.Error as error:
        raise UsboostError(f"{path} is not a CSV file ({error})") from None

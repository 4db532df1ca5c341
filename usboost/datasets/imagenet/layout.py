"""How ILSVRC2012 and Tiny ImageNet are laid out: which images there are and what animals they show."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from usboost.datasets.files.image_sources import Source
from usboost.datasets.imagenet.image_tree import Tree, decoded
from usboost.errors import UsboostError

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

_ENDINGS = (".jpeg", ".jpg", ".png")
_WNID = re.compile(r"n\d{8}")


class LabelledImage(NamedTuple):
    """One image: its name within the archive or folder, its synset, and where it is."""

    file: str
    wnid: str
    source: Source


def animals(tree: Tree, beside: Path) -> tuple[dict[str, str], str]:
    """The group of each synset that has training images, and where the groups are from.

    In this order: the columns ``wnid, group`` of an ``index.csv`` beside the zip or folder; the places of the
    synsets among the sorted 1000 of ILSVRC2012, which are the folders of ``train/`` if it has as many, else
    those in ``LOC_synset_mapping.txt`` or the devkit's ``meta.mat``; and, when each synset has a folder
    ``images/``, the table `TINY`. Raises UsboostError if none of these is there.
    """
    found = [name for name in tree.folders("train") if _WNID.fullmatch(name)]
    if (beside / INDEX).is_file():
        groups = {row["wnid"]: row["group"] for row in _index(beside, ("wnid", "group"))}
        origin = INDEX
    elif len(sorted_1000 := found if len(found) == 1000 else _sorted_1000(beside)) == 1000:
        groups = {
            sorted_1000[k]: group for group, ranges in ILSVRC.items() for indices in ranges for k in indices
        }
        origin = "ILSVRC2012 indices"
    elif any("images" in tree.folders(f"train/{wnid}") for wnid in found):
        groups = {wnid: group for group, wnids in TINY.items() for wnid in wnids.split()}
        origin = "Tiny ImageNet-200"
    else:
        raise UsboostError(
            f"{tree.path}/train has {len(found)} synset folders, so it is unknown which of them are dogs: "
            f"have all 1000 there, or put {MAPPING}, {META} or an {INDEX} (columns wnid, group) beside it"
        )
    return {wnid: groups[wnid] for wnid in found if wnid in groups}, origin


def side(tree: Tree) -> int:
    """Pixels a side of the source's images: Tiny ImageNet's own 64, or 224, to which ILSVRC2012's are
    cropped for the networks that are trained on them."""
    found = (wnid for wnid in tree.folders("train") if _WNID.fullmatch(wnid))
    return 64 if any("images" in tree.folders(f"train/{wnid}") for wnid in found) else 224


def training(tree: Tree, wnids: Mapping[str, object]) -> list[LabelledImage]:
    """The training images of some synsets, sorted by synset and name."""
    return [image for wnid in sorted(wnids) for image in _of_synset(tree, f"train/{wnid}", wnid)]


def validation(tree: Tree, beside: Path, wnids: Mapping[str, object]) -> list[LabelledImage]:
    """The validation images of some synsets, sorted by synset and name.

    Folders ``val/<wnid>/`` say what their images show; for images in one folder, ``val/`` or ``val/images/``,
    one of these files does, in it or beside: ``val_annotations.txt`` (Tiny ImageNet),
    ``LOC_val_solution.csv`` (Kaggle), ``ILSVRC2012_validation_ground_truth.txt`` with ``meta.mat`` (the
    devkit, whose numbers are **not** the sorted order of the synsets), or ``index.csv``. Raises UsboostError
    if there are no images, none of these files is there, or an image is not in it.
    """
    if any(_WNID.fullmatch(name) for name in tree.folders("val")):
        return [image for wnid in sorted(wnids) for image in _of_synset(tree, f"val/{wnid}", wnid)]
    folder = "val/images" if "images" in tree.folders("val") else "val"
    names = _images(tree, folder)
    if not names:
        raise UsboostError(f"{tree.path} has no images in {folder}; the validation set is needed too")
    labels, file = _flat_labels(tree, beside)
    if unknown := [name for name in names if _stem(name) not in labels]:
        raise UsboostError(f"{folder}/{unknown[0]} in {tree.path} has no label in {file}; add it there")
    chosen = sorted((labels[_stem(name)], name) for name in names if labels[_stem(name)] in wnids)
    return [LabelledImage(f"{folder}/{name}", wnid, tree.source(f"{folder}/{name}")) for wnid, name in chosen]


def _of_synset(tree: Tree, folder: str, wnid: str) -> list[LabelledImage]:
    folder = f"{folder}/images" if "images" in tree.folders(folder) else folder
    return [
        LabelledImage(f"{folder}/{name}", wnid, tree.source(f"{folder}/{name}"))
        for name in _images(tree, folder)
    ]


def _images(tree: Tree, folder: str) -> list[str]:
    return [name for name in tree.files(folder) if name.lower().endswith(_ENDINGS) and name[0] != "."]


def _stem(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[0] or name


def _flat_labels(tree: Tree, beside: Path) -> tuple[dict[str, str], str]:
    """The synset of each validation image by name without ending, and the file that says so."""
    if (text := tree.text(f"val/{ANNOTATIONS}")) is not None:
        fields = [line.split("\t") for line in text.splitlines() if line.strip()]
        return {_stem(row[0]): row[1] for row in fields if len(row) > 1}, ANNOTATIONS
    if (file := _beside(beside, SOLUTION)) is not None:
        rows = csv.reader(io.StringIO(decoded(file.read_bytes(), str(file))))
        try:
            next(rows, None)
            return {row[0]: row[1].split()[0] for row in rows if len(row) > 1 and row[1].split()}, SOLUTION
        except csv.Error as error:
            raise UsboostError(f"{file} is not a CSV file ({error})") from None
    if (file := _beside(beside, TRUTH)) is not None:
        if (meta := _beside(beside, META)) is None:
            raise UsboostError(
                f"{file} numbers the synsets as {META} of the devkit does, not in sorted order; "
                f"put {META} beside it"
            )
        synsets = _meta(meta)
        try:
            numbers = [int(line) for line in file.read_text(encoding="ascii").split()]
            return {
                f"ILSVRC2012_val_{k:08d}": synsets[number] for k, number in enumerate(numbers, start=1)
            }, TRUTH
        except (ValueError, KeyError) as error:
            raise UsboostError(f"{file} must hold numbers 1..1000 that {meta} explains ({error})") from None
    if (beside / INDEX).is_file():
        rows_of_val = [row for row in _index(beside, ("file", "wnid")) if "val" in row["file"].split("/")]
        return {_stem(row["file"]): row["wnid"] for row in rows_of_val}, INDEX
    raise UsboostError(
        f"no labels found for the images in {tree.path}/val: sort them into folders val/<wnid>/, or put "
        f"{ANNOTATIONS}, {SOLUTION}, or {TRUTH} with {META} there"
    )


def _sorted_1000(beside: Path) -> list[str]:
    """The synsets of ILSVRC2012 sorted by wnid, from a list beside the images, or none."""
    if (file := _beside(beside, MAPPING)) is not None:
        lines = decoded(file.read_bytes(), str(file)).splitlines()
        return sorted(line.split()[0] for line in lines if line.strip())
    if (file := _beside(beside, META)) is not None:
        return sorted(_meta(file).values())
    return []


def _beside(beside: Path, name: str) -> Path | None:
    places = (beside, beside / "val", beside / DEVKIT)
    return next((place / name for place in places if (place / name).is_file()), None)


def _meta(path: Path) -> dict[int, str]:
    """wnid of each ILSVRC2012_ID 1..1000 in the devkit's ``meta.mat``."""
    import scipy.io  # slow to import, and hardly ever needed

    try:
        synsets = scipy.io.loadmat(path, squeeze_me=True)["synsets"]
        ids, wnids = np.atleast_1d(synsets["ILSVRC2012_ID"]), np.atleast_1d(synsets["WNID"])
        return {int(k): str(wnid) for k, wnid in zip(ids, wnids, strict=True) if int(k) <= 1000}
    except Exception as error:  # scipy's reader raises nearly anything for a damaged file
        raise UsboostError(f"{path} cannot be read as the devkit's {META} ({error!r})") from error


def _index(beside: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    path = beside / INDEX
    reader = csv.DictReader(io.StringIO(decoded(path.read_bytes(), str(path))))
    try:
        if absent := [name for name in columns if name not in (reader.fieldnames or ())]:
            raise UsboostError(f"{path} has no column {absent[0]!r}")
        return [row for row in reader if all(row[name] for name in columns)]
    except csv.Error as error:
        raise UsboostError(f"{path} is not a CSV file ({error})") from None

"""A small stand-in for Tiny ImageNet: scikit-learn's bundled digit images in its file layout."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from usboost.datasets.files.sampling import stratified_order
from usboost.datasets.imagenet.layout import ANNOTATIONS, INDEX
from usboost.datasets.imagenet.prepare import DIGITS, FILES
from usboost.errors import UsboostError

SIDE = 32
"""Height and width of an image in pixels: the digits' 8 x 8, each a block of 4 x 4."""

_TOP = "tiny-imagenet-200"


def write_demo(folder: Path, *, rows_train: int, rows_test: int, seed: int) -> None:
    """Write ``tiny-imagenet-200.zip`` and the ``index.csv`` with the class of each digit.

    The digits 0..9 are the synsets n90000000..n90000009. There are 1797 of them: when more are asked for, all
    are used, in the same proportion. Equal arguments write equal bytes. Raises UsboostError if fewer than 20
    images of a split are asked for, which would leave out digits.

    Parameters
    ----------
    rows_train : images in the training folder.
    rows_test : images in each of the validation and the test split, so the validation folder has twice
        as many.
    """
    if min(rows_train, rows_test) < 20:
        raise UsboostError(f"rows_train {rows_train} and rows_test {rows_test} must be 20 or more")
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    share = min(1.0, len(digits) / (rows_train + 2 * rows_test))
    n_train, n_held = int(rows_train * share), int(2 * rows_test * share)
    order = stratified_order(digits, seed)[: n_train + n_held].tolist()
    names = [(_train_name(k, digits[k]) if j < n_train else f"val_{k}.JPEG") for j, k in enumerate(order)]

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / FILES[0].name, "w", zipfile.ZIP_STORED) as archive:
        for j, (k, name) in enumerate(zip(order, names)):
            path = f"{_TOP}/train/{name}" if j < n_train else f"{_TOP}/val/images/{name}"
            _add(archive, path, _jpeg(images[k]))
        held = list(zip(order, names))[n_train:]
        lines = [f"{name}\t{_wnid(digits[k])}\t0\t0\t{SIDE - 1}\t{SIDE - 1}\n" for k, name in held]
        _add(archive, f"{_TOP}/val/{ANNOTATIONS}", "".join(lines).encode())
    low, high = DIGITS
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("wnid", "group", "class_name"))
    rows.writerows((_wnid(digit), low if digit < 5 else high, f"digit {digit}") for digit in range(10))
    (folder / INDEX).write_text(text.getvalue(), encoding="utf-8")


def _wnid(digit: int) -> str:
    return f"n9000000{digit}"


def _train_name(k: int, digit: int) -> str:
    return f"{_wnid(digit)}/images/{_wnid(digit)}_{k}.JPEG"


def _jpeg(values: np.ndarray) -> bytes:
    """A digit's 64 values 0..16 as a grey JPEG."""
    pixels = np.kron(np.rint(values.reshape(8, 8) * 255 / 16), np.ones((4, 4))).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


def _add(archive: zipfile.ZipFile, path: str, data: bytes) -> None:
    """A member with a fixed date, for equal bytes."""
    archive.writestr(zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0)), data)

"""MI: dogs against other animals of ImageNet, with 500 made numbers for each image (US section 4.1).

Class 0 are the dogs; class 1 the felines, primates, reptiles and birds. The numbers x_S of an image are
random but for wᵀx_S > 0 in class 0 and wᵀx_S < 0 in class 1, for one fixed w. Then 9 % of the labels of
each split are switched, and the clean ones kept as the column `CLEAN`.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from PIL import Image

from usboost.data.progress import Progress
from usboost.datasets import image_folders, image_store
from usboost.datasets.covertype import NOISE, SWITCHED
from usboost.datasets.image_encoding import encode_files, encoding
from usboost.datasets.image_folders import ANNOTATIONS, INDEX, LabelledImage
from usboost.datasets.sampling import stratified_sample, switch_labels
from usboost.datasets.store import CLEAN, LABEL, Prepared, describe
from usboost.errors import UsboostError
from usboost.evaluation.folds import stratified_order, stratified_parts, stream
from usboost.files.arrays import sha256

GROUPS = {"dog": 0, "feline": 1, "primate": 1, "reptile": 1, "bird": 1}
"""The class of each group of synsets."""

CLASSES = ("dog", "feline, primate, reptile or bird")

DIGITS = {"digit 0 to 4": 0, "digit 5 to 9": 1}
"""The groups of the demo's images (see `write_demo`), which stand in for the animals."""

DIGITS_FILE = "scikit-learn-digits.zip"

SIDE = 32
"""Height and width of a demo's image in pixels: the digits' 8 x 8, each a block of 4 x 4."""

NUMBERS = 500
"""The numbers in x_S."""

COLUMNS = tuple(f"s{j:03d}" for j in range(NUMBERS))

_SHARE_AS_IT_IS = 0.01  # a dogs' share so near to the one asked for needs no row left out

_NEAR = 1e-3  # |wᵀx| under this is drawn again: rounding must not decide on which side a row is


def prepare(
    raw: Path,
    *,
    seed: int,
    profile: str,
    size: int | None = None,
    dog_share: float | None = None,
    dataset: str = "mi",
    limits: Mapping[str, int] | None = None,
    work: Path,
    workers: int = 1,
    progress: Progress | None = None,
) -> Prepared:
    """Make MI from ILSVRC2012 or Tiny ImageNet.

    The training folder is the training split. The paper had no test set besides the validation folder; here
    one half of it, chosen at random within each synset, is the validation split, the other the test split.
    The paper's dogs are 47 % of the images. ILSVRC2012's are that by themselves, Tiny ImageNet's three in
    ten: `dog_share` then leaves out images of the larger class, at random with its synsets' shares.

    Returns the splits train, val and test with the columns s000..s499 (float32), ``wnid``, ``file``, `LABEL`
    and `CLEAN`, in the order of synset and name. Raises UsboostError if the synsets' groups or the validation
    labels are not known, a class has no images, the share is not between 0 and 1, or an image cannot be read.

    Parameters
    ----------
    raw : folder with ``train/<wnid>/`` and ``val/``, or Tiny ImageNet's zip, or a folder that holds it; see
        `image_folders.animals` and `image_folders.validation` for what else is needed.
    seed : of the halves, the numbers, the switched labels and the rows taken, each from its own stream.
    profile : "demo" or "paper"; only noted in the card.
    size : height and width of the images in pixels; by default the source's own, see `image_folders.side`.
    dog_share : the share of class 0 in each split, to a hundredth. By default all images are taken.
    dataset : its name in the card; "digits" where `write_demo`'s stand in for the animals.
    limits : how many of these rows of a split to take at random, with the synsets' shares; all by default.
    work, workers, progress : of `image_encoding.write_shards`; an interrupted preparation resumes there.
    """
    raw = Path(raw)
    tree = image_folders.open_tree(raw)
    size = size or image_folders.side(tree)
    root = raw if raw.is_dir() else raw.parent
    groups, origin = image_folders.animals(tree, root)
    digits = any(group in DIGITS for group in groups.values())
    codes, names = (DIGITS, list(DIGITS)) if digits else (GROUPS, list(CLASSES))
    class_of = {wnid: codes[group] for wnid, group in groups.items() if group in codes}
    for code, name in enumerate(names):
        if code not in class_of.values():
            raise UsboostError(f"{tree.path} has no training folder of a {name}; both classes are needed")
    rest = image_folders.validation(tree, root, class_of)
    parts = stratified_parts([image.wnid for image in rest], (0.5, 0.5), stream(seed, 0))
    val, test = ([rest[row] for row in part] for part in parts)
    images = {"train": image_folders.of_synsets(tree, "train", class_of), "val": val, "test": test}
    sizes = {split: len(of_split) for split, of_split in images.items()}
    balance = _choose(images, tree.path, class_of, names, dog_share, limits or {}, seed)
    w = hyperplane(seed)
    splits = {split: _rows(images[split], class_of, w, seed, k) for k, split in enumerate(images)}
    sources = {split: [image.source for image in of_split] for split, of_split in images.items()}
    encode_files(sources, work, size=size, channels=3, workers=workers, progress=progress)
    columns: dict[str, dict[str, Any]] = {
        **{name: {"view": "S", "kind": "continuous", "why": "see structured"} for name in COLUMNS},
        "wnid": {"view": None, "kind": "nominal", "why": f"{'digit' if digits else 'synset'} of the image"},
        "file": {"view": None, "kind": "text", "why": "where the image is from"},
        **SWITCHED,
    }
    index = {INDEX: sha256(root / INDEX)} if (root / INDEX).is_file() else {}
    views, how = {"S": list(COLUMNS)}, "shorter side scaled to the size, centre cropped"
    halves = "validation folder, since the paper had no test set beside it"
    halves = "images that are not for training" if digits else halves
    card = describe(
        splits,
        views,
        names,
        dataset=dataset,
        profile=profile,
        seed=seed,
        columns=columns,
        sources={tree.path.name: tree.digest(), **index},
        images=image_store.entry(size, 3, encoding=encoding(size), how=how),
        images_from="scikit-learn's handwritten digits" if digits else f"ImageNet; groups: {origin}",
        synsets=groups,
        halves=f"val and test are halves of the {halves}",
        structured={"rule": "w·x > 0 in class 0, < 0 in class 1", "w": w.tolist()},
        noise={"rate": NOISE, "why": "labels of each split switched at random, after x_S was drawn"},
        rows={"found": sizes, "taken": {split: len(frame) for split, frame in splits.items()}},
        balance=balance,
    )
    return Prepared(splits, views, names, card, images=Path(work))


def _choose(
    images: dict[str, list[LabelledImage]],
    place: Path,
    class_of: Mapping[str, int],
    names: Sequence[str],
    dog_share: float | None,
    limits: Mapping[str, int],
    seed: int,
) -> Any:
    """Leave out images by the share of class 0 and the limits; return the card's entry on that share, too.

    Raises `UsboostError` if a class is then without images, the share is none, or a limit is of no split.
    """
    if dog_share is not None and not 0 < dog_share < 1:
        raise UsboostError(f"dog_share is {dog_share}, but must be between 0 and 1")
    if unknown := [split for split in limits if split not in images]:
        raise UsboostError(f"limits names {unknown[0]!r}, but the splits are {', '.join(images)}")
    balance: dict[str, Any] = {"share": dog_share, "found": {}, "kept": {}}
    for k, (split, of_split) in enumerate(images.items()):
        if dog_share is not None:
            cut = balanced(of_split, class_of, dog_share, stream(seed, 5, k))
            for name, some in (("found", of_split), ("kept", cut)):
                counts = np.bincount([class_of[image.wnid] for image in some], minlength=2)
                balance[name][split] = dict(zip(names, counts.tolist(), strict=True))
            of_split = cut
        rows = stratified_sample([image.wnid for image in of_split], limits.get(split), stream(seed, 1, k))
        images[split] = [of_split[row] for row in rows]
        if (classes := {class_of[image.wnid] for image in images[split]}) != {0, 1}:
            raise UsboostError(f"{place}: split {split!r} has images of {len(classes)} classes, not two")
    return balance if dog_share is not None else "as found: no class was cut to a share"


def _rows(
    images: Sequence[LabelledImage], class_of: Mapping[str, int], w: np.ndarray, seed: int, k: int
) -> pd.DataFrame:
    """Return the rows of the k-th split's images: the numbers of S, synset, file and labels."""
    clean = np.array([class_of[image.wnid] for image in images])
    about = {
        "wnid": pd.Categorical([image.wnid for image in images]),
        "file": [image.file for image in images],
        LABEL: switch_labels(clean, NOISE, n_classes=2, seed=stream(seed, 3, k)).astype(np.int8),
        CLEAN: clean.astype(np.int8),
    }
    numbers = pd.DataFrame(structured(clean, w, stream(seed, 2, k)), columns=list(COLUMNS), copy=False)
    return pd.concat([numbers, pd.DataFrame(about)], axis=1)


def balanced(
    images: Sequence[LabelledImage], class_of: Mapping[str, int], share: float, seed: int
) -> list[LabelledImage]:
    """Take images, in their order, of which class 0 has a share.

    All of them if it is within a hundredth of the share already; else those of the class that has too many
    are a random sample with the shares of its synsets. `class_of`: class 0 or 1 of each synset. `share`: in
    (0, 1).
    """
    codes = np.array([class_of[image.wnid] for image in images], dtype=int)
    counts = np.bincount(codes, minlength=2)
    if not counts.all() or abs(counts[0] / len(codes) - share) <= _SHARE_AS_IT_IS:
        return list(images)
    larger = int(counts[0] < share * len(codes))  # the class that has more than its share
    rest = (1 - share) / share if larger else share / (1 - share)
    among = np.flatnonzero(codes == larger)
    wanted = max(1, round(rest * counts[1 - larger]))
    chosen = among[stratified_sample([images[k].wnid for k in among.tolist()], wanted, seed)]
    return [images[k] for k in np.union1d(np.flatnonzero(codes != larger), chosen).tolist()]


def hyperplane(seed: int) -> np.ndarray:
    """Draw the fixed w ~ N(0, I), float64 of shape (500,)."""
    return np.random.default_rng(stream(seed, 4)).standard_normal(NUMBERS)


def structured(y: ArrayLike, w: np.ndarray, seed: int) -> np.ndarray:
    """Draw numbers on the right side of the plane: x ~ N(0, I), its sign flipped when it is on the other.

    Returns float32 (n, p), with wᵀx > 0 where y is 0 and wᵀx < 0 where y is 1, never 0; w is float64 (p,).
    """

    def products(x: np.ndarray) -> np.ndarray:
        """Return wᵀx of each row in float64, a block at a time."""
        return np.concatenate([x[k : k + 8192].astype(np.float64) @ w for k in range(0, len(x), 8192)])

    side = np.where(np.asarray(y) == 0, 1, -1).astype(np.float32)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((len(side), len(w)), dtype=np.float32)
    along = products(x)
    while (near := np.abs(along) < _NEAR).any():
        x[near] = rng.standard_normal((int(near.sum()), len(w)), dtype=np.float32)
        along[near] = products(x[near])
    x *= (np.sign(along).astype(np.float32) * side)[:, None]
    return x


def write_demo(folder: Path, *, rows_train: int, rows_test: int, seed: int) -> None:
    """Write a small stand-in for Tiny ImageNet, in its form: `DIGITS_FILE` and ``index.csv``.

    The images are scikit-learn's digits 0..9, which are the synsets n90000000..n90000009. There are 1797 of
    them: when more are asked for, all are used, in the same proportion. The validation folder has twice
    `rows_test`. Equal arguments write equal bytes. Raises UsboostError if fewer than 20 images of a split are
    asked for, which would leave out digits.
    """
    if min(rows_train, rows_test) < 20:
        raise UsboostError(f"rows_train {rows_train} and rows_test {rows_test} must be 20 or more")
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    share = min(1.0, len(digits) / (rows_train + 2 * rows_test))
    n_train, n_rest = int(rows_train * share), int(2 * rows_test * share)
    order = stratified_order(digits, seed)[: n_train + n_rest].tolist()

    def jpeg(values: np.ndarray) -> bytes:
        """Return a digit's 64 values 0..16 as a grey JPEG."""
        pixels = np.kron(np.rint(values.reshape(8, 8) * 255 / 16), np.ones((4, 4))).astype(np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "JPEG", quality=95)
        return out.getvalue()

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files, lines = dict[str, bytes](), []
    for place, k in enumerate(order):
        wnid = f"n9000000{digits[k]}"
        if place < n_train:
            files[f"train/{wnid}/images/{wnid}_{k}.JPEG"] = jpeg(images[k])
        else:
            files[f"val/images/val_{k}.JPEG"] = jpeg(images[k])
            lines.append(f"val_{k}.JPEG\t{wnid}\t0\t0\t{SIDE - 1}\t{SIDE - 1}\n")
    with zipfile.ZipFile(folder / DIGITS_FILE, "w", zipfile.ZIP_STORED) as archive:
        for path, data in {**files, f"val/{ANNOTATIONS}": "".join(lines).encode()}.items():
            # a ZipInfo of its own has a fixed date, so that equal arguments write equal bytes
            archive.writestr(zipfile.ZipInfo(f"digits/{path}"), data)
    low, high = DIGITS
    rows = [(f"n9000000{k}", low if k < 5 else high, f"digit {k}") for k in range(10)]
    index = pd.DataFrame(rows, columns=["wnid", "group", "class_name"])
    index.to_csv(folder / INDEX, index=False, lineterminator="\n")

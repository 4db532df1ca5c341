"""MI: dogs against other animals of ImageNet, with 500 made numbers for each image (US section 4.1).

Class 0 are the dogs; class 1 the felines, primates, reptiles and birds. The numbers x_S of an image are
random but for wᵀx_S > 0 in class 0 and wᵀx_S < 0 in class 1, for one fixed w. Then 9 % of the labels of
each split are switched, and the clean ones kept as the column `CLEAN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from usboost.data.progress import Progress
from usboost.datasets.covertype.prepare import NOISE
from usboost.datasets.files.sampling import stratified_parts, stratified_sample, stream, switch_labels
from usboost.datasets.files.sources import RemoteFile, sha256
from usboost.datasets.imagenet.image_tree import open_tree
from usboost.datasets.imagenet.layout import INDEX, LabelledImage, animals, side, training, validation
from usboost.datasets.prepared import image_store
from usboost.datasets.prepared.image_encoding import encode_files, encoding
from usboost.datasets.prepared.store import CLEAN, LABEL, Prepared, describe
from usboost.errors import UsboostError

SOURCE = "tiny_imagenet_200"

FILES = (RemoteFile("tiny-imagenet-200.zip", "http://cs231n.stanford.edu/tiny-imagenet-200.zip"),)
"""ILSVRC2012 itself is not to be had without an account: its folder is a user's own."""

GROUPS = {"dog": 0, "feline": 1, "primate": 1, "reptile": 1, "bird": 1}
"""The class of each group of synsets."""

CLASSES = ("dog", "feline, primate, reptile or bird")

DIGITS = {"digit 0 to 4": 0, "digit 5 to 9": 1}
"""The groups of the demo's images (see `imagenet_demo`), which stand in for the animals."""

NUMBERS = 500
"""How many numbers x_S has."""

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
    limits: Mapping[str, int] | None = None,
    work: Path,
    workers: int = 1,
    progress: Progress | None = None,
) -> Prepared:
    """Make MI from ILSVRC2012 or Tiny ImageNet.

    The training folder is the training split. The paper had no test set beside the validation folder; here
    one half of it, chosen at random within each synset, is the validation split, the other the test split.
    The paper's dogs are 47 % of the images. ILSVRC2012's are that by themselves, Tiny ImageNet's three in
    ten: `dog_share` then leaves out images of the larger class.

    Parameters
    ----------
    raw : folder with ``train/<wnid>/`` and ``val/``, or Tiny ImageNet's zip, or a folder that holds it; see
        `imagenet_layout.animals` and `imagenet_layout.validation` for what else is needed.
    seed : of the halves, the numbers, the switched labels and the rows taken, each from its own stream.
    profile : "demo" or "paper"; only noted in the card.
    size : height and width of the images in pixels; by default the source's own, see `layout.side`.
    dog_share : the share of class 0 in each split. A split that is over a hundredth away from it loses rows
        of the class that it has too many of, at random with its synsets' shares. By default all are taken.
    limits : how many of these rows of a split to take at random, with the synsets' shares; all by default.
    work : folder for the shards of images; an interrupted preparation resumes there.
    workers : processes that decode and encode images.
    progress : called with (images done, images in all).

    Returns
    -------
    The splits train, val and test with the columns s000..s499 (float32), ``wnid``, ``file``, `LABEL` and
    `CLEAN`, in the order of synset and name.

    Raises
    ------
    UsboostError
        If the synsets' groups or the validation labels are not known, a class has no images, the share is
        not between 0 and 1, or an image cannot be read.
    """
    if dog_share is not None and not 0 < dog_share < 1:
        raise UsboostError(f"dog_share is {dog_share}, but must be between 0 and 1")
    raw = Path(raw)
    tree = open_tree(raw)
    size = size or side(tree)
    beside = raw if raw.is_dir() else raw.parent
    groups, origin = animals(tree, beside)
    class_of, digits = _classes(groups, tree.path)

    images = {"train": training(tree, class_of), **_halves(validation(tree, beside, class_of), seed)}
    found = {split: len(of_split) for split, of_split in images.items()}
    names = list(DIGITS) if digits else list(CLASSES)
    images, balance = _taken(images, class_of, names, dog_share, limits or {}, seed)
    for split, of_split in images.items():
        classes = {class_of[image.wnid] for image in of_split}
        if classes != {0, 1}:
            raise UsboostError(f"{tree.path}: split {split!r} has images of {len(classes)} classes, not two")

    w = hyperplane(seed)
    splits = {
        split: _frame(of_split, class_of, w, stream(seed, 2, k), stream(seed, 3, k))
        for k, (split, of_split) in enumerate(images.items())
    }
    sources = {split: [image.source for image in of_split] for split, of_split in images.items()}
    encode_files(sources, work, size=size, channels=3, workers=workers, progress=progress)

    views = {"S": list(COLUMNS)}
    index = {INDEX: sha256(beside / INDEX)} if (beside / INDEX).is_file() else {}
    card = describe(
        splits,
        views,
        names,
        dataset="mi",
        profile=profile,
        seed=seed,
        columns=_columns(),
        sources={tree.path.name: tree.digest(), **index},
        images=image_store.entry(
            size, 3, encoding=encoding(size), how="shorter side scaled to the size, centre cropped"
        ),
        images_from="scikit-learn digits stand in for ImageNet" if digits else f"ImageNet; groups: {origin}",
        synsets=groups,
        halves="val and test are halves of the validation folder, since the paper had no test set beside it",
        structured={"rule": "w·x > 0 in class 0, < 0 in class 1", "w": w.tolist()},
        noise={"rate": NOISE, "why": "labels of each split switched at random, after x_S was drawn"},
        rows={"found": found, "taken": {split: len(frame) for split, frame in splits.items()}},
        balance=balance if dog_share is not None else "as found: no class was cut to a share",
    )
    return Prepared(splits, views, names, card, images=Path(work))


def _halves(held: Sequence[LabelledImage], seed: int) -> dict[str, list[LabelledImage]]:
    """The validation folder as validation and test split, each synset in halves."""
    halves = stratified_parts([image.wnid for image in held], (0.5, 0.5), stream(seed, 0))
    return {split: [held[row] for row in rows] for split, rows in zip(("val", "test"), halves)}


def _taken(
    images: Mapping[str, list[LabelledImage]],
    class_of: Mapping[str, int],
    names: list[str],
    dog_share: float | None,
    limits: Mapping[str, int],
    seed: int,
) -> tuple[dict[str, list[LabelledImage]], dict[str, Any]]:
    """The images of each split, with the share of dogs and as many as asked; the share for the card."""
    if unknown := [split for split in limits if split not in images]:
        raise UsboostError(f"limits names {unknown[0]!r}, but the splits are {', '.join(images)}")
    taken, balance = dict[str, list[LabelledImage]](), dict[str, Any](share=dog_share, found={}, kept={})
    for k, (split, of_split) in enumerate(images.items()):
        if dog_share is not None:
            balance["found"][split] = _counts(of_split, class_of, names)
            of_split = balanced(of_split, class_of, dog_share, stream(seed, 5, k))
            balance["kept"][split] = _counts(of_split, class_of, names)
        rows = stratified_sample([p.wnid for p in of_split], limits.get(split), stream(seed, 1, k))
        taken[split] = [of_split[row] for row in rows]
    return taken, balance


def _columns() -> dict[str, dict[str, Any]]:
    """What the card says of each column."""
    return {
        **{name: {"view": "S", "kind": "continuous", "why": "see structured"} for name in COLUMNS},
        "wnid": {"view": None, "kind": "nominal", "why": "synset of the image"},
        "file": {"view": None, "kind": "text", "why": "where the image is from"},
        LABEL: {"view": None, "kind": "label", "why": f"what is predicted; {NOISE:.0%} switched"},
        CLEAN: {"view": None, "kind": "label", "why": "the class before any label was switched"},
    }


def balanced(
    images: Sequence[LabelledImage], class_of: Mapping[str, int], share: float, seed: int
) -> list[LabelledImage]:
    """The images, in their order, of which class 0 has a share.

    All of them if it is within a hundredth of the share already; else those of the class that has too many
    are a random sample with the shares of its synsets.

    Parameters
    ----------
    class_of : class 0 or 1 of each synset.
    share : in (0, 1).
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


def _counts(images: Sequence[LabelledImage], class_of: Mapping[str, int], names: list[str]) -> dict[str, int]:
    counts = np.bincount([class_of[image.wnid] for image in images], minlength=2)
    return dict(zip(names, counts.tolist(), strict=True))


def hyperplane(seed: int) -> np.ndarray:
    """The fixed w ~ N(0, I), float64 of shape (500,)."""
    return np.random.default_rng(stream(seed, 4)).standard_normal(NUMBERS)


def structured(y: ArrayLike, w: np.ndarray, seed: int) -> np.ndarray:
    """Numbers on the right side of the plane: x ~ N(0, I), its sign flipped when it is on the other.

    Parameters
    ----------
    y : classes 0 or 1 of shape (n,).
    w : float64 of shape (p,).

    Returns
    -------
    float32 array of shape (n, p), with wᵀx > 0 where y is 0 and wᵀx < 0 where y is 1, never 0.
    """
    side = np.where(np.asarray(y) == 0, 1, -1).astype(np.float32)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((len(side), len(w)), dtype=np.float32)
    products = _products(x, w)
    while (near := np.abs(products) < _NEAR).any():
        x[near] = rng.standard_normal((int(near.sum()), len(w)), dtype=np.float32)
        products[near] = _products(x[near], w)
    x *= (np.sign(products).astype(np.float32) * side)[:, None]
    return x


def _products(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """wᵀx of each row in float64, a block at a time."""
    return np.concatenate([x[k : k + 8192].astype(np.float64) @ w for k in range(0, len(x), 8192)])


def _classes(groups: Mapping[str, str], path: Path) -> tuple[dict[str, int], bool]:
    """The class of each synset in a class, and whether they are the demo's digits."""
    digits = any(group in DIGITS for group in groups.values())
    codes = DIGITS if digits else GROUPS
    class_of = {wnid: codes[group] for wnid, group in groups.items() if group in codes}
    for code, name in enumerate(DIGITS if digits else CLASSES):
        if code not in class_of.values():
            raise UsboostError(f"{path} has no training folder of a {name}; both classes are needed")
    return class_of, digits


def _frame(
    images: list[LabelledImage], class_of: Mapping[str, int], w: np.ndarray, seed_x: int, seed_noise: int
) -> pd.DataFrame:
    clean = np.array([class_of[image.wnid] for image in images])
    frame = pd.DataFrame(structured(clean, w, seed_x), columns=list(COLUMNS), copy=False)
    wnids = pd.Categorical([image.wnid for image in images])
    rest = pd.DataFrame(
        {
            "wnid": wnids,
            "file": [image.file for image in images],
            LABEL: switch_labels(clean, NOISE, n_classes=2, seed=seed_noise).astype(np.int8),
            CLEAN: clean.astype(np.int8),
        }
    )
    return pd.concat([frame, rest], axis=1)

"""CT: Covertype's three largest classes, an image of drawn shapes for each row (US section 4.1).

The image is drawn for the clean class; then 9 % of the labels of each split are switched, and the clean
ones kept as the column `CLEAN`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usboost.data.progress import Progress
from usboost.datasets.covertype import raw as covertype
from usboost.datasets.covertype import shapes
from usboost.datasets.files.sampling import stratified_sample, stream, switch_labels
from usboost.datasets.files.sources import RemoteFile, sha256
from usboost.datasets.prepared import image_store
from usboost.datasets.prepared.store import CLEAN, LABEL, Prepared, describe
from usboost.errors import UsboostError

SOURCE = covertype.SOURCE

FILES = (
    RemoteFile(
        "covtype.data.gz", "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz"
    ),
)

SIZE = 128
"""Height and width of the paper's images in pixels."""

NOISE = 0.09
"""Share of the labels switched in each split."""


def write_demo(folder: Path, *, rows_train: int, rows_test: int, seed: int) -> None:
    """Write made-up cells as ``covtype.data``; about 91 % of them are of the three largest types."""
    covertype.write_demo(folder, rows_train + rows_test, seed)


def prepare(
    raw: Path,
    *,
    seed: int,
    profile: str,
    rows: int | None = None,
    image_size: int = SIZE,
    work: Path,
    workers: int = 1,
    progress: Progress | None = None,
) -> Prepared:
    """Make CT from the raw file.

    S holds the file's 54 columns, as the paper's: the 10 numbers, and 44 indicators of the wilderness area
    and the soil type.

    Parameters
    ----------
    raw : ``covtype.data``, gzipped or not, or a folder that holds it (or ``covtype.data.gz``).
    seed : of the rows, the splits, the images and the switched labels, each from its own stream.
    profile : "demo" or "paper"; only noted in the card.
    rows : how many rows of the three classes to take at random, with the classes' shares; all when None.
    image_size : height and width of the images in pixels, at least 24; the paper's are 128.
    work : folder for the shards of images. What is there is used again when it fits and replaced when
        not, so an interrupted preparation resumes. `store.write` links them from there.
    workers, progress : of `image_encoding.write_shards`.

    Returns
    -------
    The splits train, val and test (80/10/10) with the columns of S, `LABEL` and `CLEAN`.

    Raises
    ------
    UsboostError
        As `covertype.read`, `covertype.three_largest` and `shapes.write`, or if there are under 10 rows.
    """
    path = _file(Path(raw))
    frame, labels = covertype.read(path)
    frame, y, kept = covertype.three_largest(frame, labels)
    chosen = stratified_sample(y, rows, stream(seed, 0))
    table, y = frame.iloc[chosen].astype(np.float32).reset_index(drop=True), y[chosen]
    classes = [covertype.CLASSES[label - 1] for label in kept]

    splits, clean = {}, {}
    for k, (split, of_split) in enumerate(covertype.split_80_10_10(len(y), stream(seed, 1)).items()):
        clean[split] = y[of_split]
        noisy = switch_labels(clean[split], NOISE, seed=stream(seed, 2, k))
        splits[split] = table.iloc[of_split].reset_index(drop=True)
        splits[split][LABEL] = noisy.astype(np.int8)
        splits[split][CLEAN] = clean[split].astype(np.int8)
    drawn = {split: (stream(seed, 3, k), codes) for k, (split, codes) in enumerate(clean.items())}
    shapes.write(drawn, work, size=image_size, workers=workers, progress=progress)

    views = {"S": list(table)}
    card = describe(
        splits,
        views,
        classes,
        dataset="ct",
        profile=profile,
        seed=seed,
        columns=_columns(views["S"]),
        sources={path.name: sha256(path)},
        images=image_store.entry(
            image_size,
            1,
            encoding="PNG",
            images_from="shapes drawn with scikit-image for the clean class: mixed, triangles, rectangles",
        ),
        noise={"rate": NOISE, "why": "labels switched at random in each split, after the images were drawn"},
        rows={"three largest classes": len(frame), "taken": len(y)},
    )
    return Prepared(splits, views, classes, card, images=Path(work))


def _columns(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the card says of each column."""
    numeric = set(covertype.NUMERIC)
    return {
        **{
            name: {
                "view": "S",
                "kind": "continuous",
                "why": f"{'number' if name in numeric else 'indicator, 0 or 1,'} of the raw file",
            }
            for name in names
        },
        LABEL: {"view": None, "kind": "label", "why": f"what is predicted; {NOISE:.0%} switched"},
        CLEAN: {"view": None, "kind": "label", "why": "the class before any label was switched"},
    }


def _file(raw: Path) -> Path:
    if not raw.is_dir():
        return raw
    for name in (covertype.FILE, f"{covertype.FILE}.gz"):
        if (raw / name).is_file():
            return raw / name
    raise UsboostError(f"{raw} holds neither {covertype.FILE} nor {covertype.FILE}.gz; put one of them there")

"""Forest Covertype: the raw file, and the dataset CT made of it (US section 4.1).

A line is a 30 m x 30 m cell: 10 numbers, 4 wilderness and 40 soil indicators, the cover type 1..7. CT keeps
the three largest types and draws an image for each row's clean class (see `shapes`). Only then it switches
9 % of the labels of each split, so that a switched row's image still shows its clean class, which is kept
as the column `CLEAN`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike

from usboost.data.progress import Progress
from usboost.datasets import image_store, shapes
from usboost.datasets.sampling import stratified_sample, switch_labels
from usboost.datasets.sources import RemoteFile, digests, is_finite, lines_of, parse_csv, read_demo
from usboost.datasets.store import CLEAN, LABEL, Prepared, describe
from usboost.errors import UsboostError
from usboost.evaluation.folds import stream
from usboost.files import write_atomically

SOURCE = "covertype"
FILE = "covtype.data"

_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz"
FILES = (RemoteFile("covtype.data.gz", _URL),)

SIZE = 128
"""Height and width of the paper's images in pixels."""

NOISE = 0.09
"""Share of the labels switched in each split."""

SWITCHED: dict[str, dict[str, Any]] = {
    LABEL: {"view": None, "kind": "label", "why": f"what is predicted; {NOISE:.0%} switched"},
    CLEAN: {"view": None, "kind": "label", "why": "the class before any label was switched"},
}
"""The columns of labels in a card."""

_NAMES = "Spruce/Fir, Lodgepole Pine, Ponderosa Pine, Cottonwood/Willow, Aspen, Douglas-fir, Krummholz"
CLASSES = tuple(_NAMES.split(", "))
"""Names of the raw labels 1..7."""

NUMERIC = (
    *("elevation", "aspect", "slope", "horizontal_distance_to_hydrology", "vertical_distance_to_hydrology"),
    *("horizontal_distance_to_roadways", "hillshade_9am", "hillshade_noon", "hillshade_3pm"),
    "horizontal_distance_to_fire_points",
)
WILDERNESS = tuple(f"wilderness_area_{k}" for k in range(1, 5))
SOIL = tuple(f"soil_type_{k}" for k in range(1, 41))
FEATURES = (*NUMERIC, *WILDERNESS, *SOIL)
"""The 54 columns in the file's order, named as its publisher names them, in lower case."""

DEMO = Path(__file__).resolve().parents[2] / "data" / "covertype.parquet"
"""Some thousand rows of the three largest types; in a checkout."""


def read(path: Path | str) -> tuple[pd.DataFrame, np.ndarray]:
    """Read ``covtype.data``, gzipped or not.

    Raises UsboostError if the file is missing, empty or a damaged gzip file, a line has not 55 fields, a
    field is no finite number, an indicator not 0 or 1, a row not in one area and soil, or a label unknown.

    Returns a frame of shape (n, 54) with the columns `FEATURES`, the 10 numbers as float32 and the 44
    indicators as int8, and the raw labels 1..7 as int64 of shape (n,).
    """
    path = Path(path)
    raw = lines_of(path)
    types = {name: pa.float32() if name in NUMERIC else pa.int8() for name in (*FEATURES, "cover_type")}
    try:
        table = parse_csv(raw, types)
    except pa.ArrowInvalid as error:
        raise _complaint(path, raw, str(error)) from error
    frame = pd.DataFrame({name: table[name].to_numpy() for name in FEATURES})
    labels = table["cover_type"].to_numpy().astype(np.int64)
    if not np.isfinite(frame[list(NUMERIC)].to_numpy()).all():
        raise _complaint(path, raw, "a number is not finite")
    if labels.min() < 1 or labels.max() > len(CLASSES):
        raise _complaint(path, raw, "a label is unknown")
    for block in (WILDERNESS, SOIL):
        values = frame[list(block)].to_numpy()
        wrong = (values.sum(axis=1) != 1) | (values.min(axis=1) < 0) | (values.max(axis=1) > 1)
        if wrong.any():
            raise UsboostError(
                f"{path}, line {wrong.argmax() + 1}: exactly one of {block[0]} .. {block[-1]} must be 1, "
                "all others 0"
            )
    return frame, labels


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
    and the soil type. Returns the splits train, val and test (80/10/10) with the columns of S, `LABEL` and
    `CLEAN`. Raises UsboostError as `read`, `three_largest`, `shapes.write`, or without a file or 10 rows.

    Parameters
    ----------
    raw : ``covtype.data``, gzipped or not, or a folder that holds it (or ``covtype.data.gz``).
    seed : of the rows, the splits, the images and the switched labels, each from its own stream.
    profile : "demo" or "paper"; only noted in the card.
    rows : how many rows of the three classes to take at random, with the classes' shares; all when None.
    image_size : height and width of the images in pixels, at least 24; the paper's are 128.
    work : folder for the shards of images, where an interrupted preparation resumes.
    workers, progress : of `image_encoding.write_shards`.
    """
    path = Path(raw)
    if path.is_dir():
        files = [path / name for name in (FILE, f"{FILE}.gz") if (path / name).is_file()]
        if not files:
            raise UsboostError(f"{raw} holds neither {FILE} nor {FILE}.gz; put one of them there")
        path = files[0]
    frame, labels = read(path)
    frame, y, raw_labels = three_largest(frame, labels)
    chosen = stratified_sample(y, rows, stream(seed, 0))
    table, y = frame.iloc[chosen].astype(np.float32).reset_index(drop=True), y[chosen]
    classes = [CLASSES[label - 1] for label in raw_labels]

    splits, clean = {}, {}
    for k, (split, of_split) in enumerate(split_80_10_10(len(y), stream(seed, 1)).items()):
        clean[split] = y[of_split]
        noisy = switch_labels(clean[split], NOISE, seed=stream(seed, 2, k))
        splits[split] = table.iloc[of_split].reset_index(drop=True)
        splits[split][LABEL] = noisy.astype(np.int8)
        splits[split][CLEAN] = clean[split].astype(np.int8)
    drawn = {split: (stream(seed, 3, k), codes) for k, (split, codes) in enumerate(clean.items())}
    shapes.write(drawn, work, size=image_size, workers=workers, progress=progress)

    views = {"S": list(table)}
    columns: dict[str, dict[str, Any]] = {}
    for name in table:
        what = "number" if name in NUMERIC else "indicator, 0 or 1,"
        columns[name] = {"view": "S", "kind": "continuous", "why": f"{what} of the raw file"}
    columns |= SWITCHED
    card = describe(
        splits,
        views,
        classes,
        dataset="ct",
        profile=profile,
        seed=seed,
        columns=columns,
        sources=digests([path], DEMO if profile == "demo" else None),
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


def three_largest(frame: pd.DataFrame, labels: ArrayLike) -> tuple[pd.DataFrame, np.ndarray, tuple[int, ...]]:
    """Take the rows of the three most frequent cover types, labelled 0, 1, 2 in the raw labels' order.

    The paper does not say which type is which class. The raw order is what ``label - 1`` gives, and it does
    not depend on a sample's counts: on the full file 0 is Spruce/Fir (raw 1, 211,840 rows, images of mixed
    shapes), 1 Lodgepole Pine (2, 283,301, triangles) and 2 Ponderosa Pine (3, 35,754, rectangles). Of equally
    frequent ones the smaller is kept.

    Returns the rows kept, in their order and numbered anew; their int64 labels 0, 1, 2; the three raw labels.
    Raises UsboostError if there are fewer than three classes, or the lengths differ.
    """
    labels = np.asarray(labels)
    if len(labels) != len(frame):
        raise UsboostError(f"the frame has {len(frame)} rows but there are {len(labels)} labels")
    values, counts = np.unique(labels, return_counts=True)
    if len(values) < 3:
        raise UsboostError(f"the labels hold {len(values)} classes, but three are needed")
    largest = np.sort(values[np.argsort(-counts, kind="stable")[:3]])
    rows = np.isin(labels, largest)
    return frame[rows].reset_index(drop=True), np.searchsorted(largest, labels[rows]), tuple(largest.tolist())


def split_80_10_10(n: int, seed: int) -> dict[str, np.ndarray]:
    """Draw the rows of the splits: ``train`` has ⌊0.8 n⌋, ``val`` ⌊0.1 n⌋, ``test`` the rest, each in order.

    On the full file's 530,895 rows: 424,716, 53,089 and 53,090.
    """
    if n < 10:
        raise UsboostError(f"{n} rows cannot be split 80/10/10; 10 or more are needed")
    order = np.random.default_rng([seed, 0]).permutation(n)
    train, val, test = map(np.sort, np.split(order, [n * 8 // 10, n * 8 // 10 + n // 10]))
    return {"train": train, "val": val, "test": test}


def write_demo(folder: Path | str, *, rows_train: int, rows_test: int, seed: int) -> Path:
    """Write a ``covtype.data`` with at most ``rows_train + rows_test`` real rows, and the types' shares.

    Equal arguments write equal bytes. Returns the file's path. Raises UsboostError without the small file.
    """
    frame = read_demo(DEMO)
    drawn = frame.iloc[stratified_sample(frame["cover_type"], rows_train + rows_test, seed)]
    path = Path(folder) / FILE
    write_atomically(path, drawn.to_csv(index=False, header=False).encode())
    return path


def _complaint(path: Path, raw: bytes, otherwise: str) -> UsboostError:
    """Name what is wrong with the first wrong line, the slow way."""
    most = float(np.finfo(np.float32).max)
    for number, line in enumerate(raw.split(b"\n"), start=1):
        fields = line.rstrip(b"\r").decode("utf-8", "replace").split(",")
        if len(fields) != len(FEATURES) + 1:
            return UsboostError(f"{path}, line {number}: {len(fields)} fields instead of {len(FEATURES) + 1}")
        for name, field in zip(FEATURES, fields):
            if name in NUMERIC and not is_finite(field, most):
                return UsboostError(f"{path}, line {number}: {name} must be a number, not {field!r}")
            if name not in NUMERIC and field not in ("0", "1"):
                return UsboostError(f"{path}, line {number}: {name} must be 0 or 1, not {field!r}")
        if fields[-1] not in ("1", "2", "3", "4", "5", "6", "7"):
            return UsboostError(f"{path}, line {number}: the label must be 1 to 7, not {fields[-1]!r}")
    return UsboostError(f"{path} cannot be read as a Covertype file: {otherwise}")

"""Forest Covertype: the raw file, and what the CT dataset makes of it (US section 4.1).

A line is a 30 m x 30 m cell: 10 numbers, 4 wilderness and 40 soil indicators, the cover type 1..7. CT keeps
the three largest types, draws an image for each row's clean class (see `shapes`) and
switches 9 % of the labels only then, so that a switched row's image still shows its clean class.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from numpy.typing import ArrayLike

from usboost.datasets.files.sources import lines_of
from usboost.errors import UsboostError
from usboost.files import write_atomically

SOURCE = "covertype"
FILE = "covtype.data"

CLASSES = (
    *("Spruce/Fir", "Lodgepole Pine", "Ponderosa Pine", "Cottonwood/Willow"),
    *("Aspen", "Douglas-fir", "Krummholz"),
)
"""Names of the raw labels 1..7."""

NUMERIC = (
    *("elevation", "aspect", "slope", "horizontal_distance_to_hydrology", "vertical_distance_to_hydrology"),
    *("horizontal_distance_to_roadways", "hillshade_9am", "hillshade_noon", "hillshade_3pm"),
    "horizontal_distance_to_fire_points",
)
WILDERNESS_AREAS = ("Rawah", "Neota", "Comanche Peak", "Cache la Poudre")
WILDERNESS = tuple(f"wilderness_area_{k}" for k in range(1, 5))
SOIL = tuple(f"soil_type_{k}" for k in range(1, 41))
FEATURES = (*NUMERIC, *WILDERNESS, *SOIL)
"""The 54 columns in the file's order, named as its publisher names them, in lower case."""


def read(path: Path | str) -> tuple[pd.DataFrame, np.ndarray]:
    """Read ``covtype.data``, gzipped or not.

    Raises UsboostError if the file is missing, empty or a damaged gzip file, a line has not 55 fields, a
    field is no finite number, an indicator is not 0 or 1, a row is not in exactly one area and soil, or a
    label is unknown.

    Returns
    -------
    A frame of shape (n, 54) with the columns `FEATURES`, the 10 numbers as float32 and the 44 indicators as
    int8, and the raw labels 1..7 as int64 of shape (n,).
    """
    path = Path(path)
    raw = lines_of(path)
    names = [*FEATURES, "cover_type"]
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(raw),
            read_options=pyarrow.csv.ReadOptions(column_names=names),
            parse_options=pyarrow.csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: pa.float32() if name in NUMERIC else pa.int8() for name in names},
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise _complaint(path, raw, str(error)) from error
    frame = pd.DataFrame({name: table[name].to_numpy() for name in FEATURES})
    labels = table["cover_type"].to_numpy().astype(np.int64)
    if not np.isfinite(frame[list(NUMERIC)].to_numpy()).all():
        raise _complaint(path, raw, "a number is not finite")
    if labels.min() < 1 or labels.max() > len(CLASSES):
        raise _complaint(path, raw, "a label is unknown")
    if (wrong := _not_one_hot(frame)) is not None:
        raise UsboostError(f"{path}, line {wrong[0] + 1}: {wrong[1]}")
    return frame, labels


def three_largest(frame: pd.DataFrame, labels: ArrayLike) -> tuple[pd.DataFrame, np.ndarray, tuple[int, ...]]:
    """The rows of the three most frequent cover types, relabelled 0, 1, 2 in the order of the raw labels.

    The paper does not say which type is which class. The raw order is what ``label - 1`` gives, and it does
    not depend on a sample's counts: on the full file 0 is Spruce/Fir (raw 1, 211,840 rows, images of mixed
    shapes), 1 Lodgepole Pine (2, 283,301, triangles) and 2 Ponderosa Pine (3, 35,754, rectangles).

    ``labels`` are the n rows' raw labels; of equally frequent ones the smaller is kept. Raises UsboostError
    if there are fewer than three classes, or the lengths differ.

    Returns
    -------
    The rows kept, in their order and numbered anew; their int64 labels 0, 1, 2; the three raw labels.
    """
    labels = np.asarray(labels)
    if len(labels) != len(frame):
        raise UsboostError(f"the frame has {len(frame)} rows but there are {len(labels)} labels")
    values, counts = np.unique(labels, return_counts=True)
    if len(values) < 3:
        raise UsboostError(f"the labels hold {len(values)} classes, but three are needed")
    kept = np.sort(values[np.argsort(-counts, kind="stable")[:3]])
    rows = np.isin(labels, kept)
    return frame[rows].reset_index(drop=True), np.searchsorted(kept, labels[rows]), tuple(kept.tolist())


def split_80_10_10(n: int, seed: int) -> dict[str, np.ndarray]:
    """Random rows of the splits: ``train`` has ⌊0.8 n⌋, ``val`` ⌊0.1 n⌋, ``test`` the rest, each in order.

    On the full file's 530,895 rows: 424,716, 53,089 and 53,090.
    """
    if n < 10:
        raise UsboostError(f"{n} rows cannot be split 80/10/10; 10 or more are needed")
    order = np.random.default_rng([seed, 0]).permutation(n)
    train, val, test = map(np.sort, np.split(order, [n * 8 // 10, n * 8 // 10 + n // 10]))
    return {"train": train, "val": val, "test": test}


def fold_onehot(frame: pd.DataFrame) -> pd.DataFrame:
    """The 44 indicators folded to two categorical columns, for what reads categories; CT keeps all 54.

    Raises UsboostError if a column is missing or a row is not in exactly one area and one soil.

    Returns
    -------
    The columns `NUMERIC` unchanged, then ``wilderness_area`` (the names of the four areas) and ``soil_type``
    ("1".."40"), with the rows' index.
    """
    if absent := [name for name in FEATURES if name not in frame]:
        raise UsboostError(f"column {absent[0]!r} is missing; the 54 columns of Covertype are needed")
    folded = frame[list(NUMERIC)].copy()
    if (wrong := _not_one_hot(frame)) is not None:
        raise UsboostError(f"row {wrong[0]}: {wrong[1]}")
    soils = [str(k) for k in range(1, len(SOIL) + 1)]
    for name, block, values in (
        ("wilderness_area", WILDERNESS, WILDERNESS_AREAS),
        ("soil_type", SOIL, soils),
    ):
        codes = frame[list(block)].to_numpy().argmax(axis=1)
        folded[name] = pd.Categorical.from_codes(codes, categories=pd.Index(values, dtype="str"))
    return folded


def write_demo(folder: Path | str, rows: int, seed: int) -> Path:
    """Write a made-up ``covtype.data`` of the real one's form, class shares and, roughly, class means.

    Elevation, wilderness area and soil predict the type well, but not perfectly.
    Equal arguments write equal bytes.

    Returns
    -------
    The path of the file. ``rows`` under 50 raise a UsboostError.
    """
    if rows < 50:
        raise UsboostError(f"rows is {rows}, but a Covertype sample needs 50 or more to hold three classes")
    rng = np.random.default_rng([seed, 2])
    bounds = np.round(np.cumsum(_SHARES) / sum(_SHARES) * rows).astype(int)
    k = rng.permutation(np.repeat(np.arange(len(CLASSES)), np.diff(bounds, prepend=0)))

    elevation = rng.normal(_ELEVATION[k], _SPREAD[k])
    aspect, slope = rng.integers(0, 360, rows), rng.gamma(4, _SLOPE[k] / 4).clip(0, 60)
    water = rng.gamma(1.5, _TO_WATER[k] / 1.5)
    numbers = [
        elevation.clip(1859, 3858),
        aspect,
        slope,
        water,
        water * rng.normal(0.17, 0.2, rows),
        rng.gamma(2, _TO_ROADS[k] / 2),
        *(_hillshade(slope, aspect, *sun) for sun in _SUNS),
        rng.gamma(2, _TO_FIRE[k] / 2),
    ]
    area = (rng.integers(100, size=(rows, 1)) >= np.cumsum(_AREAS, axis=1)[k, :3]).sum(axis=1)
    # The soils are numbered roughly by climatic zone, that is by height.
    soil = np.clip(np.rint(20 + (elevation - 2850) / 40 + rng.normal(0, 4, rows)), 1, 40).astype(int) - 1
    table = np.column_stack(
        [np.rint(numbers).T.astype(int), np.eye(4, dtype=int)[area], np.eye(40, dtype=int)[soil], k + 1]
    )

    path = Path(folder) / FILE
    write_atomically(path, "".join(",".join(map(str, line)) + "\n" for line in table.tolist()).encode())
    return path


# By raw label 1..7. The shares are the full file's rows; the rest is invented to be near its class means.
_SHARES = (211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510)
_ELEVATION = np.array([3128, 2921, 2394, 2224, 2787, 2419, 3362])
_SPREAD = np.array([158, 187, 196, 102, 97, 189, 106])
_SLOPE = np.array([13, 14, 21, 19, 17, 19, 14])
_TO_WATER = np.array([271, 280, 210, 107, 212, 160, 357])
_TO_ROADS = np.array([2615, 2430, 944, 915, 1349, 1037, 2738])
_TO_FIRE = np.array([2010, 2168, 911, 859, 1577, 1056, 2070])
_AREAS = np.array(
    [
        *([50, 9, 41, 0], [52, 3, 44, 1], [0, 0, 40, 60], [0, 0, 0, 100]),
        *([40, 0, 60, 0], [0, 0, 44, 56], [25, 11, 64, 0]),
    ]
)
_SUNS = ((115, 47), (180, 62), (245, 47))  # azimuth and altitude at 9 am, noon, 3 pm


def _hillshade(slope: np.ndarray, aspect: np.ndarray, azimuth: float, altitude: float) -> np.ndarray:
    """Illumination 0..255 of slopes (degrees) that face `aspect`, from a sun at azimuth and altitude."""
    s, h = np.radians(slope), np.radians(altitude)
    facing = np.cos(np.radians(azimuth - aspect))
    return 255 * (np.sin(h) * np.cos(s) + np.cos(h) * np.sin(s) * facing).clip(0, 1)


def _not_one_hot(frame: pd.DataFrame) -> tuple[int, str] | None:
    """The position of the first row that is not in exactly one area and one soil, and what is wrong."""
    for block in (WILDERNESS, SOIL):
        values = frame[list(block)].to_numpy()
        bad = (values.sum(axis=1) != 1) | (values.min(axis=1) < 0) | (values.max(axis=1) > 1)
        if bad.any():
            return int(bad.argmax()), f"exactly one of {block[0]} .. {block[-1]} must be 1, all others 0"
    return None


def _complaint(path: Path, raw: bytes, otherwise: str) -> UsboostError:
    """What is wrong with the first wrong line, found the slow way."""
    for number, line in enumerate(raw.split(b"\n"), start=1):
        fields = line.rstrip(b"\r").decode("utf-8", "replace").split(",")
        if len(fields) != len(FEATURES) + 1:
            return UsboostError(f"{path}, line {number}: {len(fields)} fields instead of {len(FEATURES) + 1}")
        for name, field in zip(FEATURES, fields):
            if name in NUMERIC and not _is_finite(field):
                return UsboostError(f"{path}, line {number}: {name} must be a number, not {field!r}")
            if name not in NUMERIC and field not in ("0", "1"):
                return UsboostError(f"{path}, line {number}: {name} must be 0 or 1, not {field!r}")
        if fields[-1] not in ("1", "2", "3", "4", "5", "6", "7"):
            return UsboostError(f"{path}, line {number}: the label must be 1 to 7, not {fields[-1]!r}")
    return UsboostError(f"{path} cannot be read as a Covertype file: {otherwise}")


def _is_finite(field: str) -> bool:
    try:
        return abs(float(field)) <= float(np.finfo(np.float32).max)
    except ValueError:
        return False

"""Sequences and Iris: what the bundled sets hold, and the raw files' formats read strictly."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from tests.conftest import published, refuses
from usboost.datasets import sequences
from usboost.datasets.sequences import digits_rows, iris, pendigits, read_pendigits, read_ts, ts_split
from usboost.files.arrays import sha256

HEADER = """# a remark
@problemName Little
@timeStamps false
@missing true
@univariate {univariate}
@dimensions {dimensions}
@equalLength false
@classLabel true up down
@data
"""


def ts(path: Path, *lines: str, dimensions: int = 1, drop: str = "", add: str = "") -> Path:
    head = HEADER.format(univariate=str(dimensions == 1).lower(), dimensions=dimensions)
    kept = [line for line in head.splitlines() if not (drop and line.startswith(drop))]
    if add:
        kept.insert(1, add)
    path.write_text("\n".join([*kept, *lines]) + "\n")
    return path


def test_digits_are_rows_of_the_bundled_images_split_by_class() -> None:
    data = digits_rows(seed=3)
    images = load_digits()
    assert (len(data.X_train), len(data.X_test)) == (1257, 540)
    both = {x.tobytes() for part in (data.X_train, data.X_test) for x in part}
    assert both == {x.tobytes() for x in images.images / 16.0}
    np.testing.assert_allclose(np.bincount(data.y_test), 0.3 * np.bincount(images.target), atol=1)
    np.testing.assert_array_equal(digits_rows(seed=3).y_test, data.y_test)
    assert not np.array_equal(digits_rows(seed=4).y_test, data.y_test)
    row = images.images[0] / 16.0
    (where,) = np.flatnonzero([(x == row).all() for x in np.concatenate([data.X_train, data.X_test])])
    assert np.concatenate([data.y_train, data.y_test])[where] == images.target[0]


def test_iris_is_fishers() -> None:
    X, y = iris()
    assert X.shape == (150, 4)
    names, counts = np.unique(y, return_counts=True)
    assert names.tolist() == ["setosa", "versicolor", "virginica"]
    assert counts.tolist() == [50] * 3
    np.testing.assert_array_equal(X[0], [5.1, 3.5, 1.4, 0.2])
    np.testing.assert_allclose(X[y == "setosa"].mean(axis=0), [5.006, 3.428, 1.462, 0.246])


def digits_file(path: Path, n: int = 5) -> Path:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 101, (n, 16)), rng.integers(0, 10, n)])
    path.write_text("".join(",".join(f"{value:3d}" for value in row) + "\n" for row in rows))
    return path


def test_pendigits_are_points_in_order(tmp_path: Path) -> None:
    for name in ("pendigits.tra", "pendigits.tes"):
        digits_file(tmp_path / name)
    literal = np.loadtxt(tmp_path / "pendigits.tra", delimiter=",")
    data = pendigits(tmp_path)
    assert data.X_train.shape == (5, 8, 2)
    for t in range(8):
        np.testing.assert_array_equal(data.X_train[:, t], literal[:, 2 * t : 2 * t + 2])
    np.testing.assert_array_equal(data.y_train, literal[:, 16])
    assert data.y_train.dtype == np.int64


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,2,3", "line 2: 3 fields, not 16 coordinates and a digit"),
        (",".join(["5"] * 18), "line 2: 18 fields"),
        (",".join(["5"] * 16 + ["10"]), "line 2: a coordinate is not 0..100 or the digit not 0..9"),
        (",".join(["101"] + ["5"] * 16), "line 2: a coordinate"),
        (",".join(["-1"] + ["5"] * 16), "line 2: not whole numbers"),
        (",".join(["5.5"] + ["5"] * 16), "line 2: not whole numbers"),
        (",".join(["1_0"] + ["5"] * 16), "line 2: not whole numbers"),
        (",".join([""] + ["5"] * 16), "line 2: not whole numbers"),
    ],
)
def test_broken_pendigits(tmp_path: Path, line: str, said: str) -> None:
    path = digits_file(tmp_path / "pendigits.tra")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], line, *lines[2:]]))
    refuses(rf"pendigits\.tra, {said}", read_pendigits, path)


def test_files_that_are_none(tmp_path: Path) -> None:
    for read in (read_pendigits, read_ts):
        refuses(r"missing.* cannot be read: No such file", read, tmp_path / "missing")
        (tmp_path / "empty").write_text("\n\n")
        refuses(r"empty (holds no line of data|has no @data line)", read, tmp_path / "empty")
        (tmp_path / "binary").write_bytes(b"\xff\xfe\x00@data")
        refuses("binary is not a text file", read, tmp_path / "binary")


@settings(max_examples=30)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    d=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_ts_returns(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(length, d)) for length in lengths]
    labels = rng.choice(["up", "down"], len(parts))
    lines = [
        ":".join([*(",".join(map(repr, map(float, part[:, j]))) for j in range(d)), label])
        for part, label in zip(parts, labels)
    ]
    path = ts(tmp_path_factory.mktemp("ts") / "little.ts", *lines, dimensions=d)
    X, y = read_ts(path)
    assert y.tolist() == labels.tolist()
    assert isinstance(X, np.ndarray) == (len(set(lengths)) == 1)
    for x, part in zip(X, parts):
        np.testing.assert_array_equal(x, part)


def test_missing_values(tmp_path: Path) -> None:
    ends = ts(tmp_path / "ends.ts", "1,2,?,?:up", "1,2,3,4:down")
    ends.write_text(ends.read_text(), encoding="utf-8-sig")  # with a byte-order mark
    X, _ = read_ts(ends)
    assert [x[:, 0].tolist() for x in X] == [[1, 2], [1, 2, 3, 4]]
    gaps = ts(tmp_path / "gaps.ts", "1,?,NaN,4:5,6,?,8:up", "1,2,3,?:1,?,?,?:down", dimensions=2)
    refuses(r"gaps\.ts, line 10: a value is missing before the end", read_ts, gaps)
    refuses("all values are missing", read_ts, ts(tmp_path / "bad.ts", "?,?:up"))
    none = ts(tmp_path / "none.ts", "1,?:up", drop="@missing", add="@missing false")
    refuses("line 10: a value is missing although the header says @missing false", read_ts, none)


@pytest.mark.parametrize(
    ("lines", "change", "said"),
    [
        (["1,2:left"], {}, "line 10: 'left' is not a label that @classLabel lists"),
        (["1,2"], {}, "line 10: '1,2' is not a label"),
        (["up"], {}, "line 10: 0 dimensions, not 1"),
        (["1,2:3,4:up"], {}, "line 10: 2 dimensions, not 1"),
        (["1,2:3,4:up", "1,2:up"], {"dimensions": 2}, "line 11: 1 dimensions, not 2"),
        (["1,2:3:up"], {"dimensions": 2}, r"line 10: the dimensions have different lengths, \[1, 2\]"),
        (["1,x:up"], {}, "line 10: a value is not a number"),
        (["1,,2:up"], {}, "line 10: a value is not a number"),
        (["1,1_0:up"], {}, "line 10: a value is not a number"),
        (["(0,1),(1,2):up"], {}, "line 10: a value is not a number"),
        (["1,inf:up"], {}, "line 10: a value is infinite"),
        ([], {}, "has no data after @data"),
        (["# only a remark"], {}, "has no data after @data"),
        (["1:up"], {"drop": "@data"}, "line 9: a directive .* comes before data"),
        (["1:up"], {"drop": "@timeStamps", "add": "@timeStamps true"}, "has time stamps"),
        (
            ["1:up"],
            {"drop": "@timeStamps", "add": "@timeStamps maybe"},
            "@timestamps must be true or false, not",
        ),
        (["1:up"], {"drop": "@classLabel"}, "has no class labels"),
        (["1:up"], {"drop": "@classLabel", "add": "@classLabel false"}, "has no class labels"),
        (
            ["1:up"],
            {"drop": "@univariate", "add": "@univariate false", "dimensions": 0},
            "@dimensions must be",
        ),
        (
            ["1,2:up", "1:up"],
            {"drop": "@equalLength", "add": "@equalLength true"},
            "line 11: 1 values, not the 2",
        ),
        (
            ["1,2:up"],
            {"drop": "@equalLength", "add": "@equalLength true\n@seriesLength 3"},
            "line 11: 2 values, not the 3",
        ),
    ],
)
def test_broken_ts(tmp_path: Path, lines: list[str], change: dict, said: str) -> None:
    refuses(rf"little\.ts.*{said}", read_ts, ts(tmp_path / "little.ts", *lines, **change))


def test_a_split_of_two_files(tmp_path: Path) -> None:
    ts(tmp_path / "Little_TRAIN.ts", "1,2:up", "3,4:down")
    ts(tmp_path / "Little_TEST.ts", "1,2,3:up")
    data = ts_split(tmp_path, "Little")
    assert data.X_train.shape == (2, 2, 1)
    assert data.X_test.shape == (1, 3, 1)
    ts(tmp_path / "Little_TEST.ts", "1,2:3,4:up", dimensions=2)
    refuses(r"Little_TEST\.ts has 2 dimensions but Little_TRAIN\.ts has 1", ts_split, tmp_path, "Little")


def test_the_published_pendigits() -> None:
    names = [file.name for file in sequences.PENDIGITS_FILES]
    folder = published("pendigits", *names)
    for file in sequences.PENDIGITS_FILES:
        assert sha256(folder / file.name) == file.sha256
    data = pendigits(folder)
    assert data.X_train.shape == (7494, 8, 2)
    assert data.X_test.shape == (3498, 8, 2)
    # the counts per digit that the publisher's description gives
    assert np.bincount(data.y_train).tolist() == [780, 779, 780, 719, 780, 720, 720, 778, 719, 719]
    assert np.bincount(data.y_test).tolist() == [363, 364, 364, 336, 364, 335, 336, 364, 336, 336]


def test_the_published_gunpoint() -> None:
    data = ts_split(published("gunpoint", "GunPoint_TRAIN.ts", "GunPoint_TEST.ts"), "GunPoint")
    assert data.X_train.shape == (50, 150, 1)
    assert data.X_test.shape == (150, 150, 1)
    assert set(data.y_train) == set(data.y_test) == {"1", "2"}
    assert data.X_train[0, 0, 0] == -0.6478854

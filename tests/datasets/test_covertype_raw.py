"""The raw Covertype file read strictly, and the steps from it to CT."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from tests.conftest import refuses
from usboost.datasets import covertype
from usboost.datasets.sampling import switch_labels
from usboost.errors import UsboostError


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return covertype.write_demo(tmp_path, rows_train=300, rows_test=0, seed=5)


def _change(path: Path, line: int, field: int, value: str | None) -> None:
    """Set one field (None: remove it) of one line, both counted from 1."""
    lines = [text.split(",") for text in path.read_text().splitlines()]
    lines[line - 1][field - 1 : field] = [] if value is None else [value]
    path.write_text("".join(",".join(fields) + "\n" for fields in lines))


def test_read_equals_a_literal_reading(raw: Path) -> None:
    lines = [line.split(",") for line in raw.read_text().splitlines()]
    frame, labels = covertype.read(raw)

    assert frame.shape == (300, 54)
    assert list(frame) == list(covertype.FEATURES)
    assert {str(t) for t in frame.dtypes[:10]} == {"float32"}
    assert {str(t) for t in frame.dtypes[10:]} == {"int8"}
    np.testing.assert_array_equal(frame.to_numpy(), np.array([line[:54] for line in lines], dtype=np.float32))
    np.testing.assert_array_equal(labels, [int(line[54]) for line in lines])


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_read_takes_gzip_and_any_line_end(raw: Path, tmp_path: Path, end: bytes) -> None:
    zipped = tmp_path / "zipped"
    zipped.write_bytes(gzip.compress(raw.read_bytes().replace(b"\n", end)))

    frame, labels = covertype.read(zipped)

    pd.testing.assert_frame_equal(frame, covertype.read(raw)[0])
    np.testing.assert_array_equal(labels, covertype.read(raw)[1])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (3, None, "line 7: 54 fields instead of 55"),
        (3, "1,2", "line 7: 56 fields instead of 55"),
        (1, "high", "line 7: elevation must be a number, not 'high'"),
        (2, "", "line 7: aspect must be a number, not ''"),
        (2, "nan", "line 7: aspect must be a number, not 'nan'"),
        (10, "1e99", "line 7: horizontal_distance_to_fire_points must be a number, not '1e99'"),
        (15, "2", "line 7: exactly one of soil_type_1"),
        (11, "yes", "line 7: wilderness_area_1 must be 0 or 1, not 'yes'"),
        (54, "300", "line 7: soil_type_40 must be 0 or 1, not '300'"),
        (55, "8", "line 7: the label must be 1 to 7, not '8'"),
        (55, "0", "line 7: the label must be 1 to 7, not '0'"),
        (55, "", "line 7: the label must be 1 to 7, not ''"),
    ],
)
def test_read_names_the_wrong_line_and_column(raw: Path, field: int, value: str | None, message: str) -> None:
    _change(raw, 7, field, value)

    with pytest.raises(UsboostError) as caught:
        covertype.read(raw)

    assert str(raw) in str(caught.value)
    assert message in str(caught.value)


def test_read_refuses_a_row_in_no_area(raw: Path) -> None:
    for field in range(11, 15):
        _change(raw, 9, field, "0")

    refuses(r"line 9: exactly one of wilderness_area_1 \.\.", covertype.read, raw)


def test_read_refuses_a_blank_line_in_the_middle(raw: Path) -> None:
    lines = raw.read_text().splitlines()
    raw.write_text("\n".join([*lines[:4], "", *lines[4:]]))

    refuses("line 5: 1 fields instead of 55", covertype.read, raw)


def test_read_refuses_what_is_no_whole_file(raw: Path, tmp_path: Path) -> None:
    content = gzip.compress(raw.read_bytes())
    damaged = bytearray(content)
    damaged[len(damaged) // 2] ^= 0xFF
    for name, data, message in (
        ("short", content[:-100], "damaged or truncated gzip"),
        ("damaged", bytes(damaged), "damaged or truncated gzip"),
        ("empty", b"", "is empty"),
        ("cut", raw.read_bytes()[:-40], "line 300: .. fields instead of 55"),
    ):
        (tmp_path / name).write_bytes(data)
        refuses(message, covertype.read, tmp_path / name)
    refuses("cannot be read", covertype.read, tmp_path / "absent")


@given(st.lists(st.integers(1, 7), min_size=3, max_size=60).filter(lambda y: len(set(y)) > 2))
def test_three_largest_keeps_the_most_frequent(y: list[int]) -> None:
    frame = pd.DataFrame({"position": range(len(y))})
    ranked = sorted(set(y), key=lambda k: (-y.count(k), k))
    expected = sorted(ranked[:3])

    kept, labels, classes = covertype.three_largest(frame, y)

    assert classes == tuple(expected)
    assert kept["position"].tolist() == [i for i, k in enumerate(y) if k in expected]
    assert labels.tolist() == [expected.index(k) for k in y if k in expected]
    assert kept.index.tolist() == list(range(len(kept)))


def test_three_largest_refuses_too_few_classes_and_other_lengths() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    refuses("2 classes, but three are needed", covertype.three_largest, frame, [1, 2, 2])
    refuses("3 rows but there are 2 labels", covertype.three_largest, frame, [1, 2])


@given(n=st.integers(10, 500), seed=st.integers(0, 2**32))
def test_split_cuts_every_row_once(n: int, seed: int) -> None:
    parts = covertype.split_80_10_10(n, seed)

    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(n))
    assert len(parts["train"]) == int(n * 8 / 10)
    assert len(parts["val"]) == n // 10
    assert all((np.diff(rows) > 0).all() for rows in parts.values())


def test_split_has_the_paper_s_sizes_and_depends_on_the_seed() -> None:
    parts = covertype.split_80_10_10(530_895, seed=0)

    assert [len(parts[name]) for name in ("train", "val", "test")] == [424_716, 53_089, 53_090]
    assert (
        covertype.split_80_10_10(100, 0)["val"].tolist() != covertype.split_80_10_10(100, 1)["val"].tolist()
    )
    refuses("9 rows cannot be split", covertype.split_80_10_10, 9, 0)


@given(
    y=st.lists(st.integers(0, 3), max_size=200),
    rate=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_switch_labels_switches_exactly_the_rate(y: list[int], rate: float, seed: int) -> None:
    noisy = switch_labels(y, rate, n_classes=4, seed=seed)

    assert sum(noisy != np.array(y, dtype=int)) == round(rate * len(y))
    assert set(noisy.tolist()) <= {0, 1, 2, 3}


def test_switch_labels_is_uniform_over_rows_and_other_classes() -> None:
    y = np.repeat([0, 1, 2], 30_000)
    noisy = switch_labels(y, seed=11)
    table = pd.crosstab(y, noisy).to_numpy()

    assert (y != noisy).sum() == 8_100
    # Each of the six off-diagonal cells is binomial(30000, 0.045): 1350 with a standard deviation of 36.
    assert np.abs(table[~np.eye(3, dtype=bool)] - 1350).max() < 4 * 36
    np.testing.assert_array_equal(noisy, switch_labels(y, seed=11))
    assert (noisy != switch_labels(y, seed=12)).any()
    np.testing.assert_array_equal(y, np.repeat([0, 1, 2], 30_000))


def test_switch_labels_refuses_what_cannot_be() -> None:
    for y, options, message in (
        ([0, 1], {"rate": 1.5}, "rate is 1.5"),
        ([0, 3], {}, "labels range from 0 to 3"),
        ([-1, 1], {}, "labels range from -1 to 1"),
        ([0, 0], {"n_classes": 1}, "n_classes is 1"),
    ):
        refuses(message, switch_labels, y, **options, seed=0)


def test_demo_is_the_same_bytes_for_the_same_seed(tmp_path: Path) -> None:
    one, again, other = (
        covertype.write_demo(tmp_path / name, rows_train=150, rows_test=50, seed=seed)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )

    assert one.read_bytes() == again.read_bytes() != other.read_bytes()
    assert [path.name for path in one.parent.iterdir()] == ["covtype.data"]
    refuses("rows is 49", covertype.write_demo, tmp_path, rows_train=40, rows_test=9, seed=0)


def test_demo_has_the_real_imbalance_and_something_to_learn(tmp_path: Path) -> None:
    frame, labels = covertype.read(covertype.write_demo(tmp_path, rows_train=6_000, rows_test=0, seed=3))
    np.testing.assert_allclose(
        np.bincount(labels, minlength=8)[1:] / 6_000,
        np.array([211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510]) / 581_012,
        atol=1e-3,
    )

    frame, y, classes = covertype.three_largest(frame, labels)
    rows = covertype.split_80_10_10(len(y), seed=0)
    model = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    model.fit(frame.iloc[rows["train"]], y[rows["train"]])
    accuracy = model.score(frame.iloc[rows["test"]], y[rows["test"]])

    assert classes == (1, 2, 3)
    # The largest class is 53 % of the rows.
    assert 0.65 < accuracy < 0.9

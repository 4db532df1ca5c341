"""CT: the raw file read strictly, three classes, an image of the clean class, 9 % of labels switched."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import published, refuses
from usboost.datasets import covertype, image_encoding, shapes, store
from usboost.datasets.sampling import switch_labels
from usboost.datasets.store import Prepared
from usboost.errors import UsboostError
from usboost.evaluation.folds import stream

SIZE = 24


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    covertype.write_demo(folder, rows_train=700, rows_test=300, seed=3)
    return folder


def prepare(raw: Path, work: Path, **options: Any) -> Prepared:
    given = {"seed": 5, "profile": "demo", "image_size": SIZE, "work": work, **options}
    return covertype.prepare(raw, **given)


@pytest.fixture(scope="module")
def made(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(raw, tmp_path_factory.mktemp("work"))


def test_rows_are_those_of_the_three_largest_classes_once(raw: Path, made: Prepared) -> None:
    frame, labels = covertype.read(raw / "covtype.data")
    table, y, kept = covertype.three_largest(frame, labels)
    table = table.astype(np.float32)
    n = len(y)
    assert [len(frame) for frame in made.splits.values()] == [n * 8 // 10, n // 10, n - n * 8 // 10 - n // 10]
    assert made.classes == [covertype.CLASSES[k - 1] for k in kept]
    every = pd.concat(made.splits.values(), ignore_index=True)
    assert list(every) == [*table, "label", "clean_label"]
    table["clean_label"] = y.astype(np.int8)
    by = list(table)
    pd.testing.assert_frame_equal(
        every.drop(columns="label").sort_values(by, ignore_index=True),
        table.sort_values(by, ignore_index=True),
    )


def test_nine_in_a_hundred_labels_of_each_split_are_switched(made: Prepared) -> None:
    for frame in made.splits.values():
        assert (frame["label"] != frame["clean_label"]).sum() == round(0.09 * len(frame))
        assert set(frame["label"]) == {0, 1, 2}


def test_each_image_is_drawn_for_the_clean_class(made: Prepared, tmp_path: Path) -> None:
    store.write(made, tmp_path / "ct")
    for k, split in enumerate(("train", "val", "test")):
        views, y = store.read(tmp_path / "ct", split)
        frame = made.splits[split]
        assert views.names == ("U", "S") and views["U"].pixels.shape == (len(frame), 1, SIZE, SIZE)
        assert y.tolist() == frame["label"].tolist()
        for row in (0, 1, 2, len(frame) - 1):
            rng = shapes.image_rng(stream(5, 3, k), row)
            drawn = shapes.draw(int(frame["clean_label"].iloc[row]), rng, SIZE)
            np.testing.assert_array_equal(views["U"].pixels[row, 0], drawn)
        assert (views["U"].pixels < 255).any(axis=(1, 2, 3)).all()
    assert views["S"].n_numeric == 54 and views["S"].names == covertype.FEATURES


def test_equal_arguments_give_equal_datasets_for_any_number_of_workers(
    raw: Path, made: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_encoding, "_PROCESS", 100)
    calls: list[tuple[int, int]] = []
    again = prepare(raw, tmp_path / "w", workers=2, progress=lambda *c: calls.append(c))
    store.write(made, tmp_path / "a")
    store.write(again, tmp_path / "b")
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*")]
    assert len(files) == 4 + 3
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)
    n = sum(len(frame) for frame in made.splits.values())
    assert calls[0] == (0, n) and calls[-1] == (n, n) and calls == sorted(calls)
    other = prepare(raw, tmp_path / "w", seed=6)
    assert not other.splits["train"].equals(made.splits["train"])


def test_a_limit_keeps_the_shares_and_work_is_used_again(raw: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    options: dict[str, Any] = {"rows": 200, "progress": lambda *c: calls.append(c)}
    some = prepare(raw, tmp_path / "w", **options)
    assert [len(frame) for frame in some.splits.values()] == [160, 20, 20]
    assert some.card["rows"]["taken"] == 200 and some.card["rows"]["three largest classes"] > 850
    every = pd.concat(some.splits.values())["clean_label"]
    _, y, _ = covertype.three_largest(*covertype.read(raw / "covtype.data"))
    assert np.abs(np.bincount(every) / 200 - np.bincount(y) / len(y)).max() < 0.02
    calls.clear()
    prepare(raw, tmp_path / "w", **options)
    assert calls == [(200, 200)]


def test_the_real_covertype(tmp_path: Path) -> None:
    folder = published(covertype.SOURCE)
    if not any((folder / name).is_file() for name in ("covtype.data", "covtype.data.gz")):
        pytest.skip(f"the real file is not in {covertype.SOURCE}/ of USBOOST_DATA or ../shared/data")
    made = prepare(folder, tmp_path / "w", rows=2000, image_size=32, profile="paper")
    store.write(made, tmp_path / "ct")
    views, y = store.read(tmp_path / "ct", "train")
    assert made.classes == ["Spruce/Fir", "Lodgepole Pine", "Ponderosa Pine"]
    assert views["U"].pixels.shape == (1600, 1, 32, 32) and len(y) == 1600
    shares = np.bincount(pd.concat(made.splits.values())["clean_label"]) / 2000
    # 211,840, 283,301 and 35,754 rows of the full file.
    np.testing.assert_allclose(shares, [0.399, 0.534, 0.067], atol=0.005)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return covertype.write_demo(tmp_path, rows_train=300, rows_test=0, seed=5)


def _change(path: Path, line: int, field: int, value: str | None) -> None:
    """Set one field (None: remove it) of one line, both counted from 1."""
    lines = [text.split(",") for text in path.read_text().splitlines()]
    lines[line - 1][field - 1 : field] = [] if value is None else [value]
    path.write_text("".join(",".join(fields) + "\n" for fields in lines))


def test_read_equals_a_literal_reading(small: Path) -> None:
    lines = [line.split(",") for line in small.read_text().splitlines()]
    frame, labels = covertype.read(small)
    assert frame.shape == (300, 54)
    assert list(frame) == list(covertype.FEATURES)
    assert {str(t) for t in frame.dtypes[:10]} == {"float32"}
    assert {str(t) for t in frame.dtypes[10:]} == {"int8"}
    np.testing.assert_array_equal(frame.to_numpy(), np.array([line[:54] for line in lines], dtype=np.float32))
    np.testing.assert_array_equal(labels, [int(line[54]) for line in lines])


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_read_takes_gzip_and_any_line_end(small: Path, tmp_path: Path, end: bytes) -> None:
    zipped = tmp_path / "zipped"
    zipped.write_bytes(gzip.compress(small.read_bytes().replace(b"\n", end)))
    frame, labels = covertype.read(zipped)
    pd.testing.assert_frame_equal(frame, covertype.read(small)[0])
    np.testing.assert_array_equal(labels, covertype.read(small)[1])


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
def test_wrong_lines_and_columns_are_named(small: Path, field: int, value: str | None, message: str) -> None:
    _change(small, 7, field, value)
    with pytest.raises(UsboostError) as caught:
        covertype.read(small)
    assert str(small) in str(caught.value)
    assert message in str(caught.value)


def test_read_refuses_a_row_in_no_area_and_a_blank_line(small: Path) -> None:
    lines = small.read_text().splitlines()
    for field in range(11, 15):
        _change(small, 9, field, "0")
    refuses(r"line 9: exactly one of wilderness_area_1 \.\.", covertype.read, small)
    small.write_text("\n".join([*lines[:4], "", *lines[4:]]))
    refuses("line 5: 1 fields instead of 55", covertype.read, small)


def test_read_refuses_what_is_no_whole_file(small: Path, tmp_path: Path) -> None:
    content = gzip.compress(small.read_bytes())
    damaged = bytearray(content)
    damaged[len(damaged) // 2] ^= 0xFF
    for name, data, message in (
        ("short", content[:-100], "damaged or truncated gzip"),
        ("damaged", bytes(damaged), "damaged or truncated gzip"),
        ("empty", b"", "is empty"),
        ("cut", small.read_bytes()[:-40], "line 300: .. fields instead of 55"),
    ):
        (tmp_path / name).write_bytes(data)
        refuses(message, covertype.read, tmp_path / name)
    refuses("cannot be read", covertype.read, tmp_path / "absent")
    refuses(r"holds neither covtype\.data nor covtype", prepare, Path(__file__).parent, tmp_path / "w")
    refuses("2 classes, but three are needed", covertype.three_largest, pd.DataFrame({"a": [1, 2]}), [1, 2])


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
    one, other = (covertype.split_80_10_10(100, seed)["val"].tolist() for seed in range(2))
    assert one != other
    refuses("9 rows cannot be split", covertype.split_80_10_10, 9, 0)


@given(y=st.lists(st.integers(0, 3), max_size=200), rate=st.floats(0, 1), seed=st.integers(0, 2**32))
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


def test_the_demo_is_real_rows_by_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, again, other = (
        covertype.write_demo(tmp_path / name, rows_train=150, rows_test=50, seed=seed)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert one.read_bytes() == again.read_bytes() != other.read_bytes()
    frame, labels = covertype.read(one)
    rows = set(map(tuple, pd.read_parquet(covertype.DEMO).to_numpy().tolist()))
    assert len(labels) == 200 and set(labels.tolist()) == {1, 2, 3}
    assert {(*row, k) for row, k in zip(frame.to_numpy().astype(int).tolist(), labels.tolist())} <= rows
    monkeypatch.setattr(covertype, "DEMO", tmp_path / "small.parquet")
    refuses(r"small\.parquet", covertype.write_demo, tmp_path, rows_train=40, rows_test=9, seed=0)

"""CT: three classes, an image of the clean class for each row, 9 % of the labels switched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.conftest import published, refuses
from usboost.datasets import covertype, image_encoding, shapes, store
from usboost.datasets.store import Prepared
from usboost.evaluation.folds import stream

SIZE = 24


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    covertype.write_demo(folder, rows_train=700, rows_test=300, seed=3)
    return folder


def prepare(raw: Path, work: Path, **options: Any) -> Prepared:
    return covertype.prepare(
        raw, **{"seed": 5, "profile": "demo", "image_size": SIZE, "work": work, **options}
    )


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


def test_the_raw_file_may_be_named_itself(raw: Path, made: Prepared, tmp_path: Path) -> None:
    named = prepare(raw / "covtype.data", tmp_path / "w", rows=50)
    assert named.card["sources"] == made.card["sources"]
    refuses(r"holds neither covtype\.data nor covtype\.data\.gz", prepare, tmp_path, tmp_path / "w")
    refuses(r"absent\.data cannot be read", prepare, tmp_path / "absent.data", tmp_path / "w")
    refuses("9 rows cannot be split", prepare, raw, tmp_path / "w", rows=9)


def test_the_real_covertype(tmp_path: Path) -> None:
    folder = published(covertype.SOURCE)
    if not any((folder / name).is_file() for name in ("covtype.data", "covtype.data.gz")):
        pytest.skip(
            f"the real covertype file is not in {covertype.SOURCE}/ of USBOOST_DATA or ../shared/data"
        )
    made = prepare(folder, tmp_path / "w", rows=2000, image_size=32, profile="paper")
    store.write(made, tmp_path / "ct")
    views, y = store.read(tmp_path / "ct", "train")
    assert made.classes == ["Spruce/Fir", "Lodgepole Pine", "Ponderosa Pine"]
    assert views["U"].pixels.shape == (1600, 1, 32, 32) and len(y) == 1600
    shares = np.bincount(pd.concat(made.splits.values())["clean_label"]) / 2000
    # 211,840, 283,301 and 35,754 rows of the full file.
    np.testing.assert_allclose(shares, [0.399, 0.534, 0.067], atol=0.005)

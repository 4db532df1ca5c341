"""A prepared dataset with images: round trip, links instead of copies, and every way shards can be wrong."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import refuses
from usboost.data.images import EncodedImages, Images
from usboost.datasets import image_store, shapes, store
from usboost.datasets.image_encoding import encode_files
from usboost.datasets.store import Prepared, describe
from usboost.errors import UsboostError
from usboost.files.arrays import sha256

ROWS = {"train": 60, "val": 25, "test": 10}
SIZE = 24


def draw(split: str, labels: np.ndarray, work: Path, seed: int) -> None:
    """Shards of 20 drawn images."""
    images: list[bytes | None] = [
        shapes.encode(shapes.draw(int(label), shapes.image_rng(seed, row), SIZE))
        for row, label in enumerate(labels)
    ]
    encode_files({split: images}, work, size=SIZE, channels=1, shard_rows=20)


def prepared(work: Path) -> Prepared:
    """A toy dataset whose images are drawn in shards of 20 rows."""
    splits = {}
    for k, (split, n) in enumerate(ROWS.items()):
        y = np.arange(n) % 3
        splits[split] = pd.DataFrame({"x": (10 * k + y).astype(np.float32), "label": y.astype(np.int8)})
        draw(split, y, work, k)
    views, classes = {"S": ["x"]}, ["a", "b", "c"]
    card = describe(
        splits,
        views,
        classes,
        dataset="toy",
        profile="demo",
        seed=0,
        columns={},
        sources={},
        images=image_store.entry(SIZE, 1, encoding="PNG"),
    )
    return Prepared(splits, views, classes, card, images=work)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def folder(tmp_path: Path, work: Path) -> Path:
    store.write(prepared(work), tmp_path / "toy")
    return tmp_path / "toy"


def drawn(split: str) -> np.ndarray:
    k, n = list(ROWS).index(split), ROWS[split]
    images = [shapes.draw(row % 3, shapes.image_rng(k, row), SIZE) for row in range(n)]
    return np.stack(images)[:, None]


def test_images_are_read_back_row_by_row(folder: Path) -> None:
    assert sorted(path.name for path in (folder / "images" / "train").iterdir()) == [
        f"images-0000{k}.parquet" for k in range(3)
    ]
    for split, n in ROWS.items():
        views, y = store.read(folder, split)
        assert views.names == ("U", "S") and len(views) == len(y) == n
        assert isinstance(views["U"], Images)
        np.testing.assert_array_equal(views["U"].pixels, drawn(split))
        assert y.tolist() == [row % 3 for row in range(n)]


def test_the_card_describes_the_shards(folder: Path) -> None:
    images = store.read_card(folder)["images"]
    assert (images["view"], images["size"], images["channels"]) == ("U", [SIZE, SIZE], 1)
    assert list(images["splits"]) == list(ROWS)
    for split, n in ROWS.items():
        about = images["splits"][split]
        shards = [folder / "images" / split / shard["file"] for shard in about["shards"]]
        assert about["rows"] == n == sum(shard["rows"] for shard in about["shards"])
        assert about["bytes"] == sum(path.stat().st_size for path in shards)
        assert [shard["sha256"] for shard in about["shards"]] == [sha256(path) for path in shards]
    assert len({about["digest"] for about in images["splits"].values()}) == 3


@pytest.mark.parametrize(
    ("budget", "kind", "mapped"),
    [
        (60 * SIZE * SIZE, Images, False),
        (60 * SIZE * SIZE - 1, EncodedImages, False),
        (1000, EncodedImages, True),
    ],
)
def test_a_budget_decides_where_images_live(folder: Path, budget: int, kind: type, mapped: bool) -> None:
    before = pa.total_allocated_bytes()
    views, _ = store.read(folder, "train", image_budget=budget)
    assert isinstance(views["U"], kind)
    np.testing.assert_array_equal(views["U"].decode(), drawn("train"))
    np.testing.assert_array_equal(views[[59, 3]]["U"].decode(), drawn("train")[[59, 3]])
    encoded = store.read_card(folder)["images"]["splits"]["train"]["bytes"]
    if kind is EncodedImages:
        assert (pa.total_allocated_bytes() - before < encoded / 4) == mapped


@pytest.mark.parametrize("budget", [image_store.BUDGET, 0])
def test_several_images_a_row_and_rows_without(tmp_path: Path, work: Path, budget: int) -> None:
    made = prepared(work)
    about = image_store.entry(SIZE, 1, encoding="PNG", columns=["front", "back"])
    for k, (split, n) in enumerate(ROWS.items()):
        assert image_store.parts(split, about) == [split, f"{split}-2"]
        draw(f"{split}-2", np.zeros(n, int), work, 9 + k)
    path = work / "val-2" / "images-00001.parquet"
    table = pq.read_table(path)
    gaps = [None, *table["image"].to_pylist()[1:-1], None]
    pq.write_table(table.set_column(1, "image", pa.array(gaps, pa.binary())), path)
    both = Prepared(made.splits, made.views, made.classes, {**made.card, "images": about}, images=work)
    store.write(both, tmp_path / "toy")
    card = store.read_card(tmp_path / "toy")
    for k, (split, n) in enumerate(ROWS.items()):
        first, second = (
            image_store.read_view(tmp_path / "toy", card["images"], part, n, budget=budget)
            for part in image_store.parts(split, card["images"])
        )
        by_shard = image_store.pieces(tmp_path / "toy", card["images"], f"{split}-2", n)
        np.testing.assert_array_equal(np.concatenate([each.decode() for each in by_shard]), second.decode())
        assert first.absent is None
        np.testing.assert_array_equal(first.decode(), drawn(split))
        expected = np.stack([shapes.draw(0, shapes.image_rng(9 + k, row), SIZE) for row in range(n)])[:, None]
        if split == "val":
            assert np.flatnonzero(second.absent).tolist() == [20, 24]
            expected[[20, 24]] = 0
        else:
            assert second.absent is None
        np.testing.assert_array_equal(second.decode(), expected)


def test_shards_are_linked_and_the_work_folder_stays(folder: Path, work: Path) -> None:
    for path in (folder / "images").rglob("*.parquet"):
        assert path.samefile(work / path.relative_to(folder / "images"))
    # Writing again from the same folder replaces the dataset and needs no new images.
    store.write(prepared(work), folder)
    np.testing.assert_array_equal(store.read(folder, "val")[0]["U"].decode(), drawn("val"))


def test_another_file_system_gets_a_copy(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    store.write(prepared(work), tmp_path / "toy")
    shard = tmp_path / "toy" / "images" / "test" / "images-00000.parquet"
    assert not shard.samefile(work / "test" / shard.name)
    np.testing.assert_array_equal(store.read(tmp_path / "toy", "test")[0]["U"].decode(), drawn("test"))


def test_images_may_come_from_elsewhere(tmp_path: Path, work: Path) -> None:
    made = prepared(work)
    moved = Prepared(made.splits, made.views, made.classes, made.card)
    refuses("describes images, but no folder", store.write, moved, tmp_path / "toy")
    assert not (tmp_path / "toy").exists()
    store.write(moved, tmp_path / "toy", images=work)
    assert len(store.read(tmp_path / "toy", "val")[0]["U"]) == 25
    card = {key: value for key, value in made.card.items() if key != "images"}
    with pytest.raises(UsboostError, match="but the card does not describe them"):
        store.write(Prepared(made.splits, made.views, made.classes, card), tmp_path / "b", images=work)


def shifted(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "row", pa.array(range(1, 1 + table.num_rows), pa.int64())), path)


def without_rows(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["row"]), path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (Path.unlink, "train.* holds 40 images but split 'train' has 60 rows|does not hold the rows"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-9]),
            r"images-0000.\.parquet is damaged or truncated",
        ),
        (shifted, r"images-0000.\.parquet does not hold the rows from"),
        (without_rows, r"images-0000.\.parquet is damaged or truncated"),
    ],
)
@pytest.mark.parametrize("shard", [0, 2])
def test_the_earlier_folder_stays(folder: Path, work: Path, spoil, message: str, shard: int) -> None:
    made = prepared(work)
    before = (folder / "card.json").read_bytes()
    path = work / "train" / f"images-0000{shard}.parquet"
    # The earlier folder holds a link to the same file.
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    spoil(path)
    refuses(message, store.write, made, folder)
    assert (folder / "card.json").read_bytes() == before
    np.testing.assert_array_equal(store.read(folder, "train")[0]["U"].decode(), drawn("train"))
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".")] == []


def test_no_shards_at_all_are_named(tmp_path: Path, work: Path) -> None:
    made = prepared(work)
    for path in (work / "val").iterdir():
        path.unlink()
    refuses("val holds no images; make them before", store.write, made, tmp_path / "toy")


@pytest.mark.parametrize("budget", [image_store.BUDGET, 0])
def test_damaged_shards_are_named_when_read(folder: Path, budget: int) -> None:
    path = folder / "images" / "train" / "images-00001.parquet"
    whole = path.read_bytes()

    def put(data: bytes) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    put(whole[:-30])
    refuses(r"images-00001\.parquet is damaged", store.read, folder, "train", image_budget=budget)
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 1
    put(bytes(flipped))
    refuses(r"images-00001\.parquet is not the file", store.read, folder, "train", image_budget=budget)
    path.unlink()
    refuses(r"images-00001\.parquet is missing", store.read, folder, "train", image_budget=budget)
    assert len(store.read(folder, "val", image_budget=budget)[0]) == 25
    put(whole)
    assert len(store.read(folder, "train", image_budget=budget)[0]) == 60


def test_a_card_that_does_not_fit_is_named(folder: Path) -> None:
    card = store.read_card(folder)

    def read(change) -> None:
        changed = json.loads(json.dumps(card))
        change(changed["images"])
        (folder / "card.json").write_text(json.dumps(changed))
        store.read(folder, "train")

    refuses(r"card\.json .* images of 'train'", read, lambda images: images["splits"].pop("train"))
    refuses(r"card\.json .* images of 'train'", read, lambda images: images.pop("size"))
    refuses("40 images but 60 rows .*'train'", read, lambda images: images["splits"]["train"]["shards"].pop())
    refuses(
        r"images-00001\.parquet does not hold the rows from 0",
        read,
        lambda images: images["splits"]["train"]["shards"].insert(
            0, images["splits"]["train"]["shards"].pop(1)
        ),
    )
    refuses("image 0 is L of 24 x 24 pixels, not RGB", read, lambda images: images.update(channels=3))

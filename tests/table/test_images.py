"""Images of a user's table: every kind of file, rows without one, several columns, room on the disk."""

import base64
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.conftest import encoded, refuses
from usboost.data.images import Images
from usboost.datasets.image_files import load
from usboost.errors import UsboostError
from usboost.table import images
from usboost.table.images import room
from usboost.table.prepared import prepare
from usboost.table.source import FrameRows, Source
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table

SIZE = 16
RED, BLUE = (200, 30, 40), (20, 40, 220)


def drawn(k: int, side: int = 8) -> Image.Image:
    """An image that says its number in its colour."""
    return Image.new("RGB", (side, side), (k % 256, k // 256 % 256, 77))


def frame(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(n)
    return pd.DataFrame({"x": rng.normal(size=n), "kind": np.arange(n) % 2})


def read(path: Path | Source, progress: Any = None, **options: Any) -> UserTable:
    spec = TableSpec(**{"label": "kind", "image": "photo", "size": SIZE, **options})
    return read_table(path, spec, progress=progress)


def test_a_thousand_rows_of_which_every_third_has_no_image(tmp_path: Path) -> None:
    n = 1000
    none = np.arange(n) % 3 == 2
    (tmp_path / "photos").mkdir()
    for k in np.flatnonzero(~none):
        drawn(k).save(tmp_path / f"photos/{k}.png")
    names = [f"photos/{k}.png" if k % 2 or not gone else "" for k, gone in enumerate(none)]
    frame(n).assign(photo=names).to_csv(tmp_path / "paths.csv", index=False)
    stored = [(b"" if k % 2 else None) if gone else encoded(drawn(k)) for k, gone in enumerate(none)]
    frame(n).assign(photo=stored).to_parquet(tmp_path / "bytes.parquet", row_group_size=300)
    told: list[tuple[int, int]] = []
    by_path = read(tmp_path / "paths.csv", progress=lambda *done: told.append(done))
    assert told[-1] == (n, n) and len(told) >= 4 and told == sorted(told)
    for table in (by_path, read(tmp_path / "bytes.parquet")):
        view = table.images["U"]
        assert len(table) == len(view) == n and table.without == {"photo": 333} and table.unreadable == 0
        np.testing.assert_array_equal(view.absent, none)
        decoded = view.decode()
        assert (decoded[none] == 0).all()
        k = np.flatnonzero(~none)
        np.testing.assert_array_equal(decoded[k, 0, 3, 3] + 256 * decoded[k, 1, 9, 9].astype(int), k)
        np.testing.assert_array_equal(table.features["x"], frame(n)["x"])
    rows = np.arange(n)[::-7]
    views = by_path.views(by_path.fit_encoding(rows), rows)
    assert views["U"]._pixels is by_path.images["U"]._pixels
    np.testing.assert_array_equal(views["U"].absent, none[rows])
    np.testing.assert_array_equal(views["U"].decode(slice(0, 9)), decoded[rows[:9]])


def broken() -> dict[str, bytes]:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    whole = Image.fromarray(noise)
    return {
        "cut.png": encoded(whole)[:3000],
        "cut.jpg": encoded(whole, "JPEG")[:900],
        "empty.png": b"",
        "text.png": b"no image",
    }


@pytest.mark.parametrize("name", list(broken()))
def test_an_unreadable_file_is_named_or_counts_as_missing(tmp_path: Path, name: str) -> None:
    for k in range(12):
        drawn(k).save(tmp_path / f"{k}.png")
    (tmp_path / name).write_bytes(broken()[name])
    photos = [f"{k}.png" for k in range(12)]
    photos[4], photos[7], photos[9] = name, "nowhere.png", r"\N"
    path = tmp_path / "t.csv"
    frame(12).assign(photo=photos).to_csv(path, index=False)
    with pytest.raises(UsboostError) as told:
        read(path)
    assert str(told.value).startswith(f"{path}, row 5, {name!r} ")
    assert str(told.value).endswith("; `skip_unreadable` counts such images as missing")
    table = read(path, skip_unreadable=True)
    assert (table.without, table.unreadable) == ({"photo": 3}, 1)
    view = table.images["U"]
    assert view.absent is not None and np.flatnonzero(view.absent).tolist() == [4, 7, 9]
    assert (view.decode([4, 7]) == 0).all() and (view.decode(5)[0, 2] == 77).all()


SIDES = ["front", "back", "left", "right"]


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    """40 rows of four images; of column j every (j + 2)nd is missing, of row 30 all."""
    columns = {
        side: [None if k % (j + 2) == 0 or k == 30 else encoded(drawn(k + 40 * j)) for k in range(40)]
        for j, side in enumerate(SIDES)
    }
    frame(40).assign(**columns).to_parquet(tmp_path / "houses.parquet")
    return tmp_path / "houses.parquet"


def test_four_columns_are_four_views(houses: Path) -> None:
    table = read(houses, image=SIDES)
    assert list(table.images) == ["U:front", "U:back", "U:left", "U:right"]
    views = table.views(table.fit_encoding(np.arange(40)), np.arange(5, 40))
    assert views.names == ("U:front", "U:back", "U:left", "U:right", "S")
    for j, side in enumerate(SIDES):
        none = np.array([k % (j + 2) == 0 or k == 30 for k in range(40)])
        assert table.without[side] == none.sum()
        np.testing.assert_array_equal(views[f"U:{side}"].absent, none[5:])
        shown = np.where(none, 0, np.arange(40) + 40 * j)[5:]
        np.testing.assert_array_equal(views[f"U:{side}"].decode()[:, 0, 0, 0], shown)
    assert table.spec.image == tuple(SIDES) and list(table.features) == ["x"]


def test_roles_of_images(houses: Path) -> None:
    assert TableSpec("kind", "front").image == ("front",)  # type: ignore[arg-type]
    refuses("column 'front' cannot have two roles", read, houses, image=["front", "front"])
    refuses("has no column 'roof'", read, houses, image=["front", "roof"])
    pd.read_parquet(houses).assign(right=[b""] * 40).to_parquet(houses)
    refuses("column 'right' holds no image at all: every row is empty", read, houses, image=SIDES)


def test_many_pixels_lie_in_a_file(houses: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory = read(houses, image=SIDES).images
    folder = tmp_path / "room"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(images, "IN_MEMORY", 40 * 4 * 3 * SIZE**2 - 1)
    on_disk = read(houses, image=SIDES).images
    assert list(folder.iterdir()) == []
    for name, view in on_disk.items():
        assert isinstance(view, Images) and isinstance(view._pixels, np.memmap)
        np.testing.assert_array_equal(view.decode(), in_memory[name].decode())
        np.testing.assert_array_equal(view[3:9].digests(), in_memory[name][3:9].digests())
    assert not isinstance(in_memory["U:front"]._pixels, np.memmap)  # type: ignore[union-attr]


def test_a_disk_without_room_is_told() -> None:
    refuses(r"^t\.csv: .* 3,145,728\.0 GB on the disk", room, (10**9, 3, 1024, 1024), "t.csv")


@settings(max_examples=40)
@given(
    width=st.integers(1, 50),
    height=st.integers(1, 50),
    size=st.integers(1, 40),
    aspect=st.sampled_from(["crop", "pad", "stretch"]),
    mode=st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"]),
    channels=st.sampled_from([1, 3]),
)
def test_images_are_square(width: int, height: int, size: int, aspect: Any, mode: str, channels: int) -> None:
    values = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(values)
    deep = Image.fromarray(values[..., 0].astype(np.uint16) * 257)
    data = encoded(deep if mode == "I;16" else image.convert(mode), "TIFF")
    found = load(data, size=size, channels=channels, aspect=aspect)
    assert found.shape == (channels, size, size) and found.dtype == np.uint8
    if mode == "RGB" and aspect != "crop":
        whole = (size, size)
        if aspect == "pad":
            whole = tuple(max(1, round(side * size / max(width, height))) for side in (width, height))
        scaled = np.asarray(
            image.resize(whole, Image.Resampling.BILINEAR).convert("L" if channels == 1 else "RGB")
        )
        expected = np.full((size, size, channels), 127, dtype=np.uint8)
        left, top = (size - whole[0]) // 2, (size - whole[1]) // 2
        expected[top : top + whole[1], left : left + whole[0]] = scaled.reshape(*scaled.shape[:2], channels)
        np.testing.assert_array_equal(found, expected.transpose(2, 0, 1))


def test_records_of_bytes_and_paths(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "7.png").write_bytes(encoded(drawn(7)))
    records: list[dict[str, Any] | None] = [
        {"bytes": encoded(drawn(k)), "path": f"{k}.png"} for k in range(40)
    ]
    records[7] = {"bytes": None, "path": "7.png"}
    records[9] = None
    table = frame(40).assign(photo=records)
    for k, part in enumerate((table.head(15), table.tail(25))):
        part.to_parquet(tmp_path / "parts" / f"{k}.parquet", index=False)
    table.to_feather(tmp_path / "parts" / "t.feather")
    for path in (tmp_path / "parts", tmp_path / "parts" / "t.feather"):
        own = read(path)
        pixels = own.images["U"].decode(slice(None))
        assert own.without == {"photo": 1}
        for k in range(40):
            np.testing.assert_array_equal(pixels[k, 0], 0 if k == 9 else k)
        made = prepare(path, TableSpec(label="kind", image="photo", size=SIZE), seed=0, work=tmp_path / "w")
        shutil.rmtree(tmp_path / "w")
        assert sum(made.card["images"]["without"].values()) == 1


def test_rows_without_a_label_have_no_image_read(tmp_path: Path) -> None:
    n = 600
    table = frame(n).astype({"kind": object}).assign(photo=[f"{k}.png" for k in range(n)])
    table.loc[table.index % 3 == 0, "kind"] = None
    for k in range(n):
        (tmp_path / f"{k}.png").write_bytes(b"no image" if k % 3 == 0 else encoded(drawn(k)))
    table.to_csv(tmp_path / "t.csv", index=False)
    own = read(tmp_path / "t.csv")
    assert (len(own), own.unlabelled) == (400, 200)
    pixels, rows = own.images["U"].decode(slice(None)), np.flatnonzero(np.arange(n) % 3)
    np.testing.assert_array_equal(own.rows, rows)
    np.testing.assert_array_equal(pixels[:, 0, 0, 0], rows % 256)
    np.testing.assert_array_equal(own.features["x"], frame(n)["x"].to_numpy()[rows])


def test_the_root_of_the_images(tmp_path: Path) -> None:
    root = tmp_path / "images"
    (root / "a").mkdir(parents=True)
    (tmp_path / "tables").mkdir()
    for k in range(20):
        (root / "a" / f"{k}.png").write_bytes(encoded(drawn(k)))
    (tmp_path / "secret.png").write_bytes(encoded(drawn(99)))
    path = tmp_path / "tables" / "t.csv"

    def written(*paths: object) -> Path:
        frame(20).assign(photo=[str(paths[k % len(paths)]) for k in range(20)]).to_csv(path, index=False)
        return path

    absolute, relative = [root / "a" / f"{k}.png" for k in range(20)], [f"a/{k}.png" for k in range(20)]
    for paths in (absolute, relative):
        pixels = read(written(*paths), images_root=root).images["U"].decode(slice(None))
        np.testing.assert_array_equal(pixels[:, 0, 0, 0], range(20))
    for outside in (tmp_path / "secret.png", "../secret.png", "a/../../secret.png", f"{root}/../secret.png"):
        refuses("is not a path inside", read, written(outside, *relative[1:]), images_root=root)
    refuses(r"row 1: .* an absolute path, .* with `images_root`", read, written(*absolute))
    refuses(r"the folder of the images, .* does not exist", read, path, images_root=tmp_path / "gone")


@pytest.mark.parametrize("address", ["https://host/a.png", "s3://bucket/a.png", "file:///a.png"])
def test_addresses_are_refused(tmp_path: Path, address: str) -> None:
    (tmp_path / "0.png").write_bytes(encoded(drawn(0)))
    frame(20).assign(photo=["0.png", address] * 10).to_csv(tmp_path / "t.csv", index=False)
    refuses(r"row 2: column 'photo' is an address, .*; download images", read, tmp_path / "t.csv")


def test_a_path_to_a_folder_is_an_unreadable_image(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    drawn(1).save(tmp_path / "photos" / "1.png")
    path = tmp_path / "t.csv"
    frame(20).assign(photo=["photos/1.png"] * 17 + ["photos/", "photos", "."]).to_csv(path, index=False)
    refuses(r"row 18, 'photos' is not a file; .*`skip_unreadable`", read, path)
    own = read(path, skip_unreadable=True)
    assert (own.without, own.unreadable) == ({"photo": 3}, 2)  # "." is a mark of nothing


def test_paths_of_windows_lead_to_files_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for k in range(20):
        drawn(k).save(tmp_path / "photos" / f"{k}.png")
    drawn(99).save(tmp_path / "photos" / "own\\name.png")
    paths = [f"photos\\{k}.png" for k in range(19)] + ["photos/own\\name.png"]
    frame(20).assign(photo=paths).to_csv(tmp_path / "t.csv", index=False)
    own = read(tmp_path / "t.csv")
    assert own.images["U"].decode()[:, 0, 0, 0].tolist() == [*range(19), 99]
    assert own.paths[0].lost == 0


def test_data_in_an_address_is_the_image(tmp_path: Path) -> None:
    coded = [f"data:image/png;base64,{base64.b64encode(encoded(drawn(k))).decode()}" for k in range(20)]
    table = frame(20).assign(photo=coded)
    table.to_parquet(tmp_path / "t.parquet")
    table.to_csv(tmp_path / "t.csv", index=False)
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet", FrameRows(table)):
        assert read(path).images["U"].decode()[:, 0, 0, 0].tolist() == list(range(20))
    prepare(
        tmp_path / "t.parquet",
        TableSpec(label="kind", image="photo", size=SIZE),
        seed=0,
        work=tmp_path / "work",
    )
    table.assign(photo=[*coded[:19], "data:image/png;base64,é" + "A" * 500]).to_csv(
        tmp_path / "t.csv", index=False
    )
    with pytest.raises(UsboostError, match="row 20: column 'photo' is not base64") as told:
        read(tmp_path / "t.csv")
    assert len(str(told.value)) < 250


def test_paths_in_a_frame(tmp_path: Path) -> None:
    for k in range(20):
        drawn(k).save(tmp_path / f"{k}.png")
    names = [f"{k}.png" for k in range(20)]
    for photo in (
        names,
        [Path(name) for name in names],
        [None, *map(Path, names[1:])],
        [{"bytes": None, "path": name} for name in names],
        [{"path": name} for name in names],
    ):
        table = frame(20).assign(photo=photo)
        own = read(FrameRows(table, tmp_path))
        first = 1 if photo[0] is None else 0
        assert own.images["U"].decode()[first:, 0, 0, 0].tolist() == list(range(first, 20))
        refuses(r"is not base64: '.*png' .*begin, `images_root`", read, FrameRows(table))
    with pytest.raises(UsboostError, match=r"row 1: column 'photo' is not base64: 'é0\.png'"):
        read(FrameRows(frame(20).assign(photo=[f"é{name}" for name in names])))
    (tmp_path / "other").mkdir()
    with pytest.raises(UsboostError, match="is not a path inside"):
        read(FrameRows(frame(20).assign(photo=[tmp_path / name for name in names]), tmp_path / "other"))

"""Shards of images: the same bytes however they are made, resumable, and bad images named."""

import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.conftest import encoded, refuses
from usboost.data.images import EncodedImages
from usboost.datasets import image_encoding
from usboost.datasets.image_encoding import encode_files, encoding
from usboost.datasets.image_files import Source, load
from usboost.errors import UsboostError

N = 150


def image(k: int) -> bytes:
    """Images of several modes, sizes and formats."""
    pixels = np.random.default_rng(k).integers(0, 256, (12 + k % 5, 15, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert(("RGB", "L", "CMYK")[k % 3])
    return encoded(image, "JPEG" if k % 2 else "TIFF")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "images"
    folder.mkdir()
    paths = [folder / f"{k:03d}.img" for k in range(N)]
    for k, path in enumerate(paths):
        path.write_bytes(image(k))
    return paths


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def pixels(paths: list[Path], channels: int, size: int) -> np.ndarray:
    images = pa.chunked_array([chunk for path in paths for chunk in pq.read_table(path)["image"].chunks])
    return EncodedImages(images, channels=channels, height=size, width=size).decode()


@pytest.mark.parametrize("channels", [1, 3])
def test_shards_hold_each_row_without_loss(tmp_path: Path, files: list[Path], channels: int) -> None:
    made = encode_files({"train": files}, tmp_path / "w", size=16, channels=channels, shard_rows=40)["train"]
    assert [path.name for path in made] == [f"images-0000{k}.parquet" for k in range(4)]
    tables = [pq.read_table(path) for path in made]
    assert [table.num_rows for table in tables] == [40, 40, 40, 30]
    assert tables[0].schema.types == [pa.int64(), pa.binary()]
    assert np.concatenate([table["row"] for table in tables]).tolist() == list(range(N))
    expected = np.stack([load(path, size=16, channels=channels) for path in files])
    np.testing.assert_array_equal(pixels(made, channels, 16), expected)


def test_larger_images_are_jpeg_and_close(tmp_path: Path) -> None:
    rows, columns = np.mgrid[:130, :130]
    smooth = np.stack([rows, columns, rows + columns - 120], axis=2).clip(0, 255).astype(np.uint8)
    Image.fromarray(smooth).save(tmp_path / "a.png")
    made = encode_files({"train": [tmp_path / "a.png"]}, tmp_path / "w", size=65, channels=3)["train"]
    assert encoding(64) == "PNG" and encoding(65) == "JPEG of quality 95"
    data = pq.read_table(made[0])["image"][0].as_py()
    assert Image.open(io.BytesIO(data)).format == "JPEG"
    found = pixels(made, 3, 65)[0].astype(int)
    assert np.abs(found - load(tmp_path / "a.png", size=65, channels=3)).mean() < 3


def test_files_members_and_bytes_are_the_same_shards(tmp_path: Path, files: list[Path]) -> None:
    data = [path.read_bytes() for path in files]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for path in files:
            archive.write(path, path.name)
    kinds: dict[str, list[Source]] = {
        "files": list(files),
        "members": [(tmp_path / "a.zip", path.name) for path in files],
        "bytes": list(data),
    }
    made = encode_files(kinds, tmp_path / "w", size=8, channels=3, shard_rows=64)
    shards = {kind: [path.read_bytes() for path in paths] for kind, paths in made.items()}
    assert shards["files"] == shards["members"] == shards["bytes"]


def test_workers_change_no_bytes(tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"size": 20, "channels": 3, "shard_rows": 50}
    splits = {"train": files[:110], "val": files[110:]}
    encode_files(splits, tmp_path / "one", **options)
    monkeypatch.setattr(image_encoding, "_PROCESS", 1)
    calls: list[tuple[int, int]] = []
    encode_files(splits, tmp_path / "three", workers=3, progress=lambda *c: calls.append(c), **options)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")
    assert len(contents(tmp_path / "one")) == 4
    assert calls[0] == (0, N) and calls[-1] == (N, N)
    assert calls == sorted(calls) and len(calls) > 4


def test_what_is_there_is_kept_and_what_changed_is_made_again(tmp_path: Path, files: list[Path]) -> None:
    options: dict[str, Any] = {"size": 8, "channels": 1, "shard_rows": 30}
    work = tmp_path / "w"
    made = encode_files({"train": files}, work, **options)["train"]
    whole = contents(work)
    times = {path: path.stat().st_mtime_ns for path in made}
    calls: list[tuple[int, int]] = []
    encode_files({"train": files}, work, progress=lambda *c: calls.append(c), **options)
    assert calls == [(N, N)] and {path: path.stat().st_mtime_ns for path in made} == times
    made[0].write_bytes(made[0].read_bytes()[:-50])
    made[1].unlink()
    made[2].with_suffix(".key").unlink()
    calls.clear()
    encode_files({"train": files}, work, progress=lambda *c: calls.append(c), **options)
    assert calls[0] == (60, N) and contents(work) == whole
    assert {path: path.stat().st_mtime_ns for path in made[3:]} == {path: times[path] for path in made[3:]}
    files[100].write_bytes(image(1000))
    calls.clear()
    encode_files({"train": files}, work, progress=lambda *c: calls.append(c), **options)
    assert calls[0] == (120, N)
    assert [name for name, data in contents(work).items() if data != whole[name]] == [
        "train/images-00003.parquet"
    ]
    for changed in ({"size": 9}, {"channels": 3}):
        calls.clear()
        encode_files({"train": files}, work, progress=lambda *c: calls.append(c), **{**options, **changed})
        assert calls[0] == (0, N)
    encode_files({"train": files[:31]}, work, **options)
    assert sorted(path.name for path in (work / "train").iterdir()) == [
        f"images-0000{k}.{end}" for k in range(2) for end in ("key", "parquet")
    ]


KILLED = """
import sys
from pathlib import Path
from usboost.datasets import image_encoding

if __name__ == "__main__":
    image_encoding._PROCESS = 1
    folder = Path(sys.argv[1])
    files = sorted((folder / "images").iterdir())
    image_encoding.encode_files(
        {"train": files * 6}, folder / "w", size=64, channels=3, workers=int(sys.argv[2]), shard_rows=24
    )
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_one_resumes_to_the_same_bytes(tmp_path: Path, files: list[Path], workers: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), str(workers)],
        stdout=subprocess.PIPE,
        cwd=Path(image_encoding.__file__).parents[2],
    )
    folder, limit = tmp_path / "w" / "train", time.monotonic() + 60
    while len(list(folder.glob("*.key"))) < 3:
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    # The pipe ends when the last process that holds it does: workers must not outlive their parent.
    process.communicate(timeout=20)
    kept = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.key")}
    assert process.returncode == -signal.SIGKILL and 3 <= len(kept) < 38
    for name in ("images-00030.parquet.99.tmp", ".images-00030.key.99.tmp"):
        (folder / name).write_bytes(b"left by the killed process")
    calls: list[tuple[int, int]] = []
    options: dict[str, Any] = {"size": 64, "channels": 3, "shard_rows": 24}
    encode_files({"train": files * 6}, tmp_path / "w", progress=lambda *c: calls.append(c), **options)
    assert calls[0] == (24 * len(kept), 6 * N)
    assert {name: (folder / name).stat().st_mtime_ns for name in kept} == kept
    encode_files({"train": files * 6}, tmp_path / "fresh", **options)
    assert contents(tmp_path / "w") == contents(tmp_path / "fresh")
    assert list(folder.glob("*.tmp")) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_images(tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setattr(image_encoding, "_PROCESS", 1)
    options: dict[str, Any] = {"size": 8, "channels": 3, "shard_rows": 30, "workers": workers}
    good = {k: files[k].read_bytes() for k in (40, 41, 100)}
    files[41].write_bytes(b"")
    refuses(r"^\S*041\.img is empty", encode_files, {"train": files}, tmp_path / "w", **options)
    files[40].write_bytes(good[40][:100])
    files[100].write_bytes(b"no image")
    with pytest.raises(UsboostError) as caught:
        encode_files({"train": files}, tmp_path / "w", **options)
    message = str(caught.value)
    assert message.startswith("3 images cannot be used")
    assert message.index("040.img") < message.index("041.img is empty") < message.index("100.img")
    # Shard 3 was whole after the first attempt and is not any more, since an image of it has changed.
    assert sorted(path.stem[-1] for path in (tmp_path / "w" / "train").glob("*.key")) == ["0", "2", "3", "4"]
    for k, data in good.items():
        files[k].write_bytes(data)
    encode_files({"train": files}, tmp_path / "w", **options)
    encode_files({"train": files}, tmp_path / "fresh", **{**options, "workers": 1})
    assert contents(tmp_path / "w") == contents(tmp_path / "fresh")


def test_a_wrong_folder_of_images_is_soon_given_up(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    encode = partial(encode_files, size=8, channels=3, progress=lambda *c: calls.append(c))
    refuses("or more images cannot be used", encode, {"train": [b"text"] * 5000}, tmp_path)
    assert calls[-1][0] <= 1024


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size 0"),
        ({"channels": 2}, "channels 1 or 3, not 2"),
        ({"workers": 0}, "workers 0"),
        ({"shard_rows": 0}, "shard_rows 0"),
        ({"items": {"train": []}}, "split 'train' has no images"),
        ({"items": {"train": [Path("absent.png")]}}, r"absent\.png cannot be read"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsboostError, match=message):
        encode_files(**{"items": {"train": [b""]}, "folder": tmp_path, "size": 8, "channels": 3, **options})


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("precious")
    refuses("train is a file", encode_files, {"train": [image(0)]}, tmp_path, size=8, channels=3)
    assert (tmp_path / "train").read_text() == "precious"

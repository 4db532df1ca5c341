"""Paths stay in their folder, bombs stay small, and data in a report stay text."""

import gzip
import json
import re
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from benchmarks.robustness import valid_inputs
from tasks import settings
from tests.conftest import encoded, png, refuses, rewritten
from tests.report import Page, write_cell, write_trace
from usboost.data.images import EncodedImages
from usboost.datasets import census, covertype, image_files, imagenet, sources, store
from usboost.datasets import image_folders as image_tree
from usboost.datasets.image_folders import open_tree
from usboost.errors import UsboostError
from usboost.files.arrays import sha256
from usboost.learners.networks.backbones import Backbone
from usboost.models.persistence import load, save
from usboost.report.inspection import sample_images
from usboost.report.pages import write_pages
from usboost.table import prepared as user_table
from usboost.table import user_table as table_of_user
from usboost.table.spec import TableSpec

OUTSIDE = (
    *("../secret.png", "images/../../secret.png", "/etc/secret.png", "C:\\secret.png", "\\\\host\\x.png"),
    *("..\\secret.png", "\\secret.png", "images/../../../secret.png"),
)


def table(folder: Path, paths: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    frame = pd.DataFrame(
        {"x": range(12), "y": ["a", "b"] * 6, "image": [paths[k % len(paths)] for k in range(12)]}
    )
    frame.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def prepare(path: Path, tmp_path: Path) -> object:
    return user_table.prepare(path, TableSpec(label="y", image="image", size=8), seed=0, work=tmp_path / "w")


@pytest.mark.parametrize("outside", OUTSIDE)
def test_a_image_path_cannot_leave_the_tables_folder(tmp_path: Path, outside: str) -> None:
    (tmp_path / "secret.png").write_bytes(valid_inputs.image(0))
    refuses("not a path inside|an absolute path", prepare, table(tmp_path / "own", [outside]), tmp_path)
    assert not (tmp_path / "work").exists()


def test_a_path_cannot_leave_the_tables_folder_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "cache" / "deep").mkdir(parents=True)
    (tmp_path / "cache" / "secret.png").write_bytes(valid_inputs.image(0))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "folder").symlink_to(tmp_path / "cache" / "deep")
    for path in ("folder/../secret.png", "folder/..\\secret.png"):
        refuses("not a path inside", prepare, table(tmp_path / "own", [path]), tmp_path)


def animals(path: Path, tmp_path: Path) -> store.Prepared:
    return imagenet.prepare(path, seed=0, profile="demo", size=8, work=tmp_path / "work")


def image_tree_of(folder: Path) -> Path:
    for name, data in valid_inputs.tiny_imagenet().items():
        path = folder / name.removeprefix("tiny/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def test_links_in_folders_of_images_cannot_leave_them(tmp_path: Path) -> None:
    raw, secret = image_tree_of(tmp_path / "raw"), tmp_path / "secret.JPEG"
    secret.write_bytes(valid_inputs.image(0, kind="JPEG"))
    animals(raw, tmp_path)
    for place in ("train/n02085620/images/x.JPEG", "val/images/x.JPEG"):
        (raw / place).symlink_to(secret)
        refuses("is a link that leads out of", animals, raw, tmp_path)
        (raw / place).unlink()
    (tmp_path / "elsewhere").mkdir()
    (raw / "train" / "n02123045").symlink_to(tmp_path / "elsewhere")
    refuses("is a link that leads out of", animals, raw, tmp_path)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "C:\\x", "a/../../x", "..\\x", "tiny/train/../../../x"])
def test_a_zip_member_cannot_lead_out(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.zip").write_bytes(valid_inputs.zipped({**valid_inputs.tiny_imagenet(), name: b"x"}))
    refuses("a path that leads out of it", open_tree, tmp_path / "t.zip")


def test_a_link_in_a_zip_is_only_a_short_file(tmp_path: Path) -> None:
    members = valid_inputs.tiny_imagenet()
    link = zipfile.ZipInfo("tiny/train/n02085620/images/link.JPEG")
    link.external_attr = (0o120777 << 16) | 0o40
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(link, "/etc/passwd")
    refuses(r"link\.JPEG .* is no image in a known format", animals, tmp_path / "t.zip", tmp_path)


@pytest.mark.parametrize("file", ["../../../secret.parquet", "/etc/x.parquet", "images-00000.parquet/../x"])
def test_a_card_cannot_name_a_shard_elsewhere(tmp_path: Path, file: str) -> None:
    valid_inputs.write_prepared(tmp_path / "toy", tmp_path / "work")
    with rewritten(tmp_path / "toy" / "card.json") as card:
        card["images"]["splits"]["train"]["shards"][0]["file"] = file
    refuses("does not describe the images", store.read, tmp_path / "toy", "train")


@pytest.mark.parametrize("name", ["../secret.json", "/etc/passwd", "gbm/../../secret.json"])
def test_a_model_cannot_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    save(valid_inputs.models()["2wl"][0], tmp_path / "model")
    with rewritten(tmp_path / "model" / "model.json") as document:
        document["files"][name] = "0" * 64
    refuses("is no file of a model", load, tmp_path / "model")
    (tmp_path / "secret.safetensors").write_bytes(b"x")
    with rewritten(tmp_path / "model" / "model.json") as document:
        del document["files"]
        document["stages"][0]["file"] = "../secret.safetensors"
    refuses(r"model/secret\.safetensors", load, tmp_path / "model")


@pytest.mark.parametrize("cache", ["/somewhere", "../somewhere", "data/../../x"])
def test_a_model_cannot_choose_where_embeddings_are_written(tmp_path: Path, cache: str) -> None:
    model = valid_inputs.models()["2wl_images"][0]
    model.learners["U"].backbone = Backbone(cache=cache)
    try:
        save(model, tmp_path / "model")
    finally:
        model.learners["U"].backbone = None
    assert load(tmp_path / "model").learners["U"].backbone.cache is None


# Bombs: small files that stand for a great deal.


def peak(call: Callable[[], object]) -> int:
    """Bytes that Python's allocators hold at most during the call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("reader", [census.read, covertype.read])
def test_a_gzip_bomb(tmp_path: Path, reader: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    part = gzip.compress(b"0" * (1 << 24))
    (tmp_path / "raw.gz").write_bytes(part * 40)  # 640 MiB in as many KiB

    def read() -> None:
        refuses("has more than the 1,048,576 bytes", reader, tmp_path / "raw.gz")

    assert sources.LARGEST == 1 << 29
    monkeypatch.setattr(sources, "LARGEST", 1 << 20)
    assert peak(read) < 1 << 24


@pytest.mark.parametrize(("width", "height"), [(30_000, 30_000), (2**31 - 1, 2**31 - 1), (100_000_000, 1)])
def test_a_image_of_gigantic_size(width: int, height: int) -> None:
    def read() -> None:
        with pytest.raises(UsboostError, match=r"has over 89,478,485 pixels|cannot be read as an image"):
            image_files.load(png(width, height, zlib.compress(b"\0" * 1000)), size=8, channels=3)

    assert peak(read) < 1 << 22


def test_a_image_with_a_compressed_comment(tmp_path: Path) -> None:
    comment = b"x\0\0" + zlib.compress(b"0" * (1 << 26))
    chunk = struct.pack(">I", len(comment)) + b"zTXt" + comment
    chunk += struct.pack(">I", zlib.crc32(b"zTXt" + comment))
    whole = valid_inputs.image(0)
    bomb = whole[:33] + chunk + whole[33:]

    def read() -> None:
        refuses("cannot be read as an image", image_files.load, bomb, size=8, channels=3)

    assert peak(read) < 1 << 24


def test_a_prepared_image_of_gigantic_size(tmp_path: Path) -> None:
    images = EncodedImages(pa.array([png(20_000, 20_000)]), channels=1, height=8, width=8)

    def read() -> None:
        refuses(r"not L of 8 x 8|cannot be decoded", images.decode)

    assert peak(read) < 1 << 22


def test_a_zip_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = valid_inputs.tiny_imagenet()
    name = "tiny/train/n02085620/images/n02085620_0.JPEG"
    (tmp_path / "t.zip").write_bytes(valid_inputs.zipped({**members, name: b"\0" * (1 << 26)}))
    monkeypatch.setattr(image_files, "LARGEST_FILE", 1 << 20)

    def read() -> None:
        refuses("has 67,108,864 bytes, more than the 1,048,576", animals, tmp_path / "t.zip", tmp_path)

    assert peak(read) < 1 << 24
    monkeypatch.setattr(image_tree, "LARGEST_TEXT", 1 << 20)
    (tmp_path / "u.zip").write_bytes(
        valid_inputs.zipped({**members, "tiny/val/val_annotations.txt": b"\0" * (1 << 26)})
    )
    refuses("more than a list of labels may have", animals, tmp_path / "u.zip", tmp_path)


def test_a_zip_member_that_says_it_is_small(tmp_path: Path) -> None:
    """Its directory says 100 bytes; no more are unpacked."""
    name = "tiny/train/n02085620/images/n02085620_0.JPEG"
    data = valid_inputs.zipped({**valid_inputs.tiny_imagenet(), name: b"\0" * (1 << 26)})
    data = data.replace(struct.pack("<I", 1 << 26), struct.pack("<I", 100))
    (tmp_path / "t.zip").write_bytes(data)

    def read() -> None:
        refuses("cannot be unzipped", image_files.read, (tmp_path / "t.zip", name))

    assert peak(read) < 1 << 24


def test_a_table_of_a_billion_rows_in_a_few_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_of_user, "LARGEST", 1_000_000)
    column = pa.array(np.zeros(1_000_000, dtype=np.int8))
    pq.write_table(pa.table({"x": column, "y": column}), tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 10_000
    with pytest.raises(UsboostError, match="1,000,000 rows of 2 columns, more than"):
        table_of_user.read_columns(tmp_path / "t.parquet", TableSpec("y"))


@pytest.mark.parametrize("merge", ["", "<<: "])
def test_a_yaml_bomb(tmp_path: Path, merge: str) -> None:
    lines = ["a0: &a0 {x: 1, y: 2, z: 3, u: 4, v: 5, w: 6, s: 7, t: 8}"]
    for k in range(1, 12):
        many = ", ".join([f"*a{k - 1}"] * 9)
        lines.append(f"a{k}: &a{k} {{{merge}[{many}]}}" if merge else f"a{k}: &a{k} [{many}]")
    (tmp_path / "p.yaml").write_text("\n".join(lines))
    refuses("aliases that stand for over 100,000 values", settings.load, tmp_path / "p.yaml")
    (tmp_path / "p.yaml").write_text("a: &a [*a]")
    refuses("aliases that stand for over", settings.load, tmp_path / "p.yaml")


def test_trees_that_never_end_or_share_branches(tmp_path: Path) -> None:
    """A node that is its own child, or both children of its parent: 2^n visits for n nodes."""
    save(valid_inputs.models()["lightgbm"][0], tmp_path / "model")
    path, listed = tmp_path / "model" / "gbm" / "trees.safetensors", tmp_path / "model" / "model.json"
    for make in (lambda left, right: left.fill(0), lambda left, right: right.__setitem__(slice(None), left)):
        save(valid_inputs.models()["lightgbm"][0], tmp_path / "model")
        arrays = load_file(path)
        make(arrays["left"], arrays["right"])
        save_file(arrays, path)
        for document in (path.parent / "gbm.json", listed):
            with rewritten(document) as content:
                content["files"] = {name: sha256(document.parent / name) for name in content["files"]}
        refuses("a tree has a node", load, tmp_path / "model")


def test_a_network_of_gigantic_width_is_not_built(tmp_path: Path) -> None:
    save(valid_inputs.models()["2wl"][0], tmp_path / "model")
    for widths in ([9_999_999, 9_999_999, 2], [10**12, 2], [-1, 2], [1.5, 2], [], "44"):
        with rewritten(tmp_path / "model" / "model.json") as document:
            document["stages"][0]["learners"]["U"]["meta"]["spec"]["widths"] = widths
        refuses("a network's", load, tmp_path / "model")


# Reports.


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "</style><b>",
    "']]>",
)


def test_a_report_of_hostile_names(tmp_path: Path) -> None:
    results, prepared = tmp_path / "results", tmp_path / "prepared"
    dataset, model = "<script>alert(2)<", "2wl<svg onload=alert(3)>"
    scores = {"val": {"f1": 0.5, HOSTILE[0]: 1.0}, "test": {"f1": 0.5, HOSTILE[1]: 1.0}}
    write_cell(results, dataset, model, [{"seed": 0, "scores": scores}], "demo")
    trace = pd.DataFrame({"seed": 0, "round": range(1, 4), "f1_val": 0.5, HOSTILE[0]: 1.0})
    write_trace(results, dataset, model, trace)
    valid_inputs.write_prepared(prepared / dataset, tmp_path / "work")
    with rewritten(prepared / dataset / "card.json") as card:
        card["classes"] = list(HOSTILE[:2])
        card["columns"] = {name: {"view": name, "kind": name, "why": name} for name in HOSTILE}
        card["splits"]["train"]["classes"] = dict.fromkeys(HOSTILE, 3)
        card |= {name: name for name in HOSTILE} | {"sources": dict.fromkeys(HOSTILE, "ab" * 32)}
    page = write_pages(
        results, prepared, tmp_path / "out", datasets=[dataset], models=[model], cells=[(dataset, model)]
    )
    html = page.read_text(encoding="utf-8")
    found = Page(html).tags
    assert {tag for tag, _ in found}.isdisjoint({"script", "svg", "iframe", "object", "link", "base", "form"})
    assert not [attrs for _, attrs in found if any(name.startswith("on") for name in attrs)]
    assert html.count("&lt;script&gt;") > 5 and "49" not in re.findall(r">\s*(49)\s*<", html)
    assert "{{ 7 * 7 }}" in html  # shown as it is, not computed
    links = [str(attrs.get(name, "")) for _, attrs in found for name in ("src", "href") if name in attrs]
    assert all(link.startswith(("data:image/", "#")) for link in links)
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert all(path.resolve().is_relative_to(tmp_path / "out") for path in written)
    assert {path.name for path in written} >= {"index.html", "results.csv"}
    assert not any(set("<>\"'") & set(path.name) for path in written)


def test_sample_images_that_are_no_images_are_left_out(tmp_path: Path) -> None:
    valid_inputs.write_prepared(tmp_path / "toy", tmp_path / "work")
    card = json.loads((tmp_path / "toy" / "card.json").read_text())
    assert [len(shown) for _, shown in sample_images(tmp_path / "toy", card)] == [4, 4]
    shard = tmp_path / "toy" / "images" / "train" / "images-00000.parquet"
    for data in (b"", b"GIF89a", png(20_000, 20_000, zlib.compress(b"\0"))):
        shard.unlink(missing_ok=True)
        pq.write_table(pa.table({"row": range(8), "image": [data] * 8}), shard)
        assert sample_images(tmp_path / "toy", card) == []
    card["images"]["splits"]["train"]["shards"][0]["file"] = "../../../x.parquet"
    assert sample_images(tmp_path / "toy", card) == []


def test_pillow_reads_no_format_that_starts_a_program(tmp_path: Path) -> None:
    with pytest.raises(UsboostError, match="no image in a known format"):
        image_files.load(encoded(Image.new("RGB", (4, 4)), "EPS"), size=8, channels=3)

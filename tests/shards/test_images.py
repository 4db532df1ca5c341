"""Images of which each shard reads its own: the same model from any number of ranks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.conftest import encoded, refuses
from tests.fit.conftest import accepted, refused
from tests.shards.cases import boosted, data, parts
from tests.shards.test_command import files, free_port, rank, said
from tests.table.test_shards import shards, written
from tests.warm import Warm
from usboost import Backbone, NetworkLearner, fit_sharded
from usboost.table.shards import read_shard
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

N = 90
FIT = ("--label", "kind", "--image", "photo", "--size", "32", "--rounds", "2", "--shards", "3")


def photo(k: int) -> bytes:
    """Brighter for every second row."""
    grey = np.random.default_rng(k).integers(0, 90, (8, 8, 3)) + 80 * (k % 2)
    return encoded(grey.astype(np.uint8))


def table(folder: Path | None) -> pd.DataFrame:
    """Rows whose first third, a shard, has no image; the others are bytes, or paths in a folder."""
    g = np.random.default_rng(0)
    photos: list[Any] = [None if k < N // 3 or k == 50 else photo(k) for k in range(N)]
    if folder is not None:
        folder.mkdir()
        for k, image in enumerate(photos):
            (folder / f"{k}.png").write_bytes(image or b"")
            photos[k] = None if image is None else f"{k}.png"
    kinds = np.array(["even", "odd"])[np.arange(N) % 2]
    kinds[g.random(N) < 0.2] = "even"
    return pd.DataFrame({"x": g.normal(size=N), "photo": photos, "kind": kinds})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "as_paths"),
    [
        ("2wl_newton", False),
        pytest.param("linear_trees", True, marks=pytest.mark.long),
        pytest.param("crossed", False, marks=pytest.mark.long),
    ],
)
def test_one_model_of_ranks(
    model: str, as_paths: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: Warm
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos" if as_paths else None
    rows = written(tmp_path / "rows", table(folder), group=15)
    words = ("fit", rows, *FIT, "--model", model, *(("--images-root", "photos") if as_paths else ()))
    monkeypatch.setenv("USBOOST_CACHE", str(tmp_path / "alone-cache"))
    done = accepted(*words, "--out", "alone")
    assert "31 of 90 rows have no image" in done.stderr
    assert "the network as it is, which several shards do not tune" in done.stderr
    monkeypatch.setenv("USBOOST_CACHE", str(tmp_path / "cache"))
    port = free_port()
    (code, _, err), (code_1, out_1, err_1) = said(
        [rank(k, port, *words, "--out", "m", cwd=tmp_path, warm=warm) for k in (0, 1)]
    )
    assert (code, code_1, out_1, err_1) == (0, 0, "", ""), err + err_1
    assert files(tmp_path / "m") == files(tmp_path / "alone")
    assert json.loads((tmp_path / "m/card.json").read_text())["images"]["columns"] == ["photo"]
    accepted("predict", "m", rows, "--out", "p.parquet", *(words[-2:] if as_paths else ()))
    assert len(pd.read_parquet("p.parquet")) == N


def test_shards_read_the_images_of_their_rows(tmp_path: Path) -> None:
    made = table(tmp_path / "photos")
    made.loc[70, "photo"] = "gone.png"
    path = written(tmp_path / "rows", made, group=15)
    spec = TableSpec("kind", image=("photo",), size=8, images_root=tmp_path / "photos")
    whole, found = read_table(path, spec), shards(lambda: read_shard(path, spec), 4)
    pixels = np.concatenate([each.images["U"].decode() for each in found])
    assert np.array_equal(pixels, whole.images["U"].decode())
    absent = [np.zeros(len(each)) if (mask := each.images["U"].absent) is None else mask for each in found]
    assert np.array_equal(np.concatenate(absent), whole.images["U"].absent)
    for each in found:
        assert (each.without, each.sample.paths) == (whole.without, whole.paths)
    (tmp_path / "photos/61.png").write_bytes(b"no image")
    refuses(r"rows, row 62, '61\.png' is no image", shards, lambda: read_shard(path, spec), 4)
    skipping = TableSpec("kind", image=("photo",), size=8, images_root=spec.images_root, skip_unreadable=True)
    for each in shards(lambda: read_shard(path, skipping), 4):
        (misfits,) = each.sample.misfits
        assert (misfits.count, misfits.given, "row 62" in misfits.error) == (1, 58, True)
    written(path, made.assign(photo=None), group=15)
    refuses("column 'photo'", shards, lambda: read_shard(path, spec), 4)


def test_a_network_that_is_tuned_is_refused_before_a_row_is_read(tmp_path: Path) -> None:
    words = ("fit", tmp_path / "none", *FIT, "--model", "2wl", "--finetune", "last", "--out", tmp_path / "m")
    assert refused(*words).startswith("--finetune last needs all rows in one place")
    network = NetworkLearner((4,), backbone=Backbone("small_cnn", pretrained=False, finetune="all"))
    refuses("`finetune=all` needs all rows", fit_sharded, boosted(learners={"U": network}), parts(*data(2)))

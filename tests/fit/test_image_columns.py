"""A bundle that reads several columns of images, of which any row may lack some."""

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import ExifTags, Image

from tests.conftest import forget, refuses, reloaded
from tests.fit.conftest import ROLES, accepted, numbers, refused
from usboost.datasets import store
from usboost.evaluation.folds import stratified_parts, stream
from usboost.fit import bundle
from usboost.fit.build import build, fit
from usboost.fit.bundle import Bundle, raw_rows
from usboost.fit.card import card_of
from usboost.fit.options import ImageOptions
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.tree_learner import TreeLearner
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier
from usboost.report.model_page import write_report
from usboost.table import prepared as user_table
from usboost.table.prepared import SPLITS, read_prepared
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table


@pytest.fixture(scope="module")
def pairs(demo: Path, tmp_path_factory) -> Path:
    """Bytes in columns front and back; every third back is missing, and of row 7 both are."""
    folder = tmp_path_factory.mktemp("pairs")
    table = pd.read_csv(demo).drop(columns="split")
    data = [(demo.parent / path).read_bytes() for path in table.pop("image")]
    table["front"] = [None if k == 7 else each for k, each in enumerate(data)]
    table["back"] = [None if k % 3 == 1 else each for k, each in enumerate(data[::-1])]
    table.to_parquet(folder / "pairs.parquet", row_group_size=50)
    return folder / "pairs.parquet"


@pytest.fixture(scope="module")
def own(pairs: Path) -> UserTable:
    return read_table(pairs, TableSpec(label="batch", image=["front", "back"], size=32))


@pytest.fixture(scope="module")
def saved(own: UserTable, tmp_path_factory) -> Path:
    """A model with a network for each of the two views of images, and trees."""
    rows = np.arange(len(own))
    encoding = own.fit_encoding(rows)
    learners = {
        **{f"g{k}": NetworkLearner(hidden=(8,), reads=(view,)) for k, view in enumerate(own.images)},
        "S": TreeLearner(max_depth=2),
    }
    model = TwoWeakLearnerClassifier(learners=learners, n_rounds=2, random_state=0)
    model.fit(own.views(encoding, rows), own.labels)
    card = card_of(own, encoding, model="2wl", rows=(len(own), 0), seen=rows, scores={}, seed=0)
    folder = tmp_path_factory.mktemp("saved") / "model"
    Bundle(model, card).save(folder)
    return folder


def test_a_bundle_reads_all_columns(saved: Path, own: UserTable, pairs: Path, tmp_path: Path) -> None:
    loaded = bundle.load(saved)
    images = json.loads((saved / "card.json").read_text())["images"]
    assert images == {"columns": ["front", "back"], "size": [32, 32], "channels": 3, "aspect": "crop"}
    expected = loaded.model.predict_proba(own.views(loaded.encoding, np.arange(120)))
    done = accepted("predict", saved, pairs, "--out", tmp_path / "p.parquet", "--batch", 50)
    front, back = done.stderr.splitlines()
    assert "1 of 120" in front and "'front'" in front and "40 of 120" in back and "'back'" in back
    found = pd.read_parquet(tmp_path / "p.parquet")
    np.testing.assert_allclose(found.iloc[:, 1:], expected, rtol=0, atol=1e-6)
    frame = pd.read_parquet(pairs).drop(columns="batch").head(20)
    np.testing.assert_allclose(loaded.predict(frame).iloc[:, 1:], expected[:20], rtol=0, atol=1e-6)
    # as JSON has it: base64, and null where there is none
    text = {"front": frame["front"].map(_base64), "back": frame["back"].map(_base64)}
    served = loaded.predict(frame.assign(**text))
    np.testing.assert_allclose(served.iloc[:, 1:], expected[:20], rtol=0, atol=1e-6)
    # and the second column is read, too
    other = loaded.predict(frame.assign(back=frame["back"].to_numpy()[::-1])).iloc[:, 1:]
    assert np.abs(other - expected[:20]).to_numpy().max() > 1e-4


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def test_the_pipelines_model_of_several_columns_reads_the_table(pairs: Path, tmp_path: Path) -> None:
    made = user_table.prepare(
        pairs, TableSpec(label="batch", image=["front", "back"], size=32), seed=0, work=tmp_path / "work"
    )
    store.write(made, tmp_path / "prepared")
    own = read_prepared(tmp_path / "prepared")
    fit(own, "2wl", rounds=3).bundle.save(tmp_path / "bundle")
    loaded = bundle.load(tmp_path / "bundle")
    assert loaded.card.images.form.names == ["U:front", "U:back"]
    accepted("predict", tmp_path / "bundle", pairs, "--out", tmp_path / "p.parquet")
    found = pd.read_parquet(tmp_path / "p.parquet").iloc[:, 1:]
    rows = stratified_parts(pd.read_parquet(pairs)["batch"], user_table.SHARES, stream(0, 0))
    for split, of_split in zip(SPLITS, rows):
        assert (own.split[of_split] == split).all()
    np.testing.assert_allclose(found, loaded.predicted_of(own, np.arange(120)), rtol=0, atol=1e-6)
    # raw rows with both images, as the pipeline's example has them
    frame, table = store.read_frame(tmp_path / "prepared", "val"), pd.read_parquet(pairs).iloc[rows[1]]
    example = raw_rows(loaded.card, frame, table["front"].tolist(), table["back"].tolist())
    np.testing.assert_allclose(loaded.predict(example).iloc[:, 1:], found.iloc[rows[1]], rtol=0, atol=1e-6)


def test_its_report_names_them(saved: Path, pairs: Path, tmp_path: Path) -> None:
    assert write_report(bundle.load(saved), pairs, tmp_path / "r.html").without == {"front": 1, "back": 40}
    text = (tmp_path / "r.html").read_text()
    assert "the images in front, back, at 32 pixels" in text
    assert "40 of 120 rows have no image in back" in text
    assert "images (front)" in text and "images (back)" in text


@pytest.mark.slow
def test_its_report_shows_what_it_sees_and_where_it_looks(saved: Path, pairs: Path, tmp_path: Path) -> None:
    frame = pd.read_parquet(pairs).head(12)
    classes = sorted(frame["batch"].unique())
    frame["batch"] = frame["batch"].map(dict(zip(classes, classes[1:] + classes[:1], strict=True)))
    frame.at[2, "front"] = _lying(90, 40)
    frame.to_parquet(tmp_path / "t.parquet")
    told: list[tuple[int, int]] = []
    write_report(
        bundle.load(saved),
        tmp_path / "t.parquet",
        tmp_path / "r.html",
        occlusion_maps=True,
        looking=lambda done, total: told.append((done, total)),
    )
    text = (tmp_path / "r.html").read_text()
    items = [item for item in text.split("<li>\n")[1:] if "<dt>row</dt>" in item]
    shown = {int(re.search(r"<dt>row</dt><dd>(\d+)", item)[1]) - 1: item for item in items}
    assert {1, 2, 7} < set(shown)  # a back is missing, a front is upright, both are missing
    there = 0
    for row, item in shown.items():
        expected = []
        for column in ("front", "back"):
            data = frame[column][row]
            missing = data is None
            assert (f'<p class="column">{column}: no image</p>' in item) == missing
            if not missing:
                width, height = (
                    Image.open(io.BytesIO(data)).size if row != 2 or column == "back" else (40, 90)
                )
                expected += [f"as brought, {width} × {height}", "as read, 32 × 32"]
        captions = re.findall(r"<figcaption>(.*?)</figcaption>", item)
        maps = [each for each in captions if each.startswith("parts covered")]
        assert [each for each in captions if each not in maps] == expected
        assert len(maps) * 2 == len(expected)
        there += len(maps)
    assert (there * 49, there * 49) in told  # and then those of the rows that are explained
    assert "the largest square in its centre, scaled to 32 × 32 pixels" in text


def _lying(width: int, height: int) -> bytes:
    """A JPEG that is to be shown turned by a quarter."""
    exif, out = Image.Exif(), io.BytesIO()
    exif[ExifTags.Base.Orientation] = 6
    Image.linear_gradient("L").resize((width, height)).convert("RGB").save(out, "JPEG", exif=exif)
    return out.getvalue()


def test_a_model_without_images_looks_nowhere(tmp_path: Path) -> None:
    numbers(80).to_parquet(tmp_path / "t.parquet")
    words = ("--label", "kind", "--model", "lgbm", "--rounds", 2, "--out", tmp_path / "m")
    accepted("fit", tmp_path / "t.parquet", *words)
    out = ("--out", tmp_path / "r.html", "--occlusion-maps")
    assert "no images" in (said := refused("report", tmp_path / "m", tmp_path / "t.parquet", *out))
    assert "--occlusion-maps" in said


LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("crossed", "2wl_ridge", "lgbm", "bfv_dnn")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear_trees", "baseline", *LONG])
def test_where_models_look(name: str, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USBOOST_CACHE", str(tmp_path / "cache"))
    forget()  # else it would be found in memory, not written
    words = (*ROLES, "--model", name, "--rounds", 2, "--out", tmp_path / "m")
    accepted("fit", demo, *words)
    kept = set((tmp_path / "cache").rglob("*"))
    assert kept
    rows = pd.read_csv(demo)  # labels that no model finds, as only rows that are wrong are shown
    rows.assign(batch=rows["batch"].to_numpy()[::-1]).to_csv(tmp_path / "wrong.csv", index=False)
    words = (tmp_path / "wrong.csv", "--images-root", demo.parent, "--out", tmp_path / "r.html")
    accepted("report", tmp_path / "m", *words, "--occlusion-maps")
    assert "where the model looks in the image of row" in (tmp_path / "r.html").read_text()
    assert set((tmp_path / "cache").rglob("*")) == kept


@pytest.mark.parametrize("name", ["baseline", "bfv_dnn"])
def test_two_branch_networks_read_all_columns(name: str, own: UserTable, tmp_path: Path) -> None:
    rows = np.arange(len(own))
    views = own.views(own.fit_encoding(rows), rows)
    images = tuple(own.images)
    small = ImageOptions("small_cnn", "all")
    model = build(name, images=small, image_views=images, rounds=2).fit(views, own.labels)
    expected = model.predict_proba(views)
    for each in images:
        other = model.predict_proba(views.with_view(each, views[each][rows[::-1]]))
        assert np.abs(other - expected).max() > 1e-4
    np.testing.assert_array_equal(reloaded(model, tmp_path / "model").predict_proba(views), expected)
    network = model.network_ if name == "baseline" else model.network_.network_
    network.spec["views"] = network.spec["views"][:2]
    refuses("not as many as its inputs", network.check, len(own.classes))

"""One form of a fitted model, whoever wrote it: earlier commits, the pipeline, served rows; fitted again."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from tasks import mlflow_log
from tasks.served_model import ServedModel
from tests.conftest import refuses, rewritten
from tests.fit.conftest import accepted
from usboost import MultimodalClassifier, MultimodalRegressor
from usboost.datasets import census, store
from usboost.errors import UsboostError
from usboost.fit import bundle
from usboost.fit.build import build, fit
from usboost.fit.bundle import bundle_of, example_of, raw_rows
from usboost.fit.predict import score_table
from usboost.models.base import ViewsClassifier
from usboost.table import demo as user_demo
from usboost.table import prepared as user_table
from usboost.table.prepared import read_prepared
from usboost.table.spec import TableSpec

SAVED = Path(__file__).parent.parent / "models" / "saved"


def test_a_bundle_of_an_earlier_commit_says_the_same(tmp_path):
    expected = pd.read_csv(SAVED / "bundle-expected.csv")
    accepted("predict", SAVED / "bundle", SAVED / "table.csv", "--out", tmp_path / "p.parquet")
    in_python = bundle.load(SAVED / "bundle").predict(pd.read_csv(SAVED / "table.csv"))
    for found in (pd.read_parquet(tmp_path / "p.parquet"), in_python):
        assert found["label"].tolist() == expected["label"].tolist()
        # its network computes in float32, which processors sum in orders of their own
        np.testing.assert_allclose(found.iloc[:, 1:], expected.iloc[:, 1:], rtol=0, atol=1e-6)


def test_it_is_written_again_as_it_was(tmp_path):
    bundle.load(SAVED / "bundle").save(tmp_path / "again")
    again, before = ((f / "card.json").read_text() for f in (tmp_path / "again", SAVED / "bundle"))
    assert json.loads(again) == json.loads(before)


def fitted(folder: Path) -> tuple[ViewsClassifier, dict[str, float]]:
    """A small model of a prepared dataset, as the pipeline fits it."""
    (train, y), val = store.read(folder, "train"), store.read(folder, "val")
    card = store.read_card(folder)
    model = build("2wl", images="images" in card, rounds=3).fit(train, y, val)
    return model, {"accuracy": float((model.predict(val[0]) == val[1]).mean())}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The demo of a user's table, prepared as the pipeline does, and a model of it as a bundle."""
    folder = tmp_path_factory.mktemp("own")
    user_demo.write_demo(folder, rows_train=60, rows_test=30, seed=1)
    roles = {"label": user_demo.LABEL, "image": user_demo.IMAGE, "split": user_demo.SPLIT}
    made = user_table.prepare(
        folder / "table.csv", TableSpec(**roles, size=24, grey=True), seed=0, work=folder / "work"
    )
    store.write(made, folder / "prepared")
    fit(read_prepared(folder / "prepared"), "2wl", rounds=3, refit=False).bundle.save(folder / "bundle")
    return folder


def said_of(folder: Path, split: str) -> np.ndarray:
    table = read_prepared(folder / "prepared")
    return bundle.load(folder / "bundle").predicted_of(table, np.flatnonzero(table.split == split))


def test_the_pipelines_model_of_a_table_reads_the_table(own, tmp_path):
    table = pd.read_csv(own / "table.csv")
    assert table.loc[table["split"] == "val", "weight"].isna().any()
    done = accepted(
        "predict", own / "bundle", own / "table.csv", "--out", tmp_path / "p.parquet", "--batch", 7
    )
    assert done.stderr == ""
    found = pd.read_parquet(tmp_path / "p.parquet")
    for split in ("train", "val", "test"):
        rows = (table["split"] == split).to_numpy()
        np.testing.assert_allclose(found.iloc[rows, 1:], said_of(own, split), rtol=0, atol=1e-6)
    card = bundle.load(own / "bundle").card
    assert (card.table, card.dropped, card.rows) == ("table.csv", ["split"], {"train": 60, "val": 30})
    assert list(card.columns) == ["weight", "hardness", "colour", "line"]
    scored = score_table(bundle.load(own / "bundle"), own / "table.csv", card.label)
    val = (table["split"] == "val").to_numpy()
    right = scored.predicted[val].argmax(axis=1) == scored.labels[val]
    assert right.mean() == pytest.approx(card.scores["accuracy"])


def test_served_rows_are_those_of_the_table(own, caplog):
    """As MLflow hands them over: numbers with gaps, strings, and images as bytes or base64."""

    class Context:
        artifacts = {"bundle": str(own / "bundle")}  # noqa: RUF012

    served = ServedModel()
    served.load_context(Context())
    table = pd.read_csv(own / "table.csv").query("split == 'val'")
    images = [(own / path).read_bytes() for path in table["image"]]
    expected = said_of(own, "val")
    for given in (images, [base64.encodebytes(image).decode() for image in images]):
        rows = table.assign(image=given)[["image", "line", "colour", "weight", "hardness"]]
        found = served.predict(Context(), rows)
        np.testing.assert_allclose(found.iloc[:, 1:], expected, rtol=0, atol=1e-6)
    one = served.predict(Context(), rows.head(1).assign(weight=None, colour="unheard of"))
    assert np.isfinite(one.iloc[:, 1:]).all(axis=None)
    some = served.predict(Context(), rows.assign(image=[None, *rows["image"][1:]]))
    np.testing.assert_allclose(some.iloc[1:, 1:], expected[1:], rtol=0, atol=1e-6)
    none = served.predict(Context(), rows.assign(image=None))
    np.testing.assert_allclose(none.iloc[:1, 1:], some.iloc[:1, 1:], rtol=0, atol=1e-6)
    for wrong, message in (
        (rows.drop(columns="weight"), "the input lacks column 'weight', required by the model"),
        (rows.assign(image=table["image"]), "the input, row 1: column 'image' is not base64"),
        (rows.assign(line=[["a"], 1] * 15), "the input: column 'line' holds values of several types"),
        (rows.head(0).astype({"image": "str"}), "no rows to predict"),
    ):
        refuses(message, served.predict, Context(), wrong)
    caplog.clear()
    broken = [b"no image"] * len(rows)
    refuses("none of its 30 values can be read", served.predict, Context(), rows.assign(image=broken))
    damaged = served.predict(Context(), rows.assign(image=[*broken[1:], images[-1]]))
    pd.testing.assert_frame_equal(damaged.iloc[:-1], none.iloc[:-1])
    (told,) = caplog.messages
    assert told.startswith("column 'image': 29 of 30 images cannot be read and count as missing, the first: ")
    assert "the input, row 1, column 'image' is no image in a known format" in told


def test_the_example_is_a_row_of_the_table(own):
    loaded = bundle.load(own / "bundle")
    frame = store.read_frame(own / "prepared", "val")
    assert frame["weight"].isna().any()
    table = pd.read_csv(own / "table.csv").query("split == 'val'")
    rows = raw_rows(loaded.card, frame, [(own / path).read_bytes() for path in table["image"]])
    assert list(rows) == ["weight", "hardness", "colour", "line", "image"]
    np.testing.assert_array_equal(rows["weight"].isna(), table["weight"].isna())
    found = loaded.predict(rows).iloc[:, 1:]
    np.testing.assert_allclose(found, said_of(own, "val"), rtol=0, atol=1e-6)
    example = example_of(loaded.card, own / "prepared")
    pd.testing.assert_frame_equal(example.drop(columns="image"), rows.head(2).drop(columns="image"))
    np.testing.assert_allclose(loaded.predict(example).iloc[:, 1:], found[:2], rtol=0, atol=1e-6)
    assert mlflow_log.signature(loaded.card).inputs is None  # MLflow would drop a misspelt column unsaid


def test_a_papers_dataset_is_a_bundle_too(tmp_path):
    census.write_demo(tmp_path / "raw", rows_train=300, rows_test=120, seed=0)
    train, test = (tmp_path / "raw" / file.name for file in census.FILES)
    made = census.prepare(train, test, split="ci_a", seed=0, profile="demo")
    store.write(made, tmp_path / "prepared")
    card = store.read_card(tmp_path / "prepared")
    model, scores = fitted(tmp_path / "prepared")
    bundle_of(model, card, name="2wl", seed=0, scores=scores).save(tmp_path / "bundle")
    loaded = bundle.load(tmp_path / "bundle")
    assert len(loaded.encoding.encoders["U"].names) == len(card["views"]["U"])
    frame = store.read_frame(tmp_path / "prepared", "test")
    rows = raw_rows(loaded.card, frame)
    expected = loaded.model.predict_proba(store.read(tmp_path / "prepared", "test")[0])
    np.testing.assert_allclose(loaded.predict(rows).iloc[:, 1:], expected, rtol=0, atol=1e-12)
    rows.to_parquet(tmp_path / "rows.parquet")
    accepted("predict", tmp_path / "bundle", tmp_path / "rows.parquet", "--out", tmp_path / "p.parquet")
    found = pd.read_parquet(tmp_path / "p.parquet")
    np.testing.assert_allclose(found.iloc[:, 1:], expected, rtol=0, atol=1e-12)
    number = next(name for name, kind in loaded.card.columns.items() if kind == "number")
    with pytest.raises(UsboostError, match=f"numeric column '{number}' holds 1 missing"):
        loaded.predict(rows.assign(**{number: rows[number].mask(rows.index == 3)}))


RNG = np.random.default_rng(0)
SHOP = RNG.integers(1, 12, 200)
Y = np.where((SHOP % 3 == 1) ^ (RNG.uniform(size=200) < 0.15), 1, 0)
X = pd.DataFrame({"shop": SHOP, "z": RNG.normal(size=200), "leak": Y + RNG.normal(size=200) * 0.1})
ROLES = {"categorical": "shop", "drop": "leak", "missing": ("-1", "x")}


@pytest.mark.filterwarnings("ignore::usboost.UsboostWarning")
@pytest.mark.parametrize(
    "given",
    [
        {"threshold": 0.3, "class_weight": "balanced", "calibrate": False, "rounds": 7},
        {"threshold": "f1", "class_weight": {np.int64(1): 2, 0: 1.5}, "refit": False, "positive": 1},
        {"model": None, "preset": "fast", "time_limit": np.float64(600), "random_state": None, "rounds": 3},
        {"images_root": Path(), "callbacks": [], "drop": ["leak"], "group": "z"},
    ],
)
def test_all_parameters_but_those_of_the_process(given: dict[str, Any], tmp_path: Path) -> None:
    model = MultimodalClassifier(**{"model": "logistic", **ROLES, **given}).fit(X, Y)
    model.save(tmp_path / "m")
    loaded = MultimodalClassifier.load(tmp_path / "m")
    before, after = model.get_params(), loaded.get_params()
    if isinstance(by_label := before["class_weight"], dict):  # as labels are named
        before["class_weight"] = {str(label): weight for label, weight in by_label.items()}
    for name in before.keys() - {"callbacks", "images_root", "random_state"}:
        kept = before[name]
        assert after[name] == (list(kept) if isinstance(kept, tuple) else kept), name
    expected = model.predict_proba(X)
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    if given.get("random_state", 0) is not None and "time_limit" not in given:
        again = clone(loaded).fit(X, Y)
        np.testing.assert_array_equal(again.predict_proba(X), expected)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert cross_val_score(loaded, X, Y, cv=2).mean() < 0.95  # the dropped column is not read


@pytest.mark.filterwarnings("ignore::usboost.UsboostWarning")
def test_those_that_a_command_was_given(tmp_path: Path) -> None:
    X.assign(y=Y, w=1.0).to_csv(tmp_path / "t.csv", index=False)
    options = ("--categorical", "shop", "--drop", "leak", "--weight", "w", "--rounds", 7, "--no-calibrate")
    fit = ("fit", tmp_path / "t.csv", "--label", "y", "--model", "logistic", "--threshold", "0.3")
    accepted(*fit, *options, "--out", tmp_path / "m")
    loaded = MultimodalClassifier.load(tmp_path / "m")
    kept = loaded.get_params()
    assert (kept["rounds"], kept["threshold"]) == (7, 0.3)
    assert (kept["calibrate"], kept["model"]) == (False, "logistic")
    assert (kept["categorical"], kept["drop"]) == (["shop"], ["leak", "w"])
    again = clone(loaded).fit(X.assign(w=1.0), Y)
    np.testing.assert_allclose(again.predict_proba(X.assign(w=2.0)), loaded.predict_proba(X.assign(w=2.0)))


def test_a_card_sets_nothing_else(tmp_path: Path) -> None:
    MultimodalRegressor("ridge", drop="leak").fit(X, X.z * 2).save(tmp_path / "m")
    with rewritten(tmp_path / "m/card.json") as document:
        document["parameters"] |= {"images_root": "/", "callbacks": [1], "bundle_": 1, "fit": 2, "rounds": 9}
    loaded = MultimodalRegressor.load(tmp_path / "m")
    assert (loaded.images_root, loaded.callbacks, loaded.rounds, loaded.drop) == (None, None, 9, "leak")
    with rewritten(tmp_path / "m/card.json") as document:
        del document["parameters"]  # of a model that was saved before
    assert MultimodalRegressor.load(tmp_path / "m").model == "ridge"

"""A user's own table with images: splits, missing values, views, and paths that equal bytes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.conftest import refuses
from usboost.data.images import Images
from usboost.data.views import Views
from usboost.datasets import store
from usboost.datasets.image_files import load
from usboost.datasets.store import Prepared
from usboost.errors import UsboostError
from usboost.files.arrays import sha256
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.tree_learner import TreeLearner
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier
from usboost.report.inspection import PER_CLASS, sample_images
from usboost.table import demo as user_demo
from usboost.table import prepared as user_table
from usboost.table.columns.encoding import Encoding
from usboost.table.prepared import SPLITS, read_prepared
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    user_demo.write_demo(folder, rows_train=120, rows_test=30, seed=2)
    return folder


def prepare(table: Path, work: Path | None, progress: Any = None, **options: Any) -> Prepared:
    roles = {"label": user_demo.LABEL, "image": user_demo.IMAGE, "split": user_demo.SPLIT}
    spec = TableSpec(**{**roles, "size": 24, "grey": True, **options})
    return user_table.prepare(table, spec, seed=0, work=work, progress=progress)


def test_the_demo_is_prepared_with_its_images(demo: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    made = prepare(demo / "table.csv", tmp_path / "w", progress=lambda *c: calls.append(c))
    store.write(made, tmp_path / "user_table")
    table, own = pd.read_csv(demo / "table.csv"), read_prepared(tmp_path / "user_table")
    assert made.classes == ["mixed", "plates", "wedges"] and calls[-1] == (180, 180)
    assert [made.classes[code] for code in own.labels] == table["batch"].tolist()
    assert own.split.tolist() == table["split"].tolist()
    assert list(own.features) == ["weight", "hardness", "colour", "line"]
    np.testing.assert_array_equal(own.features["weight"], table["weight"])
    for k in (0, 70, 179):
        expected = load(demo / table["image"].iloc[k], size=24, channels=1)
        np.testing.assert_array_equal(own.images["U"].pixels[k], expected)
    refuses("holds a table as read", store.read, tmp_path / "user_table", "train")


@pytest.mark.parametrize("size", [24, 100])
def test_it_is_read_again_as_the_file_is(demo: Path, tmp_path: Path, size: int) -> None:
    """Also in another order than that of the splits, and with a category that no labelled row has."""
    table = pd.read_csv(demo / "table.csv").sample(frac=1, random_state=0)
    table["day"] = pd.date_range("2020-01-01", periods=180, freq="7h").strftime("%d/%m/%Y %H:%M")
    table["note"] = [f"number {k} of a few, seen once" for k in range(180)]
    table["cost"] = [f"{k % 90},{k % 10} €" for k in range(180)]
    table["name"] = [f"n-{k * 7919}" for k in range(180)]
    table.iloc[4, table.columns.get_loc("batch")] = None
    table.iloc[4, table.columns.get_loc("colour")] = "of no other"
    table.iloc[9, table.columns.get_loc("image")] = None
    table["back"] = table["image"].to_numpy()[::-1]
    (tmp_path / "t").mkdir()
    (tmp_path / "t/images").symlink_to(demo / "images")
    table.to_csv(tmp_path / "t/table.csv", index=False)
    roles = {"label": "batch", "image": ["image", "back"], "text": ["note"], "missing": ["nothing"]}
    roles |= {"drop": ["hardness"], "categorical": ["line"], "images_root": demo}
    read = read_table(tmp_path / "t/table.csv", TableSpec(**roles, split="split", size=size))
    made = user_table.prepare(
        tmp_path / "t/table.csv", TableSpec(**roles, split="split", size=size), seed=0, work=tmp_path / "w"
    )
    store.write(made, tmp_path / "p")
    again = read_prepared(tmp_path / "p")
    pd.testing.assert_frame_equal(again.features, read.features)
    assert "of no other" in again.features["colour"].cat.categories
    for name in ("labels", "rows", "split"):
        mine, theirs = getattr(again, name), getattr(read, name)
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    assert again.spec == replace(read.spec, images_root=None)
    for name in ("classes", "label_kind", "unlabelled", "formats", "left_out", "form", "without"):
        assert getattr(again, name) == getattr(read, name), name
    assert again.formats and again.left_out and again.unlabelled == 1
    assert list(again.images) == list(read.images) == ["U:image", "U:back"]
    for name, view in read.images.items():
        np.testing.assert_array_equal(again.images[name].pixels, view.pixels)
        np.testing.assert_array_equal(again.images[name].absent, view.absent)
    assert (again.file.digest(), again.file.path.name) == (read.file.digest(), "table.csv")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda card: card.pop("label_kind"), "holds no own table as this version prepares it"),
        (lambda card: card["columns"].update(more={"kind": "number"}), "lacks the column 'more'"),
        (lambda card: card["columns"]["age"].update(kind="date"), "the column 'age' is no date"),
        (lambda card: card["roles"].pop("text"), "roles.text: Field required; prepare the dataset again"),
        (lambda card: card["formats"].update(age={"order": "x"}), "formats.age.order"),
    ],
)
def test_a_changed_card_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    store.write(made_of(plain(tmp_path)), tmp_path / "p")
    card = store.read_card(tmp_path / "p")
    change(card)
    (tmp_path / "p/card.json").write_text(json.dumps(card))
    refuses(said, read_prepared, tmp_path / "p")


def test_paths_and_bytes_give_the_same_rows_and_model(demo: Path, tmp_path: Path) -> None:
    table = pd.read_csv(demo / "table.csv")
    images = [(demo / path).read_bytes() for path in table["image"]]
    table.assign(image=images).to_parquet(tmp_path / "table.parquet", row_group_size=50)
    for number, source in enumerate((demo / "table.csv", tmp_path / "table.parquet")):
        store.write(prepare(source, tmp_path / f"w{number}"), tmp_path / f"p{number}")
    files = sorted(path.relative_to(tmp_path / "p0") for path in (tmp_path / "p0").rglob("*.parquet"))
    assert len(files) == 6
    for file in files:
        assert (tmp_path / "p0" / file).read_bytes() == (tmp_path / "p1" / file).read_bytes()
    cards = [store.read_card(tmp_path / f"p{number}") for number in range(2)]
    assert {key for key in cards[0] if cards[0][key] != cards[1][key]} == {"sources"}
    predictions = []
    for number in range(2):
        train, y = views_of(tmp_path / f"p{number}", "train")
        learners = {"U": NetworkLearner((4,), device="cpu"), "S": TreeLearner()}
        model = TwoWeakLearnerClassifier(learners, n_rounds=2).fit(train, y)
        predictions.append(model.predict_proba(train))
    np.testing.assert_array_equal(*predictions)


def views_of(folder: Path, split: str) -> tuple[Views, np.ndarray]:
    """Some rows of a prepared table, encoded as all training rows say."""
    own = read_prepared(folder)
    encoding = own.fit_encoding(np.flatnonzero(own.split == "train"))
    rows = np.flatnonzero(own.split == split)
    return own.views(encoding, rows), own.labels[rows]


def with_gaps(demo: Path, folder: Path, kind: str) -> tuple[Path, pd.DataFrame]:
    """The demo with a second column of images, gaps in both, and one file that is no image (row 8)."""
    table = pd.read_csv(demo / "table.csv")
    table["back"] = table["image"].to_numpy()[::-1]
    for row, name in ((0, "image"), (3, "back"), (5, "image"), (5, "back"), (150, "image")):
        table.loc[row, name] = None
    folder.mkdir()
    if kind == "parquet":
        for name in ("image", "back"):
            data = [None if p is None or p != p else (demo / p).read_bytes() for p in table[name]]
            table[name] = data
        table.loc[3, "back"] = b""
        table.loc[8, "image"] = b"damaged"
        table.to_parquet(folder / "t.parquet", row_group_size=50)
        return folder / "t.parquet", table
    (folder / "images").mkdir()
    for path in (demo / "images").iterdir():
        (folder / "images" / path.name).write_bytes(path.read_bytes())
    table.loc[3, "back"] = "images/nowhere.png"
    table.loc[8, "image"] = "damaged.png"
    (folder / "damaged.png").write_bytes(b"damaged")
    table.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv", table


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_may_lack_images_and_have_several(demo: Path, tmp_path: Path, kind: str) -> None:
    path, _ = with_gaps(demo, tmp_path / "t", kind)
    columns = {"image": ["image", "back"]}
    refuses("is no image in a known format", prepare, path, tmp_path / "w", **columns)
    made = prepare(path, tmp_path / "w", **columns, skip_unreadable=True)
    about = made.card["images"]
    assert about["columns"] == ["image", "back"] and about["unreadable"] == 1
    assert about["without"] == {"train": 3, "val": 0, "test": 1, "train-2": 2, "val-2": 0, "test-2": 0}
    store.write(made, tmp_path / "p")
    plain = pd.read_csv(demo / "table.csv")["image"].to_numpy()
    own = read_prepared(tmp_path / "p")
    assert list(own.images) == ["U:image", "U:back"]
    gaps = ({0, 5, 8, 150}, {3, 5})
    for view, missing, paths in zip(own.images.values(), gaps, (plain, plain[::-1])):
        expected = np.stack([load(demo / name, size=24, channels=1) for name in paths])
        absent = np.isin(np.arange(len(own)), list(missing))
        expected[absent] = 0
        np.testing.assert_array_equal(view.pixels, expected)
        np.testing.assert_array_equal(view.absent, absent)
    # one column alone is a view of its own, as before
    one = prepare(path, tmp_path / "w1", skip_unreadable=True, drop=["back"])
    store.write(one, tmp_path / "p1")
    alone = read_prepared(tmp_path / "p1").images
    assert list(alone) == ["U"] and np.flatnonzero(alone["U"].absent).tolist() == [0, 5, 8, 150]
    # the report's samples are of rows that have one; rows 0, 5 and 8 are the first of their classes
    shown = sample_images(tmp_path / "p1", store.read_card(tmp_path / "p1"))
    assert [name for name, _ in shown] == one.classes and {len(some) for _, some in shown} == {PER_CLASS}


def test_a_model_adds_nothing_for_a_missing_image(demo: Path, tmp_path: Path) -> None:
    path, _ = with_gaps(demo, tmp_path / "t", "csv")
    store.write(prepare(path, tmp_path / "w", skip_unreadable=True, drop=["back"]), tmp_path / "p")
    train, y = views_of(tmp_path / "p", "train")
    learners = {"U": NetworkLearner((4,), device="cpu"), "S": TreeLearner()}
    model = TwoWeakLearnerClassifier(learners, n_rounds=3).fit(train, y)
    assert np.flatnonzero(train["U"].absent).tolist() == [0, 5, 8]
    pixels = train["U"].pixels.copy()
    pixels[[0, 5, 8]] = 99
    other = train.with_view("U", Images(pixels, absent=train["U"].absent))
    np.testing.assert_array_equal(model.predict_proba(other), model.predict_proba(train))
    seen = train.with_view("U", Images(pixels))
    assert (model.predict_proba(seen) != model.predict_proba(train))[[0, 5, 8]].any()


def test_equal_arguments_write_equal_demos(demo: Path, tmp_path: Path) -> None:
    user_demo.write_demo(tmp_path, rows_train=120, rows_test=30, seed=2)
    files = sorted(path.relative_to(demo) for path in demo.rglob("*.*"))
    assert len(files) == 181
    assert all((demo / file).read_bytes() == (tmp_path / file).read_bytes() for file in files)
    with Image.open(demo / "images" / "00000.png") as opened:
        assert opened.size == (48, 48)
    refuses("must be 3 or more", user_demo.write_demo, tmp_path, rows_train=2, rows_test=30, seed=2)


def made_of(path: Path, **roles: Any) -> Prepared:
    return user_table.prepare(path, TableSpec(label="y", **roles), seed=0)


GAPS = np.where(np.arange(200) % 10 == 0, np.nan, np.arange(200.0))


def plain(folder: Path, n: int = 200, **columns: Any) -> Path:
    """A table without images."""
    rng = np.random.default_rng(n)
    frame = pd.DataFrame(
        {
            "y": np.resize(["a", "b", "b", "c"], n),
            "age": rng.integers(20, 60, n).astype(float),
            "pay": rng.normal(size=n),
            "town": rng.choice(["Rome", "Oslo"], n),
            "same": 7.0,
            **columns,
        }
    )
    frame.to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def test_without_images_both_views_are_the_whole_table(tmp_path: Path) -> None:
    store.write(made_of(plain(tmp_path, age=GAPS)), tmp_path / "p")
    views, _ = views_of(tmp_path / "p", "train")
    assert views.names == ("U", "S") and views["U"] is views["S"]
    assert views["S"].names == ("age", "age_missing", "pay", "same", "town")


def test_new_rows_are_completed_as_the_training_rows(tmp_path: Path) -> None:
    own = read_table(plain(tmp_path, age=GAPS, never=np.full(200, np.nan)), TableSpec(label="y"))
    rule = own.fit_encoding(np.arange(150)).imputation
    assert rule.pop("never") == {"value": 0, "indicator": True}
    assert rule["age"] == {"value": np.nanmedian(GAPS[:150]), "indicator": True}
    rows = pd.DataFrame({"age": [np.nan, 3], "pay": [1.0, np.nan], "town": ["Oslo", None], "same": [7.0, 8]})
    found = Encoding(rule, {}).complete(rows)
    assert list(found) == ["age", "age_missing", "pay", "town", "same"]
    assert found["age"].tolist() == [rule["age"]["value"], 3] and found["age_missing"].tolist() == [1, 0]
    assert found["pay"][1] == rule["pay"]["value"]
    assert rows["age"].isna()[0]


def test_tables_that_cannot_be_split_or_cut_are_refused(tmp_path: Path) -> None:
    def given_split(first: list[str]) -> Path:
        split = np.resize(["train", "val", "test"], 30)
        y = np.array(["a", "b"] * 15)
        split[:3] = ["train", "val", "test"]
        y[: len(first)] = first
        return plain(tmp_path, 30, y=y, s=split)

    train_of_one_class = plain(
        tmp_path, 30, y=["a"] * 20 + ["b"] * 10, s=["train"] * 20 + ["val"] * 5 + ["test"] * 5
    )
    refuses("the training rows are all of class 'a'", made_of, train_of_one_class, split="s")
    refuses("class 'c' of 'y' is in no training row", made_of, given_split(["a", "c", "c"]), split="s")
    clash = plain(tmp_path, age=GAPS, age_missing=0.0)
    refuses("the column 'age_missing' has the name of an indicator", made_of, clash)


def test_a_number_to_predict_unless_it_is_called_a_class(tmp_path: Path) -> None:
    ages = np.resize(np.arange(18, 40), 60)  # more whole numbers than are taken for classes
    path = plain(tmp_path, 60, y=ages)
    made = made_of(path, categorical=["y"])
    assert made.classes == sorted(set(map(str, ages)))
    assert made_of(path, task="classification").classes == made.classes
    pay = np.random.default_rng(0).normal(1e6, 3e5, 60)
    pay[[3, 50]] = np.nan  # rows without a label are left out
    folder = tmp_path / "prepared"
    made = made_of(plain(tmp_path, 60, y=pay))
    store.write(made, folder)
    card = store.read_card(folder)
    assert (made.classes, store.task_of(card), card["unlabelled"]) == ([], "regression", 2)
    own = read_prepared(folder)
    found = {split: own.labels[own.split == split] for split in SPLITS}
    assert {split: len(y) for split, y in found.items()} == {"train": 41, "val": 8, "test": 9}
    np.testing.assert_array_equal(own.labels, pay[np.isfinite(pay)])
    for split, y in found.items():
        about = card["splits"][split]
        assert y.dtype == np.float64 and list(about) == ["rows", "label", "sha256"]
        assert about["label"] == pytest.approx(
            {"mean": y.mean(), "std": y.std(), "min": y.min(), "max": y.max()}
        )
    frame = store.read_frame(folder, "train")
    frame.loc[0, store.LABEL] = np.inf
    frame.to_parquet(folder / "train.parquet", index=False)
    card["splits"]["train"]["sha256"] = sha256(folder / "train.parquet")
    (folder / "card.json").write_text(json.dumps(card))
    refuses(r"train\.parquet: 'label' must be finite numbers; prepare", read_prepared, folder)


def test_a_given_split_of_a_number(tmp_path: Path) -> None:
    y, split = np.arange(20) / 7, np.resize(["train", "train", "val", "test"], 20)
    given = plain(tmp_path, 20, y=y, part=split)
    made = made_of(given, split="part")
    assert made.splits["val"][store.LABEL].tolist() == y[split == "val"].tolist()
    alike = plain(tmp_path, 20, y=np.where(split == "train", 0.5, y), part=split)
    refuses(r"the label 'y' is 0\.5 in all training rows", made_of, alike, split="part")


def test_wrong_images_are_named(demo: Path, tmp_path: Path) -> None:
    table = pd.read_csv(demo / "table.csv")
    folder = tmp_path / "t"
    (folder / "images").mkdir(parents=True)
    for path in table["image"]:
        (folder / path).write_bytes((demo / path).read_bytes())
    (tmp_path / "secret.png").write_bytes((demo / "images" / "00000.png").read_bytes())
    (folder / "empty.png").write_bytes(b"")
    (folder / "cut.png").write_bytes((demo / "images" / "00000.png").read_bytes()[:80])
    for value, message in (
        ("../secret.png", r"table\.csv, row 5: '\.\./secret\.png' is not a path inside"),
        (str(tmp_path / "secret.png"), "row 5: .* holds an absolute path"),
        ("images", "row 5, 'images' is not a file"),
        ("empty.png", r"row 5, 'empty\.png' is empty"),
        ("cut.png", r"row 5, 'cut\.png' cannot be read as an image"),
        ("table.csv", r"row 5, 'table\.csv' is no image"),
    ):
        changed = table.copy()
        changed.loc[4, "image"] = value
        changed.to_csv(folder / "table.csv", index=False)
        refuses(message, prepare, folder / "table.csv", tmp_path / "w")
    changed["image"] = "images/nowhere.png"
    changed.to_csv(folder / "table.csv", index=False)
    with pytest.raises(UsboostError, match=r"'image' holds no image at all: no file .*nowhere\.png, say"):
        prepare(folder / "table.csv", tmp_path / "w")
    changed["image"] = table["image"].mask(table["split"] == "train")
    changed.to_csv(folder / "table.csv", index=False)
    refuses("'image' has no image to train on", prepare, folder / "table.csv", tmp_path / "w")
    changed = table.assign(split=table["split"].replace("test", "val"))
    changed.to_csv(folder / "table.csv", index=False)
    refuses("no row's split is test", prepare, folder / "table.csv", tmp_path / "w")
    refuses("name one with work", prepare, demo / "table.csv", None)


@pytest.mark.parametrize("offset", [20_230_105, 1_700_000_000, -1e12])
def test_numbers_far_from_0_are_centred_before_they_are_rounded(offset: float) -> None:
    """A float32 has 24 bits: dates as whole numbers, seconds since 1970 would fall together."""
    steps = np.arange(200) % 17
    frame = pd.DataFrame({"t": offset + steps, "gaps": np.where(steps == 3, np.nan, offset + steps)})
    table = Encoding.fit(frame, ["S"]).views(frame)["S"]
    expected = (steps - steps.mean()) / steps.std()
    np.testing.assert_allclose(table.numeric[:, 0], expected, atol=1e-5)
    assert len(np.unique(table.numeric[steps != 3, 1])) == 16

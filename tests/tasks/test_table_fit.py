"""A user's table takes one way: command line, Python and pipeline predict the same, bit for bit."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml
from mlflow.tracking import MlflowClient

from tasks import settings as reading
from tasks import tuning
from tasks.catalog import DATASETS
from tasks.fits import fit_cell as training
from tasks.fits.models import plan
from tests.fit.conftest import accepted
from tests.workspaces import mlflow_store
from usboost.boosting.checkpoint import Checkpoint
from usboost.datasets import store
from usboost.fit import bundle
from usboost.fit.estimator import MultimodalClassifier, MultimodalRegressor
from usboost.table.demo import write_demo
from usboost.table.prepared import read_prepared

pytestmark = pytest.mark.slow
PARAMS = Path(__file__).parents[2] / "params.yaml"
WORDS = np.array(["worn", "polished", "bent", "greased", "new", "scratched", "drilled", "painted"])
ROWS, SIZE, SEED = (90, 40), 80, 1


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's table and images, with gaps in both, a date, a text, another image, a number to predict,
    an identifier, and a row without labels; `split` divides it, in no order."""
    folder = tmp_path_factory.mktemp("parts")
    write_demo(folder, rows_train=ROWS[0], rows_test=ROWS[1], seed=4)
    table, rng = pd.read_csv(folder / "table.csv"), np.random.default_rng(0)
    n = len(table)
    table["back"] = table["image"].to_numpy()[::-1]
    table["seen"] = pd.date_range("2021-03-01", periods=n, freq="31h").strftime("%d/%m/%Y %H:%M")
    table["note"] = [" ".join(rng.choice(WORDS, rng.integers(3, 7))) for _ in range(n)]
    table["price"] = 1000 + table["hardness"] * 5 + rng.normal(0, 2, n)
    table["id"] = [f"part-{k:04d}-{k * 7919 % 1000}" for k in range(n)]
    for step, name in ((9, "image"), (7, "back"), (11, "seen"), (13, "note"), (17, "colour")):
        table.loc[table.index % step == 3, name] = None
    table.loc[5, ["batch", "price"]] = None
    table = table.sample(frac=1, random_state=1)
    table.to_csv(folder / "table.csv", index=False)
    table[table["split"] == "test"].to_csv(folder / "test.csv", index=False)
    return folder


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USBOOST_CACHE", str(tmp_path / "cache"))
    with mlflow_store(tmp_path):
        yield tmp_path


def settings_of(table: Path, label: str, images: list[str], drop: list[str], **own: Any) -> reading.Settings:
    document = yaml.safe_load(PARAMS.read_text()) | {"profile": "user", "device": "cpu"}
    given = {"label": label, "image": images or None, "drop": drop, "split": "split", "text": ["note"]}
    document["user_table"] |= {"table": str(table), **given, **own}
    document["profiles"]["user"] |= {"rounds": 4, "data": {"user_table": {"image_size": SIZE}}}
    return reading.parse(document)


def prepared(settings: reading.Settings) -> Path:
    """The pipeline's own preparation, in the workspace's folder."""
    dataset, folder = DATASETS["user_table"], Path("data/prepared/user_table")
    Path("raw").mkdir(exist_ok=True)
    dataset.obtain(Path("raw"), settings, Path())
    store.write(dataset.prepare(Path("raw"), settings, Path("work"), None), folder)
    return folder


def fitted(model: str, settings: reading.Settings, kept: Checkpoint | None = None) -> dict[str, Any]:
    """A fit of the pipeline; the bundle that it has logged, the record, and the test rows."""
    planned = plan("user_table", model, SEED, settings)
    out = Path("out")
    out.mkdir(exist_ok=True)
    name = f"fit-{model}"
    made = mlflow.get_experiment_by_name(name)
    experiment = (
        made.experiment_id if made else mlflow.create_experiment(name, Path("runs", name).resolve().as_uri())
    )
    logged = MlflowClient().create_run(experiment)
    record = training.fit(
        planned, out, logged.info.run_id, kept or Checkpoint(Path("unkept", model), planned.identity)
    )
    # what ends the run is not that its model is logged: the results are still to come
    assert MlflowClient().get_run(logged.info.run_id).info.status == "RUNNING"
    (card,) = Path("runs", name).rglob("bundle/card.json")
    return {
        "bundle": bundle.load(card.parent),
        "record": record,
        "rows": pd.read_parquet(out / "rows.parquet"),
        "run": MlflowClient().get_run(logged.info.run_id),
    }


IMAGES = {"without": [], "one": ["image"], "two": ["image", "back"]}
CASES = [
    ("batch", "one", "linear_trees"),
    ("batch", "two", "2wl"),
    ("batch", "without", "crossed"),
    ("batch", "without", "bfv_dnn"),
    ("batch", "two", "baseline"),
    ("price", "two", "ridge"),
]


@pytest.mark.parametrize(("label", "images", "model"), CASES)
def test_all_ways_predict_the_same(parts: Path, workspace: Path, label: str, images: str, model: str) -> None:
    images = IMAGES[images]
    drop = [*({"batch", "price"} - {label}), *({"image", "back"} - set(images))]
    settings = settings_of(parts / "table.csv", label, images, drop)
    prepared(settings)
    pipeline = fitted(model, settings)
    test = pd.read_csv(parts / "test.csv")
    words = ["--split", "split", "--text", "note", "--rounds", 4, "--device", "cpu"]
    words += [*(word for name in images for word in ("--image", name)), *["--size", SIZE][: 2 * len(images)]]
    words += [word for name in drop for word in ("--drop", name)]
    accepted(
        *("fit", parts / "table.csv", "--label", label, "--model", model, "--seed", SEED),
        *(*words, "--out", workspace / "model"),
    )
    accepted("predict", workspace / "model", parts / "test.csv", "--out", workspace / "p.parquet")
    expected = pd.read_parquet(workspace / "p.parquet")
    # the pipeline's logged model, on the file
    done = run_bundle(pipeline["bundle"], workspace, parts / "test.csv")
    pd.testing.assert_frame_equal(done, expected, rtol=0, atol=0)
    # what it was scored by
    rows = pipeline["rows"]
    if label == "price":
        np.testing.assert_array_equal(rows["prediction"], expected["prediction"])
        np.testing.assert_array_equal(rows["label"], test["price"])
    else:
        probabilities = expected.filter(like="p_").to_numpy()
        np.testing.assert_array_equal(rows.filter(like="p_"), probabilities.astype(np.float32))
        assert [pipeline["bundle"].card.classes[code] for code in rows["label"]] == test["batch"].tolist()
    # one card, but for the parameters of an estimator
    both = pipeline["bundle"], bundle.load(workspace / "model")
    cards = [each.card.model_dump(exclude={"parameters"}) for each in both]
    assert cards[0] == cards[1]
    made: Any = MultimodalRegressor if label == "price" else MultimodalClassifier
    estimator = made(
        model, image=images, drop=drop, text="note", split="split", size=SIZE, rounds=4, device="cpu",
        random_state=SEED, images_root=parts,
    )  # fmt: skip
    frame = pd.read_csv(parts / "table.csv", dtype={"seen": "str"})
    labelled = frame.dropna(subset=[label])
    estimator.fit(labelled.drop(columns=label), labelled[label])
    said = estimator.predict_frame(test.drop(columns=label))
    pd.testing.assert_frame_equal(said, expected, rtol=0, atol=0, check_dtype=False)


def run_bundle(found: bundle.Bundle, workspace: Path, table: Path) -> pd.DataFrame:
    found.save(workspace / "again")
    accepted("predict", workspace / "again", table, "--out", workspace / "q.parquet")
    return pd.read_parquet(workspace / "q.parquet")


def test_a_split_that_is_drawn_is_the_tables(parts: Path, workspace: Path) -> None:
    """The command line gives the same, told that split by a column."""
    drop = ["price", "image", "back", "split"]
    settings = settings_of(parts / "table.csv", "batch", [], drop, split=None)
    own = read_prepared(prepared(settings))
    assert dict(zip(*np.unique(own.split, return_counts=True))) == {"train": 118, "val": 26, "test": 25}
    mine = fitted("crossed", settings)["bundle"]
    table = (
        pd.read_csv(parts / "table.csv", dtype={"seen": "str"}).dropna(subset=["batch"]).drop(columns="split")
    )
    assert own.rows.tolist() == np.flatnonzero(pd.read_csv(parts / "table.csv")["batch"].notna()).tolist()
    table.assign(part=own.split).to_csv("split.csv", index=False)
    words = ["--drop", "price", "--drop", "image", "--drop", "back", "--rounds", 4, "--text", "note"]
    accepted(
        *("fit", workspace / "split.csv", "--label", "batch", "--model", "crossed", "--seed", SEED),
        *(*words, "--split", "part", "--device", "cpu", "--out", workspace / "model"),
    )
    theirs = bundle.load(workspace / "model")
    rows = table.drop(columns="batch")
    pd.testing.assert_frame_equal(mine.predict(rows), theirs.predict(rows), rtol=0, atol=0)
    # what it was fitted to takes no part of the test rows, and all others
    assert mine.card.rows == {"train": 118 + 26, "val": 0}


DROP = ["price", "image", "back"]


def test_test_rows_are_in_the_scores_only(parts: Path, workspace: Path) -> None:
    frame = pd.read_csv(parts / "table.csv", dtype={"seen": "str"})

    def fit(number: int, spoiled: str | None) -> tuple[bytes, dict[str, Any]]:
        given, rows = frame.copy(), frame["split"] == spoiled
        given.loc[rows, "weight"] = np.where(np.arange(rows.sum()) % 2, np.nan, 1e6)
        given.loc[rows, "hardness"] = -1e6
        given.loc[rows, "colour"] = "never seen"
        given.loc[rows, "note"] = "zebras walk beside zebras"
        given.loc[rows, "seen"] = "01/01/1971 00:00"
        given.loc[rows, "batch"] = np.roll(given.loc[rows, "batch"].to_numpy(), 1)
        given.to_csv("table.csv", index=False)
        settings = settings_of(workspace / "table.csv", "batch", [], DROP)
        prepared(settings)
        shutil.rmtree("runs", ignore_errors=True)
        shutil.rmtree("unkept", ignore_errors=True)
        made = fitted("2wl", settings)
        card = made["bundle"].card.model_dump()
        return json.dumps({**card, "sha256": "", "table": ""}).encode(), made["record"]["scores"]

    clean, scores = fit(0, None)
    spoiled, worse = fit(1, "test")
    assert spoiled == clean and worse["val"] == scores["val"] and worse["test"] != scores["test"]
    assert fit(2, "train")[0] != clean


def test_a_fit_that_stopped_goes_on(parts: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(parts / "table.csv", "batch", [], DROP)
    prepared(settings)
    whole = fitted("2wl", settings)["bundle"]
    shutil.rmtree("runs")
    planned = plan("user_table", "2wl", SEED, settings)
    kept = Checkpoint(Path("kept"), planned.identity)
    with monkeypatch.context() as patch:
        patch.setattr(training.log, "log_model", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fitted("2wl", settings, kept)
    rounds = {path: path.stat().st_mtime_ns for path in Path("kept").rglob("round-*")}
    assert {path.parent.name for path in rounds} == {"kept", "all-rows"}
    again = fitted("2wl", settings, Checkpoint(Path("kept"), planned.identity))
    assert {path: path.stat().st_mtime_ns for path in Path("kept").rglob("round-*")} == rounds
    test = pd.read_csv(parts / "test.csv").drop(columns="batch")
    pd.testing.assert_frame_equal(again["bundle"].predict(test), whole.predict(test), rtol=0, atol=0)
    # MLflow has the rounds of the first fit alone
    steps = MlflowClient().get_metric_history(again["run"].info.run_id, "risk/train")
    assert [each.step for each in steps] == list(range(1, again["record"]["rounds"] + 1))


def test_a_search_reads_training_and_validation_rows(parts: Path, workspace: Path) -> None:
    settings = settings_of(parts / "table.csv", "batch", ["image", "back"], ["price"])
    own = read_prepared(prepared(settings))
    task, spaces = tuning._task("user_table", ["2wl", "bfv_dnn"], settings, 0, "log_loss")
    assert set(spaces) == {"2wl", "bfv_dnn"}  # which fits its GBM itself, so that its settings are its own
    (part,) = task.parts
    assert part.train[0].names == part.test[0].names == ("U:image", "U:back", "S")
    for split, (_, y, _) in (("train", part.train), ("val", part.val), ("val", part.test)):
        np.testing.assert_array_equal(y, own.labels[own.split == split])


def test_what_is_inspected_are_rows_as_they_were(parts: Path, workspace: Path) -> None:
    settings = settings_of(parts / "table.csv", "batch", ["image", "back"], ["price"])
    prepared(settings)
    monkeyed = plan("user_table", "1wl_s", 0, settings)
    experiment = mlflow.create_experiment("inspected", Path("runs").resolve().as_uri())
    run_id = MlflowClient().create_run(experiment).info.run_id
    Path("out").mkdir()
    training.fit(monkeyed, Path("out"), run_id, Checkpoint(Path("unkept"), monkeyed.identity))
    found = json.loads(Path("out/inspection/inspection.json").read_text())
    assert found["worst"]
    for each in found["worst"]:
        assert set(each["values"]) <= {"weight", "hardness", "colour", "line", "seen", "note"}

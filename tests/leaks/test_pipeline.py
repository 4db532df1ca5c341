"""The pipeline's fits: test rows are in their scores only, in folds, splits and embeddings alike."""

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from mlflow.tracking import MlflowClient
from sklearn.model_selection import KFold, StratifiedKFold

from benchmarks.study import cells as study
from benchmarks.study.plan import Cell, Part
from tasks import settings as reading
from tasks.fits import fit_cell as training
from tasks.fits.models import plan
from tests.conftest import ROOT
from tests.leaks.probes import training as rounds_of
from tests.leaks.probes import watched
from tests.workspaces import mlflow_store
from usboost import Checkpoint, Images, Views
from usboost.data.encoding import TableEncoder
from usboost.datasets import store
from usboost.evaluation import metrics
from usboost.learners.networks.backbones import Backbone, embedded

PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text())
SIZES = PARAMS["profiles"]["demo"]
SIZES["networks"] |= {"epochs": 2, "batch_size": 32, "head": [4]}
SIZES["boosting"] |= {"rounds": 3, "head": [4]}
PARAMS |= {"device": "cpu", "external_baselines": {"n_trees": 40, "learning_rate": 0.3, "patience": 5}}
PARAMS["bnn"] = {"loss": "squared", "hidden": 4, "epochs": 2, "rounds": 2}
SETTINGS = reading.parse(PARAMS)
NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with mlflow_store(tmp_path_factory.mktemp("mlflow")):
        yield


@pytest.fixture
def run_id(database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that has the model already, which takes longest; the workspace is an empty folder."""
    monkeypatch.chdir(tmp_path)
    name = tmp_path.name
    run = MlflowClient().create_run(mlflow.create_experiment(name, (tmp_path / "artifacts").as_uri()))
    MlflowClient().set_tag(run.info.run_id, "usboost.model_logged", "true")
    return str(run.info.run_id)


def frame_of(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 4)).astype(np.float32), columns=NAMES)
    frame[store.LABEL] = (frame["a"] * frame["c"] + frame["b"] + rng.normal(size=n) > 0).astype(np.int8)
    return frame


def spoiled(frame: pd.DataFrame) -> pd.DataFrame:
    """Far numbers, every label the other one."""
    return (frame * 50 + 3).assign(label=1 - frame[store.LABEL]).astype(frame.dtypes)


def write(
    dataset: str,
    splits: dict[str, pd.DataFrame],
    views: dict[str, list[str]],
    classes: tuple[str, ...] = ("no", "yes"),
    **more: Any,
) -> None:
    """Prepare a dataset anew in the workspace."""
    columns = {
        name: {"view": view, "kind": "continuous", "why": "a number"}
        for view, names in views.items()
        for name in names
    }
    columns[store.LABEL] = {"view": None, "kind": "label", "why": "what is predicted"}
    about = {"profile": "demo", "seed": 0, "columns": columns, "sources": {}}
    card = store.describe(splits, views, classes, dataset=dataset, **about, **more)
    images = Path("drawn") if "images" in more else None
    prepared = store.Prepared(splits, views, list(classes), card, images)
    store.write(prepared, Path("data/prepared") / dataset)


def fitted(dataset: str, model: str, run_id: str, number: int) -> tuple[Any, dict[str, Any]]:
    """A fit of the pipeline with seed 1 (seed 0 is looked at, too): the estimator and its record."""
    planned, out = plan(dataset, model, 1, SETTINGS), Path(f"out-{number}")
    out.mkdir()
    kept = Checkpoint(out / "kept", planned.identity)
    return planned.estimator, training.fit(planned, out, run_id, kept)


@pytest.mark.parametrize("model", ["lgbm", "2wl"])
def test_the_test_split_is_in_the_scores_only(model: str, run_id: str) -> None:
    splits = {"train": frame_of(150, 0), "val": frame_of(80, 1), "test": frame_of(80, 2)}

    def fit(number: int, *wrong: str) -> tuple[np.ndarray, dict[str, Any]]:
        given = {name: spoiled(frame) if name in wrong else frame for name, frame in splits.items()}
        write("ci_a", given, {"U": NAMES[:2], "S": NAMES[2:]})
        estimator, record = fitted("ci_a", model, run_id, number)
        done = np.concatenate([rounds_of(estimator).ravel(), watched(estimator), [record["best_round"]]])
        return done, record["scores"]

    (clean, scores), (forbidden, spoilt) = fit(0), fit(1, "test")
    np.testing.assert_array_equal(clean, forbidden)
    assert spoilt["val"] == scores["val"] and spoilt["test"] != scores["test"]
    assert not np.array_equal(clean, fit(2, "val")[0])


@pytest.mark.parametrize("is_number", [False, True])
def test_a_folds_encoder_knows_its_training_rows_only(is_number: bool, run_id: str) -> None:
    """The score is that of fits by hand; of a number its RMSE."""
    frame = frame_of(90, 0)
    if is_number:
        frame[store.LABEL] = 100 + 9.0 * frame["a"] + frame["b"]
    frame.loc[::9, "a"] *= 1000  # what one fold's mean and deviation are, no other's are
    write("iris", {"train": frame}, {"x": NAMES}, () if is_number else ("no", "yes"), folds=3)
    _, record = fitted("iris", "bnn", run_id, 0)
    y, found = frame[store.LABEL].to_numpy(), []
    splitter = (KFold if is_number else StratifiedKFold)(3, shuffle=True, random_state=1)
    for seen, unseen in splitter.split(y, y):
        encoder = TableEncoder.fit(frame.iloc[seen], NAMES)
        model = plan("iris", "bnn", 1, SETTINGS).estimator
        model.fit(Views(x=encoder.transform(frame.iloc[seen])), y[seen])
        views = Views(x=encoder.transform(frame.iloc[unseen]))
        if is_number:
            found.append(np.sqrt(np.mean((model.predict(views) - y[unseen]) ** 2)))
        else:
            found.append(metrics.score(y[unseen], model.predict_proba(views))["log_loss"])
    scores = record["scores"]["test"]
    assert scores["rmse" if is_number else "log_loss"] == pytest.approx(np.mean(found), rel=1e-9)
    assert not is_number or set(scores) == {"rmse", "mae", "r2"}


@pytest.mark.parametrize("model", ["2wl", "baseline", "lgbm"])
def test_the_studys_fits_see_no_test_row(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study, "PLAN", {"few": Part({}, [])})
    splits = {"train": frame_of(150, 0), "val": frame_of(80, 1), "test": frame_of(80, 2)}

    def rows(name: str, *wrong: str) -> tuple[list[Any], list[Any]]:
        place = tmp_path / name / "few"
        place.mkdir(parents=True)
        (place / "params.yaml").write_text(yaml.safe_dump(PARAMS, sort_keys=False))
        given = {split: spoiled(frame) if split in wrong else frame for split, frame in splits.items()}
        monkeypatch.chdir(place)
        write("ci_a", given, {"U": NAMES[:2], "S": NAMES[2:]})
        study.fit(tmp_path / name, Cell("few", "ci_a", model, 1))
        found = study.rows_of(place)
        study.fit(tmp_path / name, Cell("few", "ci_a", model, 1))  # what is there is not fitted again
        assert study.rows_of(place) == found
        kept = [study.kept_at(place, "ci_a", model, 1, row["stop"]) for row in found]
        frames = [pd.read_parquet(path.with_suffix(".parquet")) for path in kept]
        rounds = [frame.filter(regex="^(risk|f1|step_)").to_numpy().tolist() for frame in frames]
        done = [row[key] for row in found for key in ("stop", "best_round", "rounds")]
        thresholds = [float(np.load(path)["threshold"]) for path in kept]
        return [done, rounds, thresholds], [row["log_loss"] for row in found]

    (clean, scores), (forbidden, spoilt) = rows("clean"), rows("test", "test")
    assert clean == forbidden and scores != spoilt
    assert clean != rows("val", "val")[0]
    assert len(scores) == (1 if model == "lgbm" else 2)


def test_a_images_embedding_does_not_depend_on_the_others() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (12, 1, 16, 16), dtype=np.uint8)
    others = pixels.copy()
    others[6:] = 255

    def embedding(each: np.ndarray) -> np.ndarray:
        return embedded(
            Images(each), Backbone("small_cnn", pretrained=False, random=True), torch.device("cpu")
        ).numeric

    clean, forbidden = embedding(pixels), embedding(others)
    np.testing.assert_array_equal(clean[:6], forbidden[:6])
    assert not np.array_equal(clean[6:], forbidden[6:])
    np.testing.assert_allclose(embedding(pixels[:6]), clean[:6], rtol=1e-5, atol=1e-6)


def test_the_record_says_what_was_scored(run_id: str) -> None:
    splits = {name: frame_of(60, k) for k, name in enumerate(training.SPLITS)}
    write("ci_a", splits, {"U": NAMES[:2], "S": NAMES[2:]})
    _, record = fitted("ci_a", "lgbm", run_id, 0)
    assert set(record["scores"]) == {"val", "test"}
    assert json.loads(Path("out-0/record.json").read_text()) == record

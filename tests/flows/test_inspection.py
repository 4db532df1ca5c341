"""What the training flow keeps of a fitted model, in the folder and in MLflow."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tasks.fits import fit_cell
from tests.conftest import contents
from tests.small_models import boosting, on_features
from tests.workspaces import mlflow_store
from usboost.data.table import Table
from usboost.datasets import store
from usboost.learners.tree_learner import TreeLearner
from usboost.models.methods.bfv_network import BFV
from usboost.report.inspection import read
from usboost.table import demo as user_demo
from usboost.table import prepared as user_table
from usboost.table.prepared import ROW, read_prepared
from usboost.table.spec import TableSpec

pytestmark = pytest.mark.slow


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo table with images, prepared in an otherwise empty folder with an MLflow store."""
    monkeypatch.chdir(tmp_path)
    user_demo.write_demo(tmp_path / "demo", rows_train=120, rows_test=30, seed=2)
    roles = {"label": user_demo.LABEL, "image": user_demo.IMAGE, "split": user_demo.SPLIT}
    made = user_table.prepare(
        tmp_path / "demo/table.csv", TableSpec(size=24, grey=True, **roles), work=tmp_path / "work", seed=0
    )
    store.write(made, tmp_path / "data/prepared/user_table")
    with mlflow_store(tmp_path):
        yield tmp_path


def test_the_worst_samples_are_the_validation_splits(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_cell, "INSPECTED_IMAGES", 10)
    own = read_prepared(prepared / "data/prepared/user_table")
    train, val = (np.flatnonzero(own.split == split) for split in ("train", "val"))
    encoding = own.fit_encoding(train)
    views, y = own.views(encoding, val), own.labels[val]
    fitted = boosting(learners={"S": TreeLearner()}, patience=None, validation_fraction=0)
    fitted.fit(own.views(encoding, train), own.labels[train])
    probabilities = fitted.predict_proba(views)
    for attempt in ("first", "again"):
        fit_cell.write_inspection(fitted, "user_table", (views, y), probabilities, prepared / attempt)
    folder = prepared / "first" / "inspection"
    names = contents(folder)
    assert names == contents(prepared / "again/inspection")
    page = read(folder)
    assert page is not None and len(page["figures"]) == 4
    worst = pd.read_csv(folder / "worst.csv")
    assert len(worst) and worst["true"].tolist() == y[worst["row"]].tolist()
    np.testing.assert_allclose(worst["p_true"], probabilities[worst["row"], worst["true"]], rtol=1e-4)
    mistakes = probabilities.argmax(axis=1) != y
    assert len(worst) == min(12, mistakes.sum()) and worst["p_true"].min() == pytest.approx(
        probabilities[mistakes, y[mistakes]].min(), rel=1e-4
    )
    frame = store.read_frame(prepared / "data/prepared/user_table", "val")
    for place, row in enumerate(worst["row"]):
        pixels = np.asarray(Image.open(io.BytesIO(names[f"worst-{place:02d}.png"])))
        np.testing.assert_array_equal(pixels[::5, ::5], views["U"].decode(row)[0, 0])
        shown = dict(page["worst"][place]["values"])
        assert set(shown) <= set(frame) - {store.LABEL, ROW} and shown["line"] == str(frame["line"].iloc[row])


def test_a_network_on_bfvs_is_asked_about_what_it_reads(two_views) -> None:
    views, y = two_views(n=200)
    fitted = on_features().fit(views, y)
    features = Table.from_numeric(fitted.gbm_.features(views["S"]))
    assert fit_cell._read(fitted, views.with_view(BFV, features)).names == ("U", BFV)
    assert fit_cell._read(fitted, views).names == ("U", "S")


def test_a_switched_label_is_told_by_name() -> None:
    frame = pd.DataFrame({"x": [0.5, np.nan], store.LABEL: [1, 0], store.CLEAN: np.zeros(2, np.int8)})
    shown = fit_cell._informative(frame, {"classes": ["cat", "dog"]})
    assert shown.to_dict("list") == {store.CLEAN: ["cat", "cat"], "x": [0.5, "–"]}

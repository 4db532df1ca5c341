"""Tables and labels that few people have: every model fits them, or says in one short sentence why not."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.conftest import refuses
from usboost import MultimodalClassifier, MultimodalRegressor, UsboostError
from usboost.boosting.callbacks import EarlyStopping
from usboost.evaluation.intervals import margin_of
from usboost.evaluation.metrics import score_regression
from usboost.fit.predict import predict
from usboost.fit.record import table_digest
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_columns, read_table

N = 60
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N) + 5})
SIDE = (X["a"] > 0).to_numpy()


def read(frame: pd.DataFrame, **spec: Any) -> UserTable:
    return read_table(FrameRows(frame.assign(y=np.where(SIDE, "p", "q"))), TableSpec("y", **spec))


@pytest.mark.parametrize("model", ["linear_trees", "logistic", "2wl_newton", "bfv_dnn"])
@pytest.mark.parametrize("classes", [2, 3, 0])
def test_a_number_that_stands_for_none_has_a_finite_answer(model: str, classes: int) -> None:
    far = X.assign(a=np.where(np.arange(N) == 3, -3.4e38, X["a"]))
    if classes:
        y = np.digitize(X["a"], [-0.4, 0.4][: classes - 1])
        answer = MultimodalClassifier(model, rounds=3).fit(X, y).predict_proba(far)
    else:
        name = model if model != "logistic" else "ridge"
        answer = MultimodalRegressor(name, rounds=3).fit(X, X["a"] + X["b"]).predict(far)
    assert np.isfinite(answer).all()


def test_labels_of_rare_types(tmp_path: Path) -> None:
    X.to_csv(tmp_path / "x.csv", index=False)
    for low, high in ((b"p", b"q"), (2**60, 2**60 + 1), (np.uint64(1), np.uint64(2**63 + 5))):
        labels = np.where(SIDE, high, low)
        model = MultimodalClassifier("logistic").fit(X, labels)
        assert model.classes_.tolist() == [low, high] and set(model.predict(X)) <= {low, high}
        predict(model.bundle_, tmp_path / "x.csv", tmp_path / "out.csv", sets=True)
        names = [each.decode() if isinstance(each, bytes) else int(each) for each in (low, high)]
        for each in pd.read_csv(tmp_path / "out.csv")["set"]:
            assert set(json.loads(each)) <= {*names}
    refuses("caf.*UTF-8", MultimodalClassifier("prior").fit, X, np.where(SIDE, b"caf\xe9", b"tea"))
    MultimodalClassifier("prior", class_weight={0: np.int64(3), 1: np.float32(1)}).fit(X, SIDE.astype(int))


@pytest.mark.parametrize("model", ["lgbm", "linear_trees"])
def test_early_stopping_leaves_the_fit_to_all_rows_alone(model: str) -> None:
    fitted = MultimodalClassifier(model, rounds=5, callbacks=[EarlyStopping("risk_val", 2)]).fit(X, SIDE)
    assert fitted.bundle_.card.rows["train"] == N


def test_a_column_of_images_that_few_rows_have() -> None:
    front = [Image.fromarray(np.full((16, 16, 3), 60 + 120 * side, np.uint8)) for side in SIDE]
    frame = X.assign(
        front=front, back=[front[0], *[None] * (N - 1)], s=["val", *["train", "val"] * 29, "train"]
    )
    options: dict[str, Any] = {"image": ["front", "back"], "size": 16, "finetune": "none", "split": "s"}
    found = MultimodalClassifier("forest", **options).fit(frame, SIDE)
    assert found.predict_proba(frame.assign(back=front)).shape == (N, 2)
    lacking = frame.assign(front=frame["front"].where(frame["s"] == "val"))
    refuses("no training row has an image", MultimodalClassifier("forest", **options).fit, lacking, SIDE)


def test_weights_are_read_as_other_numbers_are(tmp_path: Path) -> None:
    weights = np.arange(1, N + 1) / 4 + 1000
    written = [f"{each:,.2f}".translate(str.maketrans(",.", ".,")) for each in weights]
    frame = pd.DataFrame({"a": X["a"].map("{:.2f}".format).str.replace(".", ","), "w": written, "y": SIDE})
    frame.to_csv(tmp_path / "t.csv", sep=";", index=False)
    found = read_columns(tmp_path / "t.csv", TableSpec("y", weight="w")).weights
    assert found is not None
    np.testing.assert_allclose(found, weights / weights.mean())


@pytest.mark.parametrize("role", ["weight", "group", "split", "time"])
def test_a_row_without_a_label_needs_nothing_else(role: str) -> None:
    values = {"split": pd.Series(["train", "train", "val"] * (N // 3))}.get(
        role, pd.Series(np.arange(N) % 9 + 1.0)
    )
    frame = X.assign(
        r=values.where(np.arange(N) != 5), y=pd.Series(SIDE.astype(object)).where(np.arange(N) != 5)
    )
    table = read_table(FrameRows(frame), TableSpec("y", **{role: "r"}))
    assert len(table) == N - 1
    refuses(r"row \d+.*'[rw]'", read_table, FrameRows(frame.assign(y=SIDE)), TableSpec("y", **{role: "r"}))


def test_another_reading_is_another_table() -> None:
    frame = X.assign(note=RNG.choice(["red car", "old bike", "new tram"], N))
    assert table_digest(read(frame, text="note")) != table_digest(read(frame, categorical="note"))


def test_long_values_take_no_room() -> None:
    frame = X.assign(g=[*RNG.choice(["u", "v"], N - 1), "x" * 10**6], z=["7"] * (N - 1) + ["z" * 10**6])
    tracemalloc.start()
    assert read(frame[["a", "g"]], group="g").groups is not None
    assert tracemalloc.get_traced_memory()[1] < 40e6
    tracemalloc.stop()
    with pytest.raises(UsboostError, match="'z'") as refused:
        read(frame[["a", "z"]])
    assert len(str(refused.value)) < 400
    far = X.assign(a=np.where(np.arange(N) == 3, 1e39, X["a"]))
    refuses("missing=1e.39", read, far)
    assert read(far, missing="1e+39").features["a"].isna().sum() == 1


def test_numbers_to_predict_at_the_ends_of_what_a_float_holds() -> None:
    assert np.isnan(score_regression(np.array([1e-300, 2e-300]), np.zeros(2))["r2"])
    refuses("too large", MultimodalRegressor("ridge").fit, X, X["a"] * 1e300)
    assert margin_of(np.linspace(1, 2, 50))[0] == 0 and margin_of(-np.linspace(1, 2, 50))[1] == 0
    few = [(*margin_of(each[1:]), each[0]) for each in np.random.default_rng(0).normal(size=(2000, 6))]
    assert 0.88 < np.mean([low <= new <= high for low, high, new in few]) < 0.95

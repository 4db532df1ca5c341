"""A column that is lost on the way to a prediction, or lacks far more than in training, is said."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

from tests.conftest import encoded, refuses
from tests.fit.conftest import accepted, refused
from usboost import MultimodalClassifier, UsboostError
from usboost.table.notes import Gaps

RNG = np.random.default_rng(0)
N = 120
X = pd.DataFrame(
    {
        "sum": RNG.normal(size=N).round(3),
        "often": np.where(np.arange(N) % 4 == 0, np.nan, 1.5),
        "town": RNG.choice(["u", "v"], N),
        "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"),
    }
)
Y = np.where(X["sum"] > 0, "p", "n")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gaps")
    X.assign(y=Y).to_csv(folder / "t.csv", index=False)
    accepted("fit", folder / "t.csv", "--label", "y", "--model", "logistic", "--out", folder / "m")
    return folder / "m"


def said(model: Path, rows: pd.DataFrame) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        MultimodalClassifier.load(model).predict_frame(rows)
    return [str(each.message) for each in found if "missing" in str(each.message)]


@pytest.mark.parametrize("column", ["sum", "town", "day", "often"])
def test_an_empty_column_is_said_and_refused(column: str, model: Path, tmp_path: Path) -> None:
    rows = X.assign(**{column: None})
    (sentence,) = said(model, rows)
    assert f"column '{column}': {N} of {N} values are missing" in sentence
    rows.to_csv(tmp_path / "t.csv", index=False)
    predict = ("predict", model, tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    assert sentence in accepted(*predict).stderr
    assert sentence in refused(*predict, "--strict")
    refuses(f"column '{column}'", MultimodalClassifier.load(model).predict_frame, rows, strict=True)


def test_formulas_without_values_and_a_failed_join_are_said(model: Path, tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(list(X))
    for k, row in enumerate(X.itertuples(index=False)):
        often = None if np.isnan(row.often) else row.often
        book.active.append([f"=A{k + 2}*1", often, row.town, row.day])
    book.save(tmp_path / "t.xlsx")
    output = accepted("predict", model, tmp_path / "t.xlsx", "--out", tmp_path / "p.csv").stderr
    assert "column 'sum'" in output and "missing" in output
    joined = X.drop(columns="sum").join(X[["sum"]].iloc[: N // 3], how="left")
    (sentence,) = said(model, joined)
    assert f"column 'sum': {N - N // 3} of {N}" in sentence


def test_gaps_as_there_were_in_training_and_a_few_are_not_said(model: Path) -> None:
    assert said(model, X) == []
    assert said(model, X.assign(sum=X["sum"].where(X.index > 3))) == []
    assert said(model, X.head(2).assign(sum=None)) == []
    assert said(model, X.assign(often=X.often.where(X.index % 3 > 0))) == []


def test_images_that_are_lost_are_said_and_none_at_all_is_refused() -> None:
    pixels = RNG.integers(0, 255, (24, 8, 8)).astype(np.uint8)
    photos = pd.Series([encoded(each) for each in pixels], dtype=object)
    frame = pd.DataFrame({"photo": photos, "z": range(24)})
    images: dict[str, Any] = {"image": "photo", "size": 32, "finetune": "none", "refit": False}
    model = MultimodalClassifier("logistic", **images).fit(frame, ["a", "b"] * 12)
    with pytest.warns(UserWarning, match="column 'photo': 24 of 24 values are missing"):
        model.predict_frame(frame.assign(photo=None))
    with pytest.warns(UserWarning, match="column 'photo': 23 of 24 images cannot be read"):
        model.predict_frame(frame.assign(photo=photos.where(frame.z == 3, b"no image")))
    with pytest.raises(UsboostError, match=r"photo.*none of its 24 values is an image"):
        model.predict_frame(frame.assign(photo=pd.Series([b"no image"] * 24, dtype=object)))


@pytest.mark.parametrize(
    ("share", "rows", "count", "far"),
    [
        (0.0, 1000, 12, False),  # of 100 training rows, a hundredth is chance
        (0.0, 1000, 100, True),
        (0.0, 9, 9, False),
        (0.0, 10, 10, True),
        (0.3, 1000, 500, False),
        (0.3, 1000, 700, True),
        (0.6, 1000, 790, False),
        (0.6, 1000, 1000, True),
        (1.0, 1000, 1000, False),
    ],
)
def test_what_is_far_more(share: float, rows: int, count: int, far: bool) -> None:
    assert Gaps("a", share, 100, rows, count).far_more is far

"""A table of requests against the training rows of a model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.conftest import refuses
from tests.fit.conftest import accepted
from usboost.fit import bundle
from usboost.fit.card import Card, ImagesEntry
from usboost.fit.drift import compare

N = 300


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.normal(40, 10, n)
    age[rng.random(n) < 0.1] = np.nan
    found = pd.DataFrame({"age": age, "colour": rng.choice(["red", "blue", "green"], n)})
    found["label"] = np.where(rng.random(n) < 0.5, "yes", "no")
    return found


@pytest.fixture(scope="module")
def card(tmp_path_factory) -> Card:
    folder = tmp_path_factory.mktemp("drift")
    rows(N, 0).to_csv(folder / "train.csv", index=False)
    accepted(
        "fit", folder / "train.csv", "--label", "label", "--model", "logistic", "--out", folder / "model"
    )
    return bundle.load(folder / "model").card


def looked_at(card, change, tmp_path, n=200, suffix="csv", **limits) -> pd.DataFrame:
    found = rows(n, 1)
    change(found)
    path = tmp_path / f"requests.{suffix}"
    found.to_csv(path, index=False) if suffix == "csv" else found.to_parquet(path)
    return compare(card, rows(N, 0), {}, path, **limits).set_index("column")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_of_the_same_kind_do_not_drift(card, tmp_path, suffix):
    frame = looked_at(card, lambda r: None, tmp_path, suffix=suffix)
    assert list(frame["drift"]) == ["", ""]
    assert frame.loc["age", "missing"] == pytest.approx(rows(200, 1)["age"].isna().mean())
    assert frame.loc["age", "ks"] < 0.2 and np.isnan(frame.loc["age", "unseen"])
    assert frame.loc["colour", "unseen"] == 0 and np.isnan(frame.loc["colour", "ks"])


def test_a_few_rows_are_not_called_drift(card, tmp_path):
    """The index of 12 rows of the same distribution is above every usual limit."""
    frame = looked_at(card, lambda r: None, tmp_path, n=12)
    assert frame["psi"].max() > 0.2
    assert list(frame["drift"]) == ["", ""]


@pytest.mark.parametrize(
    ("column", "change", "said"),
    [
        ("age", lambda r: r.update({"age": r["age"] + 15}), "stability index"),
        ("age", lambda r: r.loc.__setitem__((r.index[:90], "age"), np.nan), "missing"),
        ("colour", lambda r: r.loc.__setitem__((r.index[:60], "colour"), "purple"), "30% unseen"),
        ("colour", lambda r: r.update({"colour": pd.Series(["red"] * 180)}), "stability index"),
    ],
)
def test_what_has_changed_comes_first_and_says_how(card, tmp_path, column, change, said):
    frame = looked_at(card, change, tmp_path)
    assert frame.index[0] == column
    assert said in frame["drift"].iloc[0]
    assert frame["drift"].iloc[1] == ""
    assert looked_at(card, change, tmp_path, psi=99, share=1)["drift"].tolist() == ["", ""]


@pytest.mark.parametrize("image", ["a.png", b"bytes"])
def test_missing_images_are_counted(card, tmp_path, image):
    images = ImagesEntry(columns=["front", "back"], size=[8, 8], channels=3)
    with_images = card.model_copy(update={"images": images})
    found = rows(200, 1).assign(front=[image] * 100 + [None] * 100, back=[image] * 200)
    found.to_parquet(tmp_path / "requests.parquet")
    without = {"front": 30, "back": 0}
    frame = compare(with_images, rows(N, 0), without, tmp_path / "requests.parquet").set_index("column")
    assert frame.loc["front", ["missing_train", "missing", "drift"]].tolist() == [0.1, 0.5, "50% missing"]
    assert frame.loc["back", ["missing_train", "missing", "drift"]].tolist() == [0, 0, ""]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pd.DataFrame({"age": [1.0]}), "lacks column 'colour'"),
        (pd.DataFrame({"age": [], "colour": []}), "has no rows"),
        (pd.DataFrame({"age": ["old"], "colour": ["red"]}), "column 'age' held numbers"),
    ],
)
def test_a_table_that_cannot_be_compared_is_refused(card, tmp_path, table, said):
    table.to_csv(tmp_path / "requests.csv", index=False)
    refuses(said, compare, card, rows(N, 0), {}, tmp_path / "requests.csv")

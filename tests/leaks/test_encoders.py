"""Encoders, medians and the choice of columns are learnt from training rows alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.fit.conftest import numbers
from tests.leaks.probes import spoiled_table
from usboost.data.encoding import TableEncoder
from usboost.datasets import census, store
from usboost.table import prepared as user_table
from usboost.table.prepared import read_prepared
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

HELD = ("val", "test")


def frames(seed: int = 0) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    return {
        split: pd.DataFrame(
            {
                "x": rng.normal(size=n),
                "colour": pd.Categorical(rng.choice(["red", "green"], n)),
                store.LABEL: rng.integers(0, 2, n),
            }
        )
        for split, n in (("train", 60), ("val", 30), ("test", 30))
    }


def spoiled_frame(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(x=1e9, colour=pd.Categorical(["unseen"] * len(frame)), label=1 - frame[store.LABEL])


def described(splits: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """The card, without what it counts."""
    about = {"dataset": "d", "profile": "demo", "seed": 0, "columns": {}, "sources": {}}
    card = store.describe(splits, {"U": ["x"], "S": ["colour", "x"]}, ["a", "b"], **about)
    return {key: value for key, value in card.items() if key != "splits"}


@pytest.mark.parametrize("split", HELD)
def test_a_prepared_datasets_encoders(split: str) -> None:
    clean = frames()
    assert described(clean | {split: spoiled_frame(clean[split])}) == described(clean)
    assert described(clean | {"train": spoiled_frame(clean["train"])}) != described(clean)
    scale = described(clean)["encoders"]["U"]["numeric"][0]
    assert scale["mean"] == clean["train"]["x"].mean()
    assert scale["std"] == pytest.approx(clean["train"]["x"].std(ddof=0), rel=1e-12)


def test_a_persons_table_with_given_splits(tmp_path: Path) -> None:
    """What a fit learns of its training rows, and these rows, as `prepare` keeps them."""
    frame = numbers(150, classes=3).assign(part=np.repeat(["train", "val", "test"], 50))

    def made(name: str, spoiled: str | None) -> tuple[dict[str, Any], pd.DataFrame]:
        given = frame.copy()
        if spoiled is not None:
            rows = given["part"] == spoiled
            given["width"] = given["width"].astype(float)
            given.loc[rows, "width"] = np.where(np.arange(rows.sum()) % 2, np.nan, 1e9)
            given.loc[rows, "height"] = -1e9
            given.loc[rows, "colour"] = "never seen"
            given.loc[rows, "kind"] = np.roll(given.loc[rows, "kind"].to_numpy(), 1)
        path = tmp_path / f"{name}.csv"
        given.to_csv(path, index=False)
        store.write(
            user_table.prepare(path, TableSpec(label="kind", split="part"), seed=0), tmp_path / "prepared"
        )
        own = read_prepared(tmp_path / "prepared")
        encoding = own.fit_encoding(np.flatnonzero(own.split == "train"))
        learnt = {"encoders": encoding.encoders, "imputation": encoding.imputation, "kinds": own.kinds}
        return learnt, store.read_frame(tmp_path / "prepared", "train")

    clean, train = made("clean", None)
    for split in HELD:
        learnt, rows = made(split, split)
        assert learnt == clean
        pd.testing.assert_frame_equal(rows, train, check_dtype=False, check_categorical=False)
    assert made("train", "train")[0] != clean
    known = frame["height"][frame["part"] == "train"]
    assert clean["imputation"]["height"] == {"value": known.median(), "indicator": True}
    assert clean["imputation"]["width"]["indicator"] is False


def test_a_persons_table_with_drawn_splits(tmp_path: Path) -> None:
    """What is prepared is learnt from nothing at all; what is then learnt of it, from training rows."""
    path = tmp_path / "table.parquet"
    numbers(150, classes=3).to_parquet(path)
    store.write(user_table.prepare(path, TableSpec(label="kind"), seed=3), tmp_path / "prepared")
    table, read = read_prepared(tmp_path / "prepared"), read_table(path, TableSpec(label="kind"))
    pd.testing.assert_frame_equal(table.features, read.features)
    assert store.read_card(tmp_path / "prepared")["encoders"] == {}
    train = np.flatnonzero(table.split == "train")
    known = table.features["height"].to_numpy()[train]
    encoding = table.fit_encoding(train)
    median = np.nanmedian(known)
    assert encoding.imputation["height"]["value"] == median != np.nanmedian(table.features["height"])
    spoiled = spoiled_table(table, np.setdiff1d(np.arange(150), train))
    assert spoiled.fit_encoding(train) == encoding
    assert spoiled_table(table, train[:9]).fit_encoding(train) != encoding


@pytest.mark.parametrize("split", ["ci_a", "ci_b"])
def test_the_census_test_file_chooses_nothing(split: str, tmp_path: Path) -> None:
    """Which columns are S is decided, and how they are encoded, by the training file."""
    census.write_demo(tmp_path, rows_train=300, rows_test=100, seed=0)
    train, test = (tmp_path / name for name in ("census-income.data.gz", "census-income.test.gz"))

    def made() -> dict[str, Any]:
        card = census.prepare(train, test, split=split, seed=0, rows=200, candidates=1, tolerance=0.5).card
        return {key: card[key] for key in ("encoders", "views", "columns")}

    clean = made()
    lines = census._lines(test)
    flipped = [
        b"99," + line.split(b",", 1)[1].rsplit(b",", 1)[0] + (b", - 50000." if b"+" in line else b", 50000+.")
        for line in lines
    ]
    test.write_bytes(b"\n".join(flipped))
    assert made() == clean
    assert set(census.read(test)["age"]) == {99.0}
    train.write_bytes(b"\n".join(line.replace(b",", b"9,", 1) for line in census._lines(train)))
    assert made() != clean


def test_an_encoder_knows_the_rows_that_it_was_given() -> None:
    frame = frames()["train"]
    encoder = TableEncoder.fit(frame, ["x", "colour"])
    assert encoder == TableEncoder.fit(frame.copy(), ["x", "colour"])
    assert encoder.transform(spoiled_frame(frame)).codes.max() == 0

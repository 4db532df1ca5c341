"""A table of houses: the price, a number, from columns and an image; through the command and in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageDraw

from tests.fit.conftest import accepted
from usboost import MultimodalRegressor
from usboost.evaluation.metrics import rmse

N, SIDE = 240, 48


@pytest.fixture(scope="module")
def houses(tmp_path_factory) -> Path:
    """Houses whose price depends on area and town, and on how many storeys the image shows."""
    folder, rng = tmp_path_factory.mktemp("houses"), np.random.default_rng(0)
    storeys, area = rng.integers(1, 6, N), rng.uniform(50, 250, N).round()
    town = rng.choice(["Oslo", "Rome", "Wien"], N)
    price = 2_000 * area + 60_000 * storeys + 90_000 * (town == "Oslo") + rng.normal(0, 20_000, N)
    (folder / "photos").mkdir()
    for k, levels in enumerate(storeys):
        image = Image.new("RGB", (SIDE, SIDE), (135, 190, 235))
        draw = ImageDraw.Draw(image)
        left, top = int(rng.integers(6, 14)), SIDE - 4 - 8 * int(levels)
        draw.rectangle((left, top, left + 24, SIDE - 4), fill=(180, 60, 40))
        for level in range(int(levels)):
            for x in (left + 4, left + 14):
                draw.rectangle((x, top + 2 + 8 * level, x + 5, top + 6 + 8 * level), fill=(250, 240, 200))
        image.save(folder / f"photos/{k}.png")
    written = [f"{value:,.0f} €" for value in price]
    frame = pd.DataFrame({"area": area, "town": town, "photo": [f"photos/{k}.png" for k in range(N)]})
    frame.loc[::9, "area"] = np.nan
    frame.assign(price=written).to_csv(folder / "houses.csv", index=False)
    frame.assign(price=price).to_parquet(folder / "houses.parquet")
    return folder


def test_a_price_is_never_a_class(houses, tmp_path):
    fit = ("fit", houses / "houses.csv", "--label", "price", "--image", "photo", "--size", SIDE)
    done = accepted(*fit, "--out", tmp_path / "model")
    assert "the label 'price' has 240 different whole numbers, so a number is predicted" in done.stderr
    assert "validation: RMSE " in done.stdout and "9 in 10 rows are within" in done.stdout
    out = tmp_path / "p.parquet"
    asked = pd.read_csv(houses / "houses.csv").drop(columns="price")
    asked.loc[3, ["town", "photo"]] = ["Paris", None]
    asked.to_csv(houses / "asked.csv", index=False)
    accepted("predict", tmp_path / "model", houses / "asked.csv", "--out", out)
    found = pd.read_parquet(out)
    assert list(found) == ["prediction", "low", "high"]
    price = pd.read_parquet(houses / "houses.parquet")["price"]
    assert rmse(price.to_numpy(), found["prediction"].to_numpy()) < 60_000
    assert ((found["low"] <= price) & (price <= found["high"])).mean() > 0.85


def test_the_image_tells_what_the_columns_do_not(houses):
    frame = pd.read_parquet(houses / "houses.parquet")
    train, test = frame.iloc[:180], frame.iloc[180:]
    y = test["price"].to_numpy()
    settings = {"images_root": houses, "size": SIDE}
    both = MultimodalRegressor(images="photo", **settings)
    alone = MultimodalRegressor(drop="photo")
    errors = [
        rmse(y, model.fit(train.drop(columns="price"), train["price"]).predict(test.drop(columns="price")))
        for model in (both, alone)
    ]
    assert errors[0] < 0.7 * errors[1]
    assert both.images_help_

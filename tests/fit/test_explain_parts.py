"""Rows explained by their parts: columns and squares of images in one unit, in Python, pages and requests."""

import io
import itertools
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from benchmarks.robustness import tables
from tests.conftest import refuses
from tests.fit.conftest import accepted, refused
from usboost import MultimodalClassifier, MultimodalRegressor
from usboost.fit.explain import GRID, Shares, _Game, owners_of, read_rows
from usboost.models.inspection.attribution import unlikeness
from usboost.table.source import FrameRows

pytestmark = pytest.mark.slow
SIDE = 60


def photo(rng, sticker):
    """A plain image with some noise, and a sticker in the second square of the fourth line."""
    pixels = rng.normal(rng.uniform(80, 170, 3), 6, (SIDE, SIDE, 3)).clip(0, 255).astype(np.uint8)
    if sticker:
        pixels[37:47, 13:23] = 255, 240, 0
        pixels[40:44, 16:20] = 200, 0, 60
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def stickers(n, seed=0):
    """Every other row is of the class sticker: of the others neither the image nor a column tells."""
    rng, sticker = np.random.default_rng(seed), np.arange(n) % 2 == 1
    return pd.DataFrame(
        {
            "photo": [photo(rng, each) for each in sticker],
            "size": rng.normal(size=n),
            "colour": rng.choice(["red", "green"], n),
            "kind": np.where(sticker, "sticker", "plain"),
        }
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model of stickers, and its table."""
    folder = tmp_path_factory.mktemp("stickers")
    frame = stickers(120)
    frame.to_parquet(folder / "table.parquet")
    settings = {"image": "photo", "size": SIDE, "finetune": "none", "rounds": 10}
    model = MultimodalClassifier("linear_trees", **settings).fit(frame.drop(columns="kind"), frame["kind"])
    model.save(folder / "model")
    return folder / "model", folder / "table.parquet"


def squares_of(found, column="photo"):
    names = [f"{column} {y + 1},{x + 1}" for y in range(GRID) for x in range(GRID)]
    return found[names].to_numpy().reshape(-1, GRID, GRID)


def test_a_sticker_lights_up_and_all_sums_to_the_log_odds(saved):
    model, table = MultimodalClassifier.load(saved[0]), pd.read_parquet(saved[1])
    rows = stickers(4, seed=1).drop(columns="kind")
    found = model.explain(rows, against=table.drop(columns="kind"), parts=True)
    p = model.predict_proba(rows)
    margin = np.log(p.max(axis=1) / p.min(axis=1))
    np.testing.assert_allclose(found.sum(axis=1), margin, rtol=0, atol=1e-6)
    whole = model.explain(rows, against=table.drop(columns="kind"))
    squares = squares_of(found)
    np.testing.assert_allclose(squares.sum(axis=(1, 2)), whole["images (photo)"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["size"], whole["size"], rtol=0, atol=1e-9)
    planted = squares[1::2]  # the sticker lies in one square, and says more than each of the others
    assert (model.predict(rows)[1::2] == "sticker").all()
    assert [divmod(int(each), GRID) for each in planted.reshape(2, -1).argmax(axis=1)] == [(3, 1)] * 2


def test_a_column_that_decides_is_first():
    rng, frame = np.random.default_rng(0), stickers(100)
    label = 100 * frame["size"] + rng.normal(size=100)
    model = MultimodalRegressor("linear_trees", image="photo", size=32, finetune="none", rounds=5)
    model.fit(frame.drop(columns="kind"), label)
    assert model.bundle_.model.left_out_ == ("U",)  # images that do not help are not read
    found = model.explain(frame.head(4), against=frame, parts=True)
    assert list(found) == ["size", "colour", "mean"]
    np.testing.assert_allclose(found.sum(axis=1), model.predict(frame.head(4)), rtol=1e-6)
    assert (found.drop(columns="mean").abs().idxmax(axis=1) == "size").all()


@pytest.mark.parametrize("names", [["age_missing", "age"], ["age", "S__age"], ["mean", "mean_"]])
def test_a_column_that_is_called_as_something_else_has_its_own_share(names):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 2)), columns=names)
    model = MultimodalRegressor("linear_trees", rounds=5).fit(frame, 3 * frame[names[0]])
    found = model.explain(frame.head(20)).abs().mean()
    assert found[names[0]] > 20 * found[names[1]] and found.shape == (3,)
    refuses("has no rows to explain", model.explain, frame.head(0), frame)
    refuses("none of its 120 values", model.explain, frame.head(9), frame.assign(**{names[0]: "much"}))


def test_a_number_from_two_columns_of_images():
    """The front's sticker adds 50 to the number, the back's says nothing; some rows lack a back."""
    rng, n = np.random.default_rng(0), 100
    front, back = rng.random(n) < 0.5, rng.random(n) < 0.5
    frame = pd.DataFrame({"size": rng.normal(size=n)})
    frame["front"] = [photo(rng, each) for each in front]
    frame["back"] = [None if k % 4 == 0 else photo(rng, each) for k, each in enumerate(back)]
    settings = {"image": ["front", "back"], "size": SIDE, "finetune": "none", "rounds": 5}
    model = MultimodalRegressor("2wl_ridge", **settings).fit(frame, 50.0 * front + rng.normal(size=n))
    rows = frame.iloc[[*np.flatnonzero(front)[:2], 0]]
    found = model.explain(rows, against=frame, parts=True)
    np.testing.assert_allclose(found.sum(axis=1), model.predict(rows), rtol=1e-6)
    fronts, backs = squares_of(found, "front"), squares_of(found, "back")
    assert np.ptp(backs[2]) < 1e-9  # it has no back: all squares are alike
    assert (np.abs(fronts.sum(axis=(1, 2))) > 2 * np.abs(backs.sum(axis=(1, 2))))[:2].all()
    mean = fronts[:2].mean(axis=0)
    assert divmod(int(mean.argmax()), GRID) == (3, 1) and mean.max() > 2


def test_columns_of_images_share_as_all_orders_say():
    worth = {(): 0.0, ("a",): 3.0, ("b",): -1.0, ("c",): 2.0, ("a", "b"): 4.0, ("a", "c"): 1.0}
    worth |= {("b", "c"): 7.0, ("a", "b", "c"): 9.5}

    class Known(_Game):
        def added(self, given):
            return np.array([worth[tuple(name for name in "abc" if name not in given)]])

    found = Known(None, None, dict.fromkeys("abc"), None).columns(("a", "b", "c"), 9.5)
    expected = dict.fromkeys("abc", 0.0)
    for order in itertools.permutations("abc"):
        for k, name in enumerate(order):
            before, after = (tuple(sorted(order[:end])) for end in (k, k + 1))
            expected[name] += (worth[after] - worth[before]) / math.factorial(3)
    assert found == pytest.approx(expected)


def test_the_page_shows_bars_squares_and_the_nearest_rows(saved, tmp_path):
    model, table = saved
    stickers(3, seed=1).drop(columns="kind").to_parquet(tmp_path / "new.parquet")
    given = ("predict", model, tmp_path / "new.parquet", "--out", tmp_path / "p.parquet", "--explain-page")
    assert "too few" in refused(*given, tmp_path / "r.html")
    accepted(*given, tmp_path / "r.html", "--against", table)
    answers, text = pd.read_parquet(tmp_path / "p.parquet"), (tmp_path / "r.html").read_text()
    assert list(answers) == ["label", "p_plain", "p_sticker"]
    items = text.split("<li>\n")[1:]
    assert len(items) == 3
    for k, item in enumerate(items):
        assert f"predicted {answers['label'][k]}" in item and "may be" in item
        margin = re.search(r"margin</th><td></td><td>(.*?)<", item)[1]
        p = answers.iloc[k, 1:].to_numpy(float)
        assert margin == f"{np.log(p.max() / p.min()):.2f}"
        assert item.count("<em>") == GRID**2
        labels = re.findall(r"<figcaption>row [\d,]+, (\w+)</figcaption>", item)
        assert len(labels) == 3 and labels.count(answers["label"][k]) >= 2
    assert ".html" in refused(*given, tmp_path / "r.txt")
    given = ("predict", model, table, "--out", tmp_path / "p.csv", "--explain-page", tmp_path / "own.html")
    accepted(*given, "--against", table)
    first = (tmp_path / "own.html").read_text().split("<li>\n")[1]
    near = re.findall(r"<figcaption>row ([\d,]+), ", first)
    assert len(near) == 3 and "1" not in near  # a row is not shown beside itself
    stickers(12, seed=2).to_parquet(tmp_path / "scored.parquet")
    accepted("report", model, tmp_path / "scored.parquet", "--out", tmp_path / "report.html")
    explained = (tmp_path / "report.html").read_text().split("Single rows explained")[-1]
    assert explained.count("what its squares add") == explained.count('<p class="column">') > 0


def test_a_row_is_nearest_to_itself_in_what_weighs(saved):
    bundle, frame = MultimodalClassifier.load(saved[0]).bundle_, stickers(12, seed=3)
    frame.loc[1, ["photo", "colour"]] = frame.loc[0, ["photo", "colour"]]
    views = read_rows(bundle, FrameRows(frame.drop(columns="kind"), mixed=True)).views
    weights = {"all": np.ones((12, 3)), "photo": np.tile([0.0, 0.0, 1.0], (12, 1))}
    far = {k: unlikeness(bundle.model, views, views, owners_of(bundle), each) for k, each in weights.items()}
    assert (np.diag(far["all"]) < 1e-9).all() and far["all"][0, 1] > 1e-3  # their sizes differ
    assert far["photo"][0, 1] < 1e-9 and (far["photo"][0, 2:] > 1e-3).all()


@pytest.mark.filterwarnings("ignore:.*An input example")
def test_a_served_model_explains_the_first_rows_of_a_request(saved, tmp_path):
    served = tables.served(saved[0], tmp_path / "served")
    rows = stickers(12, seed=2).drop(columns="kind")
    assert "why" not in served.predict(rows)
    found = served.predict(rows, params={"explain": 1})
    assert found["why"].notna().tolist() == [True] + [False] * 11
    why, p = json.loads(found["why"][0]), found.iloc[0, 1:3].to_numpy(float)
    total = sum(why["columns"].values()) + np.sum(why["images"]["photo"]) + why["mean"]
    assert total == pytest.approx(np.log(p.max() / p.min()), rel=1e-6)
    for some, count in ((rows.head(3), 1), (rows, -1)):
        refuses("10 rows or more", served.predict, some, params={"explain": count})


def test_what_uncovering_says_of_a_sum_over_squares(saved):
    """Where the images' worth is a sum over squares, the shares are its terms, whatever the orders."""
    bundle = MultimodalClassifier.load(saved[0]).bundle_
    views = read_rows(bundle, FrameRows(stickers(12).drop(columns="kind"), mixed=True)).views

    class Bright(_Game):
        def added(self, given):
            return given["U"].decode().astype(np.float64).sum(axis=(1, 2, 3))

    found = Bright(bundle, views[[1]], views, None).squares("U")
    pixels = views["U"].decode()[1].astype(np.float64)
    over = pixels - np.rint(pixels.mean(axis=(1, 2)))[:, None, None]
    expected = over.reshape(3, GRID, SIDE // GRID, GRID, SIDE // GRID).sum(axis=(0, 2, 4))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_shares_have_as_many_digits_as_the_largest_needs() -> None:
    for unit, text in ((0.001, "a +0.012; b -0.005"), (1.0, "a +12.4; b -5.0"), (100.0, "a +1240; b -500")):
        shares = {"a": np.array([12.4 * unit]), "b": np.array([-5.0 * unit]), "c": np.array([0.004 * unit])}
        assert Shares(shares, {}, np.zeros(1)).words() == [text]


def test_others_are_refused_by_name():
    frame = stickers(40).drop(columns="photo")
    model = MultimodalClassifier("logistic").fit(frame.drop(columns="kind"), frame["kind"])
    refuses("logistic", model.explain, frame.drop(columns="kind"), parts=True)


def test_rows_to_compare_with_whose_images_are_elsewhere_are_refused(saved):
    model, rows = MultimodalClassifier.load(saved[0]), pd.read_parquet(saved[1]).drop(columns="kind")
    lost = rows.assign(photo="elsewhere/1.png")
    model.set_params(images_root=saved[0])
    for given in ((rows, lost), (lost, rows)):
        refuses("no path in column 'photo' leads", model.explain, *given)

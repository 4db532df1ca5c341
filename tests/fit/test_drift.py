"""A table of requests against a model's training rows: drift, and columns that are lost or lack far more."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import encoded, refuses
from tests.fit.conftest import accepted, refused, told
from usboost import MultimodalClassifier, UsboostError
from usboost.fit import bundle, drift
from usboost.fit.card import Card, ImagesEntry
from usboost.fit.drift import compare
from usboost.table.notes import Gaps

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
    words = folder / "train.csv", "--label", "label", "--model", "logistic", "--out", folder / "model"
    assert "--rounds does not change logistic" in accepted("fit", *words, "--rounds", 3).output
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
    commas = rows(200, 1)["age"].map("{:.3f}".format, na_action="ignore").str.replace(".", ",")
    assert looked_at(card, lambda r: r.isetitem(0, commas), tmp_path)["drift"].tolist() == ["", ""]
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


def test_values_that_few_rows_have_are_expected_among_new_rows(card, tmp_path):
    rng = np.random.default_rng(2)
    train, new = (rows(N, k).assign(colour=[f"c{c}" for c in rng.zipf(1.5, N) % 5000]) for k in (0, 1))
    new.to_csv(tmp_path / "new.csv", index=False)
    frame = compare(card, train, {}, tmp_path / "new.csv").set_index("column")
    assert frame.loc["colour", "unseen"] > 0.1 and set(frame["drift"]) == {""}


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


COUNTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12)


@given(COUNTS)
def test_the_index_is_its_definition(pairs):
    reference, found = ([pair[k] for pair in pairs] for k in (0, 1))
    total, expected = len(pairs) / 2, 0.0
    for before, now in pairs:
        e, a = (before + 0.5) / (sum(reference) + total), (now + 0.5) / (sum(found) + total)
        expected += (a - e) * math.log(a / e)
    assert drift.psi(np.array(reference), np.array(found)) == pytest.approx(expected, abs=1e-12)
    assert drift.psi(np.array(found), np.array(reference)) == pytest.approx(expected, abs=1e-12)
    assert expected >= 0


@given(
    st.lists(st.integers(-5, 5) | st.just(math.nan), min_size=1, max_size=40),
    st.lists(st.integers(-5, 5) | st.just(math.nan), min_size=1, max_size=40),
)
def test_bins_and_distances_are_counted_one_by_one(reference, found):
    known, seen = (np.array([v for v in values if v == v]) for values in (reference, found))
    if not len(known) or not len(seen):
        return
    inner = drift.edges(known)
    counts = drift.number_counts(np.array(reference, float), np.array(found, float))
    for values, counted in zip((known, seen), counts, strict=True):
        for b, count in enumerate(counted):
            low = -math.inf if b == 0 else inner[b - 1]
            high = math.inf if b == len(inner) else inner[b]
            assert count == sum(low <= value < high for value in values)
    farthest = max(abs((known <= v).mean() - (seen <= v).mean()) for v in [*known, *seen])
    assert drift.ks(np.array(reference, float), np.array(found, float)) == pytest.approx(farthest)


def test_bins_hold_equal_counts_and_a_repeated_value_is_one_bin():
    counts, _ = drift.number_counts(np.arange(1000.0), np.zeros(1))
    assert counts.tolist() == [100] * 10
    counts, _ = drift.number_counts(np.array([0.0] * 95 + [1, 2, 3, 4, 5]), np.zeros(1))
    assert counts[1] == 95 and counts.sum() == 100
    assert drift.number_counts(np.ones(40), np.full(40, 500.0))[1].tolist() == [0, 0, 40]  # not that of 1


def test_samples_of_one_distribution_exceed_the_noise_as_often_as_it_says():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=4000)
    inner = drift.edges(reference)
    expected = np.full(10, 400)
    above = dict.fromkeys((100, 400), 0)
    for n in above:
        limit = drift.noise(10, 4000, n, level=0.1)
        for _ in range(1000):
            found = np.bincount(np.searchsorted(inner, rng.normal(size=n)), minlength=10)
            above[n] += drift.psi(expected, found) > limit
    assert all(50 < count < 160 for count in above.values()), above
    assert drift.noise(1, 10, 10, 0.1) == 0


def test_a_share_that_chance_does_not_explain():
    # of 10 rows, each with probability ½, 9 or more have it with (10 + 1) / 1024
    assert drift.improbable(9, 10, 0.5, 11 / 1024 + 1e-9)
    assert not drift.improbable(9, 10, 0.5, 11 / 1024 - 1e-9)


RNG = np.random.default_rng(0)
ROWS = 120
X = pd.DataFrame(
    {
        "sum": RNG.normal(size=ROWS).round(3),
        "often": np.where(np.arange(ROWS) % 4 == 0, np.nan, 1.5),
        "town": RNG.choice(["u", "v"], ROWS),
        "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, ROWS), "D"),
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
    _, found = told(lambda: MultimodalClassifier.load(model).predict_frame(rows))
    return [each for each in found if "missing" in each]


@pytest.mark.parametrize("column", ["sum", "town", "day", "often"])
def test_an_empty_column_is_said_and_refused(column: str, model: Path, tmp_path: Path) -> None:
    rows = X.assign(**{column: None})
    (sentence,) = said(model, rows)
    assert f"column '{column}': {ROWS} of {ROWS} values are missing" in sentence
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
    joined = X.drop(columns="sum").join(X[["sum"]].iloc[: ROWS // 3], how="left")
    (sentence,) = said(model, joined)
    assert f"column 'sum': {ROWS - ROWS // 3} of {ROWS}" in sentence


def test_gaps_as_there_were_in_training_and_a_few_are_not_said(model: Path) -> None:
    assert said(model, X) == []
    assert said(model, X.assign(sum=X["sum"].where(X.index > 3))) == []
    assert said(model, X.head(2).assign(sum=None)) == []
    assert said(model, X.assign(often=X.often.where(X.index % 3 > 0))) == []
    (sentence,) = said(model, X.assign(sum=X["sum"].astype(object).where(X.index % 2 > 0, "heavy")))
    assert "60 of 120 values are no numbers and count as missing" in sentence


def test_a_number_that_stands_for_missing_ones_is_said_and_refused(model: Path, tmp_path: Path) -> None:
    filled = X.assign(sum=X["sum"].where(X.index % 2 > 0, -99_999))
    (sentence,) = said(model, filled)
    assert "'sum'" in sentence
    assert "60 of 120 rows have -99999" in sentence
    filled.to_csv(tmp_path / "filled.csv", index=False)
    assert "-99999" in refused(
        "predict", model, tmp_path / "filled.csv", "--strict", "--out", tmp_path / "p.csv"
    )
    assert said(model, X.assign(sum=X["sum"].where(X.index > 3, -99_999))) == []
    assert said(model, X.assign(sum=X["sum"].where(X.index % 2 > 0, -99_999 - X.index))) == []


@pytest.mark.slow
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
    with pytest.raises(UsboostError, match=r"photo.*none of its 24 values can be read"):
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

"""A table of requests against the training rows of a model, and drift against literal definitions."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import refuses
from tests.fit.conftest import accepted
from usboost.fit import bundle, drift
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
    assert counts[0] == 95 and counts.sum() == 100


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

"""One model gives one answer for one row, however its values are typed or written."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.conftest import refuses
from tests.fit.conftest import accepted, refused
from usboost import MultimodalClassifier, MultimodalRegressor, UsboostWarning
from usboost.datasets import store
from usboost.fit import bundle, drift
from usboost.fit.build import fit
from usboost.fit.bundle import raw_rows
from usboost.fit.predict import score_table
from usboost.table import prepared as user_table
from usboost.table.prepared import read_prepared
from usboost.table.schema import describe
from usboost.table.source import FrameRows, TableFile
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_columns, read_table

N = 120
RNG = np.random.default_rng(0)
X = RNG.normal(size=N).round(3)
Y = np.where(X > 0, "pos", "neg")
FLAG = RNG.random(N) < 0.5
SHOP = RNG.integers(1, 6, N)
DAY = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D"))


def fitted(column: Sequence[Any] | pd.Series, y: Any, **options: Any) -> MultimodalClassifier:
    frame = pd.DataFrame({"v": column, "z": RNG.normal(size=N)})
    return MultimodalClassifier("logistic", **options).fit(frame, y)


def answers(model: MultimodalClassifier, column: Any, z: float = 0.0) -> np.ndarray:
    return model.predict_proba(pd.DataFrame({"v": column, "z": z}))


SPELLINGS: dict[str, tuple[Any, dict[str, Any], list[Any]]] = {
    "categories of whole numbers": (
        pd.Series(SHOP, dtype=float).where(np.arange(N) % 10 > 0).astype("category"),
        {},
        [
            SHOP,
            SHOP.astype(float),
            [f"{k}.0" for k in SHOP],
            [str(k) for k in SHOP],
            pd.Series(SHOP).astype("Int8"),
        ],
    ),
    "categories of fractions": (
        pd.Series(SHOP / 4),
        {"categorical": "v"},
        [[f"{k / 4:.2f}" for k in SHOP], (SHOP / 4).astype(np.float32)],
    ),
    "booleans": (
        FLAG,
        {},
        [
            FLAG.astype(int),
            FLAG.astype(float),
            *([by(str(f)) for f in FLAG] for by in (str.lower, str.upper)),
        ],
    ),
    "booleans as words": (np.where(FLAG, "yes", "no"), {}, [FLAG, np.where(FLAG, "YES", "No")]),
    "numbers of 0 and 1": (FLAG.astype(int), {}, [FLAG, [str(f) for f in FLAG], FLAG.astype(str)]),
    "numbers": (X, {}, [[f"{v:.3f}" for v in X], pd.Series(X.astype(str), dtype="string")]),
    "numbers with a unit": ([f"{v:.3f} kg" for v in X], {}, [[f"{v:.3f}kg" for v in X], X]),
    "dates": (DAY, {}, [DAY.dt.strftime("%Y-%m-%d"), DAY.dt.strftime("%Y-%m-%d 00:00:00 UTC"), DAY.dt.date]),
    "dates with names of months": (DAY.dt.strftime("%d-%b-%Y"), {}, [DAY, DAY.dt.strftime("%b %d, %Y")]),
    "categories of dates": (
        DAY.dt.strftime("%Y-%m-01"),
        {"categorical": "v"},
        [pd.to_datetime(DAY.dt.strftime("%Y-%m-01")), DAY.dt.to_period("M")],
    ),
}


@pytest.mark.parametrize("what", SPELLINGS)
def test_a_value_in_another_spelling_is_the_same(what: str, tmp_path: Path) -> None:
    column, options, others = SPELLINGS[what]
    label = {"booleans": FLAG, "booleans as words": FLAG, "numbers of 0 and 1": FLAG}.get(what, X > 0)
    label = SHOP % 2 if "categories of whole" in what else label
    model = fitted(column, label, **options)
    if "categories of whole" in what:
        column = SHOP  # without gaps
    right = answers(model, column)
    assert np.ptp(right[:, 0]) > 0.01
    for other in others:
        np.testing.assert_allclose(answers(model, other), right, rtol=1e-6)
    frame = pd.DataFrame({"v": others[0], "z": 0.0})
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = model.bundle_.predict(TableFile.open(tmp_path / "t.csv"))
    np.testing.assert_allclose(found.drop(columns="label").to_numpy()[:, model._order], right, rtol=1e-6)


@pytest.mark.parametrize("value", ["true", "−1.5"])
def test_a_value_is_read_alike_whatever_other_rows_hold(value: str, tmp_path: Path) -> None:
    model, rest = fitted(X, X > 0), [str(x) for x in X[:40]]
    right = answers(model, [value, *rest])[0]
    assert (right != answers(model, [None, *rest])[0]).all()
    for other in ("inf", "x", "true", "1e400", "−2"):
        np.testing.assert_array_equal(answers(model, [value, *rest, other])[0], right)
    (tmp_path / "t.csv").write_text("v;z\n5;0,25\ninf;1,5\n")  # whose commas the first column does not have
    assert len(model.bundle_.predict(TableFile.open(tmp_path / "t.csv"))) == 2


@pytest.mark.parametrize("option", [-999, "-999", "-999.0", ["-9.99e2"], -999.0])
def test_a_missing_value_in_any_spelling(option: Any, tmp_path: Path) -> None:
    column = np.where(np.arange(N) % 5 == 0, -999, X)
    model = fitted(column, Y, missing=option)
    right = answers(model, np.where(np.arange(N) % 5 == 0, np.nan, X))
    texts = [f"{v:.2f}" if v == -999 else str(v) for v in column]
    for other in (column, texts, column.astype(str)):
        np.testing.assert_allclose(answers(model, other), right, rtol=1e-9)
    frame = pd.DataFrame({"v": column, "z": 0.0, "y": Y})
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet"):
        frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
        table = read_columns(path, TableSpec("y", missing=option))
        assert table.features["v"].isna().sum() == N // 5 and not table.notes
        fill, nowhere = read_columns(path, TableSpec("y", missing="-998")).notes
        assert nowhere == "no column holds '-998', which counts as missing (`missing='-998'`)"
        assert fill.startswith(f"column 'v' holds -999 in {N // 5} rows") and "`missing='-999'`" in fill


@pytest.mark.parametrize(
    ("column", "option"),
    [
        (["1,234 €", "-999,00 €"], "-999"),
        (["24/12/2020", "01/01/1900"], "1900-01-01"),
        ([True, False], "False"),
        ([pd.Timestamp("1900-01-01"), pd.Timestamp("2020-03-04 10:30")], "1900-01-01"),
        (["a", "3.0"], 3),
    ],
)
def test_half_is_missing(column: list[Any], option: Any) -> None:
    frame = pd.DataFrame({"v": column * (N // 2), "y": Y})
    table = read_columns(FrameRows(frame), TableSpec("y", missing=option))
    assert table.features["v"].isna().sum() == N // 2


def test_a_date_known_to_the_month_or_year_is_its_first_day(tmp_path: Path) -> None:
    model = fitted(DAY, Y)
    for given, meant in (("2014-02", "2014-02-01"), ("1992", "1992-01-01"), ("Feb 2014", "2014-02-01")):
        right = answers(model, [pd.Timestamp(meant)])
        np.testing.assert_array_equal(answers(model, [given]), right)
    np.testing.assert_array_equal(answers(model, [1992]), answers(model, ["1992-01-01"]))
    (tmp_path / "t.csv").write_text("v,z\n1992,0\n")
    got = model.bundle_.predict(TableFile.open(tmp_path / "t.csv"))
    np.testing.assert_array_equal(got.iloc[0, 1:].to_numpy(float)[model._order], answers(model, ["1992"])[0])
    refuses("column 'v' held dates when the model was fitted", answers, model, [17])
    years = pd.DataFrame({"v": ["31.12.68", "31.12.69"] * N, "y": [*Y, *Y]})
    short = read_columns(FrameRows(years), TableSpec("y"))
    assert short.features["v"].dt.year.head(2).tolist() == [2068, 1969]


@pytest.mark.parametrize(
    "kind",
    [
        "str",
        "string[pyarrow]",
        pa.string_view(),
        pa.large_string(),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)
def test_types_of_strings(kind: Any) -> None:
    dtype = pd.ArrowDtype(kind) if isinstance(kind, pa.DataType) else kind
    words = pd.Series(np.where(X > 0, "u", "v")).mask(np.arange(N) % 7 == 0)
    right = fitted(words.astype(object), Y)
    found = fitted(words.astype(dtype), pd.Series(Y).astype(dtype))
    assert found.bundle_.card.columns == right.bundle_.card.columns
    assert found.classes_.tolist() == ["neg", "pos"]
    np.testing.assert_array_equal(answers(right, words.astype(dtype)), answers(right, words))


def test_views_and_runs_of_strings_in_a_file(tmp_path: Path) -> None:
    words = pa.array(np.where(X > 0, "u", "v").tolist())
    coded = pa.DictionaryArray.from_arrays(
        pa.array([0, 1] * (N // 2)), pa.array(["a", "b"]).cast(pa.string_view())
    )
    runs = pa.compute.run_end_encode(words)
    table = pa.table({"v": words.cast(pa.string_view()), "c": coded, "r": runs, "y": Y.tolist()})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    found = read_columns(tmp_path / "t.arrow", TableSpec("y"))
    assert found.kinds == {"v": "category", "c": "category", "r": "category"}
    assert found.features["r"].astype(str).tolist() == words.to_pylist()
    assert found.features["c"].astype(str).tolist() == ["a", "b"] * (N // 2)


@pytest.mark.parametrize("cut", [lambda x: pd.cut(x, [-9, 0, 9]), lambda x: pd.qcut(x, 3)])
def test_intervals_are_classes_and_categories(cut: Any) -> None:
    bands = cut(pd.Series(X))
    names = [str(each) for each in bands.cat.categories]
    for y in (bands, bands.astype(object), bands.array, pd.Series(bands.array.astype("interval"))):
        assert fitted(X, y).classes_.tolist() == sorted(names)
    model = fitted(bands, Y)
    np.testing.assert_array_equal(answers(model, bands.astype(str)), answers(model, bands))
    assert model.score(pd.DataFrame({"v": bands, "z": 0.0}), Y) > 0.7


def test_what_is_missing_in_a_list_of_labels() -> None:
    for gap in (float("nan"), None, np.nan, pd.NA):
        words = [gap if k % 5 == 0 else each for k, each in enumerate(Y.tolist())]
        assert fitted(X, words).classes_.tolist() == ["neg", "pos"]
        flags = [gap if k % 5 == 0 else bool(each > 0) for k, each in enumerate(X)]
        assert fitted(X, flags).classes_.tolist() == [False, True]
    rows = [[value, "u" if value > 0 else "v"] for value in X.tolist()]
    rows[3][0] = float("nan")
    card = MultimodalClassifier("logistic").fit(rows, Y).bundle_.card
    assert card.columns == {"x0": "number", "x1": "category"}


@pytest.mark.parametrize(
    "names", [("inf", "nan", "NA"), ("None", "1e5", "-inf"), ("1e5", "1E5"), ("3", "3.5"), ("nan", "-")]
)
def test_classes_may_have_any_names(names: tuple[str, ...], tmp_path: Path) -> None:
    y = np.array(names)[np.arange(N) % len(names)]
    model = fitted(np.arange(N) % len(names) + 0.5, y)
    assert sorted(model.classes_) == sorted(names)
    assert model.predict(pd.DataFrame({"v": [0.5, 1.5], "z": 0.0})).tolist() == list(names[:2])
    model.save(tmp_path / "m")
    assert sorted(MultimodalClassifier.load(tmp_path / "m").classes_) == sorted(names)


def test_labels_in_another_spelling_are_scored(tmp_path: Path) -> None:
    for y, others in (
        (FLAG, [FLAG.astype(int), np.where(FLAG, "TRUE", "false"), FLAG.astype(float)]),
        (FLAG.astype(int), [FLAG, FLAG.astype(float), np.where(FLAG, "1.0", "0.0")]),
        (np.where(FLAG, "yes", "no"), [FLAG, np.where(FLAG, "Yes", "NO")]),
    ):
        model = fitted(X, y)
        model.save(tmp_path / "m")
        loaded = bundle.load(tmp_path / "m")
        expected = (loaded.labels == np.asarray(y)[:, None]).argmax(axis=1)
        for other in others:
            frame = pd.DataFrame({"v": X, "z": 0.0, "label": other})
            frame.to_parquet(tmp_path / "t.parquet")
            found = score_table(loaded, tmp_path / "t.parquet", "label").labels
            np.testing.assert_array_equal(found, expected)


def test_text_labels_are_given_back_as_they_were() -> None:
    assert fitted(X, np.where(FLAG, "1.0", "2.0")).classes_.tolist() == ["1.0", "2.0"]
    mixed = np.where(FLAG, "1", "2.0")
    mixed[:3] = "1.0"
    assert fitted(X, mixed).classes_.tolist() == ["1", "2.0"]
    weighted = fitted(X, np.where(FLAG, "1.0", "2.0"), class_weight={1: 3.0}, positive=2)
    assert weighted.bundle_.card.classes == ["1.0", "2.0"]


def test_a_counter_is_one_thing_in_every_fold() -> None:
    frame = pd.DataFrame({"t": np.arange(N), "order_id": np.arange(N) + 7, "z": X})
    for k in (0, 40, 80):
        fold = frame.drop(range(k, k + 40))
        card = MultimodalRegressor("ridge").fit(fold, fold["t"] + fold["z"]).bundle_.card
        assert list(card.columns) == ["t", "z"] and card.dropped == ["order_id"]
    table = read_columns(FrameRows(frame.assign(y=Y)), TableSpec("y"))
    assert describe(table).notes[0].startswith("column 't' counts the rows, and is read as a number; drop it")


WRITTEN = 60


def plain() -> pd.DataFrame:
    """Rows with types, some values missing."""
    rng = np.random.default_rng(0)
    price, share = rng.integers(100, 5_000_000, WRITTEN) / 100, rng.integers(0, 100, WRITTEN)
    day = pd.Timestamp("2021-11-20") + pd.to_timedelta(rng.integers(0, 90, WRITTEN), unit="D")
    return pd.DataFrame(
        {
            "no": np.arange(1, WRITTEN + 1),
            "price": np.where(rng.random(WRITTEN) < 0.1, np.nan, price),
            "share": share / 100,
            "day": pd.Series(day).mask(rng.random(WRITTEN) < 0.1),
            "kind": np.where(price / 50_000 + share / 100 > 1, "b", "a"),
        }
    )


def euros(value: float) -> str:
    return "k.A." if np.isnan(value) else f"{value:,.2f} €".translate(str.maketrans(",.", ".,"))


def as_written(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(
        price=frame["price"].map(euros),
        share=frame["share"].map(lambda share: f"{share:.0%}"),
        day=frame["day"].dt.strftime("%d.%m.%Y"),
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "t.csv"
    as_written(plain()).to_csv(path, index=False, sep=";", encoding="cp1252")
    return path


@pytest.fixture(scope="module")
def model(table: Path) -> Path:
    out = table.parent / "model"
    fit = ("fit", table, "--label", "kind", "--missing", "k.A.", "--model", "lgbm", "--rounds", 5)
    result = accepted(*fit, "--out", out)
    assert "column 'no' is left out: each row has its own value" in result.stderr
    assert "number, written like 1.234,5 €" in result.stderr
    assert "5 numbers: year, month, weekday, yearday, days; constant: hour" in result.stderr
    return out


def test_the_card_says_how_they_are_written(model: Path, table: Path) -> None:
    card = json.loads((model / "card.json").read_text())
    assert card["columns"] == {"price": "number", "share": "number", "day": "date"}
    assert card["formats"]["price"] == {"decimal": ",", "thousands": ".", "unit": "€", "order": None}
    assert card["formats"]["share"]["unit"] == "%" and card["formats"]["day"]["order"] == "dmy"
    assert card["missing"] == ["k.A."] and card["dropped"] == ["no"]
    assert card["dates"]["day"]["parts"] == ["year", "month", "weekday", "yearday", "days"]
    loaded = bundle.load(model)
    loaded.save(model.parent / "again")
    assert (model.parent / "again/card.json").read_text() == (model / "card.json").read_text()


def test_rows_with_types_and_as_written_are_the_same(model: Path, table: Path, tmp_path: Path) -> None:
    result = accepted("predict", model, table, "--out", tmp_path / "p.parquet")
    assert result.stderr.count("note:") == 1 and "read as cp1252" in result.stderr
    from_file = pd.read_parquet(tmp_path / "p.parquet")["p_a"]
    loaded = bundle.load(model)
    written = as_written(plain())
    texts = [written, written.assign(day=plain()["day"].dt.strftime("%Y-%m-%d")), plain()]
    for frame in (*texts, plain().assign(day=plain()["day"].dt.tz_localize("UTC"))):
        np.testing.assert_allclose(loaded.predict(frame)["p_a"], from_file, rtol=1e-12)
    with pytest.warns(UsboostWarning, match="have no %"):
        loaded.predict(plain().assign(share=100 + plain()["share"]))
    plain().to_parquet(tmp_path / "t.parquet")
    accepted("report", model, tmp_path / "t.parquet", "--out", tmp_path / "r.html")


def test_what_is_written_otherwise_counts_as_missing_or_is_refused(model: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "p.csv")
    wrong = ("price", "1.5 €", "numbers"), ("share", "12", "numbers"), ("day", "x", "dates")
    for column, value, what in wrong:
        frame = as_written(plain())
        frame.loc[4, column] = value
        frame.to_csv(tmp_path / "t.csv", index=False, sep=";")
        done = accepted("predict", model, tmp_path / "t.csv", *out)
        assert f"counts as missing, in row 5 (line 6), {value!r}" in done.output
        said = refused("predict", model, tmp_path / "t.csv", *out, "--strict")
        held = f"column {column!r} held {what} when the model was fitted; give {what}"
        assert said.startswith(f"{tmp_path / 't.csv'}, row 5 (line 6), {value!r}: {held}")


def test_dates_are_learnt_from_the_training_rows(table: Path) -> None:
    own = read_table(table, TableSpec(label="kind", missing=["k.A."]))
    late = np.flatnonzero(own.features["day"] >= pd.Timestamp("2022-01-01"))
    parts = own.fit_encoding(late).dates["day"]
    assert parts.parts == ("month", "weekday", "yearday", "days")
    assert parts.reference == own.features["day"].iloc[late].min().isoformat()
    found = own.views(own.fit_encoding(late), np.arange(WRITTEN))["S"]
    assert np.isfinite(found.numeric).all()
    assert isinstance(own, UserTable)


def test_a_prepared_table_has_them_too(table: Path, tmp_path: Path) -> None:
    made = user_table.prepare(table, TableSpec(label="kind", missing=["k.A."]), seed=0)
    store.write(made, tmp_path / "prepared")
    own = read_prepared(tmp_path / "prepared")
    fit(own, "2wl", rounds=2).bundle.save(tmp_path / "bundle")
    loaded = bundle.load(tmp_path / "bundle")
    frame = store.read_frame(tmp_path / "prepared", "val")
    rows = raw_rows(loaded.card, frame)
    assert set(rows) == {"price", "share", "day"}
    said = loaded.predicted_of(own, np.flatnonzero(own.split == "val"))
    np.testing.assert_array_equal(loaded.predict(rows).iloc[:, 1:], said)
    train_rows = raw_rows(loaded.card, store.read_frame(tmp_path / "prepared", "train"))
    found = drift.compare(loaded.card, train_rows, {}, table).set_index("column")
    assert found.loc["day", "kind"] == "date" and (found["drift"] == "").all()

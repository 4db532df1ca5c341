"""Tables that change between fit and predict: names, places, zones, marks, forms of Unicode, labels."""

import unicodedata
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.conftest import refuses
from tests.fit.conftest import told
from usboost import MultimodalClassifier, UsboostWarning
from usboost.fit.bundle import raw_rows
from usboost.fit.parameters import frame_of
from usboost.table.rows import RowReader
from usboost.table.source import FrameRows, TableFile
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_columns

N = 200
RNG = np.random.default_rng(0)
A, B, NOISE = RNG.normal(size=(3, N)).round(3)
Y = A - 2 * B > 0


def fitted(X: Any, y: Any = Y) -> MultimodalClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UsboostWarning)
        return MultimodalClassifier("logistic", refit=False).fit(X, y)


@pytest.mark.parametrize("names", [[2, 0, 1], ["2", "0", "1"], ["x1", "x0", "x2"], ["b", "a", "c"]])
def test_an_array_has_its_columns_in_the_order_of_the_fit(names: list[Any]) -> None:
    frame = pd.DataFrame({names[0]: A, names[1]: B, names[2]: NOISE})
    model = fitted(frame)
    right = model.predict_proba(frame)
    for same in (frame.to_numpy(), frame.to_numpy(dtype=object), frame.to_numpy().tolist()):
        found, said = told(lambda same=same: model.predict_proba(same))
        np.testing.assert_allclose(found, right, rtol=1e-9)
        assert ["order of the fit: b, a, c" in each for each in said] == [True] * (names[0] == "b")
    np.testing.assert_array_equal(model.predict_proba(frame[names[::-1]]), right)
    refuses("has 2 features", model.predict, frame.to_numpy()[:, :2])
    refuses("lacks column", model.predict, frame.rename(columns={names[0]: "other"}))


def test_tables_of_other_libraries_keep_their_names(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": A, "b": B, "c": np.where(NOISE > 0, "u", "v")})
    tables = [pa.Table.from_pandas(frame), pa.RecordBatch.from_pandas(frame), frame.to_records(index=False)]
    if (dask := pytest.importorskip("dask.dataframe")) is not None:
        tables.append(dask.from_pandas(frame, npartitions=2))
    right = fitted(frame).predict_proba(frame)
    for table in tables:
        model = fitted(table)
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        for other in (table, frame[["c", "b", "a"]], frame.assign(more=1)):
            np.testing.assert_array_equal(model.predict_proba(other), right)
    exact = pa.table(
        {"k": pa.array([2**63 + 1, None], pa.uint64()), "s": pa.array(["x", "y"], pa.string_view())}
    )
    assert frame_of(exact)["k"].iloc[0] == 2**63 + 1
    model = fitted(frame[["a", "b"]])
    model.save(tmp_path / "m")
    loaded = MultimodalClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(np.column_stack([A, B])), model.predict(frame))


LOCAL = pd.Series(pd.date_range("2021-01-01", periods=N, freq="7h"))
AWARE = LOCAL.dt.tz_localize("America/New_York", nonexistent="shift_forward", ambiguous=np.ones(N, bool))
FORMS = {
    "zone": AWARE,
    "UTC": AWARE.dt.tz_convert("UTC"),
    "offsets": AWARE.map(pd.Timestamp.isoformat),
    "objects": AWARE.map(pd.Timestamp.to_pydatetime).astype(object),
    "none": LOCAL,
    "text": LOCAL.dt.strftime("%Y-%m-%d %H:%M"),
}
HAVE_NONE = {"none", "text"}


@pytest.mark.parametrize("first", ["zone", "UTC", "offsets", "none", "text"])
def test_times_are_read_in_the_zone_of_the_fit_or_said(first: str) -> None:
    hours = LOCAL.dt.hour
    frame = pd.DataFrame({"t": FORMS[first], "z": NOISE})
    model = MultimodalClassifier("lgbm", refit=False, rounds=5).fit(frame, (hours >= 9) & (hours < 17))
    right = model.predict_proba(frame)
    prepared = pd.DataFrame({"t": AWARE.dt.tz_convert("UTC").dt.tz_localize(None), "z": NOISE})  # is in UTC
    again, said = told(lambda: model.predict_proba(raw_rows(model.bundle_.card, prepared)))
    assert first != "zone" or (np.array_equal(again, right) and not said)
    for name, times in FORMS.items():
        found, said = told(lambda times=times: model.predict_proba(frame.assign(t=times)))
        differs = (name in HAVE_NONE) != (first in HAVE_NONE)
        assert len(said) == differs and all(
            "column 't': times such as 2021" in each for each in said if name != "text"
        )
        # clocks as written are those of New York; a fit with several offsets knows no zone
        same = not differs or first == "zone" or (first in HAVE_NONE and name != "UTC")
        assert np.allclose(found, right) or not same
        if differs:
            refuses("write them as for the fit", model.predict_frame, frame.assign(t=times), True)


@pytest.mark.parametrize(("own", "other", "first"), [("%d/%m", "%m/%d", "month"), ("%m/%d", "%d/%m", "day")])
def test_dates_with_day_and_month_exchanged_are_read_so_and_said(own: str, other: str, first: str) -> None:
    days = pd.Series(pd.date_range("2021-01-01", periods=N, freq="3D"))
    frame = pd.DataFrame({"t": days.dt.strftime(f"{own}/%Y"), "z": NOISE})
    model = MultimodalClassifier("lgbm", refit=False, rounds=5).fit(frame, days.dt.day < 16)
    found, said = told(lambda: model.predict_proba(frame.assign(t=days.dt.strftime(f"{other}/%Y"))))
    assert np.array_equal(found, model.predict_proba(frame)) and f"have the {first} first" in said[0]


def test_days_without_a_time_are_said() -> None:
    model = MultimodalClassifier("logistic")
    _, _ = told(lambda: model.fit(pd.DataFrame({"t": LOCAL, "z": NOISE}), Y))
    for days, n in ((LOCAL.dt.normalize(), 1), (LOCAL.dt.strftime("%Y-%m-%d"), 1), (LOCAL, 0)):
        _, said = told(lambda d=days: model.predict(pd.DataFrame({"t": d, "z": NOISE})))
        assert len(said) == n and all("no row has a time of the day" in each for each in said)


def test_times_without_a_day() -> None:
    typed, of_days = (pd.DataFrame({"t": each, "z": NOISE}) for each in (LOCAL.dt.time, LOCAL))
    models = [MultimodalClassifier("logistic").fit(each, Y) for each in (typed, of_days)]
    found = [models[0].predict_proba(each) for each in (typed, of_days, typed.astype({"t": str}))]
    assert np.ptp(found, axis=0).max() == 0 < np.ptp(found[0], axis=0).max()
    for model, times in ((models[0], 1830), (models[1], typed["t"])):
        refuses("'t' held dates", model.predict, of_days.assign(t=times))


def write(path: Path, separator: str, mark: str, thousands: str, low: float) -> Path:
    """Numbers with three decimals; their sum says the class."""
    x = np.random.default_rng(1).uniform(low, 9 * low, (N, 2))
    cells = [[f"{v:,.3f}".translate({44: thousands, 46: mark}) for v in row] for row in x]
    quoted = [separator.join(f'"{cell}"' for cell in row) for row in cells]
    rows = [f"{row}{separator}{int(sum(v) > 10 * low)}" for row, v in zip(quoted, x, strict=True)]
    path.write_text("\n".join([separator.join(["w", "v", "y"]), *rows, ""]))
    return path


@pytest.mark.parametrize("low", [1.0, 700.0])
def test_numbers_are_read_by_the_mark_of_their_own_file(tmp_path: Path, low: float) -> None:
    dialects = {
        "de": (";", ",", "."),
        "de plain": (";", ",", ""),
        "en": (",", ".", ""),
        "en tab": ("\t", ".", ","),
    }
    paths = {name: write(tmp_path / f"{name}.csv", *each, low) for name, each in dialects.items()}
    tables = {name: read_columns(path, TableSpec("y")) for name, path in paths.items()}
    for first, table in tables.items():
        rows = np.arange(N)
        reader = RowReader(table.kinds, table.fit_encoding(rows), None, table.formats)
        right = table.views(reader.encoding, rows)["S"].numeric
        for name, path in paths.items():
            (found,) = reader.read(TableFile.open(path))
            np.testing.assert_allclose(found.views["S"].numeric, right, atol=1e-6, err_msg=f"{first}, {name}")
    assert any("nothing in the table says" in each for each in tables["de"].notes) == (low == 1)


def test_an_index_that_was_written_is_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": A, "y": Y})
    doubled = pd.concat([frame.iloc[: N // 2], frame.iloc[N // 2 :].reset_index(drop=True)])
    floats = doubled.set_index(doubled.index.astype(float))
    for k, table in enumerate((doubled, floats, doubled.sample(frac=1, random_state=0))):
        table.to_csv(tmp_path / f"{k}.csv")
        pd.read_csv(tmp_path / f"{k}.csv").to_parquet(tmp_path / f"{k}.parquet", index=False)
        table.reset_index().to_csv(tmp_path / f"{k}n.csv", index=False)
        for name in (f"{k}.csv", f"{k}.parquet", *([f"{k}n.csv"] if k != 1 else [])):
            read = read_columns(tmp_path / name, TableSpec("y"))
            assert list(read.features) == ["a"] and "index" in next(iter(read.left_out.values()))
    named = frame.assign(index=RNG.integers(100, 150, N), id=RNG.integers(0, 9, N))  # of shares, of a shop
    assert list(read_columns(FrameRows(named), TableSpec("y")).features) == ["a", "index", "id"]


def test_whole_numbers_of_more_than_64_bits_stay_apart_in_json_lines(tmp_path: Path) -> None:
    def lines(key: Any) -> str:
        return "".join(f'{{"k": {key(j)}, "x": {j}.5, "y": "{"ab"[j % 2]}"}}\n' for j in range(N))

    path = tmp_path / "t.jsonl"
    path.write_text(lines(lambda j: 2**64 + j % 8))
    table = read_columns(path, TableSpec("y"))
    assert table.features["k"].nunique() == 8 and str(2**64 + 3) in set(table.features["k"])
    assert table.features["x"].dtype == np.float64
    path.write_text(lines(lambda j: "null" if j == 5 else -(2**70) - j % 8))
    assert read_columns(path, TableSpec("y")).features["k"].nunique() == 8
    path.write_text(lines(lambda j: f"{j}.5" if j else 2**70))  # numbers, not identifiers
    assert read_columns(path, TableSpec("y")).features["k"].dtype == np.float64


NFC, NFD = (unicodedata.normalize(form, "Größe") for form in ("NFC", "NFD"))


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_the_form_of_unicode_makes_no_difference(tmp_path: Path, end: str) -> None:
    def table(name: str, value: str, label: str) -> Path:
        own = pd.DataFrame({name: np.where(Y, value, "u"), "a": NOISE, "l" + label: np.where(Y, label, "n")})
        path = tmp_path / f"t.{end}"
        own.to_csv(path, index=False) if end == "csv" else own.to_parquet(path, index=False)
        return path

    read = read_columns(table(NFD, NFD, NFD), TableSpec("l" + NFC))
    assert sorted(read.classes) == sorted([NFD, "n"])
    reader = RowReader(read.kinds, read.fit_encoding(np.arange(N)), None, read.formats)
    (right,) = reader.read(TableFile.open(tmp_path / f"t.{end}"))
    for form in (NFC, NFD):
        (found,) = reader.read(TableFile.open(table(form, form, form)))
        np.testing.assert_array_equal(found.views["S"].codes, right.views["S"].codes)
        assert (found.views["S"].codes > 0).all()
    both = np.where(np.arange(N) % 2, np.where(Y, NFC, "n"), np.where(Y, NFD, "n"))
    model = fitted(pd.DataFrame({"a": A, "b": B, "c": both}), both)
    assert len(model.classes_) == 2 and model.score(pd.DataFrame({"a": A, "b": B, "c": both}), both) > 0.9


SOME = NOISE > 0


@pytest.mark.parametrize(
    "y",
    [
        np.where(Y, "yes ", "no"),
        np.where(Y, " p", " n").astype(object),
        pd.Series(np.where(Y, "p ", "n ")).astype("category"),
        np.where(Y, b"p", b"n"),
        np.where(Y, b"p ", b"n").astype(object),
        np.where(Y, NFD, "n"),
        np.where(Y, "1.0", "2.0"),
        np.where(Y, np.where(SOME, "1", "1.0"), "2"),
        np.where(Y, "yes", np.where(SOME, "no", "no ")),
    ],
    ids=repr,
)
def test_labels_come_back_as_they_were_given(tmp_path: Path, y: Any) -> None:
    X = pd.DataFrame({"a": A, "b": B})
    model, given = fitted(X, y), np.asarray(y, dtype=object)
    model.save(tmp_path / "m")
    for each in (model, MultimodalClassifier.load(tmp_path / "m")):
        assert set(each.classes_) <= set(given) and set(each.predict(X)) <= set(given)
        assert each.score(X, y) > 0.95 and each.score(X, given[::-1]) < 0.8
        assert list(each.classes_[each.predict_proba(X).argmax(axis=1)]) == list(each.predict(X))

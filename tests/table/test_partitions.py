"""Folders of Parquet files with sub-folders, as Hive, Spark and dask write them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import refuses
from usboost.datasets.sources import sha256
from usboost.table.files import digest
from usboost.table.source import TableFile


def divided(folder: Path, **parts: list[int]) -> Path:
    """A table of x in files by path; ``__`` stands for a slash, ``_is_`` for the sign of equality."""
    for name, x in parts.items():
        path = folder / f"{name.replace('__', '/').replace('_is_', '=')}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": x}), path, row_group_size=2)
    return folder


def rows_of(folder: Path, *names: str, size: int = 100) -> dict[str, list[object]]:
    file = TableFile.open(folder)
    batches = list(file.batches(names or file.names, size))
    return pa.concat_tables(batches).to_pydict()


@pytest.mark.parametrize("size", [1, 2, 100])
def test_folders_name_a_column(tmp_path: Path, size: int) -> None:
    folder = divided(tmp_path, year_is_2021__a=[4, 5], year_is_2020__b=[3], year_is_2020__a=[0, 1, 2])
    rows = {"x": [0, 1, 2, 3, 4, 5], "year": [2020] * 4 + [2021] * 2}
    assert rows_of(folder, size=size) == rows
    assert rows_of(folder, "year", size=size) == {"year": rows["year"]}
    assert rows_of(folder, "year", "x", size=size) == rows
    file = TableFile.open(folder)
    assert (file.n_rows, file.names, file.notes) == (6, ["x", "year"], ())


def test_one_file_in_a_folder_has_the_column_too(tmp_path: Path) -> None:
    assert rows_of(divided(tmp_path, year_is_2020__a=[1, 2])) == {"x": [1, 2], "year": [2020, 2020]}


def test_files_above_the_folders_lack_the_column(tmp_path: Path) -> None:
    folder = divided(tmp_path, b=[9], year_is_2020__c=[7], year_is_2020__month_is_3__a=[1])
    assert rows_of(folder) == {"x": [9, 7, 1], "year": [None, 2020, 2020], "month": [None, None, 3]}
    first, second = TableFile.open(folder).notes
    assert "b.parquet lies above the folders of year, month: missing in its rows" in first
    assert "year=2020/c.parquet lies above the folders of month" in second


def test_values_as_hive_writes_them(tmp_path: Path) -> None:
    names = {"a%2Fb c": "a/b c", "__HIVE_DEFAULT_PARTITION__": None, "S%C3%A3o": "São", "x=y": "x=y"}
    for k, name in enumerate(names):
        (tmp_path / f"my%20place={name}").mkdir()
        pq.write_table(pa.table({"x": [k]}), tmp_path / f"my%20place={name}" / "p.parquet")
    found = rows_of(tmp_path)
    by_row = dict(zip(found["x"], found["my place"], strict=True))
    assert [by_row[k] for k in range(4)] == [*names.values()]


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["1", "02"], ["02", "1"]),  # a code, not a number
        (["1", "__HIVE_DEFAULT_PARTITION__"], [1, None]),
        (["1.5", "2"], ["1.5", "2"]),
        (["-1", "2"], [-1, 2]),
        (["99999999999999999999"], ["99999999999999999999"]),
    ],
)
def test_numbers_and_codes(tmp_path: Path, names: list[str], values: list[object]) -> None:
    for name in names:
        (tmp_path / f"k={name}").mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [1]}), tmp_path / f"k={name}" / "a.parquet")
    assert sorted(rows_of(tmp_path)["k"], key=str) == sorted(values, key=str)


def test_pandas_writes_what_is_read(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": range(6), "y": list("ababab"), "region": ["n", "s", "n", "s", "n", "n/w"]})
    frame.to_parquet(tmp_path / "t", partition_cols=["region"])
    found = pd.DataFrame(rows_of(tmp_path / "t")).sort_values("x", ignore_index=True)
    pd.testing.assert_frame_equal(found[["x", "y", "region"]], frame, check_dtype=False)


def test_a_column_in_the_files_goes_before_that_of_folders(tmp_path: Path) -> None:
    divided(tmp_path, x_is_7__a=[1, 2])
    assert rows_of(tmp_path) == {"x": [1, 2]}
    assert "column 'x' is in the files too" in TableFile.open(tmp_path).notes[0]


def test_other_folders_are_told(tmp_path: Path) -> None:
    divided(tmp_path, a=[1], old__deep__b=[2], _temporary__c=[3], year_is_2020__raw__d=[4])
    (tmp_path / "images").mkdir()
    assert rows_of(tmp_path) == {"x": [1]}
    notes = TableFile.open(tmp_path).notes
    advice = "are not read: a sub-folder is read if its name is column=value"
    assert notes == tuple(f"{tmp_path}: the files in {name} {advice}" for name in ("old", "year=2020/raw"))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"sub__a": [1]}, r"is a folder without \.parquet files; the files in sub are not read"),
        ({"year_is_1__a": [1], "day_is_1__a": [1]}, "is divided in two ways, by day and by year"),
        ({"year_is_1__year_is_2__a": [1]}, "column 'year' is in the path twice"),
        ({"a": [1], "_delta_log__c": [1]}, "is a Delta table, in which files may be out of date"),
    ],
)
def test_what_is_no_one_table(tmp_path: Path, parts: dict[str, list[int]], message: str) -> None:
    refuses(message, TableFile.open, divided(tmp_path, **parts))


def test_a_folder_that_leads_back_to_itself(tmp_path: Path) -> None:
    divided(tmp_path, a=[1])
    (tmp_path / "year=2020").symlink_to(tmp_path, target_is_directory=True)
    refuses("column 'year' is in the path twice", TableFile.open, tmp_path)


def test_the_digest_covers_the_folders(tmp_path: Path) -> None:
    flat = divided(tmp_path / "flat", a=[1], b=[2])
    lines = "".join(f"{name} {sha256(flat / name)}\n" for name in ("a.parquet", "b.parquet"))
    assert digest(flat) == hashlib.sha256(lines.encode()).hexdigest()
    found = set()
    for year in (2020, 2021):
        folder = divided(tmp_path / f"t{year}", **{f"year_is_{year}__a": [1], "b": [2]})
        found |= {digest(folder)}
        divided(folder, **{f"year_is_{year}__a": [3]})
        found |= {digest(folder)}
    assert len(found) == 4

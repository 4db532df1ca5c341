"""A user's table: what each column is taken for, and every table that is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import refuses
from usboost.table.columns.formats import FORMATS, NumberFormat, number_format
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, check_learnable, read_columns, read_table

N = 40


def csv_file(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8")
    return path


def from_columns(folder: Path, kind: str = "csv", **columns: Any) -> Path:
    """A table of 40 rows with the columns y and x, and others."""
    path = folder / f"t.{kind}"
    frame = pd.DataFrame({"y": ["a", "b"] * (N // 2), "x": np.arange(N) / 8, **columns})
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    return path


def test_categories_of_pandas_stay_categories(tmp_path: Path) -> None:
    frame = pd.DataFrame({"y": list("abab"), "grade": pd.Categorical([1, 2, None, 1])})
    frame.to_parquet(tmp_path / "t.parquet")
    grade = read_columns(tmp_path / "t.parquet", TableSpec(label="y")).features["grade"]
    assert grade.astype(object).where(grade.notna(), None).tolist() == ["1", "2", None, "1"]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["10", "9", "10", "9"], ["9", "10"]),
        ([1.0, 0.0, 0.0, 1.0], ["0", "1"]),
        ([True, False, True, False], ["False", "True"]),
        (["b", "a", "10", "a"], ["10", "a", "b"]),
    ],
)
def test_labels_of_any_type_are_classes(tmp_path: Path, labels: list[Any], classes: list[str]) -> None:
    frame = pd.DataFrame({"y": labels * 2, "x": range(8)})
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_columns(tmp_path / "t.parquet", TableSpec(label="y"))
    assert table.classes == classes
    as_text = [str(int(v)) if isinstance(v, float) else str(v) for v in labels * 2]
    assert [classes[code] for code in table.labels] == as_text


@given(
    values=st.lists(st.none() | st.floats(-1e30, 1e30), min_size=4, max_size=30),
)
def test_numbers_come_back_from_csv_as_they_went(tmp_path_factory, values: list[float | None]) -> None:
    path = tmp_path_factory.mktemp("t") / "t.csv"
    rows = [f"{'ab'[k % 2]},{'' if v is None else repr(v)}" for k, v in enumerate(values)]
    path.write_text("y,x\n" + "\n".join(rows) + "\n")
    found = read_columns(path, TableSpec(label="y")).features["x"]
    np.testing.assert_array_equal(found, [np.nan if v is None else v for v in values])


def read(path: Path, **options: Any) -> UserTable:
    return read_columns(path, TableSpec(**{"label": "y", **options}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([b"x"] * N, "column 'v' is of type binary"),
        ([[1, 2]] * N, "column 'v' is of type list"),
        ([{"a": 1}] * N, "column 'v' is of type struct"),
        ([0.0] * 6 + [np.inf] + [0.0] * 33, "row 7: column 'v' holds infinity or a number too large"),
        ([0.0] * 39 + [1e39], "row 40: column 'v' holds infinity or a number too large"),
    ],
)
def test_columns_no_learner_reads_are_refused(tmp_path: Path, values: list[Any], message: str) -> None:
    path = from_columns(tmp_path, "parquet", v=values)
    refuses(message, read, path)
    assert list(read(path, drop=["v"]).features) == ["x"]
    if message.endswith("too large") and np.isinf(values).any():
        table = read(path, missing=["inf"])
        assert np.flatnonzero(table.features["v"].isna()).tolist() == [6]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a", 2.5, None] * 10, "holds values of several types, int, str, float; turn it into"),
        ([1j] * N, "is complex; give real and imaginary part as two columns, or drop it"),
        (pd.arrays.SparseArray([0.0] * 39 + [1.0]), "is sparse; make it dense"),
        ([slice(1)] * N, "holds values of type slice; turn it into numbers or text, or drop it"),
        ([2**70] * N, "holds whole numbers of more than 64 bits; turn it into float or text"),
    ],
)
def test_columns_of_a_frame_that_no_file_could_hold(values: Any, message: str) -> None:
    frame = pd.DataFrame({"label": ["a", "b"] * 20, "v": values, "x": range(N)})
    refuses(f"the input: column 'v' {message}", read_table, FrameRows(frame, None), TableSpec(label="label"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,z\n1,2\n", "has no column 'y'; its columns are x, z"),
        ("y,x\na,1\nb,1,2\n", r"t\.csv is damaged or not of the type in its name: .*2 columns, got 3"),
        ("y,label\na,1\nb,2\n", "has a column 'label' that is not the label; rename or drop it"),
        ("y,clean_label\na,1\nb,2\n", "has a column 'clean_label' that is not the label"),
        (
            "y,x\n" + "".join(f"k{k},1\n" for k in range(9)),
            "has 9 values in 9 rows, but a class needs several",
        ),
    ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path: Path, text: str, message: str) -> None:
    refuses(message, read, csv_file(tmp_path, text))


def test_other_wrong_tables_are_refused(tmp_path: Path) -> None:
    good = from_columns(tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "t.sav").write_bytes(b"")
    (tmp_path / "mixed.csv").write_bytes(b"y,x\n" + "a,é\n".encode() * (1 << 18) + "b,é\n".encode("latin-1"))
    pq.write_table(
        pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["y", "y"]), tmp_path / "two.parquet"
    )
    from_columns(tmp_path, "parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-100])
    for path, options, message in (
        (tmp_path / "absent.csv", {}, "table not found"),
        (tmp_path / "t.sav", {}, r"is no table of a known kind; give a \.csv"),
        (tmp_path / "broken.parquet", {}, r"broken\.parquet is damaged"),
        (tmp_path / "cut.parquet", {}, r"cut\.parquet is damaged"),
        (tmp_path / "mixed.csv", {}, r"mixed\.csv is damaged .*(?i:utf-?8)"),
        (tmp_path / "two.parquet", {}, "two columns called 'y'"),
        (good, {"drop": ["z"]}, "has no column 'z'"),
        (good, {"image": "y"}, "column 'y' cannot have two roles"),
        (good, {"split": "x", "drop": ["x"]}, "column 'x' cannot have two roles"),
        (good, {"label": "x", "task": "classification"}, "has 40 values in 40 rows"),
        (
            from_columns(tmp_path, "parquet", z=[0.5, 1] * 20),
            {"label": "z", "task": "classification"},
            "classes are needed",
        ),
    ):
        refuses(message, read, path, **options)


def test_a_label_column_may_be_called_label(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "label,x\na,1\nb,2\na,1\nb,3\n")
    assert read_columns(path, TableSpec(label="label")).classes == ["a", "b"]
    path = csv_file(tmp_path, "\ufefflabel,clean_label\na,1\nb,2\na,1\nb,3\n")
    assert read_columns(path, TableSpec(label="label", drop=["clean_label"])).features.shape == (4, 0)


def test_splits_and_paths_are_read_strictly(tmp_path: Path) -> None:
    split = ["train", "val", "test", "train"] * 10
    table = read(from_columns(tmp_path, s=split, p=["a.png"] * N), split="s", image="p")
    assert table.split is not None and table.split.tolist() == split
    assert table.spec.image == ("p",) and list(table.features) == ["x"]
    for columns, message in (
        (
            {"s": ["train", "valid", "test", "train"] * 10},
            "must hold train, val and, where rows are for the test, test; 'valid' is unknown",
        ),
        ({"s": ["train", "test"] * 20}, "for the test, test; 'val' is missing"),
        ({"s": [*split[:-1], None]}, r"row 40 \(line 41\): column 's' is empty"),
    ):
        refuses(message, read, from_columns(tmp_path, **columns), split="s")
    both = read(from_columns(tmp_path, s=["train", "val"] * 20), split="s")
    assert both.split is not None and both.split.tolist() == ["train", "val"] * 20
    refuses("'x' must hold paths or bytes, not double", read, from_columns(tmp_path, "parquet"), image="x")


@pytest.mark.parametrize(
    "labels, task",
    [
        ([0, 1, 2, 3, 4, 5, 6, 7] * 5, "classification"),  # codes
        ([1, 2, 3, 4, 5, 6] * 7, "classification"),
        ([1990, 1991, 1992] * 13, "classification"),  # few values
        (list(range(1947, 1963)) * 3, "regression"),  # years
        (list(range(18, 30)) * 4, "regression"),  # ages
        ([0] * 20 + [1] * 10 + [2] * 5 + [3, 3, 4, 4, 5, 5, 6], "regression"),  # counts, with a rare end
        (list(range(1, 17)) + [None] * 24, "regression"),  # each once
        ([-2, -1, 0, 1, 2, 3] * 7, "regression"),
        ([1, 2, 4, 8, 16, 32] * 7, "regression"),
    ],
)
def test_whole_numbers_are_classes_where_they_are_few_or_codes(
    tmp_path: Path, labels: list[Any], task: str
) -> None:
    frame = pd.DataFrame({"y": labels, "x": np.arange(len(labels)) % 7 + 0.5})
    frame.to_parquet(tmp_path / "t.parquet")
    found = read(tmp_path / "t.parquet")
    assert found.task == task
    assert ("taken as classes" if task == "classification" else "so a number is predicted") in found.said


def test_numbers_taken_for_classes_may_be_predicted_where_a_class_has_one_row(tmp_path: Path) -> None:
    path = from_columns(tmp_path, y=[0, 1, 2] * 13 + [3], x=np.arange(40) % 7 + 0.5)
    refuses(r"'3' of 'y' has 1 row, .* number with `MultimodalRegressor`", check_learnable, read(path))
    refuses(r"leave its row out with `missing='3'`$", check_learnable, read(path, task="classification"))


def test_an_index_that_pandas_wrote_is_none_of_the_columns_to_choose_from(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(20) % 7 + 0.5, "y": ["a", "b"] * 10}, index=range(5, 45, 2))
    frame.sample(20, random_state=0).to_parquet(tmp_path / "t.parquet")
    refuses(r"has no column 'why'; its columns are x, y$", read, tmp_path / "t.parquet", label="why")


CENTS = st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=20)


@pytest.mark.parametrize("unit", ["", "€", "USD", "%"])
@pytest.mark.parametrize("form", FORMATS, ids=str)
@settings(max_examples=20)
@given(cents=CENTS)
def test_numbers_come_back(form: NumberFormat, unit: str, cents: list[int]) -> None:
    marks = str.maketrans({",": form.thousands, ".": form.decimal})
    texts = pd.Series(
        [f"{each / 100:,.2f}".translate(marks) + f" {unit}".rstrip() for each in cents], dtype="str"
    )
    found, share = number_format(texts, ".")
    assert share == 1
    expected = np.array(cents) / (10_000 if unit == "%" else 100)
    np.testing.assert_allclose(found.numbers(texts), expected, rtol=1e-12)
    same = NumberFormat(form.decimal, form.thousands, unit)
    np.testing.assert_allclose(same.numbers(texts), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "1,23,456.0",
        "12,34",
        "0,123.5",
        "1,,234",
        "1.2.3",
        "$ 5 €",
        "5 kg",
        "--5",
        "1 2",
        "e5",
        "",
        "1,234,",
        "½",
    ],
)
def test_what_is_no_number_with_thousands(text: str) -> None:
    assert NumberFormat(".", ",", "").numbers(pd.Series([text, "1,234.5"], dtype="str")).isna().tolist() == [
        True,
        False,
    ]

"""A user's table: what each column is taken for, what may be a mistake, and every table refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.conftest import refuses
from usboost.errors import UsboostError
from usboost.table import user_table
from usboost.table.columns.column import Column
from usboost.table.columns.formats import FORMATS, NumberFormat, number_format
from usboost.table.columns.labels import codes_of
from usboost.table.schema import describe, leaks_target, warnings_of
from usboost.table.source import FrameRows, TableFile
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, check_learnable, load, read_columns, read_table

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


@pytest.mark.slow
@given(values=st.lists(st.none() | st.floats(-1e30, 1e30), min_size=4, max_size=30))
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
        ([{"a": 1}] * N, "column 'v' is of type struct<a: int64>; turn it into numbers or drop it"),
        ([0.0] * 6 + [np.inf] + [0.0] * 33, "row 7: column 'v' holds infinity or a number too large"),
        ([0.0] * 39 + [1e39], "row 40: column 'v' holds infinity or a number too large"),
    ],
)
def test_columns_no_learner_reads_are_refused(tmp_path: Path, values: list[Any], message: str) -> None:
    path = from_columns(tmp_path, "parquet", v=values)
    refuses(message, read, path)
    assert list(read(path, drop=["v"]).features) == ["x"]
    if message.endswith("too large") and np.isinf(values).any():
        assert np.flatnonzero(read(path, missing=["inf"]).features["v"].isna()).tolist() == [6]


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
        ("y,x\na,1\nb,1,2\n", r"t\.csv is damaged or not of the type in its name: .*2 columns, got 3"),
        ("y,label\na,1\nb,2\n", "has a column 'label' that is not the label; rename or drop it"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path: Path, text: str, message: str) -> None:
    refuses(message, read, csv_file(tmp_path, text))


def test_other_wrong_tables_are_refused(tmp_path: Path) -> None:
    good = from_columns(tmp_path)
    (tmp_path / "t.sav").write_bytes(b"")
    (tmp_path / "mixed.csv").write_bytes(b"y,x\n" + "a,é\n".encode() * (1 << 18) + "b,é\n".encode("latin-1"))
    pq.write_table(
        pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["y", "y"]), tmp_path / "two.parquet"
    )
    for path, options, message in (
        (tmp_path / "t.sav", {}, r"is no table of a known kind; give a \.csv"),
        (tmp_path / "mixed.csv", {}, r"mixed\.csv is damaged .*(?i:utf-?8)"),
        (tmp_path / "two.parquet", {}, "two columns called 'y'"),
        (good, {"split": "x", "drop": ["x"]}, "column 'x' cannot have two roles"),
        (good, {"label": "x", "task": "classification"}, "40 values in 40 rows, but a class needs several"),
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
def test_whole_numbers_are_classes_if_few_or_codes(tmp_path: Path, labels: list[Any], task: str) -> None:
    frame = pd.DataFrame({"y": labels, "x": np.arange(len(labels)) % 7 + 0.5})
    frame.to_parquet(tmp_path / "t.parquet")
    found = read(tmp_path / "t.parquet")
    assert found.task == task
    assert ("taken as classes" if task == "classification" else "so a number is predicted") in found.said


def test_numbers_taken_for_classes_may_be_predicted_where_a_class_has_one_row(tmp_path: Path) -> None:
    path = from_columns(tmp_path, y=[0, 1, 2] * 13 + [3], x=np.arange(40) % 7 + 0.5)
    refuses(r"'3' of 'y' has 1 row, .* number with `task=regression`", check_learnable, read(path))
    refuses(r"for all columns\)$", check_learnable, read(path, task="classification"))


def test_labels_that_are_none_or_one_of_the_others(tmp_path: Path) -> None:
    path = from_columns(tmp_path, y=["0", "1", "?", "NA"] * 10)
    table = read(path)
    assert sorted(table.classes) == ["0", "1"] and table.unlabelled == 20
    column = Column(table.file, "y", load(table.file, ["y"])["y"])
    assert codes_of(column, {"0": 0, "1": 1})[:4].tolist() == [0, 1, -1, -1]
    table = read(from_columns(tmp_path, y=["herb", "Herb", "NA", "omni"] * 10))
    said = list(warnings_of(table))
    assert any("'NA'" in each and "`missing='NA'`" in each for each in said)
    assert any("'Herb' and 'herb'" in each for each in said) and not any("omni" in each for each in said)
    table = read(from_columns(tmp_path, c=["Red", "red", "RED", "blue"] * 10, y=["a", "b"] * 20))
    assert sum("categories of 'c' 'RED' and 'Red' differ" in each for each in warnings_of(table)) == 1


@pytest.mark.parametrize(
    ("kind", "n", "name"), [("text", 49, "{} {}"), ("category", 160, "{} {}"), ("category", 80, "w{1} v{1}")]
)
def test_names_that_seldom_repeat_and_share_words_are_text(kind: str, n: int, name: str) -> None:
    frame = pd.DataFrame(
        {"t": [name.format("abc"[k % 40 % 3] * 3, k % 40) for k in range(n)], "y": np.arange(n) / 7}
    )
    assert read_columns(FrameRows(frame), TableSpec(label="y")).kinds == {"t": kind}


FAR, WIDE = "in 2 of 199 rows 'y' is over 10 times", "make its logarithm the label"
LINE = np.arange(1.0, 198)


@pytest.mark.parametrize(
    ("y", "said"),
    [([*LINE, 3000, 5000], {FAR}), ([*LINE, 500, 900], set()), (np.logspace(0, 4, 199), {WIDE})],
)
def test_labels_that_are_far_off_are_said(tmp_path: Path, y: Any, said: set[str]) -> None:
    table = read(from_columns(tmp_path, x=[*"ab" * 99, "a"], y=y))
    assert {each for each in (FAR, WIDE) if any(each in one for one in warnings_of(table))} == said


@pytest.mark.parametrize("task", [None, "regression"])
def test_the_first_label_that_is_no_number_is_named(tmp_path: Path, task: Any) -> None:
    path = from_columns(tmp_path, y=[*(f"{k},5" for k in range(38)), "tbd", "?"])
    refuses(r"row 39 .*'y' is 'tbd', but most are numbers.*`missing='tbd'`", read, path, task=task)
    assert read(path, task=task, missing=("tbd",)).unlabelled == 2
    days = pd.date_range("2020-01-30", periods=N)
    for kind, values in (("csv", days.astype(str)), ("parquet", days)):
        refuses("label column 'y' holds dates", read, from_columns(tmp_path, kind, y=values), task=task)
    column = Column((file := TableFile.open(path)), "y", load(file, ["y"])["y"])
    refuses(r"give numbers, written like 1\.234,5$", column.feature, "number", NumberFormat(",", "."))


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


ROWS = 300


def table(folder: Path, **columns: object) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=ROWS), "c": rng.choice(["u", "v"], ROWS), "y": np.arange(ROWS) % 3}
    )
    frame.assign(**columns).to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def test_each_column_is_described(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=ROWS, freq="D").to_series(index=range(ROWS))
    path = table(tmp_path, i=range(ROWS), day=days.mask(days.index < 2), z=1.0, f=["p.png"] * ROWS, s=0)
    schema = describe(read_columns(path, TableSpec(label="y", image="f", drop=["s"])))
    found = {each.name: (each.kind, each.missing, each.distinct, each.use) for each in schema.columns}
    assert found == {
        "x": ("number", 0, ROWS, "number"),
        "c": ("category", 0, 2, "category"),
        "y": ("label", 0, 3, "3 classes"),
        "i": ("", None, None, "left out: each row has its own value"),
        "day": ("date", 2, ROWS - 2, "4 numbers: month, weekday, yearday, days; constant: year, hour"),
        "z": ("number", 0, 1, "number"),
        "f": ("image", None, None, "image"),
        "s": ("", None, None, "dropped"),
    }
    assert schema.rows == ROWS
    assert schema.warnings == ("column 'z' has the same value in all rows, so it says nothing",)
    assert schema.notes == (
        "the label 'y' has 3 different whole numbers, taken as classes",
        "column 'i' is left out: each row has its own value",
    )


def test_what_looks_like_a_mistake(tmp_path: Path) -> None:
    label = np.arange(ROWS) % 3
    rng = np.random.default_rng(1)
    path = table(tmp_path, code=np.array([7, 9, 8])[label], word=np.array(list("pqr"))[label])
    frame = pd.read_parquet(path).assign(noise=rng.integers(0, 9, ROWS))
    frame["x2"], frame["c2"] = frame["x"], frame["c"]
    pd.concat([frame, frame.head(4)]).to_parquet(path)
    alone = "alone gives 'y' away; drop it with `drop={0!r}` if it is not known before the label"
    assert describe(read_columns(path, TableSpec(label="y"))).warnings == (
        *(f"column {name!r} {alone.format(name)}" for name in ("code", "word")),
        "column 'x2' holds the same as 'x'; one of them can be dropped",
        "column 'c2' holds the same as 'c'; one of them can be dropped",
        "4 rows are equal to an earlier one",
    )


def with_images(folder: Path, names: list[str | None], **columns: object) -> Path:
    """Twenty images, 0.png to 19.png, and a table that names some."""
    for k in range(20):
        Image.new("RGB", (8, 8), (k, 2 * k, 77)).save(folder / f"{k}.png")
    n = len(names)
    x = np.random.default_rng(0).integers(0, 2, n)
    frame = pd.DataFrame({"x": x, "photo": names, "y": np.arange(n) % 2})
    frame.assign(**columns).to_csv(folder / "p.csv", index=False)
    return folder / "p.csv"


def test_mistakes_in_columns_of_images(tmp_path: Path) -> None:
    def warned(path: Path, *image: str, **options: object) -> tuple[str, ...]:
        return describe(read_table(path, TableSpec(label="y", image=image, size=16, **options))).warnings

    several = [f"{k % 20}.png" for k in range(40)]
    x = np.arange(40) / 7
    assert warned(with_images(tmp_path, several, x=x), "photo") == ()  # shared on purpose
    names: list[str | None] = [f"{k}.png" for k in range(20)]
    path = with_images(tmp_path, [*names, *names[:2]], x=np.arange(22) / 7)
    once = "column 'photo': 2 rows have the image of an earlier one; `group` keeps together"
    assert [each.startswith(once) for each in warned(path, "photo")] == [True]
    path = with_images(tmp_path, [*names, *names[:2]], x=np.arange(22) / 7, g=[*range(20), 0, 1])
    assert warned(path, "photo", group="g") == ()
    path = with_images(tmp_path, names, x=1.5, b=names, c="3.png", d=[None, *names[1:]])
    equal, says = "holds the same images as 'photo'; leave one of them out", "so it says nothing"
    assert warned(path, "photo", "b", "c", "d") == (
        f"column 'x' has the same value in all rows, {says}",
        f"column 'b' {equal}",
        f"column 'c' has the same image in all rows, {says}",
    )
    Image.fromarray(np.full((9, 9), 90, np.uint16)).save(tmp_path / "dim.png")
    assert "no pixel above 0 of 255" in warned(with_images(tmp_path, ["dim.png"] * 20), "photo")[0]
    path = with_images(tmp_path, [None, *names[1:]])
    twice = pd.concat([pd.read_csv(path)] * 2)
    twice.iloc[30, 0] += 5  # differs in x, and the next one in its image
    twice.iloc[31, 1] = "12.png"
    twice.to_csv(path, index=False)
    assert warned(path, "photo") == ("18 rows are equal to an earlier one",)
    assert describe(read_columns(path, TableSpec(label="y", image="photo"))).warnings == ()  # not read


def test_images_that_nobody_named(tmp_path: Path) -> None:
    names: list[str | None] = [f"{k}.png" for k in range(20)]
    said = "looks like names of images; `image` reads these"
    found = describe(read_columns(with_images(tmp_path, names), TableSpec(label="y")))
    assert f"column 'photo' is left out: it {said}" in found.notes
    path = with_images(tmp_path, [None, *names[:9]] * 4)
    assert f"column 'photo' {said}" in describe(read_columns(path, TableSpec(label="y"))).warnings
    frame = pd.read_csv(path)
    for column in ([b"x"] * 40, [{"bytes": b"x", "path": "0.png"}] * 40):
        frame.assign(photo=column).to_parquet(tmp_path / "b.parquet")
        with pytest.raises(UsboostError, match="name it with `image` if it holds images, or drop it"):
            read_columns(tmp_path / "b.parquet", TableSpec(label="y"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (lambda y, rng: y + rng.uniform(0, 0.99, len(y)), True),
        (lambda y, rng: -y + rng.normal(0, 0.5, len(y)), False),
        (lambda y, rng: np.where(y == 1, np.nan, rng.normal(size=len(y))), True),
        (lambda y, rng: rng.permutation(len(y)), False),
        (lambda y, rng: pd.Categorical([f"k{k}" for k in range(len(y))]), False),
        (lambda y, rng: pd.Categorical(np.where(rng.random(len(y)) < 0.001, 1 - y, y)), True),
        (lambda y, rng: pd.to_datetime("2020-01-01") + pd.to_timedelta(y, unit="D"), True),
    ],
)
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_a_column_gives_the_label_away(values, expected: bool, share: float) -> None:
    rng = np.random.default_rng(2)
    y = (rng.random(1000) < share).astype(int)
    assert leaks_target(pd.Series(values(y, rng)), y) is expected


def test_few_rows_say_nothing() -> None:
    y = np.arange(40) % 2
    assert not leaks_target(pd.Series(y.astype(float)), y)
    assert leaks_target(pd.Series(np.tile(y, 2).astype(float)), np.tile(y, 2))


def test_labels_that_differ_in_blanks_are_told(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(40.0), "y": ["a", "b"] * 20})
    frame.to_parquet(tmp_path / "t.parquet")
    assert not any(
        "blanks" in note
        for note in describe(read_columns(tmp_path / "t.parquet", TableSpec(label="y"))).notes
    )
    frame.loc[3, "y"] = " b"
    frame.loc[4, "y"] = None
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_columns(tmp_path / "t.parquet", TableSpec(label="y"))
    assert table.classes == ["a", "b"] or table.classes == ["b", "a"]
    notes = describe(table).notes
    assert "some values of 'y' have blanks at their ends, which count for nothing" in notes
    assert "1 row has no 'y' and is left out" in notes


def test_a_wide_table_looks_at_each_column_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a column is was once asked anew for all columns with each of them: 150 s of 2,000 columns."""
    seen: list[object] = []
    holds = user_table.holds_dates
    monkeypatch.setattr(user_table, "holds_dates", lambda column: seen.append(column.name) or holds(column))
    wide = {f"w{k}": np.arange(ROWS) % (k + 2) for k in range(30)}
    assert len(describe(read_columns(table(tmp_path, **wide), TableSpec(label="y"))).columns) == 33
    assert sorted(map(str, seen)) == sorted(["x", "c", *wide])

"""What a table is said to be, and what in it may be a mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from usboost.errors import UsboostError
from usboost.table import user_table
from usboost.table.schema import describe, leaks_target
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_columns, read_table

N = 300


def table(folder: Path, **columns: object) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=N), "c": rng.choice(["u", "v"], N), "y": np.arange(N) % 3})
    frame.assign(**columns).to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def test_each_column_is_described(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=N, freq="D").to_series(index=range(N))
    path = table(tmp_path, i=range(N), day=days.mask(days.index < 2), z=1.0, f=["p.png"] * N, s=0)
    schema = describe(read_columns(path, TableSpec(label="y", image="f", drop=["s"])))
    found = {each.name: (each.kind, each.missing, each.distinct, each.use) for each in schema.columns}
    assert found == {
        "x": ("number", 0, N, "number"),
        "c": ("category", 0, 2, "category"),
        "y": ("label", 0, 3, "3 classes"),
        "i": ("", None, None, "left out: each row has its own value"),
        "day": ("date", 2, N - 2, "4 numbers: month, weekday, yearday, days; constant: year, hour"),
        "z": ("number", 0, 1, "number"),
        "f": ("image", None, None, "image"),
        "s": ("", None, None, "dropped"),
    }
    assert schema.rows == N
    assert schema.warnings == ("column 'z' has the same value in all rows, so it says nothing",)
    assert schema.notes == (
        "the label 'y' has 3 different whole numbers, taken as classes",
        "column 'i' is left out: each row has its own value",
    )


def test_what_looks_like_a_mistake(tmp_path: Path) -> None:
    label = np.arange(N) % 3
    rng = np.random.default_rng(1)
    path = table(tmp_path, code=np.array([7, 9, 8])[label], word=np.array(list("pqr"))[label])
    frame = pd.read_parquet(path).assign(
        x2=lambda f: f["x"], c2=lambda f: f["c"], noise=rng.integers(0, 9, N)
    )
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
    path = with_images(tmp_path, [None, *names[1:]])
    twice = pd.concat([pd.read_csv(path)] * 2)
    twice.iloc[30, 0] += 5  # differs in x, and the next one in its image
    twice.iloc[31, 1] = "12.png"
    twice.to_csv(path, index=False)
    assert warned(path, "photo") == ("18 rows are equal to an earlier one",)
    assert describe(read_columns(path, TableSpec(label="y", image="photo"))).warnings == ()  # not read


def test_images_that_nobody_named(tmp_path: Path) -> None:
    names: list[str | None] = [f"{k}.png" for k in range(20)]
    said = "looks like names of images; `images` reads these"
    found = describe(read_columns(with_images(tmp_path, names), TableSpec(label="y")))
    assert f"column 'photo' is left out: it {said}" in found.notes
    path = with_images(tmp_path, [None, *names[:9]] * 4)
    assert f"column 'photo' {said}" in describe(read_columns(path, TableSpec(label="y"))).warnings
    frame = pd.read_csv(path)
    for column in ([b"x"] * 40, [{"bytes": b"x", "path": "0.png"}] * 40):
        frame.assign(photo=column).to_parquet(tmp_path / "b.parquet")
        with pytest.raises(UsboostError, match="name it with `images` if it holds images, or drop it"):
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
    assert "some values of 'y' have blanks at their ends, which are removed" in notes
    assert "1 row has no 'y' and is left out" in notes


def test_a_wide_table_looks_at_each_column_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a column is was once asked anew for all columns with each of them: 150 s of 2,000 columns."""
    seen: list[object] = []
    holds = user_table.holds_dates
    monkeypatch.setattr(user_table, "holds_dates", lambda column: seen.append(column.name) or holds(column))
    wide = {f"w{k}": np.arange(N) % (k + 2) for k in range(30)}
    described = describe(read_columns(table(tmp_path, **wide), TableSpec(label="y")))
    assert len(described.columns) == 33
    assert sorted(map(str, seen)) == sorted(["x", "c", *wide])

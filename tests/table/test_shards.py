"""Rows of Parquet files that shards read, each its own, and folders of such files."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import refuses
from tests.shards import of_shards
from usboost.data.views import Views
from usboost.files.arrays import is_mapped, sha256
from usboost.shards import collective as here_module
from usboost.shards import threads
from usboost.table.columns.encoding import Encoding
from usboost.table.files import Parquet, digest
from usboost.table.shards import cuts, read_shard
from usboost.table.source import TableFile
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table

N = 300
SPEC = TableSpec("y", missing=("-9",), weight="weight", split="split", categorical=("code",))


def frame() -> pd.DataFrame:
    """Every kind of column that is read on shards; sorted, so that shards lack labels and categories."""
    g = np.random.default_rng(0)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(g.integers(0, 99, N), unit="D")
    return pd.DataFrame(
        {
            "id": np.arange(N),
            "size": np.where(g.random(N) < 0.1, np.nan, g.normal(size=N)),
            "count": np.where(np.arange(N) == 7, -9, g.integers(0, 9, N)),
            "written": [f"{k % 40},5" for k in range(N)],
            "day": pd.Series(day).mask(np.arange(N) == 3),
            "said": pd.Series(day).dt.strftime("%d.%m.%Y"),
            "kind": np.where(np.arange(N) < 5, "only here", g.choice(["a", "b"], N)),
            "code": g.integers(100, 105, N),
            "flag": g.random(N) < 0.5,
            "weight": g.integers(0, 3, N) / 2,
            "split": g.choice(["train", "val", "test"], N),
            "y": np.sort(g.choice(["no", "yes", "seldom"], N, p=[0.5, 0.45, 0.05])),
        }
    )


def written(folder: Path, table: pd.DataFrame, group: int = 40, files: int = 2) -> Path:
    """The rows in files, one after another."""
    folder.mkdir(exist_ok=True)
    for k, part in enumerate(np.array_split(np.arange(len(table)), files)):
        table.iloc[part].to_parquet(folder / f"{k}.parquet", row_group_size=group, index=False)
    return folder


def shards(work: Callable[[], Any], count: int = 8) -> list[Any]:
    """What each of them gets."""
    return of_shards(lambda _: work(), count)


def together_of(tables: list[UserTable]) -> pd.DataFrame:
    """The rows of all shards, with what is known of each beside its features."""
    every = [
        each.features.assign(
            label=np.array(each.classes)[each.labels] if each.classes else each.labels,
            split_=each.split if each.split is not None else "",
            weight_=each.weights if each.weights is not None else 1.0,
            row=each.rows + each.file.rows.start if hasattr(each.file, "rows") else each.rows,
        ).astype(dict.fromkeys(each.features.select_dtypes("category"), "object"))
        for each in tables
    ]
    return pd.concat(every, ignore_index=True)


def test_a_cut_is_where_a_row_group_ends_if_that_is_near() -> None:
    assert cuts([100], 4) == [0, 25, 50, 75, 100]
    assert cuts([30] * 10, 3) == [0, 90, 210, 300]
    assert cuts([26, 24, 51, 49, 50], 4) == [0, 50, 101, 150, 200]
    assert cuts([1, 2], 8)[-1] == 3
    for groups in ([7, 13, 900, 2], [0, 5, 0, 5], [10_000] * 7):
        found = cuts(groups, 8)
        assert found == sorted(found) and (found[0], found[-1]) == (0, sum(groups))


@pytest.mark.parametrize(("count", "group", "files"), [(8, 40, 2), (3, 7, 3), (5, 1000, 1)])
def test_shards_read_what_one_process_reads(tmp_path: Path, count: int, group: int, files: int) -> None:
    path = written(tmp_path / "rows", frame(), group, files)
    whole, found = read_table(path, SPEC), shards(lambda: read_shard(path, SPEC), count)
    for each in found:
        assert (each.kinds, each.classes, each.formats) == (whole.kinds, whole.classes, whole.formats)
        assert (each.left_out, each.notes, each.task) == (whole.left_out, whole.notes, whole.task)
    assert sum(len(each) for each in found) == len(whole)
    digest = whole.file.digest()
    assert shards(found[0].file.digest, count) == [digest] * count
    pd.testing.assert_frame_equal(together_of(found), together_of([whole]), rtol=1e-12)


def test_an_encoding_is_that_of_all_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "rows", frame())
    whole = read_table(path, SPEC)
    encoding = whole.fit_encoding(np.arange(len(whole)))

    def work() -> Encoding:
        own = read_shard(path, SPEC)
        return own.fit_encoding(np.arange(len(own)))

    for found in shards(work):
        assert found.dates == encoding.dates
        assert found.imputation == encoding.imputation
        for one, other in zip(found.encoders["S"].numeric, encoding.encoders["S"].numeric):
            assert (one.name, one.log) == (other.name, other.log)
            np.testing.assert_allclose((one.mean, one.std), (other.mean, other.std), rtol=1e-10)
        assert found.encoders["S"].categorical == encoding.encoders["S"].categorical


def test_a_number_to_predict_lacks_in_some_rows(tmp_path: Path) -> None:
    path, spec = written(tmp_path / "rows", frame()), TableSpec("size")
    whole, found = read_table(path, spec), shards(lambda: read_shard(path, spec))
    assert [each.unlabelled for each in found] != [0] * 8
    pd.testing.assert_frame_equal(together_of(found), together_of([whole]))


def test_a_sample_decides_and_has_every_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (here_module, threads):
        monkeypatch.setattr(module, "SAMPLE_ROWS", 60)
    table, rare = frame(), [f"rare {k}" for k in range(6)]
    for k, label in enumerate(rare):
        table.loc[[40 * k + 31, 40 * k + 33], ["y", "weight"]] = label, 1.0
    path = written(tmp_path / "rows", table)
    whole, found = read_table(path, SPEC), shards(lambda: read_shard(path, SPEC))
    sample = found[0].sample
    assert sample is not None and 50 < sample.file.n_rows < 110
    assert sample.file.raw["id"].to_pylist() == sample.file.positions.tolist()
    assert np.bincount(sample.labels).min() >= 2  # else it could not be learnt and checked
    assert set(found[0].classes) == set(whole.classes) == {"no", "yes", "seldom", *rare}
    assert f"a sample of {sample.file.n_rows} of 300 rows" in found[0].notes[-1]
    pd.testing.assert_frame_equal(together_of(found), together_of([whole]), rtol=1e-12)
    # a row that the sample lacks is named by its place in the table
    rest = sorted(set(range(N)) - set(sample.file.positions))
    table.loc[rest[-1], "written"] = "many"
    written(path, table)
    place = f"rows, row {rest[-1] + 1}: column 'written' holds numbers, but here 'many'"
    refuses(place, shards, lambda: read_shard(path, SPEC))


def test_a_shard_reads_its_own_row_groups_only(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    frame().to_parquet(path, row_group_size=75, index=False, compression="none")
    broken = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(2).column(1)
    at = column.dictionary_page_offset or column.data_page_offset
    broken[at : at + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(broken)
    content = TableFile.open(path).content
    assert isinstance(content, Parquet)
    pieces = content.pieces(["size", "id"], 32, range(10, 150))
    assert [each for piece in pieces for each in piece["id"].to_pylist()] == list(range(10, 150))
    with pytest.raises((OSError, ValueError)):
        list(content.pieces(["size"], 32, range(10, 151)))


def test_patterns_name_files(tmp_path: Path) -> None:
    folder = written(tmp_path / "rows", frame())
    (folder / "notes.txt").write_text("not a part")
    whole = TableFile.open(folder)
    for pattern in ("*.parquet", "*", "[01].parquet"):
        found = TableFile.open(folder / pattern)
        assert list(found.batches(["id"], 1000)) == list(whole.batches(["id"], 1000))
        assert (found.folder, found.digest()) == (folder, whole.digest())
    (folder / "year=2020").mkdir()
    (folder / "1.parquet").rename(folder / "year=2020" / "1.parquet")
    years = TableFile.open(folder / "year=*" / "*.parquet")
    assert years.names[-1] == "year" and years.n_rows == 150
    refuses("no Parquet file like", TableFile.open, folder / "*.csv")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (TableSpec("y", group="kind"), "`group` needs all rows in one place"),
        (TableSpec("y", time="day"), "`time` needs all rows in one place"),
        (TableSpec("y", text=("kind",)), "`text` needs all rows in one place"),
        (TableSpec("sort"), "has no column 'sort'"),
        (TableSpec("y"), "column 'prose' is text, which is not read on several shards; leave it out"),
        (TableSpec("written", drop=("prose",)), "the label 'written' is text; write it as numbers"),
        (TableSpec("y", drop=("prose",), split="kind"), "must hold train, val"),
    ],
)
def test_what_shards_cannot_do_is_refused_by_name(tmp_path: Path, spec: TableSpec, words: str) -> None:
    prose = [f"the part number {k % 17} is broken and was sent back by {k}" for k in range(N)]
    path = written(tmp_path / "rows", frame().assign(prose=prose))
    refuses(words, shards, lambda: read_shard(path, spec))


def test_shards_with_other_files_or_words_are_told(tmp_path: Path) -> None:
    path = written(tmp_path / "rows", frame())
    csv = tmp_path / "t.csv"
    frame().to_csv(csv, index=False)
    refuses("is not Parquet, which alone is read by shards", shards, lambda: read_shard(csv, SPEC))
    specs = iter([SPEC, *[TableSpec("y")] * 7])
    refuses(r"of shard \d is not that of shard 0", shards, lambda: read_shard(path, next(specs)))
    few = written(tmp_path / "few", frame().iloc[140:149].assign(y=list("ababababa")))
    refuses("has 9 rows to learn from; 10", shards, lambda: read_shard(few, TableSpec("y")))


def test_views_of_many_rows_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "rows", frame())
    monkeypatch.setattr("usboost.files.arrays.LEAST", 0)

    def work() -> Views:
        own = read_shard(path, SPEC)
        rows = np.arange(len(own))[::2]
        return own.views(own.fit_encoding(rows), rows)

    in_memory = shards(work, 2)
    monkeypatch.setattr("usboost.table.user_table.PART_ROWS", 7)
    monkeypatch.setattr("usboost.files.arrays.PART_ROWS", 7)
    for kept, views in zip(shards(work, 2), in_memory, strict=True):
        assert kept["U"] is kept["S"]
        assert is_mapped(kept["S"].numeric) and is_mapped(kept["S"].codes)
        assert not is_mapped(views["S"].numeric)
        assert np.array_equal(kept["S"].numeric, views["S"].numeric)
        assert np.array_equal(kept["S"].codes, views["S"].codes)
        assert (kept["S"].names, kept["S"].cardinalities) == (views["S"].names, views["S"].cardinalities)


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
        ({"a": [1], "_delta_log__c": [1]}, "is a Delta table, whose files may be stale"),
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

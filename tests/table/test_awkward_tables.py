"""Tables as people have them: each is read so, or refused in one sentence."""

import bz2
import datetime
import decimal
import gzip
import io
import json
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tests.conftest import refuses
from usboost.errors import UsboostError
from usboost.table import user_table as table_of_user
from usboost.table.schema import describe
from usboost.table.source import TableFile
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_columns, read_table

N = 24
NAN = float("nan")
LEFT_OUT = "left out"

Write = Callable[[Path], Path]


def text(
    separator: str = ",",
    *,
    name: str = "t.csv",
    encoding: str = "utf-8",
    pack: Callable[[bytes], bytes] = lambda data: data,
    quoted: bool = False,
    **columns: Sequence[object],
) -> Write:
    """A text file of the columns and a label; values are repeated to N rows."""

    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(pack(rows(columns, separator, quoted).encode(encoding)))
        return path

    return write


def rows(columns: dict[str, Sequence[object]], separator: str, quoted: bool) -> str:
    mark = '"' if quoted else ""
    named = {**columns, "y": ["a", "b"]}
    lines = [separator.join(f"{mark}{each}{mark}" for each in named)]
    lines += [
        separator.join(f"{mark}{values[k % len(values)]}{mark}" for values in named.values())
        for k in range(N)
    ]
    return "\n".join(lines) + "\n"


def raw(content: str | bytes, name: str = "t.csv") -> Write:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder / name

    return write


def typed(name: str = "t.parquet", **columns: Any) -> Write:
    """A file with types: Parquet, Feather, an Arrow stream or a folder of Parquet files."""

    def write(folder: Path) -> Path:
        arrays = {
            each: (values if isinstance(values, pa.Array) else pa.array(values)).take(
                pa.array(np.arange(N) % len(values))
            )
            for each, values in columns.items()
        }
        table = pa.table({**arrays, "y": ["a", "b"] * (N // 2)})
        path = folder / name
        if name.endswith(".feather"):
            pyarrow.feather.write_feather(table, path, chunksize=5)
        elif name.endswith(".arrow"):
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table, max_chunksize=7)
        elif name.endswith(".parquet"):
            pq.write_table(table, path, row_group_size=10)
        else:
            path.mkdir()
            pq.write_table(table.slice(10), path / "part-1.parquet")
            pq.write_table(table.slice(0, 10), path / "part-0.parquet")
            (path / "_SUCCESS").write_text("")
        return path

    return write


def excel(*sheets: str, blank: bool = False, **columns: Sequence[object]) -> Write:
    def write(folder: Path) -> Path:
        book = openpyxl.Workbook()
        sheet = book.active
        if blank:
            sheet.append([])
        named = {**columns, "y": ["a", "b"]}
        sheet.append(list(named))
        for k in range(N):
            sheet.append([values[k % len(values)] for values in named.values()])
        for title in sheets:
            book.create_sheet(title)
        book.save(folder / "t.xlsx")
        return folder / "t.xlsx"

    return write


def lines_of_json(objects: Sequence[dict[str, object]], name: str = "t.jsonl") -> Write:
    data = "\n".join(json.dumps({**objects[k % len(objects)], "y": "ab"[k % 2]}) for k in range(N)).encode()
    return raw(gzip.compress(data) if name.endswith("gz") else data, name)


def zipped(first: str = "folder/t.csv", **members: str) -> Callable[[bytes], bytes]:
    """A zip whose first member has the data, and others."""

    def pack(data: bytes) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(first, data)
            for name, content in members.items():
                archive.writestr(name, content)
        return out.getvalue()

    return pack


@dataclass
class Case:
    """A table, how it is read, and what is found: kind and first values by column, or a sentence."""

    write: Write
    found: dict[str, Any] | str
    options: dict[str, Any] = field(default_factory=dict)
    notes: str = ""


def number(*values: float) -> tuple[str, list[float]]:
    return "number", list(values)


def category(*values: str | None) -> tuple[str, list[str | None]]:
    return "category", list(values)


def date(*values: str) -> tuple[str, list[pd.Timestamp]]:
    return "date", [pd.Timestamp(each) for each in values]


HALF = number(1.5, 2.25)
BASE = {"x": ["1.5", "2.25"]}
COMMA = {"x": ["1,5", "2,25"]}
WORDS = [f"a story about the things in row {k}" for k in range(N)]
LISTS = [each for n in (2, 3, 4) for each in combinations(("wifi", "pool", "gym", "bar", "spa"), n)][:N]
TITLES = [f"{['blue', 'red', 'green'][k % 3]} hat {k}" for k in range(N)]
CHINESE = [f"我非常喜欢这个产品因为它很好用而且价格也很便宜第{k}次购买" for k in range(N)]
DAY = datetime.date(2024, 2, 29)

FILES = {
    "semicolons": Case(text(";", **BASE), {"x": HALF}),
    "semicolons and decimal commas": Case(text(";", **COMMA), {"x": HALF}),
    "tabs": Case(text("\t", name="t.tsv", **BASE), {"x": HALF}),
    "bars": Case(text("|", name="t.txt", **BASE), {"x": HALF}),
    "quotes": Case(
        text(quoted=True, x=["1,5", "2,25"], c=["u; v", "w"]), {"x": HALF, "c": category("u; v", "w")}
    ),
    "separators within quotes do not count": Case(
        raw("c;y\n" + '"u,v,w";a\n"x,y,z";b\n' * 6), {"c": category("u,v,w", "x,y,z")}
    ),
    "lines within quotes": Case(raw("c,y\n" + '"u\nv",a\nw,b\n' * 6), {"c": category("u\nv", "w")}),
    "windows line ends": Case(raw("x,y\r\n" + "1.5,a\r\n2.25,b\r\n" * 6), {"x": HALF}),
    "blank lines": Case(raw("\nx,y\n\n" + "1.5,a\n\n2.25,b\n" * 6), {"x": HALF}),
    "utf-8 with a mark": Case(text(encoding="utf-8-sig", é=["1.5", "2.25"]), {"é": HALF}),
    "utf-16": Case(text(encoding="utf-16", é=["1.5", "2.25"]), {"é": HALF}),
    "windows-1252": Case(
        text(encoding="cp1252", c=["café", "€ und „so“"]),
        {"c": category("café", "€ und „so“")},
        notes="read as cp1252",
    ),
    "latin-1": Case(raw(b"c,y\n" + b"\x81\xe9,a\nw,b\n" * 6), {"c": category("\x81é", "w")}, notes="latin-1"),
    "zero bytes": Case(raw(b"x,y\n1\0,a\n"), "holds zero bytes"),
    "gz": Case(text(name="t.csv.gz", pack=gzip.compress, **BASE), {"x": HALF}),
    "gz of several parts": Case(
        raw(gzip.compress(b"x,y\n1.5,a\n2.25,b\n") + gzip.compress(b"3,a\n4,b\n" * 5), "t.csv.gz"),
        {"x": number(1.5, 2.25, 3)},
    ),
    "bz2": Case(text(";", name="t.csv.bz2", pack=bz2.compress, **COMMA), {"x": HALF}),
    "zst": Case(
        text("\t", name="t.tsv.zst", pack=lambda data: pa.compress(data, "zstd", asbytes=True), **BASE),
        {"x": HALF},
    ),
    "zip": Case(text(name="t.zip", pack=zipped(**{"__MACOSX/x": "", "folder/": ""}), **BASE), {"x": HALF}),
    "zip by pandas": Case(text(name="t.zip", pack=zipped("t"), **BASE), {"x": HALF}),
    "zip of two": Case(
        text(name="t.zip", pack=zipped(more="x"), **BASE), "holds 2 files; a zip must hold one table"
    ),
    "gz cut short": Case(
        text(name="t.csv.gz", pack=lambda data: gzip.compress(data)[:-20], **BASE), "is damaged"
    ),
    "compressed parquet": Case(raw(b"", "t.parquet.gz"), "a compressed .parquet file is not read; unpack it"),
    "old excel": Case(raw(b"", "t.xls"), "t.xls is no table of a known kind; save it as .xlsx"),
    "json": Case(raw(b"[]", "t.json"), "write one object a line, as .jsonl"),
    "no suffix": Case(raw(b"x", "t"), "no table of a known kind"),
    "parquet": Case(typed(x=[1.5, 2.25]), {"x": HALF}),
    "folder of parquet": Case(typed("parts", x=[*np.arange(N) / 2]), {"x": number(*np.arange(N) / 2)}),
    "feather": Case(typed("t.feather", x=[*np.arange(N) / 2]), {"x": number(*np.arange(N) / 2)}),
    "arrow stream": Case(typed("t.arrow", x=[1.5, 2.25], c=["u", "v"]), {"x": HALF, "c": category("u", "v")}),
    "broken feather": Case(raw(b"ARROW1 and no more", "t.feather"), "is damaged"),
    "json lines": Case(
        lines_of_json([{"x": 1.5, "c": "u", "f": True}, {"x": 2, "c": None}]),
        {"x": number(1.5, 2), "c": category("u", None), "f": category("True", None)},
    ),
    "json lines, a column of lists": Case(lines_of_json([{"x": [1]}]), "column 'x' is of type list"),
    "json lines, not utf-8": Case(raw(b'{"y": "\xe9"}\n', "t.jsonl"), "is damaged"),
    "json lines, empty": Case(raw(b"\n", "t.jsonl"), "is empty"),
    "excel": Case(
        excel("more", x=[1.5, None], c=["u", "v"], d=[DAY, datetime.datetime(2024, 3, 1)], f=[True, False]),
        {
            "x": number(1.5, NAN),
            "c": category("u", "v"),
            "d": date("2024-02-29", "2024-03-01"),
            "f": category("True", "False"),
        },
        notes="of 2 sheets the first",
    ),
    "json lines of two types": Case(lines_of_json([{"x": "n/a"}, {"x": 3}]), "values of two types"),
    "float32 categories": Case(
        typed(x=pa.array([0.1, 3], pa.float32())), {"x": category("0.1", "3")}, {"categorical": ["x"]}
    ),
    "seven digits of a second": Case(
        text(d=["9999-12-31 00:00:00", "2024-05-01 10:00:00.1234567"]),
        {"d": date("9999-12-31", "2024-05-01 10:00:00.123456")},
    ),
    "excel times and durations": Case(
        excel(t=[datetime.time(19, 30), datetime.time(8)], d=[datetime.timedelta(hours=k) for k in (6, 36)]),
        {"t": date("1970-01-01 19:30", "1970-01-01 08:00"), "d": number(0.25, 1.5)},
    ),
    "excel that begins late": Case(excel(blank=True, x=[1.5, "n/a"]), {"x": number(1.5, NAN)}),
    "broken excel": Case(raw(b"PK", "t.xlsx"), "is damaged"),
}

NUMBERS = {
    "thousands": Case(text(quoted=True, x=["4,053", "1,234,567", "12"]), {"x": number(4053, 1234567, 12)}),
    "thousands only": Case(
        text(quoted=True, x=["4,053", "1,234"]), {"x": number(4053, 1234)}, notes="read as 4053"
    ),
    "the same between semicolons": Case(
        text(";", x=["4,053", "1,234"]), {"x": number(4.053, 1.234)}, notes="'4,053', read as 4.053"
    ),
    "points between semicolons": Case(
        text(";", x=["4.053", "1.234"]), {"x": number(4053, 1234)}, notes="'4.053', read as 4053"
    ),
    "points where others have decimals": Case(
        text(";", x=["4.053", "1.234"], z=["0.5", "1.25"]),
        {"x": number(4.053, 1.234), "z": number(0.5, 1.25)},
    ),
    "a comma among commas": Case(text(quoted=True, x=["4,053", "1,2"]), {"x": number(4.053, 1.2)}),
    "both marks": Case(text(";", x=["4.053,5", "-1,25", "1.000"]), {"x": number(4053.5, -1.25, 1000)}),
    "spaces": Case(text(x=["1 234", "12 345.5", "−3"]), {"x": number(1234, 12345.5, -3)}),
    "narrow spaces": Case(text(x=["1\u00a0234", "1\u202f234\u00a0567"]), {"x": number(1234, 1234567)}),
    "apostrophes": Case(text(x=["1'234.50", "9’999"]), {"x": number(1234.5, 9999)}),
    "percent": Case(text(x=["12 %", "3.5%", ""]), {"x": number(0.12, 0.035, NAN)}),
    "dollars": Case(text(quoted=True, x=["$4,053", "-$12.50", "7"]), {"x": number(4053, -12.5, 7)}),
    "euros": Case(text(";", x=["€ 12,50", "1.000 €", "n/a"]), {"x": number(12.5, 1000, NAN)}),
    "two currencies": Case(
        text(x=["$12", "€ 3"]), {"x": category("$12", "€ 3")}, notes="so it is not read as numbers"
    ),
    "numbers as text in parquet": Case(
        typed(x=["1", "2.50", None]), {"x": number(1, 2.5, NAN)}, notes="column 'x' holds numbers as text"
    ),
    "short numbers": Case(text(x=["$0.5B", "($200M)", "900k", "$3M"]), {"x": number(5e8, -2e8, 9e5, 3e6)}),
    "codes like numbers": Case(text(c=["(030)", "(040)"]), {"c": category("(030)", "(040)")}),
    "codes like short ones": Case(text(c=["1B", "3B"]), {"c": category("1B", "3B")}),
    "limits": Case(text(x=["<0.5", "7", "> 9", "8"]), {"x": number(0.5, 7, 9, 8)}, notes="as '<0.5' in"),
    "two limits": Case(text(c=["<20", ">20"]), {"c": category("<20", ">20")}),
    "gaps": Case(text(x=["1", "NA", "?", "<NA>"]), {"x": number(1, NAN, NAN, NAN)}),
    "one odd value": Case(
        text(x=[*map(str, range(10, 32)), "n/a!", "no!"]),
        r"t\.csv, row 23 \(line 24\): column 'x' .* here 'n/a!', in other rows 'no!'; count that "
        "value as missing with `missing='n/a!'`, or take the column as categories with `categorical='x'`",
    ),
    "one odd value, missing": Case(
        text(x=[*map(str, range(10, 33)), "n/a!"]), {"x": number(*range(10, 33), NAN)}, {"missing": ["n/a!"]}
    ),
    "an odd value in thousands": Case(text(quoted=True, x=["1,234"] * 23 + ["1,23,4"]), "here '1,23,4'"),
    "a number that is missing": Case(typed(x=[1, -999]), {"x": number(1, NAN)}, {"missing": ["-999"]}),
    "postal codes": Case(text(x=["00501", "10001", "94105"]), {"x": category("00501", "10001", "94105")}),
    "digits": Case(text(x=["9007199254740993", "9007199254740992"]), {"x": category("9007199254740993")}),
    "long digits beside a missing value": Case(
        typed(x=[2**53 + 1, 2**53, None]),
        {"x": category("9007199254740993", "9007199254740992", None)},
        {"categorical": ["x"]},
    ),
    "infinity": Case(text(x=["1", "inf"]), "row 2 .*holds infinity"),
    "a number too large": Case(text(x=["1", "1e999"]), r"row 2 \(line 3\): column 'x' holds infinity"),
    "decimals": Case(typed(x=[decimal.Decimal("1.50"), decimal.Decimal("2.25")]), {"x": HALF}),
    "nullable whole numbers": Case(typed(x=pa.array([1, None], pa.int16())), {"x": number(1, NAN)}),
    **{
        f"marks {mark}": Case(
            text(x=["1.5", mark, "2.25"]),
            {"x": number(1.5, NAN, 2.25)},
            notes=f"column 'x' has {mark!r} in 8 rows, which counts as missing",
        )
        for mark in ("\\N", "-", "--", ".", "#DIV/0!", "#VALUE!", "n.a.", "(null)", "-nan")
    },
    "signs": Case(text(x=["-", "+"]), {"x": category("-", "+")}),
    "one sign": Case(text(x=["-", ""]), {"x": category("-", None)}),
    "a tenth of words": Case(
        text(x=[*(f"{k}.5" for k in range(22)), "tbd", "open"]),
        r"row 23 \(line 24\): column 'x' holds numbers, but here 'tbd'",
    ),
    "sizes": Case(
        text(x=["42", "43", "S"]),
        {"x": category("42", "43", "S")},
        notes="holds numbers in 66 % of its values, but also 'S', so it is not read as numbers",
    ),
    "house numbers": Case(
        text(x=["1", "2", "2a", "3"]), {"x": category("1", "2", "2a", "3")}, notes="but also '2a'"
    ),
    "codes with an E": Case(
        text(x=["1E5", "12E34"]), {"x": category("1E5", "12E34")}, notes="holds codes such as '1E5'"
    ),
    "exponents": Case(text(x=["1e+05", "2.5e3", "7"]), {"x": number(1e5, 2500, 7)}),
    "telephone numbers": Case(
        text(x=["+4915112345", "+4915154321"]), {"x": category("+4915112345")}, notes="holds codes such as"
    ),
    "kilograms": Case(text(x=["12 kg", "3.5kg", ""]), {"x": number(12, 3.5, NAN)}),
    "degrees": Case(text(x=["12 °C", "-3.5 °C"]), {"x": number(12, -3.5)}),
    "-999.0": Case(text(x=["1.5", "-999.0"]), {"x": number(1.5, NAN)}, {"missing": ["-999"]}),
    "booleans": Case(typed(x=[True, None, False]), {"x": category("True", None, "False")}),
    "durations": Case(typed(x=[datetime.timedelta(hours=36), None]), {"x": number(1.5, NAN)}),
}

DATES = {
    "iso": Case(
        text(d=["2024-02-29", "", "NA"]), {"d": ("date", [pd.Timestamp("2024-02-29"), pd.NaT, pd.NaT])}
    ),
    "iso with times": Case(
        text(d=["2024-02-29 13:45", "2024-02-29T13:45:10.5"]),
        {"d": date("2024-02-29 13:45", "2024-02-29 13:45:10.5")},
    ),
    "time zones": Case(
        text(d=["2024-03-01T00:30:00+02:00", "2024-03-01T00:30:00Z", "2024-03-01 00:30 GMT+02:00"]),
        {"d": date("2024-02-29 22:30", "2024-03-01 00:30", "2024-02-29 22:30")},
    ),
    "slashes": Case(text(d=["2024/2/9", "2024/12/31"]), {"d": date("2024-02-09", "2024-12-31")}),
    "day first": Case(
        text(d=["03/04/2020", "24/12/2020 9:05"]), {"d": date("2020-04-03", "2020-12-24 09:05")}
    ),
    "month first": Case(text(d=["03/04/2020", "12/24/2020"]), {"d": date("2020-03-04", "2020-12-24")}),
    "points": Case(text(d=["3.4.2020", "24.12.2020"]), {"d": date("2020-04-03", "2020-12-24")}),
    "which is the day?": Case(
        text(d=["03/04/2020", "05/06/2020"]),
        "cannot be told whether day or month is first; write them as 2020-12-24",
    ),
    "neither order": Case(
        text(d=["13/04/2020", "04/13/2020"]),
        {"d": category("13/04/2020", "04/13/2020")},
        notes="holds dates in 50 % of its values, but also '04/13/2020'",
    ),
    "one odd date": Case(
        text(d=["2024-02-28"] * 23 + ["2024-02-30"]),
        r"row 24 \(line 25\): column 'd' holds dates, but here '2024-02-30'",
    ),
    "as BigQuery writes them": Case(
        text(d=["2020-03-20 00:00:00 UTC", "2020-03-21 10:29:00.5 UTC"]),
        {"d": date("2020-03-20", "2020-03-21 10:29:00.5")},
    ),
    "as SQL Server writes them": Case(
        text(d=["03/20/2020 12:00:00 AM", "10/02/2013 07:52:41 PM"]),
        {"d": date("2020-03-20", "2013-10-02 19:52:41")},
    ),
    "half a day that is none": Case(text(d=["03/20/2020 13:00 AM"]), {"d": category("03/20/2020 13:00 AM")}),
    "months first, with names": Case(
        text(quoted=True, d=["Aug 18, 2021", "Sept. 3rd, 2021 1:05 pm"]),
        {"d": date("2021-08-18", "2021-09-03 13:05")},
    ),
    "days of the week": Case(
        text(quoted=True, d=["Fri, 18 Aug 2021 10:29:00 +0200", "Wed Nov 25 13:13:34 UTC 2026"]),
        {"d": date("2021-08-18 08:29", "2026-11-25 13:13:34")},
    ),
    "as SAS and Apache write them": Case(
        text(d=["18AUG2021:10:29:00", "18/Aug/2021:10:29:00 +0000"]),
        {"d": date("2021-08-18 10:29", "2021-08-18 10:29")},
        notes="holds times with a zone and without, which are read as UTC",
    ),
    "years of two digits": Case(
        text(d=["20/03/21 10:00", "31/12/99"]),
        {"d": date("2021-03-20 10:00", "1999-12-31")},
        notes="holds dates such as '20/03/21 10:00', which is read as 2021-03-20",
    ),
    "months and years alone": Case(
        text(d=["2014-02-03", "2014-02", "1992"]),
        {"d": date("2014-02-03", "2014-02-01", "1992-01-01")},
        notes="holds 16 dates that are a month or year alone",
    ),
    "no months": Case(text(d=["2014-02", "2014-13"]), {"d": category("2014-02", "2014-13")}, notes="50 %"),
    "versions": Case(text(d=["10.4.11", "1.2.3", "11.10.1"]), {"d": category("10.4.11", "1.2.3")}),
    "digits that are dates": Case(
        text(d=[20200320, 20210401]), {"d": number(20200320)}, notes="dates such as 20200320, which are read"
    ),
    "arrow times": Case(typed(d=[datetime.time(6, 30)]), {"d": date("1970-01-01 06:30")}),
    "times": Case(text(d=["6:30", "12:05 AM"]), {"d": date("1970-01-01 06:30", "1970-01-01 00:05")}),
    "lengths": Case(text(d=["6:30", "61:30"]), {"d": category("6:30", "61:30")}),
    "a word among dates": Case(
        text(d=[*(f"2020-03-{k:02}" for k in range(1, 23)), "later", "later"]),
        r"row 23 \(line 24\): column 'd' holds dates, but here 'later'",
    ),
    "zero dates": Case(
        text(d=["2020-03-01", "0000-00-00"]),
        {"d": ("date", [pd.Timestamp("2020-03-01"), pd.NaT])},
        notes="has '0000-00-00' in 12 rows, which counts as missing",
    ),
    "arrow timestamps": Case(
        typed(d=pa.array([datetime.datetime(2024, 3, 1)], pa.timestamp("ns", "Europe/Berlin"))),
        {"d": date("2024-03-01")},
    ),
}

OTHER = {
    "counting from 0": Case(text(i=range(N), **BASE), {"i": LEFT_OUT, "x": HALF}),
    "counting from 1": Case(typed(i=list(range(1, N + 1)), x=[1.5, 2.25]), {"i": LEFT_OUT, "x": HALF}),
    "counting from 1900": Case(text(year=range(1900, 1900 + N)), {"year": number(1900, 1901)}),
    "rows of a counter": Case(text(order_id=range(7, 7 + N), **BASE), {"order_id": LEFT_OUT, "x": HALF}),
    "time": Case(text(t=range(N)), {"t": number(0, 1)}, notes="column 't' counts the rows"),
    "an index of pandas": Case(
        text(**{"Unnamed: 0": [*range(100, 100 + N)]}, **BASE), {"Unnamed: 0": LEFT_OUT, "x": HALF}
    ),
    "no name": Case(text(**{"": [*range(N, 0, -1)]}, **BASE), {"": LEFT_OUT, "x": HALF}),
    "keys": Case(text(i=[f"id-{k:04}" for k in range(N)], **BASE), {"i": LEFT_OUT, "x": HALF}),
    "numbers that all differ": Case(typed(x=[*np.arange(N) / 3]), {"x": number(*np.arange(N) / 3)}),
    "names": Case(
        text(i=[*(f"n{k}" for k in range(N - 1)), "n0"], **BASE),
        {"i": LEFT_OUT, "x": HALF},
        notes="`text` takes it as text",
    ),
    "names that repeat": Case(text(i=[f"n{k % 18}" for k in range(N)]), {"i": category("n0", "n1")}),
    "a dictionary": Case(
        typed(c=pa.array(["u", "v", None]).dictionary_encode()), {"c": category("u", "v", None)}
    ),
    "nothing but nulls": Case(typed(x=pa.nulls(4)), {"x": number(NAN)}),
    "codes of two words": Case(text(i=[f"item {k}" for k in range(N)], **BASE), {"i": LEFT_OUT, "x": HALF}),
    "titles": Case(text(t=TITLES), {"t": ("text", TITLES)}),
    **{
        f"lists {mark}": Case(typed(t=[*map(mark.join, LISTS)]), {"t": ("text", [*map(mark.join, LISTS)])})
        for mark in (";", ",", "|", ", ")
    },
    "titles in Chinese": Case(text(t=CHINESE), {"t": ("text", CHINESE)}),
    "text by name": Case(text(t=["cat", "dog"]), {"t": ("text", ["cat", "dog"])}, {"text": ["t"]}),
    "numbers that are text": Case(typed(t=[1, 2]), {"t": ("text", ["1", "2"])}, {"text": ["t"]}),
    "text": Case(text(t=WORDS), {"t": ("text", WORDS)}),
    "labels that are missing": Case(
        raw("x,y\n" + "1.5,a\n7,\n2.25,b\n" * 6), {"x": HALF}, notes="6 rows have no 'y' and are left out"
    ),
    "no label at all": Case(raw("x,y\n" + "1.5,\n" * 12), "the label column 'y' is empty; name another"),
    "labels that say that they are missing": Case(
        raw("x,y\n" + "1.5,a\n7,NA\n2.25,b\n" * 6), {"x": HALF}, {"missing": ["NA"]}, notes="6 rows"
    ),
    "one class": Case(raw("x,y\n" + "1.5,a\n" * 12), "one class only, 'a'; give rows of another, too"),
    "a row too short": Case(raw("x,z,y\n" + "1,2,a\n" * 12 + "1,2\n"), "is damaged .*3 columns, got 2"),
    "nothing": Case(raw(b""), "is empty"),
    "a header only": Case(raw("x,y\n"), "has no rows"),
    "twice the same name": Case(raw("x,x,y\n1,2,a\n"), "two columns called 'x'"),
    "spaces around": Case(text(x=[" 1.5", "2.25 "], c=[" u ", "v"]), {"x": HALF, "c": category("u", "v")}),
    "empty column": Case(text(x=[""], z=["1"]), {"x": number(NAN), "z": number(1)}),
}

CASES = {**FILES, **NUMBERS, **DATES, **OTHER}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_awkward_table(case: Case, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    if isinstance(case.found, str):
        with pytest.raises(UsboostError, match=case.found) as caught:
            read_columns(path, TableSpec(label="y", **case.options))
        assert str(caught.value).startswith(str(tmp_path)) and "\n" not in str(caught.value)
        return
    table = read_columns(path, TableSpec(label="y", **case.options))
    assert set(table.features) | set(table.left_out) == set(case.found)
    for name, expected in case.found.items():
        if expected == LEFT_OUT:
            assert name in table.left_out
            continue
        kind, values = expected
        assert table.kinds[name] == kind, name
        same(table.features[name], values)
    assert table.classes == ["a", "b"] and len(table.labels) == len(table.features)
    said = "; ".join(describe(table).notes)
    assert case.notes in said if case.notes else "left out" in said or not said, said


def same(column: pd.Series, values: list[Any]) -> None:
    """The column begins with the values."""
    found = column.iloc[: len(values)]
    if column.dtype == np.float64:
        np.testing.assert_allclose(found, values, rtol=1e-15)
    else:
        plain = [None if pd.isna(each) else each for each in found.astype(object)]
        assert plain == [None if pd.isna(each) else each for each in values]


def test_excel_without_openpyxl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = excel(x=[1])(tmp_path)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    refuses(r"install it with: pip install 'usboost\[excel\]'", read_columns, path, TableSpec(label="y"))


def test_times_in_json_lines_keep_their_zone(tmp_path: Path) -> None:
    times = ["2024-06-01T00:00:00+02:00", "2024-06-02T08:00:00+02:00"]
    for write in (text(t=times), lines_of_json([{"t": each} for each in times])):
        assert read_columns(write(tmp_path), TableSpec(label="y")).formats["t"].zone == "+02:00"


def test_times_of_a_zone_that_this_machine_does_not_know_are_instants(tmp_path: Path) -> None:
    times = pa.array([0, 3_600_000_000] * 6, pa.timestamp("us", "Nowhere/City"))
    pq.write_table(pa.table({"t": times, "y": ["a", "b"] * 6}), tmp_path / "t.parquet")
    found = read_columns(tmp_path / "t.parquet", TableSpec(label="y"))
    assert found.formats["t"].zone == "UTC" and found.features["t"].iloc[1] == pd.Timestamp(3600, unit="s")


def test_files_of_a_folder_must_be_alike(tmp_path: Path) -> None:
    folder = typed("parts", x=[1.5, 2.25])(tmp_path)
    pq.write_table(pa.table({"x": [1, 2], "y": ["a", "b"]}), folder / "part-2.parquet")
    assert read_columns(folder, TableSpec(label="y")).features["x"].tolist()[-2:] == [1, 2]
    pq.write_table(pa.table({"x": ["1", "2"], "y": ["a", "b"]}), folder / "part-3.parquet")
    refuses("its files hold different types", read_columns, folder, TableSpec(label="y"))
    pq.write_table(pa.table({"z": [1, 2], "y": ["a", "b"]}), folder / "part-3.parquet")
    said = r"part-3.parquet and part-0.parquet do not have the same columns: 'x'"
    refuses(said, read_columns, folder, TableSpec(label="y"))
    (tmp_path / "empty").mkdir()
    refuses(r"is a folder without \.parquet files", read_columns, tmp_path / "empty", TableSpec(label="y"))


@pytest.mark.parametrize("name", ["t.csv.gz", "t.zip"])
def test_a_compressed_table_too_large(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_of_user, "LARGEST", 100_000)
    pack = gzip.compress if name.endswith("gz") else zipped()
    (tmp_path / name).write_bytes(pack(b"x,y\n" + b"1,a\n2,b\n" * 100_000))
    refuses("more than the 100,000 values", read_columns, tmp_path / name, TableSpec(label="y"))


def test_a_large_file_that_is_not_utf_8_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"c,y\n" + b"plain,a\nplain,b\n" * 100_000 + "café,a\n".encode("cp1252"))
    assert read_columns(tmp_path / "t.csv", TableSpec(label="y")).features["c"].iloc[-1] == "café"


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("name", ["t.csv", "parts", "t.feather", "t.parquet"])
def test_rows_come_in_the_batches_that_are_asked_for(tmp_path: Path, name: str, size: int) -> None:
    write = text if name == "t.csv" else typed
    file = TableFile.open(write(name=name, i=[*map(str, range(N))])(tmp_path))
    batches = [batch["i"].to_pylist() for batch in file.batches(["i"], size)]
    assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1) and len(batches[-1]) <= size
    assert [value for batch in batches for value in batch] == [*map(str, range(N))]


def test_the_row_of_a_class_of_one_row_can_be_left_out(tmp_path: Path) -> None:
    path = raw("x,y\n" + "1.5,a\n2.25,b\n" * 6 + "3,c\n4,d\n")(tmp_path)
    said = r"class 'c' of 'y' has 1 row, .* out \(`missing='c'` does, for all columns\); too few .* 'd'$"
    refuses(said, read_table, path, TableSpec(label="y"))
    assert read_table(path, TableSpec(label="y", missing=["c", "d"])).classes == ["a", "b"]

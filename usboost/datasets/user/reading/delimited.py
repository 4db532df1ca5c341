"""Text files with a header, such as CSV, in the encoding and with the separator that they have."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from usboost.datasets.user.reading.content import FAULTS, Content, kind_of_file, unpacked
from usboost.errors import UsboostError

SEPARATORS = (",", ";", "\t", "|")

_BLOCK = 1 << 22  # bytes read at a time; no row may be longer
_HEAD = 1 << 20  # bytes in which the separator is looked for
_RECORDS = 200  # and rows

_POINT = re.compile(r"[^\d.,]{0,5}[\d,]*\d\.(\d{1,2}|\d{4,})[^\d.,]{0,5}")
_COMMA = re.compile(r"[^\d.,]{0,5}[\d.]*\d,(\d{1,2}|\d{4,})[^\d.,]{0,5}")


@dataclass(frozen=True)
class Delimited(Content):
    """A text file of rows; all values are strings.

    Attributes
    ----------
    separator, encoding : of the file.
    """

    path: Path
    schema: pa.Schema
    separator: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    notes: tuple[str, ...] = ()
    as_text = True

    @classmethod
    def open(cls, path: Path) -> Delimited:
        """Find out encoding, separator, decimal mark and columns."""
        with unpacked(path) as stream:
            head = stream.read(_HEAD)
            whole = len(head) < _HEAD
            encoding = _encoding(path, head, stream)
        text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head, final=whole)
        separator = separator_of(text, whole=whole, tabs=kind_of_file(path)[0] in (".tsv", ".tab"))
        records = _records(text, separator, whole=whole)
        names = records[0] if records else []
        notes = []
        if encoding in ("cp1252", "latin-1"):
            notes.append(
                f"{path} is not UTF-8 and is read as {encoding}; save it as UTF-8 if letters are wrong"
            )
        schema = pa.schema([(name, pa.string()) for name in names])
        return cls(path, schema, separator, encoding, decimal_of(records[1:], separator), tuple(notes))

    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        with unpacked(self.path) as raw:
            known = self.encoding.startswith("utf-8")
            stream = raw if known else pa.transcoding_input_stream(raw, self.encoding, "utf8")
            with pyarrow.csv.open_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK),
                parse_options=pyarrow.csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    include_columns=names,
                    strings_can_be_null=False,
                ),
            ) as reader:
                for block in reader:
                    yield pa.Table.from_batches([block])

    def line(self, row: int) -> int | None:
        try:
            with unpacked(self.path) as raw:
                text = io.TextIOWrapper(raw, encoding=self.encoding, errors="replace", newline="")
                reader = csv.reader(text, delimiter=self.separator)
                rows, before = -2, 0  # the header is no row
                for record in reader:
                    rows += bool(record)
                    if record and rows == row:
                        return before + 1
                    before = reader.line_num
        # only a message lacks the line
        except FAULTS:
            pass
        return None


def separator_of(text: str, *, whole: bool = True, tabs: bool = False) -> str:
    """What stands between the columns of the rows at the beginning of a file.

    It is the one by which all of these rows have as many fields as the header, two at least; of several,
    the one that gives most, then the first of `SEPARATORS`. Where none does, it is the one that cuts the
    header into most. Separators within quotes do not count.

    Parameters
    ----------
    whole : whether the text is the whole file; else its last row is incomplete.
    tabs : whether the name of the file says that it is a tab.
    """
    order = sorted(SEPARATORS, key=lambda each: each != "\t") if tabs else SEPARATORS

    def fits(separator: str) -> tuple[bool, int]:
        records = _records(text, separator, whole=whole)
        width = len(records[0]) if records else 0
        return width > 1 and all(len(record) == width for record in records), width

    return max(order, key=fits)


def decimal_of(records: list[list[str]], separator: str) -> str:
    """The decimal mark of a file: the one that more numbers have which cannot be groups of three digits.

    Where as many have a comma as a point, it is a comma between semicolons, and a point otherwise.
    """
    fields = [field.strip() for record in records for field in record]
    points, commas = (sum(bool(mark.fullmatch(field)) for field in fields) for mark in (_POINT, _COMMA))
    if points == commas:
        return "," if separator == ";" else "."
    return "," if commas > points else "."


def _records(text: str, separator: str, *, whole: bool) -> list[list[str]]:
    found: list[list[str]] = []
    complete = whole
    try:
        for record in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            if len(found) > _RECORDS:
                complete = True
                break
            if record:
                found.append(record)
    except csv.Error:  # a field longer than the csv module takes
        complete = False
    return found if complete or len(found) < 2 else found[:-1]


def _encoding(path: Path, head: bytes, stream: pa.NativeFile) -> str:
    """What the bytes are: by their mark, else by the first that are not ASCII."""
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head:
        raise UsboostError(f"{path} holds zero bytes, which text does not; save it as a CSV in UTF-8")
    block = head
    while block and block.isascii():
        block = stream.read(_HEAD)
    for encoding in ("utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(encoding)().decode(block, final=False)
            return encoding
        except UnicodeDecodeError:
            continue
    return "latin-1"

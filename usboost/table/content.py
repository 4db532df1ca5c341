"""The content of files: columns, and rows in pieces; of compressed files what is in them; and of text files
with a header, such as CSV, in the encoding and with the separator that they have."""

import codecs
import csv
import io
import re
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.csv

from usboost.errors import UsboostError

PACKINGS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""pyarrow's names of them; a ``.zip`` is opened by Python."""


def kind_of_file(path: Path) -> tuple[str, bool]:
    """Return the end of the name of what the file holds, such as ``.csv``, and whether that is compressed.

    Raises UsboostError if an archive does not hold exactly one file.
    """
    packing = path.suffix.lower()
    if packing == ".zip":
        with zipfile.ZipFile(path) as archive:
            # pandas names a table in "rows.zip" "rows"
            return PurePosixPath(_member(path, archive).filename).suffix.lower() or ".csv", True
    return (path.with_suffix("").suffix.lower(), True) if packing in PACKINGS else (packing, False)


@contextmanager
def unpacked(path: Path) -> Iterator[pa.NativeFile]:
    """Open the file's bytes as a stream, unpacked while they are read."""
    packing = path.suffix.lower()
    if packing == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(_member(path, archive)) as member:
            yield pa.PythonFile(member, mode="r")
        return
    with pa.OSFile(str(path)) as file:
        if packing not in PACKINGS:
            yield file
            return
        with pa.CompressedInputStream(file, PACKINGS[packing]) as stream:
            yield stream


def _member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Return the one file of an archive; what macOS adds does not count."""
    of_macos = ("__MACOSX/", ".DS_Store")
    files = [info for info in archive.infolist() if not info.is_dir()]
    tables = [info for info in files if not any(each in info.filename for each in of_macos)]
    if len(tables) != 1:
        raise UsboostError(f"{path} holds {len(tables)} files; a zip must hold one table, so unpack it")
    return tables[0]


FAULTS: tuple[type[Exception], ...] = (
    *(csv.Error, pa.ArrowException, OSError, ValueError, KeyError, TypeError, EOFError),
    *(zlib.error, zipfile.BadZipFile, RuntimeError, MemoryError),
)
"""Errors that readers raise of a damaged file, the errors of pyarrow's own and of unpacking included."""


class Content(ABC):
    """The rows of a file.

    Attributes
    ----------
    schema : names and types of the columns.
    as_text : whether all values are strings, as in a CSV.
    decimal : the mark of decimals in numbers that are text, "." or ",", where a column leaves it open.
    decimal_known : whether the file shows it, and it is not a guess.
    notes : what a user should know about how the file is read.
    """

    schema: pa.Schema
    as_text: bool = False
    decimal: str = "."
    decimal_known: bool = False
    notes: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int | None:
        """Return the number of rows; None where it is unknown before they are read."""
        return None

    @abstractmethod
    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        """Read some columns of all rows in their order, in pieces; `most` rows are wanted at a time."""

    def line(self, row: int) -> int | None:
        """Return the line of the file on which a row begins, from 1; None where a file has no lines."""
        return None


def even(pieces: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Cut the same rows into tables of `size`; the last may have fewer."""
    waiting: list[pa.Table] = []
    rows = 0
    for piece in pieces:
        waiting.append(piece)
        rows += piece.num_rows
        if rows < size:
            continue
        joined = pa.concat_tables(waiting)
        first = 0
        for first in range(0, rows - size + 1, size):
            yield joined.slice(first, size)
        waiting = [joined.slice(first + size)]
        rows = waiting[0].num_rows
    if rows:
        yield pa.concat_tables(waiting)


def damaged(path: Path, error: Exception) -> UsboostError:
    """Return the refusal of a file that its reader cannot read."""
    memory = ", or there is not enough memory" if isinstance(error, MemoryError) else ""
    if "changed from" in str(error):  # pyarrow's word of JSON
        return UsboostError(f"{path} has values of two types in a column; write them alike: {error}")
    return UsboostError(f"{path} is damaged or not of the type in its name{memory}: {error}")


SEPARATORS = (",", ";", "\t", "|")
"""The first of those that cut a file's first rows alike, into most fields; those in quotes do not count."""

_BLOCK = 1 << 22  # bytes read at a time; no row may be longer
_HEAD = 1 << 20  # bytes in which the separator is looked for
_RECORDS = 200  # and rows

# numbers with decimals, whose mark is not one between groups of three digits; and those where it may be
_POINT, _COMMA = (
    re.compile(
        rf"[^\d.,]{{0,5}}(?:[\d{other}]*\d{mark}(\d{{1,2}}|\d{{4,}})"
        rf"|(?:0|\d{{4,}}|\d{{1,3}}(?:{other}\d{{3}})+){mark}\d{{3}})[^\d.,]{{0,5}}"
    )
    for mark, other in ((r"\.", ","), (",", r"\."))
)
_EITHER = re.compile(r"[^\d.,]{0,5}[1-9]\d{0,2},\d{3}[^\d.,]{0,5}")


@dataclass(frozen=True)
class Delimited(Content):
    """A text file of rows; all values are strings. `separator`, `encoding`: of the file."""

    path: Path
    schema: pa.Schema
    separator: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    notes: tuple[str, ...] = ()
    decimal_known: bool = False
    as_text = True

    @classmethod
    def open(cls, path: Path) -> "Delimited":
        """Find out encoding, separator, decimal mark and columns."""
        with unpacked(path) as stream:
            head = stream.read(_HEAD)
            whole = len(head) < _HEAD
            encoding = _encoding(path, head, stream)
        text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head, final=whole)
        if first := re.match(r"(?i)sep=.(?=\r?\n)", text):
            raise UsboostError(f"{path} begins with the line {first[0]!r}, which is for Excel; delete it")

        def fits(separator: str, text: str = text) -> tuple[bool, int]:
            """Return whether rows have as many fields as the header, two at least, and how many that has."""
            records = _records(text, separator, whole=whole)
            width = len(records[0]) if records else 0
            return width > 1 and all(len(record) == width for record in records), width

        below = re.sub(r"\A(?:#.*\r?\n)+", "", text)
        fit_all, fit_below = (any(fits(each, part)[0] for each in SEPARATORS) for part in (text, below))
        if fit_below and not fit_all:
            comment = text.splitlines()[0][:60]
            raise UsboostError(f"{path} begins with comments, {comment!r} first; delete these lines")
        tabs = kind_of_file(path)[0] in (".tsv", ".tab")
        separator = max(sorted(SEPARATORS, key=lambda each: tabs and each != "\t"), key=fits)
        names, *records = _records(text, separator, whole=whole) or [[]]
        fields = [field.strip() for record in records for field in record]
        # the decimal mark that more numbers have which cannot be groups of three digits
        points, commas = (sum(bool(mark.fullmatch(field)) for field in fields) for mark in (_POINT, _COMMA))
        has_commas = separator == ";" if points == commas else commas > points
        note = f"{path} is not UTF-8 and is read as {encoding}; save it as UTF-8 if letters are wrong"
        notes = (note,) if encoding in ("cp1252", "latin-1") else ()
        schema = pa.schema([(name, pa.string()) for name in names])
        known = points != commas or (separator == "," and not any(map(_EITHER.fullmatch, fields)))
        return cls(path, schema, separator, encoding, "," if has_commas else ".", notes, known)

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
        with suppress(*FAULTS), unpacked(self.path) as raw:  # only a message lacks the line
            text = io.TextIOWrapper(raw, encoding=self.encoding, errors="replace", newline="")
            reader = csv.reader(text, delimiter=self.separator)
            rows, before = -2, 0  # the header is no row
            for record in reader:
                rows += bool(record)
                if record and rows == row:
                    return before + 1
                before = reader.line_num
        return None


def _records(text: str, separator: str, *, whole: bool) -> list[list[str]]:
    records: list[list[str]] = []
    complete = whole
    try:
        for record in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            if len(records) > _RECORDS:
                complete = True
                break
            if record:
                records.append(record)
    except csv.Error:  # a field longer than the csv module takes
        complete = False
    return records if complete or len(records) < 2 else records[:-1]


def _encoding(path: Path, head: bytes, stream: pa.NativeFile) -> str:
    """Find the encoding of bytes: by their mark, else by the first that are not ASCII."""
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
        with suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(encoding)().decode(block, final=False)
            return encoding
    return "latin-1"

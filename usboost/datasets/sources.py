"""Raw files of a source: found in a user's folder, else downloaded once into the cache."""

import gzip
import hashlib
import math
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import pandas as pd
import pooch
import pyarrow as pa
import pyarrow.csv
import requests

from usboost.errors import UsboostError
from usboost.files.arrays import sha256

ATTEMPTS = 3
"""Tries of a download whose connection fails."""

LARGEST = 1 << 29
"""Bytes that a raw text file may hold; the published ones hold a fifth of it."""

PAUSE = 1.0
"""Seconds before the second attempt; doubled before each further one."""


def read_demo(path: Path) -> pd.DataFrame:
    """Read a small file of real rows. Raises UsboostError where it is not: in an installed package."""
    if not path.is_file():
        raise UsboostError(f"{path} is missing; a checkout of usboost has it, the installed package has not")
    return pd.read_parquet(path)


def digests(files: Sequence[Path], demo: Path | None = None) -> dict[str, str]:
    """Return the digests of raw files by name; `demo` is the small file whose rows they hold, if any."""
    return {f"{file.name}, rows of {demo.name}" if demo else file.name: sha256(file) for file in files}


@dataclass(frozen=True)
class RemoteFile:
    """One raw file of a source.

    Attributes
    ----------
    name : name of the file on disk.
    url : where it is published.
    sha256 : hexadecimal SHA-256 of the content, or None when it is not known. Of a gzipped file it
        is the digest of what the file holds: mirrors compress the same content anew.
    """

    name: str
    url: str
    sha256: str | None = None


def find_source(source: str, files: Sequence[RemoteFile], *, folder: Path | None, cache: Path) -> Path:
    """Find the folder that holds all raw files of one source, or download them.

    Returns ``folder/source`` when it holds all files, else ``cache/source``. A user's own `folder` (the value
    of ``USBOOST_DATA``) is taken as it is, without looking at digests; `cache` is not fetched again.

    Raises UsboostError if a file is neither there nor to be downloaded. Its ``__cause__`` is an ``OSError``
    when the network failed, so that trying later may help, and None when trying again is useless: the server
    does not have the file, or the content's digest is wrong.
    """
    if folder is not None and all((Path(folder) / source / file.name).is_file() for file in files):
        return Path(folder) / source
    place = Path(cache) / source
    for file in files:
        if not (place / file.name).is_file():
            _download(source, file, place)
    return place


def lines_of(path: Path) -> bytes:
    """Read a raw text file, gzipped or not, without blank lines at its end.

    Raises UsboostError if it is missing, empty, a damaged gzip file, or holds more than `LARGEST` bytes.
    """
    try:
        with _opened(path) as stream:
            content = stream.read(LARGEST + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UsboostError(f"{path} is a damaged or truncated gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise UsboostError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise UsboostError(f"{path} has more than the {LARGEST:,} bytes that it may have; fetch it again")
    if not (text := content.rstrip()):
        raise UsboostError(f"{path} is empty; fetch it again")
    return text


def is_finite(field: str, most: float = math.inf) -> bool:
    """Tell whether a field of a text file is a finite number, of at most so much."""
    try:
        return math.isfinite(float(field)) and abs(float(field)) <= most
    except ValueError:
        return False


def parse_csv(raw: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Parse lines without a header and quotation marks, where nothing stands for a missing value.

    Raises `pyarrow.ArrowInvalid` if a line has not as many fields as there are types, or one is of another.
    """
    return pyarrow.csv.read_csv(
        pa.BufferReader(raw),
        read_options=pyarrow.csv.ReadOptions(column_names=list(types)),
        parse_options=pyarrow.csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types, null_values=[], strings_can_be_null=False
        ),
    )


def content_sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file's content: of a gzipped file, of what it holds.

    Raises UsboostError if a gzipped file is damaged or cut short.
    """
    try:
        with _opened(Path(path)) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UsboostError(f"{path} is a damaged or truncated gzip file ({error})") from None


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path)) if zipped else path.open("rb")


def _download(source: str, file: RemoteFile, place: Path) -> None:
    """Fetch one file; it gets its final name only when it is complete and its content is right."""
    advice = f"put {file.name} into $USBOOST_DATA/{source}/ or allow the download from {file.url}"

    def fetch(url: str, output_file: str, _: pooch.Pooch) -> None:
        pooch.HTTPDownloader()(url, output_file, _)
        if file.sha256 is None:
            return
        try:
            digest = content_sha256(Path(output_file))
        except UsboostError:
            digest = "none, for it is a damaged gzip file"
        if digest != file.sha256:
            raise UsboostError(
                f"{file.name} from {url} was not kept, its SHA-256 should be {file.sha256} but is {digest}; "
                f"put the right one into $USBOOST_DATA/{source}/"
            )

    store = pooch.create(place, base_url="", registry={file.name: None}, urls={file.name: file.url})
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            store.fetch(file.name, downloader=fetch)
            return
        except requests.RequestException as error:
            failure = error
            status = getattr(error.response, "status_code", None)
            if status is not None and 400 <= status < 500:
                raise UsboostError(f"{file.name} is missing; the server said {status}: {advice}") from None
        except OSError as error:  # of our disk, so trying again is useless
            raise UsboostError(f"{place / file.name} cannot be written: {error}; {advice}") from None
    raise UsboostError(f"{file.name} is missing and could not be downloaded: {advice}") from failure

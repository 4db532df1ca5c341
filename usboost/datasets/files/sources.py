"""Raw files of a source: found in a user's folder, else downloaded once into the cache."""

from __future__ import annotations

import gzip
import hashlib
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests

from usboost.errors import UsboostError

ATTEMPTS = 3
"""How often a download is tried when the connection fails."""

LARGEST = 1 << 29
"""Bytes that a raw text file may hold; the published ones hold a fifth of it."""

PAUSE = 1.0
"""Seconds before the second attempt; doubled before each further one."""


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
    """The folder that holds all raw files of one source.

    Parameters
    ----------
    source : name of the source, which is the name of its folder.
    files : the raw files wanted.
    folder : a user's own data folder (the value of ``USBOOST_DATA``), or None; its files are
        taken as they are, without looking at digests.
    cache : where downloads go; files already there are not fetched again.

    Returns
    -------
    ``folder/source`` when it holds all files, else ``cache/source``.

    Raises
    ------
    UsboostError
        If a file is neither there nor to be downloaded. Its ``__cause__`` is an ``OSError`` when the
        network failed, so that trying later may help, and None when trying again is useless: the
        server does not have the file, or the content's digest is wrong.
    """
    if folder is not None and all((Path(folder) / source / file.name).is_file() for file in files):
        return Path(folder) / source
    place = Path(cache) / source
    for file in files:
        if not (place / file.name).is_file():
            _download(source, file, place)
    return place


def unzipped(path: Path) -> bytes:
    """The content of a raw file, gzipped or not.

    Raises
    ------
    UsboostError
        If it is missing, a damaged gzip file, or holds more than `LARGEST` bytes; no more are unpacked.
    """
    try:
        with path.open("rb") as stream:
            zipped = stream.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UsboostError(f"{path} is a damaged or truncated gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise UsboostError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise UsboostError(
            f"{path} holds more than the {LARGEST:,} bytes such a file may have; fetch it again"
        )
    return content


def lines_of(path: Path) -> bytes:
    """The same of a text file, without blank lines at its end; one that is empty is refused, too."""
    if not (text := unzipped(path).rstrip()):
        raise UsboostError(f"{path} is empty; fetch it again")
    return text


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content: of a gzipped file, of what it holds.

    Raises
    ------
    UsboostError
        If a gzipped file is damaged or cut short.
    """
    with Path(path).open("rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    if not zipped:
        return sha256(path)
    digest = hashlib.sha256()
    try:
        with gzip.open(path) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UsboostError(f"{path} is a damaged or truncated gzip file ({error})") from None
    return digest.hexdigest()


def _download(source: str, file: RemoteFile, place: Path) -> None:
    """Fetch one file; it gets its final name only when it is complete and its content is right."""
    advice = f"put {file.name} into $USBOOST_DATA/{source}/ or allow the download from {file.url}"

    def fetch(url: str, output_file: str, _: pooch.Pooch) -> None:
        pooch.HTTPDownloader()(url, output_file, _)
        if file.sha256 is None:
            return
        try:
            found = content_sha256(Path(output_file))
        except UsboostError:
            found = "none, for it is a damaged gzip file"
        if found != file.sha256:
            raise UsboostError(
                f"{file.name} from {url} was not kept, its SHA-256 should be {file.sha256} but is {found}; "
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
                raise UsboostError(
                    f"{file.name} is missing and the server answered {status}: {advice}"
                ) from None
        except OSError as error:  # of our disk, so trying again is useless
            raise UsboostError(f"{place / file.name} cannot be written: {error}; {advice}") from None
    raise UsboostError(f"{file.name} is missing and could not be downloaded: {advice}") from failure

"""Write files and folders, replaced whole or not at all; arrays; parts that a file may name."""

import errno
import os
import re
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident

from usboost.errors import UsboostError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def check_local(path: Path) -> None:
    """Raise UsboostError if a path is an address, ``s3://bucket/rows.csv`` say, which has lost a slash."""
    if re.match(r"[A-Za-z][\w+.-]+:[/\\]", str(path)):
        address = path.as_posix().replace(":/", "://", 1)
        raise UsboostError(f"{address} is an address; name a file or folder of this computer")


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Make a new folder next to `folder` to write to, which takes its place when the block succeeds.

    When anything fails the earlier folder stays as it was. Files that are there are never edited, since DVC
    may have linked them to its cache. Raises UsboostError if `folder` is a file, nothing can be written
    next to it, or the disk is full, whatever the block's writers raise then.
    """
    folder = Path(folder)
    check_local(folder)
    if folder.exists() and not folder.is_dir():
        raise UsboostError(f"{folder} is a file, so no folder can be written there; name another one")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    except OSError as error:
        raise UsboostError(f"{folder} cannot be written: {error.strerror}; choose another place") from error
    fresh, old = work / "new", work / "old"
    fresh.mkdir()
    try:
        yield fresh
        # let others read what a user's umask lets them read; some writers make files for their owner only
        mode = fresh.stat().st_mode & 0o666
        every = [(file, file.lstat()) for file in fresh.rglob("*")]
        names = Counter(about.st_ino for _, about in every)
        for file, about in every:
            # a file with a name elsewhere, in a cache say, keeps what it has
            own = about.st_nlink == names[about.st_ino] and stat.S_ISREG(about.st_mode)
            if own and about.st_mode & 0o666 != mode:
                file.chmod(mode)
        if folder.exists():
            folder.replace(old)
        try:
            fresh.replace(folder)
        except BaseException:
            if old.exists():
                old.replace(folder)
            raise
    except Exception as error:
        cause = error if isinstance(error, OSError) and error.errno in NO_ROOM else None
        if cause is None:
            # writers in Rust and C++ (safetensors, Arrow, CatBoost) raise errors of their own, with the
            # system's words
            number = next((each for each in NO_ROOM if os.strerror(each) in str(error)), None)
            if number is None:
                raise
            cause = OSError(number, os.strerror(number))
        raise UsboostError(f"{folder} cannot be written: {cause.strerror}") from cause
    finally:
        # should the earlier folder not have come back, it is kept where it is
        if folder.exists() or not old.exists():
            shutil.rmtree(work, ignore_errors=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name, then put it in place; what cannot be written is a UsboostError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}.tmp")  # two fits may be two threads
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UsboostError(f"{path} cannot be written: {error.strerror}") from error

"""Room for the pixels of any number of images: memory while they are few, else the disk."""

from __future__ import annotations

import os
import shutil
import tempfile

import numpy as np

from usboost.errors import UsboostError, option

IN_MEMORY = 256 << 20
"""Bytes of pixels above which they lie in a file."""


def room(shape: tuple[int, ...], what: str) -> np.ndarray:
    """Zeros to be filled: uint8 of that shape.

    Above `IN_MEMORY` bytes they are a memory-mapped file in Python's temporary folder (the environment's
    ``TMPDIR``). It has no name, so that its room is free again as soon as nobody uses the array.

    Parameters
    ----------
    what : has the pixels, for messages.

    Raises
    ------
    UsboostError
        If there is not enough space on the disk.
    """
    needed = int(np.prod(shape, dtype=np.int64))
    if needed <= IN_MEMORY:
        return np.zeros(shape, dtype=np.uint8)
    folder = tempfile.gettempdir()
    try:
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise OSError
        with tempfile.TemporaryFile(dir=folder) as file:
            # space is taken now: a write to a page that finds none later would end the process
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, needed)
            return np.memmap(file, np.uint8, "r+", shape=shape)
    except OSError:
        raise UsboostError(
            f"{what}: the images take {needed / 1e9:,.1f} GB on the disk, more than is free in {folder}; "
            f"choose a smaller {option('size')}, or a folder with room by the environment's TMPDIR"
        ) from None

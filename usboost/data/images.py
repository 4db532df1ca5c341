"""Images as a view: decoded in memory where they fit, else encoded and decoded on demand."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from PIL import Image

from usboost.errors import UsboostError

MODES = {1: "L", 3: "RGB"}
"""Pillow's mode of the images by number of channels."""

DIGEST = 16
"""Bytes that say what an image is."""

_BLOCK = 16  # images a thread decodes at a time; fewer than two blocks are not worth a thread


class Images:
    """n images of one size as pixels, in memory or in a memory-mapped file.

    Rows of it, ``images[rows]``, are another view of the same pixels: only `decode` copies them.

    Parameters
    ----------
    pixels : uint8 array of shape (N, C, H, W), C being 1 (grey) or 3 (red, green, blue); may be a
        `numpy.memmap`.
    absent : bool array of shape (N,), True where a row has no image; None where all have one.
    rows : positions in `pixels` of the n images, int64 of shape (n,); all of them by default.

    Raises
    ------
    UsboostError
        If the array is of another type or shape, or the mask is not of its rows.

    Examples
    --------
    >>> import numpy as np
    >>> from usboost import Images
    >>> images = Images(np.zeros((4, 3, 8, 8), dtype=np.uint8))
    >>> len(images[1:3])
    2
    """

    kind: ClassVar[str] = "image"

    def __init__(
        self, pixels: np.ndarray, *, absent: np.ndarray | None = None, rows: np.ndarray | None = None
    ) -> None:
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1] not in MODES:
            raise UsboostError(
                "images must be uint8 of shape (n, 1 or 3, height, width), "
                f"not {pixels.dtype} of shape {pixels.shape}"
            )
        if absent is not None and (absent.dtype != np.bool_ or absent.shape != pixels.shape[:1]):
            raise UsboostError(
                f"absent must be bool of shape ({len(pixels)},), not {absent.dtype} of shape {absent.shape}"
            )
        self._pixels, self._absent, self._rows = pixels, absent, rows
        self._digests = _Digests(len(pixels))

    def __len__(self) -> int:
        return len(self._pixels if self._rows is None else self._rows)

    def __getitem__(self, rows: Any) -> Images:
        cut = copy(self)
        cut._rows = self._positions(rows)
        return cut

    def __repr__(self) -> str:
        return f"Images({len(self)} of {self.channels} x {self.height} x {self.width})"

    @property
    def channels(self) -> int:
        return self._pixels.shape[1]

    @property
    def height(self) -> int:
        return self._pixels.shape[2]

    @property
    def width(self) -> int:
        return self._pixels.shape[3]

    @property
    def absent(self) -> np.ndarray | None:
        """Bool of shape (n,), True where a row has no image; None where all have one."""
        return self._absent if self._absent is None or self._rows is None else self._absent[self._rows]

    @property
    def pixels(self) -> np.ndarray:
        """Uint8 (n, C, H, W): the array itself, or a copy when this is some rows of it."""
        return self.decode()

    def decode(self, rows: Any = None) -> np.ndarray:
        """The pixels of some rows (all by default): uint8 (k, C, H, W), as `EncodedImages.decode`."""
        if self._rows is None:
            return self._pixels if rows is None else self._pixels[_selection(rows)]
        return self._pixels[self._positions(rows)]

    def digests(self) -> np.ndarray:
        """What each image is, uint8 (n, 16): BLAKE2b of shape and pixels, made once for all selections."""
        shape = str(self._pixels.shape[1:]).encode()
        return self._digests.of(
            self._positions(), lambda row: [shape, np.ascontiguousarray(self._pixels[row])]
        )

    def update_digest(self, digest: Any) -> None:
        """Feed what the images are to a hash of `hashlib`."""
        digest.update(self.digests().tobytes())
        digest.update(b"" if self.absent is None else self.absent.tobytes())

    def _positions(self, rows: Any = None) -> np.ndarray:
        own = np.arange(len(self._pixels)) if self._rows is None else self._rows
        return own if rows is None else own[_selection(rows)]


class EncodedImages:
    """n images of one size as PNG or JPEG bytes, decoded when they are asked for.

    Parameters
    ----------
    column : binary Arrow array of N >= n encoded images, in memory or memory-mapped; null where a row has
        no image.
    channels, height, width : of every image; C is 1 or 3.
    rows : positions in `column` of the n images, int64 of shape (n,); all of them by default.

    Raises
    ------
    UsboostError
        If the column is not binary, or there are other than 1 or 3 channels.
    """

    kind: ClassVar[str] = "image"

    def __init__(
        self,
        column: pa.ChunkedArray | pa.Array,
        *,
        channels: int,
        height: int,
        width: int,
        rows: np.ndarray | None = None,
    ) -> None:
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            raise UsboostError(f"encoded images must be a binary column, not {column.type}")
        if channels not in MODES:
            raise UsboostError(f"images must have 1 or 3 channels, not {channels}")
        self.channels, self.height, self.width = channels, height, width
        self._column = column
        self._absent = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        self._rows = np.arange(len(column)) if rows is None else rows
        self._digests = _Digests(len(column))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> EncodedImages:
        cut = copy(self)
        cut._rows = self._rows[_selection(rows)]
        return cut

    @property
    def absent(self) -> np.ndarray | None:
        """Bool of shape (n,), True where a row has no image; None where all of the N have one."""
        return None if self._absent is None else self._absent[self._rows]

    def encoded(self, row: int) -> bytes:
        """The PNG or JPEG bytes of one row, none of them where it has no image."""
        return self._bytes(int(self._rows[row]))

    def update_digest(self, digest: Any) -> None:
        """Feed what the images are to a hash of `hashlib`."""
        digest.update(self.digests().tobytes())
        digest.update(b"" if self.absent is None else self.absent.tobytes())

    def digests(self) -> np.ndarray:
        """What each image is, uint8 (n, 16): BLAKE2b of its bytes, made once for all selections."""
        return self._digests.of(self._rows, lambda row: [self._bytes(row)])

    def decode(self, rows: Any = None, *, threads: int | None = None) -> np.ndarray:
        """The pixels of some rows (all by default), zeros where there is no image.

        Parameters
        ----------
        rows : slice, mask or positions.
        threads : how many decode at once, since Pillow lets go of the interpreter lock; by default
            one per processor, at most 8. Small requests are decoded in the calling thread.

        Returns
        -------
        uint8 array of shape (k, C, H, W).

        Raises
        ------
        UsboostError
            If an image is damaged or not of the size or mode that all of them should have.
        """
        chosen = self._rows if rows is None else self._rows[_selection(rows)]
        out = np.empty((len(chosen), self.channels, self.height, self.width), dtype=np.uint8)
        blocks = range(0, len(chosen), _BLOCK)
        threads = min(threads or min(8, os.cpu_count() or 1), len(blocks))

        def fill(first: int) -> None:
            for k in range(first, min(first + _BLOCK, len(chosen))):
                absent = self._absent is not None and self._absent[chosen[k]]
                out[k] = 0 if absent else self._pixels(int(chosen[k]))

        if threads <= 1:
            for first in blocks:
                fill(first)
        else:
            # A pool a call, since one kept for later would not survive a DataLoader's fork.
            with ThreadPoolExecutor(threads) as pool:
                for _ in pool.map(fill, blocks):
                    pass
        return out

    def _bytes(self, position: int) -> bytes:
        return self._column[position].as_py() or b""

    def _pixels(self, position: int) -> np.ndarray:
        data = self._bytes(position)
        try:
            with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
                found = (MODES[self.channels], self.width, self.height)
                if (image.mode, *image.size) != found:
                    raise UsboostError(
                        f"image {position} is {image.mode} of {image.width} x {image.height} pixels, "
                        f"not {found[0]} of {self.width} x {self.height}; prepare the dataset again"
                    )
                pixels = np.asarray(image)
        except UsboostError:
            raise
        # A damaged file can make Pillow's decoders raise nearly anything.
        except Exception as error:
            raise UsboostError(
                f"image {position} cannot be decoded ({error}); prepare the dataset again"
            ) from error
        return pixels[None] if self.channels == 1 else pixels.transpose(2, 0, 1)


class _Digests:
    """Digests of N images, each made when it is first asked for.

    Threads may ask at once: then they write the same bytes.
    """

    def __init__(self, n: int) -> None:
        self._values = np.zeros((n, DIGEST), dtype=np.uint8)
        self._known = np.zeros(n, dtype=bool)

    def of(self, rows: np.ndarray, parts: Callable[[int], list[Any]]) -> np.ndarray:
        """Those of some rows, uint8 (k, 16); `parts` gives the bytes of an image."""
        for row in np.unique(rows[~self._known[rows]]):
            digest = hashlib.blake2b(digest_size=DIGEST)
            for part in parts(int(row)):
                digest.update(part)
            self._values[row] = np.frombuffer(digest.digest(), dtype=np.uint8)
            self._known[row] = True
        return self._values[rows]


def _selection(rows: Any) -> Any:
    """Rows as numpy takes them without dropping the first axis."""
    if isinstance(rows, (int, np.integer)) and not isinstance(rows, bool):
        # Position -1 is the last row: a slice -1:0 would be empty.
        return slice(rows, rows + 1 or None)
    return rows

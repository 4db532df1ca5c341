"""Images as a view: decoded in memory where they fit, else encoded and decoded on demand."""

import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from PIL import Image

from usboost.errors import UsboostError

MODES = {1: "L", 3: "RGB"}  # Pillow's, by the number of channels

_DIGEST = 16  # bytes that identify an image
_BLOCK = 16  # images a thread decodes at a time; fewer than two blocks are not worth a thread


class _ImageRows:
    """n of N images: rows of one are another view of the same images."""

    kind: ClassVar[str] = "image"

    def __init__(self, n: int, absent: np.ndarray | None) -> None:
        self._n, self._absent = n, absent
        self._rows: np.ndarray | None = None  # all of them
        # of all N, shared by selections; threads that fill in one at once write the same bytes
        self._digests = np.zeros((n, _DIGEST), dtype=np.uint8)
        self._known = np.zeros(n, dtype=bool)

    def __len__(self) -> int:
        return self._n if self._rows is None else len(self._rows)

    def __getitem__(self, rows: Any) -> Self:
        cut = copy(self)
        cut._rows = self._positions(rows)
        return cut

    @property
    def absent(self) -> np.ndarray | None:
        """Bool of shape (n,), True where a row has no image; None where all of the N have one."""
        return self._absent if self._absent is None or self._rows is None else self._absent[self._rows]

    def picture(self, row: int) -> Image.Image | None:
        """Return a row's image as Pillow has it; None for a row without one."""
        if self.absent is not None and self.absent[row]:
            return None
        pixels = self.decode(slice(row, row + 1))[0]
        return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))

    def digests(self) -> np.ndarray:
        """Return what each image is, uint8 (n, 16): BLAKE2b, made once for all selections."""
        rows = self._positions()
        for row in np.unique(rows[~self._known[rows]]).tolist():
            digest = hashlib.blake2b(digest_size=_DIGEST)
            for part in self._content(row):
                digest.update(part)
            self._digests[row] = np.frombuffer(digest.digest(), dtype=np.uint8)
            self._known[row] = True
        return self._digests[rows]

    def update_digest(self, digest: Any) -> None:
        """Feed what the images are to a hash of `hashlib`."""
        digest.update(self.digests().tobytes())
        digest.update(b"" if self.absent is None else self.absent.tobytes())

    decode: ClassVar[Any]  # (rows): their pixels, uint8 (k, C, H, W)
    _content: ClassVar[Any]  # (position): the bytes that make one of the N images what it is

    def _positions(self, rows: Any = None) -> np.ndarray:
        own = np.arange(self._n) if self._rows is None else self._rows
        return own if rows is None else own[_selection(rows)]


class Images(_ImageRows):
    """n images of one size as pixels, in memory or in a memory-mapped file.

    Rows of it, ``images[rows]``, are another view of the same pixels: only `decode` copies them.

    Raises UsboostError if the array is of another type or shape, or the mask is not of its rows.

    Parameters
    ----------
    pixels : uint8 array of shape (N, C, H, W), C being 1 (grey) or 3 (red, green, blue); may be a
        `numpy.memmap`.
    absent : bool array of shape (N,), True where a row has no image; None where all have one.

    Examples
    --------
    >>> import numpy as np
    >>> from usboost import Images
    >>> images = Images(np.zeros((4, 3, 8, 8), dtype=np.uint8))
    >>> len(images[1:3])
    2
    """

    def __init__(self, pixels: np.ndarray, *, absent: np.ndarray | None = None) -> None:
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1] not in MODES:
            raise UsboostError(
                "images must be uint8 of shape (n, 1 or 3, height, width), "
                f"not {pixels.dtype} of shape {pixels.shape}"
            )
        if absent is not None and (absent.dtype != np.bool_ or absent.shape != pixels.shape[:1]):
            raise UsboostError(
                f"absent must be bool of shape ({len(pixels)},), not {absent.dtype} of shape {absent.shape}"
            )
        super().__init__(len(pixels), absent)
        _, self.channels, self.height, self.width = pixels.shape
        self._pixels = pixels

    def __repr__(self) -> str:
        return f"Images({len(self)} of {self.channels} x {self.height} x {self.width})"

    @property
    def pixels(self) -> np.ndarray:
        """Uint8 (n, C, H, W): the array itself, or a copy when this is some rows of it."""
        return self.decode()

    def decode(self, rows: Any = None) -> np.ndarray:
        """Return the pixels of some rows (all by default): uint8 (k, C, H, W), as `EncodedImages.decode`."""
        if self._rows is None:
            return self._pixels if rows is None else self._pixels[_selection(rows)]
        return self._pixels[self._positions(rows)]

    def _content(self, position: int) -> list[Any]:
        return [str(self._pixels.shape[1:]).encode(), np.ascontiguousarray(self._pixels[position])]


class EncodedImages(_ImageRows):
    """n images of one size as PNG or JPEG bytes, decoded when they are read.

    Raises UsboostError if the column is not binary, or there are other than 1 or 3 channels.

    Parameters
    ----------
    column : binary Arrow array of N >= n encoded images, in memory or memory-mapped; null where a row has
        no image.
    channels, height, width : of every image; C is 1 or 3.
    """

    def __init__(self, column: pa.ChunkedArray | pa.Array, *, channels: int, height: int, width: int) -> None:
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            raise UsboostError(f"encoded images must be a binary column, not {column.type}")
        if channels not in MODES:
            raise UsboostError(f"images must have 1 or 3 channels, not {channels}")
        absent = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        super().__init__(len(column), absent)
        self.channels, self.height, self.width = channels, height, width
        self._column = column

    def encoded(self, row: int) -> bytes:
        """Return the PNG or JPEG bytes of one row, none of them where it has no image."""
        return self._content(int(self._positions()[row]))[0]

    def _content(self, position: int) -> list[Any]:
        return [self._column[position].as_py() or b""]

    def decode(self, rows: Any = None, *, threads: int | None = None) -> np.ndarray:
        """Decode the pixels of some rows (all by default), uint8 (k, C, H, W), zeros where there is no image.

        So many threads decode at once, since Pillow lets go of the interpreter lock; by default one per
        processor, at most 8, and for few rows the calling one. Raises UsboostError if an image is damaged or
        not of the size or mode that all of them should have.
        """
        chosen = self._positions(rows)
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

    def _pixels(self, position: int) -> np.ndarray:
        data = self._content(position)[0]
        try:
            with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
                expected = (MODES[self.channels], self.width, self.height)
                if (image.mode, *image.size) != expected:
                    raise UsboostError(
                        f"image {position} is {image.mode} of {image.width} x {image.height} pixels, "
                        f"not {expected[0]} of {self.width} x {self.height}; prepare the dataset again"
                    )
                pixels = np.asarray(image)
        except UsboostError:
            raise
        # A damaged file can make Pillow's decoders raise nearly anything.
        except Exception as error:
            raise UsboostError(f"image {position} cannot be decoded ({error}); prepare again") from error
        return pixels[None] if self.channels == 1 else pixels.transpose(2, 0, 1)


def _selection(rows: Any) -> Any:
    """Make a position a slice, so that numpy does not drop the first axis."""
    if isinstance(rows, (int, np.integer)) and not isinstance(rows, bool):
        # Position -1 is the last row: a slice -1:0 would be empty.
        return slice(rows, rows + 1 or None)
    return rows

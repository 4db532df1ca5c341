"""The images of n rows, in memory or on the disk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from usboost.data.images import EncodedImages, Images
from usboost.data.pooled_images import PooledImages
from usboost.datasets.user.images.pixels import room
from usboost.datasets.user.images.reader import ImageColumns, ImageReader


class ImageSet:
    """The images of n rows, read a batch at a time; memory holds them while they are few, see `room`.

    Parameters
    ----------
    form : the columns, and what their images are made.
    n : rows.
    what : has the images, for messages.

    Attributes
    ----------
    absent : bool (columns, n), True where a row has no image.
    """

    def __init__(self, form: ImageColumns, n: int, *, what: object = "the rows") -> None:
        self._form = form
        self._pixels = room((len(form.columns), n, *form.shape), str(what))
        self.absent = np.zeros((len(form.columns), n), dtype=bool)

    def read(self, readers: Sequence[ImageReader], rows: Sequence[int], raw: pa.Table, *, at: int) -> None:
        """Read some rows; errors as `ImageReader.read`.

        Parameters
        ----------
        rows : their positions in the source, rising.
        raw : the columns that the `readers` want of these rows.
        at : the place of the first of them in the set.
        """
        here = slice(at, at + len(rows))
        for k, reader in enumerate(readers):
            cells = raw[reader.column] if reader.needs_cells else None
            self.absent[k, here] = reader.read(rows, cells, self._pixels[k, here])[1]

    def put(self, column: int, rows: np.ndarray, images: EncodedImages) -> None:
        """Take the images of some rows of one column, int64 (k,), from elsewhere."""
        self._pixels[column, rows] = images.decode()
        self.absent[column, rows] = False if images.absent is None else images.absent

    def views(self, rows: slice = slice(None)) -> dict[str, Images | PooledImages]:
        """The images, or those of some rows, as views by name."""
        return self._form.views(
            [
                Images(pixels[rows], absent=absent[rows] if absent[rows].any() else None)
                for pixels, absent in zip(self._pixels, self.absent, strict=True)
            ]
        )

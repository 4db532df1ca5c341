"""Images of drawn shapes for Covertype's classes (US section 4.1, CT), one at a time and in shards.

The paper gives the kinds of shapes, their number (1..10), the box sizes and the library, not the call.
What is kept of `skimage.draw.random_shapes`: the corner of a shape's box is uniform over the places where
its smallest size fits, its size uniform over what then fits, its grey uniform, its kind uniform among those
of the class. What differs, and why:

- **No overlap, as in random_shapes' default, and always the number of shapes asked for.** random_shapes
  skips a shape after 100 failed trials (one rectangle in twenty at these sizes) and can leave an image
  empty. Here the whole layout is drawn again instead: the law is the one *given that every shape found
  room*, and the number of shapes stays uniform. Overlap would let late shapes hide early ones.
- **Boxes, not pixels, keep apart, by one pixel at least**, so each connected region of ink is one shape.
- **Circles and ellipses are placed as the others are**, by their box; random_shapes places their centres.
- **Shapes stay inside the image.** random_shapes draws about one triangle in six, at the smallest size of
  20, through the upper border, and its negative indices paint the tip at the bottom of the image.
- **Greys are 0..191** (`DARKEST`, `LIGHTEST`): 254 on a background of 255 is a shape nobody can see.

The kinds of class 0 are drawn independently, so some of its images hold triangles only or rectangles only:
the mean of 4^-n over n = 1..10, 3.3 % each.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from skimage.draw import disk, ellipse, polygon

from usboost.data.progress import Progress
from usboost.datasets.image_encoding import Encoded, image_bytes, write_shards
from usboost.errors import UsboostError

KINDS = (("rectangle", "circle", "triangle", "ellipse"), ("triangle",), ("rectangle",))
SMALLEST_BOX = (10, 20, 15)  # pixels of a 128-pixel image, by class
MOST_SHAPES = 10
DARKEST, LIGHTEST = 0, 191
SMALLEST_IMAGE = 24  # ten shapes of the smallest box still find room

_WHITE = 255
_TRIALS = 100  # places tried for one shape before the layout is drawn again, as in random_shapes
_DRAWING = 1  # raise when the same seed draws other pixels


class _Shape(NamedTuple):
    """A placed shape: its box, and for an ellipse its semi-axes and rotation."""

    kind: str
    row: int
    column: int
    height: int
    width: int
    axes: tuple[float, float, float] | None = None


def smallest_box(label: int, size: int = 128) -> int:
    """Return the smallest side in pixels of a shape's box: 10, 20, 15 px of 128 in proportion, never under 3.

    The side is the longer one for a triangle (its base), any of the two for the other kinds.
    """
    if label not in range(len(KINDS)):
        raise UsboostError(f"unknown shape class {label!r}; the labels are 0, 1 and 2")
    if size < SMALLEST_IMAGE:
        raise UsboostError(f"size is {size}, too small for ten shapes; use {SMALLEST_IMAGE} pixels or more")
    return max(3, round(SMALLEST_BOX[label] * size / 128))


def image_rng(seed: int, index: int) -> np.random.Generator:
    """Return the generator of image `index`: it depends on nothing but the two numbers (10 us to build)."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))


def draw(label: int, rng: np.random.Generator, size: int = 128, n_shapes: int | None = None) -> np.ndarray:
    """Draw one image of the shapes of a class.

    Returns a uint8 array of shape (size, size), background 255, shapes 0..191, exactly `n_shapes` of them.
    Raises UsboostError for an unknown label or a size under 24.

    Parameters
    ----------
    label : 0 mixed kinds, 1 triangles (equilateral, apex up), 2 rectangles (sides along the axes).
    rng : source of all randomness.
    size : height and width in pixels, at least 24.
    n_shapes : number of shapes, 1..10; drawn uniformly when None.
    """
    smallest = smallest_box(label, size)
    if n_shapes is None:
        n_shapes = int(rng.integers(1, MOST_SHAPES + 1))
    kinds = [KINDS[label][k] for k in rng.integers(len(KINDS[label]), size=n_shapes)]
    greys = rng.integers(DARKEST, LIGHTEST + 1, size=n_shapes)
    # in blocks: one numpy call costs as much as 60 numbers
    uniforms = (u for _ in itertools.repeat(None) for u in rng.random(64).tolist())
    while (shapes := _layout(kinds, smallest, size, uniforms)) is None:
        pass
    image = np.full((size, size), _WHITE, dtype=np.uint8)
    for (kind, row, column, height, width, axes), grey in zip(shapes, greys, strict=True):
        if axes is not None:
            centre = row + (height - 1) // 2, column + (width - 1) // 2
            image[ellipse(*centre, axes[0], axes[1], rotation=axes[2])] = grey
            continue
        box = image[row : row + height, column : column + width]
        # a rectangle's box is pixel for pixel what skimage.draw.polygon fills
        mask = True if kind == "rectangle" else _stencil(kind, height, width)
        np.copyto(box, grey, where=mask, casting="unsafe")
    return image


def _layout(kinds: list[str], smallest: int, size: int, u: Iterator[float]) -> list[_Shape] | None:
    """Place the shapes one after the other; return None once one of them finds no room in 100 trials."""
    placed: list[_Shape] = []
    for kind in kinds:
        for _ in range(_TRIALS):
            shape = _candidate(kind, smallest, size, u)
            _, row, column, height, width, _ = shape
            for _, r, c, h, w, _ in placed:
                # Boxes that share or touch a pixel, corners included.
                if row <= r + h and r <= row + height and column <= c + w and c <= column + width:
                    break
            else:
                placed.append(shape)
                break
        else:
            return None
    return placed


def _candidate(kind: str, smallest: int, size: int, u: Iterator[float]) -> _Shape:
    """Draw a shape that fits the image: corner uniform, then size uniform in what fits from there."""
    if kind == "ellipse":
        smallest |= 1  # its box is centred on a pixel
    row = int(next(u) * (size - smallest + 1))
    column = int(next(u) * (size - smallest + 1))
    if kind == "rectangle":
        height = smallest + int(next(u) * (size - row - smallest + 1))
        width = smallest + int(next(u) * (size - column - smallest + 1))
        return _Shape(kind, row, column, height, width)
    room = size - max(row, column)
    if kind == "ellipse":
        a = (smallest + next(u) * (room - smallest)) / 2
        b = (smallest + next(u) * (room - smallest)) / 2
        angle = next(u) * math.pi
        cos, sin = math.cos(angle), math.sin(angle)
        height = 2 * math.ceil(math.hypot(a * cos, b * sin)) - 1
        width = 2 * math.ceil(math.hypot(a * sin, b * cos)) - 1
        return _Shape(kind, row, column, height, width, (a, b, angle))
    side = smallest + int(next(u) * (room - smallest + 1))
    height = math.ceil(math.sqrt(0.75) * (side - 1)) + 1 if kind == "triangle" else side
    return _Shape(kind, row, column, height, side)


@cache
def _stencil(kind: str, height: int, width: int) -> np.ndarray:
    """Make the mask of a triangle or circle in its box by scikit-image; there are as many as box widths."""
    mask = np.zeros((height, width), dtype=bool)
    if kind == "circle":
        mask[disk(((height - 1) / 2, (width - 1) / 2), width / 2, shape=mask.shape)] = True
    else:
        mask[polygon([height - 1, 0, height - 1], [0, (width - 1) // 2, width - 1])] = True
    return mask


def encode(image: np.ndarray) -> bytes:
    """Encode a uint8 greyscale image as PNG bytes."""
    return image_bytes(Image.fromarray(image), png=True)


def write(
    labels: Mapping[str, tuple[int, np.ndarray]],
    folder: Path,
    *,
    size: int = 128,
    workers: int = 1,
    progress: Progress | None = None,
) -> dict[str, list[Path]]:
    """Draw an image for each row of each split into shards, see `image_encoding.write_shards`.

    `labels` are by split a seed, and integers 0, 1, 2 of shape (n,), before any label is switched; pixels
    depend on (seed, row, label) alone. Raises UsboostError for an unknown label or a size under 24.
    """
    for _, codes in labels.values():
        for label in np.unique(codes).tolist():
            smallest_box(label, size)
    items = {
        split: [(seed, row, label) for row, label in enumerate(codes.tolist())]
        for split, (seed, codes) in labels.items()
    }
    return write_shards(
        items,
        folder,
        partial(_drawn, size=size),
        lambda _, some: ["shapes", _DRAWING, size, *some],
        workers=workers,
        progress=progress,
    )


def _drawn(job: Sequence[tuple[int, int, int]], *, size: int) -> Encoded:
    return [encode(draw(label, image_rng(seed, row), size)) for seed, row, label in job]

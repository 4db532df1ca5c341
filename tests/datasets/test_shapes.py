"""Drawn shapes are what their class says, and the same ones whatever is drawn beside them."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import scipy.ndimage
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from skimage.draw import disk, polygon, random_shapes

from tests.conftest import refuses
from usboost.datasets import shapes

SEEDS = st.integers(0, 2**63)
SIZES = st.sampled_from([24, 32, 50, 64, 128])


def _decoded(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(data)))


def _regions(image: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each connected region of ink, corners counting as contact: its mask in its box, its greys."""
    regions, _ = scipy.ndimage.label(image < 255, structure=np.ones((3, 3)))
    found = []
    for k, box in enumerate(scipy.ndimage.find_objects(regions), start=1):
        mask = regions[box] == k
        found.append((mask, np.unique(image[box][mask])))
    return found


def _is_triangle(mask: np.ndarray) -> bool:
    height, width = mask.shape
    drawn = np.zeros_like(mask)
    drawn[polygon([height - 1, 0, height - 1], [0, (width - 1) // 2, width - 1])] = True
    return bool((mask == drawn).all()) and abs(height - (1 + np.sqrt(3) / 2 * (width - 1))) < 1


def _is_circle(mask: np.ndarray) -> bool:
    height, width = mask.shape
    drawn = np.zeros_like(mask)
    drawn[disk(((height - 1) / 2, (width - 1) / 2), width / 2, shape=mask.shape)] = True
    return height == width and bool((mask == drawn).all())


def _is_ellipse(mask: np.ndarray) -> bool:
    """Symmetric about the middle of its box, every row and column one run, and of an ellipse's moments."""
    runs = [np.count_nonzero(np.diff(line, prepend=False, append=False)) for line in (*mask, *mask.T)]
    rows, columns = np.nonzero(mask)
    # The area of an ellipse of uniform density is 4 π times the root of its covariance's determinant.
    area = 4 * np.pi * np.sqrt(np.linalg.det(np.cov(rows, columns, bias=True)))
    return bool((mask == mask[::-1, ::-1]).all()) and set(runs) == {2} and abs(area / mask.sum() - 1) < 0.1


@given(seed=SEEDS, size=SIZES, label=st.integers(0, 2), n=st.one_of(st.none(), st.integers(1, 10)))
def test_each_region_of_ink_is_one_of_the_class(seed: int, size: int, label: int, n: int | None) -> None:
    image = shapes.draw(label, np.random.default_rng(seed), size, n)
    regions = _regions(image)
    assert image.dtype == np.uint8
    assert image.shape == (size, size)
    assert len(regions) == n if n else 1 <= len(regions) <= 10
    for mask, greys in regions:
        assert len(greys) == 1
        assert 0 <= greys[0] <= 191
        # The box's longer side; only a triangle's height may be under the smallest size.
        assert shapes.smallest_box(label, size) <= max(mask.shape) <= size
        if label == 1:
            assert _is_triangle(mask)
        elif label == 2:
            assert mask.all()
            assert min(mask.shape) >= shapes.smallest_box(label, size)


def test_class_0_holds_the_four_kinds_in_equal_shares() -> None:
    counts = dict.fromkeys(("rectangle", "triangle", "circle", "ellipse"), 0)
    for i in range(400):
        ((mask, _),) = _regions(shapes.draw(0, shapes.image_rng(3, i), n_shapes=1))
        if mask.all():
            kind, fill = "rectangle", 1.0
        elif _is_triangle(mask):
            kind, fill = "triangle", 0.5
        elif _is_circle(mask):
            kind, fill = "circle", np.pi / 4
        else:
            kind, fill = "ellipse", mask.mean()
            assert _is_ellipse(mask)
        counts[kind] += 1
        assert abs(mask.mean() - fill) < 0.12
        assert max(mask.shape) >= 10
        assert kind == "triangle" or min(mask.shape) >= 10
    # Binomial(400, 1/4): 100 with a standard deviation of 8.7.
    assert min(counts.values()) > 65, counts


def test_the_number_of_shapes_is_uniform() -> None:
    counts = np.bincount(
        [len(_regions(shapes.draw(2, shapes.image_rng(0, i), 32))) for i in range(1500)], minlength=11
    )
    assert counts[0] == 0
    assert scipy.stats.chisquare(counts[1:]).pvalue > 0.001


def test_sizes_and_places_follow_random_shapes() -> None:
    """The oracle: scikit-image's own rectangles, which are one pixel short of the largest size."""
    theirs, ours = [], []
    for i in range(400):
        _, ((_, ((top, bottom), (left, right))),) = random_shapes(
            (128, 128), 1, min_size=15, max_size=128, shape="rectangle", channel_axis=None, rng=i
        )
        theirs.append((top, left, bottom - top, right - left))
        ink = shapes.draw(2, shapes.image_rng(0, i), n_shapes=1) < 255
        rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
        ours.append((rows[0], columns[0], len(rows), len(columns)))
    for measure in range(4):
        assert scipy.stats.ks_2samp(np.array(ours)[:, measure], np.array(theirs)[:, measure]).pvalue > 0.001


def test_smallest_boxes_are_the_paper_s_and_scale() -> None:
    assert [shapes.smallest_box(label) for label in range(3)] == [10, 20, 15]
    assert [shapes.smallest_box(label, 64) for label in range(3)] == [5, 10, 8]
    assert [shapes.smallest_box(label, 24) for label in range(3)] == [3, 4, 3]


def test_draw_refuses_what_it_cannot_draw() -> None:
    rng = np.random.default_rng(0)
    for arguments, message in (((3, rng), "unknown shape class 3"), ((0, rng, 23), "size is 23")):
        refuses(message, shapes.draw, *arguments)


@given(seed=SEEDS, size=SIZES, label=st.integers(0, 2))
@settings(max_examples=30)
def test_decoding_gives_back_the_drawing(seed: int, size: int, label: int) -> None:
    image = shapes.draw(label, np.random.default_rng(seed), size)
    np.testing.assert_array_equal(_decoded(shapes.encode(image)), image)


def test_an_image_depends_on_its_seed_row_and_label_only(tmp_path: Path) -> None:
    labels = np.random.default_rng(0).integers(0, 3, size=250)
    changed = labels.copy()
    changed[10] = (changed[10] + 1) % 3

    def drawn(name: str, seed: int, labels: np.ndarray) -> list[bytes]:
        (path,) = shapes.write({"train": (seed, labels)}, tmp_path / name, size=32)["train"]
        table = pq.read_table(path)
        assert table["row"].to_pylist() == list(range(len(labels)))
        return table["image"].to_pylist()

    images, others = drawn("a", 7, labels), drawn("b", 7, changed[:60])
    assert [i for i in range(60) if images[i] != others[i]] == [10]
    assert len(set(images)) == len(images)
    for row, image in enumerate(images):
        expected = shapes.draw(int(labels[row]), shapes.image_rng(7, row), 32)
        np.testing.assert_array_equal(_decoded(image), expected)
    again = drawn("b", 8, labels)  # in a folder of others
    assert not set(again) & set(images)
    for name in ("a", "b"):
        assert {path.suffix for path in (tmp_path / name / "train").iterdir()} == {".parquet", ".key"}


def test_labels_and_sizes_that_cannot_be_drawn_are_refused_before_anything_is(tmp_path: Path) -> None:
    for labels, size, message in (
        ([0, 3], 32, "unknown shape class 3"),
        ([0, -1], 32, "unknown shape class -1"),
        ([0], 10, "size is 10"),
        ([], 32, "has no images"),
    ):
        refuses(message, shapes.write, {"train": (0, np.array(labels, dtype=int))}, tmp_path, size=size)
    assert list(tmp_path.iterdir()) == []

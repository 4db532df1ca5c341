"""Drawn shapes are what their class says, and their shards are the same however they are made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.ndimage
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.draw import disk, polygon, random_shapes

from usboost.datasets.covertype import shapes
from usboost.errors import UsboostError

SEEDS = st.integers(0, 2**63)
SIZES = st.sampled_from([24, 32, 50, 64, 128])


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
def test_each_region_of_ink_is_one_shape_of_the_class(
    seed: int, size: int, label: int, n: int | None
) -> None:
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


@pytest.mark.parametrize(("label", "fill"), [(1, 0.5), (2, 1.0)])
def test_one_shape_covers_its_share_of_the_box(label: int, fill: float) -> None:
    for i in range(100):
        ((mask, _),) = _regions(shapes.draw(label, shapes.image_rng(1, i), n_shapes=1))
        assert abs(mask.mean() - fill) < 0.06


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
    for arguments, message in (
        ((3, rng), "unknown shape class 3"),
        ((0, rng, 23), "size is 23"),
        ((0, rng, 128, 11), "n_shapes is 11"),
        ((0, rng, 128, 0), "n_shapes is 0"),
    ):
        with pytest.raises(UsboostError, match=message):
            shapes.draw(*arguments)


@given(seed=SEEDS, size=SIZES, label=st.integers(0, 2))
@settings(max_examples=30)
def test_decoding_gives_back_the_drawing(seed: int, size: int, label: int) -> None:
    image = shapes.draw(label, np.random.default_rng(seed), size)

    np.testing.assert_array_equal(shapes.decode(shapes.encode(image)), image)


LABELS = np.random.default_rng(0).integers(0, 3, size=250)


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_shards_hold_every_row_s_image(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    paths = shapes.generate(
        LABELS, tmp_path / "a", seed=7, size=32, shard_rows=100, progress=lambda *c: calls.append(c)
    )
    tables = [pq.read_table(path) for path in paths]

    assert [path.name for path in paths] == [f"images-0000{k}.parquet" for k in range(3)]
    assert [table["row"].to_pylist() for table in tables] == [
        list(range(0, 100)),
        list(range(100, 200)),
        list(range(200, 250)),
    ]
    assert calls == [(0, 250), (100, 250), (200, 250), (250, 250)]
    assert {path.name for path in (tmp_path / "a").iterdir()} == {path.name for path in paths} | {
        "images.json"
    }
    for table in tables:
        for row, data in zip(table["row"].to_pylist(), table["image"].to_pylist(), strict=True):
            expected = shapes.draw(int(LABELS[row]), shapes.image_rng(7, row), 32)
            np.testing.assert_array_equal(shapes.decode(data), expected)


def test_three_workers_write_the_bytes_of_one(tmp_path: Path) -> None:
    one = shapes.generate(LABELS, tmp_path / "one", seed=7, size=32, shard_rows=40)
    shapes.generate(LABELS, tmp_path / "three", seed=7, size=32, shard_rows=40, workers=3)
    shapes.generate(LABELS, tmp_path / "other", seed=8, size=32, shard_rows=40)

    assert len(one) == 7
    assert _bytes(tmp_path / "one") == _bytes(tmp_path / "three")
    assert _bytes(tmp_path / "one").keys() == _bytes(tmp_path / "other").keys()
    assert one[0].read_bytes() != (tmp_path / "other" / one[0].name).read_bytes()


def test_an_image_depends_on_its_seed_row_and_label_only(tmp_path: Path) -> None:
    changed = LABELS.copy()
    changed[10] = (changed[10] + 1) % 3
    (path,) = shapes.generate(LABELS, tmp_path / "a", seed=7, size=32)
    (other,) = shapes.generate(changed[:60], tmp_path / "b", seed=7, size=32)
    images = pq.read_table(path)["image"].to_pylist()
    others = pq.read_table(other)["image"].to_pylist()

    assert [i for i in range(60) if images[i] != others[i]] == [10]
    assert len(set(images)) == len(images)


KILLED = """
import sys
import numpy as np
from usboost.datasets.covertype import shapes
labels = np.random.default_rng(1).integers(0, 3, size=1500)
shapes.generate(labels, sys.argv[1], seed=7, size=64, shard_rows=50, workers=int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    labels = np.random.default_rng(1).integers(0, 3, size=1500)
    shapes.generate(labels, folder, seed=7, size=64, shard_rows=50)
    return _bytes(folder)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_killed_generation_resumes_to_the_same_bytes(
    tmp_path: Path, uninterrupted: dict[str, bytes], workers: int
) -> None:
    folder = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), str(workers)],
        stdout=subprocess.PIPE,
        cwd=Path(shapes.__file__).parents[3],
    )
    limit = time.monotonic() + 60
    while len(list(folder.glob("*.parquet"))) < 3:
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    # The pipe ends when the last process that holds it does: workers must not outlive their parent.
    process.communicate(timeout=20)
    kept = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    assert process.returncode == -signal.SIGKILL
    assert 3 <= len(kept) < 30

    labels = np.random.default_rng(1).integers(0, 3, size=1500)
    calls: list[tuple[int, int]] = []
    shapes.generate(labels, folder, seed=7, size=64, shard_rows=50, progress=lambda *c: calls.append(c))

    assert calls[0] == (50 * len(kept), 1500)
    assert calls[-1] == (1500, 1500)
    assert {name: (folder / name).stat().st_mtime_ns for name in kept} == kept
    assert _bytes(folder) == uninterrupted


def test_a_damaged_lost_or_foreign_shard_is_made_again(tmp_path: Path) -> None:
    options = {"seed": 7, "size": 32, "shard_rows": 50}
    paths = shapes.generate(LABELS, tmp_path / "a", **options)
    others = shapes.generate(LABELS, tmp_path / "b", **{**options, "seed": 8})
    whole = _bytes(tmp_path / "a")
    paths[0].write_bytes(paths[0].read_bytes()[:-50])
    paths[1].write_bytes(paths[3].read_bytes())
    paths[2].unlink()
    paths[4].write_bytes(others[4].read_bytes())
    (tmp_path / "a" / "images-00001.parquet.99.tmp").write_bytes(b"left behind")
    calls: list[int] = []

    shapes.generate(LABELS, tmp_path / "a", **options, progress=lambda n, _: calls.append(n))

    assert calls == [50, 100, 150, 200, 250]
    assert _bytes(tmp_path / "a") == whole


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 8}, "seed"),
        ({"size": 40}, "size"),
        ({"shard_rows": 90}, "shard_rows"),
        ({}, "labels_sha256"),
    ],
)
def test_images_of_other_parameters_are_refused_or_overwritten(
    tmp_path: Path, change: dict[str, int], named: str
) -> None:
    options = {"seed": 7, "size": 32, "shard_rows": 100}
    shapes.generate(LABELS, tmp_path / "a", **options)
    before = _bytes(tmp_path / "a")
    labels = LABELS if change else LABELS[::-1]

    with pytest.raises(UsboostError, match=f"another {named};"):
        shapes.generate(labels, tmp_path / "a", **{**options, **change})
    assert _bytes(tmp_path / "a") == before

    shapes.generate(labels, tmp_path / "a", **{**options, **change}, overwrite=True)
    shapes.generate(labels, tmp_path / "b", **{**options, **change})
    assert _bytes(tmp_path / "a") == _bytes(tmp_path / "b")
    assert json.loads((tmp_path / "a" / "images.json").read_text())["rows"] == 250


def test_strange_shards_and_manifests_are_refused(tmp_path: Path) -> None:
    shapes.generate(LABELS, tmp_path, seed=7, size=32)
    (tmp_path / "images-00009.parquet").write_bytes(b"whose?")
    with pytest.raises(UsboostError, match="number of shards"):
        shapes.generate(LABELS, tmp_path, seed=7, size=32)
    for text in ("{", "[]"):
        (tmp_path / "images.json").write_text(text)
        with pytest.raises(UsboostError, match="holds images made with another"):
            shapes.generate(LABELS, tmp_path, seed=7, size=32)
    assert (tmp_path / "images-00009.parquet").read_bytes() == b"whose?"


def test_generate_refuses_wrong_arguments(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for labels, folder, options, message in (
        ([0, 3], "a", {}, "range from 0 to 3"),
        ([0, -1], "a", {}, "range from -1 to 0"),
        ([0.0, 1.0], "a", {}, "must be integers"),
        ([[0], [1]], "a", {}, r"of shape \(2, 1\)"),
        (np.array([], dtype=int), "a", {}, "no labels"),
        ([0], "a", {"size": 10}, "size is 10"),
        ([0], "a", {"seed": -1}, "seed is -1"),
        ([0], "a", {"workers": 0}, "workers is 0"),
        ([0], "a", {"shard_rows": 0}, "shard_rows is 0"),
        ([0], "file", {}, "is a file"),
    ):
        with pytest.raises(UsboostError, match=message):
            shapes.generate(labels, tmp_path / folder, **{"seed": 0, **options})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

"""Near-equal images: a clean table has none; copies are found, at any share, and groups of several."""

import numpy as np
import pytest

from usboost.check.neighbours import find_twins, likeness, small_pictures, whitened
from usboost.data.images import Images


def embeddings(n: int, seed: int = 0) -> np.ndarray:
    """Of images of five classes in 12 dimensions, as a network with ReLU would make them."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, 12)) + 2 * rng.normal(size=(5, 12))[rng.integers(0, 5, n)]
    return np.maximum(hidden @ rng.normal(size=(12, 64)), 0) + 0.1 * rng.normal(size=(n, 64))


@pytest.mark.parametrize("seed", range(4))
def test_a_clean_table_has_next_to_none(seed: int) -> None:
    assert len(find_twins(whitened(embeddings(800, seed)))) < 3  # of which something is said


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_copies_are_found_and_nothing_else(share: float) -> None:
    clean, rng = embeddings(800), np.random.default_rng(1)
    of = rng.permutation(800)[: int(800 * share)]
    copies = clean[of] + 0.05 * clean.std(axis=0) * rng.normal(size=(len(of), 64))
    found = {(int(a), int(b)) for a, b in find_twins(whitened(np.concatenate([clean, copies])))}
    true = {(int(a), 800 + k) for k, a in enumerate(of)}
    assert len(found & true) >= 0.9 * max(len(true), len(found))


@pytest.mark.parametrize("size", [3, 5])
def test_groups_of_several_are_found(size: int) -> None:
    rng = np.random.default_rng(0)
    things = np.repeat(np.arange(2000 // size), size)
    several = embeddings(2000 // size)[things] + 0.05 * rng.normal(size=(len(things), 64))
    found = find_twins(whitened(several))
    assert len(np.unique(found)) > 0.9 * len(things)
    assert (things[found[:, 0]] == things[found[:, 1]]).mean() > 0.98


def test_columns_tell_shots_of_one_thing() -> None:
    clean, rng = embeddings(600), np.random.default_rng(1)
    columns = rng.integers(0, 6, (600, 3))
    shots = clean[:100] + 0.16 * clean.std(axis=0) * rng.normal(size=(100, 64))
    units, codes = whitened(np.concatenate([clean, shots])), np.concatenate([columns, columns[:100]])
    plain, found = ({(int(a), int(b)) for a, b in find_twins(units, columns=each)} for each in ((), codes.T))
    true = {(k, 600 + k) for k in range(100)}
    assert len(found & true) > max(1.5 * len(plain & true), 0.9 * len(found))
    assert len(find_twins(units, columns=rng.permutation(codes).T)) <= 1.1 * len(plain)


def test_rows_without_an_image_are_in_no_pair() -> None:
    values, absent = embeddings(200), np.zeros(200, dtype=bool)
    values[:50], absent[:50] = 0, True
    units = whitened(values, absent)
    assert (units[:50] == 0).all() and (units[50:] != 0).any()
    assert not set(np.unique(find_twins(units)).tolist()) & set(range(50))
    assert find_twins(whitened(np.ones((40, 8)))).shape == (0, 2)  # few images are not compared


def test_a_cluster_of_drawings_is_no_thing() -> None:
    clean, rng = embeddings(600), np.random.default_rng(1)
    cluster = clean[:1] + 0.05 * clean.std(axis=0) * rng.normal(size=(12, 64))
    units, columns = whitened(np.concatenate([clean, cluster])), rng.integers(0, 4, (2, 612))
    assert len(find_twins(units, columns=columns)) < 3


def smooth(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 255, (n, 3, 5, 5)).repeat(8, axis=2).repeat(8, axis=3)
    return coarse.astype(np.uint8)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.rot90(x, 1, (1, 2)),
        lambda x: x[:, :, ::-1],
        lambda x: np.rot90(x[:, ::-1], 3, (1, 2)),
        lambda x: np.clip(x.astype(int) * 0.7 + 20, 0, 255),
        lambda x: np.clip(x + np.random.default_rng(0).normal(0, 20, x.shape), 0, 255),
    ],
    ids=["turned", "mirrored", "both", "darker", "noisy"],
)
def test_small_pictures_of_a_changed_image_are_alike(change) -> None:
    pixels = smooth(20)
    pixels[10:] = [change(each) for each in pixels[:10]]
    pictures = small_pictures(Images(pixels), np.arange(20))
    others = np.array([np.roll(np.arange(10, 20), -k) for k in range(10)] * 2)
    found = likeness(pictures, others)[:10]
    assert (found[:, 0] > 0.95).all()
    assert (found[:, 1:] < 0.9).all()

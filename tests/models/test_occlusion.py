"""Maps of where a model looks in images."""

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import contents, forget
from usboost import Backbone, Images, LightGBMBaseline, Table, Views
from usboost.models.inspection.attribution import occlusions

SIDE = 16


class CornerClassifier:
    """Class 1 as probable as the corner of the first image at the lower right is bright."""

    def __init__(self, view: str = "U") -> None:
        self.view = view
        self.batches: list[int] = []

    def predict_proba(self, X: Views) -> np.ndarray:
        images = X[self.view]
        bright = images.decode()[:, :, -2:, -2:].mean(axis=(1, 2, 3)) / 255
        if images.absent is not None:
            bright[images.absent] = 0.5
        self.batches.append(len(X))
        p = 0.1 + 0.8 * bright + 0.0 * X["S"].numeric[:, 0]
        return np.column_stack([1 - p, p])


def made(n: int = 6, seed: int = 0, absent: tuple[int, ...] = ()) -> Images:
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 3, SIDE, SIDE), dtype=np.uint8)
    pixels[:, :, -2:, -2:] = 255
    mask = np.isin(np.arange(n), absent)
    return Images(pixels, absent=mask if absent else None)


def table(n: int = 6) -> Table:
    return Table.from_numeric(np.arange(n, dtype=float)[:, None])


def by_hand(model: CornerClassifier, views: Views, row: int, side: int) -> np.ndarray:
    """A pixel at a time: every square that covers it, one prediction each."""
    pixels = views["U"].decode()[row]
    before = model.predict_proba(views[[row]])[0]
    places = range(0, SIDE - side + 1, side // 2)
    heat = np.empty((SIDE, SIDE))
    for y in range(SIDE):
        for x in range(SIDE):
            falls = []
            for top in places:
                for left in places:
                    if top <= y < top + side and left <= x < left + side:
                        covered = pixels.copy()
                        for channel in range(3):
                            mean = np.rint(pixels[channel].mean())
                            covered[channel, top : top + side, left : left + side] = mean
                        after = model.predict_proba(views[[row]].with_view("U", Images(covered[None])))[0]
                        falls.append(before[before.argmax()] - after[before.argmax()])
            heat[y, x] = np.mean(falls)
    return heat


def test_the_heat_is_in_the_corner_that_decides_and_nowhere_else() -> None:
    model, views = CornerClassifier(), Views(U=made(), S=table())
    found = occlusions(model, views, [4, 1])
    assert list(found) == [(4, "U"), (1, "U")]
    for (row, _), one in found.items():
        heat = one.heat()
        np.testing.assert_allclose(heat, by_hand(model, views, row, SIDE // 4), rtol=0, atol=1e-12)
        assert (heat[-2:, -2:] > 0.2).all()
        assert np.unravel_index(heat.argmax(), heat.shape) >= (SIDE - 2, SIDE - 2)
        heat[-4:, -4:] = 0  # what the square over the corner covers
        assert not heat.any()


def test_only_the_images_that_are_there_are_covered() -> None:
    first, second = made(seed=1, absent=(2,)), made(seed=2, absent=(0, 2))
    apart = Views({"U:a": first, "U:b": second, "S": table()})
    found = occlusions(CornerClassifier("U:b"), apart, [0, 1, 2])
    assert set(found) == {(0, "U:a"), (1, "U:a"), (1, "U:b")}
    assert not found[1, "U:a"].falls.any() and found[1, "U:b"].falls.max() > 0.2


def test_batches_are_bounded_and_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    model, views, told = CornerClassifier(), Views(U=made(), S=table()), []
    whole = occlusions(model, views, [0, 3, 5], progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (3 * 49, 3 * 49) and max(model.batches) <= 128
    monkeypatch.setattr("usboost.models.inspection.attribution.MOST_BYTES", 10 * 3 * SIDE * SIDE)
    model.batches.clear()
    cut = occlusions(model, views, [0, 3, 5])
    assert max(model.batches) == 10
    assert all(np.array_equal(cut[key].falls, whole[key].falls) for key in whole)
    assert occlusions(model, views, []) == {}


def test_every_pixel_of_an_odd_size_is_covered() -> None:
    pixels = np.full((1, 1, 11, 17), 9, dtype=np.uint8)
    pixels[..., -2:, -2:] = 255
    (one,) = occlusions(CornerClassifier(), Views(U=Images(pixels), S=table(1)), [0]).values()
    heat = one.heat()
    assert heat.shape == (11, 17) and np.isfinite(heat).all() and heat[-1, -1] > 0.2


def test_embeddings_of_covered_images_are_not_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    pixels = rng.integers(0, 60, (40, 3, 16, 16), dtype=np.uint8)
    pixels[:, :, 8:, 8:] += (y * 180).astype(np.uint8)[:, None, None, None]
    backbone = Backbone("small_cnn", pretrained=False, random=True, cache=str(tmp_path))
    views = Views(U=Images(pixels), S=Table.from_numeric(rng.normal(size=(40, 1))))
    model = LightGBMBaseline(n_trees=5, backbone=backbone, device="cpu").fit(views, y)
    before = contents(tmp_path)
    assert before
    forget()
    heat = occlusions(model, views, [1])[1, "U"].heat()
    assert contents(tmp_path) == before
    assert heat[8:, 8:].max() == heat.max()
    # afterwards they are kept again
    model.predict_proba(Views(U=Images(255 - pixels), S=views["S"]))
    assert len(contents(tmp_path)) > len(before)

"""MI: the 500 numbers on their side of the plane, the switched labels, the images in their rows."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from tests.conftest import published, refuses
from usboost.datasets import imagenet, store
from usboost.datasets.image_files import load
from usboost.datasets.image_folders import LabelledImage, open_tree, side
from usboost.datasets.store import Prepared


@settings(max_examples=30)
@given(
    y=st.lists(st.integers(0, 1), min_size=1, max_size=200),
    p=st.sampled_from([1, 2, 500]),
    seed=st.integers(0, 2**32),
)
def test_every_row_is_on_its_side_of_the_plane(y: list[int], p: int, seed: int) -> None:
    w = np.random.default_rng(seed).standard_normal(p)
    x = imagenet.structured(y, w, seed)
    assert x.dtype == np.float32 and x.shape == (len(y), p)
    products = [sum(float(a) * b for a, b in zip(row, w)) for row in x]
    assert all((product > 0) == (k == 0) and product != 0 for product, k in zip(products, y))


def test_the_numbers_are_normal_but_for_their_side() -> None:
    w = imagenet.hyperplane(0)
    y = np.repeat([0, 1], 4000)
    x = imagenet.structured(y, w, 1)
    unit = w / np.linalg.norm(w)
    along = x @ unit
    # |N(0, 1)| has the mean √(2/π) and the variance 1 − 2/π.
    np.testing.assert_allclose(along[y == 0].mean(), np.sqrt(2 / np.pi), atol=0.04)
    np.testing.assert_allclose(along[y == 1].mean(), -np.sqrt(2 / np.pi), atol=0.04)
    across = x - along[:, None] * unit
    np.testing.assert_allclose(across.mean(axis=0), 0, atol=0.06)
    np.testing.assert_allclose(across.var(), 1 - 1 / 500, atol=0.01)


def test_rows_near_the_plane_are_drawn_again() -> None:
    w = np.array([0.01])
    x = imagenet.structured(np.zeros(5000, dtype=int), w, 0)
    assert (x[:, 0] * w > imagenet._NEAR / 2).all()


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    imagenet.write_demo(folder, rows_train=200, rows_test=60, seed=1)
    return folder


def prepare(raw: Path, work: Path, **options: Any) -> Prepared:
    return imagenet.prepare(raw, **{"seed": 4, "profile": "demo", "size": 32, "work": work, **options})


@pytest.fixture(scope="module")
def made(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(raw, tmp_path_factory.mktemp("work"))


def test_the_demo_is_the_digits_in_tiny_imagenets_layout(raw: Path, tmp_path: Path) -> None:
    images, digits = load_digits(return_X_y=True)
    with zipfile.ZipFile(raw / imagenet.DIGITS_FILE) as archive:
        names = archive.namelist()
        train = [name for name in names if name.startswith("digits/train/")]
        held = [name for name in names if name.startswith("digits/val/images/")]
        assert len(train) == 200 and len(held) == 120
        for name in train[:20]:
            wnid, k = name.rpartition("/")[2].removesuffix(".JPEG").split("_")
            assert digits[int(k)] == int(wnid[-1]) and name.split("/")[2] == wnid
            pixels = np.asarray(Image.open(io.BytesIO(archive.read(name)))).astype(float)
            small = pixels.reshape(8, 4, 8, 4).mean(axis=(1, 3))
            assert np.abs(small - images[int(k)].reshape(8, 8) * 255 / 16).max() < 8
    imagenet.write_demo(tmp_path, rows_train=200, rows_test=60, seed=1)
    for name in (imagenet.DIGITS_FILE, "index.csv"):
        assert (tmp_path / name).read_bytes() == (raw / name).read_bytes()
    refuses("must be 20 or more", imagenet.write_demo, tmp_path, rows_train=200, rows_test=5, seed=1)


def test_the_card_says_what_the_images_are(made: Prepared) -> None:
    assert made.card["images_from"] == "scikit-learn's handwritten digits"
    assert made.classes == ["digit 0 to 4", "digit 5 to 9"]
    assert set(made.card["sources"]) == {imagenet.DIGITS_FILE, "index.csv"}


def test_splits_labels_and_numbers_follow_the_paper(made: Prepared) -> None:
    w = np.array(made.card["structured"]["w"])
    assert {name: len(frame) for name, frame in made.splits.items()} == {"train": 200, "val": 60, "test": 60}
    files = [file for frame in made.splits.values() for file in frame["file"]]
    assert len(set(files)) == 320
    for split, frame in made.splits.items():
        digit = frame["wnid"].astype(str).str[-1].astype(int)
        assert (frame["clean_label"] == (digit >= 5)).all()
        assert (frame["label"] != frame["clean_label"]).sum() == round(0.09 * len(frame))
        x = frame[list(imagenet.COLUMNS)].to_numpy()
        assert x.dtype == np.float32 and x.shape[1] == 500
        assert (((x.astype(float) @ w) > 0) == (frame["clean_label"] == 0)).all()
        assert all(file.split("/")[0] == ("train" if split == "train" else "val") for file in frame["file"])
    counts = [made.splits[split]["wnid"].value_counts().sort_index() for split in ("val", "test")]
    assert (counts[0] - counts[1]).abs().max() <= 2


def test_each_row_has_its_image(raw: Path, made: Prepared, tmp_path: Path) -> None:
    store.write(made, tmp_path / "mi")
    for split, frame in made.splits.items():
        views, y = store.read(tmp_path / "mi", split)
        assert views.names == ("U", "S") and views["U"].pixels.shape == (len(frame), 3, 32, 32)
        assert y.tolist() == frame["label"].tolist() and views["S"].n_numeric == 500
        for row in (0, 1, len(frame) - 1):
            member = f"digits/{frame['file'].iloc[row]}"
            expected = load((raw / imagenet.DIGITS_FILE, member), size=32, channels=3)
            np.testing.assert_array_equal(views["U"].pixels[row], expected)


def test_arguments_and_the_seed_give_the_files(raw: Path, made: Prepared, tmp_path: Path) -> None:
    store.write(made, tmp_path / "a")
    store.write(prepare(raw, tmp_path / "w"), tmp_path / "b")
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*")]
    assert len(files) == 7
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)
    other = prepare(raw, tmp_path / "w", seed=5)
    assert other.card["structured"]["w"] != made.card["structured"]["w"]
    assert other.splits["val"]["file"].tolist() != made.splits["val"]["file"].tolist()


def test_limits_keep_the_shares(raw: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    some = prepare(
        raw, tmp_path, limits={"train": 100, "val": 20}, size=8, progress=lambda *c: seen.append(c)
    )
    assert [len(frame) for frame in some.splits.values()] == [100, 20, 60]
    assert some.card["rows"] == {
        "found": {"train": 200, "val": 60, "test": 60},
        "taken": {"train": 100, "val": 20, "test": 60},
    }
    assert some.splits["train"]["wnid"].value_counts().between(9, 11).all()
    assert seen[-1] == (180, 180)
    refuses("limits names 'dev'", prepare, raw, tmp_path, limits={"dev": 3})


def images_of(counts: dict[str, int]) -> list[LabelledImage]:
    return [LabelledImage(f"{wnid}/{k}", wnid, Path(wnid)) for wnid, n in counts.items() for k in range(n)]


@settings(max_examples=60)
@given(
    counts=st.lists(st.integers(1, 60), min_size=4, max_size=4),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 99),
)
def test_the_larger_class_is_cut_to_the_share(counts: list[int], share: float, seed: int) -> None:
    class_of = {"a": 0, "b": 0, "c": 1, "d": 1}
    every = images_of(dict(zip("abcd", counts)))
    kept = imagenet.balanced(every, class_of, share, seed)
    assert kept == [image for image in every if image in set(kept)]
    found = {wnid: sum(image.wnid == wnid for image in kept) for wnid in "abcd"}
    n = found["a"] + found["b"], found["c"] + found["d"]
    before = counts[0] + counts[1], counts[2] + counts[3]
    if abs(before[0] / sum(before) - share) <= 0.01:
        assert kept == every
        return
    smaller = int(before[0] > share * sum(before))
    assert n[smaller] == before[smaller]  # nothing of it is left out
    exact = before[smaller] * ((1 - share) / share if smaller == 0 else share / (1 - share))
    assert n[1 - smaller] == max(1, round(exact))
    first, second = ("a", "b") if smaller == 1 else ("c", "d")
    total = n[1 - smaller] / before[1 - smaller]
    assert abs(found[first] - total * counts["abcd".index(first)]) <= 2
    assert abs(found[second] - total * counts["abcd".index(second)]) <= 2


def test_the_card_says_what_the_share_left_out(raw: Path, made: Prepared, tmp_path: Path) -> None:
    assert made.card["balance"] == "as found: no class was cut to a share"
    cut = prepare(raw, tmp_path / "w", dog_share=0.3, limits={"train": 50}, size=8)
    balance = cut.card["balance"]
    for split, frame in cut.splits.items():
        found, kept = balance["found"][split], balance["kept"][split]
        assert sum(found.values()) == cut.card["rows"]["found"][split]
        low, high = imagenet.DIGITS
        assert kept[high] == found[high] and kept[low] == round(found[high] * 3 / 7) < found[low]
        assert abs((frame["clean_label"] == 0).mean() - 0.3) < 0.03
    assert balance["share"] == 0.3 and cut.card["rows"]["taken"]["train"] == 50
    # the same images stay in the same split
    for split in ("val", "test"):
        assert set(cut.splits[split]["file"]) < set(made.splits[split]["file"])
    refuses("dog_share is 1, but must be between 0 and 1", prepare, raw, tmp_path / "w", dog_share=1)


def test_the_size_is_the_sources_own(raw: Path, tmp_path: Path) -> None:
    few = {"train": 20, "val": 20, "test": 20}
    assert prepare(raw, tmp_path / "w", size=None, limits=few).card["images"]["size"] == [64, 64]
    for wnid in ("n00000001", "n00000002"):
        (tmp_path / "ilsvrc" / "train" / wnid).mkdir(parents=True)
    assert side(open_tree(tmp_path / "ilsvrc")) == 224


def test_ilsvrc2012_is_prepared_from_its_folders(tmp_path: Path) -> None:
    folder, wnids = tmp_path / "ilsvrc", [f"n{k:08d}" for k in range(0, 3000, 3)]
    for wnid in wnids:
        (folder / "train" / wnid).mkdir(parents=True)
    groups = {151: 0, 268: 0, 281: 1, 384: 1, 33: 1, 127: 1, 30: None, 269: None}
    for k in groups:
        (folder / "val" / wnids[k]).mkdir(parents=True)
        for number in range(6):
            path = folder / ("train" if number < 4 else "val") / wnids[k] / f"{wnids[k]}_{number}.JPEG"
            Image.new("L", (40 + k % 7, 30), 10 * number + k % 5).save(path)
    made = prepare(folder, tmp_path / "w", size=20)
    assert [len(frame) for frame in made.splits.values()] == [24, 6, 6]
    assert made.classes == list(imagenet.CLASSES)
    assert made.card["images_from"] == "ImageNet; groups: ILSVRC2012 indices"
    for frame in made.splits.values():
        found = frame["wnid"].astype(str).map(lambda wnid: groups[wnids.index(wnid)])
        assert found.tolist() == frame["clean_label"].tolist()
    store.write(made, tmp_path / "mi")
    pixels = store.read(tmp_path / "mi", "test")[0]["U"].pixels
    for row, file in enumerate(made.splits["test"]["file"]):
        np.testing.assert_array_equal(pixels[row], load(folder / file, size=20, channels=3))


def test_a_class_without_images_is_named(tmp_path: Path) -> None:
    imagenet.write_demo(tmp_path, rows_train=50, rows_test=20, seed=1)
    index = tmp_path / "index.csv"
    index.write_text(index.read_text().replace("digit 5 to 9", "amphibian"))
    refuses("has no training folder of a digit 5 to 9", prepare, tmp_path, tmp_path / "w")
    index.unlink()
    refuses("has no training folder of a dog", prepare, tmp_path, tmp_path / "w")


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    imagenet.write_demo(tmp_path / "a", rows_train=50, rows_test=20, seed=1)
    (tmp_path / "b").mkdir()
    name = imagenet.DIGITS_FILE
    with zipfile.ZipFile(tmp_path / "a" / name) as old, zipfile.ZipFile(tmp_path / "b" / name, "w") as new:
        members = old.namelist()
        for member in members:
            new.writestr(member, old.read(member)[: 200 if member == members[7] else None])
    (tmp_path / "b" / "index.csv").write_bytes((tmp_path / "a" / "index.csv").read_bytes())
    said = rf"{members[7].rpartition('/')[2]} in .*cannot be read as an image"
    refuses(said, prepare, tmp_path / "b", tmp_path / "w")


@pytest.fixture(scope="module")
def real() -> Path:
    """The folder of the published images."""
    folder = published("tiny_imagenet_200", "tiny-imagenet-200.zip", "index.csv")
    if (folder / "tiny-imagenet-200.zip").stat().st_size < 10 << 20:
        pytest.skip(f"the images of {folder} are a demo's")
    return folder


@pytest.mark.slow
def test_the_real_animals_are_counted(real: Path, tmp_path: Path) -> None:
    made = prepare(real, tmp_path / "w", size=16, profile="paper", limits={"train": 600})
    assert made.card["rows"]["found"] == {"train": 10_000, "val": 500, "test": 500}
    assert sorted(made.card["synsets"].values()) == sorted(
        ["dog"] * 6 + ["feline"] * 5 + ["primate"] * 3 + ["reptile"] * 2 + ["bird"] * 4 + ["amphibian"] * 3
    )
    assert made.classes == ["dog", "feline, primate, reptile or bird"]
    groups = pd.concat(made.splits.values())["wnid"].astype(str).map(made.card["synsets"])
    assert "amphibian" not in set(groups)
    held = pd.concat([made.splits["val"], made.splits["test"]])["wnid"].astype(str)
    assert held.map(made.card["synsets"]).value_counts().to_dict() == {
        **{"dog": 300, "feline": 250, "bird": 200, "primate": 150, "reptile": 100}
    }
    assert (made.splits["train"]["clean_label"] == 0).sum() == 180
    few = {"val": 30, "test": 30}
    papers = prepare(real, tmp_path / "w", size=16, profile="paper", dog_share=0.47, limits=few)
    assert [len(frame) for frame in papers.splits.values()] == [6383, 30, 30]
    assert papers.card["balance"]["kept"]["train"] == dict(zip(imagenet.CLASSES, (3000, 3383)))
    shares = papers.splits["train"]["wnid"].astype(str).map(papers.card["synsets"]).value_counts()
    # 2500, 2000, 1500 and 1000 of the 7000
    np.testing.assert_allclose(
        shares[["feline", "bird", "primate", "reptile"]], 3383 * np.array([25, 20, 15, 10]) / 70, atol=8
    )


def test_the_real_grey_images_become_colour(real: Path, tmp_path: Path) -> None:
    index = pd.read_csv(real / "index.csv")
    grey = index.loc[index["mode"] == "L", "file"]
    assert len(grey) == 123
    for file in grey.head(20):
        pixels = load((real / "tiny-imagenet-200.zip", file), size=64, channels=3)
        assert (pixels == pixels[:1]).all() and pixels.shape == (3, 64, 64)

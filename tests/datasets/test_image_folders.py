"""Which images ILSVRC2012 and Tiny ImageNet hold, in each of the layouts in which people have them."""

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

from tests.conftest import encoded, refuses
from usboost.datasets.image_folders import (
    ILSVRC,
    TINY,
    LabelledImage,
    animals,
    of_synsets,
    open_tree,
    validation,
)

RNG = np.random.default_rng(0)
WNIDS = [f"n{k:08d}" for k in sorted(RNG.choice(10**8, 1000, replace=False))]
IDS = RNG.permutation(1000) + 1
"""ILSVRC2012_ID of each synset: not in the order of the wnids, as in the devkit."""

DOG, CAT, FROG = 200, 285, 30
VAL = {f"ILSVRC2012_val_{k:08d}": WNIDS[k % 400] for k in range(1, 801)}
"""The synset of each of 800 validation images."""


def jpeg(value: int = 0) -> bytes:
    return encoded(Image.new("RGB", (5, 4), (value % 256, 0, 0)), "JPEG")


def ilsvrc(folder: Path, *, folders: int = 1000) -> Path:
    """A training folder with images of a few synsets."""
    for wnid in WNIDS[:folders]:
        (folder / "train" / wnid).mkdir(parents=True)
    for k in (DOG, CAT, FROG):
        for number in (2, 10, 1):
            (folder / "train" / WNIDS[k] / f"{WNIDS[k]}_{number}.JPEG").write_bytes(jpeg())
    (folder / "train" / WNIDS[DOG] / ".hidden.JPEG").write_bytes(b"")
    (folder / "train" / WNIDS[DOG] / "Thumbs.db").write_bytes(b"")
    (folder / "train" / "readme.txt").write_text("not a synset")
    return folder


def flat(folder: Path) -> None:
    (folder / "val").mkdir()
    for name in VAL:
        (folder / "val" / f"{name}.JPEG").write_bytes(b"")


def meta(path: Path) -> None:
    """A ``meta.mat`` as the devkit's: a struct array of 1000 leaves and some inner synsets."""
    path.parent.mkdir(parents=True, exist_ok=True)
    order = RNG.permutation(1000)
    rows = [(IDS[k], WNIDS[k]) for k in order] + [(1001, "n99999990"), (1002, "n99999991")]
    kind = [("ILSVRC2012_ID", object), ("WNID", object), ("num_children", object)]
    synsets = np.array([(float(k), wnid, 0.0) for k, wnid in rows], dtype=kind)
    scipy.io.savemat(path, {"synsets": synsets[:, None]})


def truth(path: Path) -> None:
    numbers = dict(zip(WNIDS, IDS))
    path.write_text("".join(f"{numbers[VAL[name]]}\n" for name in sorted(VAL)))


def seen(images: list[LabelledImage]) -> list[tuple[str, str]]:
    return [(image.wnid, image.file.rpartition("/")[2]) for image in images]


def test_the_groups_have_the_papers_sizes() -> None:
    sizes = {group: sum(map(len, ranges)) for group, ranges in ILSVRC.items()}
    assert sizes == {"dog": 118, "feline": 13, "primate": 20, "reptile": 36, "bird": 59}
    every = [k for ranges in ILSVRC.values() for indices in ranges for k in indices]
    assert len(set(every)) == 246 and sum(sizes.values()) - 118 == 128
    assert {group: len(wnids.split()) for group, wnids in TINY.items()} == {
        **{"dog": 6, "feline": 5, "primate": 3, "reptile": 2, "bird": 4}
    }


def test_all_1000_folders_need_no_list(tmp_path: Path) -> None:
    tree = open_tree(ilsvrc(tmp_path))
    groups, origin = animals(tree, tmp_path)
    assert origin == "ILSVRC2012 indices" and len(groups) == 246
    assert [wnid for wnid, group in groups.items() if group == "dog"] == WNIDS[151:269]
    assert [wnid for wnid, group in groups.items() if group == "bird"] == [
        *WNIDS[7:25],
        *WNIDS[80:101],
        *WNIDS[127:147],
    ]
    assert seen(of_synsets(tree, "train", groups)) == [
        (WNIDS[k], f"{WNIDS[k]}_{number}.JPEG") for k in (DOG, CAT) for number in (1, 10, 2)
    ]


@pytest.mark.parametrize(
    "listed", ["LOC_synset_mapping.txt", "meta.mat", "ILSVRC2012_devkit_t12/data/meta.mat"]
)
def test_some_folders_need_a_list(tmp_path: Path, listed: str) -> None:
    tree = open_tree(ilsvrc(tmp_path, folders=300))
    refuses("300 synset folders, so it is unknown which of them are dogs", animals, tree, tmp_path)
    if listed.endswith(".mat"):
        meta(tmp_path / listed)
    else:
        (tmp_path / listed).write_text("".join(f"{wnid} some, names\n" for wnid in reversed(WNIDS)))
    groups, _ = animals(tree, tmp_path)
    assert groups[WNIDS[DOG]] == "dog" and groups[WNIDS[CAT]] == "feline" and WNIDS[FROG] not in groups
    assert len(groups) == 246 - 20  # the primates are among the folders that are not there


def test_an_index_says_more_than_places(tmp_path: Path) -> None:
    tree = open_tree(ilsvrc(tmp_path))
    (tmp_path / "index.csv").write_text(f"wnid,group\n{WNIDS[FROG]},dog\n{WNIDS[0]},fish\nn12345678,dog\n")
    assert animals(tree, tmp_path) == ({WNIDS[0]: "fish", WNIDS[FROG]: "dog"}, "index.csv")
    (tmp_path / "index.csv").write_text("wnid,class\n")
    refuses(r"index\.csv has no column 'group'", animals, tree, tmp_path)


def test_every_validation_layout_is_read_alike(tmp_path: Path) -> None:
    folder = ilsvrc(tmp_path / "a")
    tree = open_tree(folder)
    groups, _ = animals(tree, folder)
    expected = sorted((wnid, f"{name}.JPEG") for name, wnid in VAL.items() if wnid in groups)
    assert len(expected) > 300
    refuses("has no images in val", validation, tree, folder, groups)
    for name, wnid in VAL.items():
        (folder / "val" / wnid).mkdir(parents=True, exist_ok=True)
        (folder / "val" / wnid / f"{name}.JPEG").write_bytes(b"")
    assert seen(validation(tree, folder, groups)) == expected
    shutil.rmtree(folder / "val")
    flat(folder)
    refuses(r"no labels found for the images in .*val:", validation, tree, folder, groups)
    truth(folder / "ILSVRC2012_validation_ground_truth.txt")
    refuses(r"not in sorted order; put meta\.mat beside it", validation, tree, folder, groups)
    meta(folder / "meta.mat")
    assert seen(validation(tree, folder, groups)) == expected
    rows = [f"{name},{wnid} 1 2 3 4 {wnid} 5 6 7 8 \n" for name, wnid in VAL.items()]
    (folder / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + "".join(rows))
    (folder / "meta.mat").unlink()
    assert seen(validation(tree, folder, groups)) == expected
    (folder / "val" / "ILSVRC2012_val_00009999.JPEG").write_bytes(b"")
    refuses(r"val_00009999\.JPEG .*has no label in LOC_val_solution\.csv", validation, tree, folder, groups)


@pytest.mark.parametrize("content", ["1\n2000\n", "1\nx\n"])
def test_a_wrong_ground_truth_is_named(tmp_path: Path, content: str) -> None:
    folder = ilsvrc(tmp_path)
    flat(folder)
    meta(folder / "meta.mat")
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text(content)
    tree = open_tree(folder)
    refuses(r"ground_truth\.txt must hold numbers 1\.\.1000", validation, tree, folder, {WNIDS[DOG]: "dog"})
    (folder / "meta.mat").write_bytes(b"no mat file")
    refuses(r"meta\.mat cannot be read as the devkit's", validation, tree, folder, {WNIDS[DOG]: "dog"})


def tiny(folder: Path, *, annotations: bool = True) -> Path:
    """An unpacked Tiny ImageNet with a dog, a cat and a frog."""
    lines = []
    for k, wnid in enumerate(("n02085620", "n02123045", "n01641577")):
        for number in range(4):
            path = folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(k * 10 + number))
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("0\t0\n")
        for number in range(2):
            path = folder / "val" / "images" / f"val_{2 * k + number}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(100 + 2 * k + number))
            lines.append(f"{path.name}\t{wnid}\t0\t0\t4\t3\n")
    if annotations:
        (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder


def zipped(folder: Path, path: Path, top: str = "tiny-imagenet-200/") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, top + str(file.relative_to(folder)))
    return path


@pytest.mark.parametrize("top", ["tiny-imagenet-200/", "", "a/b/"])
def test_tiny_is_read_alike_from_folder_and_zip(tmp_path: Path, top: str) -> None:
    folder = tiny(tmp_path / "tiny")
    (tmp_path / "raw").mkdir()
    path = zipped(folder, tmp_path / "raw" / "tiny.zip", top)
    trees = [open_tree(folder), open_tree(path), open_tree(tmp_path / "raw")]
    groups, origin = animals(trees[0], folder)
    assert groups == {"n02085620": "dog", "n02123045": "feline"} and origin == "Tiny ImageNet-200"
    held = [("n02085620", "val_0.JPEG"), ("n02085620", "val_1.JPEG")]
    for tree in trees:
        assert animals(tree, tmp_path) == (groups, origin)
        images = of_synsets(tree, "train", groups)
        assert [p.file for p in images][:2] == [
            f"train/n02085620/images/n02085620_{number}.JPEG" for number in (0, 1)
        ]
        assert len(images) == 8
        assert seen(validation(tree, tmp_path, groups))[:2] == held
    assert trees[1].digest() == trees[2].digest() != trees[0].digest()
    source = of_synsets(trees[1], "train", groups)[0].source
    assert source == (path, f"{top}train/n02085620/images/n02085620_0.JPEG")


def test_an_index_labels_validation_images_too(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "tiny", annotations=False)
    rows = ["split,wnid,group,file\n"]
    rows += [
        f"val,{('n02085620', 'n02123045', 'n01641577')[k // 2]},g,tiny-imagenet-200/val/images/val_{k}.JPEG\n"
        for k in range(6)
    ]
    (tmp_path / "index.csv").write_text("".join(rows))
    tree = open_tree(folder)
    found = validation(tree, tmp_path, {"n02123045": "feline"})
    assert seen(found) == [("n02123045", "val_2.JPEG"), ("n02123045", "val_3.JPEG")]


def test_zips_that_cannot_be_trusted_or_read_are_refused(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "tiny")
    path = zipped(folder, tmp_path / "a.zip")
    for member, message in (
        ("../../evil.JPEG", r"holds '\.\./\.\./evil\.JPEG', a path that leads out of it"),
        ("other/train/n02085620/images/a.JPEG", "holds 2 folders called train"),
    ):
        shutil.copy(path, tmp_path / "b.zip")
        with zipfile.ZipFile(tmp_path / "b.zip", "a") as archive:
            archive.writestr(member, b"")
        refuses(message, open_tree, tmp_path / "b.zip")
    (tmp_path / "c.zip").write_bytes(path.read_bytes()[:200])
    refuses(r"c\.zip cannot be opened as a zip archive", open_tree, tmp_path / "c.zip")
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        archive.writestr("a.txt", b"")
    refuses("holds 0 folders called train", open_tree, tmp_path / "d.zip")
    refuses("holds neither a folder train/", open_tree, tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/tiny-imagenet-200/train/n02085620/._a.JPEG", b"")
    assert len(of_synsets(open_tree(path), "train", {"n02085620": "dog"})) == 4

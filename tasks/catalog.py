"""The datasets by name: where their raw files come from and how they are prepared."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tasks.settings import Settings
from usboost.data.progress import Progress
from usboost.datasets import census, imagenet, sequences
from usboost.datasets import covertype as ct
from usboost.datasets.sources import RemoteFile, find_source, sha256
from usboost.datasets.store import Prepared
from usboost.errors import UsboostError
from usboost.table import demo as user_demo
from usboost.table import prepared as user_table
from usboost.table.files import digest
from usboost.table.spec import SIZE

POINTER = "source.json"
"""Stands in a raw folder for files that are too large to copy: where they are, and a digest."""


@dataclass(frozen=True)
class Dataset:
    """One dataset.

    Attributes
    ----------
    write_demo : (folder, rows_train=, rows_test=, seed=) writes generated files of the real format
    obtain : (folder, settings, cache) puts the real raw files, or a pointer to them, into a folder
    prepare : (raw, settings, work, progress) makes the prepared form
    """

    write_demo: Callable[..., object]
    obtain: Callable[[Path, Settings, Path], None]
    prepare: Callable[[Path, Settings, Path, Progress | None], Prepared]


def own_folder() -> Path | None:
    """Return a user's folder of raw files, USBOOST_DATA."""
    named = os.environ.get("USBOOST_DATA")
    return Path(named) if named else None


def _copy(folder: Path, settings: Settings, cache: Path, *, source: str, files: Sequence[RemoteFile]) -> None:
    place = find_source(source, files, folder=own_folder(), cache=cache)
    for file in files:
        shutil.copyfile(place / file.name, folder / file.name)


def _point(folder: Path, target: Path, digest: str) -> None:
    (folder / POINTER).write_text(json.dumps({"path": str(target.resolve()), "digest": digest}))


def _raw(folder: Path) -> Path:
    """Return where the raw files are: in the folder itself, or where its pointer leads."""
    pointer = folder / POINTER
    if not pointer.is_file():
        return folder
    try:
        path = Path(json.loads(pointer.read_text())["path"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsboostError(f"{pointer} is damaged ({error!r}); fetch again") from None
    if not path.exists():
        raise UsboostError(f"{path}, which {pointer} points to, is gone; fetch again")
    return path


def _made(settings: Settings) -> dict[str, Any]:
    return {"seed": settings.data_seed, "profile": settings.profile}


def _with_images(settings: Settings, work: Path, progress: Progress | None) -> dict[str, Any]:
    return {**_made(settings), "work": work, "workers": os.cpu_count() or 1, "progress": progress}


def _census(
    raw: Path, settings: Settings, work: Path, progress: Progress | None, *, split: Literal["ci_a", "ci_b"]
) -> Prepared:
    sizes = settings.data_of(split)
    train, test = (raw / file.name for file in census.FILES)
    rows, tolerance = sizes.elimination_rows, sizes.elimination_tolerance
    return census.prepare(train, test, split=split, rows=rows, tolerance=tolerance, **_made(settings))


def _ct(raw: Path, settings: Settings, work: Path, progress: Progress | None) -> Prepared:
    sizes = settings.data_of("ct")
    rows, size = (sizes.rows_train if settings.profile == "paper" else None), sizes.image_size or ct.SIZE
    return ct.prepare(raw, rows=rows, image_size=size, **_with_images(settings, work, progress))


def _obtain_imagenet(folder: Path, settings: Settings, cache: Path) -> None:
    names = ("ilsvrc2012", "tiny_imagenet_200") if settings.mi_source == "auto" else (settings.mi_source,)
    own = own_folder()
    for name in names:
        if own is not None and (own / name).is_dir():
            place = own / name
            listed = sorted((p.name, p.stat().st_size) for p in place.iterdir())
            _point(folder, place, repr(listed))
            return
    wanted = " or ".join(names)
    raise UsboostError(
        f"ImageNet cannot be downloaded without an account; put {wanted} into the folder "
        "that USBOOST_DATA names"
    )


def _mi(
    raw: Path, settings: Settings, work: Path, progress: Progress | None, *, dataset: str = "mi"
) -> Prepared:
    sizes = settings.data_of(dataset)
    wanted = {"train": sizes.rows_train, "val": sizes.rows_test, "test": sizes.rows_test}
    limits = {split: rows for split, rows in wanted.items() if rows} if settings.profile == "paper" else None
    chosen: dict[str, Any] = {"size": sizes.image_size, "dog_share": sizes.dog_share, "limits": limits}
    chosen["dataset"] = dataset
    return imagenet.prepare(_raw(raw), **chosen, **_with_images(settings, work, progress))


def _only_in_the_demo(folder: Path, settings: Settings, cache: Path) -> None:
    raise UsboostError(f"the digits stand in for ImageNet in the demo; the profile {settings.profile} has mi")


def _obtain_user_table(folder: Path, settings: Settings, cache: Path) -> None:
    named = settings.user_table.table
    if named is None:
        raise UsboostError("params.yaml: user_table.table is empty; give the path of your table")
    table = Path(named).expanduser()
    if not table.exists():
        raise UsboostError(f"the table {table}, which params.yaml names as user_table.table, does not exist")
    _point(folder, table, digest(table))


def _user_table(raw: Path, settings: Settings, work: Path, progress: Progress | None) -> Prepared:
    chosen, sizes = settings.user_table, settings.data_of("user_table")
    demo = settings.generated("user_table")
    table = raw / user_demo.TABLE if demo else _raw(raw)
    spec = chosen.spec(size=sizes.image_size or SIZE, **(user_demo.SPEC if demo else {}))
    return user_table.prepare(table, spec, work=work, progress=progress, **_made(settings))


def _bundled(folder: Path, *arguments: object, **settings: object) -> None:
    """Nothing to obtain: scikit-learn brings the data."""
    (folder / "bundled.txt").write_text("bundled with scikit-learn\n")


def _further(raw: Path, settings: Settings, work: Path, progress: Progress | None, *, name: str) -> Prepared:
    seed, profile = settings.data_seed, settings.profile
    if name == "iris":
        x, y = sequences.iris()
        return sequences.prepare_table(x, y, dataset=name, profile=profile, seed=seed, folds=5)
    if name == "digits_rows":
        split = sequences.digits_rows(seed=seed)
    elif name == "pendigits":
        split = sequences.pendigits(raw)
    else:
        split = sequences.ts_split(raw, "GunPoint")
    digests = {path.name: sha256(path) for path in sorted(raw.iterdir())}
    return sequences.prepare(split, dataset=name, profile=profile, seed=seed, sources=digests)


_GUNPOINT = "https://www.timeseriesclassification.com/aeon-toolkit/"
GUNPOINT_FILES = tuple(
    RemoteFile(name, _GUNPOINT + name) for name in ("GunPoint_TRAIN.ts", "GunPoint_TEST.ts")
)

_copy_census = partial(_copy, source=census.SOURCE, files=census.FILES)
_copy_pendigits = partial(_copy, source="pendigits", files=sequences.PENDIGITS_FILES)
_copy_gunpoint = partial(_copy, source="gunpoint", files=GUNPOINT_FILES)

DATASETS: dict[str, Dataset] = {
    "ci_a": Dataset(census.write_demo, _copy_census, partial(_census, split="ci_a")),
    "ci_b": Dataset(census.write_demo, _copy_census, partial(_census, split="ci_b")),
    "ct": Dataset(ct.write_demo, partial(_copy, source="covertype", files=ct.FILES), _ct),
    "mi": Dataset(imagenet.write_demo, _obtain_imagenet, _mi),
    "digits": Dataset(imagenet.write_demo, _only_in_the_demo, partial(_mi, dataset="digits")),
    "user_table": Dataset(user_demo.write_demo, _obtain_user_table, _user_table),
    "iris": Dataset(_bundled, _bundled, partial(_further, name="iris")),
    "digits_rows": Dataset(_bundled, _bundled, partial(_further, name="digits_rows")),
    "pendigits": Dataset(_bundled, _copy_pendigits, partial(_further, name="pendigits")),
    "gunpoint": Dataset(_bundled, _copy_gunpoint, partial(_further, name="gunpoint")),
}


def dataset(name: str) -> Dataset:
    """Return the dataset called `name`. Raises `UsboostError` if there is none."""
    if name not in DATASETS:
        raise UsboostError(f"unknown dataset {name!r}; choose one of {', '.join(DATASETS)}")
    return DATASETS[name]

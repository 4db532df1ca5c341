"""The datasets by name: where their raw files come from and how they are prepared."""

import hashlib
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
from usboost.datasets import census, covertype, imagenet, sequences
from usboost.datasets.image_files import identity
from usboost.datasets.sources import RemoteFile, find_source
from usboost.datasets.store import Prepared
from usboost.errors import UsboostError
from usboost.files.arrays import sha256
from usboost.table import demo as user_demo
from usboost.table import prepared as user_table
from usboost.table.files import digest
from usboost.table.images import files_of_images
from usboost.table.spec import SIZE

POINTER = "source.json"  # stands in for raw files that are too large to copy: where they are, and a digest


@dataclass(frozen=True)
class Dataset:
    """One dataset.

    Attributes
    ----------
    write_demo : (folder, rows_train=, rows_test=, seed=) writes generated files of the real format
    obtain : (folder, settings, cache) puts the real raw files, or a pointer to them, into a folder
    prepare : (raw, settings, work, progress) makes the prepared form
    sampled : the sizes that real data are cut to
    """

    write_demo: Callable[..., object]
    obtain: Callable[[Path, Settings, Path], None]
    prepare: Callable[[Path, Settings, Path, Progress | None], Prepared]
    sampled: Sequence[str] = ()


def own_folder() -> Path | None:
    """Return a user's folder of raw files, USBOOST_DATA."""
    return Path(named) if (named := os.environ.get("USBOOST_DATA")) else None


def _copy(folder: Path, settings: Settings, cache: Path, *, source: str, files: Sequence[RemoteFile]) -> None:
    place = find_source(source, files, folder=own_folder(), cache=cache)
    for file in files:
        shutil.copyfile(place / file.name, folder / file.name)


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
    return {"seed": settings.seed, "profile": settings.profile}


def _with_images(settings: Settings, work: Path, progress: Progress | None) -> dict[str, Any]:
    return {**_made(settings), "work": work, "workers": os.cpu_count() or 1, "progress": progress}


def _census(
    raw: Path, settings: Settings, work: Path, progress: Progress | None, *, split: Literal["ci_a", "ci_b"]
) -> Prepared:
    sizes = settings.data_of(split)
    train, test = (raw / file.name for file in census.FILES)
    chosen: dict[str, Any] = {"rows": sizes.elimination_rows, "tolerance": sizes.elimination_tolerance}
    return census.prepare(train, test, split=split, **chosen, **_made(settings))


def _ct(raw: Path, settings: Settings, work: Path, progress: Progress | None) -> Prepared:
    sizes = settings.data_of("ct")
    rows = sizes.rows_train if settings.profile == "paper" else None
    size = sizes.image_size or covertype.SIZE
    return covertype.prepare(raw, rows=rows, image_size=size, **_with_images(settings, work, progress))


def _obtain_imagenet(folder: Path, settings: Settings, cache: Path) -> None:
    names = ("ilsvrc2012", "tiny_imagenet_200") if settings.mi_source == "auto" else (settings.mi_source,)
    own = own_folder()
    place = next((own / name for name in names if (own / name).is_dir()), None) if own else None
    if place is None:
        raise UsboostError(
            f"ImageNet cannot be downloaded without an account; put {' or '.join(names)} into the folder "
            "that USBOOST_DATA names"
        )
    listed = "".join(sorted(identity(path) for path in place.rglob("*") if path.is_file()))
    pointer = {"path": str(place.resolve()), "digest": hashlib.sha256(listed.encode()).hexdigest()}
    (folder / POINTER).write_text(json.dumps(pointer))


def _mi(
    raw: Path, settings: Settings, work: Path, progress: Progress | None, *, dataset: str = "mi"
) -> Prepared:
    sizes = settings.data_of(dataset)
    wanted = {"train": sizes.rows_train, "val": sizes.rows_test, "test": sizes.rows_test}
    limits = {split: rows for split, rows in wanted.items() if rows} if settings.profile == "paper" else None
    chosen = {"dataset": dataset, "limits": limits, **_with_images(settings, work, progress)}
    return imagenet.prepare(_raw(raw), size=sizes.image_size, dog_share=sizes.dog_share, **chosen)


def _obtain_user_table(folder: Path, settings: Settings, cache: Path) -> None:
    (folder / POINTER).write_text(json.dumps(pointer_of_table(settings)))


def pointer_of_table(settings: Settings) -> dict[str, str]:
    """Return where a user's table is, its digest, and one of the names, sizes and times of its images."""
    if settings.user_table.table is None:
        raise UsboostError("params.yaml: user_table.table is empty; give the path of your table")
    table = Path(settings.user_table.table).expanduser()
    if not table.exists():
        raise UsboostError(f"the table {table}, which params.yaml names as user_table.table, does not exist")
    pointer = {"path": str(table.resolve()), "digest": digest(table)}
    if settings.user_table.image:
        images = "".join(map(identity, files_of_images(table, settings.user_table.spec())))
        pointer["images"] = hashlib.sha256(images.encode()).hexdigest()
    return pointer


def _user_table(raw: Path, settings: Settings, work: Path, progress: Progress | None) -> Prepared:
    chosen, sizes = settings.user_table, settings.data_of("user_table")
    demo = settings.generated("user_table")
    table = raw / user_demo.TABLE if demo else _raw(raw)
    spec = chosen.spec(size=sizes.image_size or SIZE, **(user_demo.SPEC if demo else {}))
    return user_table.prepare(table, spec, work=work, progress=progress, **_made(settings))


def _bundled(folder: Path, *arguments: object, **settings: object) -> None:
    """Write a note in place of raw files: scikit-learn has the data."""
    (folder / "bundled.txt").write_text("bundled with scikit-learn\n")


def _further(raw: Path, settings: Settings, work: Path, progress: Progress | None, *, name: str) -> Prepared:
    if name == "iris":
        return sequences.prepare_table(*sequences.iris(), dataset=name, folds=5, **_made(settings))
    if name == "digits_rows":
        split = sequences.digits_rows(seed=settings.seed)
    else:
        split = sequences.pendigits(raw) if name == "pendigits" else sequences.ts_split(raw, "GunPoint")
    digests = {path.name: sha256(path) for path in sorted(raw.iterdir())}
    return sequences.prepare(split, dataset=name, sources=digests, **_made(settings))


_GUNPOINT = "https://www.timeseriesclassification.com/aeon-toolkit/GunPoint_"
GUNPOINT_FILES = [RemoteFile(f"GunPoint_{part}.ts", f"{_GUNPOINT}{part}.ts") for part in ("TRAIN", "TEST")]

_ROWS = ("rows_train", "rows_test")

_copy_census = partial(_copy, source=census.SOURCE, files=census.FILES)
_copy_digits = partial(_copy, source="pendigits", files=sequences.PENDIGITS_FILES)
_copy_gunpoint = partial(_copy, source="gunpoint", files=GUNPOINT_FILES)

DATASETS: dict[str, Dataset] = {
    "ci_a": Dataset(census.write_demo, _copy_census, partial(_census, split="ci_a")),
    "ci_b": Dataset(census.write_demo, _copy_census, partial(_census, split="ci_b")),
    "ct": Dataset(
        covertype.write_demo, partial(_copy, source="covertype", files=covertype.FILES), _ct, _ROWS[:1]
    ),
    "mi": Dataset(imagenet.write_demo, _obtain_imagenet, _mi, _ROWS),
    # the demo's, in place of mi: no other profile has its sizes
    "digits": Dataset(imagenet.write_demo, _obtain_imagenet, partial(_mi, dataset="digits"), _ROWS),
    "user_table": Dataset(user_demo.write_demo, _obtain_user_table, _user_table),
    "iris": Dataset(_bundled, _bundled, partial(_further, name="iris")),
    "digits_rows": Dataset(_bundled, _bundled, partial(_further, name="digits_rows")),
    "pendigits": Dataset(_bundled, _copy_digits, partial(_further, name="pendigits")),
    "gunpoint": Dataset(_bundled, _copy_gunpoint, partial(_further, name="gunpoint")),
}

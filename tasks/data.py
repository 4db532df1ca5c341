"""The steps that obtain raw files and make datasets of them."""

import json
import sys
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from rich.console import Console
from rich.progress import Progress

from tasks.catalog import DATASETS, POINTER, pointer_of_table
from tasks.folders import code_of, prepared_folder, raw_folder, work_folder
from tasks.machine import worth_retrying
from tasks.settings import Settings
from usboost.boosting.code import digest
from usboost.datasets import store
from usboost.errors import UsboostError, warn
from usboost.files import replacing, write_atomically
from usboost.files.arrays import key_of, sha256


# each try of it downloads three times, with pauses
@task(cache_policy=NO_CACHE, retries=1, retry_delay_seconds=10, retry_condition_fn=worth_retrying)
def obtain_raw(dataset: str, settings: Settings, cache: Path) -> None:
    """Put the raw files of a dataset into data/raw: generated (demo), or found or downloaded (paper)."""
    sizes = settings.data_of(dataset)  # which refuses a name that there is not
    source = DATASETS[dataset]
    for name in ("rows_train", "rows_test"):
        if getattr(sizes, name) and not settings.generated(dataset) and name not in source.sampled:
            raise UsboostError(
                f"params.yaml: profiles.{settings.profile}.data.{dataset}.{name}: {dataset} is read whole; "
                "leave it out"
            )
    with replacing(raw_folder(dataset)) as fresh:
        if settings.generated(dataset):
            rows = {"rows_train": sizes.rows_train or 6000, "rows_test": sizes.rows_test or 3000}
            source.write_demo(fresh, **rows, seed=settings.seed)
        else:
            source.obtain(fresh, settings, cache)


@task(cache_policy=NO_CACHE)
def prepare_dataset(dataset: str, settings: Settings) -> dict[str, Any]:
    """Make the prepared form of a dataset's raw files, unless they come from the same; return its card."""
    raw, folder, work = raw_folder(dataset), prepared_folder(dataset), work_folder(dataset)
    # next to the output, not in it: an edit of the code that changes no number leaves the output as it is
    stored, card = work / "fingerprint.json", folder / "card.json"
    wanted = fingerprint(dataset, settings, raw)
    known = stored.is_file() and card.is_file() and json.loads(stored.read_text()) == [wanted, sha256(card)]
    splits = json.loads(card.read_text())["splits"] if known else {}
    paths = {folder / f"{split}.parquet": each["sha256"] for split, each in splits.items()}
    if not (known and all(path.is_file() and sha256(path) == promised for path, promised in paths.items())):
        # on a terminal a bar; silent elsewhere
        with Progress(disable=not sys.stderr.isatty(), console=Console(stderr=True)) as bar:
            shown = bar.add_task(f"preparing {dataset}", total=None)
            prepared = DATASETS[dataset].prepare(
                raw, settings, work, lambda done, total: bar.update(shown, completed=done, total=total)
            )
        store.write(prepared, folder)
        if prepared.table is not None:
            from usboost.check import beside_fit  # here, because torch takes seconds to import

            for each in beside_fit(prepared.table):
                warn(each)
        write_atomically(stored, json.dumps([wanted, sha256(card)]).encode())
    return store.read_card(folder)


def has_changed(dataset: str, settings: Settings) -> bool:
    """Return whether raw files, settings, code, a user's table or its images are not what was prepared.

    Not where nothing was prepared yet, or these are gone: what was prepared of them stays.
    """
    raw, kept = raw_folder(dataset), work_folder(dataset) / "fingerprint.json"
    if dataset == "user_table" and not settings.generated(dataset):
        pointer, table = raw / POINTER, settings.user_table.table
        if table is None or not Path(table).expanduser().exists():
            return False
        if pointer.is_file() and json.loads(pointer.read_text()) != pointer_of_table(settings):
            return True
    if not (raw.is_dir() and kept.is_file()):
        return False
    return bool(json.loads(kept.read_text())[0] != fingerprint(dataset, settings, raw))


def fingerprint(dataset: str, settings: Settings, raw: Path) -> str:
    """Digest everything that decides a prepared dataset: raw files, settings and code."""
    files = [file for file in sorted(raw.rglob("*")) if file.is_file()]
    decided: dict[str, Any] = {
        "code": digest(code_of(["tasks.catalog", "usboost.datasets.store"])),
        "raw": {str(file.relative_to(raw)): sha256(file) for file in files},
        "profile": settings.profile,
        "seed": settings.seed,
        "sizes": settings.data_of(dataset).model_dump(),
    }
    if dataset == "user_table":
        decided["user_table"] = settings.user_table.model_dump()
    return key_of(decided)

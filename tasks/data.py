"""The steps that obtain raw files and make datasets of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from usboost.datasets import store
from usboost.datasets.catalog import dataset as named
from usboost.datasets.sources import find_source
from usboost.errors import UsboostError
from usboost.files import replacing
from usboost.settings import Settings


def _worth_retrying(task: Any, run: Any, state: Any) -> bool:
    """A failing network may come back; a person's mistake stays one."""
    try:
        state.result()
    except UsboostError as error:
        return isinstance(error.__cause__, OSError)
    except OSError:
        return True
    except Exception:
        return False
    return False


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=[5, 30], retry_condition_fn=_worth_retrying)
def obtain_raw(dataset: str, settings: Settings, folder: Path, cache: Path) -> Path:
    """Put the raw files of a dataset into `folder`: generated (demo), or found or downloaded (paper)."""
    source, sizes = named(dataset), settings.sizes.data
    with replacing(folder) as fresh:
        if settings.profile == "demo":
            source.write_demo(
                fresh, rows_train=sizes.rows_train or 6000, rows_test=sizes.rows_test or 3000, seed=sizes.seed
            )
        else:
            own = os.environ.get("USBOOST_DATA")
            place = find_source(source.source, source.files, folder=Path(own) if own else None, cache=cache)
            for file in source.files:
                shutil.copyfile(place / file.name, fresh / file.name)
    return folder


@task(cache_policy=NO_CACHE)
def prepare_dataset(dataset: str, settings: Settings, raw: Path, folder: Path) -> dict[str, Any]:
    """Make the prepared form of a dataset; its card."""
    prepared = named(dataset).prepare(raw, profile=settings.profile, sizes=settings.sizes.data)
    store.write(prepared, folder)
    return store.read_card(folder)

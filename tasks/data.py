"""The steps that obtain raw files and make datasets of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from rich.console import Console
from rich.progress import Progress as Bars

from tasks.catalog import dataset as named
from tasks.settings import Settings
from usboost.data.progress import Progress
from usboost.datasets.prepared import store
from usboost.errors import UsboostError
from usboost.files import replacing


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


# each try of it downloads three times, with pauses
@task(cache_policy=NO_CACHE, retries=1, retry_delay_seconds=10, retry_condition_fn=_worth_retrying)
def obtain_raw(dataset: str, settings: Settings, folder: Path, cache: Path) -> Path:
    """Put the raw files of a dataset into `folder`: generated (demo), or found or downloaded (paper)."""
    source, sizes = named(dataset), settings.data_of(dataset)
    with replacing(folder) as fresh:
        if settings.generated(dataset):
            source.write_demo(
                fresh,
                rows_train=sizes.rows_train or 6000,
                rows_test=sizes.rows_test or 3000,
                seed=settings.data_seed,
            )
        else:
            source.obtain(fresh, settings, cache)
    return folder


@task(cache_policy=NO_CACHE)
def prepare_dataset(dataset: str, settings: Settings, raw: Path, folder: Path, work: Path) -> dict[str, Any]:
    """Make the prepared form of a dataset; its card. `work` keeps what a stopped preparation had made."""
    with shown_progress(f"preparing {dataset}") as progress:
        prepared = named(dataset).prepare(raw, settings, work, progress)
    store.write(prepared, folder)
    return store.read_card(folder)


@contextmanager
def shown_progress(label: str) -> Iterator[Progress]:
    """A bar for (done, total) calls on a terminal; silent elsewhere."""
    with Bars(disable=not sys.stderr.isatty(), console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)

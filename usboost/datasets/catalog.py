"""The datasets by name: where their raw files come from and how they are prepared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from usboost.datasets import census, census_demo
from usboost.datasets.sources import RemoteFile
from usboost.datasets.store import Prepared
from usboost.errors import UsboostError
from usboost.settings import DataSizes


class WriteDemo(Protocol):
    def __call__(self, folder: Path, *, rows_train: int, rows_test: int, seed: int) -> None: ...


class Prepare(Protocol):
    def __call__(self, raw: Path, *, profile: str, sizes: DataSizes) -> Prepared: ...


@dataclass(frozen=True)
class Dataset:
    """One dataset.

    Attributes
    ----------
    source : name of the raw files' folder
    files : the raw files
    write_demo : writes generated files of the same names and format
    prepare : makes the prepared form of a folder of raw files
    """

    source: str
    files: Sequence[RemoteFile]
    write_demo: WriteDemo
    prepare: Prepare


def _prepare_census(raw: Path, *, split: Literal["ci_a", "ci_b"], profile: str, sizes: DataSizes) -> Prepared:
    train, test = (raw / file.name for file in census.FILES)
    return census.prepare(
        train,
        test,
        split=split,
        seed=sizes.seed,
        profile=profile,
        rows=sizes.elimination_rows,
        tolerance=sizes.elimination_tolerance,
    )


DATASETS: dict[str, Dataset] = {
    name: Dataset(census.SOURCE, census.FILES, census_demo.write_demo, partial(_prepare_census, split=name))
    for name in ("ci_a", "ci_b")
}


def dataset(name: str) -> Dataset:
    """The dataset called `name`.

    Raises
    ------
    UsboostError
        If there is none.
    """
    if name not in DATASETS:
        raise UsboostError(f"there is no dataset {name!r}; choose one of {', '.join(DATASETS)}")
    return DATASETS[name]

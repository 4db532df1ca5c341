"""What `usboost compare` and `usboost tune` have in common: the models that they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usboost.cli.options import OUTSIDE, SCORES
from usboost.errors import UsboostError
from usboost.evaluation.names import check_metric
from usboost.models.catalogue import catalogue
from usboost.multimodal.options import ImageOptions

if TYPE_CHECKING:
    from usboost.datasets.user.user_table import UserTable


def check_score(by: str | None) -> None:
    """Refuse a score that no task has."""
    if by is not None:
        check_metric(by, SCORES)


def check_folder(out: Path | None, what: str) -> None:
    """Refuse a file in place of a folder."""
    if out is not None and out.exists() and not out.is_dir():
        raise UsboostError(f"{out} is a file; name a folder for the {what}")


def names_of(models: Sequence[str] | None, table: UserTable, others: Collection[str] = ()) -> list[str]:
    """The models that were named, or the usual ones, and others by their paths; refused if they read no such
    table."""
    usual = catalogue.compared(one_table=not table.spec.image, task=table.task)
    names = list(dict.fromkeys([*(models or usual), *others]))
    for name in names:
        if name not in OUTSIDE and name not in others:
            catalogue.for_table(name, table.task)
    return names


def builders(
    names: Sequence[str],
    table: UserTable,
    images: ImageOptions | None,
    rounds: int | None,
    settings: Mapping[str, Any],
) -> dict[str, Callable[[int], Any]]:
    """What builds each model; see `usboost.multimodal.fit.fit.by_name`. Refuses what is not installed."""
    from usboost.models.baselines.packages import check_outside
    from usboost.multimodal.fit.fit import by_name

    for name in names:
        if name not in catalogue.CATALOGUE:
            check_outside(name, table.task)
    views = tuple(table.images) or ("U",)
    return by_name(names, images=images, image_views=views, rounds=rounds, settings=settings, task=table.task)

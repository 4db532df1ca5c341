"""What `usboost compare` and `usboost tune` have in common: the models that they are asked for."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usboost.cli.options import OUTSIDE, SCORES, typed
from usboost.datasets.user.table_spec import Options
from usboost.errors import UsboostError
from usboost.evaluation.names import check_metric
from usboost.models.catalogue import catalogue
from usboost.multimodal.options import ImageOptions

if TYPE_CHECKING:
    from usboost.datasets.user.user_table import UserTable


def check(by: str | None, out: Path | None, what: str) -> None:
    """Refuse a score that no task has, and a file in place of the folder of `what`."""
    if by is not None:
        check_metric(by, SCORES)
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


def fit_command(table: Path, model: str, rounds: int | None, *chosen: Options, **others: Any) -> str:
    """The command that fits one of the models as it was fitted here, and saves it."""
    from usboost.multimodal.fit.fit import limited

    again = typed(*chosen, rounds=rounds if limited(model) else None, **others)
    return shlex.join(["usboost", "fit", str(table), *again, "--model", model, "--out", "model"])

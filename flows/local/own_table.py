"""What a workspace for a person's table changes in params.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from usboost.errors import UsboostError
from usboost.models import zoo
from usboost.models.entry import KINDS


def changes(
    table: Path,
    label: str,
    *,
    images: Sequence[str] = (),
    split: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> dict[str, Any]:
    """Values by dotted key: the table, and the models that `usboost compare` offers for one like it.

    Parameters
    ----------
    images : columns of pictures.
    split : column that holds train, val or test; None: the split is made.
    categorical, drop : columns of numbers that are categories, and columns that are not used.

    Raises
    ------
    UsboostError
        If there is no such file.
    """
    if not table.expanduser().exists():
        raise UsboostError(
            f"the table {table} does not exist; give --table a file, or a folder of Parquet files"
        )
    models = [zoo.find(name) for name in zoo.compared(one_table=not images)]
    image = list(images) if len(images) > 1 else next(iter(images), None)
    return {
        "run.datasets": ["custom"],
        "run.further_datasets": [],
        "run.further": {},
        **{
            f"run.{stage}": [entry.name for entry in models if KINDS[entry.kind].stage == stage]
            for stage in ("boosting", "external_baselines")
        },
        "custom.table": str(table.expanduser().resolve()),
        "custom.label": label,
        "custom.image": image,
        "custom.split_column": split,
        "custom.categorical": list(categorical),
        "custom.drop": list(drop),
    }

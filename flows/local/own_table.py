"""What a workspace for a person's table changes in params.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from usboost.datasets.custom.table import asked_of
from usboost.errors import UsboostError
from usboost.models import zoo


def changes(
    table: Path,
    label: str,
    *,
    task: str | None = None,
    images: Sequence[str] = (),
    split: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    beside: bool = False,
) -> dict[str, Any]:
    """Values by dotted key: the table, and the models that `usboost compare` offers for one like it.

    Parameters
    ----------
    task : "classification" or "regression"; None: what the label looks like, see `labels.task_of`.
    images : columns of pictures.
    split : column that holds train, val or test; None: the split is made.
    categorical, drop : columns of numbers that are categories, and columns that are not used.
    beside : whether datasets with classes run beside it, by the same models.

    Raises
    ------
    UsboostError
        If there is no such file, or it has no such label.
    """
    if not table.expanduser().exists():
        raise UsboostError(
            f"the table {table} does not exist; give --table a file, or a folder of Parquet files"
        )
    if task is None:
        task, said = ("classification", "") if label in categorical else asked_of(table.expanduser(), label)
        if said:
            print(said)
    tasks = {task, "classification"} if beside else {task}
    models = [
        entry
        for name in zoo.compared(one_table=not images, task=task)
        if tasks <= set((entry := zoo.find(name)).tasks)
    ]
    names = {entry.name for entry in models}
    if left_out := [name for name in zoo.compared(one_table=not images) if name not in names]:
        print(f"left out, since a number is predicted: {', '.join(left_out)}")
    image = list(images) if len(images) > 1 else next(iter(images), None)
    return {
        "run.datasets": ["custom"],
        "run.models": [entry.name for entry in models],
        "run.models_of": {},
        "custom.table": str(table.expanduser().resolve()),
        "custom.label": label,
        "custom.task": task,
        "custom.image": image,
        "custom.split_column": split,
        "custom.categorical": list(categorical),
        "custom.drop": list(drop),
    }

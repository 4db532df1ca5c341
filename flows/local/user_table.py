"""What a workspace for a user's table changes in params.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from usboost.datasets.user.table import asked_of
from usboost.datasets.user.table_spec import TableSpec
from usboost.errors import UsboostError
from usboost.models.catalogue import catalogue


def changes(table: Path, spec: TableSpec, *, beside: bool = False) -> dict[str, Any]:
    """Values by dotted key: the table, and the models that `usboost compare` offers for one like it.

    Parameters
    ----------
    spec : its label, task, images, split, categories and columns that are not used.
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
    task: str | None = spec.task
    if task is None:
        is_named = spec.label in spec.categorical
        task, said = ("classification", "") if is_named else asked_of(table.expanduser(), spec)
        if said:
            print(said)
    tasks = {task, "classification"} if beside else {task}
    models = [
        entry
        for name in catalogue.compared(one_table=not spec.image, task=task)
        if tasks <= set((entry := catalogue.find(name)).tasks)
    ]
    names = {entry.name for entry in models}
    if left_out := [name for name in catalogue.compared(one_table=not spec.image) if name not in names]:
        print(f"left out, since a number is predicted: {', '.join(left_out)}")
    image = list(spec.image) if len(spec.image) > 1 else next(iter(spec.image), None)
    return {
        "run.datasets": ["user_table"],
        "run.models": [entry.name for entry in models],
        "run.models_of": {},
        "user_table.table": str(table.expanduser().resolve()),
        "user_table.label": spec.label,
        "user_table.task": task,
        "user_table.image": image,
        "user_table.split_column": spec.split,
        "user_table.categorical": list(spec.categorical),
        "user_table.drop": list(spec.drop),
    }

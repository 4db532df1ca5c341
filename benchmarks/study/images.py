"""docs/results/images.md and tuned-images.md, real tables with real images: each comparison has a folder.

``python -m benchmarks.study.images TABLES OUT [NAME …]``, where TABLES holds the lesions and the products;
a comparison whose folder has its result is not made again. Hours on two cores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from usboost.datasets.user.read_table import read_table
from usboost.datasets.user.table_spec import TableSpec
from usboost.models.base import ViewsClassifier
from usboost.multimodal.compare import results
from usboost.multimodal.compare.compare import compare
from usboost.multimodal.fit.fit import ImageOptions, build

TABLES = {
    "lesions": ("ham10000_lesions/lesions.parquet", "dx", ("lesion_id", "image_id")),
    "products": ("fashion_products/products.parquet", "gender", ("id",)),
    "season": ("fashion_products/products.parquet", "season", ("id",)),
}

MAIN = ("linear_trees", "2wl_ridge", "crossed", "2wl_logistic", "lgbm", "logistic", "lgbm_s")
LINEAR = ("linear_trees", "logistic")
READERS = ("linear_trees", "crossed", "2wl_logistic", "lgbm", "logistic")
FROZEN = ImageOptions(finetune="none")
TUNED = replace(FROZEN, finetune="last")


@dataclass(frozen=True)
class Plan:
    """One comparison of some models on one table.

    Attributes
    ----------
    name : of its folder.
    read : of `TableSpec`, how the images are read.
    components : of embeddings that trees read; 0: what the catalogue says, None: all columns.
    size : side of the images in pixels.
    """

    name: str
    table: str
    models: tuple[str, ...]
    images: ImageOptions = field(default_factory=ImageOptions)
    read: dict[str, Any] = field(default_factory=dict)
    components: int | None = 0
    folds: int = 5
    size: int = 160


def plans() -> Iterator[Plan]:
    """In the order in which they are worth most."""
    for table in TABLES:
        yield Plan(f"{table}-tuned", table, READERS, TUNED)
        yield Plan(f"{table}-frozen", table, READERS, FROZEN)
    for table in ("lesions", "products"):
        yield Plan(f"{table}-main", table, MAIN, FROZEN)
    for table in ("lesions", "products"):
        yield Plan(f"{table}-224", table, LINEAR, FROZEN, size=224)
    for table in ("lesions", "products"):
        yield Plan(f"{table}-raw", table, ("lgbm", "crossed"), FROZEN, components=None)
        yield Plan(f"{table}-two-branch", table, ("baseline",), FROZEN)
    for aspect in ("pad", "stretch"):
        yield Plan(f"products-{aspect}", "products", LINEAR, FROZEN, {"aspect": aspect})
    for size in (96, 128, 192):
        for table in ("lesions", "products"):
            yield Plan(f"{table}-{size}", table, LINEAR, FROZEN, size=size)


def models_of(plan: Plan) -> dict[str, Callable[[int], ViewsClassifier]]:
    """By name, each to be built with a seed."""

    def built(name: str) -> Callable[[int], ViewsClassifier]:
        def make(seed: int) -> ViewsClassifier:
            model = build(name, images=plan.images, seed=seed)
            found = model.get_params(deep=True)
            changed = {key: plan.components for key in found if key.split("__")[-1] == "components"}
            return model if plan.components == 0 else model.set_params(**changed)

        return make

    return {name: built(name) for name in plan.models}


def run(plan: Plan, tables: Path, out: Path) -> None:
    file, label, drop = TABLES[plan.table]
    table = read_table(
        tables / file, TableSpec(label=label, image="image", drop=drop, size=plan.size, **plan.read)
    )
    found = compare(table, models_of(plan), folds=plan.folds, by="log_loss")
    results.write(found, out / plan.name, plan.name)
    print(results.markdown(found, plan.name), flush=True)


if __name__ == "__main__":
    tables, out, *names = sys.argv[1:]
    for plan in plans():
        if (not names or plan.name in names) and not (Path(out) / plan.name / "comparison.csv").exists():
            run(plan, Path(tables), Path(out))

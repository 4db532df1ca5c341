"""What each model of a comparison reads of a table."""

from __future__ import annotations

from dataclasses import dataclass

from usboost.datasets.user.user_table import UserTable
from usboost.models.catalogue import catalogue
from usboost.models.catalogue.entry import COMPONENTS, KINDS, Entry
from usboost.multimodal.fit.build import ImageOptions


@dataclass(frozen=True)
class Inputs:
    """What a model reads.

    Attributes
    ----------
    columns : how many columns of the table.
    images : its columns of images; how : as what these are read.
    """

    columns: int
    images: tuple[str, ...] = ()
    how: str = ""

    def __str__(self) -> str:
        if not self.columns and not self.images:
            return "reads nothing"
        found = [f"{self.columns:,} column{'s' * (self.columns != 1)}"] if self.columns else []
        if self.images:
            found.append(f"images in {' and '.join(self.images)} ({self.how})")
        return f"reads {', '.join(found)}"


def inputs(name: str, table: UserTable, options: ImageOptions | None) -> Inputs:
    """What a model reads of a table.

    Parameters
    ----------
    name : of the catalogue; any other reads everything, as `models.baselines.estimators.ScikitBaseline` does.
    options : how images are read, if there are any.
    """
    columns = table.features.shape[1]
    entry = catalogue.CATALOGUE.get(name)
    views = _views(entry)
    if options is None or table.form is None:
        return Inputs(columns if views else 0)
    images = tuple(table.form.columns) if "U" in views else ()
    return Inputs(columns if "S" in views else 0, images, _how(entry, options) if images else "")


def _views(entry: Entry | None) -> set[str]:
    if entry is None:
        return {"U", "S"}
    reads = KINDS[entry.kind].images
    if reads is None:
        return set()
    if reads != "learners":
        return set(entry.changes.get("views", ("U", "S")))
    read = {view for name, spec in entry.learners.items() for view in spec.reads or (name,)}
    return read | set(entry.changes.get("start", ()))


def _how(entry: Entry | None, options: ImageOptions) -> str:
    reads = "components" if entry is None else KINDS[entry.kind].images
    if reads == "components":
        return f"{COMPONENTS} components of frozen embeddings"
    learners = {} if entry is None else entry.learners
    network = reads == "network" or any(
        spec.kind == "network" and "U" in (spec.reads or (name,)) for name, spec in learners.items()
    )
    if network and options.backbone == "small_cnn":
        return "a small network that is trained"
    trained = {"none": "", "last": "embeddings, the last block trained", "all": "a network that is trained"}
    return (network and trained[options.finetune]) or "frozen embeddings"

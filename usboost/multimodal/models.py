"""The catalogue's models with settings for one computer: what `fit` and `compare` train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from usboost.models import builders, zoo
from usboost.models.base import ViewsClassifier
from usboost.models.builders import Parts
from usboost.models.entry import Entry, LearnerSpec

BOOSTING, EPOCHS, TREES = 100, 40, 2000
"""At most so many rounds, epochs and LightGBM trees; the validation rows stop them earlier."""

_TRAINING = {"learning_rate": 0.003, "batch_size": 128}
_TABLE, _PICTURES = (100, 50), (32,)  # widths of networks on a table, and of those after a small CNN


@dataclass(frozen=True)
class Pictures:
    """How models read pictures.

    Attributes
    ----------
    backbone : the network that turns a picture into an embedding.
    finetune : what a model trains of it beside its head: nothing, its last block, or all.
    size : side of the pictures in pixels.
    """

    backbone: str = "tf_efficientnet_lite0"
    finetune: Literal["none", "last", "all"] = "none"
    size: int = 128


def build(
    name: str,
    *,
    pictures: Pictures | bool,
    seed: int = 0,
    rounds: int | None = None,
    learners: Mapping[str, str] | None = None,
) -> ViewsClassifier:
    """An unfitted model.

    Parameters
    ----------
    name : of the catalogue, `zoo.OFFERED` say.
    pictures : whether the view U holds pictures, and how they are read, or the table itself.
    rounds : boosting rounds, epochs or trees at most; by default those above.
    learners : other kinds of learner by name, ``{"S": "regressor"}`` say.

    Raises
    ------
    UsboostError
        If the model is unknown, or does not read such tables.
    """
    entry = zoo.for_table(name)
    if learners:
        entry = entry.changed(name, {}, {learner: {"kind": kind} for learner, kind in learners.items()})
    return builders.build(entry, OneComputer(bool(pictures), rounds), seed)


@dataclass(frozen=True)
class OneComputer(Parts):
    """Parts for a table that one computer fits in minutes, with pictures as U or without."""

    pictures: bool
    rounds: int | None = None

    @property
    def one_table(self) -> bool:  # type: ignore[override]
        return not self.pictures

    def learner(self, spec: LearnerSpec, reads: tuple[str, ...]) -> dict[str, Any]:
        """Warm-started networks, and trees of depth 3."""
        raw = self.pictures and reads == ("U",)  # beside a table pictures are embeddings
        by_kind: dict[str, dict[str, Any]] = {
            "network": {"hidden": _PICTURES if raw else _TABLE, "start": "warm", **_TRAINING},
            "tree": {"max_depth": 3},
        }
        return by_kind.get(spec.kind, {})

    def boosting(self, entry: Entry) -> dict[str, Any]:
        return {"n_rounds": self.rounds or BOOSTING * entry.longer, "patience": 20}

    def two_branch(self) -> dict[str, Any]:
        return {
            "dnn1": _PICTURES if self.pictures else _TABLE,
            "n_epochs": self.rounds or EPOCHS,
            "patience": 8,
            **_TRAINING,
        }

    def features(self) -> dict[str, Any]:
        return {"n_trees": 200, "max_depth": 3}

    def lightgbm(self) -> dict[str, Any]:
        return {"n_trees": self.rounds or TREES}

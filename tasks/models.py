"""The catalogue's models as params.yaml configures them: Tables 1 and 2, a profile, own changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tasks.settings import BoostingSizes, NetworkSizes, Settings, Table1, Table2
from usboost.learners.networks.backbones import Backbone
from usboost.models import builders
from usboost.models.builders import Parts
from usboost.models.entry import Entry, LearnerSpec
from usboost.models.estimator import ViewsEstimator
from usboost.multimodal.models import OneComputer, Pictures


def build(
    name: str, dataset: str, settings: Settings, seed: int, task: str = "classification"
) -> ViewsEstimator:
    """The model called `name` for a dataset, unfitted.

    Parameters
    ----------
    task : of `usboost.models.entry.TASKS`; a `ViewsRegressor` predicts a number.

    Raises
    ------
    UsboostError
        If there is no such model, it is not for the task, or params.yaml's tables have no such dataset.
    """
    found: ViewsEstimator = builders.build(settings.model(name), parts(dataset, settings), seed, task)
    return found


def parts(dataset: str, settings: Settings) -> Parts:
    """What a dataset's models are put together from: for a person's table as the command line has it."""
    if settings.profile == "own" and dataset == "custom":
        return OwnTable(Pictures() if settings.custom.image else None, settings=settings)
    return FromParams(dataset, settings)


class FromParams(Parts):
    """The parts of a dataset's models; a table that has no such dataset refuses when it is asked."""

    def __init__(self, dataset: str, settings: Settings) -> None:
        self.dataset = dataset
        self.settings = settings

    @property
    def has_pictures(self) -> bool:  # type: ignore[override]
        return self._table2.backbone is not None

    def learner(self, spec: LearnerSpec, reads: tuple[str, ...]) -> dict[str, Any]:
        """Table 2's network and tree, with what the profile and `boosting` say; others as they are."""
        table, sizes = self._table2, self.settings.sizes.boosting
        chosen = self.settings.boosting
        by_kind: dict[str, dict[str, Any]] = {
            "network": {
                "hidden": tuple(self._head(table, sizes) or table.dnn),
                "optimizer": sizes.optimizer or table.optimizer,
                "learning_rate": sizes.learning_rate or table.learning_rate,
                "batch_size": sizes.batch_size or table.batch_size,
                "epochs": chosen.epochs_per_round,
                "start": sizes.start or chosen.start,
                "device": self.settings.device,
                "backbone": self._backbone(table, sizes),
            },
            "tree": {"max_depth": table.tree_depth, "engine": chosen.tree_engine},
        }
        return by_kind.get(spec.kind, {})

    def boosting(self, entry: Entry) -> dict[str, Any]:
        """The section `boosting`, and Table 2's rounds, capped by the profile."""
        table, chosen = self._table2, self.settings.boosting
        second = entry.changes.get("target") == "second_order"
        full_length = table.rounds.second if second else table.rounds.first
        return {
            "n_inner": table.n_inner,
            "n_rounds": min(self.settings.sizes.boosting.rounds or full_length, full_length),
            "shrinkage": chosen.shrinkage,
            "sequential": chosen.sequential,
            "step_fraction": chosen.step_fraction,
            "trim": chosen.trim,
            "patience": chosen.patience,
        }

    def steps(self) -> dict[str, Any]:
        """The profile's rule for the steps that are searched, and each rule's settings."""
        chosen = self.settings.boosting
        return {
            "searched": self.settings.sizes.boosting.step,
            "fixed": {"value": chosen.fixed_step},
            "bayes": chosen.bayes.model_dump(),
        }

    def two_branch(self) -> dict[str, Any]:
        """Table 1: the baseline has S itself as the second branch's input, BFV+DNN its features."""
        table, sizes = self.settings.networks_of(self.dataset), self.settings.sizes.networks
        return {
            "dnn1": self._head(table, sizes) or table.dnn1,
            "dnn2": table.dnn2,
            "dnn3": table.dnn3,
            "fusion": table.fusion,
            "optimizer": sizes.optimizer or table.optimizer,
            "learning_rate": sizes.learning_rate or table.learning_rate,
            "batch_size": sizes.batch_size or table.batch_size,
            "patience": self.settings.networks.patience,
            "device": self.settings.device,
            "backbone": self._backbone(table, sizes),
            **_given({"n_epochs": sizes.epochs}),
        }

    def features(self) -> dict[str, Any]:
        """The GBM of the section `features`, with Table 1's number of trees unless the profile has one."""
        chosen, trees = self.settings.features, self.settings.sizes.features.trees
        return {
            "n_trees": trees or self.settings.networks_of(self.dataset).bfv_trees,
            "max_depth": chosen.max_depth,
            "learning_rate": chosen.learning_rate,
            "engine": chosen.engine,
        }

    def lightgbm(self) -> dict[str, Any]:
        """The section `external_baselines`; pictures as the boosting models' backbone embeds them, frozen."""
        return {
            **self.settings.external_baselines.model_dump(),
            "backbone": self._backbone(self._table2, self.settings.sizes.boosting),
            "device": self.settings.device,
        }

    def linear(self) -> dict[str, Any]:
        """The pictures' backbone, as LightGBM has it."""
        backbone = self._backbone(self._table2, self.settings.sizes.boosting)
        return {"backbone": backbone, "device": self.settings.device}

    def forest(self) -> dict[str, Any]:
        """The same."""
        return self.linear()

    def boosted_network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The section `bnn`."""
        chosen = self.settings.bnn
        network = {"hidden": (chosen.hidden,), "epochs": chosen.epochs, "device": self.settings.device}
        return {"loss": chosen.loss, "n_rounds": chosen.rounds}, network

    def weak_classifier(self) -> dict[str, Any]:
        """The section `earlyboost`."""
        chosen = self.settings.earlyboost
        return {"estimator": chosen.estimator, "max_depth": chosen.max_depth}

    @property
    def _table2(self) -> Table2:
        return self.settings.boosting_of(self.dataset)

    def _head(self, table: Table1 | Table2, sizes: NetworkSizes | BoostingSizes) -> list[int] | None:
        """The profile's layers after a backbone."""
        return sizes.head if table.backbone else None

    def _backbone(self, table: Table1 | Table2, sizes: NetworkSizes | BoostingSizes) -> Backbone | None:
        return backbone(table, sizes, self.settings)


def backbone(
    table: Table1 | Table2, sizes: NetworkSizes | BoostingSizes, settings: Settings
) -> Backbone | None:
    """The table's backbone unless the profile names another, which is trained; None for tables."""
    if table.backbone is None:
        return None
    pictures, name = settings.pictures, sizes.backbone or table.backbone
    chosen = table.pretrained if pictures.pretrained is None else pictures.pretrained
    untrained = name == "small_cnn" and not isinstance(chosen, str)
    return Backbone(
        name,
        pretrained=False if untrained else chosen,
        finetune=pictures.finetune or ("all" if sizes.backbone else table.finetune),
        size=pictures.size,
        augment=pictures.augment,
        cache="data/embeddings",
        random=untrained,  # params.yaml names it, and with it what models on embeddings read
    )


@dataclass(frozen=True)
class OwnTable(OneComputer):
    """The command line's parts, with what the profile `own`, `pictures` and `device` say."""

    settings: Settings = field(kw_only=True)

    @property
    def one_table(self) -> bool:  # type: ignore[override]
        return False  # without pictures, U and S are halves of the columns

    def learner(self, spec: LearnerSpec, reads: tuple[str, ...]) -> dict[str, Any]:
        """Of a network: the profile's training, and its layers where it reads pictures alone."""
        given, sizes = super().learner(spec, reads), self.settings.sizes.boosting
        if spec.kind != "network":
            return given
        alone = self.pictures is not None and reads == self.image_views
        changes = {"start": sizes.start, "hidden": tuple(sizes.head or ()) if alone else None}
        return {**given, **_given({**changes, **_training(sizes)}), "device": self.settings.device}

    def boosting(self, entry: Entry) -> dict[str, Any]:
        return {**super().boosting(entry), **_given({"n_rounds": self.settings.sizes.boosting.rounds})}

    def steps(self) -> dict[str, Any]:
        return {**super().steps(), "searched": self.settings.sizes.boosting.step}

    def two_branch(self) -> dict[str, Any]:
        sizes = self.settings.sizes.networks
        changes = {"n_epochs": sizes.epochs, "dnn1": sizes.head, **_training(sizes)}
        return {**super().two_branch(), **_given(changes), "device": self.settings.device}

    def features(self) -> dict[str, Any]:
        return {**super().features(), **_given({"n_trees": self.settings.sizes.features.trees})}

    def lightgbm(self) -> dict[str, Any]:
        return {**super().lightgbm(), "device": self.settings.device}

    def linear(self) -> dict[str, Any]:
        return {**super().linear(), "device": self.settings.device}

    def forest(self) -> dict[str, Any]:
        return {**super().forest(), "device": self.settings.device}

    def _reader(self) -> dict[str, Any]:
        if self.pictures is None:
            return {}
        chosen = self.settings
        return {"backbone": backbone(chosen.boosting_of("custom"), chosen.sizes.boosting, chosen)}


def _training(sizes: NetworkSizes | BoostingSizes) -> dict[str, Any]:
    return {name: getattr(sizes, name) for name in ("optimizer", "learning_rate", "batch_size")}


def _given(changes: dict[str, Any]) -> dict[str, Any]:
    """Those that are not left open."""
    return {name: value for name, value in changes.items() if value}

"""The fits of a dataset, cells, before they begin: models as params.yaml configures them (Tables 1 and 2, a
profile, own changes), and all that decides a fit's result."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks import flow_page as page
from tasks.folders import RESULTS, code_of, prepared_folder, read_record, task_of
from tasks.settings import Settings, TrainingSection, TrainingSizes
from usboost.boosting.checkpoint import described
from usboost.boosting.code import code_digest, digest
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.evaluation.task import Task
from usboost.files import replacing
from usboost.files.arrays import key_of, sha256
from usboost.fit.build import OneComputer, on_device, with_images
from usboost.fit.options import ImageOptions
from usboost.learners.networks.backbones import Backbone
from usboost.models import build as builders
from usboost.models.build import Parts
from usboost.models.entry import Entry, LearnerSpec
from usboost.models.estimator import ViewsEstimator
from usboost.models.methods.boosted_features import BoostedFeatures
from usboost.models.methods.earlyboost import EarlyBoostClassifier
from usboost.table import demo as user_demo
from usboost.table.images import ImageColumns

USER_TABLE = "user_table"  # a user's table among the datasets

READER, READERS_OF_A_TABLE = "usboost.datasets.store", ("usboost.table.prepared", "usboost.fit.table_fit")
"""Read what is prepared, encode or fit it; the code that prepared it is covered by the card's digest."""


@dataclass(frozen=True)
class Cell:
    """One fit of a dataset: a model and a seed.

    Attributes
    ----------
    fingerprint : a digest of everything that decides its result; equal cells have equal ones.
    entry : what the model is; task : what it predicts; estimator : the model, unfitted.
    identity : everything that the fit comes from, as JSON, but not how it is scored.
    """

    dataset: str
    model: str
    seed: int
    fingerprint: str
    settings: Settings = field(compare=False, repr=False)
    entry: Entry = field(compare=False, repr=False)
    task: Task = field(compare=False, repr=False)
    estimator: ViewsEstimator = field(compare=False, repr=False)
    identity: dict[str, Any] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.model}/seed-{self.seed}"

    @property
    def title(self) -> str:
        """The name of its MLflow run and on pages."""
        return f"{self.dataset} {self.model} seed {self.seed}"

    @property
    def results(self) -> Path:
        """The folder of its record, see `tasks.folders`."""
        return RESULTS / self.name

    def is_finished(self) -> bool:
        """Return whether its record is there, and of nothing else than what the cell is now."""
        return (read_record(self.results) or {}).get("fingerprint") == self.fingerprint

    def write(self, record: Path) -> None:
        """Put the files of its record in place, all or none of them."""
        with replacing(self.results) as fresh:
            shutil.copytree(record, fresh, dirs_exist_ok=True)


def plan(dataset: str, model: str, seed: int, settings: Settings) -> Cell:
    """Build a model for a prepared dataset, and gather what decides its fit's result.

    The model's parameters are all that it has of params.yaml, so a setting that does not reach it does not
    change its fingerprint.

    Raises `UsboostError` if the dataset is not prepared, the model is unknown or not for the dataset's task,
    or the weights that params.yaml names are not there.
    """
    entry, task = entry_of(model, dataset, settings), task_of(dataset)
    estimator = build(model, dataset, settings, seed, task.name)
    path = prepared_folder(dataset) / "card.json"
    card = store.read_card(path.parent)
    readers = READERS_OF_A_TABLE if dataset == USER_TABLE else (READER,)
    identity: dict[str, Any] = {"code": code_digest(estimator, *readers), "data": sha256(path)}
    identity |= {"model": described(estimator), "seed": seed}
    weights = settings.images.pretrained
    if isinstance(weights, str) and "images" in card:
        if not Path(weights).is_file():
            raise UsboostError(f"{weights}, images.pretrained of params.yaml, is missing")
        identity["weights"] = sha256(Path(weights))
    scoring = ["tasks.fits.scores"]
    if isinstance(estimator, EarlyBoostClassifier):
        identity["scored"] = settings.earlyboost.model_dump()
        scoring.append("usboost.models.methods.early_trigger")
    if entry.needs_features:
        identity["features"] = features_fingerprint(dataset, seed, settings)
    fingerprint = key_of({**identity, "scoring": digest(code_of(scoring))})
    return Cell(dataset, model, seed, fingerprint, settings, entry, task, estimator, identity)


def grid(dataset: str, chosen: Sequence[str], seeds: int, settings: Settings) -> list[Cell]:
    """Plan every fit of a dataset by some models with the seeds 0 to `seeds` − 1.

    Raises `UsboostError` if the dataset is not prepared, or a model unknown.
    """
    return [plan(dataset, model, seed, settings) for model in dict.fromkeys(chosen) for seed in range(seeds)]


def of_task(dataset: str, names: Sequence[str], settings: Settings) -> list[str]:
    """Return the models that are for the dataset's task; the others are named on the flow run's page."""
    task = task_of(dataset).name
    if left_out := [name for name in names if task not in settings.model(name).tasks]:
        words = f"{dataset} is a {task}, which these models are not for: {', '.join(left_out)}; left out"
        print(words)
        page.log(words)
    return [name for name in names if name not in left_out]


def features_learner(dataset: str, seed: int, settings: Settings) -> BoostedFeatures:
    """Return what fits a GBM on S and gives its boosted feature vectors, as params.yaml configures it."""
    return builders.boosted_features(parts(dataset, settings), seed)


def features_fingerprint(dataset: str, seed: int, settings: Settings) -> str:
    """Digest everything that decides boosted feature vectors: data, GBM, seed and code."""
    learner, chosen = features_learner(dataset, seed, settings), settings.features
    decided = {
        "code": [code_digest(learner, READER), digest(code_of(["tasks.fits.features"]))],
        "data": sha256(prepared_folder(dataset) / "card.json"),
        "model": described(learner),
        "folds": chosen.folds if chosen.out_of_fold else None,
        "seed": seed,
    }
    return key_of(decided)


def build(
    name: str, dataset: str, settings: Settings, seed: int, task: str = "classification"
) -> ViewsEstimator:
    """Build the model called `name` for a dataset, unfitted.

    Raises `UsboostError` if there is no such model, it is not for the task, or params.yaml's tables have no
    such dataset.

    Parameters
    ----------
    task : of `usboost.models.entry.TASKS`; a `ViewsRegressor` predicts a number.
    """
    entry = entry_of(name, dataset, settings)
    model: ViewsEstimator = builders.build(entry, parts(dataset, settings), seed, task)
    own = settings.profile != "paper" and dataset == USER_TABLE
    return on_device(model, settings.device) if own else model


def parts(dataset: str, settings: Settings) -> Parts:
    """Return the parts of a dataset's models; a user's table has the command line's, with `images` and the
    profile's `rounds`."""
    if settings.profile == "paper" or dataset != USER_TABLE:
        return FromParams(dataset, settings)
    views, chosen, rounds = image_views(settings), settings.images, settings.sizes.rounds
    if not views:
        return OneComputer(None, rounds)
    how: Any = chosen.finetune or "auto"
    read = ImageOptions(chosen.backbone or ImageOptions.backbone, how)
    return OwnImages(read, rounds, views, settings=settings)


def entry_of(name: str, dataset: str, settings: Settings) -> Entry:
    """Return a model's entry for a dataset: on a user's table BFV+DNN fits its GBM itself, as elsewhere.

    The stage `features` knows what the papers' datasets are encoded by; of a table each fit learns that.
    """
    entry = settings.model(name)
    if dataset == USER_TABLE and entry.needs_features:
        return entry.changed(entry.name, {"features": "in_sample"})
    return entry


def image_views(settings: Settings) -> tuple[str, ...]:
    """Return the views of a user's images, one for each column of them; none of a table alone."""
    spec = settings.user_table.spec(**(user_demo.SPEC if settings.generated(USER_TABLE) else {}))
    return tuple(ImageColumns.of(spec).names) if spec.image else ()


class FromParams(Parts):
    """The parts of a dataset's models; a table that has no such dataset refuses when it is asked."""

    def __init__(self, dataset: str, settings: Settings) -> None:
        self.dataset, self.settings = dataset, settings
        # a dataset that the tables lack is refused when a part of it is asked for
        backbone = dataset in settings.table2 and settings.table2[dataset].backbone
        papers = ("U",) if backbone else ()
        self._image_views = image_views(settings) if dataset == USER_TABLE else papers
        self.has_images = bool(self._image_views)
        self.one_table = dataset == USER_TABLE and not self.has_images

    def views(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return all views of images for U."""
        several = self.dataset == USER_TABLE and self.has_images
        return with_images(names, self._image_views) if several else super().views(names)

    def learner(self, spec: LearnerSpec, reads: tuple[str, ...]) -> dict[str, Any]:
        """Return Table 2's network and tree, changed by the profile and `boosting`; others unchanged."""
        table, chosen = self.settings.boosting_of(self.dataset), self.settings.boosting
        sizes = self.settings.sizes.boosting
        if spec.kind == "network":
            return {
                "hidden": tuple((table.backbone and sizes.head) or table.dnn),
                **self._training(table, sizes),
                "epochs": chosen.epochs_per_round,
                "start": sizes.start or chosen.start,
            }
        tree = {"max_depth": table.tree_depth, "engine": chosen.tree_engine}
        return tree if spec.kind == "tree" else {}

    def boosting(self, entry: Entry) -> dict[str, Any]:
        """Return the section `boosting`, and Table 2's rounds, capped by the profile."""
        table, chosen = self.settings.boosting_of(self.dataset), self.settings.boosting
        second = entry.changes.get("target") == "second_order"
        most, sizes = table.rounds.second if second else table.rounds.first, self.settings.sizes.boosting
        return {
            "n_inner": table.n_inner,
            "n_rounds": min(sizes.rounds or most, most) * entry.rounds_factor,
            **chosen.model_dump(include={"shrinkage", "sequential", "step_fraction", "patience"}),
            **sizes.model_dump(include={"monitor", "patience", "shrinkage"}, exclude_none=True),
        }

    def steps(self) -> dict[str, Any]:
        """Return the profile's rule for the steps that are searched, and each rule's settings."""
        chosen = self.settings.boosting
        return {
            "searched": self.settings.sizes.boosting.step,
            "fixed": {"value": chosen.fixed_step},
            "bayes": chosen.bayes.model_dump(),
        }

    def two_branch(self) -> dict[str, Any]:
        """Return Table 1: the second branch of the baseline reads S itself, that of BFV+DNN its features."""
        table, sizes = self.settings.networks_of(self.dataset), self.settings.sizes.networks
        several = {"views": (*self._image_views, "S")} if len(self._image_views) > 1 else {}
        return {
            **several,
            "dnn1": (table.backbone and sizes.head) or table.dnn1,
            **table.model_dump(include={"dnn2", "dnn3", "fusion"}),
            **self._training(table, sizes),
            "patience": sizes.patience or self.settings.networks.patience,
            **({"n_epochs": sizes.epochs} if sizes.epochs else {}),
            **({"monitor": f"{sizes.monitor}_val"} if sizes.monitor else {}),
        }

    def features(self) -> dict[str, Any]:
        """Return the GBM of the section `features`, with Table 1's trees unless the profile has a number."""
        chosen, trees = self.settings.features, self.settings.sizes.features.trees
        return {
            "n_trees": trees or self.settings.networks_of(self.dataset).bfv_trees,
            **chosen.model_dump(include={"max_depth", "learning_rate", "engine"}),
        }

    def lightgbm(self) -> dict[str, Any]:
        """Return the section `external_baselines`; images as `linear` has them."""
        return {**self.settings.external_baselines.model_dump(), **self.linear()}

    def linear(self) -> dict[str, Any]:
        """Return the backbone of the boosting models, which embeds images, frozen."""
        backbone = self._backbone(self.settings.boosting_of(self.dataset), self.settings.sizes.boosting)
        return {"backbone": backbone, "device": self.settings.device}

    forest = linear

    def boosted_network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the section `bnn`."""
        chosen = self.settings.bnn
        network = {"hidden": (chosen.hidden,), "epochs": chosen.epochs, "device": self.settings.device}
        return {"loss": chosen.loss, "n_rounds": chosen.rounds}, network

    def weak_classifier(self) -> dict[str, Any]:
        """Return the section `earlyboost`."""
        return self.settings.earlyboost.model_dump(include={"estimator", "max_depth"})

    def _training(self, table: TrainingSection, sizes: TrainingSizes) -> dict[str, Any]:
        """Return how a table's networks are trained, changed by the profile."""
        return {
            "optimizer": sizes.optimizer or table.optimizer,
            "learning_rate": sizes.learning_rate or table.learning_rate,
            "batch_size": sizes.batch_size or table.batch_size,
            "device": self.settings.device,
            "backbone": self._backbone(table, sizes),
        }

    def _backbone(self, table: TrainingSection, sizes: TrainingSizes) -> Backbone | None:
        """Return the table's backbone, or that of `images` or the profile, which is trained."""
        if table.backbone is None:
            return None
        chosen, own = self.settings.images, sizes.backbone
        finetune = chosen.finetune or ("all" if own else table.finetune)
        return backbone(chosen.backbone or own or table.backbone, table.pretrained, finetune, self.settings)


@dataclass(frozen=True)
class OwnImages(OneComputer):
    """The command line's parts, with a backbone by the section `images`."""

    settings: Settings = field(kw_only=True)

    def _reader(self) -> dict[str, Any]:
        assert self.images is not None
        return {"backbone": backbone(self.images.backbone, True, self.images.finetune, self.settings)}


def backbone(name: str, pretrained: bool, finetune: str, settings: Settings) -> Backbone:
    """Make a backbone by the section `images`."""
    images = settings.images
    chosen = pretrained if images.pretrained is None else images.pretrained
    untrained = name == "small_cnn" and not isinstance(chosen, str)
    return Backbone(
        name,
        pretrained=False if untrained else chosen,
        finetune=finetune,
        size=images.size,
        augment=images.augment,
        cache="data/embeddings",
        random=untrained,  # params.yaml names it, and with it what models on embeddings read
    )

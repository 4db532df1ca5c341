"""Models for a user's table, built by name: the catalogue's for one computer, and those of other packages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from usboost.boosting.callbacks import Callback
from usboost.fit.evaluate import Build
from usboost.fit.options import AnswerOptions, FitOptions, ImageOptions
from usboost.fit.record import Keep
from usboost.fit.table_fit import Fitted, TableFit
from usboost.learners.networks.backbones import Backbone
from usboost.models import build as builders
from usboost.models import catalogue
from usboost.models.baselines.packages import outside as build_outside
from usboost.models.build import Parts
from usboost.models.entry import COMPONENTS, KINDS, Entry, LearnerSpec
from usboost.models.settings import with_settings
from usboost.models.sharded import agree_on, refuse
from usboost.shards.collective import world
from usboost.table.user_table import UserTable

BOOSTING, EPOCHS, TREES = 100, 40, 2000
"""At most so many rounds, epochs and LightGBM trees; the validation rows stop them earlier."""
PATIENCE = (20, 0.2)
"""Rounds of boosting without a better score, or that share of the rounds up to the best one."""

_TRAINING = {"learning_rate": 0.003, "batch_size": 128}
_TABLE, _IMAGES = (100, 50), (32,)  # widths of networks on a table, and of those after a small CNN


def build(
    name: str,
    *,
    images: ImageOptions | bool | None,
    image_views: tuple[str, ...] = ("U",),
    seed: int = 0,
    rounds: int | None = None,
    learners: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    task: str = "classification",
) -> Any:
    """Build an unfitted model.

    Raises `UsboostError` if the model is unknown, does not read such tables, or has no such setting.

    Parameters
    ----------
    name : of the catalogue, `catalogue.OFFERED` say.
    images : how images are read; False or None where there are none, and U is the table itself.
    image_views : the views of images; what a model of the catalogue does with U, it does with them.
    rounds : boosting rounds, epochs or trees at most; by default those above.
    learners : other kinds of learner by name, ``{"S": "regressor"}`` say.
    settings : parameters by path, ``{"learners__S__max_depth": 5}`` say.
    task : of `entry.TASKS`; a `ViewsRegressor` predicts a number.
    """
    entry = catalogue.for_table(name, task)
    if isinstance(images, bool):
        images = ImageOptions() if images else None
    if learners or settings:
        kinds = {learner: {"kind": kind} for learner, kind in (learners or {}).items()}
        entry = entry.changed(name, {}, kinds, settings)
    return builders.build(entry, OneComputer(images, rounds, image_views), seed, task)


def with_images(names: Sequence[str], image_views: Sequence[str]) -> tuple[str, ...]:
    """Return the views of an entry's names, of which U stands for all views of images."""
    return tuple(view for name in names for view in (image_views if name == "U" else (name,)))


def on_device(model: Any, device: str) -> Any:
    """Return the model, whose networks train there; see `usboost.learners.networks.train.pick_device`."""
    named = [key for key in model.get_params(deep=True) if key.split("__")[-1] == "device"]
    return model.set_params(**dict.fromkeys(named, device))


def outside(
    name: str,
    *,
    images: ImageOptions | None,
    image_views: tuple[str, ...] = ("U",),
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    task: str = "classification",
) -> Any:
    """Build a model of another package, by its name or import path; see `models.baselines.packages.outside`.

    Its own parameters have paths such as ``estimator__max_depth``.

    Raises `UsboostError` if it is not installed, or there is no such estimator for the task.
    """
    backbone = OneComputer(images)._reader().get("backbone")
    views = ("S",) if images is None else (*image_views, "S")
    made = build_outside(name, task, views=views, backbone=backbone, seed=seed)
    return with_settings(made, settings or {}, name)


def limited(name: str) -> bool:
    """Return whether a limit on rounds means the same for a model as for others, and is set."""
    return name in catalogue.CATALOGUE and KINDS[catalogue.find(name).kind].comparable


def by_name(
    names: Iterable[str],
    *,
    images: ImageOptions | None,
    image_views: tuple[str, ...] = ("U",),
    rounds: int | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    task: str = "classification",
) -> dict[str, Build]:
    """Return what builds each of some models, of the catalogue or of other packages, with a seed.

    Parameters
    ----------
    rounds : at most, of models whose rounds compare.
    settings : parameters by model and path; a model without any stays as it is.
    """

    def of(name: str) -> Build:
        own: dict[str, Any] = {"images": images, "image_views": image_views, "task": task}
        own["settings"] = (settings or {}).get(name)
        if name not in catalogue.CATALOGUE:
            return lambda seed: outside(name, seed=seed, **own)
        most = rounds if limited(name) else None
        return lambda seed: build(name, seed=seed, rounds=most, **own)

    return {name: of(name) for name in names}


@dataclass(frozen=True)
class OneComputer(Parts):
    """Parts for a table that one computer fits in minutes, with images or without."""

    images: ImageOptions | None
    rounds: int | None = None
    image_views: tuple[str, ...] = ("U",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "one_table", self.images is None)
        object.__setattr__(self, "has_images", self.images is not None)

    def views(self, names: Sequence[str]) -> tuple[str, ...]:
        return super().views(names) if self.images is None else with_images(names, self.image_views)

    def learner(self, spec: LearnerSpec, reads: tuple[str, ...]) -> dict[str, Any]:
        alone = reads == self.image_views  # with a table images are embeddings
        network = {"hidden": _IMAGES if self.images and alone else _TABLE, "start": "warm", **_TRAINING}
        parameters = {"network": {**network, **self._reader()}, "tree": {"max_depth": 3}}
        return parameters.get(spec.kind, {})

    def boosting(self, entry: Entry) -> dict[str, Any]:
        rounds = self.rounds or BOOSTING * entry.rounds_factor
        return {"n_rounds": rounds, "patience": PATIENCE, **self._reader()}

    def of(self, kind: str) -> dict[str, Any]:
        network = {
            "views": (*(self.image_views if self.images else ("U",)), "S"),
            "dnn1": _IMAGES if self.images else _TABLE,
            "n_epochs": self.rounds or EPOCHS,
            "patience": 8,
            **_TRAINING,
        }
        reading: dict[str, dict[str, Any]] = {
            "two_branch": network,
            "lightgbm": {"n_trees": self.rounds or TREES, "components": COMPONENTS},
            "linear": {},
            "forest": {},
            "package": {"n_trees": self.rounds} if self.rounds else {},
        }
        if kind in reading:
            return {**reading[kind], **self._reader()}
        return {"n_trees": 200, "max_depth": 3} if kind == "features" else {}

    def _reader(self) -> dict[str, Any]:
        if self.images is None:
            return {}
        name = self.images.backbone
        pretrained = name != "small_cnn"  # which has no published weights
        size: Literal["auto"] | None = "auto" if pretrained and self.images.size == "auto" else None
        return {"backbone": Backbone(name, pretrained, self.images.finetune, size)}


def fit(
    table: UserTable,
    name: str,
    *,
    images: ImageOptions | None = None,
    callbacks: Sequence[Callback] | None = None,
    keep: Keep | None = None,
    **options: Any,
) -> Fitted:
    """Build a model by its name and fit it, see `usboost.fit.table_fit.TableFit`.

    Raises `UsboostError` if the model is unknown, or cannot be fitted to these rows.

    Parameters
    ----------
    name : see `build`.
    images : how the model reads the table's images, if it has any.
    callbacks, keep : of `TableFit`.
    options : the fields of `usboost.fit.options.FitOptions`.
    """
    chosen, read = FitOptions(**options), replace(images or ImageOptions(), size=table.spec.size)
    model = build(
        name,
        images=read if table.images else False,
        image_views=tuple(table.images) or ("U",),
        seed=chosen.seed,
        rounds=chosen.rounds,
        learners=chosen.learners,
        settings=chosen.settings,
        task=table.task,
    )
    if world().count > 1:
        refuse(model, name)
        agree_on(model)
    answers = vars(AnswerOptions.of(vars(chosen)))
    model = on_device(model, chosen.device)
    fitted = TableFit(table, model, name, callbacks=callbacks or (), keep=keep, **answers).run()
    spec = table.spec
    given = {**vars(spec), **vars(read), **vars(chosen), "image": spec.image or None}
    given["drop"] = [*spec.drop, *([spec.weight] if spec.weight else [])]
    return replace(fitted, bundle=fitted.bundle.fitted_with({"model": name, **given}))

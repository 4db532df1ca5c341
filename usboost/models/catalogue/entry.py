"""Entries of the catalogue, and the kinds of models; data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from usboost.errors import UsboostError, choices

Names = tuple[str, ...]

TASKS = ("classification", "regression")
"""What a model may be asked for: classes, or numbers."""

COMPONENTS = 64
"""Principal components of an image's embedding that trees read; see docs/results.md."""


@dataclass(frozen=True)
class Kind:
    """What the models of a kind have in common.

    Attributes
    ----------
    title : in a sentence.
    settings : what an entry may say of itself in `changes`.
    views : whether these models read the views U and S, as a user's table has them.
    comparable : whether a limit on rounds means the same for them as for others; LightGBM's trees and a
        boosted network's rounds are no common measure.
    images : how they read images: by a "network" of their own, by their "learners", as "embeddings" of a
        frozen one, or as "components" of these; None: they read nothing of a row.
    """

    title: str
    settings: Names = ()
    views: bool = True
    comparable: bool = True
    images: str | None = "network"


_EXTERNAL: dict[str, Any] = {"comparable": False}

KINDS = {
    "two_branch": Kind("a two-branch network"),
    "bfv_network": Kind("a network on boosted features", ("features",)),
    "boosting": Kind(
        "a boosting model",
        (
            *("target", "loss", "step", "monitor", "shrinkage", "sequential", "step_fraction", "trim"),
            *("patience", "fixed_step", "bayes", "newton", "learners", "start"),
            *("quantile", "delta", "delta_quantile"),
        ),
        images="learners",
    ),
    "lightgbm": Kind("LightGBM", ("views",), images="components", **_EXTERNAL),
    "linear": Kind("a linear model", ("views",), images="embeddings", **_EXTERNAL),
    "forest": Kind("a random forest", ("views",), images="components", **_EXTERNAL),
    "prior": Kind("the same answer for every row", images=None, **_EXTERNAL),
    "ensemble": Kind("an ensemble", ("members", "folds", "optional"), images="embeddings"),
    "boosted_network": Kind("boosted neural networks", views=False),
    "earlyboost": Kind("an early classifier of sequences", views=False),
}


@dataclass(frozen=True)
class LearnerSpec:
    """A weak learner of an entry.

    Attributes
    ----------
    kind : a kind of learner, "network" or "tree" say.
    reads : the views it reads, side by side in this order; None: the view of its own name. Where there are
        several views of images, U stands for them all.
    parameters : of its constructor, where they make the model what it is.
    without_images : of these, what differs where there are no images.
    """

    kind: str
    reads: Names | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    without_images: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LineStyle:
    """A model's line in figures."""

    colour: str
    marker: str
    dashed: bool = False


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue.

    Attributes
    ----------
    name : in commands, files and params.yaml.
    title : in print.
    about : what it is, in a few words.
    kind : of `KINDS`.
    tasks : of `TASKS`, those that it has an estimator for.
    learners : the weak learners by name, for models that are boosted of them.
    changes : the settings that make it what it is.
    settings : parameters of the built estimator by path, ``learners__S__max_depth`` say; set last.
    rounds_factor : how many times the rounds of others it may need: small steps take more of them.
    compared : whether a comparison that names no models has it.
    external : whether it is another's method, which ours have to beat.
    same_without_images : the entry that it is the same as where both views are one table.
    part : name and title of a part of it that is scored beside it.
    line : its line in figures; None: any that is free.
    figures : those of the paper's layouts that show it: "order" (Figure 3), "learners" (4), "steps" (5).
    caveat : how its scores are to be read.
    """

    name: str
    title: str
    about: str
    kind: str
    learners: Mapping[str, LearnerSpec] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    rounds_factor: int = 1
    tasks: Names = TASKS
    compared: bool = False
    external: bool = False
    same_without_images: str | None = None
    part: tuple[str, str] | None = None
    line: LineStyle | None = None
    figures: Names = ()
    caveat: str = ""

    @property
    def needs_features(self) -> bool:
        """Whether its GBM is fitted before it, see `tasks.fits.features`."""
        return self.changes.get("features") == "staged"

    @property
    def papers_loss(self) -> bool:
        """Whether its risk is the codeword exponential one, so that risks of such models compare."""
        return (
            "loss" in KINDS[self.kind].settings and self.changes.get("loss", "exponential") == "exponential"
        )

    def changed(
        self,
        name: str,
        changes: Mapping[str, Any],
        learners: Mapping[str, Mapping[str, Any]] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Entry:
        """The entry with other settings, under the same name or another.

        Parameters
        ----------
        changes : settings of its kind.
        learners : by name, `kind`, `reads` and parameters that differ; another kind of learner keeps
            nothing of the old one but what it reads.
        settings : parameters of the built estimator by path.

        Raises
        ------
        UsboostError
            If the kind has no such setting, or a new learner has no kind.
        """
        known = KINDS[self.kind].settings
        if unknown := [key for key in (*changes, *(["learners"] if learners else [])) if key not in known]:
            raise UsboostError(
                f"models.{name}.{unknown[0]}: {KINDS[self.kind].title} has no such setting; "
                f"{choices(unknown[0], known, 'it has')}"
            )
        merged = {**self.changes, **changes}
        if "bayes" in changes:
            merged["bayes"] = {**self.changes.get("bayes", {}), **changes["bayes"]}
        mine = {
            **self.learners,
            **{
                key: _learner(self.learners.get(key), given, f"models.{name}.learners.{key}")
                for key, given in (learners or {}).items()
            },
        }
        paths = {**self.settings, **(settings or {})}
        if name == self.name:
            return replace(self, changes=merged, learners=mine, settings=paths)
        # printed under its own name; the entry's description need not hold for it
        return Entry(
            name,
            name,
            f"like {self.title}",
            self.kind,
            mine,
            merged,
            settings=paths,
            rounds_factor=self.rounds_factor,
            tasks=self.tasks,
        )


def _learner(old: LearnerSpec | None, given: Mapping[str, Any], where: str) -> LearnerSpec:
    parameters = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    reads, kind = parameters.pop("reads", None), parameters.pop("kind", None)
    if old is None and kind is None:
        raise UsboostError(f"{where} has no kind of learner; add `kind: tree`, for example")
    if old is not None and kind in (None, old.kind):
        without_images = {key: value for key, value in old.without_images.items() if key not in parameters}
        return LearnerSpec(old.kind, reads or old.reads, {**old.parameters, **parameters}, without_images)
    return LearnerSpec(str(kind), reads or (old.reads if old else None), parameters)

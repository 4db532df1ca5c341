"""Entries of the catalogue, the kinds of models, and settings of models in a file; quick to import.

Settings are values by scikit-learn's path, ``learners__S__max_depth``. A file of them has the form of
params.yaml's `models`, ``crossed: {set: {shrinkage: 0.05}}``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from usboost.errors import UsboostError, choices
from usboost.files.yaml_file import parsed_yaml, read_yaml

Names = tuple[str, ...]

TASKS = ("classification", "regression")
"""Tasks of a model: classes, or numbers."""

COMPONENTS = 64
"""Principal components of an image's embedding that trees read; see docs/results/decisions.md."""


@dataclass(frozen=True)
class Kind:
    """Hold what the models of a kind have in common.

    Attributes
    ----------
    title : in a sentence.
    models : the model's kind in `usboost.models.base.MODELS` by task.
    settings : what an entry may say of itself in `changes`.
    views : whether these models read the views U and S, as a user's table has them.
    comparable : whether a limit on rounds means the same for them as for others; LightGBM's trees and a
        boosted network's rounds are no common measure.
    rounds : whether they are fitted in rounds, of which validation rows choose one.
    images : how they read images: by a "network" of their own, by their "learners", as "embeddings" of a
        frozen one, or as "components" of these; None: they read nothing of a row.
    """

    title: str
    models: Mapping[str, str]
    settings: Names = ()
    views: bool = True
    comparable: bool = True
    rounds: bool = True
    images: str | None = "network"


def _pair(name: str) -> dict[str, str]:
    return {"classification": name, "regression": f"{name}_regressor"}


KINDS = {
    "two_branch": Kind("a two-branch network", _pair("two_branch")),
    "bfv_network": Kind("a network on boosted features", _pair("bfv_network"), ("features",)),
    "boosting": Kind(
        "a boosting model",
        _pair("two_weak_learner"),
        (
            *("target", "loss", "step", "monitor", "shrinkage", "sequential", "step_fraction"),
            *("patience", "fixed_step", "bayes", "newton", "learners", "start"),
            *("quantile", "delta", "delta_quantile"),
        ),
        images="learners",
    ),
    "lightgbm": Kind("LightGBM", _pair("lightgbm"), ("views",), comparable=False, images="components"),
    "linear": Kind(
        "a linear model",
        {"classification": "linear", "regression": "ridge_baseline"},
        ("views",),
        comparable=False,
        rounds=False,
        images="embeddings",
    ),
    "forest": Kind(
        "a random forest", _pair("forest"), ("views",), comparable=False, rounds=False, images="components"
    ),
    "prior": Kind(
        "the same answer for every row", _pair("prior"), comparable=False, rounds=False, images=None
    ),
    "ensemble": Kind(
        "an ensemble", _pair("ensemble"), ("members", "folds", "optional"), rounds=False, images="embeddings"
    ),
    "average": Kind(
        "an average", _pair("average"), ("members", "most_rows"), rounds=False, images="embeddings"
    ),
    "boosted_network": Kind("boosted neural networks", _pair("boosted_network"), views=False),
    "earlyboost": Kind("an early classifier of sequences", {"classification": "earlyboost"}, views=False),
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
    part : name and title of a part of it that is scored with it.
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
        """Tell if its GBM is fitted before it, see `tasks.fits.features`."""
        return self.changes.get("features") == "staged"

    @property
    def papers_loss(self) -> bool:
        """Tell if its risk is the codeword exponential one, so that risks of such models compare."""
        loss = self.changes.get("loss", "exponential") if "loss" in KINDS[self.kind].settings else None
        return loss == "exponential"

    def changed(
        self,
        name: str,
        changes: Mapping[str, Any],
        learners: Mapping[str, Mapping[str, Any]] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> "Entry":
        """Return the entry with other settings, under the same name or another.

        Raises `UsboostError` if the kind has no such setting, or a new learner has no kind.

        Parameters
        ----------
        changes : settings of its kind.
        learners : by name, `kind`, `reads` and parameters that differ; another kind of learner keeps
            nothing of the old one but what it reads.
        settings : parameters of the built estimator by path.
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
        mine = dict(self.learners)
        for key, given in (learners or {}).items():
            mine[key] = _learner(mine.get(key), given, f"models.{name}.learners.{key}")
        paths = {**self.settings, **(settings or {})}
        if name == self.name:
            return replace(self, changes=merged, learners=mine, settings=paths)
        # printed under its own name; the entry's description need not hold for it
        like, factor = f"like {self.title}", self.rounds_factor
        return Entry(name, name, like, self.kind, mine, merged, paths, factor, self.tasks)


def _learner(old: LearnerSpec | None, given: Mapping[str, Any], where: str) -> LearnerSpec:
    parameters = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    reads, kind = parameters.pop("reads", None), parameters.pop("kind", None)
    if old is None and kind is None:
        raise UsboostError(f"{where} has no kind of learner; add `kind: tree`, for example")
    if old is not None and kind in (None, old.kind):
        without_images = {key: value for key, value in old.without_images.items() if key not in parameters}
        return LearnerSpec(old.kind, reads or old.reads, {**old.parameters, **parameters}, without_images)
    return LearnerSpec(str(kind), reads or (old.reads if old else None), parameters)


LIST = "list"
"""In place of a setting: its refusal lists them all."""

Chosen = dict[str, Any]
"""Settings of one model, by path."""


def settings_text(models: Mapping[str, Mapping[str, Any]], comment: str) -> str:
    """Return the text of a file of settings."""
    document = {
        name: {"set": {path: list(v) if isinstance(v, tuple) else v for path, v in chosen.items()}}
        for name, chosen in models.items()
    }
    return f"# {' '.join(comment.split())}\n" + yaml.safe_dump(
        {"models": document}, sort_keys=False, allow_unicode=True
    )


def read_settings(path: Path) -> dict[str, Chosen]:
    """Read settings by model and path. Raises `UsboostError` if the file is missing or of another form."""
    document = read_yaml(path, "name a file that usboost tune wrote")
    models = document.get("models") if isinstance(document, dict) else None
    if not isinstance(models, dict):
        raise UsboostError(f"{path} has no key 'models'; write 'models:', models below, and 'set:' in each")
    settings = {}
    for name, given in models.items():
        chosen = (given or {}).get("set") or {} if isinstance(given, dict | None) else None
        if not isinstance(chosen, dict):
            raise UsboostError(f"{path}: models.{name}: write `set:` and parameters below it")
        settings[str(name)] = {str(key): value for key, value in chosen.items()}
    return settings


def parsed_settings(given: Sequence[str] | None) -> Chosen:
    """Parse ``["shrinkage=0.05"]`` to a mapping of path to value, which is YAML.

    Raises `UsboostError` if one is not of that form.
    """
    settings = {}
    for each in given or ():
        if each == LIST:
            return {LIST: None}
        path, equals, value = each.partition("=")
        if not (path and equals):
            given, example = f"`set={each!r}`", "`set=shrinkage=0.1`"
            raise UsboostError(f"{given} sets nothing; write {example}, say")
        settings[path.strip()] = parsed_yaml(value, f"`set={path}`")
    return settings

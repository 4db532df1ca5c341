"""The catalogue of models: name, title, description, kind, settings and colour of each.

Data only, quick to import; `usboost.models.build` makes estimators from it. This file holds the
settings that define a model; all others come from the parts that it is built from.
"""

from collections.abc import Iterable
from typing import Any

from usboost.errors import UsboostError, choices
from usboost.models.entry import COMPONENTS, KINDS, TASKS, Entry, LearnerSpec, LineStyle


def _other(name: str, title: str, what: str, kind: str, *views: str, **more: Any) -> Entry:
    """Describe another's method, which reads these views and which ours are compared with."""
    reads = {0: "", 1: " on the structured columns", 2: " on everything, images as frozen embeddings"}
    changes = {"views": views} if views else {}
    about = what + reads[len(views)]
    return Entry(name, title, about, kind, changes=changes, compared=True, external=True, **more)


_CLASSES, _NUMBERS = ("classification",), ("regression",)
_NETWORK, _TREE = LearnerSpec("network"), LearnerSpec("tree")
_BOTH = {"U": _NETWORK, "S": _TREE}
_GROWING = LearnerSpec("tree", without_images={"rows_per_leaf": 550})
_BNN = {"hidden": (16,), "optimizer": "adam", "learning_rate": 0.01, "batch_size": 32, "epochs": 30}
_SHRUNK = {"step": "newton", "shrinkage": 0.3}
_LOGISTIC = {"target": "newton", "loss": "cross_entropy", "step": "newton", "monitor": "risk"}
_FOREST = {"members__forest__max_features": 1 / 3}
_MEMBERS = _FOREST | {
    "members__lgbm__feature_fraction": 0.5,
    "members__lgbm__lambda_l2": 1.0,
    "members__lgbm__learning_rate": 0.025,
    "members__lgbm__num_leaves": 64,
}
"""Set members of an ensemble otherwise than alone: the first three help on all tables tried, the others where
there are many rows, see docs/results/decisions.md."""

_ENTRIES = (
    _other("baseline", "Baseline", "two-branch network", "two_branch", line=LineStyle("#7a828e", "s")),
    Entry(
        "bfv_dnn",
        "BFV+DNN",
        "two-branch network on boosted feature vectors",
        "bfv_network",
        changes={"features": "staged"},
        compared=True,
        part=("gbm", "GBM alone"),
        line=LineStyle("#cc8a00", "D"),
        caveat="The published features are leaf values of a GBM that has the same training rows. Where these "
        "are few, or the columns say little, it has learnt their labels by heart, and the network relies on "
        "that. Features made in folds do not: features: out_of_fold.",
    ),
    Entry(
        "2wl",
        "2WL",
        "two-weak-learner boosting",
        "boosting",
        _BOTH,
        compared=True,
        line=LineStyle("#0072b2", "o"),
        figures=("order", "learners", "steps"),
    ),
    Entry(
        "2wl_fix",
        "2WL_Fix",
        "two-weak-learner boosting with fixed steps",
        "boosting",
        _BOTH,
        {"step": "fixed"},
        # a fixed-step model has a paler colour than its searched one, and the same marker
        line=LineStyle("#56b4e9", "o", dashed=True),
        figures=("steps",),
    ),
    Entry(
        "2wl2o",
        "2WL2O",
        "two-weak-learner boosting, second order as published",
        "boosting",
        _BOTH,
        # its learners are ten times smaller
        {"target": "second_order", "bayes": {"bounds": (0.0, 100.0)}},
        tasks=_CLASSES,  # the papers' expansion is that of their exponential loss
        line=LineStyle("#d55e00", "^"),
        figures=("order", "learners", "steps"),
    ),
    Entry(
        "2wl2o_fix",
        "2WL2O_Fix",
        "the same with fixed steps",
        "boosting",
        _BOTH,
        {"target": "second_order", "step": "fixed"},
        tasks=_CLASSES,
        line=LineStyle("#f2a07b", "^", dashed=True),
        figures=("steps",),
        caveat="With both steps fixed, the published second-order target is about a tenth of the first-order "
        "one and is then multiplied by the same step, so the model moves about ten times less per round than "
        "2WL_Fix. So a lower score is due to the shorter step rather than to the second order.",
    ),
    Entry(
        "1wl_s",
        "1WL_S",
        "boosted trees alone",
        "boosting",
        {"S": _TREE},
        line=LineStyle("#009e73", "v"),
        figures=("learners",),
    ),
    Entry(
        "1wl_u",
        "1WL_U",
        "boosted networks alone",
        "boosting",
        {"U": _NETWORK},
        line=LineStyle("#c0669b", "d"),
        figures=("learners",),
    ),
    _other("lgbm_s", "LightGBM on S", "LightGBM", "lightgbm", "S", same_without_images="lgbm"),
    _other("lgbm", "LightGBM on all", "LightGBM", "lightgbm", "U", "S"),
    _other("logistic", "Logistic regression", "logistic regression", "linear", "U", "S", tasks=_CLASSES),
    _other("ridge", "Ridge regression", "ridge regression", "linear", "U", "S", tasks=_NUMBERS),
    _other("forest", "Random forest", "a random forest", "forest", "U", "S"),
    _other(
        "prior", "Prior", "the training rows' shares of the classes, or their mean, for every row", "prior"
    ),
    # ours; see docs/methods.md and docs/results/decisions.md
    Entry(
        "2wl_newton",
        "2WL-Newton",
        "two-weak-learner boosting along the exact Newton direction",
        "boosting",
        _BOTH,
        {"target": "newton", **_SHRUNK},
    ),
    Entry(
        "2wl_logistic",
        "2WL-Logistic",
        "two-weak-learner boosting on cross-entropy",
        "boosting",
        _BOTH,
        {**_LOGISTIC, "shrinkage": 0.3},
        tasks=_CLASSES,  # with the squared loss it is `2wl_newton`
        compared=True,
    ),
    Entry(
        "3wl",
        "3WL",
        "two-weak-learner boosting with another tree that reads everything",
        "boosting",
        {**_BOTH, "both": LearnerSpec("tree", ("S", "U"))},
        _SHRUNK,
    ),
    Entry(
        "crossed",
        "Crossed",
        "a network and a leaf-wise tree that both read everything, boosted on cross-entropy",
        "boosting",
        {
            # embeddings take more batches to learn from; by as many a small table is learnt by heart
            "U": LearnerSpec(
                "network",
                ("U", "S"),
                {"hidden": (32,), "start": "fresh", "batches_per_round": (50, 200)},
                without_images={"batches_per_round": (10, 200)},
            ),
            "S": LearnerSpec(
                "tree",
                ("S", "U"),
                {"max_depth": 12, "max_leaves": 8, "category_l2": 30.0, "feature_fraction": 0.5}
                | {"components": COMPONENTS},
                without_images={"max_leaves": 64, "category_l2": 300.0},
            ),
        },
        # for a network that knows few rows by heart no step on them is too long
        {**_LOGISTIC, "shrinkage": 0.1, "newton": {"limit": 2.0}, "step_fraction": "wide"},
        rounds_factor=10,
        compared=True,
    ),
    Entry(
        "linear_trees",
        "Linear + trees",
        "trees on the table, boosted from a linear model of everything",
        "boosting",
        {"S": _GROWING},
        {**_LOGISTIC, "shrinkage": 0.1, "start": ("U", "S")},
        rounds_factor=10,
        compared=True,
    ),
    Entry(
        "2wl_ridge",
        "2WL-Ridge",
        "two-weak-learner boosting of ridge regression on everything and a tree on the table",
        "boosting",
        {"U": LearnerSpec("ridge", ("U", "S")), "S": _TREE},
        {**_LOGISTIC, "target": "gradient", "shrinkage": 0.3},
        compared=True,
    ),
    Entry(
        "best",
        "Best",
        "several models fitted to folds, their scores weighted by what they tell of unseen rows",
        "ensemble",
        changes={"members": ("linear_trees", "2wl_ridge", "lgbm", "forest", "crossed"), "folds": 5}
        | {"optional": ("catboost", "tabpfn", "tabicl")},  # where they are installed
        settings={**_MEMBERS, "repeats": 3},
        rounds_factor=5,
    ),
    Entry(
        "average",
        "Average",
        "the weighted mean of the scores of linear_trees, crossed and, of a small table, a random forest",
        "average",
        changes={"members": ("linear_trees", "crossed", "forest"), "most_rows": {"forest": 20_000}},
        settings=_FOREST,
        rounds_factor=10,
        compared=True,
    ),
    # the other two papers'
    Entry(
        "bnn", "BNN", "boosted neural networks", "boosted_network", {"x": LearnerSpec("network", None, _BNN)}
    ),
    Entry(
        "earlyboost", "Earlyboost", "boosting that can answer after any frame", "earlyboost", tasks=_CLASSES
    ),
    # what images are measured against
    Entry(
        "linear_trees_s",
        "Linear + trees on S",
        "trees on the structured columns, boosted from a linear model of them",
        "boosting",
        {"S": _GROWING},
        {**_LOGISTIC, "shrinkage": 0.1, "start": ("S",)},
        rounds_factor=10,
        compared=True,
        same_without_images="linear_trees",
    ),
    _other(
        *("logistic_s", "Logistic regression on S", "logistic regression", "linear", "S"),
        tasks=_CLASSES,
        same_without_images="logistic",
    ),
    _other(
        *("ridge_s", "Ridge regression on S", "ridge regression", "linear", "S"),
        tasks=_NUMBERS,
        same_without_images="ridge",
    ),
)

CATALOGUE = {entry.name: entry for entry in _ENTRIES}
"""Every model by name, in the order of the tables."""

PRIOR = "prior"
"""The model that every other has to be better than."""

BASELINE = "baseline"
"""The reference of relative improvements."""

WITHOUT_IMAGES = tuple(e.name for e in _ENTRIES if e.same_without_images)
"""Models of the columns alone; by the best of them a user sees whether images help."""

OFFERED_FOR = {
    task: tuple(e.name for e in _ENTRIES if task in e.tasks and KINDS[e.kind].views) for task in TASKS
}
"""The models listed for a user's table, by task."""

OFFERED = OFFERED_FOR["classification"]
"""Those for labels."""

DEFAULT = "average"
"""The model of those who name none."""
PRESETS = {"fast": "linear_trees", "best": "best"}
"""Models by what a user wants of them."""
FAST_ALONE = "crossed"
"""The fast one for classes of a table without images, where a linear model is no start to rely on."""

_PARTS = {entry.part[0]: entry for entry in _ENTRIES if entry.part}
_TITLES = dict(named for e in _ENTRIES for named in ((e.name, e.title), e.part) if named)


def find(name: str) -> Entry:
    """Return the entry of that name. Raises `UsboostError` if it is unknown."""
    if name not in CATALOGUE:
        raise UsboostError(f"unknown model {name!r}; {choices(name, list(CATALOGUE))}")
    return CATALOGUE[name]


def for_table(name: str, task: str = "classification") -> Entry:
    """Return the entry of that name, if it reads a user's table and has an estimator for the task.

    Raises `UsboostError` if it is unknown, is for other data, or is not for this task, one of `entry.TASKS`.
    """
    choose, entry = f"choose among {', '.join(OFFERED_FOR[task])}", CATALOGUE.get(name)
    if entry is None:
        raise UsboostError(f"unknown model {name!r}; {choices(name, OFFERED_FOR[task])}")
    if not KINDS[entry.kind].views:
        raise UsboostError(f"{name}, {entry.about}, does not read a table like this; {choose}")
    if task not in entry.tasks:
        raise UsboostError(f"{name}, {entry.about}, is not for {task}; {choose}")
    return entry


def resolve_model(
    model: str | None,
    preset: str | None,
    limited: bool = False,
    *,
    images: bool = True,
    task: str = "classification",
) -> str:
    """Return the name of the model that a user chooses by its name, by a preset, or not at all.

    Raises `UsboostError` if both are given, or there is no such preset.

    Parameters
    ----------
    model : its name; preset : of `PRESETS`.
    limited : whether there is a limit of time, which the default model then makes the most of.
    images : whether the table has any; task : of `usboost.models.entry.TASKS`.
    """
    if model is not None and preset is not None:
        raise UsboostError(f"the model {model} and the preset {preset} are given; leave one of them out")
    if preset is not None and preset not in PRESETS:
        raise UsboostError(f"unknown preset {preset!r}; choose among {', '.join(PRESETS)}")
    alone = preset == "fast" and not images and task == "classification"
    wanted = preset or ("best" if limited else None)
    return model or (FAST_ALONE if alone else PRESETS[wanted] if wanted else DEFAULT)


def compared(one_table: bool, task: str = "classification") -> list[str]:
    """Return the default models of a comparison; without images, one of those that are then the same."""
    own = [e for e in _ENTRIES if e.compared and task in e.tasks]
    return [e.name for e in own if not (one_table and e.same_without_images)]


def title(name: str) -> str:
    """Return the title of a model, or of a part that is scored too; its name if it is unknown."""
    return _TITLES.get(name, name)


def about(name: str) -> str:
    """Return a short description of a model."""
    return CATALOGUE[name].about if name in CATALOGUE else "a model"


def model_with_part(name: str) -> Entry | None:
    """Return the model that has a part of that name."""
    return _PARTS.get(name)


def with_parts(names: Iterable[str]) -> list[str]:
    """Return the names with those of the parts that are scored with these models."""
    expanded = []
    for name in names:
        entry = CATALOGUE.get(name)
        expanded += [name, entry.part[0]] if entry and entry.part else [name]
    return expanded


def ordered(names: Iterable[str]) -> list[str]:
    """Return names without repetition: the known ones in the tables' order, then the others as given."""
    given = list(dict.fromkeys(names))
    return [name for name in _TITLES if name in given] + [name for name in given if name not in _TITLES]


OTHERS = (
    *("#882255", "#44aa99", "#999933", "#6a3fb5", "#cc6677", "#117733", "#a0522d", "#332288"),
    *("#444444", "#e6007e", "#5aa700", "#00a5c4", "#b8a100", "#c0392b", "#8b6fd8", "#3f6f7f"),
    *("#b51ec5", "#7f5539", "#2f4f9f", "#6b6b00", "#ff7f7f", "#00695c", "#9e9e9e", "#b71c5c"),
)
"""Colours of models that the catalogue gives no line; those of lines are Okabe and Ito's, too."""


def model_colour(name: str) -> str | None:
    """Return a colour that no other model of the catalogue has, that of its line; None of another model."""
    lines = {entry.name: entry.line.colour for entry in CATALOGUE.values() if entry.line}
    others = zip((name for name in CATALOGUE if name not in lines), OTHERS)
    return {**lines, **dict(others)}.get(name)

"""The catalogue of models: what each is, how it is called in print, and of which kind it is.

Data alone, quick to import; `usboost.models.builders` makes estimators of it. Of a model's settings this
file holds those that make it what it is; all others are the parts that it is built from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from usboost.errors import UsboostError

Names = tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """What the models of a kind have in common.

    Attributes
    ----------
    title : in a sentence.
    settings : what an entry may say of itself in `changes`.
    views : whether these models read the views U and S, as a person's table has them.
    stage : the list of params.yaml's `run` whose stage fits these models.
    comparable : whether a limit on rounds means the same for them as for others; LightGBM's trees and a
        boosted network's rounds are no common measure.
    """

    title: str
    settings: Names = ()
    views: bool = True
    stage: str | None = None
    comparable: bool = True


KINDS = {
    "two_branch": Kind("a two-branch network"),
    "bfv_network": Kind("a network on boosted features", ("features",)),
    "boosting": Kind(
        "a boosting model",
        (
            *("target", "loss", "step", "monitor", "shrinkage", "sequential", "step_fraction", "trim"),
            *("patience", "fixed_step", "bayes", "learners"),
        ),
        stage="boosting",
    ),
    "lightgbm": Kind("LightGBM", ("views",), stage="external_baselines", comparable=False),
    "boosted_network": Kind("boosted neural networks", views=False),
    "earlyboost": Kind("an early classifier of sequences", views=False),
}


@dataclass(frozen=True)
class LearnerSpec:
    """A weak learner of an entry.

    Attributes
    ----------
    kind : a kind of learner, "network" or "tree" say.
    reads : the views it reads, side by side in this order; None: the view of its own name.
    parameters : of its constructor, where they make the model what it is.
    """

    kind: str
    reads: Names | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
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
    learners : the weak learners by name, for models that are boosted of them.
    changes : the settings that make it what it is.
    longer : how many times the rounds of others it may need: small steps take more of them.
    compared : whether a comparison that names no models has it.
    study : whether it is another model with one change, there to measure that change alone.
    external : whether it is another's method, which ours have to beat.
    twin : the entry that it is the same as where both views are one table.
    part : name and title of a part of it that is scored beside it.
    look : its line in figures; None: any that is free.
    figures : those of the paper's layouts that show it: "order" (Figure 3), "learners" (4), "steps" (5).
    caveat : how its scores are to be read.
    """

    name: str
    title: str
    about: str
    kind: str
    learners: Mapping[str, LearnerSpec] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    longer: int = 1
    compared: bool = False
    study: bool = False
    external: bool = False
    twin: str | None = None
    part: tuple[str, str] | None = None
    look: Look | None = None
    figures: Names = ()
    caveat: str = ""

    @property
    def needs_features(self) -> bool:
        """Whether the stage `features` fits its GBM beforehand."""
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
    ) -> Entry:
        """The entry with other settings, under the same name or another.

        Parameters
        ----------
        changes : settings of its kind.
        learners : by name, `kind`, `reads` and parameters that differ; another kind of learner keeps
            nothing of the old one but what it reads.

        Raises
        ------
        UsboostError
            If the kind has no such setting, or a new learner has no kind.
        """
        known = KINDS[self.kind].settings
        if unknown := [key for key in (*changes, *(["learners"] if learners else [])) if key not in known]:
            raise UsboostError(
                f"models.{name}.{unknown[0]}: {KINDS[self.kind].title} has no such setting; "
                f"it has {', '.join(known) or 'none'}"
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
        if name == self.name:
            return replace(self, changes=merged, learners=mine)
        # printed under its own name; what is said of the entry need not hold for it
        return Entry(name, name, f"like {self.title}", self.kind, mine, merged, self.longer)


def _learner(old: LearnerSpec | None, given: Mapping[str, Any], where: str) -> LearnerSpec:
    parameters = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    reads, kind = parameters.pop("reads", None), parameters.pop("kind", None)
    if old is None and kind is None:
        raise UsboostError(f"{where} says no kind of learner; write kind: tree, say")
    if old is not None and kind in (None, old.kind):
        return LearnerSpec(old.kind, reads or old.reads, {**old.parameters, **parameters})
    return LearnerSpec(str(kind), reads or (old.reads if old else None), parameters)


def _network(*reads: str, **parameters: Any) -> LearnerSpec:
    return LearnerSpec("network", reads or None, parameters)


def _tree(*reads: str, **parameters: Any) -> LearnerSpec:
    return LearnerSpec("tree", reads or None, parameters)


_BOTH = {"U": _network(), "S": _tree()}
_EXACT = {"step": "newton"}
_SHRUNK = {"step": "newton", "shrinkage": 0.3}
_LOGISTIC = {"target": "newton", "loss": "cross_entropy", "step": "newton", "monitor": "risk"}

_ENTRIES = (
    Entry(
        "baseline",
        "Baseline",
        "two-branch network",
        "two_branch",
        compared=True,
        external=True,
        look=Look("#7a828e", "s"),
    ),
    Entry(
        "bfv_dnn",
        "BFV+DNN",
        "two-branch network on boosted feature vectors",
        "bfv_network",
        changes={"features": "staged"},
        compared=True,
        part=("gbm", "GBM alone"),
        look=Look("#cc8a00", "D"),
    ),
    Entry(
        "2wl",
        "2WL",
        "two-weak-learner boosting",
        "boosting",
        _BOTH,
        compared=True,
        look=Look("#0072b2", "o"),
        figures=("order", "learners", "steps"),
    ),
    Entry(
        "2wl_fix",
        "2WL_Fix",
        "two-weak-learner boosting with fixed steps",
        "boosting",
        _BOTH,
        {"step": "fixed"},
        # a fixed-step model has the colour of its searched one
        look=Look("#0072b2", "o", dashed=True),
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
        look=Look("#d55e00", "^"),
        figures=("order", "learners", "steps"),
    ),
    Entry(
        "2wl2o_fix",
        "2WL2O_Fix",
        "the same with fixed steps",
        "boosting",
        _BOTH,
        {"target": "second_order", "step": "fixed"},
        look=Look("#d55e00", "^", dashed=True),
        figures=("steps",),
        caveat="With both steps fixed, the published second-order target is about a tenth of the first-order "
        "one and is then multiplied by the same step, so the model moves about ten times less per round than "
        "2WL_Fix. A lower score of it says more about that shorter step than about the second order.",
    ),
    Entry(
        "1wl_s",
        "1WL_S",
        "boosted trees alone",
        "boosting",
        {"S": _tree()},
        look=Look("#009e73", "v"),
        figures=("learners",),
    ),
    Entry(
        "1wl_u",
        "1WL_U",
        "boosted networks alone",
        "boosting",
        {"U": _network()},
        look=Look("#c0669b", "d"),
        figures=("learners",),
    ),
    Entry(
        "lgbm_s",
        "LightGBM on S",
        "LightGBM on the structured columns",
        "lightgbm",
        changes={"views": ("S",)},
        compared=True,
        external=True,
        twin="lgbm",
    ),
    Entry(
        "lgbm",
        "LightGBM on all",
        "LightGBM on everything, pictures as frozen embeddings",
        "lightgbm",
        changes={"views": ("U", "S")},
        compared=True,
        external=True,
    ),
    # ours; docs/methods.md says what they are, docs/results.md what they are worth
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
        compared=True,
    ),
    Entry(
        "3wl",
        "3WL",
        "two-weak-learner boosting with a further tree that sees everything",
        "boosting",
        {**_BOTH, "both": _tree("S", "U")},
        _SHRUNK,
    ),
    Entry(
        "crossed",
        "Crossed",
        "a network and a leaf-wise tree that both see everything, boosted on cross-entropy",
        "boosting",
        {
            "U": _network("U", "S"),
            "S": _tree("S", "U", max_depth=12, max_leaves=31, category_l2=300.0),
        },
        {**_LOGISTIC, "shrinkage": 0.1},
        longer=5,
        compared=True,
    ),
    # 2wl with one change each
    Entry(
        "2wl_exact",
        "2WL, exact steps",
        "2WL with exact steps",
        "boosting",
        _BOTH,
        _EXACT,
        study=True,
    ),
    Entry(
        "2wl_shrunk",
        "2WL, shrinkage 0.3",
        "2WL with exact steps, each cut to 0.3 of it",
        "boosting",
        _BOTH,
        _SHRUNK,
        study=True,
    ),
    Entry(
        "2wl_held_out",
        "2WL, steps on held-out rows",
        "2WL with exact steps on rows that the learners do not see",
        "boosting",
        _BOTH,
        {**_EXACT, "step_fraction": 0.2},
        study=True,
    ),
    Entry(
        "2wl_tree_first",
        "2WL, tree first",
        "2WL whose network is fitted to what the tree has left",
        "boosting",
        {"S": _tree(), "U": _network()},
        {**_EXACT, "sequential": True},
        study=True,
    ),
    Entry(
        "2wl_warm",
        "2WL, warm networks",
        "2WL whose networks go on from the last round's",
        "boosting",
        {"U": _network(start="warm"), "S": _tree()},
        _EXACT,
        study=True,
    ),
    Entry(
        "2wl_bayes",
        "2WL, Bayesian steps",
        "2WL with the paper's search of the steps",
        "boosting",
        _BOTH,
        {"step": "bayes"},
        study=True,
    ),
    # bfv_dnn with another input of the network; each fits its own GBM
    Entry(
        "bfv_dnn_oof",
        "BFV+DNN, out of fold",
        "two-branch network on the leaf values of GBMs that never saw the row",
        "bfv_network",
        changes={"features": "out_of_fold"},
        study=True,
    ),
    Entry(
        "leaf_dnn",
        "LightGBM's leaves, embedded",
        "two-branch network on the numbers of a GBM's leaves, embedded",
        "bfv_network",
        changes={"features": "leaf_numbers"},
        external=True,
    ),
    # the other two papers'
    Entry(
        "bnn",
        "BNN",
        "boosted neural networks",
        "boosted_network",
        {"x": _network(hidden=(16,), optimizer="adam", learning_rate=0.01, batch_size=32, epochs=30)},
    ),
    Entry("earlyboost", "Earlyboost", "boosting that answers after any frame", "earlyboost"),
)

CATALOGUE = {entry.name: entry for entry in _ENTRIES}
"""Every model by name, in the order of the tables."""

BASELINE = "baseline"
"""The model that others' improvements are over."""

OFFERED = tuple(entry.name for entry in _ENTRIES if KINDS[entry.kind].views and not entry.study)
"""The models that help names for a person's table; those of the study can be had, too."""

_PARTS = {entry.part[0]: entry for entry in _ENTRIES if entry.part}
_TITLES = dict(named for e in _ENTRIES for named in ((e.name, e.title), e.part) if named)


def find(name: str) -> Entry:
    """The entry of that name.

    Raises
    ------
    UsboostError
        If there is none.
    """
    if name not in CATALOGUE:
        raise UsboostError(f"there is no model {name!r}; choose among {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def for_table(name: str) -> Entry:
    """The entry of that name, if it reads a person's table.

    Raises
    ------
    UsboostError
        If there is none, or it is for data of another form.
    """
    choose = f"choose among {', '.join(OFFERED)}"
    if name not in CATALOGUE:
        raise UsboostError(f"there is no model {name!r}; {choose}")
    if not KINDS[CATALOGUE[name].kind].views:
        raise UsboostError(f"{name}, {CATALOGUE[name].about}, does not read a table like this; {choose}")
    return CATALOGUE[name]


def compared(one_table: bool) -> list[str]:
    """The models of a comparison that names none; of those that one table makes the same, one."""
    return [e.name for e in _ENTRIES if e.compared and not (one_table and e.twin)]


def title(name: str) -> str:
    """How a model, or a part that is scored beside one, is called in print; an unknown one by its name."""
    return _TITLES.get(name, name)


def about(name: str) -> str:
    """What a model is, in a few words."""
    return CATALOGUE[name].about if name in CATALOGUE else "a model"


def whole(name: str) -> Entry | None:
    """The model that a part of that name is in."""
    return _PARTS.get(name)


def with_parts(names: Iterable[str]) -> list[str]:
    """The names with those of the parts that are scored beside these models."""
    found = []
    for name in names:
        entry = CATALOGUE.get(name)
        found += [name, entry.part[0]] if entry and entry.part else [name]
    return found


def ordered(names: Iterable[str]) -> list[str]:
    """Names without repetition: the known ones in the tables' order, then the others as given."""
    given = list(dict.fromkeys(names))
    return [name for name in _TITLES if name in given] + [name for name in given if name not in _TITLES]

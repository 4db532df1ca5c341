"""Estimators from the catalogue's entries; what an entry leaves open comes from the parts given."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from usboost.errors import UsboostError, choices
from usboost.learners.base import LEARNERS, Learner
from usboost.losses.regression import REGRESSION_LOSSES
from usboost.models import catalogue
from usboost.models.base import MODELS
from usboost.models.baselines.packages import installed
from usboost.models.entry import KINDS, Entry, LearnerSpec
from usboost.models.methods.boosted_features import BoostedFeatures
from usboost.models.settings import converted, with_settings


class Parts:
    """Parameters of the classes that models are put together from; by default the classes' own.

    A side overrides what it knows better: `tasks.fits.models` from params.yaml, `usboost.fit.build`
    for one computer. A part is read by the models that have it, so it may refuse.

    A subclass may also give the parameters of a class, by a method of no arguments that is called as the
    model's kind: ``two_branch``, ``lightgbm``, ``linear``, ``forest``, ``features`` (of `BoostedFeatures`)
    and ``package`` (of `PackageClassifier`).

    Attributes
    ----------
    one_table : whether the views U and S are the same table, which nothing then reads twice.
    has_images : whether a view may hold images.
    """

    one_table: bool = False
    has_images: bool = True

    def of(self, kind: str) -> dict[str, Any]:
        """Return the parameters of a class, by the method that is called as its kind, if there is one."""
        return getattr(self, kind, dict)()

    def views(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the views that an entry's names stand for: of one table alone the first, else all."""
        return tuple(names[:1] if self.one_table else names)

    def learner(self, spec: LearnerSpec, reads: tuple[str, ...]) -> dict[str, Any]:
        """Return the parameters of a round's weak learner of this kind that reads these views."""
        return {}

    def boosting(self, entry: Entry) -> dict[str, Any]:
        """Return those of `TwoWeakLearnerClassifier`, without learners and steps; of them a regressor takes
        what it knows."""
        return {}

    def steps(self) -> dict[str, Any]:
        """Return "searched", the rule of entries that leave it open, and settings of "fixed" and "bayes"."""
        return {"searched": "newton", "fixed": {}, "bayes": {}}

    def boosted_network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return those of `BoostedNetworkClassifier`, and of its network."""
        return {}, {}

    def weak_classifier(self) -> dict[str, Any]:
        """Return Earlyboost's "estimator", tree or logistic, and the tree's "max_depth"."""
        return {"estimator": "tree", "max_depth": 3}


def build(model: Entry | str, parts: Parts | None = None, seed: int = 0, task: str = "classification") -> Any:
    """Build an unfitted estimator, a `ViewsClassifier` or a `ViewsRegressor`.

    Raises `UsboostError` if there is no such model, it has no estimator for the task, there is no such kind
    of learner, the parts lack what it needs, or the entry sets what the model does not have.

    Parameters
    ----------
    model : an entry, or the name of one.
    parts : what it is put together from; by default the classes' own settings.
    task : of `usboost.models.entry.TASKS`.
    """
    entry = catalogue.find(model) if isinstance(model, str) else model
    if task not in entry.tasks:
        raise UsboostError(f"{entry.name}, {entry.about}, is not for {task}; it is for {entry.tasks[0]}")
    given = BUILDERS.get(entry.kind, _as_it_is)(entry, parts or Parts(), seed, task)
    made = _estimator(entry.kind, task)(**given, random_state=seed)
    return with_settings(made, entry.settings, entry.name)


def boosted_features(parts: Parts, seed: int) -> BoostedFeatures:
    """Build the GBM whose leaf values are the BFV."""
    return BoostedFeatures(**parts.of("features"), random_state=seed)


def _estimator(kind: str, task: str) -> Any:
    return MODELS[KINDS[kind].models[task]]


def _as_it_is(entry: Entry, parts: Parts, seed: int, task: str) -> dict[str, Any]:
    """Return the views that the entry names, if any, and the parts that are called as its kind is."""
    named = entry.changes.get("views")
    return ({"views": _views(named, parts)} if named else {}) | parts.of(entry.kind)


def _views(names: Sequence[str], parts: Parts) -> tuple[str, ...]:
    return ("S",) if parts.one_table else parts.views(names)


def _bfv_network(entry: Entry, parts: Parts, seed: int, task: str) -> dict[str, Any]:
    chosen = entry.changes["features"]
    return {
        "features": boosted_features(parts, seed),
        "network": _estimator("two_branch", task)(**parts.of("two_branch"), random_state=seed),
        "out_of_fold": chosen == "out_of_fold",
    }


def _boosting(entry: Entry, parts: Parts, seed: int, task: str) -> dict[str, Any]:
    changes, steps = dict(entry.changes), parts.steps()
    step = changes.pop("step", "searched")
    rule = steps["searched"] if step == "searched" else step
    named = changes.pop("start", ())
    start = _views(named, parts) if named else ()
    fixed, bayes, newton = (changes.pop(name, None) for name in ("fixed_step", "bayes", "newton"))
    # all changes of an entry but those for the steps and the start are parameters of the class
    given = {**parts.boosting(entry), **changes}
    if task == "regression":
        known = {"monitor", *inspect.signature(_estimator("boosting", task)).parameters}
        given = {key: value for key, value in given.items() if key in known}
        if given.get("loss") not in REGRESSION_LOSSES:  # a loss of classes
            given.pop("loss", None)
        if given.get("monitor") not in ("rmse", "mae"):
            given["monitor"] = "risk"
        rule = "closed" if rule == "newton" else rule  # the exact minimum, also of losses without curvature
    settings = {
        "fixed": steps["fixed"] if fixed is None else {"value": fixed},
        "bayes": {**steps["bayes"], **(bayes or {})},
        "newton": newton or {},
    }
    learners: dict[str, Learner] = {}
    for name, spec in entry.learners.items():
        reads = parts.views(spec.reads or (name,))
        of_side = parts.learner(spec, reads) | ({} if reads == (name,) else {"reads": reads})
        own = {**spec.parameters, **({} if parts.has_images else spec.without_images)}
        learners[name] = _learner(entry, name, spec.kind, of_side, own)
    return {
        "learners": learners,
        "step": rule,
        "step_settings": settings.get(rule, {}),
        "monitor": f"{given.pop('monitor', 'f1')}_val",
        "start": _estimator("linear", task)(start, **parts.of("linear")) if start else None,
        "optional": tuple(view for view in start if view != "S") if not parts.one_table else (),
        **given,
    }


def _learner(entry: Entry, name: str, kind: str, given: Mapping[str, Any], own: Mapping[str, Any]) -> Learner:
    where = f"{entry.name}'s learner {name!r}"
    try:
        cls = LEARNERS[kind]
    except UsboostError as error:
        raise UsboostError(f"{where}: {error}") from None
    known = inspect.signature(cls).parameters
    if unknown := [key for key in own if key not in known]:
        raise UsboostError(
            f"{where}: a {kind} has no parameter {unknown[0]!r}; {choices(unknown[0], list(known), 'it has')}"
        )
    for key, value in own.items():
        try:
            own = {**own, key: converted(cls, key, value)}
        except ValueError:
            raise UsboostError(f"{where}: {key} cannot be {value!r}") from None
    return cls(**{**given, **own})


def _blend(entry: Entry, parts: Parts, seed: int, task: str) -> dict[str, Any]:
    members = {name: build(name, parts, seed, task) for name in entry.changes["members"]}
    wrapped = MODELS["package" if task == "classification" else "package_regressor"]
    for name in installed():
        if name in entry.changes.get("optional", ()):
            members[name] = wrapped(name, _views(("U", "S"), parts), **parts.of("package"), random_state=seed)
    return {**{k: v for k, v in entry.changes.items() if k != "optional"}, "members": members}


def _boosted_network(entry: Entry, parts: Parts, seed: int, task: str) -> dict[str, Any]:
    """Return the parameters of Damião's boosted neural networks: one hidden layer, closed-form γ."""
    settings, network = parts.boosted_network()
    ((name, spec),) = entry.learners.items()
    learner = _learner(entry, name, spec.kind, {}, {**spec.parameters, **network})
    own = {key: value for key, value in settings.items() if key != "loss" or task == "classification"}
    return {**own, "learner": learner}


def _earlyboost(entry: Entry, parts: Parts, seed: int, task: str) -> dict[str, Any]:
    """Return Earlyboost's weak classifier; it is Earlyboost.MH for more than two classes."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    chosen = parts.weak_classifier()
    if chosen["estimator"] == "tree":
        return {"estimator": DecisionTreeClassifier(max_depth=chosen["max_depth"])}
    return {"estimator": LogisticRegression()}


BUILDERS: dict[str, Callable[[Entry, Parts, int, str], dict[str, Any]]] = {
    "bfv_network": _bfv_network,
    "boosting": _boosting,
    "ensemble": _blend,
    "average": _blend,
    "boosted_network": _boosted_network,
    "earlyboost": _earlyboost,
}
"""Parameters of models by kind, of `KINDS`; of other kinds they are what the parts say of the kind."""

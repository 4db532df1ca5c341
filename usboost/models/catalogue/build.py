"""Estimators from the catalogue's entries; what an entry leaves open comes from the parts given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from usboost.errors import UsboostError, choices
from usboost.learners.base import LEARNERS, Learner
from usboost.losses.regression import REGRESSION_LOSSES
from usboost.models.baselines.estimators import (
    ForestBaseline,
    ForestBaselineRegressor,
    LightGBMBaseline,
    LightGBMBaselineRegressor,
    PackageClassifier,
    PackageRegressor,
    PriorBaseline,
    PriorBaselineRegressor,
)
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.baselines.packages import installed
from usboost.models.boosted.boosted_network import BoostedNetworkClassifier, BoostedNetworkRegressor
from usboost.models.boosted.earlyboost import EarlyBoostClassifier
from usboost.models.boosted.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor
from usboost.models.catalogue import catalogue
from usboost.models.catalogue.entry import Entry, LearnerSpec
from usboost.models.ensembles.ensemble import EnsembleClassifier, EnsembleRegressor
from usboost.models.networks.bfv_network import (
    BoostedFeatureNetworkClassifier,
    BoostedFeatureNetworkRegressor,
)
from usboost.models.networks.boosted_features import BoostedFeatures
from usboost.models.networks.two_branch import TwoBranchNetworkClassifier, TwoBranchNetworkRegressor
from usboost.models.settings import with_settings


class Parts:
    """What models are put together from, as parameters of the classes; these are the classes' own.

    A side overrides what it knows better: `tasks.fits.models` from params.yaml, `multimodal.fit.build`
    for one computer. A part is asked for by the models that have it, so it may refuse.

    Attributes
    ----------
    one_table : whether the views U and S are the same table, which nothing then reads twice.
    has_images : whether a view may hold images.
    """

    one_table: bool = False
    has_images: bool = True

    def views(self, names: Sequence[str]) -> tuple[str, ...]:
        """The views that an entry's names stand for: of one table alone the first, else as they are."""
        return tuple(names[:1] if self.one_table else names)

    def learner(self, spec: LearnerSpec, reads: tuple[str, ...]) -> dict[str, Any]:
        """Of a round's weak learner of this kind that reads these views."""
        return {}

    def boosting(self, entry: Entry) -> dict[str, Any]:
        """Of `TwoWeakLearnerClassifier`, without learners and steps; a regressor takes what it knows."""
        return {}

    def steps(self) -> dict[str, Any]:
        """ "searched": the rule of entries that leave it open; "fixed" and "bayes": settings of these."""
        return {"searched": "newton", "fixed": {}, "bayes": {}}

    def two_branch(self) -> dict[str, Any]:
        """Of `TwoBranchNetworkClassifier`."""
        return {}

    def features(self) -> dict[str, Any]:
        """Of `BoostedFeatures`."""
        return {}

    def lightgbm(self) -> dict[str, Any]:
        """Of `LightGBMBaseline`."""
        return {}

    def linear(self) -> dict[str, Any]:
        """Of `LinearBaseline`."""
        return {}

    def forest(self) -> dict[str, Any]:
        """Of `ForestBaseline`."""
        return {}

    def package(self) -> dict[str, Any]:
        """Of `PackageClassifier`."""
        return {}

    def boosted_network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of `BoostedNetworkClassifier`, and of its network."""
        return {}, {}

    def weak_classifier(self) -> dict[str, Any]:
        """Of Earlyboost: "estimator", tree or logistic, and the tree's "max_depth"."""
        return {"estimator": "tree", "max_depth": 3}


ESTIMATORS: dict[str, dict[str, Any]] = {
    "two_branch": {"classification": TwoBranchNetworkClassifier, "regression": TwoBranchNetworkRegressor},
    "bfv_network": {
        "classification": BoostedFeatureNetworkClassifier,
        "regression": BoostedFeatureNetworkRegressor,
    },
    "boosting": {"classification": TwoWeakLearnerClassifier, "regression": TwoWeakLearnerRegressor},
    "lightgbm": {"classification": LightGBMBaseline, "regression": LightGBMBaselineRegressor},
    "linear": {"classification": LinearBaseline, "regression": RidgeBaseline},
    "forest": {"classification": ForestBaseline, "regression": ForestBaselineRegressor},
    "prior": {"classification": PriorBaseline, "regression": PriorBaselineRegressor},
    "ensemble": {"classification": EnsembleClassifier, "regression": EnsembleRegressor},
    "boosted_network": {"classification": BoostedNetworkClassifier, "regression": BoostedNetworkRegressor},
    "earlyboost": {"classification": EarlyBoostClassifier},
}
"""By kind and task."""


def build(model: Entry | str, parts: Parts | None = None, seed: int = 0, task: str = "classification") -> Any:
    """An unfitted estimator, a `ViewsClassifier` or a `ViewsRegressor`.

    Parameters
    ----------
    model : an entry, or the name of one.
    parts : what it is put together from; by default the classes' own settings.
    task : of `usboost.models.catalogue.entry.TASKS`.

    Raises
    ------
    UsboostError
        If there is no such model, it has no estimator for the task, there is no such kind of learner, the
        parts lack what it needs, or the entry sets what the model does not have.
    """
    entry = catalogue.find(model) if isinstance(model, str) else model
    if task not in entry.tasks:
        raise UsboostError(f"{entry.name}, {entry.about}, is not for {task}; it is for {entry.tasks[0]}")
    made = BUILDERS[entry.kind](entry, parts or Parts(), seed, task)
    return with_settings(made, entry.settings, entry.name)


def boosted_features(parts: Parts, seed: int) -> BoostedFeatures:
    """The GBM whose leaf values are the BFV."""
    return BoostedFeatures(**parts.features(), random_state=seed)


def _two_branch(entry: Entry, parts: Parts, seed: int, task: str) -> Any:
    return ESTIMATORS["two_branch"][task](**parts.two_branch(), random_state=seed)


def _bfv_network(entry: Entry, parts: Parts, seed: int, task: str) -> Any:
    chosen = entry.changes["features"]
    return ESTIMATORS["bfv_network"][task](
        boosted_features(parts, seed),
        _two_branch(entry, parts, seed, task),
        encoding="numbers" if chosen == "leaf_numbers" else "values",
        out_of_fold=chosen == "out_of_fold",
        random_state=seed,
    )


def _boosting(entry: Entry, parts: Parts, seed: int, task: str) -> Any:
    changes, steps = dict(entry.changes), parts.steps()
    step = changes.pop("step", "searched")
    rule = steps["searched"] if step == "searched" else step
    named = changes.pop("start", ())
    start = _views(named, parts) if named else ()
    optional = tuple(view for view in start if view != "S") if not parts.one_table else ()
    fixed, bayes, newton = (changes.pop(name, None) for name in ("fixed_step", "bayes", "newton"))
    estimator, start_model = ESTIMATORS["boosting"][task], ESTIMATORS["linear"][task]
    # all changes of an entry but those for the steps and the start are parameters of the class
    given = {**parts.boosting(entry), **changes}
    if task == "regression":
        given = _of_regression(given)
        rule = "closed" if rule == "newton" else rule  # the exact minimum, also of losses without curvature
    settings = {
        "fixed": steps["fixed"] if fixed is None else {"value": fixed},
        "bayes": {**steps["bayes"], **(bayes or {})},
        "newton": newton or {},
    }
    return estimator(
        _learners(entry, parts),
        step=rule,
        step_settings=settings.get(rule, {}),
        monitor=f"{given.pop('monitor', 'f1')}_val",
        start=start_model(start, **parts.linear()) if start else None,
        optional=optional,
        random_state=seed,
        **given,
    )


def _of_regression(given: dict[str, Any]) -> dict[str, Any]:
    """What holds for a regression, too: its learners have one target, and losses of classes are left out."""
    known = {"monitor", *inspect.signature(TwoWeakLearnerRegressor).parameters}
    own = {key: value for key, value in given.items() if key in known}
    if own.get("loss") not in REGRESSION_LOSSES:
        own.pop("loss", None)
    if own.get("monitor") not in ("rmse", "mae"):
        own["monitor"] = "risk"
    return own


def _learners(entry: Entry, parts: Parts) -> dict[str, Learner]:
    found: dict[str, Learner] = {}
    for name, spec in entry.learners.items():
        reads = parts.views(spec.reads or (name,))
        given = parts.learner(spec, reads)
        own = {**spec.parameters, **({} if parts.has_images else spec.without_images)}
        given = given if reads == (name,) else {**given, "reads": reads}
        found[name] = _learner(entry, name, spec.kind, given, own)
    return found


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
    learner: Learner = cls(**{**given, **own})
    return learner


def _views(names: Sequence[str], parts: Parts) -> tuple[str, ...]:
    return ("S",) if parts.one_table else parts.views(names)


def _baseline(entry: Entry, parts: Parts, seed: int, task: str) -> Any:
    """Another's method, with the parts that are called as its kind is."""
    views, given = _views(entry.changes["views"], parts), getattr(parts, entry.kind)()
    return ESTIMATORS[entry.kind][task](views, **given, random_state=seed)


def _prior(entry: Entry, parts: Parts, seed: int, task: str) -> Any:
    return ESTIMATORS["prior"][task](random_state=seed)


def _ensemble(entry: Entry, parts: Parts, seed: int, task: str) -> Any:
    members = {name: build(name, parts, seed, task) for name in entry.changes["members"]}
    wrapped = PackageClassifier if task == "classification" else PackageRegressor
    for name in installed():
        if name in entry.changes.get("optional", ()):
            views = _views(("U", "S"), parts)
            members[name] = wrapped(name, views, **parts.package(), random_state=seed)
    return ESTIMATORS["ensemble"][task](members, folds=entry.changes["folds"], random_state=seed)


def _boosted_network(entry: Entry, parts: Parts, seed: int, task: str) -> Any:
    """Damião's boosted neural networks: one hidden layer, closed-form γ."""
    settings, network = parts.boosted_network()
    ((name, spec),) = entry.learners.items()
    learner = _learner(entry, name, spec.kind, {}, {**spec.parameters, **network})
    if task == "regression":
        settings = {key: value for key, value in settings.items() if key != "loss"}
    return ESTIMATORS["boosted_network"][task](**settings, learner=learner, random_state=seed)


def _earlyboost(entry: Entry, parts: Parts, seed: int, task: str) -> Any:
    """Earlyboost for two classes, Earlyboost.MH for more."""
    chosen = parts.weak_classifier()
    weak: dict[str, Any] = {
        "tree": DecisionTreeClassifier(max_depth=chosen["max_depth"]),
        "logistic": LogisticRegression(),
    }
    return EarlyBoostClassifier(weak[chosen["estimator"]], random_state=seed)


BUILDERS: dict[str, Callable[[Entry, Parts, int, str], Any]] = {
    "two_branch": _two_branch,
    "bfv_network": _bfv_network,
    "boosting": _boosting,
    "lightgbm": _baseline,
    "linear": _baseline,
    "forest": _baseline,
    "prior": _prior,
    "ensemble": _ensemble,
    "boosted_network": _boosted_network,
    "earlyboost": _earlyboost,
}
"""By kind, as `catalogue.KINDS` has them."""

"""Estimators' parameters as JSON and back, and what a file may say of them."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePath
from typing import Any, get_type_hints

import numpy as np
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from sklearn.base import BaseEstimator

from usboost.errors import UsboostError, choices, listed
from usboost.files.registry import Registry
from usboost.learners.base import LEARNERS
from usboost.models.base import MODELS
from usboost.models.entry import LIST

OTHERS = Registry(
    "part of a model",
    {
        "backbone": "usboost.learners.networks.backbones:Backbone",
        "boosted_features": "usboost.models.methods.boosted_features:BoostedFeatures",
        "decision_tree_classifier": "sklearn.tree:DecisionTreeClassifier",
        "decision_tree_regressor": "sklearn.tree:DecisionTreeRegressor",
        "extra_tree_classifier": "sklearn.tree:ExtraTreeClassifier",
        "extra_tree_regressor": "sklearn.tree:ExtraTreeRegressor",
        "linear_regression": "sklearn.linear_model:LinearRegression",
        "logistic_regression": "sklearn.linear_model:LogisticRegression",
        "ridge": "sklearn.linear_model:Ridge",
    },
)
"""Estimators inside models and learners."""

RENAMED = {
    "NetworkLearner": {"steps": "batches_per_round"},
    **{f"BoostedFeatureNetwork{kind}": {"encoding": ""} for kind in ("Classifier", "Regressor")},
    **{name: {"trim": ""} for name in ("TwoWeakLearnerClassifier", "EarlyBoostClassifier")},
}
"""Parameters by their names in files of before, read for one version; "": there is none any more."""

UNSAVED = ("callbacks", "checkpoint", "gbm")
"""Parameters that a file does not hold: they belong to a fit, or the fitted model has them."""

LEAST: dict[str, float] = {
    **dict.fromkeys(("n_rounds", "n_trees", "n_epochs", "epochs", "hidden"), 1),
    **dict.fromkeys(("max_leaves", "max_bin"), 2),
    **dict.fromkeys(("learning_rate", "shrinkage"), 1e-12),
}
"""The least value of a setting, wherever it is."""

_NOT_SETTINGS = (*UNSAVED, "random_state", "device")  # of a fit or a machine

_PLAIN = (str, int, float, bool, type(None))


def settings_to_json(estimator: BaseEstimator) -> dict[str, Any]:
    """Return class name and constructor arguments, estimators inside it included.

    Raises `UsboostError` if a class is none that a file can name, or an argument no value that JSON can hold.
    """
    name = type(estimator).__name__
    if _class(name) is not type(estimator):
        raise UsboostError(f"{name} has no file form")
    parameters: dict[str, Any] = estimator.get_params(deep=False)  # type: ignore[attr-defined]
    saved = {key: _plain(value, f"{name}'s {key}") for key, value in parameters.items() if key not in UNSAVED}
    return {"class": name, "parameters": saved}


def settings_from_json(document: Mapping[str, Any]) -> Any:
    """Make the unfitted estimator that `settings_to_json` described.

    Raises `UsboostError` if a class is not one of ours or registered, or an argument not of the type that its
    constructor declares.
    """
    if (cls := _class(document["class"])) is None:
        raise UsboostError(f"a model file names the class {document['class']!r}, which usboost does not have")
    renamed = RENAMED.get(document["class"], {})
    parameters = {renamed.get(name, name): _estimators(v) for name, v in document["parameters"].items()}
    parameters.pop("", None)
    check_settings(cls, parameters)
    if document["class"] == "Backbone" and isinstance(parameters.get("cache"), str):
        folder = PurePath(parameters["cache"])
        if folder.is_absolute() or ".." in folder.parts:  # a file puts no cache outside the working folder
            parameters["cache"] = None
    return cls(**parameters)


def backbones(settings: Any) -> Iterator[dict[str, Any]]:
    """Yield the parameters of every backbone in described settings."""
    if isinstance(settings, dict):
        if settings.get("class") == "Backbone" and isinstance(settings.get("parameters"), dict):
            yield settings["parameters"]
        for part in settings.values():
            yield from backbones(part)


def check_settings(cls: type, parameters: Mapping[str, Any]) -> None:
    """Check that arguments are of the types that a constructor declares, estimators those it may hold.

    Raises `UsboostError`, naming the argument that is not.
    """
    holds = getattr(cls, "holds", {})
    for name, value in parameters.items():
        if name in holds:
            several = isinstance(value, Mapping)
            parts = value.values() if isinstance(value, Mapping) else [value]
            right = all((part is None and not several) or _may_hold(holds[name], part) for part in parts)
            right = right and not (several and not parts)
        else:
            right = not _holds_estimator(value)
            if right and value is not None and (adapter := _adapter(cls, name)) is not None:
                try:
                    adapter.validate_python(value)
                except ValidationError:
                    right = False
        if not right:
            raise UsboostError(f"a model file gives {cls.__name__} a {name} that it cannot have")


def converted(cls: type, name: str, value: Any) -> Any:
    """Return an argument as the constructor declares it, the tuple of a list say; else raise `ValueError`."""
    plain = tuple(value) if isinstance(value, list) else value
    adapter = _adapter(cls, name)
    return plain if adapter is None else adapter.validate_python(plain)


def settable(model: Any) -> dict[str, Any]:
    """Return what can be set of a model by path, with the value of each."""
    values, paths = model.get_params(deep=True), {}
    for path, value in values.items():
        parent, _, key = path.rpartition("__")
        is_part = key in getattr(type(values.get(parent, model)), "holds", ())
        if key not in _NOT_SETTINGS and not is_part and not hasattr(value, "get_params"):
            paths[path] = value
    return paths


def with_settings(model: Any, settings: Mapping[str, Any], name: str) -> Any:
    """Set a model's parameters by path; a list becomes a tuple where no type is declared.

    Raises `UsboostError` if it has no such parameter, or that takes no such value.

    Parameters
    ----------
    settings : value by path; name : the model's, for messages.
    """
    if not settings:
        return model
    known = model.get_params(deep=True)
    for path, value in settings.items():
        parent, _, key = str(path).rpartition("__")
        owner = known.get(parent) if parent else model
        if owner is None or key in _NOT_SETTINGS:
            raise _unknown(model, name, path)
        if key in getattr(type(owner), "holds", ()):
            raise UsboostError(f"{name}: {path} is a part of the model; set a parameter of it, {path}__… say")
        try:
            typed = converted(type(owner), key, value)
            each = typed if isinstance(typed, tuple) else (typed,)
            if any(isinstance(one, (int, float)) and one < LEAST.get(key, one) for one in each):
                raise ValueError
        except ValueError:
            raise UsboostError(f"{name}: {path} cannot be {value!r}; it is {known.get(path)!r} now") from None
        try:  # some packages' estimators take a parameter that they do not list, so it is not looked up
            model.set_params(**{path: typed})
        except (ValueError, TypeError, AttributeError):
            raise _unknown(model, name, path) from None
    return model


def _unknown(model: Any, name: str, path: str) -> UsboostError:
    known = list(settable(model))
    if path == LIST:
        return UsboostError(f"{name} has the settings {listed(known) or 'none'}")
    where = f"`set={LIST}` (in Python `get_params()`) lists all {len(known)}"
    return UsboostError(f"{name} has no setting {path!r}; {choices(path, known, 'it has', where)}")


def _class(name: Any) -> type | None:
    """Return the class of this name that a file may name."""
    if not isinstance(name, str):
        return None
    classes = (
        each[kind] for each in (MODELS, LEARNERS, OTHERS) if (kind := each.kind_called(name)) is not None
    )
    return next(classes, None)


def _may_hold(allowed: Registry | tuple[Registry | str, ...], part: Any) -> bool:
    if isinstance(allowed, tuple):
        name = type(part).__name__
        named = name in allowed and _class(name) is type(part)
        return named or any(_may_hold(each, part) for each in allowed if isinstance(each, Registry))
    return allowed.kind_of(type(part)) is not None


def _holds_estimator(value: Any) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return isinstance(value, BaseEstimator) or any(map(_holds_estimator, parts))


@cache
def _adapter(cls: type, name: str) -> TypeAdapter[Any] | None:
    """Return None where nothing is declared: scikit-learn's own classes look at theirs in `fit`."""
    if (hint := get_type_hints(cls.__init__).get(name)) is None:  # type: ignore[misc]
        return None
    try:
        return TypeAdapter(hint)
    except PydanticUserError:
        return None


def _plain(value: Any, what: str) -> Any:
    if isinstance(value, BaseEstimator):
        return settings_to_json(value)
    if isinstance(value, Mapping):
        return {key: _plain(part, what) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part, what) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, _PLAIN):
        raise UsboostError(f"{what}, a {type(value).__name__}, has no file form")
    return value


def _estimators(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"class", "parameters"}:
            return settings_from_json(value)
        return {key: _estimators(part) for key, part in value.items()}
    return value

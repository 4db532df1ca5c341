"""Parameters of built models by scikit-learn's path: ``shrinkage``, ``learners__S__max_depth``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from usboost.errors import UsboostError
from usboost.models.settings import NOT_KEPT, converted

_NOT_SETTINGS = (*NOT_KEPT, "random_state", "device")  # of a fit or a machine


def settable(model: Any) -> dict[str, Any]:
    """What can be set of a model by path, with the value of each."""
    values, found = model.get_params(deep=True), {}
    for path, value in values.items():
        parent, _, key = path.rpartition("__")
        held = key in getattr(type(values.get(parent, model)), "holds", ())
        if key not in _NOT_SETTINGS and not held and not hasattr(value, "get_params"):
            found[path] = value
    return found


def with_settings(model: Any, settings: Mapping[str, Any], name: str) -> Any:
    """The model itself, with parameters set by path; a list becomes a tuple where no type is declared.

    Parameters
    ----------
    settings : value by path; name : the model's, for messages.

    Raises
    ------
    UsboostError
        If it has no such parameter, or that takes no such value.
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
            found = converted(type(owner), key, value)
        except ValueError:
            raise UsboostError(f"{name}: {path} cannot be {value!r}; it is {known.get(path)!r} now") from None
        try:  # some packages' estimators take a parameter that they do not list, so it is not looked up
            model.set_params(**{path: found})
        except (ValueError, TypeError, AttributeError):
            raise _unknown(model, name, path) from None
    return model


def _unknown(model: Any, name: str, path: str) -> UsboostError:
    has = ", ".join(settable(model)) or "none"
    return UsboostError(f"{name} has no setting {path!r}; it has {has}")

"""Settings of models by scikit-learn's path, ``learners__S__max_depth``, and in a file.

A file has the form of params.yaml's `models`, ``crossed: {set: {shrinkage: 0.05}}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from usboost.errors import UsboostError, option
from usboost.files.yaml_file import parsed_yaml, read_yaml
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


Chosen = dict[str, Any]
"""Values by parameter path."""


def settings_text(models: Mapping[str, Mapping[str, Any]], comment: str) -> str:
    """The file's text."""
    document = {
        name: {"set": {path: list(v) if isinstance(v, tuple) else v for path, v in chosen.items()}}
        for name, chosen in models.items()
    }
    line = " ".join(comment.split())
    return f"# {line}\n" + yaml.safe_dump({"models": document}, sort_keys=False, allow_unicode=True)


def read_settings(path: Path) -> dict[str, Chosen]:
    """Settings by model and path. Raises `UsboostError` if the file is missing or of another form."""
    document = read_yaml(path, "name a file that usboost tune wrote")
    models = document.get("models") if isinstance(document, dict) else None
    if not isinstance(models, dict):
        raise UsboostError(
            f"{path} has no key `models`; write `models:`, models below it, and `set:` in each"
        )
    found = {}
    for name, given in models.items():
        chosen = (given or {}).get("set") or {} if isinstance(given, dict | None) else None
        if not isinstance(chosen, dict):
            raise UsboostError(f"{path}: models.{name}: write `set:` and parameters below it")
        found[str(name)] = {str(key): value for key, value in chosen.items()}
    return found


def parsed_settings(given: Sequence[str] | None) -> Chosen:
    """``["shrinkage=0.05"]`` as a mapping of path to value, which is YAML.

    Raises `UsboostError` if one is not of that form.
    """
    found = {}
    for each in given or ():
        path, equals, value = each.partition("=")
        if not (path and equals):
            given, example = option("set", repr(each)), option("set", "shrinkage=0.1")
            raise UsboostError(f"{given} sets nothing; write {example}, say")
        found[path.strip()] = parsed_yaml(value, option("set", path))
    return found

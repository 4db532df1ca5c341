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

LIST = "list"
"""In place of a setting: its refusal lists them all."""

Chosen = dict[str, Any]
"""Settings of one model, by path."""


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
        if each == LIST:
            return {LIST: None}
        path, equals, value = each.partition("=")
        if not (path and equals):
            given, example = option("set", repr(each)), option("set", "shrinkage=0.1")
            raise UsboostError(f"{given} sets nothing; write {example}, say")
        found[path.strip()] = parsed_yaml(value, option("set", path))
    return found

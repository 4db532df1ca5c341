"""The options of commands that read a user's table: those that are fields of `TableSpec`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer

from usboost.cli.console import as_flag, exit_on_error
from usboost.datasets.user.table_spec import Help, Names, TableSpec

_DEFAULTS = {each.name: each.default for each in fields(TableSpec)}
_FIELDS: dict[str, tuple[Any, Help]] = {
    name: (said[0], said[1])
    for name, hint in get_type_hints(TableSpec, include_extras=True).items()
    if isinstance((said := get_args(hint) or (hint,))[-1], Help)
}
"""The type and the help of each field that is an option."""


def of_field(name: str) -> Any:
    """Typer's option for a field, as its `Help` says."""
    said = _FIELDS[name][1]
    shown = said.default or True
    return typer.Option(as_flag(name), help=said.text, min=said.least, max=said.most, show_default=shown)


def reads_table(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of a `TableSpec` in place of its parameter ``spec``."""

    @wraps(command)
    def made(**given: Any) -> None:
        with exit_on_error():
            spec = TableSpec(**{name: given.pop(name) for name in _FIELDS})
        command(spec=spec, **given)

    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        parameters += map(_parameter, _FIELDS) if each.name == "spec" else [each]
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    made.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return made


def _parameter(name: str) -> inspect.Parameter:
    """Of a command, for a field."""
    kind: Any = _FIELDS[name][0]
    default: Any = _DEFAULTS[name]
    if kind == Names:
        kind, default = list[str] | None, None
    if default is MISSING:
        default = inspect.Parameter.empty
    hint: Any = Annotated[kind, of_field(name)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def typed(spec: TableSpec, **others: Any) -> list[str]:
    """The options by which a table was read, and others by name, as they would be typed again."""
    given = {name: value for name in _FIELDS if (value := getattr(spec, name)) != _DEFAULTS[name]}
    return given_options({**given, **others})


def given_options(options: Mapping[str, Any]) -> list[str]:
    """Options by name as they would be typed; those without a value are left out."""
    found: list[str] = []
    for option, value in options.items():
        name = as_flag(option)
        if value is True:
            found.append(name)
        elif isinstance(value, (list, tuple)):
            found += [word for each in value for word in (name, str(each))]
        elif value is not None and value is not False:
            found += [name, str(value)]
    return found

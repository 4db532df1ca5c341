"""Parts by name: the only ones that a file, params.yaml or the command line can name."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from usboost.errors import UsboostError, choices

ENTRY_POINTS = "usboost.parts"
"""Group of entry points; each names a module that registers parts when it is imported."""


class Registry:
    """Classes of one sort by their `kind`.

    Parameters
    ----------
    sort : the word for such a part in messages, such as "learner".
    built_in : kind to ``"module:Class"``; imported when it is asked for.
    """

    def __init__(self, sort: str, built_in: Mapping[str, str]) -> None:
        self.sort = sort
        self._parts: dict[str, Any] = dict(built_in)
        self._loaded_others = False

    def register(self, part: type) -> type:
        """Make a class known by its attribute `kind`; can be used as a decorator.

        Raises UsboostError if the class has no kind, or another class has it.
        """
        kind = getattr(part, "kind", None)
        if not isinstance(kind, str) or not kind.isidentifier():
            raise UsboostError(f"{part.__name__} needs a class attribute `kind`, a name such as 'ridge'")
        known = self._parts.get(kind)
        if known is not None and _name(known) != _name(part):
            raise UsboostError(f"the {self.sort} kind {kind!r} is taken by {_name(known)}; choose another")
        self._parts[kind] = part
        return part

    def __getitem__(self, kind: str) -> Any:
        """Return the class of a kind. Raises UsboostError if it is unknown; the message lists known ones."""
        if kind not in self:
            raise UsboostError(
                f"unknown {self.sort} kind {kind!r}; {choices(str(kind), list(self), 'known are')} "
                "(your own kinds are known once the module that registers them is imported)"
            )
        if isinstance(self._parts[kind], str):
            module, _, name = self._parts[kind].partition(":")
            self._parts[kind] = getattr(import_module(module), name)
        return self._parts[kind]

    def __contains__(self, kind: object) -> bool:
        if not isinstance(kind, str):
            return False
        if kind not in self._parts:
            self._ask_others()
        return kind in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._parts))

    def kind_of(self, part: type) -> str | None:
        """Return the kind of a class; None if it is not registered."""
        return next((kind for kind, known in self._parts.items() if _name(known) == _name(part)), None)

    def kind_called(self, class_name: str) -> str | None:
        """Return the kind whose class has this name."""
        if class_name not in {_name(known).rpartition(":")[2] for known in self._parts.values()}:
            self._ask_others()
        names = {_name(known).rpartition(":")[2]: kind for kind, known in self._parts.items()}
        return names.get(class_name)

    def _ask_others(self) -> None:
        """Import, once, what installed packages name under `ENTRY_POINTS`."""
        if not self._loaded_others:
            self._loaded_others = True
            for entry in entry_points(group=ENTRY_POINTS):
                entry.load()


def import_parts(modules: Iterable[str], folder: Path) -> None:
    """Import modules that register parts, from a folder or installed; what they hold is run.

    Raises UsboostError if there is no such module.
    """
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    for name in modules:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise
            raise UsboostError(
                f"there is no module {name!r} in {folder.resolve()}, nor is it installed; it was named to be "
                "imported for the parts that it registers"
            ) from None


def _name(part: Any) -> str:
    return part if isinstance(part, str) else f"{part.__module__}:{part.__qualname__}"

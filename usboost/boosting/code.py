"""The code that decides a fit: the modules that its parts come from, and all that these import.

A checkpoint's identity follows it, and so do the pipeline's fingerprints. Imports are
read from the source, wherever they stand in it: at the top, in a function, behind TYPE_CHECKING, or as a
string "module:Name" that is imported when it is used. Only the registries of parts are not followed:
they name every learner and model, and what a fit uses of them is among its parts.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

PACKAGE = Path(__file__).parents[1]

NAMES_ONLY = frozenset({"usboost"})
"""Modules that only give names to others: public names and the version decide nothing."""

PARTS = frozenset({"LEARNERS", "MODELS", "OTHERS"})
"""Registries of parts that are parameters; a new entry in one of them voids nothing."""

SPACE = "space"
"""The class attribute that says what may be chosen of parameters; what was chosen is among them."""

NOT_DECIDING = ("callbacks", "checkpoint")
"""Parameters that do not change what is fitted."""

_NAMED = re.compile(r"[\w.]+:\w+$")

_PARSING = Lock()
"""Before Python 3.11.8 two threads that parse at a time may both fail with SystemError."""


def code_digest(part: Any, *modules: str, package: Path = PACKAGE) -> str:
    """Digest the code that fits `part`, and further modules; comments and docstrings do not count.

    `package` is the folder of usboost.
    """
    return digest(closure({*modules_of(part), *modules}, [package]))


def modules_of(part: Any) -> set[str]:
    """Return the modules that define the classes and functions of a part, and of the parts inside it."""
    home = part if hasattr(part, "__qualname__") else type(part)
    modules = {str(home.__module__)}
    for inner in _inside(part):
        modules |= modules_of(inner)
    return modules


def _inside(part: Any) -> Iterable[Any]:
    if isinstance(part, type):
        return ()
    if hasattr(part, "get_params"):
        inner = part.get_params(deep=False)
        named = getattr(part, "named_parts", ())
        return [*named, *(value for name, value in inner.items() if name not in NOT_DECIDING)]
    if isinstance(part, Mapping):
        return part.values()
    if isinstance(part, (list, tuple, set, frozenset)):
        return part
    return [getattr(part, field.name) for field in fields(part)] if is_dataclass(part) else ()


def closure(
    modules: Iterable[str], packages: Collection[Path] = (PACKAGE,), without: Collection[str] = ()
) -> dict[str, Path]:
    """Return the modules and everything that they import, by name, with their source files.

    A user's own module belongs to it, with what it imports of the user's own. Of installed packages
    only the modules given count, of Python itself none. Modules without code are left out, and those
    `without`. The modules of `packages`, folders, are found there, others where they were imported from.
    """
    files: dict[str, Path] = {}
    given, seen = set(modules), {*NAMES_ONLY, *without}
    waiting = given - seen
    while waiting:
        module = waiting.pop()
        seen.add(module)
        file, own = _source(module, packages)
        if file is None or not (own or module in given):
            continue
        imported, code = _read(file, module)
        if code:
            files[module] = file
        # the packages that it lies in, too: their ``__init__`` runs before it
        names = module.split(".")
        waiting |= {*imported, *(".".join(names[:k]) for k in range(1, len(names)))} - seen
    return dict(sorted(files.items()))


def digest(files: Mapping[str, Path]) -> str:
    """Return a digest of modules' code, as `closure` gives them."""
    lines = [f"{module} {_read(file, module)[1]}" for module, file in sorted(files.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _source(module: str, packages: Collection[Path]) -> tuple[Path | None, bool]:
    """Return a module's source file, and whether it is usboost's or a user's own."""
    top, *rest = module.split(".")
    for package in packages:
        if top == package.name:
            place = package.joinpath(*rest)
            places = (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())
            return next(places, None), True
    name = getattr(sys.modules.get(module), "__file__", None)
    if top in sys.stdlib_module_names or not name or not name.endswith(".py"):
        return None, False
    file = Path(name)
    return file if file.is_file() else None, not {"site-packages", "dist-packages"} & set(file.parts)


@cache
def _read(file: Path, module: str) -> tuple[frozenset[str], str]:
    """Return what a source file may import, and a digest of its code, "" if it has none.

    Cached as first read, so that all fits of a process count as run by the code that it began with.
    """
    with _PARSING:
        parsed = ast.parse(file.read_bytes())
    tree = _Decisive().visit(parsed)
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
                parents = package[: len(package) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            # a name may be a submodule; what is none is not found
            imported |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED.match(node.value):
            imported.add(node.value.partition(":")[0])
    code = ast.unparse(tree)
    return frozenset(imported), hashlib.sha256(code.encode()).hexdigest() if code else ""


class _Decisive(ast.NodeTransformer):
    """Takes out docstrings, registries of parts and spaces; comments are not in the tree anyway."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        return None if any(isinstance(each, ast.Name) and each.id in PARTS for each in node.targets) else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign | None:
        name = node.target.id if isinstance(node.target, ast.Name) else ""
        space = name == SPACE and "ClassVar" in ast.unparse(node.annotation)
        return None if name in PARTS or space else node

"""YAML that anyone may have written."""

from pathlib import Path
from typing import Any

import yaml

from usboost.errors import UsboostError

_MOST_VALUES = 100_000


def read_yaml(path: Path, missing: str) -> Any:
    """Read a YAML file.

    Raises UsboostError if the file is missing, cannot be read, is no YAML, or stands for more values than
    memory holds. `missing`: what to do where there is no such file, for the message.
    """
    try:
        return parsed_yaml(Path(path).read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise UsboostError(f"{path} is missing; {missing}") from None
    except OSError as error:
        raise UsboostError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsboostError(f"{path} is not valid YAML: {error}") from error


def parsed_yaml(text: str, where: str) -> Any:
    """Return what YAML stands for; errors as of `read_yaml`, which name `where` it is from."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _refuse_bomb(node, where)
        return None if node is None else loader.construct_document(node)
    # PyYAML lets what its constructors of numbers and dates raise pass
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, UsboostError):
            raise
        raise UsboostError(f"{where} is not valid YAML: {error}") from error


def _refuse_bomb(node: yaml.Node | None, where: str) -> None:
    """Refuse aliases of aliases (``*``), of which a few lines stand for more values than memory holds."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = _MOST_VALUES + 1  # what an alias inside itself finds
            value = node.value if isinstance(node, yaml.CollectionNode) else ()
            parts = (part for pair in value for part in (pair if isinstance(pair, tuple) else (pair,)))
            sizes[id(node)] = 1 + sum(map(size, parts))
        return sizes[id(node)]

    if node is not None and size(node) > _MOST_VALUES:
        raise UsboostError(f"{where} has aliases that stand for over {_MOST_VALUES:,} values; write them out")

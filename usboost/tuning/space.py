"""What may be chosen of a built model: the spaces of its parts, joined by parameter path."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from usboost.learners.base import view_names
from usboost.learners.dimensions import Dimension, Space
from usboost.models.estimator import ViewsEstimator


def space_of(model: Any, images: Collection[str] = (), fixed: Collection[str] = ()) -> dict[str, Dimension]:
    """The dimensions of a model by parameter path, each with the model's own value in it.

    Left out are parameters whose value is of another kind than their dimension ("loo" for a penalty, say),
    and those that do nothing on the views that their owner reads.

    Parameters
    ----------
    images : the names of the views that hold images.
    fixed : paths that are not to be chosen.
    """
    values, found = model.get_params(deep=True), dict[str, Dimension]()
    for path, dimension in _joined(model, "", _views(model), set(images)):
        if path in values and path not in fixed:
            wide = dimension.widened(values[path])
            if wide is not None:
                found[path] = wide
    return found


def own_values(model: Any, space: Space) -> dict[str, Any]:
    """The model's own values of a space's parameters."""
    values = model.get_params(deep=True)
    return {path: tuple(v) if isinstance(v := values[path], list) else v for path in space}


def _joined(part: Any, prefix: str, reads: set[str], images: set[str]) -> Iterator[tuple[str, Dimension]]:
    for name, dimension in getattr(part, "space", {}).items():
        somewhere = bool(reads & images)
        matters = {"everywhere": True, "images": somewhere, "images alone": somewhere and reads <= images}
        if matters[dimension.where]:
            yield prefix + name, dimension
    for name, value in part.get_params(deep=False).items():
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if hasattr(inner, "get_params"):
                    views = (
                        _views(inner) if isinstance(inner, ViewsEstimator) else set(view_names(key, inner))
                    )
                    yield from _joined(inner, f"{prefix}{name}__{key}__", views, images)
        elif hasattr(value, "get_params") and not isinstance(value, type):
            yield from _joined(value, f"{prefix}{name}__", _views(value), images)


def _views(part: Any) -> set[str]:
    return set(getattr(part, "views", None) or ())

"""Weights that make up for classes of unequal size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from usboost.data.row_groups import Related
from usboost.data.value import find
from usboost.data.views import Views
from usboost.errors import UsboostError, option
from usboost.models.tuned_images import tune_images
from usboost.shards.here import here

ClassWeight = Literal["balanced"] | Mapping[str, float] | None

Weighted = tuple[Views, np.ndarray, np.ndarray | None]
"""Rows, their labels, and their weights if they have any."""


def fit_weighted(model: Any, train: Weighted, held: Weighted | None, related: Related | None = None) -> None:
    """Fit a model, its images tuned where that was asked; only where there are weights, or training rows are
    related, need it know of them."""
    tune_images(model, train, held)
    more: dict[str, Any] = {} if related is None else dict(related.arguments)
    if train[2] is not None:
        more["sample_weight"] = train[2]
    validation = () if held is None else (held[:2] if held[2] is None else held,)
    model.fit(*train[:2], *validation, **more)


def balanced(codes: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Weights by which all classes that are there count alike, with the sum that there was.

    Parameters
    ----------
    codes : int (n,), classes 0..M−1
    weights : float (n,), of the rows, by default 1; the answer holds them

    Returns
    -------
    float64 (n,)
    """
    own = np.ones(len(codes)) if weights is None else np.asarray(weights, dtype=np.float64)
    return np.asarray(own * _balancing(codes, own, int(codes.max()) + 1)[codes])


def class_factors(
    class_weight: ClassWeight, codes: np.ndarray, classes: Sequence[str], weights: np.ndarray | None = None
) -> np.ndarray:
    """By what the rows of each class count more, float64 (M,).

    Parameters
    ----------
    class_weight : "balanced", by the sizes of the classes here, or the weight of each class by its name, 1 of
        those not in it
    codes : int (n,), positions in the `classes`; weights : of the rows, by default 1

    Raises
    ------
    UsboostError
        If it is neither, names no class, or a weight is no positive finite number.
    """
    if class_weight == "balanced":
        return _balancing(codes, np.ones(len(codes)) if weights is None else weights, len(classes))
    if not isinstance(class_weight, Mapping):
        raise UsboostError(f"class_weight is 'balanced' or a weight for each class, not {class_weight!r}")
    known = find({name: name for name in classes}, class_weight)
    unknown = [name for name in class_weight if name not in known]
    if unknown:
        raise UsboostError(f"class_weight names {unknown[0]!r}, which is none of the classes")
    for name, weight in class_weight.items():
        if not (isinstance(weight, (int, float)) and 0 < weight < np.inf):
            raise UsboostError(f"class_weight of {name!r} is {weight!r}; give a positive number")
    weight_of = {known[name]: float(weight) for name, weight in class_weight.items()}
    return np.array([weight_of.get(name, 1.0) for name in classes])


def times_class_weight(
    class_weight: ClassWeight, classes: Sequence[str], *parts: tuple[np.ndarray, np.ndarray | None]
) -> list[np.ndarray | None]:
    """The rows' weights times those of their classes, for each part of them, float64 (n,) or None.

    Parameters
    ----------
    class_weight : of `class_factors`; what "balanced" is, the first part's rows say; None: without
    classes : none where a number is predicted
    parts : (codes int (n,), weights of the rows or None)

    Raises
    ------
    UsboostError
        If a number is predicted, or of `class_factors`.
    """
    if class_weight is None:
        return [weights for _, weights in parts]
    if not classes:
        raise UsboostError(
            f"{option('class_weight')} is for classes, but a number is predicted; leave it out"
        )
    factors = class_factors(class_weight, parts[0][0], classes, parts[0][1])
    return [factors[codes] * (1.0 if weights is None else weights) for codes, weights in parts]


def _balancing(codes: np.ndarray, weights: np.ndarray, n_classes: int) -> np.ndarray:
    held = here().sum(np.bincount(codes, weights, n_classes))
    share = held.sum() / np.count_nonzero(held)
    return np.divide(share, held, out=np.ones_like(held), where=held > 0)

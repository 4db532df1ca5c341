"""Which settings to try next. This file alone knows scikit-optimize, which is barely maintained."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from usboost.learners.dimensions import Choice, Dimension, Integer, Real, Space

Settings = Mapping[str, Any]
"""Values by parameter path."""

RANDOM = 8
"""Trials before the surrogate is asked; the first of them are the model's own settings."""


def propose(
    space: Space, told: Sequence[tuple[Settings, float]], n: int, seed: Sequence[int]
) -> list[Settings]:
    """Settings to try at the same time, by what earlier trials have lost.

    Expected improvement under a Gaussian process; within a batch each proposal is told as if it had lost as
    little as the best so far. Nothing is kept from call to call: equal arguments give equal answers, and
    fewer are the first of more.

    Parameters
    ----------
    told : settings and losses of trials that have ended, finite; lower is better.
    n : how many.
    seed : numbers that make this call's random choices its own.
    """
    from skopt import Optimizer
    from threadpoolctl import threadpool_limits

    numbers = np.random.SeedSequence(list(seed)).generate_state(1)
    # a few dozen points make tiny matrices, for which a second thread only costs
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # "the objective has been evaluated at this point before"
        optimizer = Optimizer(
            [_dimension(each) for each in space.values()],
            n_initial_points=RANDOM,
            acq_func="EI",
            random_state=int(numbers[0] % 2**31),
        )
        if told:
            points = [[_coded(space[path], settings[path]) for path in space] for settings, _ in told]
            optimizer.tell(points, [loss for _, loss in told])
        found = optimizer.ask(n_points=n, strategy="cl_min")
    return [
        {path: _value(each, code) for (path, each), code in zip(space.items(), point, strict=True)}
        for point in found
    ]


def _dimension(dimension: Dimension) -> Any:
    from skopt import space

    if isinstance(dimension, Choice):
        k = len(dimension.options)
        if dimension.ordered and k > 1:
            return space.Integer(0, k - 1)
        return space.Categorical(list(range(k)))
    prior = "log-uniform" if dimension.log else "uniform"
    return (space.Integer if isinstance(dimension, Integer) else space.Real)(
        dimension.low, dimension.high, prior=prior
    )


def _coded(dimension: Dimension, value: Any) -> float | int:
    """A value as scikit-optimize has it: options by their positions."""
    if isinstance(dimension, Choice):
        return dimension.options.index(value)
    return int(value) if isinstance(dimension, Integer) else float(value)


def _value(dimension: Dimension, code: Any) -> Any:
    if isinstance(dimension, Choice):
        return dimension.options[int(code)]
    if isinstance(dimension, Real):
        # four digits are what a person would write; rounding must not leave the range
        return min(max(float(f"{float(code):.4g}"), dimension.low), dimension.high)
    return int(code)

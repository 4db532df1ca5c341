"""Which settings to try next, and settings as Optuna has them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from usboost.learners.dimensions import Choice, Dimension, Integer, Real, Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Settings = Mapping[str, Any]
"""Values by parameter path."""

RANDOM = 8
"""Trials before the Gaussian process is asked; the first of them has the model's own settings."""


def propose(
    space: Space, own: Settings, told: Sequence[tuple[Settings, float]], n: int, seed: Sequence[int]
) -> list[Settings]:
    """Settings to try at the same time, by what earlier trials have lost.

    Expected improvement under a Gaussian process, to which those already proposed within a batch are trials
    that run. The study is made anew for each call: equal arguments give equal answers, and fewer are the
    first of more.

    Parameters
    ----------
    own : the first to try, where nothing is told.
    told : settings and losses of trials that have ended, finite; lower is better.
    n : how many.
    seed : numbers that make this call's random choices its own.
    """
    import optuna

    number = int(np.random.SeedSequence(list(seed)).generate_state(1)[0])
    distributions = {path: distribution(each) for path, each in space.items()}
    with quiet(), one_thread():
        study = optuna.create_study(sampler=optuna.samplers.GPSampler(seed=number, n_startup_trials=RANDOM))
        for settings, loss in told:
            params = coded(space, settings)
            study.add_trial(optuna.create_trial(value=loss, params=params, distributions=distributions))
        if not told:
            study.enqueue_trial(coded(space, own))
        found = [study.ask(distributions).params for _ in range(n)]
    proposed: list[Settings] = [
        decoded(space, {path: _rounded(space[path], value) for path, value in each.items()}) for each in found
    ]
    return proposed if told else [own, *proposed[1:]]


def distribution(dimension: Dimension) -> BaseDistribution:
    """A dimension as Optuna has it: of options their positions, since a journal holds no tuples."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        k = len(dimension.options)
        return IntDistribution(0, k - 1) if dimension.ordered else CategoricalDistribution(range(k))
    if isinstance(dimension, Integer):
        return IntDistribution(dimension.low, dimension.high, log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def coded(space: Space, settings: Settings) -> dict[str, float | int]:
    """Settings as Optuna has them."""
    return {
        path: each.options.index(settings[path]) if isinstance(each, Choice) else settings[path]
        for path, each in space.items()
    }


def decoded(space: Space, codes: Mapping[str, Any]) -> dict[str, Any]:
    """What `coded` was given."""
    return {
        path: each.options[int(codes[path])] if isinstance(each, Choice) else codes[path]
        for path, each in space.items()
    }


def _rounded(dimension: Dimension, value: Any) -> Any:
    if isinstance(dimension, Real):
        # four digits are what a user would write; rounding must not leave the range
        return min(max(float(f"{float(value):.4g}"), dimension.low), dimension.high)
    return value


@contextmanager
def quiet() -> Iterator[None]:
    """Within it Optuna says nothing: it has log lines of its own for every study that is made."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it this process computes in one thread, so that results do not depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)

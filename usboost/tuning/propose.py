"""What may be chosen of a built model, which settings to try next, and settings as Optuna has them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from usboost.errors import silenced
from usboost.learners.base import view_names
from usboost.learners.search_space import Choice, Dimension, Integer, Real, Space
from usboost.models.estimator import ViewsEstimator

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


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
        with silenced():
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

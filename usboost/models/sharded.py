"""One fit on rows that are divided into shards, which processes and machines hold parts of."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from usboost.boosting.checkpoint import described
from usboost.boosting.code import code_digest
from usboost.data.table import as_table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.learners.base import LEARNERS
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.tree_learner import TreeLearner
from usboost.models.estimator import as_views
from usboost.shards.collective import needs_all_rows, world
from usboost.shards.threads import Link, run

Model = TypeVar("Model")

GIVEN = ("X", "y", "validation", "sample_weight")
"""Arguments of a model's ``fit`` that hold a shard's rows."""


def fit_sharded(model: Model, rows: Callable[[int], Mapping[str, Any]], shards: int = 8) -> Model:
    """Fit a model to rows that are divided into shards: the same, bit for bit, on 1, 2, 4 or 8 processes.

    Where `torch.distributed` has a process group, all its processes call this, and each holds some of the
    shards, one at least; else this process holds all of them. No process sees the rows of another: sums over
    rows are made shard by shard, and added in the shards' order. So the model depends on how the rows are
    divided into shards, and not on who holds these.

    Trees are grown on histograms of our own, one for each output, whatever engine was asked for; rows for
    validation, if none are given, are drawn in each shard.

    Raises `UsboostError` if the model cannot be fitted so, shards disagree (on columns, or on what a round
    has fitted), or another process has failed or is gone, which it names.

    Parameters
    ----------
    model : boosted networks and trees, of classes or numbers, or a mean of such models
    rows : called with a shard's number, 0 to `shards` − 1, by the process that holds it: arguments of
        ``model.fit``, "X", "y" and maybe "validation" and "sample_weight"; a shard may have no rows.
    shards : as many as there are processes at least

    Returns
    -------
    The model, fitted, in all processes. Callbacks are called once in each of them; a checkpoint is written
    where shard 0 is.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import Table, TwoWeakLearnerClassifier, Views, fit_sharded
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> def rows(shard):
    ...     return {"X": views[shard::3], "y": y[shard::3]}
    >>> fit_sharded(TwoWeakLearnerClassifier(n_rounds=20), rows, shards=3).score(views, y) > 0.8
    True
    """
    refuse(model)
    link = link_of(shards)

    def fit(shard: int) -> Any:
        own = copy.copy(model)
        if shard != link.shards[0]:
            own.callbacks = None  # type: ignore[attr-defined]
        agree_on(model)
        given = dict(rows(shard))
        if unknown := set(given) - set(GIVEN):
            raise UsboostError(f"rows({shard}) gives {sorted(unknown)[0]!r}; it gives {', '.join(GIVEN)}")
        world().agree("the form of the rows", lambda: _form(given))
        return own.fit(**given)  # type: ignore[attr-defined]

    fitted = run(fit, link)
    callbacks = model.callbacks  # type: ignore[attr-defined]
    model.__dict__.update(fitted.__dict__)
    model.callbacks = callbacks  # type: ignore[attr-defined]
    return model


def agree_on(model: Any) -> None:
    """Refuse to go on if shards do not have the same model, unfitted, and the same version of its code."""
    world().agree("the version of usboost", lambda: world().once(lambda: code_digest(model)))
    world().agree("the model", lambda: str(described(model)))


def refuse(model: Any, name: str = "") -> None:
    """Refuse a model that cannot be fitted on several shards: a `UsboostError` names it, or the part of it.

    Parameters
    ----------
    name : the model's, where it was chosen by one
    """
    for part in model.get_params(deep=True).values():
        if isinstance(part, Backbone) and not part.is_frozen:
            raise needs_all_rows("finetune", part.finetune)
        if isinstance(part, Backbone) and part.size == "auto":
            raise needs_all_rows("size", part.size)
    if why := not_sharded(model, name):
        raise UsboostError(
            f"{why} cannot be fitted on several shards; choose a model of networks and trees such as "
            "2wl_newton, or fit it in one process"
        )


def not_sharded(model: Any, name: str = "") -> str | None:
    """Describe the part of a model that cannot be fitted on several shards; None if there is none."""
    own = getattr(model, "not_sharded", None)
    return (name or f"a {type(model).__name__}") if own is None else own()


def unsharded_learner(learners: Mapping[str, Any]) -> str | None:
    """Describe the first learner that cannot be fitted on several shards; None if all can."""
    for name, learner in learners.items():
        exact = isinstance(learner, TreeLearner) and learner.engine == "sklearn"
        if exact or not isinstance(learner, (TreeLearner, NetworkLearner)):
            engine = " of engine 'sklearn'" if exact else ""
            kind = LEARNERS.kind_of(type(learner)) or type(learner).__name__
            return f"learner {name!r} ({kind}{engine})"
    return None


def link_of(shards: int) -> Link:
    """Return the link of the shards of a fit: this process alone, or those of `torch.distributed`.

    Raises `UsboostError` if there is no shard, or there are more processes than shards.
    """
    if shards < 1:
        raise UsboostError(f"there is one shard at least, not {shards}")
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        from usboost.shards.processes import Processes

        return Processes(shards)
    return Link(shards)


def _form(given: Mapping[str, Any]) -> str:
    """Describe what all shards' rows have in common."""
    validation = given.get("validation")
    parts = [given["X"], *(validation[:1] if validation else ())]
    forms = [
        f"{name} {type(view).__name__} {getattr(view, 'names', '')} {getattr(view, 'cardinalities', '')} "
        f"{getattr(view, 'n_columns', '')}"
        for views in (as_views(X) if isinstance(X, (Views, Mapping)) else Views(x=as_table(X)) for X in parts)
        for name, view in ((name, views[name]) for name in views.names)
    ]
    weighted = given.get("sample_weight") is not None, validation and len(validation)
    return f"{forms} {weighted}"

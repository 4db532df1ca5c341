"""A model that is fitted to all rows, for as long as held-out rows have shown to be best."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from usboost.errors import UsboostError, option


def for_all_rows(model: Any) -> Any:
    """An unfitted copy that a fit without validation rows takes as far as they let `model` go.

    The same rounds, epochs or trees, and of what was chosen on validation rows (a penalty, a size of leaves)
    the choice. Views that a start leaves out are decided anew.

    Parameters
    ----------
    model : fitted with validation rows.

    Returns
    -------
    An unfitted model without callbacks and checkpoint.

    Raises
    ------
    UsboostError
        If a model of this kind cannot be told how far to go.
    """
    watching = model.callbacks
    try:  # they may hold what cannot be copied, a bar on the screen say
        copy = clone(model.set_params(callbacks=None))
    finally:
        model.set_params(callbacks=watching)
    given = copy.get_params(deep=False)
    changes: dict[str, Any] = {"validation_fraction": 0.0} if "validation_fraction" in given else {}
    if "checkpoint" in given:  # of the fit to fewer rows
        copy.set_params(checkpoint=None)
    lengths = [name for name in ("n_rounds", "n_epochs", "n_trees") if name in given]
    if "penalties" in given:
        changes["penalties"] = (float(model.penalty_),)
    elif "leaf_sizes" in given:
        changes["leaf_sizes"] = (model.leaf_sizes[model.best_round_ - 1],)
    elif "network" in given:
        copy.network.set_params(n_epochs=max(1, model.best_round_), validation_fraction=0.0)
    elif "estimator" in given:
        changes |= {"estimator": model.for_rounds(model.best_round_), "stops_early": False}
    elif lengths:
        changes[lengths[0]] = max(1, model.best_round_)
    elif type(model).__name__.startswith("Prior"):
        return copy
    else:
        raise UsboostError(
            f"a {type(model).__name__} cannot be fitted again to all rows; leave {option('refit')} out"
        )
    if hasattr(model, "step_fraction_"):
        changes["step_fraction"] = model.step_fraction_
    if getattr(model, "start_", None) is not None:
        copy.start.set_params(penalties=(float(model.start_.penalty_),))
    return copy.set_params(**changes)

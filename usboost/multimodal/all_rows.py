"""The fit to all rows after one with validation rows, so that these are used, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.datasets.custom.encoding import Encoding
from usboost.datasets.custom.own import OwnTable
from usboost.errors import Unsuited, UsboostError
from usboost.models.ensemble_base import Ensemble
from usboost.models.inner_fits import Asked
from usboost.models.refit import for_all_rows
from usboost.models.weights import fit_weighted
from usboost.multimodal.table_rows import arrays_of, related_of
from usboost.multimodal.unfinished import Keep


def fitted_to_all(
    model: Any,
    table: OwnTable,
    rows: tuple[np.ndarray, np.ndarray],
    weights: tuple[np.ndarray | None, np.ndarray | None],
    *,
    encoding: Encoding,
    callbacks: Sequence[Callback],
    took: float | None,
    keep: Keep | None,
) -> tuple[Any, Encoding] | None:
    """A model like `model`, fitted to the validation rows, too, as far as these let `model` go.

    Parameters
    ----------
    rows, weights : of the training and the validation rows; encoding : learnt from the former.
    callbacks : of the first fit.
    took : seconds of the first fit, where this one is made only if there is time for it; None: it has to be.
    keep : where its rounds are kept.

    Returns
    -------
    The model and the encoding of its rows. None where there is no time, it was asked to stop before its end,
    it is not made for so many rows, or a model of its kind cannot be told how far to go. An ensemble is
    `model` itself, to which such fits of its members are added.

    Raises
    ------
    UsboostError
        If it has to be made, and cannot be told how far to go.
    """
    everything = np.concatenate(rows)
    order = np.argsort(everything)
    first, second = weights
    counts = None if first is None or second is None else np.concatenate([first, second])[order]
    everything = everything[order]
    related, labels = related_of(table, everything), table.labels[everything]
    if isinstance(model, Ensemble):
        # fits to folds read rows by the encoding that they have learnt from
        added = model.add_whole(
            table.views(encoding, everything), labels, counts, related, always=took is None
        )
        return (model, encoding) if added else None
    left = min((each.time_left() for each in callbacks), default=math.inf)
    if took is not None and took * len(everything) / len(rows[0]) > left:
        return None
    try:
        again = for_all_rows(model)
    except UsboostError:
        if took is None:
            raise
        return None
    # one that has to be made has a known length, and a limit of time has ended the first
    asked = Asked([each for each in callbacks if took is not None or math.isinf(each.time_left())])
    again.set_params(callbacks=[asked])
    encoding = table.fit_encoding(everything)
    samples = table.views(encoding, everything), labels, counts
    if keep is not None:
        keep.keep(again, (*samples, *arrays_of(related)))
    try:
        fit_weighted(again, samples, None, related)
    except Unsuited:  # for more rows than the first fit had, say
        if took is None:
            raise
        return None
    return None if asked.stopped else (again, encoding)

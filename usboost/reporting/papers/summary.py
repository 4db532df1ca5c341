"""The paper page's first sentences: which model is best on which dataset, and against what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from usboost.evaluation import selection
from usboost.evaluation.names import metric_name, number
from usboost.evaluation.statistics import LEVEL
from usboost.models.catalogue import catalogue
from usboost.reporting.papers import published as paper
from usboost.reporting.results import chosen, tied
from usboost.reporting.rows import read_rows
from usboost.reporting.standing import compared

RIVALS = (catalogue.BASELINE, "lgbm")
"""The models that every dataset's best is compared with and tested against."""

REFERENCES = (*RIVALS, "prior")
"""With them the one whose score is shown only: that a model differs from the prior is no news."""


def verdicts(
    frame: pd.DataFrame,
    datasets: Sequence[str],
    cards: Mapping[str, Mapping[str, Any]],
    results: Path | None,
) -> list[dict[str, Any]]:
    """For each dataset with validation scores: its best model, the references' scores, ties and warnings.

    Parameters
    ----------
    frame : what `results.collect` returns.
    cards : data cards by dataset.
    results : folder with the test rows of each fit; None: no difference is tested.
    """
    return [found for d in datasets if (found := _verdict(frame, d, cards.get(d, {}), results))]


def _verdict(
    frame: pd.DataFrame, dataset: str, card: Mapping[str, Any], results: Path | None
) -> dict[str, Any] | None:
    metric = paper.metric(dataset)
    fit = chosen(frame, dataset, metric)
    if fit is None:
        return None
    part = frame[frame["dataset"] == dataset]
    of_fit = part[(part["model"] == fit[0]) & (part["seed"] == fit[1])]
    val, test = (_scores(of_fit, split) for split in ("val", "test"))
    means = (
        part[(part["split"] == "test") & (part["metric"] == metric)].groupby("model")["value"].mean().dropna()
    )
    others = {
        model: found[1]
        for model in REFERENCES
        if model != fit[0] and (found := chosen(part[part["model"] == model], dataset, metric))
    }
    rows = {}
    if results is not None:
        tried = [fit, *((model, seed) for model, seed in others.items() if model in RIVALS)]
        rows = {each: read_rows(results, dataset, *each) for each in tried}
    p = {model: each for (model, _), (_, each) in compared(rows, fit, metric).items()} if rows else {}
    return {
        "dataset": dataset,
        "model": fit[0],
        "metric": metric_name(metric),
        "val": number(val[metric]),
        "test": number(means[fit[0]]) if fit[0] in means else "–",
        "references": [
            {
                "model": model,
                "value": number(means[model]) if model in means else "–",
                "significant": None if model not in p else p[model] < LEVEL,
            }
            for model in others
        ],
        "tie": selection.tie_note(len(tied(frame, dataset, metric)), metric, val[metric]),
        "warning": selection.probability_note(val, test, card),
    }


def _scores(fit: pd.DataFrame, split: str) -> dict[str, float]:
    part = fit[fit["split"] == split]
    return dict(zip(part["metric"], part["value"], strict=True))


def same_in_both(frame: pd.DataFrame, first: str, second: str) -> list[str]:
    """The models all of whose scores are the same on two datasets."""
    wide = frame.pivot_table("value", ["model", "seed", "split", "metric"], "dataset", sort=False)
    if not {first, second} <= set(wide.columns):
        return []
    equal = (wide[first] == wide[second]).groupby(level="model", sort=False).all()
    return [str(model) for model in equal.index[equal]]

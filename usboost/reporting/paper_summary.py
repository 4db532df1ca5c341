"""The paper page's first sentences: which model is best on which dataset, against what, and what US prints.

Of US (Treviño Gavito, Klabjan, Utke) these are Tables 3 and 4: relative improvements over the paper's own
baseline in %, of the mean of 5 runs for BFV+DNN, of a single run for every boosting model. Table 4 repeats
four rows of Table 3 and adds the two single-learner models; Table 5 of its appendix is those two rows again.
The text's "Table 5 summarizes the results" means Table 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from usboost.evaluation import selection
from usboost.evaluation.names import metric_name, number
from usboost.evaluation.statistics import LEVEL
from usboost.models import catalogue
from usboost.reporting.results import chosen, tied
from usboost.reporting.standing import compared, read_rows

DATASETS = ("ci_a", "ci_b", "ct", "mi", "rw")

_TABLE_3: dict[str, tuple[float, ...]] = {
    "bfv_dnn": (1.87, 4.70, 0.08, 0.34, 0.11),
    "2wl": (3.50, 0.14, -0.37, -0.09, -0.60),
    "2wl_fix": (0.68, -2.10, -0.36, -3.45, -2.37),
    "2wl2o": (3.97, 0.25, 0.10, 0.13, 0.41),
    "2wl2o_fix": (-7.87, -19.85, -0.23, -0.14, -5.37),
}
_TABLE_4: dict[str, tuple[float, ...]] = {"1wl_s": (-7.04, -8.17, -9.21), "1wl_u": (-0.48, -0.16, -1.93)}

# {model: {dataset: relative improvement in %}}
IMPROVEMENT: dict[str, dict[str, float]] = {
    **{model: dict(zip(DATASETS, row, strict=True)) for model, row in _TABLE_3.items()},
    **{model: dict(zip(DATASETS[2:], row, strict=True)) for model, row in _TABLE_4.items()},
}


def improvement(dataset: str, model: str) -> float | None:
    """The published relative improvement in %, or None where the paper prints none."""
    return IMPROVEMENT.get(model, {}).get(dataset)


def metric_of(dataset: str) -> str:
    """The metric the paper scores a dataset with: accuracy for RW, else F1 (it does not say which)."""
    return "accuracy" if dataset == "rw" else "f1"


RIVALS = (catalogue.BASELINE, "lgbm")
"""The models that every dataset's best is compared with and tested against."""

REFERENCES = (*RIVALS, "prior")
"""With them the one whose score is shown only: that a model differs from the prior is no news."""


def verdicts(
    frame: pd.DataFrame, datasets: Sequence[str], cards: Mapping[str, Mapping[str, Any]], results: Path | None
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
    metric = metric_of(dataset)
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
    p = {model: lead.p_holm for (model, _), lead in compared(rows, fit, metric).items()} if rows else {}
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

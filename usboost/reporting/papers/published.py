"""The published results of US (Treviño Gavito, Klabjan, Utke), Tables 3 and 4, as data.

Numbers are relative improvements over the paper's own baseline in %: of the mean of 5 runs for BFV+DNN,
of a single run for every boosting model. Table 4 repeats four rows of Table 3 and adds the two
single-learner models; Table 5 of its appendix is those two rows again. The text's "Table 5 summarizes
the results" means Table 3.
"""

from __future__ import annotations

DATASETS = ("ci_a", "ci_b", "ct", "mi", "rw")

_TABLE_3: dict[str, tuple[float, ...]] = {
    "bfv_dnn": (1.87, 4.70, 0.08, 0.34, 0.11),
    "2wl": (3.50, 0.14, -0.37, -0.09, -0.60),
    "2wl_fix": (0.68, -2.10, -0.36, -3.45, -2.37),
    "2wl2o": (3.97, 0.25, 0.10, 0.13, 0.41),
    "2wl2o_fix": (-7.87, -19.85, -0.23, -0.14, -5.37),
}
_TABLE_4: dict[str, tuple[float, ...]] = {
    "1wl_s": (-7.04, -8.17, -9.21),
    "1wl_u": (-0.48, -0.16, -1.93),
}

# {model: {dataset: relative improvement in %}}
IMPROVEMENT: dict[str, dict[str, float]] = {
    **{model: dict(zip(DATASETS, row, strict=True)) for model, row in _TABLE_3.items()},
    **{model: dict(zip(DATASETS[2:], row, strict=True)) for model, row in _TABLE_4.items()},
}


def improvement(dataset: str, model: str) -> float | None:
    """The published relative improvement in %, or None where the paper prints none."""
    return IMPROVEMENT.get(model, {}).get(dataset)


def metric(dataset: str) -> str:
    """The metric the paper scores a dataset with: accuracy for RW, else F1 (it does not say which)."""
    return "accuracy" if dataset == "rw" else "f1"

"""The figure of docs/results.md, from the scores that are kept of the models with equal trials.

``python -m benchmarks.study.equal_figure``. A model's point is the log-loss of its fits to all rows, or of
first fits where it has no others, with the settings that its trials chose, divided by that of the best of
the others' models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

from benchmarks.study.equal_tables import KEPT, is_ours, rows_of

FIGURE = Path("docs/figures/log-loss.png")
CASES = {
    "lesions-3000": "lesions,\n3,000 rows",
    "lesions": "lesions,\n4,785 rows",
    "products-3000": "products,\n3,000 rows",
    "products": "products,\n9,504 rows",
    "census": "census,\n246,175 rows",
}
SHOWN = {
    "best": ("best", "*", "#0b3c5d"),
    "linear_trees": ("linear_trees", "o", "#1f5f8b"),
    "crossed": ("crossed", "s", "#3f9b6c"),
    "logistic": ("logistic regression", "x", "#b2561a"),
    "lgbm": ("LightGBM", "+", "#b2561a"),
    "xgboost": ("XGBoost", "^", "#b2561a"),
    "catboost": ("CatBoost", "v", "#b2561a"),
    "forest": ("random forest", "D", "#b2561a"),
}
"""By model: its name, marker and colour; others' methods are not filled."""


def chosen(case: str) -> pd.Series:
    """Each model's mean log-loss with the settings that its trials chose, by model."""
    means = rows_of(KEPT / f"{case}.jsonl").groupby(["model", "settings", "fits"])["log_loss"].mean()
    found = {}
    for model in means.index.get_level_values("model").unique():
        settings = means[model]["tuned" if "tuned" in means[model] else "own"]
        found[model] = settings["all" if "all" in settings else "first"]
    return pd.Series(found)


def relative(case: str) -> pd.Series:
    """The same, divided by that of the best of the others' models."""
    means = chosen(case)
    return means / means[[not is_ours(model) for model in means.index]].min()


def draw(path: Path) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, ax = plt.subplots(figsize=(6.6, 5.6), layout="constrained")
    first = next(iter(CASES))
    for height, case in enumerate(reversed(CASES)):
        means = relative(case)
        for order, (model, (name, marker, colour)) in enumerate(SHOWN.items()):
            if model not in means:
                continue
            look: dict[str, Any] = {
                "color": colour,
                "mew": 1.6,
                "ms": 13 if marker == "*" else 8,
                "zorder": 20 - order,
            }
            look |= {} if marker in "x+" else {"mfc": colour if is_ours(model) else "white"}
            ax.plot(means[model], height, marker, label=name if case == first else None, **look)
    ax.axvline(1, color="#777777", linewidth=1, zorder=0)
    ax.set_yticks(range(len(CASES)), list(reversed(CASES.values())))
    ax.set_ylim(-0.6, len(CASES) - 0.4)
    ax.set_xlabel("log-loss ÷ that of the best other model (less is better)")
    ax.grid(axis="x", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    fig.legend(loc="outside upper center", ncols=3, frameon=False)
    fig.savefig(path, dpi=110)
    plt.close(fig)


if __name__ == "__main__":
    draw(FIGURE)

"""Figures of one model on labelled rows: predicted against true, residuals, the learning curve; intervals."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from scipy.stats import binomtest

from usboost.evaluation.names import metric_name, number
from usboost.reporting.figures import _STYLE, INK, MUTED, _plain, to_svg
from usboost.reporting.inspection import model_figures

BLUE, ORANGE = "#0072b2", "#d55e00"
POINTS = 2000
"""Rows drawn of a scatter; more only fatten the page."""


def as_uri(figure: Figure) -> str:
    """The figure within a page."""
    return "data:image/svg+xml;base64," + base64.b64encode(to_svg(figure).encode()).decode()


def predicted_against_true(true: np.ndarray, predicted: np.ndarray, label: str) -> Figure:
    """A point for each row, float64 (n,), and the line on which both are equal."""
    with mpl.rc_context(_STYLE):
        fig = Figure(figsize=(5.0, 4.2), layout="constrained")
        FigureCanvasAgg(fig)
        ax = fig.subplots()
        rows = drawn_rows(len(true))
        low, high = _span(np.concatenate([true[rows], predicted[rows]]))
        ax.plot([low, high], [low, high], color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        ax.scatter(predicted[rows], true[rows], s=9, color=BLUE, alpha=0.45, linewidths=0)
        ax.set(xlim=(low, high), ylim=(low, high), xlabel=f"predicted {_plain(label)}", ylabel="true")
        for axis in (ax.xaxis, ax.yaxis):
            _ticks(axis)
        ax.set_axisbelow(True)
    return fig


def residuals(true: np.ndarray, predicted: np.ndarray, margin: Sequence[float] | None, label: str) -> Figure:
    """True less predicted, float64 (n,), over the prediction, and how often each size is.

    Parameters
    ----------
    margin : residuals at the ends of the interval, drawn as lines; None: no lines.
    """
    with mpl.rc_context(_STYLE):
        fig = Figure(figsize=(6.4, 3.7), layout="constrained")
        FigureCanvasAgg(fig)
        left, right = fig.subplots(1, 2, sharey=True, width_ratios=[3, 1])
        rest, rows = true - predicted, drawn_rows(len(true))
        left.scatter(predicted[rows], rest[rows], s=9, color=BLUE, alpha=0.45, linewidths=0)
        right.hist(rest, bins=min(40, max(5, int(np.sqrt(len(rest))))), orientation="horizontal", color=BLUE)
        for ax in (left, right):
            ax.set_axisbelow(True)
            ax.axhline(0, color=MUTED, linewidth=1)
            for end in margin or ():
                ax.axhline(end, color=ORANGE, linewidth=1, linestyle=(0, (4, 2)))
        left.set(xlabel=f"predicted {_plain(label)}", ylabel="true − predicted")
        for axis in (left.xaxis, left.yaxis):
            _ticks(axis)
        right.set(xlabel="rows")
        right.xaxis.set_major_locator(MaxNLocator(2, integer=True))
    return fig


def learning_curve(history: Mapping[str, Sequence[float]], best_round: int) -> Figure:
    """The risk, and one score of the validation rows if it is there, after each round; the kept is marked.

    Parameters
    ----------
    history : ``round``, and measures whose names end in ``_train`` and ``_val``, of equal lengths.
    """
    risks = [name for name in ("risk_train", "risk_val") if name in history]
    scores = [name for name in history if name.endswith("_val") and name not in risks]
    panels = [(names, what) for names, what in ((risks, "risk"), (scores[:1], "")) if names]
    with mpl.rc_context(_STYLE):
        fig = Figure(figsize=(6.4, 3.4), layout="constrained")
        FigureCanvasAgg(fig)
        axes = np.atleast_1d(fig.subplots(1, len(panels)))
        shown: dict[str, Line2D] = {}
        for ax, (names, what) in zip(axes, panels, strict=True):
            for name in names:
                rows = "training" if name.endswith("_train") else "validation"
                color = MUTED if name.endswith("_train") else BLUE
                ax.plot(history["round"], history[name], color=color, linewidth=1.6, label=f"{rows} rows")
            ax.axvline(best_round, color=INK, linewidth=1, linestyle=(0, (4, 2)))
            measured = what or metric_name(names[0].removesuffix("_val"))
            ax.set(xlabel="round", ylabel=measured)
            ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            for line in ax.get_lines()[: len(names)]:
                shown[str(line.get_label())] = line
        fig.legend(handles=list(shown.values()), loc="outside lower left", ncols=2)
    return fig


def drawn_rows(n: int) -> np.ndarray:
    """Positions of at most `POINTS` of n rows that a scatter shows, the same ones each time."""
    if n <= POINTS:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, POINTS, replace=False))


def _ticks(axis: Axis) -> None:
    """Few ticks, whose numbers do not run into each other."""
    axis.set_major_locator(MaxNLocator(5))
    if max(map(abs, axis.get_view_interval())) >= 10_000:
        axis.set_major_formatter("{x:,.0f}")


def _span(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    edge = 0.04 * (high - low) or 1.0
    return low - edge, high + edge


def of_numbers(
    true: np.ndarray, predicted: np.ndarray, margin: tuple[float, float] | None, label: str
) -> dict[str, Any]:
    """Figures of predicted against true and of residuals, the mean residual, and `coverage`.

    Parameters
    ----------
    true, predicted : float64 of shape (n,).
    margin : what is added to a prediction for the ends of its interval; None: there are none.
    label : what is predicted.
    """
    return {
        "predicted": as_uri(model_figures.predicted_against_true(true, predicted, label)),
        "residuals": as_uri(model_figures.residuals(true, predicted, margin, label)),
        "bias": number(float((true - predicted).mean())),
        "points": min(model_figures.POINTS, len(true)),
        "coverage": None if margin is None else coverage(true, predicted, margin),
    }


def coverage(true: np.ndarray, predicted: np.ndarray, margin: tuple[float, float]) -> dict[str, str]:
    """How many rows are inside their interval, and its width."""
    low, high = (predicted + end for end in margin)
    inside = int(((low <= true) & (true <= high)).sum())
    least, most = binomtest(inside, len(true)).proportion_ci(0.95, method="wilson")
    return {
        "share": f"{inside / len(true):.1%}",
        "least": f"{least:.1%}",
        "most": f"{most:.1%}",
        "width": number(float((high - low).mean())),
        "below": number(-margin[0]),
        "above": number(margin[1]),
        "spread": number(float(true.std())),
    }

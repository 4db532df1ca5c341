"""Draw one fitted model: importance, calibration, predictions, learning curve, heat over an image."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from PIL import Image

from usboost.evaluation.ranking import LOWER_IS_BETTER, metric_name
from usboost.report.figures import BELOW, GRID, INK, LINE, MUTED, STYLE, canvas, place, plain

_VIEWS = ("#0072b2", "#d55e00", "#009e73", "#cc8a00", "#882255", "#44aa99")
_FEW_ROUNDS = 30  # points are marked up to here
_MOST_POINTS = 150  # of a line
_DWARFS = 4  # times the largest round: a start that leaves the lines no room
_LONG = 32  # letters of a view's name, next to which others find no room in the legend
_LETTER = 0.085  # inches, of a tick's label
MOST_CLASSES = 12  # classes of a confusion matrix whose cells can still be read


def contributions(frame: pd.DataFrame, title: str) -> Figure:
    """Draw |step| · size of the learner's output over the rounds, a line per view; the start at round 0.

    Of many rounds, means of neighbouring ones are drawn, where the start dwarfs them on a logarithmic axis.
    """
    with mpl.rc_context(STYLE):
        fig = canvas(title)
        (ax,) = fig.axes
        start, rounds = frame[frame["round"] == 0], frame[frame["round"] > 0]
        last = int(frame["round"].max())
        together = max(1, int(np.ceil(last / _MOST_POINTS)))
        marker = "o" if last <= _FEW_ROUNDS else None
        for view, size in zip(start["view"], start["contribution"]):
            ax.plot([0], [size], color=INK, marker="D", markersize=6, linestyle="", label=plain(str(view)))
            ax.annotate(f"{size:.3g}", (0, size), (8, 0), textcoords="offset points", va="center", color=INK)
        for color, (view, one) in zip(_VIEWS * 9, rounds.groupby("view", sort=False)):
            shown = one.groupby((one["round"] - 1) // together)[["round", "contribution"]].mean()
            line: dict[str, Any] = {"linewidth": 1.6, "marker": marker, "markersize": 4.5}
            ax.plot(*shown.to_numpy().T, color=color, label=plain(str(view)), **line)
        mean = f", means of {together} rounds" if together > 1 else ""
        ax.set(xlabel="round", ylabel=f"|step| · ‖output‖{mean}", ylim=(0, None))
        # comparisons with what is not there are false
        if start["contribution"].max() > _DWARFS * rounds["contribution"].max() > 0:
            positive = frame.loc[frame["contribution"] > 0, "contribution"]
            limits = (positive.min() / 1.5, positive.max() * 1.5)
            ax.set(yscale="log", ylim=limits, ylabel=f"{ax.get_ylabel()} (logarithmic)")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_locator(NullLocator())
        if last <= 1:
            ax.set(xlim=(-0.5 if len(start) else 0.5, 1.5), xticks=[*range(1 - bool(len(start)), 2)])
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        names = list(dict.fromkeys(frame["view"].astype(str)))
        columns = 3 if max(map(len, names)) < _LONG else 1
        fig.legend(loc="lower left", ncols=columns)
        place(fig, bottom=BELOW + LINE * math.ceil(len(names) / columns))
    return fig


def worsening(metric: str) -> str:
    """Return what happens to a score when what a model reads is shuffled, in words."""
    return f"{'increase' if metric in LOWER_IS_BETTER else 'decrease'} in {metric_name(metric)}"


def importance(frame: pd.DataFrame, title: str) -> Figure:
    """Draw how much worse scores get when a view is shuffled, with the spread over shuffles.

    Two panels, of the first and the last metric in the frame: F1 and log-loss, or RMSE and R².
    """
    with mpl.rc_context(STYLE):
        views = list(dict.fromkeys(frame["view"]))
        metrics = list(dict.fromkeys(frame["metric"]))
        fig = canvas(title, ncols=2, sharex=False, sharey=True)
        for ax, metric in zip(fig.axes, (metrics[0], metrics[-1])):
            own = frame[frame["metric"] == metric].set_index("view").loc[views]
            colors = [color for color, _ in zip(_VIEWS * 9, views)]
            spread = own["std"].fillna(0)
            ax.barh(range(len(views)), own["mean"], xerr=spread, color=colors, height=0.55, ecolor=INK)
            ax.axvline(0, color=MUTED, linewidth=0.8)
            for at in np.flatnonzero((own["mean"] == 0) & (spread == 0)):
                ax.annotate("nothing", (0, at), (5, 0), textcoords="offset points", va="center", color=MUTED)
            ax.set_yticks(range(len(views)), [plain(str(view)) for view in views])
            ax.tick_params(axis="y", length=0)
            ax.set_xlabel(worsening(metric))
            ax.xaxis.set_major_locator(MaxNLocator(4))
            ax.grid(axis="y", visible=False)
            ax.set_axisbelow(True)
        fig.axes[0].invert_yaxis()  # shared by both panels
        place(fig, left=_width(views))
    return fig


def calibration(bins: pd.DataFrame, title: str) -> Figure:
    """Draw the reliability diagram: predicted against observed frequency, with 95 % intervals and counts."""
    with mpl.rc_context(STYLE):
        fig = canvas(title, nrows=2, height_ratios=[3, 1])
        above, below = fig.axes
        above.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        observed = bins["observed"]
        reach = np.maximum([observed - bins["observed_low"], bins["observed_high"] - observed], 0)
        look: dict[str, Any] = {"marker": "o", "markersize": 4.5, "capsize": 2.5, "linewidth": 1.4}
        above.errorbar(bins["predicted"], observed, reach, color=_VIEWS[0], clip_on=False, **look)
        above.set(xlim=(0, 1), ylim=(0, 1), ylabel="observed frequency")
        width = (bins["high"] - bins["low"]) * 0.92
        below.bar((bins["low"] + bins["high"]) / 2, bins["count"], width=width, color=GRID, edgecolor=MUTED)
        below.set(xlabel="predicted probability", ylabel="samples")
        below.set_axisbelow(True)
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    return fig


def confusion(counts: np.ndarray, classes: Sequence[str], title: str) -> Figure:
    """Draw counts, coloured by their share of the true class; for up to `MOST_CLASSES`."""
    with mpl.rc_context(STYLE):
        fig = canvas(title)
        (ax,) = fig.axes
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        ax.imshow(shares, cmap="Blues", vmin=0, vmax=1.25, aspect="auto")
        for (i, j), count in np.ndenumerate(counts):
            dark = shares[i, j] > 0.6
            text = f"{int(count):,}\n{shares[i, j]:.0%}" if len(classes) < 7 else f"{int(count):,}"
            # fixed colours, since the cells keep theirs on a dark page
            ax.text(j, i, text, ha="center", va="center", color="#fefefe" if dark else "#1b2027")
        short = [name if len(name) < 18 else f"{name[:16]}…" for name in classes]
        names, turned = [plain(name) for name in short], max(map(len, short)) > 8
        slanted: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if turned else {}
        ax.set_xticks(range(len(names)), names, **slanted)
        ax.set_yticks(range(len(names)), names)
        ax.set(xlabel="predicted", ylabel="true")
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        width = _width(short)
        place(fig, left=width + LINE, bottom=BELOW + (width / 2 if turned else 0))
    return fig


def _width(names: Sequence[str]) -> float:
    """Return the inches that names next to an axis take."""
    return 0.2 + _LETTER * max(map(len, map(str, names)))


FALLS, RISES = (213, 94, 0), (0, 114, 178)
"""Colours of heat above and below 0; they differ for those who see few colours, too."""

LEAST = 0.02  # the heat that has the full colour at least, so that next to nothing stays pale

_MOST = 0.8  # of the full colour, the rest being the image


def overlay(pixels: np.ndarray, heat: np.ndarray) -> Image.Image:
    """Draw the image in grey under its heat.

    `pixels`: uint8 (C, H, W), C being 1 or 3. `heat`: float (H, W).
    """
    grey = pixels.mean(axis=0)[..., None]
    pale = 64 + grey * (191 / 255)  # colours would not be told apart on black
    share = np.minimum(np.abs(heat) / max(LEAST, float(np.abs(heat).max())), 1)[..., None] * _MOST
    colour = np.where(heat[..., None] > 0, FALLS, RISES)
    return Image.fromarray(np.rint(pale * (1 - share) + colour * share).astype(np.uint8))


BLUE, ORANGE = _VIEWS[:2]
POINTS = 2000  # rows drawn of a scatter; more only fatten the page


def predicted_against_true(true: np.ndarray, predicted: np.ndarray, label: str) -> Figure:
    """Draw a point for each row, float64 (n,), and the line on which both are equal."""
    with mpl.rc_context(STYLE):
        fig = Figure(figsize=(5.0, 4.2), layout="constrained")
        ax = fig.subplots()
        rows = drawn_rows(len(true))
        both = np.concatenate([true[rows], predicted[rows]])
        edge = 0.04 * float(np.ptp(both)) or 1.0
        low, high = float(both.min()) - edge, float(both.max()) + edge
        ax.plot([low, high], [low, high], color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        ax.scatter(predicted[rows], true[rows], s=9, color=BLUE, alpha=0.45, linewidths=0)
        ax.set(xlim=(low, high), ylim=(low, high), xlabel=f"predicted {plain(label)}", ylabel="true")
        for axis in (ax.xaxis, ax.yaxis):
            _ticks(axis)
        ax.set_axisbelow(True)
    return fig


def residuals(true: np.ndarray, predicted: np.ndarray, ends: Sequence[np.ndarray], label: str) -> Figure:
    """Draw true less predicted, float64 (n,), over the prediction, and a histogram of it.

    `ends`: both ends of each prediction's interval, (n,), drawn as lines; empty: no lines.
    """
    with mpl.rc_context(STYLE):
        fig = Figure(figsize=(6.4, 3.7), layout="constrained")
        left, right = fig.subplots(1, 2, sharey=True, width_ratios=[3, 1])
        rest, rows = true - predicted, drawn_rows(len(true))
        left.scatter(predicted[rows], rest[rows], s=9, color=BLUE, alpha=0.45, linewidths=0)
        right.hist(rest, bins=min(40, max(5, int(np.sqrt(len(rest))))), orientation="horizontal", color=BLUE)
        for ax in (left, right):
            ax.set_axisbelow(True)
            ax.axhline(0, color=MUTED, linewidth=1)
        along = np.argsort(predicted)
        for end in ends:
            left.plot(predicted[along], (end - predicted)[along], ORANGE, linewidth=1, linestyle=(0, (4, 2)))
        left.set(xlabel=f"predicted {plain(label)}", ylabel="true − predicted")
        for axis in (left.xaxis, left.yaxis):
            _ticks(axis)
        right.set(xlabel="rows")
        right.xaxis.set_major_locator(MaxNLocator(2, integer=True))
    return fig


def learning_curve(history: pd.DataFrame, best_round: int) -> Figure:
    """Draw the risk, and one score of the validation rows if there is one, per round; the used one is marked.

    `history`: a column ``round``, and measures whose names end in ``_train`` and ``_val``.
    """
    risks = [name for name in ("risk_train", "risk_val") if name in history]
    scores = [name for name in history if name.endswith("_val") and name not in risks]
    panels = [(names, what) for names, what in ((risks, "risk"), (scores[:1], "")) if names]
    with mpl.rc_context(STYLE):
        fig = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = np.atleast_1d(fig.subplots(1, len(panels)))
        shown: dict[str, Line2D] = {}
        for ax, (names, what) in zip(axes, panels, strict=True):
            for name in names:
                rows, color = ("training", MUTED) if name.endswith("_train") else ("validation", BLUE)
                line: dict[str, Any] = {"color": color, "linewidth": 1.6, "label": f"{rows} rows"}
                (shown[rows],) = ax.plot(history["round"], history[name], **line)
            ax.axvline(best_round, color=INK, linewidth=1, linestyle=(0, (4, 2)))
            ax.set(xlabel="round", ylabel=what or metric_name(names[0].removesuffix("_val")))
            ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        fig.legend(handles=list(shown.values()), loc="outside lower left", ncols=2)
    return fig


def drawn_rows(n: int) -> np.ndarray:
    """Return positions of at most `POINTS` of n rows for a scatter, the same ones each time."""
    if n <= POINTS:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, POINTS, replace=False))


def _ticks(axis: Axis) -> None:
    """Set few ticks, whose numbers do not run into each other."""
    axis.set_major_locator(MaxNLocator(5))
    if max(map(abs, axis.get_view_interval())) >= 10_000:
        axis.set_major_formatter("{x:,.0f}")

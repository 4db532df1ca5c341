"""Draw the training flow's traces: performance against runtime, steps and risks; the style of all figures."""

import base64
import colorsys
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter, SymmetricalLogLocator

from usboost.boosting.steps import Bayes, Newton
from usboost.errors import UsboostError
from usboost.evaluation.ranking import metric_name
from usboost.models import catalogue
from usboost.models.catalogue import OTHERS

# {model: long frame as `results.read_trace` returns it}
Traces = Mapping[str, pd.DataFrame]


class NothingToDraw(UsboostError):
    """No trace holds what a figure shows."""


INK, MUTED, GRID = "#1c2128", "#5d6673", "#dfe3e8"
# what a dark page turns them into; the colours of the models are legible on both
_DARK = {
    INK: "#e6e8eb",
    MUTED: "#a2abb7",
    GRID: "#363d47",
    "#0072b2": "#4d9fd6",
    "#7a828e": "#98a1ad",
    "#882255": "#c9669a",
    "#332288": "#8f84e0",
    "#444444": "#b0b0b0",
    "#ffffff": "#14181e",
}
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.hashsalt": "usboost",
    "svg.fonttype": "path",
}
_SIZE = {1: (5.0, 3.7), 2: (5.0, 4.5)}  # inches, by number of panels
BELOW = 0.55  # inches, ticks and the label of an axis
LINE = 0.22  # inches, of a legend
_FEW_LINES = 3  # of a legend, beyond which the figure grows
_SHORT = 180  # seconds of runtime, below which they are not shown as minutes
_DWARFS = 5  # times the smallest of several
_POINTS = 300  # of one line; more cannot be seen and would only fatten the page


Line = str | tuple[float, tuple[float, ...]]  # as matplotlib takes a line style
_DASHED: Line = (0, (4, 1.5))
_DOTTED: Line = (0, (6, 1.5, 1, 1.5))


class _Look(NamedTuple):
    color: str
    marker: str
    line: Line = "-"


_OTHER_LOOKS = tuple(_Look(colour, marker, _DOTTED) for colour, marker in zip(OTHERS, cycle("Xph*P<>8H")))


def performance(
    traces: Traces,
    title: str,
    *,
    baseline: float | None = None,
    ceiling: float | None = None,
    score: str = "f1",
) -> Figure:
    """Draw a validation score against runtime in minutes, or seconds; a marker on each seed's best round.

    With several seeds, each is a thin line, and a thick one joins the medians of the rounds that all of them
    reached. Raises `NothingToDraw` if no model has finite seconds and scores; one without is left out.

    `traces` are by model long over rounds with the columns seed, round, seconds, f1_val, or that of another
    `score`, the RMSE of a number say, and, if known, the boolean best. Horizontal lines are the baseline's
    best validation score, `baseline`, and 1 − label noise, `ceiling`, which bounds the accuracy.
    """
    column = f"{score}_val"
    shown = _with_finite(traces, ("seconds", column))
    with mpl.rc_context(STYLE):
        fig = canvas(title)
        (ax,) = fig.axes
        extra: dict[str, Line2D] = {}
        look: dict[str, Any] = {"color": MUTED, "linewidth": 1.2, "zorder": 1.5}
        if baseline is not None and np.isfinite(baseline):
            extra["Baseline, best round"] = ax.axhline(baseline, linestyle=(0, (1, 1.5)), **look)
        if ceiling is not None:
            extra["1 − label noise"] = ax.axhline(ceiling, linestyle=(0, (6, 2)), **look)
        unit = 1 if max(trace["seconds"].max() for trace in shown.values()) < _SHORT else 60
        for model, trace in shown.items():
            _curves(ax, trace.assign(runtime=trace["seconds"] / unit), "runtime", column, _look(model, shown))
        ax.set_xlabel("runtime, seconds" if unit == 1 else "runtime, minutes")
        ax.set_ylabel(f"{metric_name(score)}, validation")
        if not _logarithmic(ax, [trace["seconds"].max() / unit for trace in shown.values()]):
            ax.set_xlim(left=0)
        _legend(fig, shown, extra)
    return fig


def steps(traces: Traces, title: str) -> Figure:
    """Draw the steps per round: ε of the network on U above, δ of the tree on S below; 0 is marked.

    A ring marks a step that is as long as the search allows. Where one model's steps dwarf another's, the
    axis is logarithmic beyond ±1. A model without a finite step is left out; `NothingToDraw` if none is left.
    """
    return _per_round(traces, title, {"epsilon": "ε, network on U", "delta": "δ, tree on S"}, steps=True)


def risk(traces: Traces, title: str) -> Figure:
    """Draw training risk above, validation risk below, per round (per epoch for the two-branch networks).

    Risks compare between models of one loss only; `NothingToDraw` if no model has a finite one.
    """
    return _per_round(traces, title, {"risk_train": "risk, training", "risk_val": "risk, validation"})


def _per_round(traces: Traces, title: str, panels: Mapping[str, str], *, steps: bool = False) -> Figure:
    shown = _with_finite(traces, *((column,) for column in panels))
    with mpl.rc_context(STYLE):
        fig = canvas(title, len(panels))
        axes = fig.axes
        extra: dict[str, Line2D] = {}
        for ax, (column, label) in zip(axes, panels.items(), strict=True):
            ax.set_ylabel(label)
            there = {model: trace for model, trace in shown.items() if column in trace}
            for model, trace in there.items():
                _curves(ax, trace, "round", column, _look(model, shown))
            if steps:
                ax.axhline(0, color=MUTED, linewidth=0.8, zorder=1.5)
                if _apart(trace[column].abs().max() for trace in there.values()):
                    ax.set_yscale("symlog", linthresh=1)
                    ax.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1))
                    ax.yaxis.set_major_formatter("{x:g}")
                for model, trace in there.items():
                    sizes = trace[column].abs().to_numpy()[:, None]
                    ends = trace[np.isclose(sizes, _bounds(model), rtol=1e-9, atol=0).any(axis=1)]
                    if not ends.empty:
                        ring: dict[str, Any] = {"markerfacecolor": "none", "markersize": 10, "clip_on": False}
                        (line,) = ax.plot(ends["round"], ends[column], "o", color=INK, **ring)
                        extra["step at search bound"] = line
        axes[-1].set_xlabel("round")
        if not _logarithmic(axes[-1], [trace["round"].max() for trace in shown.values()]):
            axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        _legend(fig, shown, extra)
    return fig


def _bounds(model: str) -> list[float]:
    """Return the lengths of a model's longest steps, by the rules' bounds and the catalogue's."""
    changes = catalogue.CATALOGUE[model].changes if model in catalogue.CATALOGUE else {}
    longest = {Newton.limit, *Bayes.bounds}
    longest |= {changes.get("newton", {}).get("limit", 0.0), *changes.get("bayes", {}).get("bounds", ())}
    return [bound * size for bound in longest - {0.0} for size in (1.0, changes.get("shrinkage", 1.0))]


def _apart(sizes: Iterable[float]) -> bool:
    """Tell whether the largest of some sizes leaves the smallest no room on a common axis."""
    known = [size for size in sizes if size > 0]
    return bool(known) and max(known) > _DWARFS * min(known)


def _logarithmic(ax: Axes, ends: Sequence[float]) -> bool:
    """Make the x axis logarithmic if one model's line is so long that another's would hardly be seen."""
    if not _apart(ends):
        return False
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(f"{ax.get_xlabel()} (logarithmic)")
    return True


def to_svg(fig: Figure) -> str:
    """Return the figure as one ``<svg>`` element that follows a dark page; the same bytes every time."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context(STYLE):
        fig.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    # a hundredth of a point is finer than any screen, and halves the page
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path.group()), buffer.getvalue())
    rule = '[style*="{0}: {1}"]{{{0}:{2}!important}}'
    rules = "".join(rule.format(of, *pair) for pair in _DARK.items() for of in ("fill", "stroke"))
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    return re.sub(r"(<svg[^>]*>)", lambda tag: tag.group(1) + style, svg[svg.index("<svg") :], count=1)


def data_uri(image: str | bytes, kind: str = "svg+xml") -> str:
    """Return a figure or another image as an address that holds it."""
    content = image.encode() if isinstance(image, str) else image
    return f"data:image/{kind};base64," + base64.b64encode(content).decode()


def draw(
    traces: Traces,
    title: str,
    *,
    baseline: float | None = None,
    ceiling: float | None = None,
    layouts: bool = True,
    score: str = "f1",
) -> dict[str, Figure]:
    """Draw every figure that these traces can fill, by name; parameters as of `performance`.

    With `layouts`, the score is in those of the paper (`order`, `learners` and `steps`: US Fig. 3, 4 and 5)
    and one of all other models, else in one of all. Where a number is predicted, so are the risks, which are
    all of centred and scaled labels; else those of the codeword exponential loss are apart.
    """
    scored = partial(performance, baseline=baseline, ceiling=ceiling, score=score)
    entries = {model: catalogue.CATALOGUE.get(model) for model in traces}
    shows = {model: entry.figures if entry else () for model, entry in entries.items()}
    papers = {model for model, entry in entries.items() if entry and entry.papers_loss}
    plan: dict[str, tuple[Callable[..., Figure], Iterable[str]]] = {}
    if layouts:
        for name in ("order", "learners", "steps"):
            plan[name] = scored, [model for model in traces if name in shows[model]]
        plan["others"] = scored, [model for model in traces if not shows[model]]
    else:
        plan["performance"] = scored, traces
    plan["epsilon_delta"] = steps, traces
    if score == "f1":
        plan["risk_boosting"] = risk, [model for model in traces if model in papers]
        plan["risk_others"] = risk, [model for model in traces if model not in papers]
    else:
        plan["risk"] = risk, traces
    figures = {}
    for name, (drawn, models) in plan.items():
        with suppress(NothingToDraw):
            figures[name] = drawn({model: traces[model] for model in models}, title)
    return figures


def _with_finite(traces: Traces, *alternatives: tuple[str, ...]) -> Traces:
    """Return the traces, in table order, that have a row with all columns of an alternative finite."""

    def usable(trace: pd.DataFrame) -> bool:
        return any(
            set(columns) <= set(trace) and bool(np.isfinite(trace[list(columns)]).all(axis=1).any())
            for columns in alternatives
        )

    shown = {model: traces[model] for model in catalogue.ordered(traces) if usable(traces[model])}
    if not shown:
        wanted = " or ".join(" and ".join(columns) for columns in alternatives)
        raise NothingToDraw(
            f"no trace of {', '.join(traces) or 'any model'} has finite values of {wanted}; "
            "choose models whose trace has them"
        )
    return shown


def _look(model: str, shown: Traces) -> _Look:
    lines = {name: entry.line for name in shown if (entry := catalogue.CATALOGUE.get(name)) and entry.line}
    if line := lines.get(model):
        return _Look(line.colour, line.marker, _DASHED if line.dashed else "-")
    # the same in all figures of a page, whichever models each shows
    others = [name for name, entry in catalogue.CATALOGUE.items() if not entry.line]
    others += [name for name in shown if name not in lines and name not in others]
    place = others.index(model)
    if place < len(_OTHER_LOOKS):
        return _OTHER_LOOKS[place]
    red, green, blue = colorsys.hsv_to_rgb(place * 0.618 % 1, 0.8, 0.7)  # no hue comes twice
    return _Look(mpl.colors.to_hex((red, green, blue)), "X", _DOTTED)


def canvas(title: str, panels: int = 1, **layout: Any) -> Figure:
    """Return a figure of some panels below each other, or laid out by `layout`, arguments of `subplots`."""
    fig = Figure(figsize=_SIZE[panels])
    place(fig)
    axes = fig.subplots(**{"nrows": panels, "sharex": True, **layout})
    np.ravel(axes)[0].set_title(plain(title), pad=9, y=1.0)
    return fig


def _curves(ax: Axes, trace: pd.DataFrame, x: str, y: str, look: _Look) -> None:
    finite = trace[np.isfinite(trace[x]) & np.isfinite(trace[y])]
    seeds = [one for _, one in finite.groupby("seed")]
    for one in seeds:
        width, alpha, line = (1.6, 1.0, look.line) if len(seeds) == 1 else (0.8, 0.4, "-")
        drawn = _thin(one)
        ax.plot(drawn[x], drawn[y], linestyle=line, color=look.color, linewidth=width, alpha=alpha)
        best = one[one["best"]] if "best" in one else one[:0]
        mark: dict[str, Any] = {"markersize": 6.5, "markeredgecolor": "white", "markeredgewidth": 0.8}
        mark["zorder"] = 4
        ax.plot(best[x], best[y], look.marker, color=look.color, clip_on=False, **mark)
    if len(seeds) > 1:
        rounds = finite.assign(at=finite["round"]).groupby("at")
        reached = rounds["seed"].nunique() == len(seeds)
        median = _thin(rounds[[x, y]].median()[reached])
        ax.plot(median[x], median[y], linestyle=look.line, color=look.color, linewidth=1.8)


def _thin(frame: pd.DataFrame) -> pd.DataFrame:
    """Return at most `_POINTS` rows, evenly, the first and the last among them."""
    return frame.iloc[np.linspace(0, len(frame) - 1, min(len(frame), _POINTS)).round().astype(int)]


def _legend(fig: Figure, shown: Traces, extra: Mapping[str, Line2D]) -> None:
    handles: list[Line2D] = []
    style: dict[str, Any] = {"linewidth": 1.8, "markersize": 5.5, "markeredgecolor": "white"}
    for model in shown:
        look, label = _look(model, shown), plain(catalogue.title(model))
        handles.append(Line2D([], [], color=look.color, marker=look.marker, label=label, **style))
        handles[-1].set(linestyle=look.line)
    for label, line in extra.items():
        line.set_label(label)
        handles.append(line)
    columns = min(len(handles), 3)
    fig.legend(handles=handles, loc="lower left", ncols=columns, handlelength=2.9, columnspacing=1.2)
    rows = math.ceil(len(handles) / columns)
    fig.set_figheight(fig.get_figheight() + LINE * max(0, rows - _FEW_LINES))  # of which the lines have room
    place(fig, bottom=BELOW + LINE * rows)


def place(fig: Figure, left: float = 0.8, bottom: float = BELOW) -> None:
    """Set a figure's margins, in inches.

    A layout engine would find them by drawing all twice, which took most of a report's time.
    """
    width, height = fig.get_size_inches()
    right, top = 1 - 0.12 / width, 1 - 0.4 / height
    fig.subplots_adjust(left / width, bottom / height, right, top, wspace=0.12, hspace=0.15)


def plain(text: str) -> str:
    """Return text that matplotlib prints as it is: a dollar sign would start a formula."""
    return text.replace("$", r"\$")

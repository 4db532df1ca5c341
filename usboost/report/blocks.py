"""Blocks of the reports' pages: each a function from records or plain data to HTML; a page chooses some."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from usboost.errors import UsboostError
from usboost.evaluation.intervals import Margin, ends, wilson
from usboost.evaluation.metrics import confusion as confusion_counts
from usboost.evaluation.ranking import joined_names, metric_name, number
from usboost.models import catalogue
from usboost.models.inspection.inspect import calibration as calibration_bins
from usboost.models.inspection.inspect import expected_calibration_error
from usboost.report import model_figures
from usboost.report.figures import data_uri, to_svg
from usboost.report.results import dataset_name

DEMO = "demo data"


class Section(NamedTuple):
    """A part of a page; one without a body is left out, one without a link is not in the page's list."""

    anchor: str
    title: str
    body: str
    link: str = ""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("usboost.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"data_uri": data_uri, "listed": joined_names, "short": short, "metric": metric_name}
    made.filters |= {"dataset": dataset_name, "model": catalogue.title, "about": catalogue.about}
    made.filters["signed"] = lambda value: signed(value, short)
    return made


def html(template: str, **data: Any) -> Markup:
    """Fill a template with data, which is escaped unless it is `Markup`; any name must be given."""
    return Markup(_environment().get_template(f"{template}.html.j2").render(**data))


def check_out(out: Path) -> None:
    """Refuse what is no ``.html`` file. Raises UsboostError."""
    if out.suffix.lower() not in (".html", ".htm") or out.is_dir():
        raise UsboostError(f"{out} must be an .html file")


def page(title: str, intro: Markup, sections: Sequence[Section], footer: Markup, tabs: str = "") -> str:
    """Return a page: HTML that loads nothing from the network and runs no script.

    `intro`: stands between the title and the sections. `tabs`: links to other pages.
    """
    filled = [each for each in sections if each.body]
    return str(html("page", title=title, intro=intro, sections=filled, footer=footer, tabs=tabs))


def signed(value: float | None, write: Any = "{:.2f}".format) -> str:
    """Write a difference with its sign; a dash for none."""
    if value is None or not np.isfinite(value):
        return "–"
    text = write(abs(value))
    return text if not text.strip("0.") else ("−" if value < 0 else "+") + text


def short(value: float | None) -> str:
    """Write a score: three digits after the point, fewer if it has a unit and is large; a dash for none."""
    if value is None or not np.isfinite(value):
        return "–"
    size = abs(value)
    shown = f"{value:.3f}" if size < 100 else f"{value:,.0f}" if size >= 10_000 else f"{value:,.1f}"
    return shown.replace("-", "−")


def confusion(labels: np.ndarray, predicted: np.ndarray, classes: Sequence[str]) -> Markup:
    """Return the confusion matrix of int64 codes (n,): counts, and their shares of the true class."""
    counts = confusion_counts(labels, predicted, len(classes))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return html("confusion", classes=classes, counts=counts.tolist(), shares=shares.tolist())


def calibration(labels: np.ndarray, probabilities: np.ndarray, classes: Sequence[str]) -> Markup:
    """Return the reliability diagram of probabilities, (n, M)."""
    bins = calibration_bins(labels, probabilities)
    figure = data_uri(to_svg(model_figures.calibration(bins, "Reliability diagram")))
    return html("calibration", figure=figure, classes=classes, error=expected_calibration_error(bins))


def predictions(
    true: np.ndarray, predicted: np.ndarray, margin: Margin | None, label: str, floor: float | None = None
) -> tuple[Markup, Markup]:
    """Return predicted against true numbers, and residuals with the coverage of prediction intervals.

    Both are float64 of shape (n,). `margin` is that of their intervals; None: there are none. `label` is what
    is predicted; no interval reaches below `floor`.
    """
    covered, between = None, tuple[np.ndarray, ...]()
    if margin is not None:
        low, high = between = ends(predicted, margin, floor)
        share = float(((low <= true) & (true <= high)).mean())
        texts = (f"{each:.1%}" for each in (share, *wilson(share, len(true))))
        width = high - low
        sizes = (number(float(each)) for each in (width.mean(), width.min(), width.max(), true.std()))
        names = ("share", "least", "most", "width", "narrowest", "widest", "spread")
        covered = dict(zip(names, (*texts, *sizes), strict=True))
        covered["floor"] = "" if floor is None else f"{floor:g}"
    scatter = data_uri(to_svg(model_figures.predicted_against_true(true, predicted, label)))
    rest = data_uri(to_svg(model_figures.residuals(true, predicted, between, label)))
    bias, points = number(float((true - predicted).mean())), min(model_figures.POINTS, len(true))
    return (
        html("predicted", figure=scatter, label=label, points=points, n=len(true)),
        html("residuals", figure=rest, label=label, bias=bias, coverage=covered),
    )


Key = tuple[str, str, int]  # dataset, model and seed of a fit


@dataclass(frozen=True)
class RunLink:
    """A run's record on a server: whose it is, its id, and its page where that is known."""

    of: str
    id: str
    address: str | None = None


@dataclass(frozen=True)
class Origin:
    """Hold where a fit's scores come from."""

    stage: str | None  # of dvc.yaml; None of a fit outside DVC
    inputs: Mapping[str, str] = field(default_factory=dict)  # the digests of what the fit read, by name
    runs: tuple[RunLink, ...] = ()  # its records, of MLflow and Prefect say


_FIRST = ("profile", "seed", "splits", "rows", "class_counts", "columns", "elimination")
_HIDDEN = ("dataset", "format", "encoders")
_ROWS = 300  # of one table of a data card
_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{32,}")


def noise(card: Mapping[str, Any]) -> float | None:
    """Return the share of labels that were switched at random, if the card gives one."""
    entry = card.get("noise")
    rate = entry.get("rate") if isinstance(entry, Mapping) else None
    return rate if isinstance(rate, float) else None


@dataclass(frozen=True)
class ReportData:
    """All that a page of the pipeline's report is made of."""

    frame: pd.DataFrame  # what `results.collect` returns, of these datasets
    results: Path  # folder of the scores, traces and test rows
    datasets: Sequence[str]  # that the page is about, as `models`
    models: Sequence[str]
    cells: Sequence[tuple[str, str]] = ()  # further (dataset, model) pairs
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by dataset
    # by dataset, each class's name and sample images as data URIs
    images: Mapping[str, Sequence[tuple[str, list[str]]]] = field(default_factory=dict)
    # {figure: {dataset: SVG}}, figures named as in `figures.draw`
    drawings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # by dataset and model, what `inspection.read` returns
    inspections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    origins: Mapping[Key, Origin] = field(default_factory=dict)
    other_page: str | None = None  # the file of the other page of the report, if there is one

    def sections(self, *, numbers: bool = False) -> dict[str, Section]:
        """Return the sections of any page by anchor: figures, models (inspected), data, made (origins).

        `numbers`: whether a number is predicted.
        """
        given = {"datasets": self.datasets, "numbers": numbers}
        noisy = any(noise(card) for card in self.cards.values())
        cards = {name: _shown_card(card) if card else None for name, card in self.cards.items()}
        web = {run.address for origin in self.origins.values() for run in origin.runs}
        web = {address for address in web if re.match(r"https?://", address or "")}
        rows = [(*key, origin) for key, origin in self.origins.items()]
        curves = html("curves", drawings=self.drawings, noisy=noisy, **given) if self.drawings else ""
        seen = html("inspections", inspections=self.inspections, **given) if self.inspections else ""
        made = html("origins", origins=rows, web=web, **given) if rows else ""
        sections = (
            Section("figures", "Figures", curves, "Figures"),
            Section("models", "Inspection of the models", seen, "Inspection"),
            Section("data", "Data", html("cards", cards=cards, images=self.images, **given), "Data"),
            Section("made", "Where each number comes from", made, "Origin"),
        )
        return {each.anchor: each for each in sections}


def _shown_card(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return a data card as facts, (label, cell), and blocks, each a table."""
    if isinstance(card.get("images"), Mapping):  # its shards and their digests are for machines
        card = {**card, "images": {k: v for k, v in card["images"].items() if k != "splits"}}
    hidden = {*_HIDDEN, *(["views"] if "columns" in card else [])}
    if not card.get("classes"):  # a number is predicted
        hidden.add("classes")
    keys = [k for k in _FIRST if k in card] + [k for k in card if k not in {*_FIRST, *hidden}]
    facts, blocks = [], []
    for key in keys:
        records = _records(_with_shares(key, card[key]))
        if records is None:
            facts.append((_label(key), _cell(card[key], key)))
            continue
        head = list(dict.fromkeys(name for record in records for name in record))
        views = pd.Series([str(r.get("view") or "unused") for r in records]).value_counts(sort=False)
        blocks.append(
            {
                "title": "Backward elimination" if key == "elimination" else _label(key),
                "lead": [(view, int(n)) for view, n in views.items()] if "view" in head else [],
                "columns": {name: _label(name) for name in head},
                "rows": [{name: _cell(r.get(name), name) for name in head} for r in records[:_ROWS]],
                "more": max(0, len(records) - _ROWS),
            }
        )
    return {"facts": facts, "blocks": blocks}


def _records(value: Any) -> list[dict[str, Any]] | None:
    """Return the rows of a table; None for a value that fits into one line."""
    if isinstance(value, Mapping) and value and all(isinstance(v, Mapping) for v in value.values()):
        return [{"": name, **_flat(entry)} for name, entry in value.items()]
    if isinstance(value, Mapping) and value and all(_DIGEST.fullmatch(str(v)) for v in value.values()):
        return [{"file": name, "digest": digest} for name, digest in value.items()]
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        return [_flat(entry) for entry in value]
    return None


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        value = _with_shares(key, value)
        flat |= {f"{key}: {k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return flat


def _with_shares(key: str, value: Any) -> Any:
    """Add their shares to counts of classes; anything else stays as it is."""
    if key not in ("classes", "class_counts") or not isinstance(value, Mapping):
        return value
    if not all(isinstance(n, int) for n in value.values()):
        return {name: _with_shares(key, counts) for name, counts in value.items()}
    total = sum(value.values()) or 1
    return {name: f"{n:,} ({n / total:.1%})" for name, n in value.items()}


def _label(key: str) -> str:
    """Write a key of ours as words; a name that comes from the data stays as it is."""
    return key.replace("_", " ").capitalize() if re.fullmatch(r"[a-z_]+", key) else key


def _cell(value: Any, key: str = "") -> dict[str, Any]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None:
        text = "–"
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, int):
        text = str(value) if "seed" in key else f"{value:,}"
    elif isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, Mapping):
        text = " · ".join(f"{name}: {_cell(v, str(name))['text']}" for name, v in value.items())
    elif isinstance(value, list):
        text = ", ".join(_cell(v, key)["text"] for v in value[:40])
        text += f" and {len(value) - 40} more" if len(value) > 40 else ""
    else:
        text = str(value)
    digest = bool(_DIGEST.fullmatch(text))
    return {"text": f"{text[:14]}…" if digest else text, "full": text, "number": number, "digest": digest}

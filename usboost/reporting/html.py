"""The report as one self-contained page, and everything the report flow writes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from usboost.errors import UsboostError
from usboost.evaluation.names import metric_name
from usboost.files import write_atomically
from usboost.models import zoo
from usboost.reporting import figures, paper
from usboost.reporting.further import Further, further
from usboost.reporting.inspection import FOLDER as INSPECTION
from usboost.reporting.inspection import read as read_inspection
from usboost.reporting.results import (
    collect,
    dataset_name,
    missing,
    profiles,
    read_cell,
    read_trace,
    table3,
    write_csv,
)
from usboost.reporting.samples import sample_pictures

DEMO = "demo data"
HALVES = ("bfv_dnn", "1wl_s", "1wl_u", "2wl", "2wl2o")
"""The paper's Table 4: one-learner against two-learner models."""

_FIRST = ("profile", "seed", "splits", "rows", "class_counts", "columns", "elimination")
_HIDDEN = ("dataset", "format", "encoders")
_ROWS = 300  # of one table of a data card
_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{32,}")


def write_report(
    results: Path,
    prepared: Path,
    out: Path,
    *,
    datasets: Sequence[str],
    models: Sequence[str],
    title: str | None = None,
    cells: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write ``results.csv``, ``index.html`` and ``figures/*.png``, each atomically.

    Parameters
    ----------
    results : folder with ``<dataset>/<model>/scores.json`` and ``trace.parquet``.
    prepared : folder with ``<dataset>/card.json``.
    out : folder to write into; made if need be.
    datasets, models : what the report is about; cells without scores are named on the page.
    title : of the page; "demo data" is added when any cell is from the demo profile.
    cells : (dataset, model) pairs of the other two papers, in a section of their own.

    Returns
    -------
    The path of ``index.html``. Equal inputs give equal bytes.

    Raises
    ------
    UsboostError
        If no cell has scores or a file cannot be read; then nothing is written.
    """
    results, prepared, out = Path(results), Path(prepared), Path(out)
    frame = collect(results, datasets, models)
    used = profiles(results, datasets, models)
    cards = {d: card for d in datasets if (card := _read_card(prepared / d / "card.json")) is not None}
    demo = is_demo(used, cards)
    pngs: dict[str, bytes] = {}
    svgs: dict[str, dict[str, str]] = {}
    for dataset in dict.fromkeys(datasets):
        traces = {m: t for m in zoo.ordered(models) if (t := read_trace(results, dataset, m)) is not None}
        label = f"{dataset_name(dataset)} · {DEMO}" if demo else dataset_name(dataset)
        noise = _noise(cards.get(dataset, {}))
        drawn = figures.draw(
            traces,
            label,
            baseline=_best_f1(traces.get(zoo.BASELINE)),
            ceiling=1 - noise if noise else None,
        )
        for name, figure in drawn.items():
            svgs.setdefault(name, {})[dataset] = figures.to_svg(figure)
            pngs[f"{re.sub(r'[^A-Za-z0-9_.-]', '_', dataset)}_{name}.png"] = figures.to_png(figure)
    trained = {d: list(models) for d in datasets}
    for d, m in cells:
        trained.setdefault(d, []).append(m)
    page = render(
        frame,
        others=further(results, cells),
        datasets=datasets,
        models=models,
        profiles=used,
        absent=missing(results, datasets, models),
        cards=cards,
        drawings=svgs,
        title=title,
        inspections={d: found for d, ms in trained.items() if (found := _inspections(results / d, ms))},
        pictures={d: shown for d, card in cards.items() if (shown := sample_pictures(prepared / d, card))},
    )
    extra = [collect(results, [d], [m]) for d, m in cells if read_cell(results, d, m) is not None]
    extra = [part[part["model"] != zoo.BASELINE] for part in extra]
    write_csv(pd.concat([frame, *extra]), out / "results.csv")
    for name, png in pngs.items():
        write_atomically(out / "figures" / name, png)
    write_atomically(out / "index.html", page.encode())
    return out / "index.html"


def is_demo(used: set[str], cards: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether any cell or data card is of the demo profile, so that the paper's numbers must not show."""
    return "demo" in used or any(card.get("profile") == "demo" for card in cards.values())


def render(
    frame: pd.DataFrame,
    *,
    datasets: Sequence[str],
    models: Sequence[str],
    profiles: set[str],
    absent: Sequence[tuple[str, str]] = (),
    cards: Mapping[str, Mapping[str, Any]] | None = None,
    drawings: Mapping[str, Mapping[str, str]] | None = None,
    title: str | None = None,
    pictures: Mapping[str, list[tuple[str, list[str]]]] | None = None,
    inspections: Mapping[str, Mapping[str, Any]] | None = None,
    others: Further | None = None,
) -> str:
    """The page: HTML that loads nothing from the network and runs no script.

    Parameters
    ----------
    frame : what `collect` returns.
    datasets, models : the columns and rows of the tables.
    profiles : the profiles behind the frame's cells; with "demo" among them (or in a card) the title
        says so and no published number is printed.
    absent : (dataset, model) cells without scores.
    cards : data cards by dataset.
    drawings : {figure: {dataset: SVG}}, figures named as in `figures.draw`.
    title : of the page.
    others : the cells of the other two papers.
    inspections : by dataset and model, what `inspection.read` returns.
    pictures : by dataset, each class's name and sample pictures as data URIs.
    """
    cards = cards or {}
    pictured = [d for d in dict.fromkeys(datasets) if "images" in cards.get(d, {})]
    demo = is_demo(profiles, cards)
    title = title or "usboost report"
    if demo and DEMO not in title.lower():
        title = f"{title}: {DEMO}"
    datasets = list(dict.fromkeys(datasets))
    rows = zoo.ordered([*models, *frame["model"]])
    environment = Environment(
        loader=PackageLoader("usboost.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_uri"] = _data_uri
    environment.filters["dataset"] = dataset_name
    environment.filters["model"] = zoo.title
    return environment.get_template("report.html.j2").render(
        title=title,
        demo=demo,
        profiles=sorted(profiles),
        datasets=datasets,
        models=rows,
        baseline=zoo.BASELINE,
        caveats={m: entry.caveat for m in rows if (entry := zoo.CATALOGUE.get(m)) and entry.caveat},
        seeds=sorted(int(seed) for seed in frame["seed"].unique()),
        metrics={d: metric_name(paper.metric(d)) for d in datasets},
        test=_table(frame, datasets, rows, "test", published=not demo),
        validation=_table(frame, datasets, rows, "val", published=False),
        details={d: _details(frame[frame["dataset"] == d]) for d in datasets},
        detail_metrics=[metric_name(m) for m in frame["metric"].unique()],
        absent=absent,
        cards={d: _card(cards[d]) if d in cards else None for d in datasets},
        drawings=drawings or {},
        noisy=any(_noise(card) for card in cards.values()),
        pictures=pictures or {},
        inspections=inspections or {},
        others=others,
        halves=_table(frame, pictured, [m for m in HALVES if m in rows], "test", published=not demo),
        pictured=pictured,
        half_models=[m for m in HALVES if m in rows],
    )


def _inspections(folder: Path, models: Sequence[str]) -> dict[str, Any]:
    """The inspection of each model on a dataset, in table order."""
    found = {model: read_inspection(folder / model / INSPECTION) for model in zoo.ordered(models)}
    return {model: each for model, each in found.items() if each is not None}


def _noise(card: Mapping[str, Any]) -> float | None:
    """The share of labels that were switched at random, if the card gives one."""
    noise = card.get("noise")
    rate = noise.get("rate") if isinstance(noise, Mapping) else None
    return rate if isinstance(rate, float) else None


def _table(
    frame: pd.DataFrame, datasets: Sequence[str], models: Sequence[str], split: str, *, published: bool
) -> dict[str, Any]:
    """Table 3's layout: a row per model, a cell per dataset (None where it has no score)."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    best: dict[str, dict[str, Any]] = {}
    for dataset in datasets:
        summary = table3(frame[frame["dataset"] == dataset], split, paper.metric(dataset))
        summary = summary[(summary["value_seeds"] > 0) & summary["model"].isin(models)]
        for row in summary.itertuples():
            cells[dataset, row.model] = {
                "model": row.model,
                "value": f"{row.value_mean:.4f}",
                "spread": _spread(row.value_std, 4),
                "seeds": int(row.value_seeds),
                "gain": _signed(row.improvement_mean),
                "gain_spread": _spread(row.improvement_std, 2),
                "gain_seeds": int(row.improvement_seeds),
                "sign": "" if row.model == zoo.BASELINE else _sign(row.improvement_mean),
                "best": False,
            }
        if len(summary):
            best[dataset] = cells[dataset, summary.loc[summary["value_mean"].idxmax(), "model"]]
            best[dataset]["best"] = True
    numbers = {key: paper.improvement(*key) for key in ((d, m) for d in datasets for m in models)}
    counts = [cell["seeds"] for cell in cells.values()]
    return {
        "cells": cells,
        "best": best,
        "seeds": max(set(counts), key=counts.count) if counts else 0,
        "paper": {key: _signed(value) for key, value in numbers.items()} if published else {},
    }


def _details(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """One dataset's test split: per model, cost and every metric as (mean, spread)."""
    fits = frame.drop_duplicates(["model", "seed"]).groupby("model", sort=False)
    rounds, seconds = fits["rounds"].mean(), fits["fit_seconds"].mean()
    summaries = [table3(frame, "test", metric).set_index("model") for metric in frame["metric"].unique()]
    return [
        {
            "model": model,
            "rounds": "–" if pd.isna(rounds[model]) else f"{rounds[model]:,.0f}",
            "minutes": "–" if pd.isna(seconds[model]) else f"{seconds[model] / 60:,.2f}",
            "values": [
                (f"{s.value_mean[model]:.4f}", _spread(s.value_std[model], 4))
                if model in s.index and s.value_seeds[model]
                else ("–", "")
                for s in summaries
            ],
        }
        for model in rounds.index
    ]


def _signed(value: float | None) -> str:
    if value is None or not np.isfinite(value):
        return "–"
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text[1:] == "0.00" else text


def _sign(value: float) -> str:
    return {"+": "up", "−": "down"}.get(_signed(value)[0], "") if np.isfinite(value) else ""


def _spread(value: float, digits: int) -> str:
    return f"± {value:.{digits}f}" if np.isfinite(value) else ""


def _best_f1(trace: pd.DataFrame | None) -> float | None:
    return None if trace is None else float(trace.loc[trace["best"], "f1_val"].median())


def _data_uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _read_card(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsboostError(f"{path} is not JSON; prepare the dataset again") from error
    if not isinstance(card, dict):
        raise UsboostError(f"{path} is not a data card; prepare the dataset again")
    return card


def _card(card: Mapping[str, Any]) -> dict[str, Any]:
    """A data card as facts, (label, cell), and blocks, each a table; any keys are shown."""
    if isinstance(card.get("images"), Mapping):  # its shards and their digests are for machines
        card = {**card, "images": {k: v for k, v in card["images"].items() if k != "splits"}}
    hidden = {*_HIDDEN, *(["views"] if "columns" in card else [])}
    keys = [k for k in _FIRST if k in card] + [k for k in card if k not in {*_FIRST, *hidden}]
    facts, blocks = [], []
    for key in keys:
        records = _records(_with_shares(key, card[key]))
        if records is None:
            facts.append((_label(key), _cell(card[key], key)))
            continue
        head = list(dict.fromkeys(name for record in records for name in record))
        views = pd.Series([str(r.get("view") or "neither") for r in records]).value_counts(sort=False)
        blocks.append(
            {
                "title": "Backward elimination" if key == "elimination" else _label(key),
                "lead": [(view, int(n)) for view, n in views.items()] if "view" in head else [],
                "head": [_label(name) for name in head],
                "rows": [[_cell(r.get(name), name) for name in head] for r in records[:_ROWS]],
                "more": max(0, len(records) - _ROWS),
            }
        )
    return {"facts": facts, "blocks": blocks}


def _records(value: Any) -> list[dict[str, Any]] | None:
    """The rows of a table; None for a value that fits into one line."""
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
    """Counts of classes with their shares; anything else as it is."""
    if key not in ("classes", "class_counts") or not isinstance(value, Mapping):
        return value
    if not all(isinstance(n, int) for n in value.values()):
        return {name: _with_shares(key, counts) for name, counts in value.items()}
    total = sum(value.values()) or 1
    return {name: f"{n:,} ({n / total:.1%})" for name, n in value.items()}


def _label(key: str) -> str:
    """A key of ours as words; a name that comes from the data stays as it is."""
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

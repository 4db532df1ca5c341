"""Everything the report flow writes: one page or two, each self-contained, figures, and the scores as CSV."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from usboost.datasets.store import task_of
from usboost.evaluation.task import TASKS
from usboost.files import write_atomically
from usboost.models import catalogue
from usboost.reporting import figures, paper_page
from usboost.reporting import user_page as user_page
from usboost.reporting.inspection.page import FOLDER as INSPECTION
from usboost.reporting.inspection.page import read as read_inspection
from usboost.reporting.inspection.page import sample_images
from usboost.reporting.page import DEMO, Key, Origin, noise, read_card
from usboost.reporting.paper_page import other_papers
from usboost.reporting.results import (
    collect,
    dataset_name,
    missing,
    profiles,
    read_cell,
    read_trace,
    write_csv,
)

USER_TABLE = "user_table"
"""The dataset that is a user's table."""

INDEX, PAPER = "index.html", "paper.html"

Drawings = dict[str, dict[str, str]]


def write_report(
    results: Path,
    prepared: Path,
    out: Path,
    *,
    datasets: Sequence[str],
    models: Sequence[str],
    cells: Sequence[tuple[str, str]] = (),
    origins: Mapping[Key, Origin] | None = None,
) -> Path:
    """Write ``results.csv``, ``index.html`` and ``figures/*.png``, each atomically.

    A user's table has a page of its own; where other datasets are reported, too, these are on
    ``paper.html``, and the pages lead to each other.

    Raises `UsboostError` if no cell has scores or a file cannot be read; then nothing is written.

    Parameters
    ----------
    results : folder with ``<dataset>/<model>/scores.json``, ``trace.parquet`` and ``rows.parquet``.
    prepared : folder with ``<dataset>/card.json``.
    out : folder to write into; made if need be.
    datasets, models : what the report is about; cells without scores are named on the page.
    cells : (dataset, model) pairs of the other two papers, in a section of their own.
    origins : by (dataset, model, seed), what made a fit's scores.

    Returns
    -------
    The path of ``index.html``. Equal inputs give equal bytes.
    """
    results, prepared, out = Path(results), Path(prepared), Path(out)
    datasets = list(dict.fromkeys(datasets))
    frame = collect(results, datasets, models)
    cards = {d: card for d in datasets if (card := read_card(prepared / d / "card.json")) is not None}
    trained = {d: list(models) for d in datasets}
    for d, m in cells:
        trained.setdefault(d, []).append(m)
    inspections = {d: found for d, ms in trained.items() if (found := _inspections(results / d, ms))}
    images = {d: shown for d, card in cards.items() if (shown := sample_images(prepared / d, card))}
    origins, pngs, pages = origins or {}, dict[str, bytes](), dict[str, str]()
    own, others = [d for d in datasets if d == USER_TABLE], [d for d in datasets if d != USER_TABLE]
    if own:
        pages[INDEX] = user_page.render(
            frame,
            results,
            USER_TABLE,
            card=cards.get(USER_TABLE, {}),
            absent=[m for _, m in missing(results, own, models)],
            drawings=_drawn(results, own, models, cards, pngs),
            images=images.get(USER_TABLE, []),
            inspections=inspections.get(USER_TABLE),
            origins={key: origin for key, origin in origins.items() if key[0] == USER_TABLE},
            other_page=PAPER if others or cells else None,
        )
    if others or cells:
        pages[PAPER if own else INDEX] = paper_page.render(
            frame[frame["dataset"].isin(others)],
            others=other_papers(results, cells),
            datasets=others,
            models=models,
            results=results,
            profiles=profiles(results, others, models),
            absent=missing(results, others, models),
            cards={d: card for d, card in cards.items() if d != USER_TABLE},
            drawings=_drawn(results, others, models, cards, pngs),
            inspections={d: found for d, found in inspections.items() if d != USER_TABLE},
            images={d: shown for d, shown in images.items() if d != USER_TABLE},
            origins={key: origin for key, origin in origins.items() if key[0] != USER_TABLE},
            other_page=INDEX if own else None,
        )
    extra = [collect(results, [d], [m]) for d, m in cells if read_cell(results, d, m) is not None]
    extra = [part[part["model"] != catalogue.BASELINE] for part in extra]
    write_csv(pd.concat([frame, *extra]), out / "results.csv")
    for name, png in pngs.items():
        write_atomically(out / "figures" / name, png)
    for name, page in pages.items():
        write_atomically(out / name, page.encode())
    return out / INDEX


def _drawn(
    results: Path,
    datasets: Sequence[str],
    models: Sequence[str],
    cards: Mapping[str, Mapping[str, Any]],
    pngs: dict[str, bytes],
) -> Drawings:
    """The figures of a page as SVG, by name and dataset; as PNG they are added to `pngs` by file."""
    demo = paper_page.is_demo(
        profiles(results, datasets, models), {d: cards[d] for d in datasets if d in cards}
    )
    found: Drawings = {}
    for dataset in datasets:
        traces = {
            m: t for m in catalogue.ordered(models) if (t := read_trace(results, dataset, m)) is not None
        }
        share, score = noise(cards.get(dataset, {})), TASKS[task_of(cards.get(dataset, {}))].chooses
        drawn = figures.draw(
            traces,
            f"{dataset_name(dataset)} · {DEMO}" if demo else dataset_name(dataset),
            baseline=_best(traces.get(catalogue.BASELINE), score),
            ceiling=1 - share if share else None,
            layouts=dataset != USER_TABLE,
            score=score,
        )
        for name, figure in drawn.items():
            found.setdefault(name, {})[dataset] = figures.to_svg(figure)
            pngs[f"{re.sub(r'[^A-Za-z0-9_.-]', '_', dataset)}_{name}.png"] = figures.to_png(figure)
    return found


def _inspections(folder: Path, models: Sequence[str]) -> dict[str, Any]:
    """The inspection of each model on a dataset, in table order."""
    found = {model: read_inspection(folder / model / INSPECTION) for model in catalogue.ordered(models)}
    return {model: each for model, each in found.items() if each is not None}


def _best(trace: pd.DataFrame | None, score: str) -> float | None:
    return None if trace is None else float(trace.loc[trace["best"], f"{score}_val"].median())

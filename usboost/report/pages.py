"""Write the pipeline's report: pages of a user's table and of the papers' datasets, figures, a CSV file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from usboost.datasets.store import task_of
from usboost.evaluation import ranking
from usboost.evaluation.ranking import f1_of, number
from usboost.evaluation.statistics import LEVEL
from usboost.evaluation.task import TASKS
from usboost.files import write_atomically
from usboost.files.arrays import read_json
from usboost.models import catalogue
from usboost.report import blocks, figures, inspection, paper
from usboost.report import results as records
from usboost.report.blocks import DEMO, Key, Origin, ReportData, Section, html

USER_TABLE = "user_table"  # the dataset that is a user's table

INDEX, PAPER = "index.html", "paper.html"


def write_pages(
    results: Path,
    prepared: Path,
    out: Path,
    *,
    datasets: Sequence[str],
    models: Sequence[str],
    cells: Sequence[tuple[str, str]] = (),
    origins: Mapping[Key, Origin] | None = None,
) -> Path:
    """Write ``results.csv`` and ``index.html``, whose path is returned, each atomically.

    A user's table has a page of its own; where other datasets are reported, too, these are on ``paper.html``,
    and the pages lead to each other. Equal inputs give equal bytes. Raises `UsboostError` if no cell has
    scores or a file cannot be read; then nothing is written.

    `results` has the folders ``<dataset>/<model>/seed-<seed>`` with ``record.json``, ``trace.parquet`` and
    ``rows.parquet``; `prepared` has ``<dataset>/card.json``. Cells of `datasets` and `models` without scores
    are named on the page. `cells` are further pairs of these: a user's table that has models of its own, and
    those of the other two papers, in a section of their own. `origins`: what made a fit's scores.
    """
    results, prepared, out = Path(results), Path(prepared), Path(out)
    of_own = [m for d, m in cells if d == USER_TABLE]
    cells = [(d, m) for d, m in cells if d != USER_TABLE]
    datasets = list(dict.fromkeys([*([USER_TABLE] if of_own else []), *datasets]))
    frame = records.collect(results, datasets, [*models, *of_own])
    cards = {d: read_json(path) for d in datasets if (path := prepared / d / "card.json").is_file()}
    own, others = [d for d in datasets if d == USER_TABLE], [d for d in datasets if d != USER_TABLE]
    pages = dict[str, str]()
    ours, theirs = (own, of_own or models, (), INDEX), (others, models, cells, PAPER if own else INDEX)
    for part, fitted, further, name in (ours, theirs):
        if not part and not further:
            continue
        trained = {d: list(fitted) for d in part}
        for d, m in further:
            trained.setdefault(d, []).append(m)
        inspections: dict[str, dict[str, Any]] = {}
        for d, names in trained.items():
            folders = {m: results / d / m / "seed-0" / inspection.FOLDER for m in catalogue.ordered(names)}
            read = {m: inspection.read(folder) for m, folder in folders.items()}
            if inspected := {m: each for m, each in read.items() if each is not None}:
                inspections[d] = inspected
        of_part = {d: cards[d] for d in part if d in cards}
        samples = {d: inspection.sample_images(prepared / d, card) for d, card in of_part.items()}
        data = ReportData(
            frame[frame["dataset"].isin(part)],
            results,
            part,
            fitted,
            further,
            cards=of_part,
            images={d: shown for d, shown in samples.items() if shown},
            drawings=_drawn(results, part, fitted, of_part),
            inspections=inspections,
            origins={key: each for key, each in (origins or {}).items() if (key[0] in own) == (part == own)},
            other_page=(PAPER if part == own else INDEX) if own and (others or cells) else None,
        )
        pages[name] = render(data) if part == own else paper.render(data)
    extra = [records.collect(results, [d], [m]) for d, m in cells if records.read_cell(results, d, m)]
    extra = [part[part["model"] != catalogue.BASELINE] for part in extra]
    records.write_csv(pd.concat([frame, *extra]), out / "results.csv")
    for name, page in pages.items():
        write_atomically(out / name, page.encode())
    return out / INDEX


def _drawn(
    results: Path, datasets: Sequence[str], models: Sequence[str], cards: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, str]]:
    """Draw the figures of a page as SVG, by name and dataset."""
    demo = paper.is_demo(records.profiles(results, datasets, models), cards)
    drawings: dict[str, dict[str, str]] = {}
    for dataset in datasets:
        read = {m: records.read_trace(results, dataset, m) for m in catalogue.ordered(models)}
        traces, card = {m: t for m, t in read.items() if t is not None}, cards.get(dataset, {})
        share, score = blocks.noise(card), TASKS[task_of(card)].chooses
        baseline = traces.get(catalogue.BASELINE)
        best = None if baseline is None else float(baseline.loc[baseline["best"], f"{score}_val"].median())
        drawn = figures.draw(
            traces,
            f"{records.dataset_name(dataset)} · {DEMO}" if demo else records.dataset_name(dataset),
            baseline=best,
            ceiling=1 - share if share else None,
            layouts=dataset != USER_TABLE,
            score=score,
        )
        for name, figure in drawn.items():
            drawings.setdefault(name, {})[dataset] = figures.to_svg(figure)
    return drawings


def render(data: ReportData) -> str:
    """Return the page of a user's table: HTML that loads nothing from the network and runs no script."""
    frame, results, (dataset,) = data.frame, data.results, data.datasets
    card = data.cards.get(dataset, {})
    task = TASKS[task_of(card)]
    metric = task.chooses  # as in `promote` when nothing else is asked for
    fits = records.ranked_fits(frame, results, dataset, metric, task)
    best = fits[0] if fits else None
    rows = records.read_rows(results, dataset, best.model, best.seed) if best else None
    roles, classes = card.get("roles", {}), list(map(str, card.get("classes", [])))
    label, profile = str(roles.get("label", "the label")), str(card.get("profile", ""))
    prior, tie, warning = ranking.prior_log_loss(card, "test"), "", ""
    if best is not None:
        tie = ranking.tie_note(len(records.tied(frame, dataset, metric)), metric, best.val[metric])
        test = {name: value for name, (value, *_) in best.test.items()}
        warning = ranking.probability_note(best.val, test, card)
    # whether images help is one question, asked of one difference: its p-value is not adjusted for others
    scored, columns = [each for each in fits if each.model != catalogue.PRIOR], catalogue.WITHOUT_IMAGES
    reading = next((each for each in scored if each.model not in columns), None)
    alone = next((each for each in scored if each.model in columns), None)
    verdict, other = None, reading if alone is best else alone
    if reading and alone and other and best in (reading, alone) and other.difference and other.p is not None:
        sign = "Images help" if (other.difference[0] > 0) == (other is alone) else "Images do harm"
        sign = sign if other.p < LEVEL else "Images: no difference that these rows show"
        verdict = reading, alone, other.p, sign
    clear = {e.model: e.difference[0] for e in fits if e.difference is not None and not e.within_noise}
    given = {
        "fits": fits,
        "metric": metric,
        "metrics": [metric, *(each for each in task.metrics if each != metric)],
        "numbers": task.name == "regression",
        "label": label,
        "table": next(iter(card.get("sources", {})), "your table"),
        "n_test": 0 if rows is None else len(rows[0]),
    }
    constant = None if rows is None else task.constant(rows[0])
    intro = html("user_intro", demo=profile == "demo", constant=constant, tie=tie, warning=warning, **given)
    models = html(
        "user_models",
        **given,
        dataset=dataset,
        alone=verdict if "images" in card else None,
        behind=[model for model, lead in clear.items() if lead > 0],
        ahead=[model for model, lead in clear.items() if lead < 0],
        worse=records.behind_prior(frame, card),
        prior=prior and number(prior),
        # where the test rows lack a class
        no_auc=bool(fits) and all(np.isnan(each.test.get("auc", (0.0,))[0]) for each in fits),
        f1=f1_of(classes) if len(classes) > 1 else "that of the label",
        two=len(classes) == 2,
        level=LEVEL,
        absent=[model for _, model in records.missing(results, data.datasets, data.models)],
        traced={key[:2] for key in data.origins},
    )
    lead = Markup("<p>{} on the test rows.</p>").format(catalogue.title(best.model)) if best else Markup()
    confused, predicted, rest = Markup(), Markup(), Markup()
    if rows is not None and classes:
        confused = lead + blocks.confusion(rows[0], rows[1].argmax(axis=1), classes)
    elif rows is not None and best is not None:
        cell = records.read_cell(results, dataset, best.model)
        margin, floor = next(((fit.margin, fit.floor) for fit in cell if fit.seed == best.seed), (None, None))
        predicted, rest = blocks.predictions(*rows, margin, label, floor)
        predicted = lead + predicted
    read = html("user_read", read=_read(card), profile=profile, **given)
    following = html("user_next", dataset=dataset, registered=f"usboost-{profile}-{dataset}")
    sections = [
        Section("results", "The models", models, "Models"),
        Section("read", "What was read", read, "What was read"),
        Section("confusion", "Confusion matrix", confused, "Confusion matrix"),
        Section("predicted", "Predicted against true", predicted, "Predicted and true"),
        Section("residuals", "Residuals", rest),
        *data.sections(numbers=task.name == "regression").values(),
        Section("next", "Next", following, "Next"),
    ]
    tabs = Markup('<b>Your data</b><a href="{}">The paper</a>').format(data.other_page)
    title = f"A drawn table: predicting {label}" if profile == "demo" else f"Your data: predicting {label}"
    return blocks.page(title, intro, sections, html("made_from", rows=True), tabs if data.other_page else "")


def _read(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the models read as (name, text)."""
    splits = {name: entry.get("rows", 0) for name, entry in card.get("splits", {}).items()}
    facts = [
        ("Rows", ", ".join(f"{rows:,} {_SPLITS.get(name, name)}" for name, rows in splits.items())),
        ("Split", str(card.get("split", "–"))),
        *([("Classes", ", ".join(map(str, card["classes"])))] if card.get("classes") else []),
    ]
    columns = {name: entry for name, entry in card.get("columns", {}).items() if entry.get("view")}
    for kind, words in _KINDS:
        named = [str(name) for name, entry in columns.items() if entry.get("kind") == kind]
        if named:
            more = f" and {len(named) - _COLUMNS} more" if len(named) > _COLUMNS else ""
            facts.append((words, ", ".join(named[:_COLUMNS]) + more))
    if images := card.get("images"):
        size = images.get("size")
        at = f", at {size[0]} × {size[1]} pixels" if isinstance(size, list) and len(size) == 2 else ""
        facts.append(("Images", ", ".join(map(str, images.get("columns", ["image"]))) + at))
        if without := {part: n for part, n in images.get("without", {}).items() if n}:
            facts.append(("Without an image", ", ".join(f"{n:,} {part}" for part, n in without.items())))
    if dropped := [*card.get("roles", {}).get("dropped", []), *card.get("left_out", {})]:
        facts.append(("Not read", ", ".join(map(str, dropped))))
    return facts


_SPLITS = {"train": "training", "val": "validation", "test": "test"}
_KINDS = (("number", "Numbers"), ("category", "Categories"), ("date", "Dates"), ("text", "Texts"))
_COLUMNS = 40

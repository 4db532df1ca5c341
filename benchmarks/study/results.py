"""`make results`: the papers' models on real data, several seeds each; docs/results/papers*.md.

``USBOOST_DATA=... python -m benchmarks.study.results run FOLDER`` makes a workspace for each part of the
plan and fits every cell; what is there already is skipped. ``--part``, ``--dataset``, ``--model`` and
``--seed`` name fewer, down to one cell. ``python -m benchmarks.study.results write FOLDER`` takes the scores
into the repository, beside those of fits that the folder lacks; ``write`` without a folder makes the pages'
tables and figures of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.speed.bench import between_marks
from benchmarks.study import cells as fitting
from benchmarks.study import rows as results_rows
from benchmarks.study.paper_figures import METRICS, figure, is_external, named, rounds_figure
from benchmarks.study.plan import HEADLINES, ONCE, PAIRS, PAPERS_BASELINE, PLAN, cells
from benchmarks.study.rows import interval
from flows.local import runtime
from usboost.models.catalogue import catalogue
from usboost.reporting import paper_summary as paper
from usboost.reporting.results import dataset_name

PAGE = Path("docs/results/papers.md")
CELLS = {
    "docs/results/papers-census.md": ("ci_a", "ci_b"),
    "docs/results/papers-images.md": ("ct", "mi"),
}
"""The page of each dataset's cells."""
FIGURES = {
    "docs/figures/papers-census.png": (("ci_a", "ci_b"), "f1_tuned"),
    "docs/figures/papers-images.png": (("ct", "mi"), "f1"),
}
ROUNDS_FIGURE = Path("docs/figures/papers-rounds.png")
SCORES, LUCK = Path("benchmarks/study/papers/cells.csv"), Path("benchmarks/study/papers/rows.csv")
"""Every fit's scores, and the headlines' differences with their intervals."""
_CELL = ["part", "dataset", "model", "seed"]


def run(
    folder: Path,
    part: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
    seed: int | None = None,
) -> None:
    """Fit the cells of the plan that are not there yet; all, or those of one part, dataset, model or seed."""
    asked, made = (part, dataset, model, seed), set()
    for cell in cells():
        of = (cell.part, cell.dataset, cell.model, cell.seed)
        if all(one in (None, other) for one, other in zip(asked, of)):
            if cell.part not in made:
                fitting.make(folder, cell.part)
                made.add(cell.part)
            fitting.fit(folder, cell)
            print(*of, flush=True)


def collect(folder: Path, kept: pd.DataFrame) -> pd.DataFrame:
    """The scores of every fit of the plan, in its order: the folder's, and those kept of others."""
    planned = {tuple(vars(cell).values()): k for k, cell in enumerate(cells())}
    new = pd.DataFrame(row for part in PLAN for row in fitting.rows_of(folder / part))
    found = pd.concat([kept, new]).drop_duplicates([*_CELL, "stop"], keep="last")
    place = [planned.get(key) for key in found[_CELL].itertuples(index=False, name=None)]
    return (
        found.assign(place=place)
        .dropna(subset="place")
        .sort_values("place", kind="stable")
        .drop(columns="place")
    )


def ordered(models: Sequence[str]) -> list[str]:
    """The table's order: that of the plan's cells."""
    order = list(dict.fromkeys(catalogue.ordered([*models])))
    return [*(m for m in order if not is_external(m)), *(m for m in order if is_external(m))]


def printed(values: Sequence[float] | pd.Series, digits: int = 4, sign: bool = False) -> str:
    """``mean ± half interval``."""
    found = np.asarray(values, dtype=float)
    found = found[np.isfinite(found)]
    if not len(found):
        return "–"
    mean, half = interval(found)
    text = f"{mean:{'+' if sign else ''}.{digits}f}"
    return text if np.isnan(half) else f"{text} ± {half:.{digits}f}"


def paired(frame: pd.DataFrame, model: str, against: str, metric: str) -> pd.Series:
    """What a model has more than another, seed by seed; a model that draws nothing has one fit for all."""
    values = frame.pivot_table(index="seed", columns="model", values=metric)
    if model not in values or against not in values:
        return pd.Series(dtype=float)
    for name in {model, against} & set(ONCE):
        if values[name].count() == 1:
            values[name] = values[name].max()
    return (values[model] - values[against]).dropna()


def gain(frame: pd.DataFrame, model: str, base: str) -> str:
    """How many % its F1 is above a baseline's, each seed against the same seed."""
    of_base = frame[frame["model"] == base].set_index("seed")["f1"]
    return printed(100 * paired(frame, model, base, "f1") / of_base, 2, sign=True)


def scores(frame: pd.DataFrame, dataset: str) -> str:
    """A dataset's table in Markdown: stopped by log-loss, and beside it F1 as the papers stop."""
    own = frame[frame["dataset"] == dataset]
    by_loss, by_f1 = (own[own["stop"] == rule] for rule in fitting.STOPS)
    bases = {catalogue.BASELINE: "% over baseline"}
    if dataset in PAPERS_BASELINE:
        bases[PAPERS_BASELINE[dataset]] = "% over the paper's"
    heads = ["model", "seeds", *METRICS.values(), "F1, stopped by F1", *bases.values(), "published"]
    heads += ["best round", "fit, s"]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads))]
    for model in ordered(list(own["model"].unique())):
        cell, papers = by_loss[by_loss["model"] == model], by_f1[by_f1["model"] == model]
        published = paper.improvement(dataset, model)
        row = [named(model), str(len(cell)), *(printed(cell[metric]) for metric in METRICS)]
        row += [printed(papers["f1"])]
        row += ["0" if model == base else gain(by_f1, model, base) for base in bases]
        row += ["–" if published is None else f"{published:+.2f}"]
        row += [f"{cell['best_round'].mean():.0f}", f"{cell['fit_seconds'].mean():.0f}"]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def differences(frame: pd.DataFrame, dataset: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Paired differences of models, with intervals over the seeds; bold where 0 is outside."""
    own = frame[(frame["dataset"] == dataset) & (frame["stop"] == "log_loss")]
    heads = ["", *METRICS.values()]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads))]
    for model, against in pairs:
        if paired(own, model, against, "f1").empty:
            continue
        row = [f"{named(model)} − {named(against)}"]
        for metric in METRICS:
            found = paired(own, model, against, metric)
            mean, half = interval(found) if len(found) else (float("nan"), float("nan"))
            text = printed(found, sign=True)
            row.append(f"**{text}**" if abs(mean) > half else text)
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _is_whole(folder: Path, dataset: str) -> bool:
    """Whether the folder has what every fit of a dataset says, from which intervals and figures are made."""
    wanted = (cell for cell in cells() if cell.dataset == dataset)
    return all(
        fitting.kept_at(folder / cell.part, dataset, cell.model, cell.seed).is_file() for cell in wanted
    )


def luck(folder: Path, datasets: Sequence[str]) -> pd.DataFrame:
    """The headlines' differences with their intervals over the seeds and over the test rows."""
    found = []
    for dataset, pairs in ((dataset, HEADLINES[dataset]) for dataset in datasets):
        fits: dict[str, dict[int, results_rows.Predicted]] = {m: {} for pair in pairs for m in pair}
        for cell in cells():
            said = fitting.predicted(folder, cell) if cell.dataset == dataset else None
            if said is not None and cell.model in fits:
                # one fit of a model that draws nothing stands beside each seed of another
                seeds = range(10) if cell.model in ONCE else [cell.seed]
                fits[cell.model] |= dict.fromkeys(seeds, said)
        unlike = {model: list({id(fit): fit for fit in of.values()}.values()) for model, of in fits.items()}
        drawn = {model: results_rows.draws(of) for model, of in unlike.items() if of}
        for one, other in pairs:
            if seeds := sorted(fits[one].keys() & fits[other].keys()):
                two = ([fits[model][seed] for seed in seeds] for model in (one, other))
                ours, theirs = two
                row = results_rows.row(ours, theirs, drawn[one], drawn[other])
                names = {"dataset": dataset, "model": one, "against": other}
                said = [text.replace("± nan", "± –") for text in row]  # of one seed
                found.append(names | dict(zip(results_rows.SHOWN, said)))
    return pd.DataFrame(found)


def rows(frame: pd.DataFrame) -> str:
    """The table of what `luck` found."""
    heads = ["", *results_rows.SHOWN.values()]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads))]
    for found in frame.to_dict("records"):
        name = f"{dataset_name(found['dataset'])}: {named(found['model'])} − {named(found['against'])}"
        lines.append("| " + " | ".join([name, *(found[metric] for metric in results_rows.SHOWN)]) + " |")
    return "\n".join(lines) + "\n"


def write(folder: Path | None) -> None:
    """Take the folder's scores into the repository; make the pages' tables of those that are there."""
    if folder is not None:
        collect(folder, pd.read_csv(SCORES)).to_csv(SCORES, index=False, float_format="%.6g")
        if drawn := [dataset for dataset in HEADLINES if _is_whole(folder, dataset)]:
            kept = pd.read_csv(LUCK, keep_default_na=False)
            kept = kept[~kept["dataset"].isin(drawn)]
            pd.concat([kept, luck(folder, drawn)]).sort_values("dataset", kind="stable").to_csv(
                LUCK, index=False
            )
        if _is_whole(folder, "ci_a"):
            rounds_figure(folder, ROUNDS_FIGURE)
    frame = pd.read_csv(SCORES)
    for path, datasets in CELLS.items():
        text = Path(path).read_text()
        for dataset in [name for name in datasets if (frame["dataset"] == name).any()]:
            text = between_marks(text, f"{dataset} scores", scores(frame, dataset))
            text = between_marks(text, f"{dataset} differences", differences(frame, dataset, PAIRS[dataset]))
        Path(path).write_text(text)
    PAGE.write_text(between_marks(PAGE.read_text(), "rows", rows(pd.read_csv(LUCK, keep_default_na=False))))
    for path, (datasets, score) in FIGURES.items():
        if there := [dataset for dataset in datasets if (frame["dataset"] == dataset).any()]:
            figure(frame, Path(path), there, score)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--part", choices=list(PLAN))
    parser.add_argument("--dataset")
    parser.add_argument("--model")
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    folder = given.folder and given.folder.resolve()
    if given.what == "write":
        write(folder)
    elif folder is None:
        parser.error("run needs a folder")
    else:
        runtime.configure()
        run(folder, given.part, given.dataset, given.model, given.seed)


if __name__ == "__main__":
    main()

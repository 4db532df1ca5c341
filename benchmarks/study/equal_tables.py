"""The tables and the figure of docs/results/ with equal trials, from the scores of `benchmarks.study.equals`.

``python -m benchmarks.study.equal_tables`` writes the pages' tables and the figure from the scores in
``benchmarks/study/equal``; with the FOLDER of a case it prints that case's own table: means and standard
deviations over the seeds, and the difference in log-loss from the best of the others' models with a 95 %
interval over the test rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.pages import between_marks, number, table_of
from usboost.models import catalogue

KEPT = Path(__file__).parent / "equal"
"""A file of scores for each case; of 300 and 1,000 rows only the means, in ``few-rows.csv``."""
WITH_IMAGES = Path("docs/results/tables-with-images.md")
WITHOUT_IMAGES = Path("docs/results/tables-without-images.md")
FIGURE = Path("docs/figures/log-loss.png")
DRAWS = 1000
SEEDS = 5
DRAWS_NOTHING = ("prior", "linear")
"""Kinds of models of which one seed is enough."""
COLUMNS = {
    "log-loss": ("first", "log_loss"),
    "log-loss, all rows": ("all", "log_loss"),
    "AUC": ("first", "auc"),
    "accuracy": ("first", "accuracy"),
    "F1": ("first", "f1"),
    "F1 tuned": ("first", "f1_tuned"),
    "F1 tuned, all rows": ("all", "f1_tuned"),
    "seconds": ("first", "seconds"),
    "ms a row": ("first", "milliseconds_a_row"),
}
"""A column's fits, first ones or those to all rows, and its score."""
OF_BOTH = [score for fits, score in COLUMNS.values() if fits == "all"]
AT_HALF = ("accuracy", "f1")
"""Scores that are left out where there is a threshold of its own."""
COSTS = {"seconds": 0, "milliseconds_a_row": 2}
"""Scores of which the median is shown, and their digits."""
Row = tuple[str, str]
"""Of a table: a model's name, and whether its settings are its ``own`` or ``tuned``."""
WORDS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}
SIZES = {"-300": "300", "-1000": "1,000", "-3000": "3,000", "": "", "-tuned": "tuned"}
CASES = {
    f"{name}{case}": f"{name}, {rows or every}"
    for name, every in (("lesions", "4,785"), ("products", "9,504"))
    for case, rows in SIZES.items()
}
"""Columns of the table with images."""
OURS = ("best", "linear_trees", "crossed", "2wl_ridge")
OTHERS = ("logistic", "xgboost", "lgbm", "catboost", "forest", "prior")
FIGURE_CASES = ("lesions-3000", "lesions", "products-3000", "products", "census")
DRAWN = {
    "best": ("best", "*", "#0b3c5d"),
    "linear_trees": ("linear_trees", "o", "#1f5f8b"),
    "crossed": ("crossed", "s", "#3f9b6c"),
    "logistic": ("logistic regression", "x", "#b2561a"),
    "lgbm": ("LightGBM", "+", "#b2561a"),
    "xgboost": ("XGBoost", "^", "#b2561a"),
    "catboost": ("CatBoost", "v", "#b2561a"),
    "forest": ("random forest", "D", "#b2561a"),
}
"""By model of the figure: its name, marker and colour; others' methods are not filled."""


def kind_of(name: str) -> str:
    return catalogue.find(name).kind if name in catalogue.CATALOGUE else "package"


def is_ours(name: str) -> bool:
    return name in catalogue.CATALOGUE and not catalogue.find(name).external


def kept(path: Path) -> list[dict[str, Any]]:
    """Return the scores of every fit, in the order in which they were made."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def losses_file(folder: Path, model: str, kind: str, seed: int) -> Path:
    """Return the file of each test row's log-loss, float32 (n,)."""
    return folder / "losses" / f"{model}-{kind}-{seed}.npy"


def rows_of(path: Path) -> pd.DataFrame:
    """Return scores by model, settings (``own`` or ``tuned``), fits (``first`` or ``all``) and seed.

    An ensemble has fits to all rows alone.
    """
    rows = pd.DataFrame(kept(path))
    whole = rows["kind"].str.endswith("all") | (rows["model"].map(kind_of) == "ensemble")
    return rows.assign(
        settings=rows["kind"].str.removesuffix("all"), fits=np.where(whole, "all", "first")
    ).drop_duplicates(["model", "settings", "fits", "seed"], keep="last")


# a case's own table


def lines(rows: pd.DataFrame, against: dict[Row, str]) -> dict[str, dict[str, str]]:
    """Return the table: by the row's label the text of each column, the best first fit first.

    `against` is the last column; the row that is compared with has an empty text there.
    """
    digits, table = digits_of(rows), {}
    left_out = AT_HALF if "f1_tuned" in rows else ()
    columns = {name: of for name, of in COLUMNS.items() if of[1] in rows and of[1] not in left_out}
    (rival,) = [row for row, text in against.items() if not text]
    for row, group in rows.groupby(["model", "settings"]):
        cells = {column: cell(group, *where, digits) for column, where in columns.items()}
        of = "first" if "first" in set(group["fits"]) else "all"  # an ensemble's place is by the latter
        place = group.loc[group["fits"] == of, "log_loss"].mean()
        table[place, label_of(row, group)] = {**cells, f"against {name_of(rival)}": against.get(row, "")}
    return {label: table[place, label] for place, label in sorted(table)}


def digits_of(rows: pd.DataFrame) -> int:
    return 4 if "f1_tuned" in rows else 3  # of tens of thousands of test rows, or of a few thousand


def name_of(row: Row) -> str:
    model, settings = row
    return f"`{model}`, tuned" if settings == "tuned" else f"`{model}`"


def label_of(row: Row, group: pd.DataFrame) -> str:
    seeds = int(group.groupby("fits").size().max())
    if seeds >= SEEDS or kind_of(row[0]) in DRAWS_NOTHING:
        return name_of(row)
    return f"{name_of(row)} ({WORDS[seeds]} {'seed' if seeds == 1 else 'seeds'})"


def cell(group: pd.DataFrame, fits: str, score: str, digits: int) -> str:
    """Return mean and standard deviation over the seeds, or the median of a cost; empty where no fit is."""
    sizes = group.groupby("fits").size()
    if "first" not in sizes and score not in OF_BOTH:
        fits = "all"  # an ensemble's, which has no other column
    seeds = group.loc[group["fits"] == fits, score].dropna()
    if not len(seeds):
        return ""
    if score in COSTS:
        return number(seeds.median(), COSTS[score] or int(seeds.median() < 10))
    digits = 3 if score.startswith("f1") else digits
    text = number(seeds.mean(), digits)
    if seeds.nunique() > 1:
        text += f" ± {number(seeds.std(), digits)}"
    return f"{text} ({WORDS[len(seeds)]})" if len(seeds) < sizes.max() else text


def differences(folder: Path, rows: pd.DataFrame) -> dict[Row, str]:
    """Compare with the best of the others' models: first fits with first fits, an ensemble with all rows'.

    That model has an empty text.
    """
    means = rows[~rows["model"].map(is_ours)].groupby(["fits", "model", "settings"])["log_loss"].mean()
    rival, digits = means["first"].idxmin(), digits_of(rows)
    texts = {rival: ""}
    for row, group in rows.groupby(["model", "settings"]):
        fits = "first" if "first" in set(group["fits"]) else "all"
        if row == rival or (fits, *rival) not in means:
            continue
        gap = losses(folder, rows, row, fits) - losses(folder, rows, rival, fits)
        draws = np.random.default_rng(0).integers(0, len(gap), (DRAWS, len(gap)))
        low, high = np.quantile(gap[draws].mean(axis=1), [0.025, 0.975])
        middle, low, high = (number(value, digits, "+") for value in (gap.mean(), low, high))
        texts[row] = f"{middle} ({low} to {high})"
    return texts


def losses(folder: Path, rows: pd.DataFrame, row: Row, fits: str) -> np.ndarray:
    """Return each test row's log-loss, float32 (n,), the mean over the seeds."""
    chosen = rows[(rows["model"] == row[0]) & (rows["settings"] == row[1]) & (rows["fits"] == fits)]
    fits_made = chosen[["model", "kind", "seed"]].itertuples(index=False)
    return np.mean([np.load(losses_file(folder, *each)) for each in fits_made], axis=0)


def table_of_results(folder: Path) -> str:
    """Return the Markdown of a case's folder, with its ``results.jsonl`` and each test row's loss."""
    rows = rows_of(folder / "results.jsonl")
    table = lines(rows, differences(folder, rows))
    heads = ["model", *next(iter(table.values()))]
    return table_of(heads, [[label, *cells.values()] for label, cells in table.items()])


# the pages' tables


def means_of(case: str) -> pd.Series:
    """Return a case's mean log-loss by model, settings and fits."""
    few = pd.read_csv(KEPT / "few-rows.csv")
    rows = few[few["case"] == case] if case in set(few["case"]) else rows_of(KEPT / f"{case}.jsonl")
    return rows.groupby(["model", "settings", "fits"])["log_loss"].mean()


def by_trials(means: pd.Series, model: str) -> str:
    """Return the settings that the table has of a model: those of the lower log-loss of first fits."""
    first = means[model].xs("first", level="fits") if model != OURS[0] else means[model].droplevel("fits")
    return str(first.idxmin())


def log_losses(case: str) -> dict[str, tuple[float, str]]:
    """Return by label of the table a log-loss, and the fits that it is of: all rows', or else first ones.

    Others' models have their own settings or those of their trials, whichever is better on the test rows;
    `linear_trees` and `crossed` have both.
    """
    means, table = means_of(case), {}
    for model in means.index.get_level_values("model").unique():
        if model in OURS[1:3]:
            tried = [name for name in ("folds", "tuned") if name in means[model]]
            named = {f"`{model}`": "own"} | ({f"`{model}`, tuned": tried[0]} if tried else {})
        else:
            named = {f"`{model}`": by_trials(means, model)}
        for label, settings in named.items():
            fits = "all" if "all" in means[model][settings] else "first"
            table[label] = float(means[model][settings][fits]), fits
    now = [row["log_loss"] for row in kept(KEPT / "best-now.jsonl") if row["case"] == case]
    return table | ({"`best`, now": (float(np.mean(now)), "all")} if now else {})


def with_images() -> str:
    """Return log-loss of every model and case with images; bold is the lowest, * a first fit."""
    cases = {head: log_losses(case) for case, head in CASES.items()}
    labels = ["`best`", "`best`, now", *(f"`{m}`{how}" for m in OURS[1:3] for how in ("", ", tuned"))]
    labels += [f"`{model}`" for model in (OURS[3], *OTHERS)]
    table = []
    for label in labels:
        line = [label]
        for head in cases:
            value, fits = cases[head].get(label, (np.nan, ""))
            text = "" if np.isnan(value) else number(value, 3)
            lowest = bool(text) and text == number(min(each for each, _ in cases[head].values()), 3)
            line.append((f"**{text}**" if lowest else text) + r"\*" * (fits == "first"))
        table.append(line)
    return table_of(["log-loss", *cases], table)


def costs() -> str:
    """Return AUC, accuracy, seconds of a fit and of a row on all lesions and all products."""
    columns = [name for name in COLUMNS if name in ("AUC", "accuracy", "seconds", "ms a row")]
    heads, table = [""], {f"`{model}`": list[str]() for model in (*OURS, *OTHERS)}
    for case in ("lesions", "products"):
        rows, means = rows_of(KEPT / f"{case}.jsonl"), means_of(case)
        heads += [f"{case}: {columns[0]}", *columns[1:]]
        for model in (*OURS, *OTHERS):
            settings = "own" if model in OURS[1:3] else by_trials(means, model)
            own = rows[(rows["model"] == model) & (rows["settings"] == settings)]
            table[f"`{model}`"] += [cell(own, *COLUMNS[name], 3).split(" ±")[0] for name in columns]
    return table_of(heads, [[label, *line] for label, line in table.items()])


def census() -> str:
    """Return every model on the census, as it was scored with equal trials and, of ours, as it is now."""
    columns = ("log-loss", "log-loss, all rows", "AUC", "F1 tuned, all rows", "seconds", "ms a row")
    table = []
    for name, suffix in (("census-now", ", now"), ("census", "")):
        for row, group in rows_of(KEPT / f"{name}.jsonl").groupby(["model", "settings"]):
            first = "first" if "first" in set(group["fits"]) else "all"
            place = group.loc[group["fits"] == first, "log_loss"].mean()
            label = label_of(row, group).replace("`", "").replace(row[0], f"`{row[0]}`{suffix}")
            table.append((place, [label, *(cell(group, *COLUMNS[name], 4) for name in columns)]))
    return table_of(["", *columns], [line for _, line in sorted(table)])


def relative(case: str) -> pd.Series:
    """Return each model's lower log-loss of the table, divided by that of the best of the others' models."""
    table = {label: value for label, (value, _) in log_losses(case).items() if not label.endswith("now")}
    means = pd.Series(table).groupby([label.split("`")[1] for label in table]).min()
    return means / means[[not is_ours(model) for model in means.index]].min()


def draw(path: Path) -> None:
    """Draw every model's log-loss of the larger tables, divided by the best other model's."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, ax = plt.subplots(figsize=(6.6, 5.6), layout="constrained")
    for height, case in enumerate(reversed(FIGURE_CASES)):
        means = relative(case)
        for order, (model, (name, marker, colour)) in enumerate(DRAWN.items()):
            if model in means:
                label = name if case == FIGURE_CASES[0] else None
                look: dict[str, Any] = {"color": colour, "mew": 1.6, "zorder": 20 - order, "label": label}
                look |= {} if marker in "x+" else {"mfc": colour if is_ours(model) else "white"}
                ax.plot(means[model], height, marker, ms=13 if marker == "*" else 8, **look)
    ax.axvline(1, color="#777777", linewidth=1, zorder=0)
    names = [CASES.get(case, "census, 246,175").replace(", ", ",\n", 1) for case in FIGURE_CASES]
    ax.set_yticks(range(len(names)), [f"{name} rows" for name in reversed(names)])
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.set_xlabel("log-loss ÷ that of the best other model (less is better)")
    ax.grid(axis="x", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    fig.legend(loc="outside upper center", ncols=3, frameon=False)
    fig.savefig(path, dpi=110)
    plt.close(fig)


PAGES = {WITH_IMAGES: {"log-loss": with_images, "costs": costs}, WITHOUT_IMAGES: {"census": census}}
"""By page and mark what makes a table."""


def with_tables(page: Path, text: str) -> str:
    """Return a page's text with its tables."""
    for mark, make in PAGES[page].items():
        text = between_marks(text, mark, make())
    return text


if __name__ == "__main__":
    if sys.argv[1:]:
        print(table_of_results(Path(sys.argv[1])))
    else:
        for page in PAGES:
            page.write_text(with_tables(page, page.read_text()))
        draw(FIGURE)

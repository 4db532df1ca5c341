"""The tables of docs/results/ with equal trials, from the scores that `benchmarks.study.equals` leaves.

``python -m benchmarks.study.equal_tables FOLDER``, where FOLDER is that of a case. Means and standard
deviations over the seeds; in the last column the difference in log-loss from the best of the others' models,
with a 95 % interval over the test rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from usboost.models.catalogue import catalogue

KEPT = Path(__file__).parent / "equal"
"""The scores of whole tables on the pages and of 3,000 rows, a file a case."""
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
"""Of the table: a model's name, and whether its settings are its ``own`` or ``tuned``."""
WORDS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}


def kind_of(name: str) -> str:
    return catalogue.find(name).kind if name in catalogue.CATALOGUE else "package"


def is_ours(name: str) -> bool:
    return name in catalogue.CATALOGUE and not catalogue.find(name).external


def kept(path: Path) -> list[dict[str, Any]]:
    """The scores of every fit, in the order in which they were made."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def losses_file(folder: Path, model: str, kind: str, seed: int) -> Path:
    """Holds the log-loss of each test row, float32 (n,)."""
    return folder / "losses" / f"{model}-{kind}-{seed}.npy"


def rows_of(path: Path) -> pd.DataFrame:
    """Scores by model, settings (``own`` or ``tuned``), fits (``first`` or ``all``) and seed.

    An ensemble has fits to all rows alone.
    """
    rows = pd.DataFrame(kept(path))
    whole = rows["kind"].str.endswith("all") | (rows["model"].map(kind_of) == "ensemble")
    return rows.assign(
        settings=rows["kind"].str.removesuffix("all"), fits=np.where(whole, "all", "first")
    ).drop_duplicates(["model", "settings", "fits", "seed"], keep="last")


def lines(rows: pd.DataFrame, against: dict[Row, str]) -> dict[str, dict[str, str]]:
    """The table: by the row's label what each column says, the best first fit first.

    `against` is the last column; the row that is compared with has an empty text there.
    """
    digits, found = digits_of(rows), {}
    left_out = AT_HALF if "f1_tuned" in rows else ()
    columns = {
        column: where for column, where in COLUMNS.items() if where[1] in rows and where[1] not in left_out
    }
    (rival,) = [row for row, text in against.items() if not text]
    for row, group in rows.groupby(["model", "settings"]):
        cells = {column: _cell(group, *where, digits) for column, where in columns.items()}
        of = "first" if "first" in set(group["fits"]) else "all"  # an ensemble's place is by the latter
        place = group.loc[group["fits"] == of, "log_loss"].mean()
        found[place, _label(row, group)] = {**cells, f"against {name_of(rival)}": against.get(row, "")}
    return {label: found[place, label] for place, label in sorted(found)}


def digits_of(rows: pd.DataFrame) -> int:
    return 4 if "f1_tuned" in rows else 3  # of tens of thousands of test rows, or of a few thousand


def name_of(row: Row) -> str:
    model, settings = row
    return f"`{model}`, tuned" if settings == "tuned" else f"`{model}`"


def _label(row: Row, group: pd.DataFrame) -> str:
    seeds = int(group.groupby("fits").size().max())
    if seeds >= SEEDS or kind_of(row[0]) in DRAWS_NOTHING:
        return name_of(row)
    return f"{name_of(row)} ({WORDS[seeds]} {'seed' if seeds == 1 else 'seeds'})"


def _cell(group: pd.DataFrame, fits: str, score: str, digits: int) -> str:
    """Mean and standard deviation over the seeds, or the median of a cost; nothing where there is no fit."""
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


def number(value: float, digits: int, sign: str = "") -> str:
    """As the pages have them: .123, −.012, 1.234."""
    text = f"{value:{sign}.{digits}f}".replace("-", "−")
    return text.replace("0.", ".", 1) if text.lstrip("+−").startswith("0.") else text


def differences(folder: Path, rows: pd.DataFrame) -> dict[Row, str]:
    """From the best of the others' models: first fits from first fits, an ensemble from fits to all rows.

    That model has an empty text.
    """
    means = rows[~rows["model"].map(is_ours)].groupby(["fits", "model", "settings"])["log_loss"].mean()
    rival, digits = means["first"].idxmin(), digits_of(rows)
    found = {rival: ""}
    for row, group in rows.groupby(["model", "settings"]):
        fits = "first" if "first" in set(group["fits"]) else "all"
        if row == rival or (fits, *rival) not in means:
            continue
        gap = losses(folder, rows, row, fits) - losses(folder, rows, rival, fits)
        draws = np.random.default_rng(0).integers(0, len(gap), (DRAWS, len(gap)))
        low, high = np.quantile(gap[draws].mean(axis=1), [0.025, 0.975])
        middle, low, high = (number(value, digits, "+") for value in (gap.mean(), low, high))
        found[row] = f"{middle} ({low} to {high})"
    return found


def losses(folder: Path, rows: pd.DataFrame, row: Row, fits: str) -> np.ndarray:
    """Each test row's log-loss, float32 (n,), the mean over the seeds."""
    chosen = rows[(rows["model"] == row[0]) & (rows["settings"] == row[1]) & (rows["fits"] == fits)]
    fits_made = chosen[["model", "kind", "seed"]].itertuples(index=False)
    return np.mean([np.load(losses_file(folder, *each)) for each in fits_made], axis=0)


def markdown(table: dict[str, dict[str, str]]) -> str:
    """The table, in each column of scores the best in bold."""
    columns = list(next(iter(table.values())))
    text = ["| model | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for label, cells in table.items():
        shown = [label, *(_bold(cells[column], column, table) for column in columns)]
        text.append("|" + "|".join(f" {cell} " if cell else " " for cell in shown) + "|")
    return "\n".join(text)


def _bold(cell: str, column: str, table: dict[str, dict[str, str]]) -> str:
    score = COLUMNS[column][1] if column in COLUMNS else ""
    if not cell or not score or score in COSTS:
        return cell
    means = [float(cells[column].split()[0]) for cells in table.values() if cells[column]]
    mean, *others = cell.split(" ", 1)
    best = min(means) if score == "log_loss" else max(means)
    return " ".join([f"**{mean}**", *others]) if float(mean) == best else cell


def table_of_results(folder: Path) -> str:
    """Markdown of a case's folder, with its ``results.jsonl`` and each test row's loss."""
    rows = rows_of(folder / "results.jsonl")
    return markdown(lines(rows, differences(folder, rows)))


if __name__ == "__main__":
    print(table_of_results(Path(sys.argv[1])))

"""A comparison in print: in the terminal, as Markdown, as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from usboost.errors import option
from usboost.evaluation.ranking import f1_of, metric_name, number
from usboost.evaluation.statistics import LEVEL
from usboost.evaluation.task import FEW, table_of_models
from usboost.files import write_atomically
from usboost.multimodal.compare.compare import Comparison, Standing

Row = dict[str, str]
"""Cells by column: `MODEL`, scores by their names, ``seconds``, `VERDICT`."""

MODEL, VERDICT = "model", "verdict"
_GAP = 2  # between columns of a terminal


def titles(comparison: Comparison) -> Row:
    """The columns, and the title of each."""
    scores = {key: metric_name(key) for key in comparison.metrics}
    return {MODEL: "model", **scores, "seconds": "seconds", VERDICT: "against the best"}


def cells(comparison: Comparison) -> list[Row]:
    """The rows of the table: ranked models, then those that failed."""
    numbers = (*comparison.metrics, "seconds")
    rows = [
        {
            MODEL: each.model,
            **{key: _with_spread(key, each) for key in numbers},
            VERDICT: "best" if k == 0 else _verdict(each),
        }
        for k, each in enumerate(comparison.standings())
    ]
    return rows + [
        {MODEL: name, **dict.fromkeys(numbers, "–"), VERDICT: f"failed: {reason}"}
        for name, reason in comparison.failures.items()
    ]


def _with_spread(key: str, standing: Standing) -> str:
    shown = "{:.1f}".format if key == "seconds" else number
    mean, spread = standing.mean[key], standing.spread[key]
    return f"{shown(mean)} ± {shown(spread)}" if np.isfinite(spread) else shown(mean)


def _verdict(standing: Standing) -> str:
    if np.isnan(standing.p_holm):
        return f"not tested ({_signed(standing.difference)})"
    verdict = "within noise" if standing.within_noise else "worse"
    return f"{verdict} ({_signed(standing.difference)}, p {p_value(standing.p_holm)})"


def notes(comparison: Comparison) -> list[str]:
    """How to read the numbers."""
    standings = comparison.standings()
    parts = comparison.parts
    over = f"Mean ± standard deviation over {parts} test folds" if parts != 1 else "Scores of one test part"
    lines = [
        f"{over}, the same for all models, ranked by {metric_name(comparison.by)}."
        + (f" F1 is {f1_of(comparison.classes)}{_alike(comparison.by)}." if comparison.classes else "")
    ]
    if len(standings) > 1 and parts > 1:
        lines.append(
            "Within noise: the difference from the best is not significant at "
            f"{LEVEL:.0%}, two-sided, by the corrected resampled t-test of Nadeau and Bengio; p is Holm's, "
            f"over {len(standings) - 1} comparison{'s' * (len(standings) > 2)}."
        )
        lines.append(
            f"The best of {len(standings)} was chosen on these same folds, so its score is optimistic. "
            f"Use more {option('repeats')} to detect small differences, and new rows for an unbiased score."
        )
    return lines


def _alike(by: str) -> str:
    """Said of a score that is of the same classes as F1."""
    return f", and so is {metric_name(by)}" if by in ("precision", "recall", "pr_auc") else ""


def rendered(comparison: Comparison, width: int) -> Table:
    """The table for a terminal of so many columns, a line for each model where they allow it.

    What does not fit is left out, the least important first: spreads, then scores that do not rank. Models
    that failed have their reasons below the table, see `failures`.
    """
    rows = [titles(comparison), *cells(comparison)]
    for row in rows:
        row[VERDICT] = "failed" if row[VERDICT].startswith("failed:") else row[VERDICT]
    for narrowed in _narrower(rows, comparison):
        if _width(narrowed) <= width:
            break
    table = Table(box=None, pad_edge=False, header_style="bold")
    for key, title in narrowed[0].items():
        right = key not in (MODEL, VERDICT)
        table.add_column(title, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in narrowed[1:]:
        table.add_row(*map(Text, row.values()))
    return table


def _narrower(rows: list[Row], comparison: Comparison) -> Iterator[list[Row]]:
    """The rows, then narrower and narrower ones."""
    others = [key for key in comparison.metrics if key != comparison.by]

    def changed(keys: Sequence[str], change: Callable[[str], str]) -> list[Row]:
        return [{key: change(cell) if key in keys else cell for key, cell in row.items()} for row in rows]

    def without_spread(cell: str) -> str:
        return cell.partition(" ±")[0]

    yield rows
    for keys in (["seconds"], others):
        rows = changed(keys, without_spread)
        yield rows
    rows = changed([VERDICT], _short_verdict)
    rows[0]["seconds"] = "sec."
    yield rows
    # the loss says most beside the score that ranks
    for key in sorted(others, key=lambda key: key in ("log_loss", "r2")):
        rows = [{name: cell for name, cell in row.items() if name != key} for row in rows]
        yield rows
    rows = changed([comparison.by], without_spread)
    yield rows


def _short_verdict(cell: str) -> str:
    """Without the difference, which the scores show."""
    verdict, _, rest = cell.partition(" (")
    p = rest.rstrip(")").partition(", ")[2]
    return f"{verdict}, {p}" if p else verdict


def _width(rows: Sequence[Row]) -> int:
    return sum(max(len(row[key]) for row in rows) + _GAP for key in rows[0]) - _GAP


def failures(comparison: Comparison) -> list[str]:
    """Why models failed, a line for each."""
    return [f"{name} failed: {reason}" for name, reason in comparison.failures.items()]


def _line(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"


def markdown(
    comparison: Comparison, title: str, summary: Sequence[str] = (), below: Sequence[str] = ()
) -> str:
    """The same as Markdown: the table, the summary, how to read the numbers, and what else is said."""

    heads = titles(comparison)
    rule = ["---" if key in (MODEL, VERDICT) else "--:" for key in heads]
    rows = [_line([row[key] for key in heads]) for row in cells(comparison)]
    table = [_line(list(heads.values())), f"|{'|'.join(rule)}|", *rows]
    return "\n".join([f"# {title}", "", *table, "", "\n\n".join([*summary, *notes(comparison), *below]), ""])


SLICED = (
    "Each group's rows scored alone, as the folds of the first repeat predicted them, with 95 % bootstrap "
    f"intervals over the rows. Of groups of fewer than {FEW} rows, marked few, these are too narrow."
)


def sliced(comparison: Comparison) -> dict[str, Any]:
    """The score that ranks, or else the task's first, by the groups of a column: as `table_of_models`, and
    its name as ``score``. Empty where it was not asked for.
    """
    if not comparison.slices:
        return {}
    known = next(iter(comparison.slices.values()))[0].scores
    score = comparison.by if comparison.by in known else next(iter(known))
    return {**table_of_models(comparison.slices, score), "score": metric_name(score)}


def slices_as_markdown(by_column: str, table: Mapping[str, Any]) -> str:
    """The table of `sliced`."""
    heads = [by_column, *table["columns"].values()]
    rows = [
        [row["name"], *(" ".join(filter(None, row["cells"][key])) for key in table["columns"])]
        for row in table["rows"]
    ]
    head = f"## {table['score']} by {by_column}"
    return "\n".join([head, "", _line(heads), f"|---|{'--:|' * (len(heads) - 1)}", *map(_line, rows)])


def write(
    comparison: Comparison,
    folder: Path,
    title: str,
    summary: Sequence[str] = (),
    below: Sequence[str] = (),
) -> None:
    """Write ``comparison.csv`` (the scores of every fold) and ``comparison.md``, each atomically."""
    text = comparison.scores.to_csv(index=False, lineterminator="\n")
    write_atomically(folder / "comparison.csv", text.encode())
    write_atomically(folder / "comparison.md", markdown(comparison, title, summary, below).encode())


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "−") + number(abs(value))


def p_value(value: float) -> str:
    """After "p"."""
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"

"""A comparison in print: in the terminal, as Markdown, as CSV."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from usboost.evaluation.names import f1_of, metric_name
from usboost.evaluation.statistics import LEVEL
from usboost.files import write_atomically
from usboost.multimodal.compare import Comparison, Standing


def head(comparison: Comparison) -> list[str]:
    """The titles of the columns."""
    return ["model", *map(metric_name, comparison.metrics), "seconds", "against the best"]


WIDE = 140
"""Columns of a terminal that the table fits into with one line a model."""


def cells(comparison: Comparison) -> list[list[str]]:
    """The rows of the table: ranked models, then those that failed."""
    standings = comparison.standings()
    rows = [
        [
            each.model,
            *(f"{number(each.mean[key])} ± {number(each.spread[key])}" for key in comparison.metrics),
            f"{each.mean['seconds']:.1f} ± {each.spread['seconds']:.1f}",
            "best" if k == 0 else _verdict(each),
        ]
        for k, each in enumerate(standings)
    ]
    return rows + [
        [name, *["–"] * len(comparison.metrics), "–", f"failed: {reason}"]
        for name, reason in comparison.failures.items()
    ]


def _verdict(standing: Standing) -> str:
    verdict = "within noise" if standing.within_noise else "worse"
    return f"{verdict} ({_signed(standing.difference)}, p {_p(standing.p_holm)})"


def notes(comparison: Comparison) -> list[str]:
    """How to read the numbers."""
    standings = comparison.standings()
    parts = comparison.scores[["repeat", "fold"]].drop_duplicates()
    lines = [
        f"Mean ± standard deviation over {len(parts)} test folds, the same for all models, ranked by "
        f"{metric_name(comparison.by)}."
        + (f" F1 is {f1_of(comparison.classes)}." if comparison.classes else "")
    ]
    if len(standings) > 1:
        lines.append(
            "Within noise: the difference from the best is not significant at "
            f"{LEVEL:.0%}, two-sided, by the corrected resampled t-test of Nadeau and Bengio; p is Holm's, "
            f"over {len(standings) - 1} comparison{'s' * (len(standings) > 2)}."
        )
        lines.append(
            f"The best of {len(standings)} was chosen on these same folds, so its score is optimistic. "
            "Use more --repeats to detect small differences, and new rows for an unbiased score."
        )
    return lines


def rendered(comparison: Comparison, width: int) -> Group:
    """The table and the notes for a terminal of so many columns; below `WIDE` cells take two lines."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = head(comparison)
    for k, name in enumerate(titles):
        middle = 0 < k < len(titles) - 1
        table.add_column(name, justify="right" if middle else "left", no_wrap=k < len(titles) - 1)
    for row in cells(comparison):
        if width < WIDE:
            row = [cell.replace(" ± ", "\n± ").replace(" (", "\n(") for cell in row]
        table.add_row(*map(Text, row))
    return Group(table, Text(), *map(Text, notes(comparison)))


def markdown(comparison: Comparison, title: str) -> str:
    """The same as Markdown."""

    def line(values: list[str]) -> str:
        return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"

    titles = head(comparison)
    rule = "|" + "|".join(["---", *["--:"] * (len(titles) - 2), "---"]) + "|"
    table = [line(titles), rule, *(line(row) for row in cells(comparison))]
    return "\n".join([f"# {title}", "", *table, "", "\n\n".join(notes(comparison)), ""])


def write(comparison: Comparison, folder: Path, title: str) -> None:
    """Write ``comparison.csv`` (the scores of every fold) and ``comparison.md``, each atomically."""
    text = comparison.scores.to_csv(index=False, lineterminator="\n")
    write_atomically(folder / "comparison.csv", text.encode())
    write_atomically(folder / "comparison.md", markdown(comparison, title).encode())


def number(value: float) -> str:
    """A score: four digits after the point, or four in all where it has a unit and is large."""
    return (
        f"{value:.4f}" if abs(value) < 100 else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.1f}"
    )


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "−") + number(abs(value))


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"

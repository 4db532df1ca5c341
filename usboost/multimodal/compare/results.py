"""A comparison in print: in the terminal, as Markdown, as CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from usboost.errors import option
from usboost.evaluation.names import f1_of, metric_name, number
from usboost.evaluation.statistics import LEVEL
from usboost.files import write_atomically
from usboost.multimodal.compare.compare import Comparison, Standing


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
            *(_with_spread(number, each, key) for key in comparison.metrics),
            _with_spread("{:.1f}".format, each, "seconds"),
            "best" if k == 0 else _verdict(each),
        ]
        for k, each in enumerate(standings)
    ]
    return rows + [
        [name, *["–"] * len(comparison.metrics), "–", f"failed: {reason}"]
        for name, reason in comparison.failures.items()
    ]


def _with_spread(shown: Callable[[float], str], standing: Standing, key: str) -> str:
    mean, spread = standing.mean[key], standing.spread[key]
    return f"{shown(mean)} ± {shown(spread)}" if np.isfinite(spread) else shown(mean)


def _verdict(standing: Standing) -> str:
    if np.isnan(standing.p_holm):
        return f"not tested ({_signed(standing.difference)})"
    verdict = "within noise" if standing.within_noise else "worse"
    return f"{verdict} ({_signed(standing.difference)}, p {_p(standing.p_holm)})"


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


def rendered(comparison: Comparison, width: int, reads: Mapping[str, str] | None = None) -> Group:
    """The table and the notes for a terminal of so many columns; below `WIDE` cells take two lines.

    Parameters
    ----------
    reads : what each model reads, in words.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = head(comparison)
    for k, name in enumerate(titles):
        middle = 0 < k < len(titles) - 1
        table.add_column(name, justify="right" if middle else "left", no_wrap=k < len(titles) - 1)
    for row in cells(comparison):
        if width < WIDE:
            row = [cell.replace(" ± ", "\n± ").replace(" (", "\n(") for cell in row]
        table.add_row(*map(Text, row))
    lines = [f"{name} {each}" for name, each in (reads or {}).items()]
    return Group(table, Text(), *map(Text, [*lines, *([""] if lines else []), *notes(comparison)]))


def markdown(
    comparison: Comparison, title: str, reads: Mapping[str, str] | None = None, summary: Sequence[str] = ()
) -> str:
    """The same as Markdown, and the summary below it."""

    def line(values: list[str]) -> str:
        return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"

    titles = head(comparison)
    rule = "|" + "|".join(["---", *["--:"] * (len(titles) - 2), "---"]) + "|"
    table = [line(titles), rule, *(line(row) for row in cells(comparison))]
    lines = [f"- {name} {each}" for name, each in (reads or {}).items()]
    paragraphs = ["\n".join(lines)] if lines else []
    return "\n".join(
        [f"# {title}", "", *table, "", "\n\n".join([*paragraphs, *notes(comparison), *summary]), ""]
    )


def write(
    comparison: Comparison,
    folder: Path,
    title: str,
    reads: Mapping[str, str] | None = None,
    summary: Sequence[str] = (),
) -> None:
    """Write ``comparison.csv`` (the scores of every fold) and ``comparison.md``, each atomically."""
    text = comparison.scores.to_csv(index=False, lineterminator="\n")
    write_atomically(folder / "comparison.csv", text.encode())
    write_atomically(folder / "comparison.md", markdown(comparison, title, reads, summary).encode())


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "−") + number(abs(value))


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"

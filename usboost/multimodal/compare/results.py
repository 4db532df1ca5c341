"""A comparison in print: in the terminal, as Markdown, as CSV; and in words: what each model reads, which is
best, whether images help, what to do next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from usboost.datasets.user.user_table import UserTable
from usboost.errors import option
from usboost.evaluation.names import f1_of, metric_name, number
from usboost.evaluation.statistics import LEVEL
from usboost.files import write_atomically
from usboost.models.catalogue import catalogue
from usboost.models.catalogue.entry import COMPONENTS, KINDS, Entry
from usboost.multimodal.compare.compare import Comparison, Standing
from usboost.multimodal.fit.fit import ImageOptions


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


@dataclass(frozen=True)
class Inputs:
    """What a model reads.

    Attributes
    ----------
    columns : how many columns of the table.
    images : its columns of images; how : as what these are read.
    """

    columns: int
    images: tuple[str, ...] = ()
    how: str = ""

    def __str__(self) -> str:
        if not self.columns and not self.images:
            return "reads nothing"
        found = [f"{self.columns:,} column{'s' * (self.columns != 1)}"] if self.columns else []
        if self.images:
            found.append(f"images in {' and '.join(self.images)} ({self.how})")
        return f"reads {', '.join(found)}"


def inputs(name: str, table: UserTable, options: ImageOptions | None) -> Inputs:
    """What a model reads of a table.

    Parameters
    ----------
    name : of the catalogue; any other reads everything, as `models.baselines.estimators.ScikitBaseline` does.
    options : how images are read, if there are any.
    """
    columns = table.features.shape[1]
    entry = catalogue.CATALOGUE.get(name)
    views = _views(entry)
    if options is None or table.form is None:
        return Inputs(columns if views else 0)
    images = tuple(table.form.columns) if "U" in views else ()
    return Inputs(columns if "S" in views else 0, images, _how(entry, options) if images else "")


def _views(entry: Entry | None) -> set[str]:
    if entry is None:
        return {"U", "S"}
    reads = KINDS[entry.kind].images
    if reads is None:
        return set()
    if reads != "learners":
        return set(entry.changes.get("views", ("U", "S")))
    read = {view for name, spec in entry.learners.items() for view in spec.reads or (name,)}
    return read | set(entry.changes.get("start", ()))


def _how(entry: Entry | None, options: ImageOptions) -> str:
    reads = "components" if entry is None else KINDS[entry.kind].images
    embeddings = {
        "none": "frozen embeddings",
        "auto": "embeddings, tuned where that takes some minutes",
    }.get(options.finetune, "tuned embeddings")
    if reads == "components":
        return f"{COMPONENTS} components of {embeddings}"
    learners = {} if entry is None else entry.learners
    network = reads == "network" or any(
        spec.kind == "network" and "U" in (spec.reads or (name,)) for name, spec in learners.items()
    )
    if network and options.backbone == "small_cnn":
        return "a small network that is trained"
    return embeddings


MEASURES = frozenset(name for name, entry in catalogue.CATALOGUE.items() if entry.external and entry.compared)
"""The models that a user measures others against: those of others."""


_FASTER = 3


Commands = tuple[Callable[[str], str], str]
"""To copy: what fits a model of some name, and the comparison with more repeats or ""."""


def summary(
    comparison: Comparison, inputs: Mapping[str, Inputs], commands: Commands | None = None
) -> list[str]:
    """Sentences on a comparison; none of one without results.

    Parameters
    ----------
    inputs : what each model reads.
    commands : to name in what to do next.
    """
    standings = comparison.standings()
    if not standings:
        return []
    best, *others = standings
    score = metric_name(comparison.by)
    lines = [_best(best, others, comparison.by, comparison.parts)]
    if comparison.parts < 2:
        lines.append("One test part tells nothing of noise: these differences are not tested.")
    else:
        lines += _images(standings, inputs, comparison.by)
    read = {name for name, each in inputs.items() if each.columns or each.images}
    useless = next((each for each in standings if each.model not in read), None)
    if useless is best:
        lines.append(
            f"No model is better by {score} than {best.model}, which reads nothing: check the label and the "
            "columns, or bring more rows."
        )
    elif useless is not None and useless.within_noise and comparison.parts > 1:
        lines.append(
            f"So few folds do not show that {best.model} is better than {useless.model}, which reads "
            f"nothing: use more {option('repeats')}, or bring more rows."
        )
    return lines + _next(standings, comparison, commands)


def _best(best: Standing, others: Sequence[Standing], by: str, parts: int) -> str:
    text = f"{best.model} is best, {metric_name(by)} {number(best.mean[by])}"
    measured = [each for each in others if each.model in MEASURES]
    beaten = [each.model for each in measured if not each.within_noise]
    close = [each.model for each in measured if each.within_noise]
    if parts > 1 and beaten:
        text += f"; better than {_listed(beaten)} beyond noise"
    if parts > 1 and close:
        text += f"; within noise of {_listed(close)}"
    return f"{text}."


def _images(standings: Sequence[Standing], inputs: Mapping[str, Inputs], by: str) -> list[str]:
    """The best model that reads images against the best that reads the columns alone."""
    reading = [each for each in standings if inputs[each.model].images]
    without = [each for each in standings if inputs[each.model].columns and not inputs[each.model].images]
    if not reading or not without:
        return []
    first, second = reading[0], without[0]
    # one of the two is the best of all but for a model that reads nothing, and the other is tested against it
    worse = max(first, second, key=standings.index)
    scores = (
        f"{first.model}, the best that reads them, has {metric_name(by)} {number(first.mean[by])}, and "
        f"{second.model}, the best of the columns alone, {number(second.mean[by])}"
    )
    if worse.within_noise or standings[0] not in (first, second):
        return [f"Images: no difference beyond noise. {scores}."]
    helped = "Images help" if worse is second else "Images do harm"
    return [f"{helped}: {scores} (p {_p(worse.p_holm)})."]


def _next(standings: Sequence[Standing], comparison: Comparison, commands: Commands | None) -> list[str]:
    best, lines = standings[0], []
    close = [each for each in standings[1:] if each.within_noise]
    fastest = min([best, *close], key=lambda each: each.mean["seconds"])
    slow = best.mean["seconds"] > max(1.0, _FASTER * fastest.mean["seconds"])  # else nobody cares
    if slow and comparison.parts > 1:
        lines.append(
            f"{fastest.model} is within noise of the best and fits in {fastest.mean['seconds']:.1f} s "
            f"instead of {best.mean['seconds']:.1f} s."
        )
    if commands is None:
        return lines
    fit, repeat = commands
    if close and repeat:
        lines.append(f"Next, to tell close models apart: {repeat}")
    saved = next((each.model for each in standings if each.model in catalogue.CATALOGUE), None)
    if saved is not None:
        only = "" if saved == best.model else f", as {best.model} cannot be saved by usboost"
        lines.append(f"Next, to fit and save {saved}{only}: {fit(saved)}")
    return lines


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""A comparison in print and in words: its table, which model is best, what each reads, what to do next."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from usboost.evaluation.ranking import f1_of, joined_names, metric_name, number
from usboost.evaluation.statistics import LEVEL
from usboost.evaluation.task import FEW, table_of_models
from usboost.files import write_atomically
from usboost.fit.compare import Comparison, ModelStanding
from usboost.fit.options import ImageOptions
from usboost.models import catalogue
from usboost.models.entry import COMPONENTS, KINDS
from usboost.table.user_table import UserTable

Lines = Sequence[str]
Row = dict[str, str]
"""Cells by column: `MODEL`, scores by their names, ``seconds``, `VERDICT`."""

MODEL, VERDICT = "model", "verdict"
_GAP = 2  # between columns of a terminal


def titles(comparison: Comparison) -> Row:
    """Return the columns, and the title of each."""
    scores = {key: metric_name(key) for key in comparison.metrics}
    return {MODEL: "model", **scores, "seconds": "seconds", VERDICT: "against the best"}


def cells(comparison: Comparison) -> list[Row]:
    """Return the rows of the table: ranked models, then those that failed."""
    numbers = (*comparison.metrics, "seconds")

    def shown(key: str, each: ModelStanding) -> str:
        form = "{:.1f}".format if key == "seconds" else number
        mean, spread = each.mean[key], each.spread[key]
        return f"{form(mean)} ± {form(spread)}" if np.isfinite(spread) else form(mean)

    def verdict(each: ModelStanding) -> str:
        sign = "+" if each.difference >= 0 else "−"
        difference = sign + number(abs(each.difference))
        if np.isnan(each.p_holm):
            return f"not tested ({difference})"
        ground = f"{difference}, p {p_value(each.p_holm)}"
        if not each.within_noise:
            return f"worse ({ground})"
        lost, won = each.pairs
        rows = f"; but {lost:,} rows lost, {won:,} won" if each.p_rows < LEVEL else ""
        return f"not separated by {comparison.parts} folds ({ground}{rows})"

    rows = [
        {
            MODEL: each.model,
            **{key: shown(key, each) for key in numbers},
            VERDICT: "best" if k == 0 else verdict(each),
        }
        for k, each in enumerate(comparison.standings())
    ]
    for name, reason in comparison.failures.items():
        rows.append({MODEL: name, **dict.fromkeys(numbers, "–"), VERDICT: f"failed: {reason}"})
    return rows


def p_value(value: float) -> str:
    """Return a p-value as it stands after "p"."""
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def notes(comparison: Comparison) -> list[str]:
    """Return how to read the numbers."""
    standings, parts, by = comparison.standings(), comparison.parts, comparison.by
    over = f"Mean ± standard deviation over {parts} test folds" if parts != 1 else "Scores of one test part"
    alike = f", and so is {metric_name(by)}" if by in ("precision", "recall", "pr_auc") else ""
    lacked = [metric_name(each) for each in comparison.metrics if comparison.scores[each].isna().any()]
    lines = [
        f"{over}, the same for all models, ranked by {metric_name(by)}."
        + (f" Some folds have no {' or '.join(lacked)} and do not count in its mean." if lacked else "")
        + (f" F1 is {f1_of(comparison.classes)}{alike}." if comparison.classes else "")
    ]
    if len(standings) > 1 and parts > 1:
        lines.append(
            f"Not separated: the folds' differences from the best are not significant at {LEVEL:.0%}, "
            "two-sided, by the corrected resampled t-test of Nadeau and Bengio, which allows for another "
            f"training of both; p is Holm's, over {len(standings) - 1} "
            f"comparison{'s' * (len(standings) > 2)}."
        )
        if any(each.within_noise and each.p_rows < LEVEL for each in standings):
            lines.append(
                "Rows lost: those of the first repeat that only the best answers rightly; won: only this "
                "one. Where they are named, the models as trained here differ by more than chance (McNemar's "
                "exact test, p of all pairs); the folds do not show that they would if trained on other rows."
            )
        lines.append(
            f"The best of {len(standings)} was chosen on these same folds, so its score is optimistic. "
            "Use more `repeats`, by time `folds`, to detect small differences, and new rows for a fair score."
        )
    return lines


def rendered(comparison: Comparison, width: int) -> Table:
    """Return the table for a terminal of so many columns, a line for each model where they allow it.

    What does not fit is left out, the least important first: spreads, then scores that do not rank. Models
    that failed have their reasons in `Comparison.failures`.
    """
    rows = [titles(comparison), *cells(comparison)]
    for row in rows:
        row[VERDICT] = "failed" if row[VERDICT].startswith("failed:") else row[VERDICT]
    for narrowed in _narrower(rows, comparison):
        if sum(max(len(row[key]) for row in narrowed) + _GAP for key in narrowed[0]) - _GAP <= width:
            break
    table = Table(box=None, pad_edge=False, header_style="bold")
    for key, title in narrowed[0].items():
        right = key not in (MODEL, VERDICT)
        table.add_column(title, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in narrowed[1:]:
        table.add_row(*map(Text, row.values()))
    return table


def _narrower(rows: list[Row], comparison: Comparison) -> Iterator[list[Row]]:
    """Yield the rows, then narrower and narrower ones."""
    others = [key for key in comparison.metrics if key != comparison.by]

    def changed(keys: Sequence[str], change: Callable[[str], str]) -> list[Row]:
        return [{key: change(cell) if key in keys else cell for key, cell in row.items()} for row in rows]

    def without_difference(cell: str) -> str:  # which the scores show
        verdict, _, rest = cell.partition(" (")
        p = rest.rstrip(")").partition(", ")[2]
        return f"{verdict}, {p}" if p else verdict

    yield rows
    rows = changed([VERDICT], lambda cell: re.sub(r" by \d+ folds|; but [^)]*", "", cell))
    yield rows
    for keys in (["seconds"], others):
        rows = changed(keys, lambda cell: cell.partition(" ±")[0])
        yield rows
    rows = changed([VERDICT], without_difference)
    rows[0]["seconds"] = "sec."
    yield rows
    # the loss says most after the score that ranks
    for key in sorted(others, key=lambda key: key in ("log_loss", "r2")):
        rows = [{name: cell for name, cell in row.items() if name != key} for row in rows]
        yield rows
    yield changed([comparison.by], lambda cell: cell.partition(" ±")[0])


def _line(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"


def markdown(comparison: Comparison, title: str, summary: Lines = (), below: Lines = ()) -> str:
    """Return the same as Markdown: the table, the summary, how to read the numbers, and what is below."""
    heads = titles(comparison)
    rule = ["---" if key in (MODEL, VERDICT) else "--:" for key in heads]
    rows = [_line([row[key] for key in heads]) for row in cells(comparison)]
    table = [_line(list(heads.values())), f"|{'|'.join(rule)}|", *rows]
    return "\n".join([f"# {title}", "", *table, "", "\n\n".join([*summary, *notes(comparison), *below]), ""])


SLICED = (
    "Each group's rows scored alone, as the folds of the first repeat predicted them, with 95 % intervals "
    "over the rows: of an accuracy Wilson's, else of the bootstrap. "
    f"Of groups of fewer than {FEW} rows, marked few, these are too narrow."
)


def sliced(comparison: Comparison) -> dict[str, Any]:
    """Return the score that ranks, or else the task's first, by the groups of a column.

    As `table_of_models`, and its name as ``score``. Empty where it was not asked for.
    """
    if not comparison.slices:
        return {}
    known = next(iter(comparison.slices.values()))[0].scores
    score = comparison.by if comparison.by in known else next(iter(known))
    return {**table_of_models(comparison.slices, score), "score": metric_name(score)}


def slices_as_markdown(by_column: str, table: Mapping[str, Any]) -> str:
    """Return the table of `sliced` as Markdown."""
    heads = [by_column, *table["columns"].values()]
    shown = [[" ".join(filter(None, row["cells"][key])) for key in table["columns"]] for row in table["rows"]]
    rows = [[row["name"], *cells] for row, cells in zip(table["rows"], shown)]
    head = f"## {table['score']} by {by_column}"
    return "\n".join([head, "", _line(heads), f"|---|{'--:|' * (len(heads) - 1)}", *map(_line, rows)])


def write(comparison: Comparison, folder: Path, title: str, summary: Lines, below: Lines) -> None:
    """Write ``comparison.csv`` (the scores of every fold) and ``comparison.md``, each atomically."""
    text = comparison.scores.to_csv(index=False, lineterminator="\n")
    write_atomically(folder / "comparison.csv", text.encode())
    write_atomically(folder / "comparison.md", markdown(comparison, title, summary, below).encode())


@dataclass(frozen=True)
class Inputs:
    """The inputs that a model reads: so many columns, and columns of images, and how these are read."""

    columns: int
    images: tuple[str, ...] = ()
    how: str = ""

    def __str__(self) -> str:
        if not self.columns and not self.images:
            return "nothing"
        parts = [f"{self.columns:,} column{'s' * (self.columns != 1)}"] if self.columns else []
        if self.images:
            parts.append(f"images in {' and '.join(self.images)} ({self.how})")
        return ", ".join(parts)


def inputs(name: str, table: UserTable, options: ImageOptions | None) -> Inputs:
    """Return what a model reads of a table, whose images, if there are any, are read by some options.

    One that the catalogue does not have reads everything, as `models.baselines.packages.ScikitBaseline` does.
    """
    columns, entry = table.features.shape[1], catalogue.CATALOGUE.get(name)
    reads = "components" if entry is None else KINDS[entry.kind].images
    specs = {} if entry is None else entry.learners
    learners = {view: spec.reads or (view,) for view, spec in specs.items()}
    views = {"U", "S"}
    if reads is None:
        views = set()
    elif entry is not None and reads == "learners":
        views = {view for each in learners.values() for view in each} | set(entry.changes.get("start", ()))
    elif entry is not None:
        views = set(entry.changes.get("views", ("U", "S")))
    if options is None or table.form is None:
        return Inputs(columns if views else 0)
    columns = columns if "S" in views else 0
    if "U" not in views:
        return Inputs(columns)
    how = {"none": "frozen embeddings", "auto": "embeddings, tuned where that takes some minutes"}.get(
        options.finetune, "tuned embeddings"
    )
    on_u = [spec.kind for view, spec in specs.items() if "U" in learners[view]]
    if reads == "components":
        how = f"{COMPONENTS} components of {how}"
    elif (reads == "network" or "network" in on_u) and options.backbone == "small_cnn":
        how = "a small network that is trained"
    return Inputs(columns, tuple(table.form.columns), how)


MEASURES = frozenset(name for name, entry in catalogue.CATALOGUE.items() if entry.external and entry.compared)
"""The models that a user measures others against: those of others."""

_FASTER = 3


def what_is_read(inputs: Mapping[str, Inputs]) -> list[str]:
    """Return a line for all models that read the same."""
    models: dict[Inputs, list[str]] = {}
    for name, each in inputs.items():
        models.setdefault(each, []).append(name)
    return [f"{joined_names(names)} read{'s' * (len(names) == 1)} {each}." for each, names in models.items()]


def summary(comparison: Comparison, inputs: Mapping[str, Inputs]) -> list[str]:
    """Return sentences on a comparison of models that read `inputs`; none of one without results."""
    standings, by, tested = comparison.standings(), comparison.by, comparison.parts > 1
    if not standings:
        return []
    best, *others = standings
    text = f"{best.model} is best, {metric_name(by)} {number(best.mean[by])}"
    measured = [each for each in others if each.model in MEASURES]
    if tested and (beaten := [each.model for each in measured if not each.within_noise]):
        text += f"; better than {joined_names(beaten)}"
    if tested and (close := [each.model for each in measured if each.within_noise]):
        text += f"; not separated from {joined_names(close)} by {comparison.parts} folds"
    lines = [f"{text}."]
    if tested:
        lines += _images(standings, inputs, by)
    else:
        lines.append("One test part tells nothing of noise: these differences are not tested.")
    read = {name for name, each in inputs.items() if each.columns or each.images}
    useless = next((each for each in standings if each.model not in read), None)
    if useless is best:
        nothing = f"No model is better by {metric_name(by)} than {best.model}, which reads nothing"
        others = [each for each in standings if each.model in read]
        lines += [f"{nothing}: check the label and the columns, or bring more rows."] * bool(others)
    elif useless is not None and useless.within_noise and tested:
        lines.append(
            f"So few folds do not show that {best.model} is better than {useless.model}, which reads "
            f"nothing: use more `repeats`, by time `folds`, or bring more rows."
        )
    level = (each for each in others if each.within_noise and each.p_rows >= LEVEL and each.model in read)
    within = [best, *level]
    fastest = min(within, key=lambda each: each.mean["seconds"])
    took, less = best.mean["seconds"], fastest.mean["seconds"]
    if tested and took > max(1.0, _FASTER * less):  # else nobody cares
        scored = (
            f"{fastest.model}, {metric_name(by)} {number(fastest.mean[by])}, is not separated from the best"
        )
        lines.append(f"{scored} and fits in {less:.1f} s, not {took:.1f} s.")
    return lines


def _images(standings: Sequence[ModelStanding], inputs: Mapping[str, Inputs], by: str) -> list[str]:
    """Return a sentence on the best model that reads images against the best of the columns alone."""
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
        return [f"Images: no difference that these folds show. {scores}."]
    helped = "Images help" if worse is second else "Images do harm"
    return [f"{helped}: {scores} (p {p_value(worse.p_holm)})."]


def next_steps(comparison: Comparison, fit: Callable[[str], str], repeat: str) -> list[tuple[str, str]]:
    """Return what to do next, in words, and the command to copy.

    `fit` gives the command that fits a model of some name; `repeat` is that of more repeats, or "".
    """
    standings, steps = comparison.standings(), []
    if repeat and any(each.within_noise for each in standings[1:]):
        steps.append(("Next, to tell close models apart:", repeat))
    saved = next((each.model for each in standings if each.model in catalogue.CATALOGUE), None)
    if saved is not None and KINDS[catalogue.CATALOGUE[saved].kind].images is not None:  # it reads something
        best = standings[0].model
        only = "" if saved == best else f", as {best} cannot be saved by usboost"
        steps.append((f"Next, to fit and save {saved}{only}:", fit(saved)))
    return steps

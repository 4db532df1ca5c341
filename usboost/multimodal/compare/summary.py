"""A comparison in words: which model is best, whether images help, what each reads, what to do next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from usboost.errors import option
from usboost.evaluation.ranking import metric_name, number
from usboost.models import catalogue
from usboost.models.entry import COMPONENTS, KINDS, Entry
from usboost.multimodal.compare.compare import Comparison, Standing
from usboost.multimodal.compare.results import p_value
from usboost.multimodal.fit.fit import ImageOptions
from usboost.table.user_table import UserTable


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
            return "nothing"
        found = [f"{self.columns:,} column{'s' * (self.columns != 1)}"] if self.columns else []
        if self.images:
            found.append(f"images in {' and '.join(self.images)} ({self.how})")
        return ", ".join(found)


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


def what_is_read(inputs: Mapping[str, Inputs]) -> list[str]:
    """A line for all models that read the same."""
    found: dict[Inputs, list[str]] = {}
    for name, each in inputs.items():
        found.setdefault(each, []).append(name)
    return [f"{_listed(names)} read{'s' * (len(names) == 1)} {each}." for each, names in found.items()]


def summary(comparison: Comparison, inputs: Mapping[str, Inputs]) -> list[str]:
    """Sentences on a comparison; none of one without results.

    Parameters
    ----------
    inputs : what each model reads.
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
    return lines + _quicker(standings, comparison.parts)


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
    return [f"{helped}: {scores} (p {p_value(worse.p_holm)})."]


def _quicker(standings: Sequence[Standing], parts: int) -> list[str]:
    best = standings[0]
    close = [each for each in standings[1:] if each.within_noise]
    fastest = min([best, *close], key=lambda each: each.mean["seconds"])
    slow = best.mean["seconds"] > max(1.0, _FASTER * fastest.mean["seconds"])  # else nobody cares
    if not slow or parts < 2:
        return []
    return [
        f"{fastest.model} is within noise of the best and fits in {fastest.mean['seconds']:.1f} s "
        f"instead of {best.mean['seconds']:.1f} s."
    ]


def next_steps(comparison: Comparison, fit: Callable[[str], str], repeat: str) -> list[tuple[str, str]]:
    """What to do next, in words, and the command to copy.

    Parameters
    ----------
    fit : the command that fits a model of some name; repeat : that of more repeats, or "".
    """
    standings, found = comparison.standings(), []
    if repeat and any(each.within_noise for each in standings[1:]):
        found.append(("Next, to tell close models apart:", repeat))
    saved = next((each.model for each in standings if each.model in catalogue.CATALOGUE), None)
    if saved is not None:
        best = standings[0].model
        only = "" if saved == best else f", as {best} cannot be saved by usboost"
        found.append((f"Next, to fit and save {saved}{only}:", fit(saved)))
    return found


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

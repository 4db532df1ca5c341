"""What ``usboost fit`` says of a fitted model, and what it is worth."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usboost.cli.console import note, say, say_command
from usboost.cli.options import given_options
from usboost.datasets.user.table_spec import TableSpec
from usboost.errors import option
from usboost.evaluation.names import METRICS_OF, f1_of, metric_name

if TYPE_CHECKING:
    from usboost.multimodal.fit.card import Card
    from usboost.multimodal.fit.table_fit import Fitted


def say_result(model: str, fitted: Fitted) -> None:
    """How well a model predicts the validation rows, and what is kept of it."""
    from usboost.models.tuned_images import images_tuned

    card, kept = fitted.bundle.card, fitted.bundle.model
    if fitted.images_help is False:
        left_out = getattr(kept, "left_out_", ())
        what = "are not read: they do not help on rows that were not fitted to"
        note(f"the images {what if left_out else 'do not help on the validation rows'}")
    _say_scores(model, fitted)
    if images_tuned(kept):
        say("images are read by the network as it was tuned on the label")
    show_members(kept, bool(card.classes))
    _say_answers(card)
    if not getattr(kept, "members", None):
        where = "the folds" if fitted.folds else "the validation rows"
        why = f"chosen on {where}, so these scores are optimistic"
        say(f"best round {fitted.best_round}, {why}")
    if fitted.again:
        several = len(getattr(kept, "weights_", ())) > 1
        what = "members are" if several else "the model is"
        say(f"{what} fitted again to all of these rows; the scores are from before this final refit")


def say_next(out: Path, table: Path, spec: TableSpec, imports: list[str] | None) -> None:
    """The commands for other rows, which are read as these."""
    again = given_options({"import": imports, "text_model": spec.text_model, "images_root": spec.images_root})
    rows = f"more{table.suffix or '.parquet'}"
    written = "predictions.csv" if table.suffix == ".csv" else "predictions.parquet"
    for words, name, target in (
        ("Next, to predict other rows:", "predict", written),
        ("Next, to score it on other rows whose labels are known:", "report", "report.html"),
    ):
        say_command(words, shlex.join(["usboost", name, str(out), rows, "--out", target, *again]))


def _say_scores(model: str, fitted: Fitted) -> None:
    card, (train, held) = fitted.bundle.card, fitted.rows
    scores = ", ".join(f"{metric_name(key)} {fitted.scores[key]:.4f}" for key in METRICS_OF[card.task])
    if fitted.folds:
        how = f"each left out of one of {fitted.folds} folds"
        say(f"{model}: validated on {fitted.judged:,} rows, {how}, {fitted.seconds:,.1f} s")
    else:
        say(f"{model}: trained on {train:,} rows, validated on {held:,}, {fitted.seconds:,.1f} s")
    if not fitted.folds and fitted.judged < held:
        note(f"the scores are those of a sample of {fitted.judged:,} validation rows")
    say(f"validation: {scores}" + (f"; F1 is {f1_of(card.classes)}" if card.classes else ""))
    if math.isnan(fitted.scores.get("auc", 0.0)):
        note("AUC is nan, since the validation rows lack a class")
    if len(card.classes) == 2 and card.threshold is None and fitted.scores["f1"] == 0:
        lower = option("threshold", "f1")
        note(f"no validation row gets the answer {card.classes[1]!r} rightly; {lower} answers it more often")


def _say_answers(card: Card) -> None:
    """What is done to a model's predictions before they are answers."""
    if card.temperature != 1.0:
        say(f"probabilities are calibrated: temperature {card.temperature:.3f}")
    if card.threshold is not None:
        say(f"{card.classes[1]!r} is the answer from probability {card.threshold:.4f} on")
    if card.margin is not None:
        low, high = card.margin
        say(f"9 in 10 rows are within {low:+.4g} and {high:+.4g} of the prediction")


def show_members(model: Any, classes: bool) -> None:
    """Say what the members of an ensemble are worth; nothing of another model."""
    from usboost.multimodal.report import members

    rows = members.cells(model)
    if not rows:
        return
    titles = members.heads(classes)
    widths = {key: max(len(row[key]) for row in (titles, *rows)) for key in titles}
    for row in (titles, *rows):
        shown = (row[k].ljust(n) if k == members.NAME else row[k].rjust(n) for k, n in widths.items())
        say("  ".join(shown).rstrip())
    for line in members.notes(model):
        say(line)

"""``usboost fit``."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from time import monotonic as clock
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from usboost.cli import tables
from usboost.cli.console import exit_on_error, fitting, note, say, say_command
from usboost.cli.interrupts import interrupts
from usboost.cli.options import (
    DEFAULT_BACKBONE,
    NAMES,
    BackboneName,
    Finetune,
    Import,
    Seed,
    Set,
    SettingsFile,
    TablePath,
    chosen_learners,
    given_options,
    import_named,
    reads_table,
)
from usboost.datasets.user.table_spec import TableSpec
from usboost.errors import UsboostError, option
from usboost.evaluation.names import METRICS_OF, f1_of, metric_name
from usboost.models.catalogue import catalogue
from usboost.models.catalogue.settings_file import parsed_settings, read_settings

if TYPE_CHECKING:
    from usboost.multimodal.fit.card import Card
    from usboost.multimodal.fit.table_fit import Fitted


@reads_table
def fit(
    table: TablePath,
    spec: TableSpec,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help=f"One of {NAMES}.",
            show_default=f"{catalogue.PRESETS['fast']}; {catalogue.FAST_ALONE} for classes without images",
        ),
    ] = None,
    preset: Annotated[
        Literal["fast", "good", "best"] | None,
        typer.Option(
            "--preset",
            help="A model by its aim: fast is one model, good and best are blends of several.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder to save the model in.")] = Path("model"),
    learner: Annotated[
        list[str] | None,
        typer.Option("--learner", help="Another kind of weak learner, as in S=regressor; repeatable."),
    ] = None,
    settings: Set = None,
    settings_file: SettingsFile = None,
    imports: Import = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", min=1, help="Most boosting rounds, epochs or trees; still stops early."),
    ] = None,
    backbone: BackboneName = DEFAULT_BACKBONE,
    finetune: Finetune = "auto",
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Calibrate probabilities (temperature scaling) where that helps on held-out rows.",
        ),
    ] = True,
    class_weight: Annotated[
        Literal["balanced"] | None,
        typer.Option(
            "--class-weight", help="Let all classes count alike in the fit, however rare.", show_default=False
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            help="Of two classes, probability of the positive one from which it is the answer: a number, or "
            "f1 for the best F1 on the validation rows.",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            min=0,
            help="Seconds after which no new round begins; without a model, the best blend that they allow.",
        ),
    ] = None,
    fast_predict: Annotated[
        bool,
        typer.Option("--fast-predict", help="Of a blend, keep its best model alone, fitted to all rows."),
    ] = False,
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="Fit again to all rows, for as many rounds as the held-out rows chose; by default if "
            "there is time. Of a blend, its members.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="Of networks: auto (a GPU if there is one), cpu or cuda.")
    ] = "auto",
    force: Annotated[
        bool, typer.Option("--force", help="Replace a model that is in the folder already.")
    ] = False,
    seed: Seed = 0,
) -> None:
    """Fit a model to a table and save it.

    Trains on 85 % of each class's rows; early stops on the others and scores them. Without images the
    network and the trees of a model both read the whole table. Of few rows, folds choose the rounds and
    score them. Ctrl-C ends the fit and keeps the best round so far. A fit that is killed has its rounds in a
    folder beside --out, and the same command goes on.
    """
    # long for its options: a parameter for each
    with exit_on_error():
        began = clock()
        named = catalogue.resolve_model(model, preset, time_limit is not None)
        if named not in catalogue.OFFERED_FOR["regression"]:
            catalogue.for_table(named)
        catalogue.check_options(named, fast_predict=fast_predict)
        cut = parsed_threshold(threshold)
        learners = chosen_learners(learner)
        chosen = parsed_settings(settings)
        from_file = {} if settings_file is None else read_settings(settings_file)
        import_named(imports)
        from usboost.multimodal.fit.bundle import check_place

        check_place(out, replace=force)
        own = tables.read(table, spec)
        tables.show(own)
        limited, with_images = time_limit is not None, bool(own.images)
        model = catalogue.resolve_model(model, preset, limited, images=with_images, task=own.task)
        catalogue.for_table(model, own.task)
        if settings_file is not None and model not in from_file:
            note(f"{settings_file} has no settings of {model}, which is fitted as it is")
        chosen = {**from_file.get(model, {}), **chosen}
        # imported late, so that mistakes are reported without loading torch
        from usboost.boosting.callbacks import Interrupt, ShowRounds, TimeLimit
        from usboost.multimodal.fit.fit import ImageOptions
        from usboost.multimodal.fit.fit import fit as fit_table
        from usboost.multimodal.fit.unfinished import unfinished

        with unfinished(out.with_name(f"{out.name}.part"), note) as keep, fitting(model) as show:
            pressed = Interrupt(_ends_after_the_round)
            callbacks = [ShowRounds(progress=show), pressed]
            if time_limit is not None:
                callbacks.append(limit := TimeLimit(time_limit - (clock() - began)))
            fitted = fit_table(
                own,
                model,
                seed=seed,
                rounds=rounds,
                learners=learners,
                settings=chosen,
                images=ImageOptions.of(backbone, finetune, spec.size, preset),
                callbacks=callbacks,
                calibrate=calibrate,
                threshold=cut,
                refit=refit,
                device=device,
                class_weight=class_weight,
                fast_predict=fast_predict,
                keep=keep,
            )
            fitted.bundle.save(out)
        if pressed.pressed or (time_limit is not None and limit.reached):
            note("stopped before the fit had ended by itself; the best round so far is kept")
        _say_result(model, fitted)
        say(f"saved {out}")
        _say_next(out, table, spec, imports)


def _say_result(model: str, fitted: Fitted) -> None:
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


def _say_next(out: Path, table: Path, spec: TableSpec, imports: list[str] | None) -> None:
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


def parsed_threshold(given: str | None) -> Literal["f1"] | float | None:
    """``--threshold`` as a rule or number. Raises UsboostError if it is neither."""
    if given is None or given == "f1":
        return given  # type: ignore[return-value]
    try:
        found = float(given)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise UsboostError(f"--threshold {given!r} must be f1 or a number from 0 to 1")
    return found


def _ends_after_the_round() -> None:
    interrupts.heard()
    note("the fit ends after this round; Ctrl-C again stops at once")

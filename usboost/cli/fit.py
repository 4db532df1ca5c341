"""``usboost fit``, and what it says of the model."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic as clock
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from usboost.cli import options, tables
from usboost.cli.console import echo, echo_command, exit_on_error, fitting, note
from usboost.cli.interrupts import interrupts
from usboost.cli.ranks import in_each_shard
from usboost.errors import UsboostError, listed
from usboost.evaluation.ranking import METRICS_OF, f1_of, metric_name, number
from usboost.files.registry import import_parts
from usboost.fit.options import FitOptions, ImageOptions
from usboost.models import catalogue
from usboost.models.entry import KINDS, parsed_settings, read_settings
from usboost.table.spec import TableSpec

if TYPE_CHECKING:
    from usboost.fit.table_fit import Fitted


def fit(
    table: options.TablePath,
    spec: TableSpec,
    images: ImageOptions,
    answers: FitOptions,
    model: Annotated[
        str | None, typer.Option("--model", help=f"One of {options.NAMES}.", show_default=catalogue.DEFAULT)
    ] = None,
    preset: Annotated[
        Literal["fast", "best"] | None,
        typer.Option("--preset", help="A model by its aim: fast is one model, best a blend of many fits."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder to save the model in.")] = Path("model"),
    learner: Annotated[
        list[str] | None,
        typer.Option("--learner", help="Another kind of weak learner, as in S=regressor; repeatable."),
    ] = None,
    settings: options.Set = None,
    settings_file: options.SettingsFile = None,
    imports: options.Import = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            min=0,
            help="No round begins that would end after these seconds; without a model, their best blend.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a model that is in the folder already.")
    ] = False,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            min=1,
            help="Parts that the rows of Parquet files are fitted in, which torchrun's processes share. The "
            "model depends on their number, not on who has them.",
            show_default="1; 8 under torchrun",
        ),
    ] = None,
) -> None:
    """Fit a model to a table and save it.

    Trains on 85 % of each class's rows; early stops on the others and scores them. Without images the
    network and the trees of a model both read the whole table. Of few rows, folds choose the rounds and
    score them. Ctrl-C ends the fit and keeps the best round so far. A fit that is killed has its rounds in a
    folder next to --out, and the same command goes on.
    """
    with exit_on_error():
        images.check(spec)
        deadline = None if time_limit is None else clock() + time_limit
        model_of = partial(catalogue.resolve_model, model, preset, time_limit is not None)
        if (named := model_of()) not in catalogue.OFFERED_FOR["regression"]:
            catalogue.for_table(named)
        learners, chosen = options.chosen_learners(learner), parsed_settings(settings)
        answers = replace(answers, learners=learners, settings=chosen)
        from_file = {} if settings_file is None else read_settings(settings_file)
        import_parts(imports or (), Path())
        from usboost.fit.bundle import check_place
        from usboost.table.source import TableFile, require
        from usboost.table.user_table import label_task

        images = images.for_preset(preset)
        # other rows are read as these
        again = options.given_options({"import": imports, "images_root": spec.images_root})
        job = _Fit(
            table, spec, images, answers, out, force, model_of, settings_file, from_file, deadline, again
        )
        options.check_out(out)
        try:
            check_place(out, replace=force)
        except UsboostError:
            # a model that is there does not hide what is misspelt
            require(TableFile.open(table), [*spec.named, *spec.drop, *spec.categorical, *spec.text])
            if answers.settings or answers.learners:
                job.unfitted(spec.task or label_task(table, spec)[0])
            raise
        in_each_shard(job.run, shards, job.check)


@dataclass(frozen=True)
class _Fit:
    """A fit as it was asked for; `model_of` chooses the model, `deadline` is the `clock` of a time limit.

    `again` are the options with which other rows are read as these.
    """

    table: Path
    spec: TableSpec
    images: ImageOptions
    answers: FitOptions
    out: Path
    force: bool
    model_of: Callable[..., str]
    settings_file: Path | None
    from_file: Mapping[str, Mapping[str, Any]]
    deadline: float | None
    again: Sequence[str]

    def settings_of(self, name: str) -> dict[str, Any]:
        """Return the settings of a file, and what else was set."""
        return {**self.from_file.get(name, {}), **(self.answers.settings or {})}

    def unfitted(self, task: str) -> tuple[Any, str]:
        """Return the unfitted model, which refuses settings that it does not have, and its name."""
        from usboost.fit.build import build

        name = self.model_of(images=bool(self.spec.image), task=task)
        read = self.images if self.spec.image else None
        learners, chosen = self.answers.learners, self.settings_of(name)
        return build(name, images=read, task=task, learners=learners, settings=chosen), name

    def check(self) -> None:
        """Refuse what shards cannot do, before a row is read or a process waits for another."""
        from usboost.models.sharded import refuse
        from usboost.table.shards import check_shared

        check_shared(self.spec)
        name = self.model_of(images=bool(self.spec.image))
        refuse(*self.unfitted(self.spec.task or catalogue.find(name).tasks[0]))

    def run(self) -> None:
        """Read, fit, save and print the result; in a fit on shards, of the rows of one."""
        from usboost.shards.collective import world

        own = tables.read(self.table, self.spec)
        tables.show(own)
        name = self.model_of(images=bool(own.images), task=own.task)
        catalogue.for_table(name, own.task)
        if self.answers.rounds and not ((kind := KINDS[catalogue.find(name).kind]).rounds or kind.comparable):
            note(f"--rounds does not change {name}")
        # imported late, so that mistakes are reported without loading torch
        from usboost.boosting.callbacks import Interrupt, ShowRounds, TimeLimit
        from usboost.check import beside_fit
        from usboost.fit.build import fit as fit_table
        from usboost.fit.bundle import check_place
        from usboost.fit.record import unfinished
        from usboost.table.content import PACKINGS

        def interrupted() -> None:
            interrupts.answered()
            note("the fit ends after this round; Ctrl-C again stops at once")

        read = self.images
        if own.images and world().count > 1 and read.finetune == "auto":
            note("images are read by the network as it is, which several shards do not tune")
            read = replace(read, finetune="none")
        with unfinished(self.out.with_name(f"{self.out.name}.part"), note) as keep, fitting(name) as show:
            pressed = Interrupt(interrupted)
            limits = [] if self.deadline is None else [TimeLimit(self.deadline - clock())]
            if self.settings_file is not None and name not in self.from_file:
                note(f"{self.settings_file} has no settings of {name}, which is fitted as it is")
            chosen = vars(replace(self.answers, settings=self.settings_of(name)))
            callbacks = [ShowRounds(show), pressed, *limits]
            fitted = fit_table(own, name, images=read, callbacks=callbacks, keep=keep, **chosen)
            if not world().number:
                check_place(self.out, replace=self.force)  # another fit may have ended meanwhile
                fitted.bundle.save(self.out)
        if pressed.pressed or any(each.reached for each in limits):
            note("stopped before the fit had ended by itself; the best round so far is kept")
        echo_result(name, fitted)
        for each in beside_fit(own, fitted.bundle.model):
            note(f"{each}; see usboost check")
        echo(f"saved {self.out}")
        rows = f"more{''.join(self.table.suffixes[-1 - (self.table.suffix in PACKINGS) :]) or '.parquet'}"
        written = "predictions.csv" if self.table.suffix == ".csv" else "predictions.parquet"
        for words, command, target in (
            ("Next, to predict other rows:", "predict", written),
            ("Next, to score it on other rows whose labels are known:", "report", "report.html"),
        ):
            typed = ["usboost", command, str(self.out), rows, "--out", target, *self.again]
            echo_command(words, shlex.join(typed))


def echo_result(model: str, fitted: "Fitted") -> None:
    """Print how well a model predicts the validation rows, and what is saved of it."""
    from usboost.models.inspection.attribution import left_out
    from usboost.models.tuned_images import images_tuned
    from usboost.report import members

    card, fitted_model, (train, validation) = fitted.bundle.card, fitted.bundle.model, fitted.rows
    if fitted.images_help is False:
        what = "are not read: they do not help on rows that were not fitted to"
        note(f"the images {what if left_out(fitted_model) else 'do not help on the validation rows'}")
    scores = ", ".join(f"{metric_name(key)} {number(fitted.scores[key])}" for key in METRICS_OF[card.task])
    if fitted.folds:
        how = f"each left out of one of {fitted.folds} folds"
        echo(f"{model}: validated on {fitted.judged:,} rows, {how}, {fitted.seconds:,.1f} s")
    else:
        echo(f"{model}: trained on {train:,} rows, validated on {validation:,}, {fitted.seconds:,.1f} s")
    if not fitted.folds and fitted.judged < validation:
        note(f"the scores are those of a sample of {fitted.judged:,} validation rows")
    echo(f"validation: {scores}" + (f"; F1 is {f1_of(card.classes)}" if card.classes else ""))
    if math.isnan(fitted.scores.get("auc", 0.0)):
        note("AUC is nan, since the validation rows lack a class")
    if len(card.classes) == 2 and card.threshold is None and fitted.scores["f1"] == 0:
        lower = "--threshold f1"
        note(f"no validation row gets the answer {card.classes[1]!r} rightly; {lower} answers it more often")
    if images_tuned(fitted_model):
        echo("images are read by the network as it was tuned on the label")
    if card.parameters.get("size") == "auto" and card.images:
        backbones = (part for part in fitted_model.get_params().values() if hasattr(part, "pretrained"))
        sides = sorted({part.size or card.images.size[0] for part in backbones})
        echo(f"images are read at {listed(map(str, sides))} pixels, as validation rows chose")
    titles, rows = members.members_table(fitted_model, fitted.scores.get("rmse"))
    widths = {key: max(len(row[key]) for row in (titles, *rows)) for key in titles}
    for row in (titles, *rows) if rows else ():
        shown = (row[k].ljust(n) if k == members.NAME else row[k].rjust(n) for k, n in widths.items())
        echo("  ".join(shown).rstrip())
    for line in members.notes(fitted_model):
        echo(line)
    if card.temperature != 1.0:
        before = "; the losses in the table are from before that" if rows else ""
        echo(f"probabilities are calibrated: temperature {card.temperature:.3f}{before}")
    if card.threshold is not None:
        named = f"{card.classes[1]!r} is the answer from probability {card.threshold:.4f} on"
        echo(f"{named}; accuracy and F1 are of 0.5")
    if card.margin is not None:
        of = "a prediction of {:.4g}" if len(card.margin) > 1 else "the prediction"
        narrowest, *others = sorted(card.margin, key=lambda each: each[2] - each[1])
        ends = narrowest, *others[-1:]
        texts = (f"within {low:+.4g} and {high:+.4g} of {of.format(at)}" for at, low, high in ends)
        echo(f"9 in 10 rows are {', '.join(texts)}")
    if not getattr(fitted_model, "members", None) and (card.history or fitted.best_round > 1):
        where = "the folds" if fitted.folds else "the validation rows"
        why = f"chosen on {where}, so these scores are optimistic"
        start = getattr(fitted_model, "start_", None) is not None
        alone = " (the linear start alone: no round made it better)" * (start and not fitted.best_round)
        echo(f"best round {fitted.best_round}{alone}, {why}")
    if fitted.again:
        several = len(getattr(fitted_model, "weights_", ())) > 1
        what = "members are" if several else "the model is"
        echo(f"{what} fitted again to all of these rows; the scores are from before this final refit")
    if card.prior and not card.weight:
        echo(against_prior(fitted))


def against_prior(fitted: "Fitted") -> str:
    """Return how good the scores are against those of the classes' shares, the mean or the median alone."""
    import numpy as np

    from usboost.evaluation.metrics import row_losses
    from usboost.evaluation.task import TASKS

    card, labels, mine = fitted.bundle.card, fitted.labels, fitted.scores
    n, score = len(labels), TASKS[card.task].score
    key, who = ("log_loss", "the classes' shares") if card.classes else ("rmse", "the mean")
    same = np.tile(card.prior, (n, 1)) if card.classes else np.full(n, card.prior[0])
    simple = score(labels, same)
    if key == "rmse" and mine[key] >= simple[key]:  # a few rows far off may hide what is learnt of all others
        middle = np.full(n, np.median(labels))
        if mine["mae"] < score(labels, middle)["mae"]:
            key, who, same, simple = "mae", "the median", middle, score(labels, middle)
    said = f"{metric_name(key)} {number(mine[key])} against {number(simple[key])} of {who} alone"
    if mine[key] >= simple[key]:
        return f"{said}: no better, so it has learnt nothing here"
    off = row_losses(labels, same), row_losses(labels, fitted.predicted)
    gains = np.subtract(*(np.sqrt(off) if key == "mae" else off))
    luck = f", within the luck of {n:,} rows" * bool(gains.mean() < 1.96 * gains.std() / n**0.5)
    but = "; by RMSE no better than the mean" * (key == "mae")
    return f"{said}: {1 - mine[key] / simple[key]:.0%} less{luck}{but}"

"""``usboost fit``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic as clock
from typing import Annotated, Any, Literal

import typer

from usboost.cli import tables
from usboost.cli.console import exit_on_error, fitting, note, say
from usboost.cli.fitted import say_next, say_result
from usboost.cli.interrupts import interrupts
from usboost.cli.options import (
    NAMES,
    Import,
    Set,
    SettingsFile,
    TablePath,
    chosen_learners,
    import_named,
)
from usboost.cli.ranks import in_each_shard
from usboost.datasets.user.table_spec import TableSpec
from usboost.models.catalogue import catalogue
from usboost.models.catalogue.settings_file import parsed_settings, read_settings
from usboost.multimodal.options import FitOptions, ImageOptions


def fit(
    table: TablePath,
    spec: TableSpec,
    images: ImageOptions,
    options: FitOptions,
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
            "--preset", help="A model by its aim: fast is one model, good and best are blends of several."
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
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            min=0,
            help="Seconds after which no new round begins; without a model, the best blend that they allow.",
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
    folder beside --out, and the same command goes on.
    """
    with exit_on_error():
        began = clock()
        asked_for = partial(catalogue.resolve_model, model, preset, time_limit is not None)
        if (named := asked_for()) not in catalogue.OFFERED_FOR["regression"]:
            catalogue.for_table(named)
        catalogue.check_options(named, fast_predict=options.fast_predict)
        asked = _Asked(
            table,
            spec,
            images.for_preset(preset),
            replace(options, learners=chosen_learners(learner), settings=parsed_settings(settings)),
            out,
            asked_for,
            time_limit=None if time_limit is None else (time_limit, began),
            from_file=None if settings_file is None else (settings_file, read_settings(settings_file)),
            imports=imports,
        )
        import_named(imports)
        from usboost.multimodal.fit.bundle import check_place

        check_place(out, replace=force)
        in_each_shard(asked.fit, shards, asked.check_shared)


@dataclass(frozen=True)
class _Asked:
    """What is to be fitted, and how: the command's options, checked as far as they can be without a table."""

    table: Path
    spec: TableSpec
    images: ImageOptions
    options: FitOptions
    out: Path
    model: Callable[..., str]
    time_limit: tuple[float, float] | None
    from_file: tuple[Path, Mapping[str, Any]] | None
    imports: list[str] | None

    def fit(self) -> None:
        """Read, fit, save and tell; in a fit on shards, the rows of one."""
        from usboost.shards.here import here

        own = tables.read(self.table, self.spec)
        tables.show(own)
        model = self.model(images=bool(own.images), task=own.task)
        catalogue.for_table(model, own.task)
        # imported late, so that mistakes are reported without loading torch
        from usboost.boosting.callbacks import Interrupt, ShowRounds, TimeLimit
        from usboost.multimodal.fit.fit import fit as fit_table
        from usboost.multimodal.fit.unfinished import unfinished

        images = self.images
        if own.images and here().count > 1 and images.finetune == "auto":
            note("images are read by the network as it is, which several shards do not tune")
            images = replace(images, finetune="none")
        with unfinished(self.out.with_name(f"{self.out.name}.part"), note) as keep, fitting(model) as show:
            pressed = Interrupt(_ends_after_the_round)
            callbacks = [ShowRounds(progress=show), pressed]
            if self.time_limit is not None:
                seconds, began = self.time_limit
                callbacks.append(limit := TimeLimit(seconds - (clock() - began)))
            fitted = fit_table(
                own,
                model,
                images=images,
                callbacks=callbacks,
                keep=keep,
                **vars(replace(self.options, settings=self._settings_of(model))),
            )
            if not here().number:
                fitted.bundle.save(self.out)
        if pressed.pressed or (self.time_limit is not None and limit.reached):
            note("stopped before the fit had ended by itself; the best round so far is kept")
        say_result(model, fitted)
        say(f"saved {self.out}")
        say_next(self.out, self.table, self.spec, self.imports)

    def check_shared(self) -> None:
        """Refuse what shards cannot do, before a row is read or a process waits for another."""
        from usboost.datasets.user.shards import check_shared
        from usboost.models.sharded import refuse
        from usboost.multimodal.fit.fit import build

        check_shared(self.spec)
        with_images = bool(self.spec.image)
        name = self.model(images=with_images)
        task = self.spec.task or catalogue.find(name).tasks[0]
        settings = {**(self.from_file or (None, {}))[1].get(name, {}), **(self.options.settings or {})}
        images, learners = self.images if with_images else None, self.options.learners
        refuse(build(name, images=images, task=task, learners=learners, settings=settings), name)

    def _settings_of(self, model: str) -> dict[str, Any]:
        """The settings of a file, and what else was set."""
        path, found = self.from_file or (None, {})
        if path is not None and model not in found:
            note(f"{path} has no settings of {model}, which is fitted as it is")
        return {**found.get(model, {}), **(self.options.settings or {})}


def _ends_after_the_round() -> None:
    interrupts.heard()
    note("the fit ends after this round; Ctrl-C again stops at once")

"""The command `usboost`: fit, compare, predict and report on a table of one's own.

What takes time to import is imported by the command that needs it, so that help is quick.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from usboost.errors import UsboostError
from usboost.evaluation.names import METRICS, f1_of, metric_name
from usboost.models import zoo
from usboost.models.entry import KINDS

if TYPE_CHECKING:
    from rich.console import Console

    from usboost.data.progress import Progress
    from usboost.datasets.custom.table import OwnTable

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Boosting and deep learning for a table with pictures: a Parquet or CSV file with a label column, "
    "numbers, categories and perhaps a column of picture paths (relative to the table) or bytes.",
)

_NAMES = ", ".join(zoo.OFFERED)

TablePath = Annotated[Path, typer.Argument(metavar="TABLE", help="A .parquet or .csv file.")]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `usboost fit` saved.")]
Label = Annotated[str, typer.Option("--label", help="Column of the classes.")]
Image = Annotated[
    str | None, typer.Option("--image", help="Column of pictures: paths relative to the table, or bytes.")
]
Drop = Annotated[list[str] | None, typer.Option("--drop", help="Column to leave out; may be repeated.")]
Categorical = Annotated[
    list[str] | None,
    typer.Option("--categorical", help="Column that is a category although it holds numbers; repeatable."),
]
Rounds = Annotated[
    int | None,
    typer.Option("--rounds", min=1, help="Boosting rounds, epochs or trees at most; stopped early anyway."),
]
Size = Annotated[int, typer.Option("--size", min=8, max=1024, help="Side of the pictures in pixels.")]
Grey = Annotated[bool, typer.Option("--grey", help="Read pictures in grey.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of splits and models.")]
SkipMissing = Annotated[
    bool, typer.Option("--skip-missing", help="Leave out rows without a picture instead of refusing them.")
]


@app.command()
def fit(
    table: TablePath,
    label: Label,
    image: Image = None,
    model: Annotated[str, typer.Option("--model", help=f"One of {_NAMES}.")] = "2wl_logistic",
    out: Annotated[Path, typer.Option("--out", help="Folder to save the model in.")] = Path("model"),
    drop: Drop = None,
    categorical: Categorical = None,
    rounds: Rounds = None,
    size: Size = 32,
    grey: Grey = False,
    seed: Seed = 0,
    skip_missing: SkipMissing = False,
) -> None:
    """Fit a model to a table and save it.

    85 % of each class's rows are fitted to, the others say when to stop and are scored. Without pictures
    the network and the trees of a model both read the whole table.
    """
    with _exit_on_error():
        from usboost.boosting.callbacks import ShowRounds
        from usboost.multimodal import bundle
        from usboost.multimodal.fit import fit as fit_table

        zoo.for_table(model)
        bundle.check_place(out)
        own = _read(table, label, image, drop, categorical, size, grey, skip_missing)
        with _progress(model) as progress:
            fitted = fit_table(
                own, model, seed=seed, rounds=rounds, callbacks=[ShowRounds(progress=progress)]
            )
        fitted.bundle.save(out)
        train, held = fitted.rows
        scores = ", ".join(f"{metric_name(key)} {fitted.scores[key]:.4f}" for key in METRICS)
        scores += f"; F1 is {f1_of(own.classes)}"
        _say(f"{model}: {train:,} rows fitted to, {held:,} of validation, {fitted.seconds:,.1f} s")
        _say(f"validation: {scores}")
        _say(f"these rows also chose what is kept, round {fitted.best_round}, so fresh rows may score lower")
        _say(f"saved {out}")


@app.command()
def compare(
    table: TablePath,
    label: Label,
    image: Image = None,
    models: Annotated[
        str | None, typer.Option("--models", help=f"Separated by commas, of {_NAMES}.", show_default=False)
    ] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Of the cross-validation.")] = 5,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Of the cross-validation.")] = 1,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Fits at a time.")] = 1,
    by: Annotated[str, typer.Option("--by", help=f"Score to rank by: {', '.join(METRICS)}.")] = "accuracy",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for comparison.csv and comparison.md.")
    ] = None,
    drop: Drop = None,
    categorical: Categorical = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="Rounds or epochs at most, but not of LightGBM.")
    ] = None,
    size: Size = 32,
    grey: Grey = False,
    seed: Seed = 0,
    skip_missing: SkipMissing = False,
) -> None:
    """Compare models on the same folds of a table, and tell differences from noise."""
    with _exit_on_error():
        from usboost.multimodal import results
        from usboost.multimodal.compare import compare as compare_models
        from usboost.multimodal.models import build as build_model

        names = _names(models, pictures=image is not None)
        for name in names:
            zoo.for_table(name)
        if by not in METRICS:
            raise UsboostError(f"there is no score {by!r}; choose among {', '.join(METRICS)}")
        if out is not None and out.exists() and not out.is_dir():
            raise UsboostError(f"{out} is a file; name a folder for the comparison")
        own = _read(table, label, image, drop, categorical, size, grey, skip_missing)

        def build(name: str) -> Any:
            most = rounds if KINDS[zoo.find(name).kind].comparable else None
            return lambda seed: build_model(name, pictures=image is not None, seed=seed, rounds=most)

        with _progress("comparing") as progress:
            comparison = compare_models(
                own,
                {name: build(name) for name in names},
                folds=folds,
                repeats=repeats,
                seed=seed,
                jobs=jobs,
                by=by,
                progress=progress,
            )
        console = _console()
        console.print(results.rendered(comparison, console.width))
        if out is not None:
            results.write(comparison, out, f"{table.name}: {label}")
            _say(f"written {out / 'comparison.csv'} and {out / 'comparison.md'}")
        if len(comparison.failures) == len(names):
            raise UsboostError("every model failed; the table above says why")


@app.command()
def predict(
    model: ModelPath,
    table: TablePath,
    out: Annotated[Path, typer.Option("--out", help="A .parquet or .csv file to write.")],
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Column of the table to copy; repeatable.")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows in memory at a time.")] = 4096,
    skip_missing: Annotated[
        bool,
        typer.Option("--skip-missing", help="A row without a picture gets no label, instead of an error."),
    ] = False,
) -> None:
    """Write each row's label and class probabilities; the table may have any size."""
    with _exit_on_error():
        from usboost.multimodal import bundle
        from usboost.multimodal.predict import predict as predict_table

        loaded = bundle.load(model)
        with _progress("predicting") as progress:
            done = predict_table(
                loaded, table, out, batch=batch, keep=keep or (), skip_missing=skip_missing, progress=progress
            )
        if done.ignored:
            _note(f"the model does not know, and did not read, {', '.join(done.ignored)}")
        if done.skipped:
            _note(f"{done.skipped:,} rows without a picture have no label")
        _say(f"written {out}: {done.rows:,} rows")


@app.command()
def report(
    model: ModelPath,
    table: TablePath,
    out: Annotated[Path, typer.Option("--out", help="An .html file to write.")],
    label: Annotated[
        str | None,
        typer.Option("--label", help="Column of the classes; else that of the model.", show_default=False),
    ] = None,
    skip_missing: SkipMissing = False,
) -> None:
    """Score a model on labelled rows it has not seen, and write one page about it."""
    with _exit_on_error():
        from usboost.multimodal import bundle
        from usboost.multimodal.report import write_report

        loaded = bundle.load(model)
        with _progress("scoring") as progress:
            scored = write_report(
                loaded, table, out, label=label, skip_missing=skip_missing, progress=progress
            )
        if scored.skipped:
            _note(f"{scored.skipped:,} rows without a picture are left out")
        _say(f"written {out}: {len(scored):,} rows")


@contextmanager
def _exit_on_error() -> Iterator[None]:
    """A person's mistake is one sentence and exit code 1, an interruption 130."""
    try:
        yield
    except UsboostError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("interrupted; nothing already on disk was changed", err=True)
        raise typer.Exit(130) from None


def _read(
    table: Path,
    label: str,
    image: str | None,
    drop: list[str] | None,
    categorical: list[str] | None,
    size: int,
    grey: bool,
    skip_missing: bool,
) -> OwnTable:
    from usboost.datasets.custom.table import read_own

    with _progress("reading pictures") as progress:
        own = read_own(
            table,
            label=label,
            image=image,
            drop=drop or (),
            categorical=categorical or (),
            size=size,
            channels=1 if grey else 3,
            skip_missing=skip_missing,
            progress=progress,
        )
    if own.skipped:
        _note(f"{own.skipped:,} rows without a picture are left out")
    return own


def _names(models: str | None, *, pictures: bool) -> list[str]:
    if models is not None:
        names = [name.strip() for name in models.split(",") if name.strip()]
        if not names:
            raise UsboostError(f"--models names no model; choose among {_NAMES}")
        return list(dict.fromkeys(names))
    return zoo.compared(one_table=not pictures)


@contextmanager
def _progress(what: str) -> Iterator[Progress]:
    """A bar on stderr for as long as the block runs, on a terminal; it vanishes at the end."""
    from rich.progress import Progress as Bars

    console = _console(err=True)
    with Bars(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=None)

        def show(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total or None)

        yield show


def _console(err: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=err, highlight=False)
    # a file or pipe has no width that lines would have to fit
    return console if console.is_terminal else Console(stderr=err, highlight=False, width=200)


def _say(text: str) -> None:
    typer.echo(text)


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)

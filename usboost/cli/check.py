"""``usboost check``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from usboost.cli import options, tables
from usboost.cli.console import as_flag, echo, exit_on_error, fitting
from usboost.errors import rewrite_options
from usboost.fit.options import ImageOptions
from usboost.table.spec import TableSpec


def check(
    table: options.TablePath,
    spec: TableSpec,
    backbone: options.NameOfBackbone = ImageOptions.backbone,
    out: Annotated[
        Path | None, typer.Option("--out", help="An .html file: each finding with six examples.")
    ] = None,
) -> None:
    """Check a table before a model is fitted: does it make scores better than those of new rows?

    Near-equal images and rows, rows that SMOTE made, groups nobody named, columns and files that give the
    label away, labels that look wrong. A quick model says what each of these changes. No row is changed.
    """
    with exit_on_error():
        ImageOptions(backbone).check(spec)
        if out is not None:
            options.check_out(out, file=True)
        own = tables.read(table, spec)
        # imported late, so that mistakes are reported without loading torch
        from usboost.check import FEWEST, check_table, embeddings_of
        from usboost.learners.networks.backbones import Backbone
        from usboost.report import blocks
        from usboost.report.check_page import write_check

        if out is not None:
            blocks.check_out(out)
        with fitting("checking") as show:
            findings = check_table(own, embeddings_of(own, Backbone(backbone)), progress=show)
        for each in findings:
            echo(str(each))
        if len(own) < FEWEST:
            echo(f"{len(own)} rows are too few: nothing can be said of fewer than {FEWEST}")
        elif not findings:
            echo("nothing was found that makes scores better than those of new rows")
        if out is not None:
            advised = [replace(each, advice=rewrite_options(each.advice, as_flag)) for each in findings]
            write_check(own, advised, out)
            echo(f"written {out}")

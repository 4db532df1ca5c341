"""Fit one model to the rows of many Parquet files, in many processes: the ranks of torchrun."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from flows.local import runtime

runtime.configure()

import typer  # noqa: E402
from pydantic import Field  # noqa: E402

from flows.flow import flow  # noqa: E402
from tasks.ranks import Ranks, fit_in_ranks  # noqa: E402

Count = Annotated[int, Field(ge=1)]


@flow(name="fit-sharded", flow_run_name="fit-sharded-{label}")
def fit_sharded(
    table: str,
    label: str,
    out: str = "model",
    ranks: Count = 2,
    shards: Count = 8,
    options: Sequence[str] = (),
    nodes: Count = 1,
    node: Annotated[int, Field(ge=0)] = 0,
    meet: str = "",
) -> str:
    """Fit one model in many processes, `usboost fit` under torchrun; the id of its MLflow run.

    The same model comes of any number of processes. Run again after a failure, also with another number of
    them, it goes on from its last round. Of several machines each has a flow run, with a node of its own.

    Args:
        table: Parquet files of rows, as a pattern or a folder, e.g. rows/*.parquet
        label: column to predict
        out: folder for the model, on machine 0
        ranks: processes of each machine
        shards: parts of the rows that the processes share; the model depends on their number
        options: further options of usboost fit, e.g. --model, 2wl_newton
        nodes: machines
        node: number of this machine, from 0
        meet: host:port of machine 0, where several machines meet
    """
    program = ["-m", "usboost", "fit", table, "--label", label, "--out", out, f"--shards={shards}", *options]
    told = {"table": table, "label": label, "shards": shards, "options": " ".join(options)}
    where = Ranks(ranks, nodes, node, meet)
    return runtime.finished(str(fit_in_ranks(program, Path(out), where, told)))


def main(
    table: Annotated[str, typer.Argument(help="Parquet files of rows, e.g. 'rows/*.parquet'")],
    label: Annotated[str, typer.Option(help="column to predict")],
    out: Annotated[str, typer.Option(help="folder for the model, on machine 0")] = "model",
    ranks: Annotated[int, typer.Option(min=1, help="processes of each machine")] = 2,
    shards: Annotated[int, typer.Option(min=1, help="parts of the rows that the processes share")] = 8,
    option: Annotated[
        list[str] | None, typer.Option(help="a further option of usboost fit, as --rounds=20; repeatable")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="machines")] = 1,
    node: Annotated[int, typer.Option(min=0, help="number of this machine, from 0")] = 0,
    meet: Annotated[str, typer.Option(help="host:port of machine 0, where several machines meet")] = "",
) -> None:
    """Fit one model in many processes, and log it to MLflow."""
    runtime.run(lambda: fit_sharded(table, label, out, ranks, shards, option or (), nodes, node, meet))


if __name__ == "__main__":
    typer.run(main)

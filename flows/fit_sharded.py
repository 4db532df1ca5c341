"""Fit one model to the rows of many Parquet files, in many processes: the ranks of torchrun."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from flows.flow import command, flow
from flows.local import runtime
from tasks.ranks import fit_in_ranks, torchrun

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
    """Fit one model in many processes, `usboost fit` under torchrun; return the id of its MLflow run.

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
    parameters = {"table": table, "label": label, "shards": shards, "options": " ".join(options)}
    parameters |= {"ranks": ranks * nodes, "machines": nodes}
    words = torchrun(program, ranks, nodes, node, meet)
    return runtime.finished(str(fit_in_ranks(words, Path(out), node, parameters)))


app = command(__name__, fit_sharded, options=["label"])

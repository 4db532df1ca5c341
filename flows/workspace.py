"""Workspaces: folders with their own params.yaml, data and reports, run by the same code.

The checkout is one (the demo). `make paper` makes another, so that real results never mix with demo
ones and no tracked file changes.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from flows import runtime
from usboost import settings as params
from usboost.errors import UsboostError
from usboost.files import write_atomically

ROOT = Path(__file__).resolve().parent.parent

app = typer.Typer(help="Make a workspace, or say where its results are.", no_args_is_help=True)


def make(
    folder: Path,
    *,
    profile: str,
    datasets: list[str] | None = None,
    rounds: int | None = None,
    seeds: int | None = None,
) -> Path:
    """Make or update a workspace: the checkout's dvc.yaml, its params.yaml with these changes.

    Parameters
    ----------
    rounds : at most this many boosting rounds
    seeds : number of seeds

    Raises
    ------
    UsboostError
        If the changes do not make valid settings.
    """
    document: dict[str, Any] = yaml.safe_load((ROOT / "params.yaml").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    document["profile"] = profile
    document["code"] = os.path.relpath(ROOT, folder.resolve())
    if profile not in document["profiles"]:
        raise UsboostError(
            f"params.yaml has no profile {profile!r}; it has {', '.join(document['profiles'])}"
        )
    sizes = document["profiles"][profile]
    if datasets:
        document["run"]["datasets"] = datasets
    if profile == "paper" and "ci_a" in document["run"]["datasets"]:
        document["run"]["further"]["ci_a-bnn"] = {"dataset": "ci_a", "model": "bnn"}
    if rounds:
        sizes["boosting"]["rounds"] = rounds
    if seeds:
        sizes["seeds"] = seeds
    params.parse(document, folder / "params.yaml")
    if not (folder / ".dvc").exists():
        for words in (
            ["init", "--quiet", "--no-scm"],
            ["config", "core.analytics", "false"],
            ["config", "core.check_update", "false"],
        ):
            subprocess.run(["dvc", *words], cwd=folder, check=True)
    write_atomically(folder / "dvc.yaml", (ROOT / "dvc.yaml").read_bytes())
    write_atomically(folder / ".dvcignore", (ROOT / ".dvcignore").read_bytes())
    write_atomically(folder / "params.yaml", yaml.safe_dump(document, sort_keys=False).encode())
    return folder


@app.command("make")
def make_command(
    folder: Annotated[Path, typer.Argument(help="folder of the workspace")],
    profile: Annotated[str, typer.Option(help="demo or paper")] = "paper",
    dataset: Annotated[list[str] | None, typer.Option(help="a dataset to run; may be repeated")] = None,
    rounds: Annotated[int | None, typer.Option(help="at most this many boosting rounds")] = None,
    seeds: Annotated[int | None, typer.Option(help="number of seeds")] = None,
) -> None:
    """Make or update a workspace from the checkout's params.yaml and dvc.yaml."""
    runtime.told(lambda: make(folder, profile=profile, datasets=dataset, rounds=rounds, seeds=seeds))


@app.command()
def where() -> None:
    """Say where this workspace's report is and how to open the UIs."""
    print(f"report   {Path('reports/index.html').resolve()}")
    print(f"scores   {Path('reports/results.csv').resolve()}")
    print("make ui  opens MLflow (runs, curves, models) and Prefect (flow runs) on loopback")


if __name__ == "__main__":
    app()

"""Write the digest of the code that a stage of dvc.yaml runs: data/code/<stage>."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.local import runtime
from tasks.stages import digest_of
from usboost.files import write_atomically


def write(stage: str, code: Path) -> None:
    """Write the digest of a stage's code.

    Parameters
    ----------
    code : the checkout

    Raises
    ------
    UsboostError
        If there is no such stage.
    """
    folder = Path("data/code")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / stage, f"{digest_of(stage, code.resolve())}\n".encode())


def main(
    stage: Annotated[str, typer.Argument(help="a stage, e.g. boosting")],
    code: Annotated[Path, typer.Argument(help="the checkout")] = Path(),
) -> None:
    """Write the digest of the code that a stage runs; data/code/<stage>."""
    runtime.exit_on_error(lambda: write(stage, code))


if __name__ == "__main__":
    typer.run(main)

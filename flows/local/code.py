"""Write the digest of code that stages of dvc.yaml run: data/code/<name>."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.local import runtime
from tasks.stages import digest_of
from usboost.files import write_atomically


def write(name: str, code: Path) -> None:
    """Write the digest of the files of a stage ``code_<name>``.

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
    write_atomically(folder / name, f"{digest_of(name, code.resolve())}\n".encode())


def main(
    name: Annotated[str, typer.Argument(help="of a stage code_…, e.g. boosting")],
    code: Annotated[Path, typer.Argument(help="the checkout")] = Path(),
) -> None:
    """Write the digest of code that stages run; data/code/<name>."""
    runtime.exit_on_error(lambda: write(name, code))


if __name__ == "__main__":
    typer.run(main)

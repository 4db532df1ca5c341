"""Say which stages' lists of code in dvc.yaml are out of date, or bring them up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.local import runtime
from tasks.stages import ROOT, lists, with_code
from usboost.errors import UsboostError
from usboost.files import write_atomically


def update(write: bool) -> None:
    """Compare dvc.yaml with what its stages run; `write` changes it.

    Raises
    ------
    UsboostError
        If they differ and it is not to be written.
    """
    path = ROOT / "dvc.yaml"
    found = path.read_text()
    wanted = with_code(found, lists())
    if found == wanted:
        print("dvc.yaml is up to date")
    elif write:
        write_atomically(path, wanted.encode())
        print("dvc.yaml written")
    else:
        raise UsboostError(
            "the stages in dvc.yaml do not depend on the code that they run; "
            "run `python -m flows.local.stages --write`"
        )


def main(
    write: Annotated[bool, typer.Option("--write", help="bring dvc.yaml up to date")] = False,
) -> None:
    """Say whether the stages in dvc.yaml depend on all the code that they run and on no other."""
    runtime.exit_on_error(lambda: update(write))


if __name__ == "__main__":
    typer.run(main)

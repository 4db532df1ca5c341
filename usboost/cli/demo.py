"""``usboost demo``."""

from pathlib import Path
from typing import Annotated

import typer

from usboost.cli.console import echo, echo_command, exit_on_error
from usboost.errors import UsboostError


def demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write into.")] = Path("parts"),
) -> None:
    """Draw a small table with images, to try the other commands on.

    300 machine parts of three batches, which show in the image, and a little in weight, hardness, colour.
    """
    with exit_on_error():
        # imported late, so that mistakes are reported at once
        from usboost.table.demo import IMAGE, LABEL, TABLE, write_demo

        table = folder / TABLE
        if there := next((each for each in (table, folder / "images") if each.exists()), None):
            raise UsboostError(f"{there} is there already; give another folder")
        try:
            write_demo(folder, rows_train=200, rows_test=50, seed=0, split=False)
        except OSError as error:
            raise UsboostError(f"{folder} cannot be written: {error.strerror}; give another folder") from None
        echo(f"written {table}, 300 rows, and their images in {folder / 'images'}")
        echo_command("Next:", f"usboost fit {table} --label {LABEL} --image {IMAGE}")

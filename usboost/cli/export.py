"""``usboost export``: a saved model as one ONNX file that needs none of this."""

from pathlib import Path
from typing import Annotated

import typer

from usboost.cli import options
from usboost.cli.console import echo, exit_on_error
from usboost.files.registry import import_parts


def export(
    model: options.ModelPath,
    out: Annotated[Path, typer.Option("--out", help="A folder to write.")],
    imports: options.Import = None,
) -> None:
    """Write the model as an ONNX file, with a script and a page that ask it without usboost."""
    with exit_on_error():
        import_parts(imports or (), Path())
        from usboost.export.folder import digest_of_folder
        from usboost.export.folder import export as write
        from usboost.fit import bundle

        size = write(bundle.load(model), out, digest_of_folder(model))
        echo(f"written {out}: model.onnx of {size / 1e6:,.1f} MB, card.json, predict.py, index.html")

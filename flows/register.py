"""Register a model that `usboost fit` saved, so that MLflow shows and serves it."""

from pathlib import Path
from typing import Annotated

from flows.local import runtime

runtime.configure()

import typer  # noqa: E402

from tasks.registered_models import register  # noqa: E402


def main(
    model: Annotated[Path, typer.Argument(help="folder that `usboost fit` saved")],
    name: Annotated[str, typer.Option(help="of the registered model")],
) -> None:
    """Log the model, register it under a name, give it the alias champion; prints what to serve."""
    with runtime.exit_on_error():
        print(register(model, name))


if __name__ == "__main__":
    typer.run(main)

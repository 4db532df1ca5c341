"""The pages of both servers on loopback until interrupted: MLflow's runs and Prefect's flow runs."""

from __future__ import annotations

import os
import signal
import time
from typing import Annotated

import typer

from flows.local import runtime, services
from usboost.errors import UsboostError


def main(
    mlflow_port: Annotated[
        int, typer.Option(help="port of MLflow's page; 0: any free one", envvar="USBOOST_MLFLOW_PORT")
    ] = 5000,
) -> None:
    """Open MLflow's and Prefect's pages on 127.0.0.1 until Ctrl-C, or say where those of the services are."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: nothing of ours keeps running
        signal.signal(number, signal.default_int_handler)
    runtime.exit_on_error(lambda: serve(mlflow_port))


def serve(port: int) -> None:
    """Start what does not run, show both addresses, and end what was started here."""
    store = os.environ["MLFLOW_TRACKING_URI"]
    open_already = runtime.address("ui")  # by another `make ui`
    mine = [] if runtime.process("prefect") else ["prefect"]
    mine += [] if open_already or store.startswith("http") else ["ui"]
    try:
        if "ui" in mine:
            services.say("starting MLflow's server …")
            services.start_mlflow("ui", port, store)
        prefect = runtime.prefect_server()
        if "ui" in mine:
            runtime.wait_for("ui")
            open_already = runtime.kept("ui")["url"]
        services.say(f"MLflow   {services.page(open_already or store)}")
        services.say(f"Prefect  {prefect.removesuffix('/api')}")
        mine = [name for name in mine if runtime.process(name)]
        if mine:
            services.say("Ctrl-C ends what was started here; deployments need `make services`")
        while mine:
            time.sleep(1)
            if gone := [name for name in mine if not runtime.process(name)]:
                raise UsboostError(f"the server has ended; see {runtime.log_of(gone[0])}")
    except KeyboardInterrupt:
        services.say("\nended")
    finally:
        runtime.end(services.members(*mine) if mine else [])


if __name__ == "__main__":
    typer.run(main)

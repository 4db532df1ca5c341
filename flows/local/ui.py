"""Both UIs on loopback until interrupted: MLflow's runs and Prefect's flow runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Annotated

import typer

from flows.local import runtime
from tasks import settings as params

runtime.configure()


def main(
    mlflow_port: Annotated[int, typer.Option(help="port of MLflow's UI; 0 for any free one")] = 5000,
) -> None:
    """Open MLflow's and Prefect's UI on 127.0.0.1 until Ctrl-C, or say where those of the services are."""
    port = mlflow_port or runtime.free_port()
    store = os.environ["MLFLOW_TRACKING_URI"]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store]
    command += ["--host", "127.0.0.1", "--port", str(port)]

    def serve() -> None:
        if servers := runtime.services():
            from tasks.tracking import first_page

            print("the services run; their pages are these")
            print(f"MLflow   {servers['mlflow']}/{first_page(servers['mlflow'], params.load().profile)}")
            print(f"Prefect  {servers['prefect'].removesuffix('/api')}")
            return
        with runtime.prefect_api():
            from prefect.settings import PREFECT_API_URL

            from tasks.tracking import first_page  # here, because MLflow takes seconds to import

            page = first_page(store, params.load().profile)  # before the server, which makes the store too
            server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            print(f"MLflow   http://127.0.0.1:{port}/{page}")
            print(f"Prefect  {str(PREFECT_API_URL.value()).removesuffix('/api')}")
            print("Ctrl-C ends both")
            try:
                while server.poll() is None:
                    time.sleep(1)
            finally:
                server.terminate()

    runtime.exit_on_error(serve)


if __name__ == "__main__":
    typer.run(main)

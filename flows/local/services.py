"""The services on loopback: Prefect's and MLflow's servers, and a worker for each work pool.

They outlive the terminal; `stop` ends them. What they keep is what flows keep without them: the databases and
artifacts of $USBOOST_HOME.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated

import psutil
import typer

from flows.local import access, runtime
from tasks import settings as params
from usboost.errors import UsboostError

runtime.configure()

POOLS = ("cpu", "gpu")
UPGRADE_AND_SERVE = '"$0" -m mlflow db upgrade "$1" && exec "$0" -m mlflow server --backend-store-uri "$@"'

app = typer.Typer(help=__doc__, no_args_is_help=True)
say = partial(print, flush=True)


def start_mlflow(name: str, port: int, store: str, *words: str, **environment: str) -> None:
    """Start MLflow's server, not waited for; its log, and where it is, go by `name`.

    Raises `UsboostError` if the port is taken.
    """
    port = runtime.claim(port, "MLflow's server", "--mlflow-port")
    words = (store, "--host", "127.0.0.1", "--port", str(port), "--workers", "1", *words)
    command = ["sh", "-c", UPGRADE_AND_SERVE, sys.executable, *words]
    runtime.detach(name, command, environment, url=f"http://127.0.0.1:{port}")


def page(url: str) -> str:
    """Where to begin in MLflow."""
    from tasks.tracking import first_page  # here, because MLflow takes seconds to import

    return f"{url}/{first_page(url, params.load().profile)}"


def of_clients() -> dict[str, str]:
    """The environment of workers, and of Prefect's commands: both servers, and where the code is."""
    given = {
        "PREFECT_API_URL": runtime.kept("prefect")["url"],
        "MLFLOW_TRACKING_URI": runtime.kept("mlflow")["url"],
    }
    return given if "USBOOST_REPOSITORY" in os.environ else {**given, "USBOOST_CODE": str(Path.cwd())}


def call_prefect(*words: str) -> None:
    log = runtime.log_of("deploy")
    command = [sys.executable, "-m", "prefect", *words]
    with log.open("a") as output:
        done = subprocess.run(command, env={**os.environ, **of_clients()}, stdout=output, stderr=output)
    if done.returncode:
        raise UsboostError(f"`prefect {' '.join(words)}` failed; see {log}")


def worker_command(pool: str, name: str) -> list[str]:
    if pool not in POOLS:
        raise UsboostError(f"there is no work pool {pool!r}; choose among {', '.join(POOLS)}")
    limit = ["--limit", str(params.load().fits.gpu_slots)] if pool == "gpu" else []
    words = ["worker", "start", "--pool", pool, "--name", name, "--type", "process", *limit]
    return [sys.executable, "-m", "prefect", *words]


def workers() -> list[str]:
    """Names of the workers that `start` has started, <pool>-<number>."""
    return sorted(path.stem for pool in POOLS for path in runtime.services().glob(f"{pool}-*.json"))


def is_online(worker: str) -> bool:
    """Whether Prefect's server has heard of the worker lately."""
    url = f"{runtime.kept('prefect')['url']}/work_pools/{worker.rpartition('-')[0]}/workers/filter"
    headers = {"Content-Type": "application/json", **access.of_client()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=5) as reply:
            return any(each["name"] == worker and each["status"] == "ONLINE" for each in json.load(reply))
    except OSError:
        return False


def members(*names: str) -> list[psutil.Process]:
    """These detached processes and what they started; without a name all, flow runs of a dead worker, too."""
    if names:
        found = [process for name in names if (process := runtime.process(name))]
        return [each for process in found for each in (process, *process.children(recursive=True))]
    own = {os.getpid(), *psutil.Process().parents()}
    return [each for each in psutil.process_iter() if each not in own and runtime.is_ours(each)]


def end_all(but: list[psutil.Process]) -> int:
    """End all members but these, workers and their flow runs before the servers that they report to."""
    ended = 0
    for spared in ([*members("prefect", "mlflow"), *but], but):
        for _ in range(5):  # some start meanwhile
            left = [each for each in members() if each not in spared]
            ended += len(left)
            runtime.end(left)
    for name in ("mlflow", "ui", *workers()):
        runtime.keep(name, None)
    if not but and (known := runtime.kept("prefect")):
        runtime.keep("prefect", {"url": known["url"]})  # whose port the next one takes
    return ended


@app.command()
def start(
    prefect_port: Annotated[
        int | None,
        typer.Option(help="port of Prefect's server; 0: any free one; default: the one that it had, or 4200"),
    ] = None,
    mlflow_port: Annotated[
        int, typer.Option(help="port of MLflow's server; 0: any free one", envvar="USBOOST_MLFLOW_PORT")
    ] = 5000,
    worker: Annotated[
        list[str] | None, typer.Option(help="pool of a worker; may be repeated; default: one per pool")
    ] = None,
    prefect_db: Annotated[
        str | None, typer.Option(help="Prefect's database, e.g. postgresql+asyncpg://…; default: the home's")
    ] = None,
    mlflow_db: Annotated[
        str | None, typer.Option(help="MLflow's database, e.g. postgresql+psycopg2://…; default: the home's")
    ] = None,
    artifacts: Annotated[
        str | None,
        typer.Option(
            help="where MLflow's server keeps artifacts for clients elsewhere, e.g. s3://bucket/path"
        ),
    ] = None,
    auth: Annotated[
        bool, typer.Option("--auth", help="both servers ask for a password; see docs/team.md")
    ] = False,
) -> None:
    """Start the servers and workers, deploy prefect.yaml, and say where the pages are.

    If a part does not start, nothing keeps running but a Prefect server that did before.
    """
    named = {f"{pool}-{number}": pool for number, pool in enumerate(worker or POOLS, start=1)}
    words = ["--app-name", "basic-auth"] if auth else []
    if artifacts:
        words += ["--serve-artifacts", "--artifacts-destination", artifacts]
    else:  # where flows keep them without a server, too
        root = runtime.home() / "mlartifacts"
        words += ["--no-serve-artifacts", "--default-artifact-root", root.as_uri()]

    def up() -> None:
        check_startable()
        commands = {name: worker_command(pool, name) for name, pool in named.items()}
        options = access.of_servers(runtime.services()) if auth else {}
        before = members("prefect")  # flows may be using it
        end_all(but=before)  # what a crash left
        try:
            say("starting MLflow's server …")
            start_mlflow("mlflow", mlflow_port, mlflow_db or runtime.mlflow_store(), *words, **options)
            if prefect_db:
                options["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = prefect_db
            runtime.prefect_server(prefect_port, options)
            runtime.wait_for("mlflow")
            if auth:
                access.check(runtime.kept("mlflow")["url"], runtime.services())
            say("starting the workers …")
            for name, command in commands.items():  # each makes its work pool, unless it is there
                runtime.detach(name, command, of_clients())
            for name in commands:
                runtime.wait_for(name, partial(is_online, name))
            say("deploying prefect.yaml …")
            for pool in set(POOLS) - set(named.values()):
                call_prefect("work-pool", "create", pool, "--type", "process", "--overwrite")
            call_prefect("--no-prompt", "deploy", "--all")
        except BaseException:
            end_all(but=before)
            raise

    def work() -> None:
        with alone():
            up()
        say_where()

    runtime.exit_on_error(work)


def check_startable() -> None:
    """Raises UsboostError if the services run already, or where they would find nothing to deploy."""
    if any(runtime.process(name) for name in ("mlflow", *workers())):
        raise UsboostError(f"the services of {runtime.home()} run already; `make services-stop` ends them")
    if not Path("prefect.yaml").is_file():
        raise UsboostError("prefect.yaml is not in this folder; start the services where it is")


def say_where() -> None:
    """Print where the pages are, and how to run and stop what has started."""
    prefect = runtime.kept("prefect")["url"]
    print(f"Prefect  {prefect.removesuffix('/api')}")
    print(f"MLflow   {page(runtime.kept('mlflow')['url'])}")
    print(f"workers  {', '.join(workers())}")
    print("to run   Prefect's page, Deployments, or its own command, whose `deployment ls` lists them:")
    print(f"         PREFECT_API_URL={prefect} prefect deployment run <name> --watch")
    print("to stop  make services-stop")


def alone() -> AbstractContextManager[None]:
    return runtime.alone(
        runtime.services() / "lock",
        f"another command starts or stops the services of {runtime.home()}; wait for it",
    )


@app.command()
def prefect() -> None:
    """Start Prefect's server unless it runs, as the first flow would: `make run` does it meanwhile."""
    runtime.exit_on_error(runtime.prefect_server)


@app.command()
def stop() -> None:
    """End everything, also after a crash; harmless when nothing runs."""

    def work() -> None:
        with alone():
            print(f"{end_all(but=[])} processes ended")

    runtime.exit_on_error(work)


@app.command()
def status() -> None:
    """Say what answers; exit code 1 unless both servers and every worker that was started do."""
    if not runtime.kept("mlflow"):
        print("no services run here")
        raise SystemExit(1)
    if access.SERVER in runtime.kept("prefect").get("options", []):
        runtime.exit_on_error(access.given)
    checks = {name: bool(runtime.address(name)) for name in ("prefect", "mlflow")}
    checks |= {name: bool(runtime.process(name)) and is_online(name) for name in workers()}
    for name, fine in checks.items():
        print(f"{name:<9}{runtime.kept(name).get('url', '')}  {'answers' if fine else 'does not answer'}")
    raise SystemExit(not all(checks.values()))


@app.command()
def worker(
    pool: Annotated[str, typer.Argument(help="cpu or gpu")],
    name: Annotated[str, typer.Option(help="name of the worker, unlike any other's")],
) -> None:
    """Run one more worker against the running services, until Ctrl-C."""

    def work() -> None:
        if not runtime.address("prefect") or not runtime.address("mlflow"):
            raise UsboostError("no services run here; start them with `make services`")
        command = worker_command(pool, name)
        os.execve(sys.executable, command, runtime.environment(of_clients()))

    runtime.exit_on_error(work)


if __name__ == "__main__":
    app()

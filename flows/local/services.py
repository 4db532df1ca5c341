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
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.local import access, runtime, stack
from tasks import settings as params
from usboost.errors import UsboostError

runtime.configure()

POOLS = ("cpu", "gpu")

app = typer.Typer(help=__doc__, no_args_is_help=True)


def _alone() -> AbstractContextManager[None]:
    """One start or stop of this home at a time."""
    busy = f"another command starts or stops the services of {runtime.home()}; wait for it"
    return runtime.alone(stack.folder() / "lock", busy)


def up(
    prefect_port: int | None,
    mlflow_port: int,
    workers: list[str],
    prefect_db: str | None = None,
    mlflow_db: str | None = None,
    artifacts: str | None = None,
    auth: bool = False,
) -> dict[str, Any]:
    """Start everything and wait until it answers; what is in ``services.json``.

    Raises
    ------
    UsboostError
        If the stack runs, a flow runs without it, a port is taken, a pool is unknown, a password is missing,
        or a part does not start. Nothing keeps running then.
    """
    with _alone():
        state = stack.read_state()
        if state and _running(state):
            raise UsboostError(
                f"the services of {runtime.home()} run already, Prefect at {state['prefect']}; "
                "`make services-stop` ends them"
            )
        if not Path("prefect.yaml").is_file():
            raise UsboostError("prefect.yaml is not in this folder; start the services where it is")
        if unknown := sorted(set(workers) - set(POOLS)):
            raise UsboostError(f"there is no work pool {unknown[0]!r}; choose among {', '.join(POOLS)}")
        slots = params.load().fits.gpu_slots
        stack.end_all()  # what a crash left
        runtime.end_server()
        if prefect_port is None:
            prefect_port = runtime.prefect_port()
        prefect_port = stack.claim(prefect_port, "Prefect's server", "--prefect-port")
        mlflow_port = stack.claim(mlflow_port, "MLflow's server", "--mlflow-port")
        state = {
            "prefect": f"http://127.0.0.1:{prefect_port}/api",
            "mlflow": f"http://127.0.0.1:{mlflow_port}",
            "code": str(Path.cwd()),
            "gpu_slots": slots,
            "auth": auth,
            "workers": [],
        }
        try:
            _start(state, prefect_db, mlflow_db, artifacts, access.of_servers(stack.folder()) if auth else {})
            if auth:
                access.check(state["mlflow"], stack.folder())
            _deploy(state)
            _start_workers(state, workers)
            stack.write_state(state)
            runtime.remember(state["prefect"])
        except BaseException:
            stack.end_all()
            raise
        return state


def _running(state: dict[str, Any]) -> bool:
    return stack.answers(f"{state['prefect']}/health") or stack.answers(f"{state['mlflow']}/health")


def _start(
    state: dict[str, Any],
    prefect_db: str | None,
    mlflow_db: str | None,
    artifacts: str | None,
    passwords: Mapping[str, str],
) -> None:
    """Start both servers and wait until they answer."""
    env = stack.environment(state["prefect"], state["mlflow"], state["code"], prefect_db)
    env.update(passwords)
    store = mlflow_db or runtime.mlflow_store()
    upgraded = subprocess.run(
        [sys.executable, "-m", "mlflow", "db", "upgrade", store], env=env, capture_output=True, text=True
    )
    if upgraded.returncode:
        (stack.folder() / "mlflow.log").write_text(upgraded.stdout + upgraded.stderr)
        raise UsboostError(f"MLflow's database could not be made; see {stack.folder() / 'mlflow.log'}")
    where = ["--host", "127.0.0.1", "--port"]
    port = state["prefect"].removesuffix("/api").split(":")[-1]
    command = [sys.executable, "-m", "prefect", "server", "start", *where, port]
    prefect = stack.spawn(command, "prefect.log", env, state["code"])
    port = state["mlflow"].split(":")[-1]
    command = [sys.executable, "-m", "mlflow", "server", *where, port, "--workers", "1"]
    command += ["--backend-store-uri", store]
    if artifacts:
        command += ["--serve-artifacts", "--artifacts-destination", artifacts]
    else:  # where flows keep them without a server, too
        command += ["--no-serve-artifacts", "--default-artifact-root"]
        command += [(runtime.home() / "mlartifacts").as_uri()]
    command += ["--app-name", "basic-auth"] if passwords else []
    mlflow = stack.spawn(command, "mlflow.log", env, state["code"])
    stack.wait_for(
        lambda: stack.answers(f"{state['prefect']}/health"), prefect, "Prefect's server", "prefect.log"
    )
    stack.wait_for(
        lambda: stack.answers(f"{state['mlflow']}/health"), mlflow, "MLflow's server", "mlflow.log"
    )
    state["servers"] = [{"name": "prefect", "pid": prefect.pid}, {"name": "mlflow", "pid": mlflow.pid}]


def _deploy(state: dict[str, Any]) -> None:
    """Make the work pools and deploy what prefect.yaml names."""
    env = stack.environment(state["prefect"], state["mlflow"], state["code"])
    pools = [["work-pool", "create", pool, "--type", "process", "--overwrite"] for pool in POOLS]
    for words in [*pools, ["--no-prompt", "deploy", "--all"]]:
        done = subprocess.run(
            [sys.executable, "-m", "prefect", *words], env=env, capture_output=True, text=True
        )
        with (stack.folder() / "deploy.log").open("a") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode:
            raise UsboostError(f"`prefect {' '.join(words)}` failed; see {stack.folder() / 'deploy.log'}")


def _start_workers(state: dict[str, Any], pools: list[str]) -> None:
    env = stack.environment(state["prefect"], state["mlflow"], state["code"])
    started = []
    for number, pool in enumerate(pools, start=1):
        name = f"{pool}-{number}"
        process = stack.spawn(_worker_command(pool, name, state), f"worker-{name}.log", env, state["code"])
        state["workers"].append({"pool": pool, "name": name, "pid": process.pid})
        started.append((pool, name, process))
    for pool, name, process in started:
        stack.wait_for(
            lambda pool=pool, name=name: name in _online(state["prefect"], pool),  # type: ignore[misc]
            process,
            f"the worker {name}",
            f"worker-{name}.log",
        )


def _worker_command(pool: str, name: str, state: dict[str, Any]) -> list[str]:
    words = ["--pool", pool, "--name", name, "--type", "process"]
    limit = ["--limit", str(state["gpu_slots"])] if pool == "gpu" else []
    return [sys.executable, "-m", "prefect", "worker", "start", *words, *limit]


def _online(api: str, pool: str) -> set[str]:
    """Names of the workers of a pool with a recent heartbeat."""
    request = urllib.request.Request(
        f"{api}/work_pools/{pool}/workers/filter",
        b"{}",
        {"Content-Type": "application/json", **access.of_client()},
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return {worker["name"] for worker in json.load(reply) if worker["status"] == "ONLINE"}
    except OSError:
        return set()


def down() -> int:
    """End all that the stack started, whatever of it is left; how many processes there were."""
    with _alone():
        ended = stack.end_all()
        (runtime.home() / stack.STATE).unlink(missing_ok=True)
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
        bool, typer.Option("--auth", help="both servers ask for a password; see docs/deploy.md")
    ] = False,
) -> None:
    """Start the servers and workers, deploy prefect.yaml, and say where the UIs are."""

    def work() -> None:
        from tasks.tracking import first_page  # here, because MLflow takes seconds to import

        chosen = worker or list(POOLS)
        state = up(prefect_port, mlflow_port, chosen, prefect_db, mlflow_db, artifacts, auth)
        print(f"Prefect  {state['prefect'].removesuffix('/api')}")
        print(f"MLflow   {state['mlflow']}/{first_page(state['mlflow'], params.load().profile)}")
        print(f"workers  {', '.join(each['name'] for each in state['workers'])}")

    runtime.exit_on_error(work)


@app.command()
def stop() -> None:
    """End everything, also after a crash; harmless when nothing runs."""
    runtime.exit_on_error(lambda: print(f"{down()} processes ended"))


@app.command()
def status() -> None:
    """Say what answers; exit code 1 unless both servers and a worker of every pool do."""
    state = stack.read_state()
    if not state:
        print("no services run here")
        raise SystemExit(1)
    if state.get("auth"):
        runtime.exit_on_error(access.given)
    checks = {
        f"Prefect  {state['prefect'].removesuffix('/api')}": stack.answers(f"{state['prefect']}/health"),
        f"MLflow   {state['mlflow']}": stack.answers(f"{state['mlflow']}/health"),
    }
    for each in state["workers"]:
        checks[f"worker   {each['name']}"] = each["name"] in _online(state["prefect"], each["pool"])
    for what, fine in checks.items():
        print(f"{what}  {'answers' if fine else 'does not answer'}")
    raise SystemExit(not all(checks.values()))


@app.command()
def worker(
    pool: Annotated[str, typer.Argument(help="cpu or gpu")],
    name: Annotated[str, typer.Option(help="name of the worker, unlike any other's")],
) -> None:
    """Run one more worker against the running services, until Ctrl-C."""

    def work() -> None:
        state = stack.read_state()
        if not state or not _running(state):
            raise UsboostError("no services run here; start them with `make services`")
        if pool not in POOLS:
            raise UsboostError(f"unknown work pool {pool!r}; choose among {', '.join(POOLS)}")
        env = stack.environment(state["prefect"], state["mlflow"], state["code"])
        os.execve(sys.executable, _worker_command(pool, name, state), env)

    runtime.exit_on_error(work)


if __name__ == "__main__":
    app()

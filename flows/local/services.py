"""The services on loopback: Prefect's and MLflow's servers, and a worker for each work pool.

They outlive the terminal; `stop` ends them. What they keep is what flows keep without them: the databases and
artifacts of $USBOOST_HOME.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import typer

from flows.local import runtime, servers
from tasks import settings as params
from usboost.errors import UsboostError
from usboost.files import write_atomically

runtime.configure()

PREFECT = (sys.executable, "-m", "prefect")
WORKERS = ("cpu-1", "gpu-1")  # by name, one for each work pool
PASSWORDS = ("PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
SHORTEST = 12  # characters; MLflow takes no shorter password
AUTH = """[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{users}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
grant_default_workspace_access = false
"""

app = typer.Typer(help=__doc__, no_args_is_help=True)
tell = partial(print, flush=True)
MLFLOW_PORT = typer.Option(5000, help="port of MLflow's server; 0: any", envvar="USBOOST_MLFLOW_PORT")


def first_page(url: str) -> str:
    """Return where to begin in MLflow. Raises `UsboostError` if it refuses the environment's password."""
    from mlflow.exceptions import MlflowException

    from tasks import mlflow_runs  # here, because MLflow takes seconds to import

    try:
        return f"{url}/{mlflow_runs.first_page(url, params.load().profile)}"
    except MlflowException as error:
        raise UsboostError(
            f"MLflow's server refuses MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD "
            f"({error.error_code}); it keeps the password of its first start: give that, or delete "
            f"{servers.log_of('').parent / 'mlflow-users.db'}"
        ) from None


def is_online(prefect: str, worker: str) -> bool:
    """Return whether Prefect's server has heard of a worker lately."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: prefect}), get_client(sync_client=True) as client:
        try:
            workers = client.read_workers_for_work_pool(worker.rpartition("-")[0])
        except Exception:  # there is no such pool yet
            return False
    return any(each.name == worker and each.status == "ONLINE" for each in workers)


def passwords(folder: Path) -> dict[str, str]:
    """Return what both servers have in their environments to refuse who does not know the password.

    Raises `UsboostError` if the environment has no names and passwords that the servers take, or a package is
    missing.

    Parameters
    ----------
    folder : where MLflow keeps its users; no password is written there, but MLflow's hash of it.
    """
    if missing := [name for name in PASSWORDS if not os.environ.get(name)]:
        raise UsboostError(
            f"the services ask for a password, and {missing[0]} is not set in the environment; "
            "see docs/team.md"
        )
    prefect, user, password = (os.environ[name] for name in PASSWORDS)
    if ":" not in prefect or not prefect.isascii():
        raise UsboostError(f"{PASSWORDS[0]} is not of the form name:password, in ASCII")
    if len(password) < SHORTEST:
        raise UsboostError(f"{PASSWORDS[2]} is shorter than {SHORTEST} characters, MLflow's minimum")
    if find_spec("flask_wtf") is None:
        raise UsboostError("MLflow's server asks for a password with Flask-WTF; pip install 'usboost[auth]'")
    folder.chmod(0o700)  # of the hash, too, others on this machine need not know
    write_atomically(folder / "mlflow-auth.ini", AUTH.format(users=folder / "mlflow-users.db").encode())
    return {
        "PREFECT_SERVER_API_AUTH_STRING": prefect,
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "mlflow-auth.ini"),
        "MLFLOW_AUTH_ADMIN_USERNAME": user,
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(),
    }


def end_all(*but: str) -> int:
    """End all that is detached but these, workers and flow runs before the servers that they report to."""
    ended = 0
    for spared in (("prefect", "mlflow", *but), but):
        for _ in range(5):  # some start meanwhile
            ended += servers.end(process for name, process in servers.ours() if name not in spared)
    return ended


@app.command()
@runtime.exit_on_error()
def start(
    prefect_port: int | None = typer.Option(
        None, help="port of Prefect's server; 0: any free one; default: the one that it had, or 4200"
    ),
    mlflow_port: int = MLFLOW_PORT,
    artifacts: str | None = typer.Option(
        None, help="where MLflow's server keeps artifacts for clients elsewhere, e.g. s3://bucket/path"
    ),
    auth: bool = typer.Option(False, "--auth", help="both servers ask for a password; see docs/team.md"),
) -> None:
    """Start the servers and workers, deploy prefect.yaml, and say where the pages are.

    Databases are the home's, or those of PREFECT_SERVER_DATABASE_CONNECTION_URL and MLFLOW_BACKEND_STORE_URI.
    If a part does not start, nothing keeps running but a Prefect server that did before.
    """
    words = ["--app-name", "basic-auth"] if auth else []
    if artifacts:
        words += ["--serve-artifacts", "--artifacts-destination", artifacts]
    else:  # where flows keep them without a server, too
        root = servers.home() / "mlartifacts"
        words += ["--no-serve-artifacts", "--default-artifact-root", root.as_uri()]

    with alone():
        known = servers.running()
        if "mlflow" in known or any(name in known for name in WORKERS):
            raise UsboostError(f"services of {servers.home()} run already; `make services-stop` ends them")
        if not Path("prefect.yaml").is_file():
            raise UsboostError("prefect.yaml is not in this folder; start the services where it is")
        options = passwords(servers.log_of("").parent) if auth else {}
        before = ["prefect"] * ("prefect" in known)  # flows may be using it
        end_all(*before)  # what a crash left
        try:
            tell("starting MLflow's server …")
            store = os.environ.get("MLFLOW_BACKEND_STORE_URI") or servers.mlflow_store()
            servers.start_mlflow("mlflow", mlflow_port, store, *words, **options)
            prefect, mlflow = servers.prefect_server(prefect_port, options), servers.wait_for("mlflow")
            page = first_page(mlflow)
            # of workers, and of Prefect's commands: both servers, and where the code is
            own = {"PREFECT_API_URL": prefect, "MLFLOW_TRACKING_URI": mlflow}
            if "USBOOST_REPOSITORY" not in os.environ:
                own["USBOOST_CODE"] = str(Path.cwd())
            tell("starting the workers …")
            for name in WORKERS:  # each makes its work pool, unless it is there
                pool = name.rpartition("-")[0]
                limit = ["--limit", str(params.load().fits.gpu_slots)] if pool == "gpu" else []
                worker = ["worker", "start", "--pool", pool, "--name", name, "--type", "process", *limit]
                servers.detach(name, [*PREFECT, *worker], own)
            for name in WORKERS:
                servers.wait_for(name, partial(is_online, prefect, name))
            tell("deploying prefect.yaml …")
            with servers.log_of("deploy").open("a") as log:
                deploy = [*PREFECT, "--no-prompt", "deploy", "--all"]
                if subprocess.run(deploy, env={**os.environ, **own}, stdout=log, stderr=log).returncode:
                    raise UsboostError(f"`prefect deploy --all` failed; see {servers.log_of('deploy')}")
        except BaseException:
            end_all(*before)
            raise
    print(f"Prefect  {prefect.removesuffix('/api')}")
    print(f"MLflow   {page}")
    print(f"workers  {', '.join(WORKERS)}")
    print("to run   Prefect's page, Deployments, or its own command, whose `deployment ls` lists them:")
    print(f"         PREFECT_API_URL={prefect} prefect deployment run <name> --watch")
    print("to stop  make services-stop")


def alone() -> AbstractContextManager[None]:
    """Refuse while another command starts or stops the services of this home."""
    sentence = f"another command starts or stops the services of {servers.home()}; wait for it"
    return runtime.alone(servers.home() / "services/lock", sentence)


@app.command()
@runtime.exit_on_error()
def stop() -> None:
    """End everything, also after a crash; harmless when nothing runs."""
    with alone():
        print(f"{end_all()} processes ended")


@app.command()
@runtime.exit_on_error()
def ui(mlflow_port: int = MLFLOW_PORT) -> None:
    """Open MLflow's and Prefect's pages on 127.0.0.1 until Ctrl-C, or say where those of the services are."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # all as Ctrl-C
        signal.signal(number, signal.default_int_handler)

    store, known = os.environ["MLFLOW_TRACKING_URI"], servers.running()
    served = store.startswith("http")
    mine = {name for name in ("prefect", "ui") if name not in known and (name == "prefect" or not served)}
    try:
        if "ui" not in mine and mlflow_port != MLFLOW_PORT.default:
            tell(f"MLflow's server runs already, so the port {mlflow_port} is not taken")
        if "ui" in mine:
            tell("starting MLflow's server …")
            servers.start_mlflow("ui", mlflow_port, store)
        prefect = servers.prefect_server()
        tell(f"MLflow   {first_page(store if served else servers.wait_for('ui'))}")
        tell(f"Prefect  {prefect.removesuffix('/api')}")
        mine &= set(servers.running())
        if mine:
            tell("Ctrl-C ends what was started here; deployments need `make services`")
        while mine:
            time.sleep(1)
            if gone := mine - set(servers.running()):
                raise UsboostError(f"the server has ended; see {servers.log_of(gone.pop())}")
    except KeyboardInterrupt:
        tell("\nended")
    finally:
        servers.end(process for name, process in servers.ours() if name in mine)


if __name__ == "__main__":
    app()

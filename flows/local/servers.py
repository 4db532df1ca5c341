"""Prefect's and MLflow's servers and workers on loopback: their own commands, detached from the terminal.

A process that is detached has the home and its name in its environment, and so has all that it starts.
Nothing else is remembered of it: who runs, and on which port, is read from the processes.
"""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tasks.machine import locked
from usboost.errors import UsboostError

START_SECONDS, STOP_SECONDS = 120, 10
HOME, NAME = "USBOOST_SERVICES", "USBOOST_SERVICE"
UPGRADE_AND_SERVE = '"$0" -m mlflow db upgrade "$1" && exec "$0" -m mlflow server --backend-store-uri "$@"'


def home() -> Path:
    """Return the folder of the services' databases and logs: USBOOST_HOME, else .usboost here."""
    return Path(os.environ.get("USBOOST_HOME", ".usboost")).resolve()


def mlflow_store() -> str:
    """Return MLflow's database of this home, with or without servers."""
    return f"sqlite:///{home() / 'mlflow.db'}"


def log_of(name: str) -> Path:
    return home() / "services" / f"{name}.log"


def detach(name: str, command: list[str], more: Mapping[str, str]) -> None:
    """Start a command that outlives this one and its terminal; logs of flow runs are kept."""
    own = {HOME: str(home()), NAME: name, "USBOOST_HOME": str(home())}
    env = {**os.environ, "PREFECT_LOGGING_LEVEL": "INFO", "PYTHONUNBUFFERED": "1", **more, **own}
    with log_of(name).open("ab") as log:
        none = subprocess.DEVNULL
        subprocess.Popen(command, env=env, stdin=none, stdout=log, stderr=log, start_new_session=True)


def ours() -> list[tuple[str, psutil.Process]]:
    """Return the processes of this home, by the names that they, or what started them, were detached by."""
    processes, own = [], {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            marks = process.environ()
            if process.pid not in own and marks.get(HOME) == str(home()):
                processes.append((marks.get(NAME, ""), process))
    return processes


def running() -> dict[str, psutil.Process]:
    """Return what is detached in this home by its name, without what it has started."""
    detached: dict[str, psutil.Process] = {}
    for name, process in ours():
        with suppress(OSError, psutil.Error):
            # flow runs have sessions of their own, too, and may outlive their worker
            words = set() if os.getsid(process.pid) != process.pid else {*process.cmdline()}
            if words & {"--port", "worker"} and process.status() != psutil.STATUS_ZOMBIE:
                detached.setdefault(name, process)
    return detached


def address(name: str) -> str | None:
    """Return the address of a detached server; None if it does not run, or does not answer yet."""
    with suppress(psutil.Error, KeyError, ValueError, IndexError):
        words = running()[name].cmdline()
        url = f"http://127.0.0.1:{words[words.index('--port') + 1]}" + "/api" * (name == "prefect")
        return url if answers(url) else None
    return None


def answers(url: str) -> bool:
    """Return whether Prefect's or MLflow's server is up there."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def wait_for(name: str, ready: Callable[[], Any] | None = None) -> str:
    """Wait until a detached process is ready, a server until it answers; return the server's address.

    Raises `UsboostError` if it ends before, or it takes longer than `START_SECONDS`.
    """
    deadline = time.monotonic() + START_SECONDS
    while not (answer := ready() if ready else address(name)):
        if name not in running() or time.monotonic() > deadline:
            raise UsboostError(f"{name} did not start; see {log_of(name)}")
        time.sleep(0.2)
    return str(answer)


def end(processes: Iterable[psutil.Process]) -> int:
    """End processes, by force those that do not end by themselves; return their number."""
    left = given = list(processes)
    for stop in (psutil.Process.terminate, psutil.Process.kill):
        for each in left:
            with suppress(psutil.Error):
                stop(each)
        left = psutil.wait_procs(left, timeout=STOP_SECONDS)[1]
    return len(given)


def free_port(port: int = 0, whose: str = "", option: str = "") -> int:
    """Return the port if it is free, any free one for 0. Raises `UsboostError` if something listens on it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise UsboostError(
                f"port {port}, where {whose} would listen, is taken; give another with {option}, 0 for any"
            ) from None
        return int(probe.getsockname()[1])


def start_mlflow(name: str, port: int, store: str, *words: str, **more: str) -> None:
    """Start MLflow's server by a name, not waited for. Raises `UsboostError` if the port is taken."""
    port = free_port(port, "MLflow's server", "--mlflow-port (MLFLOW_PORT= of make)")
    words = (store, "--host", "127.0.0.1", "--port", str(port), "--workers", "1", *words)
    detach(name, ["sh", "-c", UPGRADE_AND_SERVE, sys.executable, *words], more)


def prefect_server(port: int | None = None, options: Mapping[str, str] | None = None) -> str:
    """Return the address of Prefect's API: PREFECT_API_URL, else that of this home's server, which goes on.

    PREFECT_API_URL is a variable, or the setting of this home's Prefect profile, in which a server that is
    started here leaves its address, also for Prefect's own commands: the next one takes the same port.

    Raises `UsboostError` if it does not answer or start, the port is taken, it runs already, or it asks for a
    password that the environment does not have.

    Parameters
    ----------
    port : 0 for any free one; None for that of the profile, else $USBOOST_PREFECT_PORT or 4200, else any.
    options : of our server's environment, its password and database; None for what there is.
    """
    from prefect.settings import PREFECT_API_URL, load_current_profile, update_current_profile

    if options is None and (given := os.environ.get("PREFECT_API_URL")):
        return _checked(given)
    with locked(home() / "services/prefect.lock", wait=True):
        # of commands that begin at once, one starts it
        if "prefect" in running():
            url = wait_for("prefect")
            if options or str(port or url).removesuffix("/api") not in url:
                raise UsboostError(f"Prefect's server runs at {url} already; `make services-stop` ends it")
            return _checked(url)
        known = str(load_current_profile().settings.get(PREFECT_API_URL) or "")
        had = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/api)?", known)
        if options is None and known and not had:
            return _checked(known)
        wanted = int(had[1] if had else os.environ.get("USBOOST_PREFECT_PORT", "4200"))
        try:
            free = free_port(wanted if port is None else port, "Prefect's server", "--prefect-port")
        except UsboostError:
            if port is not None:
                raise
            free = free_port()
        url = f"http://127.0.0.1:{free}/api"
        print("starting Prefect's server …", file=sys.stderr, flush=True)
        words = ["server", "start", "--host", "127.0.0.1", "--port", str(free)]
        # what its pages ask: else the default port; behind a proxy another address
        pages = {"PREFECT_SERVER_UI_API_URL": os.environ.get("PREFECT_SERVER_UI_API_URL", url)}
        detach("prefect", [sys.executable, "-m", "prefect", *words], {**pages, **(options or {})})
        update_current_profile({PREFECT_API_URL: url})
        return wait_for("prefect")


def _checked(url: str) -> str:
    """Return an address if Prefect's API answers there, to whom the environment says we are."""
    from httpx import HTTPStatusError
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: url}), get_client(sync_client=True) as client:
        if error := client.api_healthcheck():
            raise UsboostError(f"Prefect's server at {url}, PREFECT_API_URL, does not answer ({error})")
        try:
            client.request("GET", "/admin/version")
        except HTTPStatusError as error:
            raise UsboostError(
                f"Prefect's server at {url} asks for a password: PREFECT_API_AUTH_STRING is not set in the "
                f"environment, or another ({error.response.status_code}); see docs/team.md"
            ) from None
    return url

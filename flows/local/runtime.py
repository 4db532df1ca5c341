"""How a flow is run from a command line: a local Prefect server, quiet logs, one-sentence errors.

Imported before prefect and mlflow, because both read their settings when imported.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import psutil

from flows.local import access
from usboost.errors import UsboostError

START_SECONDS = 120
IDLE_SECONDS = 180
DRAIN_SECONDS = 10

SERVER = "prefect-server.json"
"""Address and process of the server that the flows of this home share."""

FOR_DEPLOYMENTS = (
    *("SCHEDULER", "LATE_RUNS", "FOREMAN", "PAUSE_EXPIRATIONS", "CANCELLATION_CLEANUP", "REPOSSESSOR"),
    "TRIGGERS",
)
"""What Prefect's server does for deployments, as part of its settings' names; here flows are commands."""

LOOPBACK = ("127.0.0.1", "localhost")

T = TypeVar("T")

_FINISHED: list[bool] = []


def home() -> Path:
    """The folder of the services' databases and logs: USBOOST_HOME, else .usboost here."""
    return Path(os.environ.get("USBOOST_HOME", ".usboost")).resolve()


def mlflow_store() -> str:
    """MLflow's database of this home, with or without servers."""
    return f"sqlite:///{home() / 'mlflow.db'}"


@contextmanager
def alone(lock: Path, sentence: str) -> Iterator[None]:
    """Hold the file `lock`, or refuse with `sentence` while another process holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsboostError(sentence) from None
        yield


def configure() -> None:
    """Local, quiet and offline defaults for Prefect and MLflow; what is set already stays."""
    place = home()
    place.mkdir(parents=True, exist_ok=True)
    defaults = {
        "PREFECT_HOME": str(place / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(START_SECONDS),
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",  # errors are raised, and reported in one sentence
        "DASK_LOGGING__DISTRIBUTED": "error",
        "DO_NOT_TRACK": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        # a fit continues while the server is down, and retries itself
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # half a dozen processes for jobs of language models
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    for name in ("no_proxy", "NO_PROXY"):  # a proxy for the world outside does not reach our own servers
        known = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*known, *LOOPBACK]))
    if "MLFLOW_TRACKING_URI" not in os.environ:
        servers = services()
        os.environ["MLFLOW_TRACKING_URI"] = servers["mlflow"] if servers else mlflow_store()
    _read_again()
    # warns of any event that is left when a flow ends, although they are sent within milliseconds
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)


def _read_again() -> None:
    """Prefect's settings, where a process that imported it has since been given another home."""
    if "prefect.context" not in sys.modules:
        return
    known = sys.modules["prefect.settings"].PREFECT_HOME.value()
    if known != Path(os.environ["PREFECT_HOME"]):
        sys.modules["prefect.context"].refresh_global_settings_context()


def services() -> dict[str, Any] | None:
    """What `flows.local.services start` wrote, if both its servers answer."""
    try:
        state: dict[str, Any] = json.loads((home() / "services.json").read_text())
        up = _answers(state["prefect"]) and _answers(state["mlflow"])
    except (OSError, ValueError, KeyError):
        return None
    return state if up else None


def run(work: Callable[[], Any]) -> None:
    """Run a flow as a command, with a Prefect server behind it."""

    def with_api() -> None:
        from httpx import TransportError

        try:
            with prefect_api():
                work()
        except TransportError as error:
            if not _FINISHED:
                raise UsboostError(
                    f"Prefect's server does not answer ({error}); start the command again"
                ) from error
            print("Prefect's server went away; the work is done, its record there is not", file=sys.stderr)

    exit_on_error(with_api)


def finished(result: T) -> T:
    """The result of a flow whose work is done: what fails after it is Prefect's record alone."""
    _FINISHED.append(True)
    return result


def exit_on_error(work: Callable[[], Any]) -> None:
    """Do some work as a command: exit code 1 and one sentence for a person's mistake."""
    try:
        work()
    except UsboostError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("interrupted; nothing already on disk was changed", file=sys.stderr)
        raise SystemExit(130) from None


@contextmanager
def prefect_api() -> Iterator[None]:
    """A Prefect server for as long as the block runs.

    PREFECT_API_URL where it is set; else the services' server where they run; else a server on loopback
    that all flows of this home share. That one is started when none answers and ends by itself some minutes
    after the last flow. (The in-process API costs several seconds a flow and loses task records at exit.)
    """
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    # the heartbeat's thread costs a second when a flow ends, and nobody watches a local run for it
    changes: dict[Any, Any] = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    if os.environ.get("PREFECT_API_URL"):
        with temporary_settings(changes):
            try:
                yield
            finally:
                _send_last_events()
        return
    servers = services()
    if servers and servers.get("auth"):
        access.given()
    url = servers["prefect"] if servers else None
    with (
        _lease(),
        temporary_settings({**changes, PREFECT_API_URL: url or _answering_url() or _start_server()}),
    ):
        try:
            yield
        finally:
            _send_last_events()


@contextmanager
def server_ahead() -> Iterator[None]:
    """Start the server that the flows of this home will share, while the block does something else."""

    def start() -> None:
        with suppress(UsboostError, OSError):  # the first flow tries again, and says why
            _answering_url() or _start_server()

    if os.environ.get("PREFECT_API_URL") or services():
        yield
        return
    with _lease():
        threading.Thread(target=start, daemon=True).start()
        yield


def _send_last_events() -> None:
    """Task records travel as events: send the last ones while the server is surely there."""
    from prefect.events.worker import EventsWorker

    drained = EventsWorker.drain_all(timeout=DRAIN_SECONDS)
    if isinstance(drained, tuple) and drained[1]:
        print("some task records have not reached the Prefect server", file=sys.stderr)


@contextmanager
def _lease() -> Iterator[None]:
    """Hold the server open: a shared lock that the system releases however the process ends."""
    with _lease_file() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def _lease_file() -> IO[str]:
    home().mkdir(parents=True, exist_ok=True)
    return (home() / "prefect-server.lease").open("a")


def _answering_url() -> str | None:
    """The address of this home's own server if it answers."""
    try:
        kept = json.loads((home() / SERVER).read_text())
        url, keeper = kept["url"], kept["pid"]
    except (OSError, ValueError, KeyError):
        return None
    return url if _answers(url) and _listens(keeper, _port_of(url)) else None


def _listens(keeper: int, port: int) -> bool:
    """Whether a process or one that it started has the port: another home's server may have it now."""
    with suppress(psutil.Error):
        process = psutil.Process(keeper)
        for each in (process, *process.children(recursive=True)):
            found = each.net_connections(kind="tcp")
            if any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found):
                return True
    return False


def _port_of(url: str) -> int:
    return int(url.split(":")[-1].removesuffix("/api"))


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _start_server() -> str:
    """Start the shared server unless another process just did; its API's address."""
    with (home() / "prefect-server.starting").open("a") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if url := _answering_url():
            return url
        # another home's server may have taken the first port meanwhile
        for port in (prefect_port(), free_port()):
            if url := _started(f"http://127.0.0.1:{port}/api"):
                return url
        raise UsboostError(f"the local Prefect server did not start; see {home() / 'prefect-server.log'}")


def _started(url: str) -> str | None:
    """The address of a server's API once it answers, None if it ends before."""
    log = (home() / "prefect-server.log").open("ab")
    keeper = subprocess.Popen(
        [sys.executable, "-m", "flows.local.runtime", url],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # outlives this flow, and dvc's
    )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and keeper.poll() is None:
        if _answers(url) and _listens(keeper.pid, _port_of(url)):
            remember(url, keeper.pid)
            return url
        time.sleep(0.2)
    return None


def remember(url: str, keeper: int | None = None) -> None:
    """Keep where this home's Prefect server is, whose next one takes the same port."""
    (home() / SERVER).write_text(json.dumps({"url": url, "pid": keeper} if keeper else {"url": url}))


def end_server() -> None:
    """End the server that the flows of this home share, so that another may have its database.

    Raises
    ------
    UsboostError
        If a flow needs it, or `make ui`.
    """
    with _lease_file() as lease:
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsboostError(f"a flow or `make ui` runs in {home()}; wait for it, or end it") from None
        if _answering_url() is None:
            return
        keeper = json.loads((home() / SERVER).read_text())
        os.killpg(keeper["pid"], signal.SIGTERM)
        deadline = time.monotonic() + DRAIN_SECONDS
        while _answers(keeper["url"]) and time.monotonic() < deadline:
            time.sleep(0.1)


def prefect_port() -> int:
    """Of this home's Prefect server: the one that it had, so that links to its pages last.

    The first is that of ``USBOOST_PREFECT_PORT``, 4200 by default; if one is taken, any free one.
    """
    wanted = [int(os.environ.get("USBOOST_PREFECT_PORT", "4200"))]
    with suppress(OSError, ValueError, KeyError):
        wanted.insert(0, _port_of(json.loads((home() / SERVER).read_text())["url"]))
    for port in filter(None, wanted):
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    return free_port()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _keep_server(url: str) -> None:
    """Run the server until no flow has held the lease for `IDLE_SECONDS`."""
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1"]
    command += ["--port", str(_port_of(url))]
    environment = {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in FOR_DEPLOYMENTS}
    environment["PREFECT_SERVER_UI_API_URL"] = (
        url  # else its pages ask the default port, where nobody answers
    )
    server = subprocess.Popen(command, env={**environment, **os.environ})
    idle_since: float | None = None
    with _lease_file() as lease:
        while server.poll() is None:
            try:
                fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(lease, fcntl.LOCK_UN)
                idle_since = idle_since or time.monotonic()
            except BlockingIOError:
                idle_since = None
            if idle_since and time.monotonic() - idle_since > IDLE_SECONDS:
                server.terminate()
                server.wait(timeout=20)
            time.sleep(2)


if __name__ == "__main__":
    configure()
    _keep_server(sys.argv[1])

"""How a command is run: quiet and offline settings, Prefect's own server behind it, one-sentence errors.

Imported before prefect and mlflow, because both read their settings when imported. Servers are the packages'
own commands, detached.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from flows.local import access
from tasks.running import if_free, waiting
from tasks.settings import as_key
from usboost.errors import UsboostError, options_written
from usboost.files import write_atomically

START_SECONDS = 120
DRAIN_SECONDS = 10
STOP_SECONDS = 10
MARK = "USBOOST_SERVICES"  # the home, in the environment of what is detached and of all that it starts
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
    with if_free(lock) as mine:
        if not mine:
            raise UsboostError(sentence)
        yield


def configure() -> None:
    """Local, quiet and offline defaults for Prefect and MLflow; what is set already stays."""
    gc.set_threshold(100_000, 20, 100)  # imports make much that stays; to look through it takes half a second
    services().mkdir(parents=True, exist_ok=True)
    defaults = {
        "PREFECT_HOME": str(home() / "prefect"),
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
        os.environ["MLFLOW_TRACKING_URI"] = address("mlflow") or mlflow_store()
    if "prefect.context" in sys.modules:  # imported already, perhaps with another home
        known_home = sys.modules["prefect.settings"].PREFECT_HOME.value()
        if known_home != Path(os.environ["PREFECT_HOME"]):
            sys.modules["prefect.context"].refresh_global_settings_context()
    # warns of any event that is left when a flow ends, although they are sent within milliseconds
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)


def run(work: Callable[[], Any]) -> None:
    """Run a flow as a command, with a Prefect server behind it."""

    def with_api() -> None:
        from httpx import TransportError

        try:
            with prefect_api():
                work()
            gc.freeze()  # the interpreter's end takes nothing apart that the system takes back anyway
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
    """Do some work as a command: exit code 1 and one sentence for a user's mistake."""
    try:
        with options_written(as_key):
            work()
    except UsboostError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("interrupted; nothing already on disk was changed", file=sys.stderr)
        raise SystemExit(130) from None


@contextmanager
def prefect_api() -> Iterator[None]:
    """Prefect's API for as long as the block runs; see `prefect_server`.

    (The in-process API costs several seconds a flow and loses task records at exit.)
    """
    from prefect.events.worker import EventsWorker
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    # the heartbeat's thread costs a second when a flow ends, and nobody watches a local run for it
    settings: dict[Any, Any] = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_API_URL: prefect_server()}
    with temporary_settings(settings):
        try:
            yield
        finally:  # task records travel as events: send the last ones while the server is surely there
            drained = EventsWorker.drain_all(timeout=DRAIN_SECONDS)
            if isinstance(drained, tuple) and drained[1]:
                print("some task records have not reached the Prefect server", file=sys.stderr)


def prefect_server(port: int | None = None, options: Mapping[str, str] | None = None) -> str:
    """The address of Prefect's API: PREFECT_API_URL, else that of this home's server, which goes on running.

    PREFECT_API_URL is a variable, or a setting of this home's Prefect profile that is not our own.

    Raises `UsboostError` if it does not answer or start, the port is taken, it runs with other options, or
    asks for a password that the environment does not have.

    Parameters
    ----------
    port : 0 for any free one; None for the one that it had, else $USBOOST_PREFECT_PORT or 4200, else any.
    options : of our server's environment, its password and database; None for what there is.
    """
    from prefect.settings import PREFECT_API_URL, load_current_profile

    if options is None and (given := os.environ.get("PREFECT_API_URL")):
        return _checked(given)
    # of commands that begin at once, one starts it
    with saying("starting Prefect's server …"), waiting(services() / "prefect.lock"):
        had = kept("prefect")
        url, names = str(had.get("url", "")), had.get("options", [])
        given = load_current_profile().settings.get(PREFECT_API_URL)
        if options is None and given not in (None, url):
            return _checked(str(given))
        if process("prefect"):
            if (port or _port(url)) != _port(url) or sorted(names if options is None else options) != names:
                raise UsboostError(f"Prefect's server runs at {url} already; `make services-stop` ends it")
        elif names and options is None:
            raise UsboostError(f"Prefect's server at {url} is gone; `make services-stop`, then start again")
        else:
            url = _start_prefect(url, port, options or {})
        if access.SERVER in names and options is None:
            access.given()
        wait_for("prefect")
        return url


def _checked(given: str) -> str:
    """An address that a user has set, if Prefect's API answers there."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: given}), get_client(sync_client=True) as client:
        if error := client.api_healthcheck():
            raise UsboostError(f"Prefect's server at {given}, PREFECT_API_URL, does not answer ({error})")
    return given


def _start_prefect(had: str, port: int | None, options: Mapping[str, str]) -> str:
    """Start Prefect's server at its port, not waited for; its address."""
    try:
        wanted = _port(had) if had else int(os.environ.get("USBOOST_PREFECT_PORT", "4200"))
        port = claim(wanted if port is None else port, "Prefect's server", "--prefect-port")
    except UsboostError:
        if port is not None:
            raise
        port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    # what its pages ask: else the default port; behind a proxy another address
    pages = {"PREFECT_SERVER_UI_API_URL": os.environ.get("PREFECT_SERVER_UI_API_URL", url)}
    detach("prefect", command, {**pages, **options}, url=url, options=sorted(options))

    from prefect.settings import PREFECT_API_URL, update_current_profile

    update_current_profile({PREFECT_API_URL: url})  # for Prefect's own commands with this PREFECT_HOME
    return url


def services() -> Path:
    """The folder of what is detached."""
    return home() / "services"


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """That of this process with the mark and more; logs of flow runs are kept."""
    given = {**os.environ, "PREFECT_LOGGING_LEVEL": "INFO", "PYTHONUNBUFFERED": "1", **more}
    return {**given, MARK: str(home()), "USBOOST_HOME": str(home())}


def detach(name: str, command: list[str], more: Mapping[str, str], **facts: Any) -> None:
    """Start a command that outlives this one and its terminal; `facts` are kept with its process id."""
    with log_of(name).open("ab") as log:
        process = subprocess.Popen(
            command,
            env=environment(more),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    keep(name, {"pid": process.pid, **facts})


def log_of(name: str) -> Path:
    return services() / f"{name}.log"


def keep(name: str, facts: Mapping[str, Any] | None) -> None:
    """Write what is known of a detached process, ``<name>.json``, or forget it."""
    path = services() / f"{name}.json"
    write_atomically(path, json.dumps(facts).encode()) if facts else path.unlink(missing_ok=True)


def kept(name: str) -> dict[str, Any]:
    """What is known of a detached process, which may have ended since."""
    try:
        found: dict[str, Any] = json.loads((services() / f"{name}.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


def is_ours(process: psutil.Process) -> bool:
    """Whether it was detached in this home, or started by what was: its id alone may be another's by now."""
    try:
        return bool(process.environ().get(MARK) == str(home()))
    except (psutil.Error, OSError):
        return False


def process(name: str) -> psutil.Process | None:
    """A detached process while it is there."""
    with suppress(psutil.Error, KeyError):
        found = psutil.Process(kept(name)["pid"])
        return found if is_ours(found) else None
    return None


def address(name: str) -> str | None:
    """The address of a detached server that answers, and whose port is its own."""
    if not (server := process(name)):
        return None
    url = str(kept(name)["url"])
    with suppress(psutil.Error):
        ours = [server, *server.children(recursive=True)]
        open_ = [each for process in ours for each in process.net_connections(kind="tcp")]
        if any(each.status == psutil.CONN_LISTEN and each.laddr.port == _port(url) for each in open_):
            return url if answers(url) else None
    return None


def answers(url: str) -> bool:
    """Whether Prefect's or MLflow's server is up there."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def wait_for(name: str, is_ready: Callable[[], Any] | None = None) -> None:
    """Wait until a detached process is ready; a server is when it answers.

    Raises `UsboostError` if it ends before, or it takes longer than `START_SECONDS`.
    """
    deadline = time.monotonic() + START_SECONDS
    while not (is_ready() if is_ready else address(name)):
        if not process(name) or time.monotonic() > deadline:
            raise UsboostError(f"{name} did not start; see {log_of(name)}")
        time.sleep(0.2)


def end(processes: Iterable[psutil.Process]) -> None:
    """End processes, by force those that do not end by themselves."""
    left = list(processes)
    for stop in (psutil.Process.terminate, psutil.Process.kill):
        for each in left:
            with suppress(psutil.Error):
                stop(each)
        left = psutil.wait_procs(left, timeout=STOP_SECONDS)[1]


@contextmanager
def saying(sentence: str) -> Iterator[None]:
    """Say what a command waits for if the block takes longer than a moment."""
    timer = threading.Timer(1.5, print, [sentence], {"file": sys.stderr, "flush": True})
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def claim(port: int, whose: str = "", option: str = "") -> int:
    """The port if it is free, any free one for 0. Raises `UsboostError` if something listens on it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise UsboostError(
                f"port {port}, where {whose} would listen, is taken; give another with {option}, 0 for any"
            ) from None
        return int(probe.getsockname()[1])


def free_port() -> int:
    return claim(0)


def _port(url: str) -> int:
    return int(url.removesuffix("/api").rpartition(":")[2])

"""Run a command with quiet and offline settings, Prefect's own server behind it, and one-sentence errors.

Imported before prefect and mlflow, because both read their settings when imported.
"""

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from flows.local.servers import START_SECONDS, address, home, log_of, mlflow_store, prefect_server
from tasks.machine import HALF, locked
from tasks.settings import as_key
from usboost.errors import UsboostError, print_readably, rewrite_options

T = TypeVar("T")

_FINISHED: list[bool] = []


@contextmanager
def alone(lock: Path, sentence: str) -> Iterator[None]:
    """Lock the file `lock` for the block, or refuse with `sentence` while another process has it."""
    with locked(lock, wait=False) as free:
        if not free:
            raise UsboostError(sentence)
        yield


def configure() -> None:
    """Set local, quiet and offline defaults for Prefect and MLflow; what is set already stays."""
    gc.set_threshold(100_000, 20, 100)  # imports make much that stays; to look through it takes half a second
    log_of("mlflow").parent.mkdir(parents=True, exist_ok=True)
    defaults = {
        "PREFECT_HOME": str(home() / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(START_SECONDS),
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",  # errors are raised, and reported in one sentence
        "DO_NOT_TRACK": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # some seconds; then a fit ends, and goes on when run again
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # half a dozen processes for jobs of language models
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    for name in ("no_proxy", "NO_PROXY"):  # a proxy for the world outside does not reach our own servers
        known = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*known, "127.0.0.1", "localhost"]))
    if "MLFLOW_TRACKING_URI" not in os.environ:
        server = address("mlflow") if log_of("mlflow").exists() else None
        os.environ["MLFLOW_TRACKING_URI"] = server or mlflow_store()
    if "prefect.context" in sys.modules:  # imported already, perhaps with another home
        sys.modules["prefect.context"].refresh_global_settings_context()
    # warns of any event that is left when a flow ends, although they are sent within milliseconds
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)


def run(work: Callable[[], Any], check: Callable[[], Any] = bool) -> None:
    """Run a flow as a command, with a Prefect server behind it, which starts after the check."""
    from httpx import TransportError

    with exit_on_error():
        check()
        try:
            with prefect_api():
                work()
        except TransportError as error:
            if not _FINISHED:
                raise UsboostError(
                    f"Prefect's server does not answer ({error}); start the command again"
                ) from error
            print("Prefect's server went away; the work is done, its record there is not", file=sys.stderr)


def finished(result: T) -> T:
    """Return the result of a flow whose work is done: what fails after it is Prefect's record alone."""
    _FINISHED.append(True)
    return result


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Have a command's block end in exit code 1 and one sentence for a user's mistake."""
    print_readably()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `flows` has it while Python imports
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except UsboostError as error:
        print(f"error: {rewrite_options(str(error), as_key)}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        if HALF not in os.environ:  # the whole says it
            print("interrupted; finished fits are kept, and the same command goes on", file=sys.stderr)
        raise SystemExit(130) from None


@contextmanager
def prefect_api() -> Iterator[None]:
    """Have Prefect's API for as long as the block runs; see `servers.prefect_server`.

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
            drained = EventsWorker.drain_all(timeout=10)
            if isinstance(drained, tuple) and drained[1]:
                print("some task records have not reached the Prefect server", file=sys.stderr)

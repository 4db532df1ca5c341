"""The processes of the services: their environment, whether they answer, and how they all end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from flows.local import runtime
from usboost.errors import UsboostError
from usboost.files import write_atomically

MARK = "USBOOST_SERVICES"  # in the environment of every process of a stack, inherited by flow runs
STOP_SECONDS = 10
STATE = "services.json"


def folder() -> Path:
    """Logs of the services of this home, and MLflow's users."""
    return runtime.home() / "services"


def read_state() -> dict[str, Any] | None:
    """What `start` wrote, or None when no stack was started."""
    try:
        found: dict[str, Any] = json.loads((runtime.home() / STATE).read_text())
    except (OSError, ValueError):
        return None
    return found


def write_state(state: Mapping[str, Any]) -> None:
    write_atomically(runtime.home() / STATE, (json.dumps(state, indent=1) + "\n").encode())


def environment(prefect: str, mlflow: str, code: str, prefect_db: str | None = None) -> dict[str, str]:
    """Environment of servers and workers: quiet and offline, logs of flow runs kept, marked as ours."""
    given = {
        **os.environ,
        MARK: str(runtime.home()),
        "USBOOST_HOME": str(runtime.home()),
        "PREFECT_API_URL": prefect,
        "MLFLOW_TRACKING_URI": mlflow,
        "PREFECT_LOGGING_LEVEL": "INFO",
        "PYTHONUNBUFFERED": "1",
    }
    if prefect_db:  # else that of PREFECT_HOME, which flows have without the services, too
        given["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = prefect_db
    given.setdefault("PREFECT_SERVER_UI_API_URL", prefect)  # what its pages ask; a proxy has another address
    if "USBOOST_REPOSITORY" not in given:
        given["USBOOST_CODE"] = code
    return given


def spawn(command: list[str], log: str, env: Mapping[str, str], cwd: str) -> subprocess.Popen[bytes]:
    """Start a process that outlives the terminal; its output goes to a log of the stack's folder."""
    with (folder() / log).open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def claim(port: int, whose: str, option: str) -> int:
    """The port if it is free, any free one for 0.

    Raises
    ------
    UsboostError
        If something listens on it.
    """
    if not port:
        return runtime.free_port()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise UsboostError(
                f"port {port}, where {whose} would listen, is taken; give another with {option}, 0 for any"
            ) from None
    return port


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], what: str, log: str) -> None:
    """Wait until something is ready.

    Raises
    ------
    UsboostError
        If its process ends before, or it takes longer than `runtime.START_SECONDS`.
    """
    deadline = time.monotonic() + runtime.START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise UsboostError(f"{what} did not start; see {folder() / log}")
        time.sleep(0.3)


def members() -> list[psutil.Process]:
    """All processes that carry this home's mark: servers, workers, flow runs and what those started."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid not in own and process.environ().get(MARK) == str(runtime.home()):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def end_all() -> int:
    """End all members, those that a dead worker left behind too; how many there were."""
    ended = members()
    for process in ended:
        _signal(process.terminate)
    psutil.wait_procs(ended, timeout=STOP_SECONDS)
    for _ in range(20):
        left = members()  # those that ignored it, and those that started meanwhile
        if not left:
            break
        for process in left:
            _signal(process.kill)
        psutil.wait_procs(left, timeout=1)
    return len(ended)


def _signal(send: Callable[[], None]) -> None:
    with suppress(psutil.Error):
        send()

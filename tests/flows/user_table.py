"""Commands and code of docs/team.md, run as they stand, and a model's server that they start."""

import contextlib
import io
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PORT = "5001"


def block(page: str, language: str, having: str) -> str:
    """The one block of a language on a page of docs/ that has some text."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    (found,) = (b for b in re.findall(rf"```{language}\n(.*?)```", text, re.S) if having in b)
    return str(found)


@contextmanager
def running(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], number: int = signal.SIGTERM
) -> Iterator[subprocess.Popen[bytes]]:
    """A silent command; it and what it has started get a signal at the end."""
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen(words, cwd=folder, env=dict(environment), **quiet)
    try:
        yield process
    finally:
        os.killpg(process.pid, number)
        process.wait(timeout=30)


@contextmanager
def served(folder: Path, environment: Mapping[str, str], port: int) -> Iterator[str]:
    """The address of the server that the page's commands start, on another port."""
    commands = block("team.md", "sh", "mlflow models serve").replace(f"--port {PORT}", f"--port {port}")
    assert str(port) in commands
    address = f"http://127.0.0.1:{port}"
    with running(["bash", "-c", commands], folder, environment) as server:
        wait_for(f"{address}/ping", server)
        yield address


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise AssertionError("the server did not start")


def asked(image: Path, port: int) -> Any:
    """The answer to the page's request, a row with gaps, with this image."""
    code = block("team.md", "python", "/invocations").replace(PORT, str(port))
    code = code.replace('"image.png"', repr(str(image)))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    (answer,) = eval(printed.getvalue(), {})["predictions"]
    return answer

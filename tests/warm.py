"""A process that has imported heavy packages, and runs each command of Python in a fork of its own.

Prefect, MLflow and torch take seconds to import; a test that needs a process of its own, not a cold one,
asks here. That commands work as a person starts them is for the tests to show that kill them.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 600  # after which a command is ended

LIBRARY = """
import lightgbm, matplotlib.figure, pandas, pyarrow.parquet, scipy.stats, torch, torchvision
import sklearn.ensemble, sklearn.linear_model, sklearn.model_selection, sklearn.neighbors
"""
"""What the library imports, of others; a command may have another copy of the library."""

FLOWS = """
from flows.local import runtime
runtime.configure()
import mlflow.pyfunc, prefect
import tasks.data, tasks.promotion, tasks.report, tasks.training
"""


SHIM = """#!{python} -SE
import json, os, socket, sys
asked = dict(words=sys.argv[1:], folder=os.getcwd(), environment=dict(os.environ))
body = json.dumps(asked).encode()
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    socket.send_fds(connection, [len(body).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(body)
    code = int(connection.makefile().read() or 1)
os._exit(code if code >= 0 else 128 - code)
"""
"""A `python` for commands of others, DVC's say: asks the warm process at an address."""


class Warm:
    """The process, started when first asked, with a command's environment.

    Parameters
    ----------
    imports : code that it runs first
    """

    def __init__(self, imports: str) -> None:
        self.imports = imports
        self.process: subprocess.Popen[str] | None = None
        self.folder = tempfile.TemporaryDirectory(prefix="warm-")  # a socket's path has to be short

    @property
    def address(self) -> str:
        return f"{self.folder.name}/socket"

    def start(self, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, self.address, self.imports],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()  # it listens

    def shim(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment with a `python` first in PATH that runs here."""
        if self.process is None:
            self.start(environment)
        python = Path(self.folder.name) / "python"
        python.write_text(SHIM.format(python=sys.executable, address=self.address))
        python.chmod(0o755)
        return {**environment, "PATH": f"{self.folder.name}{os.pathsep}{environment['PATH']}"}

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """What ``python <words>`` does in a folder; words as ``-m module …``, ``-c code …`` or ``file …``."""
        if self.process is None:
            self.start(environment)
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            with Path(os.devnull).open() as stdin:
                files = [stdin.fileno(), stdout.fileno(), stderr.fileno()]
                code = ask(self.address, files, words, folder, environment)
            texts = [(file.seek(0), file.read().decode())[1] for file in (stdout, stderr)]
        return subprocess.CompletedProcess([sys.executable, *words], code, *texts)

    def end(self) -> None:
        if self.process is not None:
            self.process.communicate()
        self.folder.cleanup()


def ask(
    address: str, files: Sequence[int], words: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> int:
    """The exit code of a command that reads and writes these three files."""
    asked = {"words": list(words), "folder": str(folder), "environment": dict(environment)}
    body = json.dumps(asked).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(body).to_bytes(8, "big")], list(files))
        connection.sendall(body)
        with connection.makefile() as answer:
            return int(answer.read() or 1)


def serve(address: str) -> None:
    """Answer each connection with a command's exit code; a fork runs the command and ends as it does."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while listening in select.select([listening, sys.stdin], [], [])[0]:  # until stdin is closed
        connection = listening.accept()[0]
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        head, files, _, _ = socket.recv_fds(connection, 8, 3)
        with connection.makefile("rb") as text:
            asked = json.loads(text.read(int.from_bytes(head, "big")))
        child = os.fork()
        if child:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            connection.sendall(str(code).encode())
            os._exit(0)
        connection.close()
        listening.close()
        command(**asked, files=files)
        return


def command(words: Sequence[str], folder: str, environment: Mapping[str, str], files: Sequence[int]) -> None:
    signal.alarm(SECONDS)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.path[:1] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    how, *rest = words
    if how == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(rest[0], {"__name__": "__main__"})
    else:
        sys.argv = list(words)
        runpy.run_path(how, run_name="__main__")


if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder
    exec(sys.argv[2])
    serve(sys.argv[1])

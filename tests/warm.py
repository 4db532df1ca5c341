"""A process that has imported heavy packages, and runs each command of Python in a fork of its own.

Prefect, MLflow and torch take seconds of a core to import; the tests' commands would import them hundreds of
times.
The process answers on a socket that only its owner reaches, and ends with the one that started it.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 0.02  # between two looks at whether a command, or the one that asked for it, has ended

FLOWS = ("tests.preloaded",)
"""What imports all that the flows import."""

SHIM = """#!{python} -SE
import json, os, signal, socket, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the command, whose end is waited for
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
    modules : names of modules that it imports first
    limit : seconds after which a command is ended; 0: never
    """

    def __init__(self, modules: Sequence[str], limit: int = 0) -> None:
        self.modules, self.limit = modules, limit
        self.process: subprocess.Popen[str] | None = None
        self._listens = False
        self.folder = tempfile.TemporaryDirectory(prefix="warm-")  # a socket's path has to be short

    @property
    def address(self) -> str:
        return f"{self.folder.name}/socket"

    def start(self, environment: Mapping[str, str]) -> None:
        python = Path(self.folder.name) / "python"  # written once: a command may be reading it
        python.write_text(SHIM.format(python=sys.executable, address=self.address))
        python.chmod(0o755)
        self.process = subprocess.Popen(
            [sys.executable, __file__, self.address, str(self.limit), *self.modules],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self, environment: Mapping[str, str]) -> None:
        """Until it listens."""
        if self.process is None:
            self.start(environment)
        assert self.process is not None and self.process.stdout is not None
        if not self._listens:
            self._listens = bool(self.process.stdout.readline())
        if not self._listens:
            raise ChildProcessError("the process that runs commands did not start; its message is above")

    def shim(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment with a `python` first in PATH that runs here."""
        self.wait(environment)
        return {**environment, "PATH": f"{self.folder.name}{os.pathsep}{environment['PATH']}"}

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """What ``python <words>`` does in a folder; words as ``-m module …``, ``-c code …`` or ``file …``."""
        self.wait(environment)
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            with Path(os.devnull).open() as stdin:
                files = [stdin.fileno(), stdout.fileno(), stderr.fileno()]
                code = ask(self.address, files, words, folder, environment)
            texts = [(file.seek(0), file.read().decode())[1] for file in (stdout, stderr)]
        return subprocess.CompletedProcess([sys.executable, *words], code, *texts)

    def printed(self, words: Sequence[str], folder: Path, code: Path = ROOT) -> str:
        """What such a command prints that runs a checkout on one core, and ends well."""
        done = self.run(words, folder, {**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout

    def end(self) -> None:
        if self.process is not None:
            self.process.communicate()
            self.process = None
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


def serve(address: str, limit: int) -> None:
    """Answer each connection with a command's exit code; a fork runs the command and ends as it does."""
    gc.collect()
    gc.freeze()  # no fork looks through, and so copies, what is here
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the commands
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
            connection.sendall(str(exit_code(child, connection)).encode())
            os._exit(0)
        connection.close()
        listening.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(limit)
        leave(partial(command, **asked, files=files))


def leave(work: Callable[[], None]) -> NoReturn:
    """Do some work, and end this process as the interpreter would, save that no module is taken apart.

    To take apart what a fork has of its parent takes seconds.
    """
    code: Any = 0
    try:
        work()
    except SystemExit as error:
        code = error.code
        if code is not None and not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at any exit
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code or 0)


def exit_code(child: int, connection: socket.socket) -> int:
    """Of a command's process; it is ended when the one that asked for it is gone."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if select.select([connection], [], [], SECONDS)[0]:
            os.kill(child, signal.SIGKILL)  # as that one was
            os.waitpid(child, 0)
            os._exit(1)


def command(words: Sequence[str], folder: str, environment: Mapping[str, str], files: Sequence[int]) -> None:
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
        with tempfile.TemporaryDirectory() as kept:
            script = Path(kept) / "command.py"
            script.write_text(rest[0])
            sys.argv = ["-c", *rest[1:]]
            runpy.run_path(str(script), run_name="__main__")
    else:
        sys.argv = list(words)
        runpy.run_path(how, run_name="__main__")


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # for what is imported here; a command has its own folder
    gc.disable()  # what is imported stays
    for name in sys.argv[3:]:
        importlib.import_module(name)
    gc.enable()
    serve(sys.argv[1], int(sys.argv[2]))
    os._exit(0)  # as its forks: no module is taken apart

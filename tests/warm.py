"""A process that has imported heavy packages, and runs each command of Python in a fork of its own.

Prefect, MLflow and torch take seconds to import; a test that needs a process of its own, not a cold one,
asks here. That commands work as a person starts them is for the workspace's `dvc repro` to show.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
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


class Warm:
    """The process, started when first asked, with a command's environment.

    Parameters
    ----------
    imports : code that it runs first
    """

    def __init__(self, imports: str) -> None:
        self.imports = imports
        self.process: subprocess.Popen[str] | None = None

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """What ``python <words>`` does in a folder; words as ``-m module …``, ``-c code …`` or ``file …``."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, self.imports],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        with tempfile.TemporaryDirectory() as told:
            asked = {"words": list(words), "folder": str(folder), "environment": dict(environment)}
            process.stdin.write(json.dumps({**asked, "told": told}) + "\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            stdout, stderr = ((Path(told) / name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess([sys.executable, *words], code, stdout, stderr)

    def end(self) -> None:
        if self.process is not None:
            self.process.communicate()


def serve() -> None:
    """Answer each line with a command's exit code; a fork runs the command and ends as it does."""
    for line in sys.stdin:
        if os.fork() == 0:
            command(**json.loads(line))
            return
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.wait()[1])}\n")
        sys.stdout.flush()


def command(words: Sequence[str], folder: str, environment: Mapping[str, str], told: str) -> None:
    signal.alarm(SECONDS)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, place in enumerate((os.devnull, f"{told}/stdout", f"{told}/stderr")):
        file = os.open(place, os.O_RDWR | os.O_CREAT)
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
    exec(sys.argv[1])
    serve()

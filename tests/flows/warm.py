"""One process that has imported what flows need, and runs each command in a fork of its own.

A flow imports Prefect, MLflow and torch before it does anything: seconds of each command. The stages of
the workspace's `dvc repro` are commands as a person starts them; those that tests then add begin warm.
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


class Warm:
    """The process, started when first asked; its commands have one home (USBOOST_HOME)."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """What `python <words>` does in a folder; words as ``-m module …`` or ``-c code``."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.flows.warm"],
                cwd=Path(__file__).parents[2],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        with tempfile.TemporaryDirectory() as told:
            ask = {"words": words, "folder": str(folder), "environment": dict(environment), "told": told}
            print(json.dumps(ask), file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            stdout, stderr = ((Path(told) / name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(["python", *words], code, stdout, stderr)

    def end(self) -> None:
        if self.process is not None:
            self.process.communicate()


def serve() -> None:
    """Answer each line with a command's exit code; in the fork, run the command and end as it does."""
    for line in sys.stdin:
        ask = json.loads(line)
        if os.fork() == 0:
            break
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    else:
        return
    signal.alarm(SECONDS)
    os.chdir(ask["folder"])
    os.environ.clear()
    os.environ.update(ask["environment"])
    told = Path(ask["told"])
    for place, stream in (
        (os.devnull, sys.stdin),
        (told / "stdout", sys.stdout),
        (told / "stderr", sys.stderr),
    ):
        file = os.open(place, os.O_RDWR | os.O_CREAT)
        os.dup2(file, stream.fileno())
        os.close(file)
    sys.path.insert(0, ask["folder"])
    how, what, *words = ask["words"]
    sys.argv = [what, *words]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})


def main() -> None:
    from flows.local import runtime

    runtime.configure()

    import tasks.data
    import tasks.promotion
    import tasks.report
    import tasks.training  # noqa: F401

    serve()


if __name__ == "__main__":
    main()

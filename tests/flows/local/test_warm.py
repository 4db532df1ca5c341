"""A warm process: what its commands read, print and end with is what a cold Python's would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.local.warm import Warm

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def quick():
    made = Warm(["json"])
    yield made
    made.end()


@pytest.mark.parametrize(
    ("code", "ends", "said"),
    [
        ("print('done')", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('a sentence')", 1, "a sentence\n"),
        ("raise ValueError('broken')", 1, "ValueError: broken\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import atexit, sys; atexit.register(print, 'last', file=sys.stderr)", 0, "last\n"),
    ],
)
def test_a_command_ends_as_it_would_alone(quick, tmp_path, code, ends, said):
    found = quick.run(["-c", code], tmp_path, ENVIRONMENT)
    assert found.returncode == ends
    assert found.stderr.endswith(said)
    cold = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True)
    assert (cold.returncode, cold.stdout) == (found.returncode, found.stdout)


def test_a_thread_is_waited_for(quick, tmp_path):
    code = "import threading, time; threading.Timer(0.2, print, ['late']).start()"
    assert quick.run(["-c", code], tmp_path, ENVIRONMENT).stdout == "late\n"


def test_a_module_of_the_folder_with_its_words_and_environment(quick, tmp_path):
    (tmp_path / "said.py").write_text("import os, sys; print(sys.argv[1:], os.environ['SAID'], os.getcwd())")
    found = quick.run(["-m", "said", "a", "b"], tmp_path, {**ENVIRONMENT, "SAID": "yes"})
    assert found.stdout == f"['a', 'b'] yes {tmp_path}\n"


def test_a_python_of_others_runs_here(quick, tmp_path):
    environment = quick.shim(ENVIRONMENT)
    code = "import sys; print(sys.modules['__main__'].__dict__.get('x', 'none')); raise SystemExit(4)"
    done = subprocess.run(["python", "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (4, "none\n")


def test_a_command_ends_with_the_one_that_asked_for_it(quick, tmp_path):
    environment = quick.shim(ENVIRONMENT)
    code = f"import os, time; open('{tmp_path}/pid', 'w').write(str(os.getpid())); time.sleep(60)"
    asking = subprocess.Popen(["python", "-c", code], env=environment)
    deadline = time.monotonic() + 30
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    asking.kill()
    asking.wait()
    pid = int((tmp_path / "pid").read_text())
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_that_does_not_start_says_so(tmp_path):
    broken = Warm(["no_such_module"])
    with pytest.raises(ChildProcessError, match="did not start"):
        broken.run(["-c", ""], tmp_path, ENVIRONMENT)
    broken.end()

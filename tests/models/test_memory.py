"""Too little memory ends in a sentence; a fit to a table on disk takes little of it."""

import errno
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from usboost.errors import UsboostError, within_memory
from usboost.table.content import damaged

pytestmark = pytest.mark.slow
SETUP = """
import resource, sys, threading, time
import numpy as np
from usboost import *

def status(what):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(what)) * 1024

learners = {"U": NetworkLearner((4,), batch_size=4096, device="cpu"), "S": TreeLearner(max_depth=3)}
model = TwoWeakLearnerClassifier(learners, "newton", n_rounds=2, patience=None)
rng = np.random.default_rng(0)
"""


def last_line(script: str) -> str:
    """What a script prints last in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SETUP + textwrap.dedent(script)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 7 GiB"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        RuntimeError("can't start new thread"),
        RuntimeError("[enforce fail at linux.cc:78] errno == 0. Cannot allocate memory"),
        RuntimeError("Resource temporarily unavailable"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        Exception("std::bad_alloc"),
    ],
    ids=str,
)
def test_each_librarys_lack_of_memory_is_a_sentence(error: Exception) -> None:
    with pytest.raises(UsboostError, match="not enough memory"), within_memory():
        raise error


def test_a_file_that_needs_more_memory_may_not_be_damaged() -> None:
    said = str(damaged(Path("t.parquet"), MemoryError("malloc of size 128 failed")))
    assert said.endswith("of the type in its name, or there is not enough memory: malloc of size 128 failed")


@pytest.mark.parametrize(
    "error",
    [
        UsboostError("a label"),
        OSError(errno.ENOENT, "no file"),
        KeyError("x"),
        BlockingIOError(11, "Resource temporarily unavailable"),
    ],
)
def test_other_errors_are_left_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as found, within_memory():
        raise error
    assert found.value is error


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_a_limit_that_is_too_small_ends_in_a_sentence() -> None:
    found = last_line("""
        table = Table.from_numeric(rng.normal(size=(400_000, 12)))
        views, y = Views(U=table, S=table), (table.numeric[:, 0] > 0).astype(np.uint8)
        model.fit(views[:99], y[:99])  # what is imported late
        fit_sharded(model, lambda k: {"X": views[:99], "y": y[:99]}, 4)
        found = []
        for work in (model.fit, lambda *rows: fit_sharded(model, lambda k: dict(zip("Xy", rows)), 4)):
            resource.setrlimit(resource.RLIMIT_DATA, (status("VmData") + (16 << 20), resource.RLIM_INFINITY))
            try:
                work(views, y)
            except UsboostError as error:
                found.append(str(error)[:30])
        print(found)
    """)
    assert found == str(["there is not enough memory; gi"] * 2)


@pytest.mark.skipif(sys.platform != "linux", reason="anonymous memory is told by Linux")
def test_a_fit_to_a_table_on_disk_takes_less_than_the_table() -> None:
    found = last_line("""
        def parts():
            for _ in range(30):
                yield Table.from_numeric(rng.normal(size=(2_000, 200)).astype(np.float32))

        def rows(k):
            table = Table.on_disk(parts())
            return {"X": Views(U=table, S=table), "y": (table.numeric[:, 0] > 0).astype(np.uint8)}

        import usboost.shards.threads
        usboost.shards.threads.SAMPLE_ROWS = 2_000  # of which bins are made, in memory
        few = Table.from_numeric(rng.normal(size=(999, 200)))
        fit_sharded(model, lambda k: {"X": Views(U=few, S=few), "y": few.numeric[:, 0] > 0}, 2)
        before, most, ended = status("RssAnon"), 0, threading.Event()
        def look():
            global most
            while not ended.wait(0.005):
                most = max(most, status("RssAnon"))
        thread = threading.Thread(target=look)
        thread.start()
        fit_sharded(model, rows, 2)
        ended.set()
        thread.join()
        print((most - before) / (2 * 60_000 * 200 * 4))
    """)
    assert float(found) < 1, f"{found} of the table's numbers are in memory"

"""`make mutants`: break the code on purpose, one place at a time, and see whether a test notices.

``python -m benchmarks.mutants [WORD ...]`` copies the code to a temporary folder, runs the tests that
``mutants.txt`` names on the copy as it is, then makes one break after another and runs that break's tests
alone. A break is

- killed: a test failed, which is named;
- survived: its tests pass all the same;
- stale: its old text is not in the file exactly once, so it could not be made: mend the list;
- broken: no test failed, but pytest did not run them all (the break cannot be imported, or a test has gone).

With words only the breaks are made whose name or file has one of them. ``mutants.txt`` has a line
``FILE: TEST …`` and then breaks of that file for these tests: a line with two spaces and what is wrong then,
the old text after ``- `` and the new one after ``+ ``.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("usboost", "tasks", "flows", "benchmarks", "tests", "docs", "data")
FILES = ("pyproject.toml", "params.yaml", "dvc.yaml")
HEAVY = (
    *("pytest", "hypothesis", "numpy", "pandas", "pyarrow.parquet", "scipy.stats", "sklearn.ensemble"),
    *("lightgbm", "torch", "mlflow", "prefect", "matplotlib.pyplot"),
)
"""Imported once, so that a break costs its tests and little more."""
SECONDS = 300
"""After which a break counts as killed: it made a test run for ever."""
FORK = multiprocessing.get_context("fork")


@dataclass
class Break:
    """A place of the code, the text that replaces it, and who should notice.

    `old` is in the `file`, relative to the root, once; `tests`, files or node ids, are run in their order.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """The end of a break: killed, survived, stale or broken; the test that failed, or why."""

    what: str
    why: str = ""
    seconds: float = 0.0


def breaks(text: str) -> list[Break]:
    """Parse the list of breaks."""
    parsed: list[Break] = []
    file, tests = "", ""
    for line in text.splitlines():
        mark, rest = line[:2], line[2:]
        if mark == "  ":
            parsed.append(Break(rest, file, "", "", tuple(tests.split())))
        elif mark == "- ":
            parsed[-1].old += ("\n" if parsed[-1].old else "") + rest
        elif mark == "+ ":
            parsed[-1].new += ("\n" if parsed[-1].new else "") + rest
        else:
            file, tests = line.split(": ")
    return parsed


BREAKS = breaks(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))


class FirstFailure:
    """A pytest plugin that remembers which test failed first."""

    test = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid


def judge(made: Break, copy: Path) -> Outcome:
    """Make one break in a copy of the code, run its tests there, and mend it again."""
    file = copy / made.file
    text = file.read_text() if file.is_file() else ""
    if text.count(made.old) != 1:
        return Outcome("stale", f"{made.file} has its old text {text.count(made.old)} times, not once")
    file.write_text(text.replace(made.old, made.new))
    started = time.perf_counter()
    try:
        code, test = tested(copy, made.tests)
    finally:
        file.write_text(text)
    seconds = time.perf_counter() - started
    if code is None or test:
        return Outcome("killed", test or f"no answer after {SECONDS} s", seconds)
    return Outcome("survived" if code == 0 else "broken", "" if code == 0 else f"pytest: {code}", seconds)


def tested(copy: Path, tests: Sequence[str], seconds: float = SECONDS) -> tuple[int | None, str]:
    """Return pytest's exit code, None if it did not end, and the first test that failed."""
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_tests, args=(copy, tests, theirs))
    process.start()
    theirs.close()
    answer: tuple[int | None, str] = (None, "")
    if ours.poll(seconds):
        try:
            answer = ours.recv()
        except EOFError:  # it died
            answer = (-1, "")
    process.kill()
    process.join()
    return answer


def _tests(copy: Path, tests: Sequence[str], out: Connection) -> None:
    """Run tests of a copy, in a process of its own."""
    import hypothesis
    import pytest

    os.chdir(copy)
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    # old bytecode of a file of the same size and second would hide the break
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(copy))
    for name in [name for name in sys.modules if name.split(".")[0] in COPIED]:
        del sys.modules[name]
    importlib.invalidate_caches()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    # a busy machine is not a break that was noticed
    hypothesis.settings.register_profile("mutants", deadline=None, derandomize=True)
    first = FirstFailure()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants"]
    # warnings are errors, also pytest's that hypothesis is there already
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = int(pytest.main([*options, *tests], plugins=[first]))
    out.send((code, first.test))
    out.close()
    os._exit(0)  # no thread of a test may keep it


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """Make a temporary folder with the code and its tests."""
    with tempfile.TemporaryDirectory(prefix="usboost-mutants-") as folder:
        copy = Path(folder)
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            if (root / name).is_file():
                shutil.copy(root / name, copy)
        yield copy


def main(words: list[str] | None = typer.Argument(None)) -> None:
    """Make the breaks whose name or file has one of these words, or all."""
    chosen = [b for b in BREAKS if not words or any(word in b.name or word in b.file for word in words)]
    started, counts, others = time.perf_counter(), Counter[str](), list[str]()
    for name in HEAVY:
        importlib.import_module(name)
    with copied(ROOT) as copy:
        every = list(dict.fromkeys(test for made in chosen for test in made.tests))
        code, test = tested(copy, every, 10 * SECONDS)
        if code != 0:
            raise SystemExit(f"the tests do not pass on the code as it is: {test or f'pytest: {code}'}")
        for k, made in enumerate(chosen, start=1):
            outcome = judge(made, copy)
            ended = f"{outcome.what:8} {outcome.seconds:5.1f} s"
            line = f"{k:3}/{len(chosen)} {ended}  {made.name}  [{outcome.why}]"
            print(line, flush=True)
            counts[outcome.what] += 1
            if outcome.what != "killed":
                others.append(line)
    print(f"{dict(counts)} in {(time.perf_counter() - started) / 60:.1f} min", *others, sep="\n")
    raise SystemExit(2 if counts["stale"] + counts["broken"] else min(counts["survived"], 1))


if __name__ == "__main__":
    typer.run(main)

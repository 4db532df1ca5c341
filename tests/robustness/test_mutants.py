"""`make mutants` itself, on a toy project: what it says of a break is so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import mutants
from benchmarks.mutants import BREAKS

ROOT = Path(__file__).parents[2]

TOY = "def double(x):\n    return 2 * x\n\n\ndef unseen(x):\n    return x + 1\n"
TESTS = """from usboost.toy import double


def test_of_zero():
    assert double(0) == 0


def test_of_two():
    assert double(2) == 4
"""
STRICT = '[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n'
JUDGED = """
import json, sys
from pathlib import Path
import hypothesis, pytest
from benchmarks.mutants import Break, copied, judge, tested

own = ("tests/test_toy.py",)
breaks = [
    Break("noticed", "usboost/toy.py", "2 * x", "3 * x", own),
    Break("not noticed", "usboost/toy.py", "x + 1", "x - 1", own),
    Break("text that is not there", "usboost/toy.py", "4 * x", "5 * x", own),
    Break("text that is there twice", "usboost/toy.py", "return", "yield", own),
    Break("file that is not there", "usboost/gone.py", "x", "y", own),
    Break("test that is not there", "usboost/toy.py", "2 * x", "3 * x", ("tests/test_toy.py::test_gone",)),
    Break("code that is none", "usboost/toy.py", "2 * x", "2 *", own),
]
with copied(Path(sys.argv[1])) as copy:
    found = {made.name: [(o := judge(made, copy)).what, o.why] for made in breaks}
    found["mended again"] = tested(copy, own)
print(json.dumps(found))
"""


def test_every_break_is_of_code_that_is_there_once() -> None:
    broken = {
        made.name: count for made in BREAKS if (count := (ROOT / made.file).read_text().count(made.old)) != 1
    }
    assert broken == {}


def test_a_list_of_breaks_is_read() -> None:
    first = "a.py: tests/a.py tests/b.py::c\n  one\n- x: y\n-   z\n+ x\n  two\n- p\n+ q\n"
    one, two, three = mutants.breaks(first + "b.py: t.py\n  three\n- - r\n+ + s\n")
    assert (one.file, one.tests) == ("a.py", ("tests/a.py", "tests/b.py::c"))
    assert (one.name, one.old, one.new) == ("one", "x: y\n  z", "x")
    assert (two.file, two.old, two.new) == ("a.py", "p", "q")
    assert (three.file, three.tests, three.old, three.new) == ("b.py", ("t.py",), "- r", "+ s")


@pytest.mark.slow
def test_what_becomes_of_a_break(tmp_path: Path) -> None:
    files = {
        "usboost/__init__.py": "",
        "usboost/toy.py": TOY,
        "tests/test_toy.py": TESTS,
        "pyproject.toml": STRICT,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    words = [sys.executable, "-c", JUDGED, str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(done.stdout)
    assert found["noticed"] == ["killed", "tests/test_toy.py::test_of_two"]
    assert found["not noticed"] == ["survived", ""]
    for name, times in (("not there", 0), ("there twice", 2)):
        why = f"usboost/toy.py has its old text {times} times, not once"
        assert found[f"text that is {name}"] == ["stale", why]
    assert found["file that is not there"][0] == "stale"
    assert found["test that is not there"][0] == "broken"
    assert found["code that is none"][0] == "broken"
    assert found["mended again"] == [0, ""]
    assert (tmp_path / "usboost/toy.py").read_text() == TOY

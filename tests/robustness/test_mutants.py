"""The list of breaks of `make mutants`: it is read, and is of code that is there."""

from pathlib import Path

from benchmarks import mutants
from benchmarks.mutants import BREAKS

ROOT = Path(__file__).parents[2]


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

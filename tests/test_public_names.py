"""The names of `usboost` itself: there, documented, typed, and loaded only when they are asked for."""

import ast
import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import usboost

HEAVY = ("numpy", "pandas", "pyarrow", "scipy", "sklearn", "torch", "lightgbm", "optuna")


def test_importing_it_loads_nothing():
    code = f"import sys, usboost; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", [name for name in usboost.__all__ if name != "__version__"])
def test_each_name_is_documented(name):
    found = getattr(usboost, name)
    assert found.__name__ == name
    # `inspect.getdoc` would take a base class's
    assert inspect.cleandoc(found.__doc__ or "")
    assert f"`{name}`" in (usboost.__doc__ or "")
    assert name in dir(usboost)


def test_type_checkers_are_told_the_same_modules():
    tree = ast.parse(Path(usboost.__file__).read_text())
    told = {
        alias.asname: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == usboost._MODULES
    assert set(usboost.__all__) == {"__version__", *told}


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'ThreeWeakLearnerClassifier'"):
        usboost.ThreeWeakLearnerClassifier  # noqa: B018


@pytest.mark.parametrize("name", [name for name in usboost.__all__ if name != "__version__"])
def test_its_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    _, _, text = inspect.cleandoc(getattr(usboost, name).__doc__ or "").partition("\nExamples\n--------\n")
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert name in text and example.examples
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=told.append)
    assert not told, "".join(told)

"""The example in the docstring of every public name runs as it stands."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import usboost


@pytest.mark.parametrize("name", [name for name in usboost.__all__ if name != "__version__"])
def test_its_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    _, _, text = inspect.cleandoc(getattr(usboost, name).__doc__ or "").partition("\nExamples\n--------\n")
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert name in text and example.examples
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=told.append)
    assert not told, "".join(told)

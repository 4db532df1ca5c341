"""A disk that is full when a model is saved: a sentence, and what was there stays."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import SafetensorError

from benchmarks.robustness import valid_inputs
from tests.conftest import contents
from usboost.errors import UsboostError
from usboost.files import replacing
from usboost.fit.estimator import MultimodalClassifier
from usboost.models import persistence


@contextmanager
def no_larger_file(size: int) -> Iterator[None]:
    """As a full disk: no file of this process may have more bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", sorted(valid_inputs.models()))
def test_every_kind_of_model(tmp_path: Path, name: str) -> None:
    model, folder = valid_inputs.models()[name][0], tmp_path / "model"
    persistence.save(model, folder)
    before = contents(tmp_path)
    # each limit is just below the size of a file, so that each writer meets it
    for size in sorted({1, *(len(each) - 1 for each in before.values())}):
        with no_larger_file(size), pytest.raises(UsboostError) as told:
            persistence.save(model, folder)
        assert str(told.value) == f"{folder} cannot be written: File too large"
        assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["logistic", "lgbm", "forest", "2wl"])
def test_a_saved_estimator(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "z": rng.normal(size=60)})
    model = MultimodalClassifier(name, rounds=2, refit=False).fit(frame, frame.x > 0)
    model.save(tmp_path / "m")
    before = contents(tmp_path)
    for size in sorted({1, *(len(each) - 1 for each in before.values())}):
        with no_larger_file(size), pytest.raises(UsboostError, match=r"/m cannot be written: File too large"):
            model.save(tmp_path / "m")
        assert contents(tmp_path) == before


def test_whatever_a_writer_raises(tmp_path: Path) -> None:
    full = os.strerror(errno.ENOSPC)
    errors = [
        OSError(errno.ENOSPC, full, "a"),
        SafetensorError(f"Error while serializing: I/O error: {full} (os error 28)"),
        RuntimeError(f"catboost/file.cpp: (Error 28: {full}) can't write"),
        UsboostError(f"{tmp_path}/.a.tmp cannot be written: {full}"),
    ]
    for error in errors:
        with pytest.raises(UsboostError) as told, replacing(tmp_path / "new"):
            raise error
        assert str(told.value) == f"{tmp_path / 'new'} cannot be written: {full}"
        assert isinstance(told.value.__cause__, OSError)
        assert not list(tmp_path.iterdir())
    # others are passed on as they are
    with pytest.raises(KeyError), replacing(tmp_path / "new"):
        raise KeyError("a")
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "new"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "b")

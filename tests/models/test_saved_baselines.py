"""Others' methods that were saved before they had one wrapper predict the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import reloaded
from tests.models.test_saved import two_views
from usboost.models.persistence import load

SAVED = Path(__file__).parent / "saved_baselines"
EXPECTED = json.loads((SAVED / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_it_predicts_as_it_did(name: str, tmp_path: Path) -> None:
    model = load(SAVED / name)
    answers = model.predict if np.ndim(EXPECTED[name]) == 1 else model.predict_proba
    np.testing.assert_allclose(answers(two_views())[:5], EXPECTED[name], rtol=1e-6)
    again = reloaded(model, tmp_path / name)
    np.testing.assert_array_equal(again.predict(two_views()), model.predict(two_views()))
    assert files(tmp_path / name) == files(SAVED / name)


def files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*.*"))

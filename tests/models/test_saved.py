"""Models that earlier versions saved still load and predict the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from usboost.data.table import Table
from usboost.data.views import Views
from usboost.models.persistence import load, save

SAVED = Path(__file__).parent / "saved"
EXPECTED = json.loads((SAVED / "expected.json").read_text())


def two_views() -> Views:
    """The samples that the classifiers on views were asked about when they were saved."""
    rng = np.random.default_rng(0)

    def table() -> Table:
        numeric = rng.normal(size=(120, 2)).astype(np.float32)
        return Table(numeric, rng.integers(1, 4, size=(120, 1)).astype(np.int32), (4,), ("a", "b", "c"))

    return Views(U=table(), S=table())


def answers(name: str, model: object) -> np.ndarray:
    sequences = np.random.default_rng(1).normal(size=(60, 3, 2))
    if name == "earlyboost":
        return model.predict_proba(sequences)
    if name == "boosted_network_regressor":
        return model.predict(sequences[:, :, 0])
    return model.predict_proba(two_views())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_model_of_format_1_predicts_as_it_did(name: str, tmp_path: Path) -> None:
    model = load(SAVED / name)
    found = answers(name, model)
    np.testing.assert_allclose(found[:5], EXPECTED[name], rtol=1e-6, atol=1e-7)
    save(model, tmp_path / name)
    np.testing.assert_array_equal(answers(name, load(tmp_path / name)), found)


def test_what_a_learner_read_by_its_name_it_reads_by_its_parameter() -> None:
    learners = load(SAVED / "crossed").learners
    assert {name: list(learner.reads) for name, learner in learners.items()} == {
        "U+S": ["U", "S"],
        "S+U": ["S", "U"],
    }
    assert [list(stage.learners) for stage in load(SAVED / "earlyboost").stages_] == [
        ["frame_001"],
        ["frame_002"],
        ["frame_003"],
    ]

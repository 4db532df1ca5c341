"""Models that an earlier commit saved still load and predict the same."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import refuses, reloaded
from usboost import Table, Views, load

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
def test_a_saved_model_predicts_as_it_did(name: str, tmp_path: Path) -> None:
    model = load(SAVED / name)
    found = answers(name, model)
    np.testing.assert_allclose(found[:5], EXPECTED[name], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(answers(name, reloaded(model, tmp_path / name)), found)


@pytest.mark.parametrize("given", [1, 2, 4, None])
def test_another_format_is_refused(given: int | None, tmp_path: Path) -> None:
    shutil.copytree(SAVED / "crossed", tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": given}))
    refuses(f"has format {given}, not 3; train it again", load, tmp_path / "model")


# Others' methods, that were saved before they had one wrapper.


BASELINES = Path(__file__).parent / "saved_baselines"
ANSWERS = json.loads((BASELINES / "expected.json").read_text())


@pytest.mark.parametrize("name", ANSWERS)
def test_others_methods_predict_as_they_did(name: str, tmp_path: Path) -> None:
    model = load(BASELINES / name)
    answers = model.predict if np.ndim(ANSWERS[name]) == 1 else model.predict_proba
    np.testing.assert_allclose(answers(two_views())[:5], ANSWERS[name], rtol=1e-6, atol=1e-12)
    again = reloaded(model, tmp_path / name)
    np.testing.assert_array_equal(again.predict(two_views()), model.predict(two_views()))
    assert files(tmp_path / name) == files(BASELINES / name)


def files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*.*"))

"""Models that earlier versions saved still load and predict the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from usboost.data.images import Images
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.trees.learner import TreeLearner
from usboost.models.baselines.estimators import LightGBMBaseline
from usboost.models.persistence import load, save
from usboost.models.two_weak_learner import TwoWeakLearnerClassifier

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


def earlier(folder: Path) -> None:
    """A model's document as format 2 had it: no backbone is a small CNN, and its spec has no numbers."""
    path = folder / "model.json"
    document = json.loads(path.read_text())
    document["format"] = 2
    for part in parts(document):
        if part.get("class") == "Backbone":
            del part["parameters"]["random"]
        if isinstance(part.get("backbone"), str):
            part["imagenet"] = False
            del part["mean"], part["deviation"]
        part.pop("missing", None)
    path.write_text(json.dumps(document))


def parts(document: object) -> Iterator[dict[str, Any]]:
    """Every object within a JSON document."""
    if isinstance(document, dict):
        yield document
    inside = document.values() if isinstance(document, dict) else document
    for part in inside if isinstance(document, (dict, list)) else ():
        yield from parts(part)


SMALL_CNN = Backbone("small_cnn", pretrained=False, finetune="all", random=True)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", ["trained", "beside a table", "lightgbm"])
def test_a_model_on_pictures_of_format_2_predicts_as_it_did(kind: str, named: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    pixels = (rng.integers(0, 120, (60, 1, 16, 16)) + 100 * y[:, None, None, None]).astype(np.uint8)
    views = Views(U=Images(pixels), S=Table.from_numeric(rng.normal(size=(60, 2)).astype(np.float32)))
    network = NetworkLearner((4,), batch_size=16, device="cpu", backbone=SMALL_CNN)
    joined = {"U": clone(network).set_params(reads=("U", "S"))}
    model = {
        "trained": lambda: TwoWeakLearnerClassifier({"U": network, "S": TreeLearner()}, n_rounds=2),
        "beside a table": lambda: TwoWeakLearnerClassifier(joined, n_rounds=2),
        "lightgbm": lambda: LightGBMBaseline(n_trees=3, device="cpu", backbone=SMALL_CNN),
    }[kind]().fit(views, y)
    expected = model.predict_proba(views)
    save(model, tmp_path / "model")
    earlier(tmp_path / "model")
    if not named:
        path = tmp_path / "model" / "model.json"
        document = json.loads(path.read_text())
        for part in parts(document):
            if isinstance(part.get("backbone"), dict):
                part["backbone"] = None
        path.write_text(json.dumps(document))
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(views), expected)


def test_trees_on_random_embeddings_that_nothing_names_are_refused(tmp_path: Path) -> None:
    views = Views(S=Table.from_numeric(np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)))
    model = TwoWeakLearnerClassifier({"S": TreeLearner()}, n_rounds=1, validation_fraction=0)
    save(model.fit(views, np.arange(40) % 2), tmp_path / "model")
    earlier(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    assert load(tmp_path / "model")
    path.write_text(path.read_text().replace('"x0"', '"embedding_0"'))
    with pytest.raises(UsboostError, match="random weights; train it again"):
        load(tmp_path / "model")

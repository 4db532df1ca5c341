"""Images are tuned on a fit's training rows and the rows that stop it; no others are seen."""

from pathlib import Path
from typing import Any

import pytest

from tests.tables import bright
from usboost import Backbone
from usboost.learners.networks import finetuning
from usboost.learners.networks.embeddings import image_digests
from usboost.models.baselines.linear import LinearBaseline
from usboost.models.methods.ensemble import EnsembleClassifier
from usboost.models.tuned_images import fit_weighted


@pytest.fixture(autouse=True)
def one_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetuning, "EPOCHS", 1)
    monkeypatch.setattr(finetuning, "FEWEST", 1)


def linear(cache: Path) -> LinearBaseline:
    given = Backbone(finetune="auto", cache=str(cache / "embeddings"))
    return LinearBaseline(("U", "S"), backbone=given, device="cpu")


def test_each_fit_of_an_ensemble_is_tuned_on_the_rows_of_its_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the rows beside, which score the blend, choose nothing."""
    made, tuned = [], finetuning.tuned

    def spy(backbone: Backbone, train: Any, held: Any, device: Any) -> Backbone:
        made.append([set(map(bytes, image_digests(each.images[0]))) for each in (train, held)])
        return tuned(backbone, train, held, device)

    monkeypatch.setattr(finetuning, "tuned", spy)
    (views, y), (beside, y_beside) = bright(36, 32, 3), bright(16, 32, 3, seed=1)
    model = EnsembleClassifier({"one": linear(tmp_path), "two": linear(tmp_path)}, folds=2)
    fit_weighted(model, (views, y, None), (beside, y_beside, None))
    every = set(map(bytes, image_digests(views["U"])))
    assert len(made) == 4 and made[0] == made[1] and made[2] == made[3]
    for train, held in made:
        assert train | held == every and not train & held
    assert made[0][1] == made[2][0] and made[0][0] == made[2][1]
    assert len(list((tmp_path / "tuned").glob("*.safetensors"))) == 2

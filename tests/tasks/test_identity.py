"""What decides a fit of the pipeline: boosted features are those of the fit's own seed."""

from pathlib import Path
from typing import Any

import pytest

from tasks import settings
from tasks.fits import models
from tasks.fits.models import features_fingerprint, plan
from tasks.settings import Settings
from tests.workspaces import with_cards
from usboost.models.methods.boosted_features import BoostedFeatures

LOADED = settings.load(Path(__file__).parents[2] / "params.yaml")
SEEDS = (0, 1, 2)


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(with_cards(tmp_path, "ci_a"))


def identities(chosen: Settings = LOADED) -> list[dict[str, Any]]:
    return [plan("ci_a", "bfv_dnn", seed, chosen).identity for seed in SEEDS]


def test_features_are_those_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identities()
    assert [each["seed"] for each in before] == list(SEEDS)
    features = [features_fingerprint("ci_a", seed, LOADED) for seed in SEEDS]
    assert [each["features"] for each in before] == features
    assert len({each["features"] for each in before}) == len({repr(each["model"]) for each in before})
    assert [models.features_learner("ci_a", seed, LOADED).random_state for seed in SEEDS] == list(SEEDS)
    made = models.features_learner

    def other_of_seed_1(dataset: str, seed: int, chosen: Settings) -> BoostedFeatures:
        return made(dataset, seed, chosen).set_params(**({"n_trees": 7} if seed == 1 else {}))

    monkeypatch.setattr(models, "features_learner", other_of_seed_1)
    after = identities()
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, True]


def test_the_folds_of_features_count_where_there_are_some() -> None:
    def chosen(**changes: Any) -> Settings:
        return LOADED.model_copy(update={"features": LOADED.features.model_copy(update=changes)})

    inside = [features_fingerprint("ci_a", 0, chosen(out_of_fold=False, folds=k)) for k in (3, 4)]
    outside = [features_fingerprint("ci_a", 0, chosen(out_of_fold=True, folds=k)) for k in (3, 4)]
    assert inside[0] == inside[1] and len({*inside, *outside}) == 3

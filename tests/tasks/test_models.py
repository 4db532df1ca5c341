"""The named models are what the tables say."""

from pathlib import Path

import pytest
from sklearn.base import clone

from tasks import models, settings
from usboost.models.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.two_branch import TwoBranchNetworkClassifier

LOADED = settings.load(Path(__file__).parents[2] / "params.yaml")
PAPER = LOADED.model_copy(update={"profile": "paper"})


@pytest.mark.parametrize(
    ("name", "views", "target", "step", "rounds"),
    [
        ("2wl", {"U", "S"}, "gradient", "bayes", 2000),
        ("2wl_fix", {"U", "S"}, "gradient", "fixed", 2000),
        ("2wl2o", {"U", "S"}, "second_order", "bayes", 2100),
        ("2wl2o_fix", {"U", "S"}, "second_order", "fixed", 2100),
        ("1wl_s", {"S"}, "gradient", "bayes", 2000),
        ("1wl_u", {"U"}, "gradient", "bayes", 2000),
    ],
)
def test_boosting_models_in_the_paper_profile(name, views, target, step, rounds):
    model = models.build(name, "ci_a", PAPER, seed=3)
    assert set(model.learners) == views
    assert (model.target, model.step, model.n_rounds, model.random_state) == (target, step, rounds, 3)
    if step == "fixed":
        assert model.step_settings == {"value": 0.1}
    if step == "bayes":
        assert (model.step_settings["n_random"], model.step_settings["n_guided"]) == (10, 20)
    if "U" in views:
        assert (model.learners["U"].hidden, model.learners["U"].batch_size) == ((100, 50), 512)
    assert clone(model).get_params()["target"] == target


def test_networks_in_the_paper_profile():
    baseline = models.build("baseline", "ci_a", PAPER, seed=0)
    assert isinstance(baseline, TwoBranchNetworkClassifier)
    assert (baseline.fusion, baseline.optimizer, baseline.learning_rate) == ("product", "sgd", 0.001)
    bfv = models.build("bfv_dnn", "ci_b", PAPER, seed=0)
    assert isinstance(bfv, BoostedFeatureNetworkClassifier)
    assert bfv.features.n_trees == 1500
    assert bfv.network.dnn3 == [25]


def test_a_model_may_change_what_boosting_says():
    model = LOADED.model("2wl").model_copy(update={"shrinkage": 0.3, "start": "warm", "step": "newton"})
    changed = PAPER.model_copy(update={"models": {**PAPER.models, "mine": model}})
    built = models.build("mine", "ci_a", changed, seed=0)
    assert (built.shrinkage, built.learners["U"].start, built.step) == (0.3, "warm", "newton")
    assert models.build("2wl", "ci_a", changed, seed=0).shrinkage == 1.0


def test_rounds_of_the_profile_cap_the_papers():
    sizes = PAPER.sizes.model_copy(
        update={"boosting": PAPER.sizes.boosting.model_copy(update={"rounds": 100})}
    )
    capped = PAPER.model_copy(update={"profiles": {"paper": sizes}})
    assert models.build("2wl2o", "ci_b", capped, seed=0).n_rounds == 100


def test_variants_of_boosted_features():
    assert models.build("bfv_dnn_oof", "ci_a", PAPER, seed=0).out_of_fold
    assert models.build("leaf_dnn", "ci_a", PAPER, seed=0).encoding == "numbers"
    plain = models.build("bfv_dnn", "ci_a", PAPER, seed=0)
    assert (plain.encoding, plain.out_of_fold) == ("values", False)


def test_pictures_pretrained_may_be_a_file_for_the_small_cnn():
    pictures = LOADED.pictures.model_copy(update={"pretrained": "weights.safetensors"})
    model = models.build("crossed", "ct", LOADED.model_copy(update={"pictures": pictures}), seed=0)
    assert model.learners["U+S"].backbone.pretrained == "weights.safetensors"
    assert models.build("crossed", "ct", LOADED, seed=0).learners["U+S"].backbone.pretrained is False

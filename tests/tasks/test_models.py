"""The named models are what the tables say."""

import re
from pathlib import Path

import pytest
import yaml
from sklearn.base import clone

from tasks import settings
from tasks.fits import models
from tasks.settings import Model
from tests.conftest import refuses
from usboost.fit import build as one_computer
from usboost.learners.tree_learner import TreeLearner
from usboost.models import catalogue
from usboost.models.entry import TASKS
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier

PARAMS = Path(__file__).parents[2] / "params.yaml"
LOADED = settings.load(PARAMS)
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


def mine(**models):
    """params.yaml in the paper profile with these models, too."""
    document = yaml.safe_load(PARAMS.read_text()) | {"profile": "paper"}
    document["models"] |= models
    return settings.parse(document)


def test_a_model_may_change_what_boosting_says():
    own = {"like": "2wl", "shrinkage": 0.3, "step": "newton", "learners": {"U": {"start": "warm"}}}
    changed = mine(mine=own)
    built = models.build("mine", "ci_a", changed, seed=0)
    assert (built.shrinkage, built.learners["U"].start, built.step) == (0.3, "warm", "newton")
    assert built.learners["U"].hidden == (100, 50)
    assert models.build("2wl", "ci_a", changed, seed=0).shrinkage == 1.0


def test_a_models_own_bounds_keep_the_number_of_evaluations():
    document = yaml.safe_load(PARAMS.read_text()) | {"profile": "paper"}
    document["boosting"]["bayes"]["n_guided"] = 5
    built = models.build("2wl2o", "ci_a", settings.parse(document), seed=0)
    assert built.step_settings == {"n_random": 10, "n_guided": 5, "bounds": (0.0, 100.0)}


def test_another_kind_of_learner_is_chosen_in_params_yaml():
    changed = mine(mine={"like": "crossed", "learners": {"U": {"kind": "tree", "min_samples_leaf": 7}}})
    built = models.build("mine", "ci_a", changed, seed=0)
    assert {name: each.reads for name, each in built.learners.items()} == {"U": ("U", "S"), "S": ("S", "U")}
    first, second = built.learners.values()
    assert isinstance(first, TreeLearner)
    assert (first.min_samples_leaf, first.max_depth) == (7, 3)  # the depth is Table 2's
    assert (second.max_depth, second.max_leaves, second.category_l2) == (12, 64, 300)


@pytest.mark.parametrize(
    ("models_of_mine", "said"),
    [
        ({"mine": {}}, r"models\.mine is not in the catalogue; say what it is like"),
        ({"mine": {"like": "9wl"}}, r"models\.mine\.like: unknown model '9wl'; choose among baseline"),
        ({"2wl": {"like": "crossed"}}, r"models\.2wl\.like: the catalogue has that model"),
        ({"lgbm": {"shrinkage": 0.3}}, r"models\.lgbm\.shrinkage: LightGBM has no such setting"),
        ({"baseline": {"learners": {"S": {}}}}, r"models\.baseline\.learners: a two-branch network has no"),
        ({"mine": {"like": "2wl", "learners": {"T": {}}}}, r"models\.mine\.learners\.T has no kind"),
    ],
)
def test_a_mistake_in_a_model_of_ones_own_names_the_key(models_of_mine, said):
    refuses(f"^params.yaml: {said}", mine, **models_of_mine)


def test_a_mistake_in_a_learner_is_said_when_the_model_is_built():
    def built(**learner):
        changed = mine(mine={"like": "2wl", "learners": {"S": learner}})
        return models.build("mine", "ci_a", changed, seed=0)

    refuses(r"mine's learner 'S': unknown learner kind 'forest'; known are network", built, kind="forest")
    refuses(r"mine's learner 'S': a tree has no parameter 'depth'; it has max_d", built, depth=3)
    refuses(r"mine's learner 'S': max_depth cannot be 'five'", built, max_depth="five")
    assert built(max_depth="5", category_l2="1e-3").learners["S"].category_l2 == 1e-3  # YAML reads text


def test_rounds_of_the_profile_cap_the_papers():
    few = PAPER.sizes.boosting.model_copy(update={"rounds": 100})
    sizes = PAPER.sizes.model_copy(update={"boosting": few})
    capped = PAPER.model_copy(update={"profiles": {"paper": sizes}})
    assert models.build("2wl2o", "ci_b", capped, seed=0).n_rounds == 100


def test_variants_of_boosted_features():
    changed = PAPER.model_copy(update={"models": {"oof": Model(like="bfv_dnn", features="out_of_fold")}})
    assert models.build("oof", "ci_a", changed, seed=0).out_of_fold
    assert not models.build("bfv_dnn", "ci_a", PAPER, seed=0).out_of_fold


def test_images_pretrained_may_be_a_file_for_the_small_cnn():
    images = LOADED.images.model_copy(update={"pretrained": "weights.safetensors"})
    model = models.build("crossed", "ct", LOADED.model_copy(update={"images": images}), seed=0)
    assert model.learners["U"].backbone.pretrained == "weights.safetensors"
    assert models.build("crossed", "ct", LOADED, seed=0).learners["U"].backbone.pretrained is False


def of_user_table(profile="user", image="photo"):
    """params.yaml for a user's own table."""
    document = yaml.safe_load(PARAMS.read_text()) | {"profile": profile}
    document["user_table"] |= {"table": "parts.csv", "image": image}
    return document


def user_table(profile: str = "user", **images):
    document = of_user_table(profile)
    document["images"] |= images
    return settings.parse(document)


@pytest.mark.parametrize("profile", ["user", "paper"])
def test_a_persons_images_are_read_by_the_packaged_backbone_frozen(profile):
    loaded = user_table(profile)
    for name in ("baseline", "2wl", "crossed", "lgbm", "logistic"):
        built = models.build(name, "user_table", loaded, seed=0)
        found = built.learners["U"].backbone if name in ("2wl", "crossed") else built.backbone
        assert (found.name, found.pretrained, found.is_frozen) == ("tf_efficientnet_lite0", True, True)
    trained = models.build("baseline", "user_table", user_table(profile, finetune="last"), seed=0)
    assert trained.backbone.finetune == "last"


def test_the_paper_profile_has_the_papers_layers_for_a_persons_table():
    loaded = user_table("paper")
    assert models.build("baseline", "user_table", loaded, seed=0).dnn1 == [512]
    assert models.build("2wl", "user_table", loaded, seed=0).learners["U"].hidden == ()


@pytest.mark.parametrize(
    ("task", "name"), [(task, name) for task in TASKS for name in catalogue.compared(False, task)]
)
def test_a_persons_table_gets_the_command_lines_models(task, name):

    def parameters(model):
        found = model.get_params()
        for name, learner in (found.pop("learners", None) or {}).items():
            found |= {f"{name}__{key}": value for key, value in learner.get_params().items()}
        texts = {key: re.sub(r"\s", "", repr(value)) for key, value in found.items()}
        texts = {key: text.replace("cache='data/embeddings',", "") for key, text in texts.items()}
        return {key: text for key, text in texts.items() if not key.endswith("backbone__cache")}

    mine = models.build(name, "user_table", user_table(), 3, task)
    theirs = one_computer.build(name, images=True, seed=3, task=task)
    assert type(mine) is type(theirs)
    assert "data/embeddings" in repr(mine.get_params()) or name == "prior"
    assert parameters(mine) == parameters(theirs)


def test_a_model_for_classes_refuses_a_number():
    given = "2wl2o", "user_table", user_table(), 0, "regression"
    refuses(r"^2wl2o, .* is not for regression; it is for classification$", models.build, *given)


def test_params_yaml_chooses_the_loss_of_a_number():
    document = of_user_table()
    document["models"]["linear_trees"] = {"loss": "huber", "monitor": "mae"}
    built = models.build("linear_trees", "user_table", settings.parse(document), 0, "regression")
    assert (built.loss, built.monitor) == ("huber", "mae_val")


def test_params_yaml_can_change_them():
    document = of_user_table() | {"device": "cpu"}
    document["profiles"]["user"]["rounds"] = 7
    document["images"] |= {"backbone": "resnet50", "finetune": "last", "size": 64}
    document["models"]["2wl"] = {"shrinkage": 0.2, "learners": {"U": {"hidden": [9]}}}
    document["models"]["lgbm"] = {"set": {"learning_rate": 0.3}}
    changed = settings.parse(document)
    built = models.build("2wl", "user_table", changed, seed=0)
    assert (built.n_rounds, built.shrinkage, built.patience) == (7, 0.2, (20, 0.2))
    network = built.learners["U"]
    assert (tuple(network.hidden), network.device, network.backbone.name) == ((9,), "cpu", "resnet50")
    two_branch = models.build("baseline", "user_table", changed, seed=0)
    assert (two_branch.n_epochs, two_branch.device) == (7, "cpu")
    assert (two_branch.backbone.finetune, two_branch.backbone.size) == ("last", 64)
    found = models.build("lgbm", "user_table", changed, seed=0)
    assert (found.n_trees, found.learning_rate) == (7, 0.3)


@pytest.mark.parametrize("profile", ["user", "paper"])
@pytest.mark.parametrize(
    ("image", "of_2wl", "of_crossed", "of_baseline"),
    [
        (None, [("U",), ("S",)], [("U",), ("S",)], ("U", "S")),
        ("photo", [("U",), ("S",)], [("U", "S"), ("S", "U")], ("U", "S")),
        (
            ["a", "b"],
            [("U:a", "U:b"), ("S",)],
            [("U:a", "U:b", "S"), ("S", "U:a", "U:b")],
            ("U:a", "U:b", "S"),
        ),
    ],
)
def test_every_profile_has_the_tables_views(profile, image, of_2wl, of_crossed, of_baseline):
    loaded = settings.parse(of_user_table(profile, image))
    for name, expected in (("2wl", of_2wl), ("crossed", of_crossed)):
        built = models.build(name, "user_table", loaded, seed=0)
        assert [learner.reads or (key,) for key, learner in built.learners.items()] == expected
    assert tuple(models.build("baseline", "user_table", loaded, seed=0).views) == of_baseline
    of_lgbm = ("S",) if image is None else of_baseline
    assert models.build("lgbm", "user_table", loaded, seed=0).views == of_lgbm


def test_of_a_persons_table_bfv_dnn_fits_its_gbm():
    loaded = user_table()
    assert loaded.model("bfv_dnn").needs_features
    assert not models.entry_of("bfv_dnn", "user_table", loaded).needs_features
    assert models.entry_of("bfv_dnn", "ci_a", loaded).needs_features


def test_the_papers_backbones_are_trained_and_so_is_the_demos():
    for dataset, name in (("ct", "vgg16"), ("mi", "resnet50")):
        found = models.build("baseline", dataset, PAPER, seed=0).backbone
        assert (found.name, found.finetune) == (name, "all")
    # the digits have MI's settings, and are read by the demo's CNN, which random weights must not freeze
    drawn = models.build("2wl", "digits", LOADED, seed=0)
    assert drawn.monitor == "risk_val" and drawn.shrinkage == LOADED.sizes.boosting.shrinkage
    drawn = drawn.learners["U"]
    assert (drawn.backbone.name, drawn.backbone.finetune, drawn.hidden) == ("small_cnn", "all", (32,))
    # the drawn table is read as `usboost fit` reads one
    own = models.build("linear_trees", "user_table", LOADED, seed=0)
    assert (own.backbone.name, own.backbone.finetune) == ("tf_efficientnet_lite0", "auto")

"""Networks: the look-up layer, optimizers, two branches, images, and models to files and back."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from tests.conftest import encoded, make_views, refuses, reloaded
from tests.tables import bright, sequences
from usboost import Backbone, NetworkLearner, TreeLearner, UsboostError, Views, load, save
from usboost.boosting.rounds import STAGES_PER_SHARD
from usboost.data.images import EncodedImages, Images
from usboost.learners.base import Target
from usboost.learners.networks.architectures import SmallCNN, load_backbone, read_weights, weights_file
from usboost.learners.networks.image_network import ImageNetwork
from usboost.learners.networks.inputs import TableLinear, dense_network, initialise
from usboost.learners.networks.train import make_optimizer
from usboost.models.baselines.trees import LightGBMBaseline
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.methods.boosted_features import BoostedFeatures
from usboost.models.methods.boosted_network import BoostedNetworkClassifier, BoostedNetworkRegressor
from usboost.models.methods.earlyboost import EarlyBoostClassifier
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier


def test_the_lookup_layer_is_a_dense_one_hot_layer():
    layer = TableLinear(3, [4, 2], 5)
    initialise(layer, 0)
    rng = np.random.default_rng(0)
    numeric = torch.from_numpy(rng.normal(size=(7, 3)).astype(np.float32))
    codes = torch.from_numpy(np.column_stack([rng.integers(0, 4, 7), 4 + rng.integers(0, 2, 7)]))
    one_hot = torch.zeros(7, 6)
    for j in range(2):
        one_hot[torch.arange(7), codes[:, j]] = 1
    dense = torch.cat([numeric, one_hot], dim=1) @ torch.cat([layer.weight.T, layer.lookup]) + layer.bias
    torch.testing.assert_close(layer((numeric, codes)), dense)


@pytest.mark.parametrize("slower", [False, True])
@pytest.mark.parametrize("name", ["sgd", "rmsprop", "adam"])
def test_optimizers_are_torchs(name, slower):
    torch.manual_seed(0)
    x, y = torch.randn(20, 4), torch.randn(20, 2)
    ours, theirs = dense_network([4, 8, 2]), dense_network([4, 8, 2])
    initialise(ours, 1)
    theirs.load_state_dict(ours.state_dict())
    kinds = {"sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop, "adam": torch.optim.Adam}
    groups = [{"params": layer.parameters(), "lr": 0.01} for layer in theirs]
    if slower:
        groups[0]["lr"] = 0.001
        for parameter in ours[0].parameters():
            parameter.rate = 0.1
    other = kinds[name](groups)
    flat = make_optimizer(name, ours, 0.01)
    for _ in range(20):
        for network, optimizer in ((ours, flat), (theirs, other)):
            optimizer.zero_grad()
            (network(x) - y).square().mean().backward()
            optimizer.step()
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], value, rtol=1e-5, atol=1e-6)


def network_outputs(seed, start=None, weights=None, start_rule="fresh", **changes):
    views, y = make_views(n=200)
    settings = {"hidden": (8,), "batch_size": 32, "device": "cpu", "start": start_rule, **changes}
    learner = NetworkLearner(**settings)
    prepared = learner.prepare(views["U"])
    target = Target((y[:, None] * 2.0) - 1, weights)
    fitted = learner.trainer(prepared, 1).fit(target, seed=seed, start=start)
    return fitted, fitted.predict(prepared)


def test_a_seed_decides_everything_and_torchs_own_is_untouched():
    before = torch.random.get_rng_state()
    np.testing.assert_array_equal(network_outputs(3)[1], network_outputs(3)[1])
    assert not np.array_equal(network_outputs(3)[1], network_outputs(4)[1])
    assert torch.equal(before, torch.random.get_rng_state())


def test_warm_start_goes_on_where_the_last_round_ended():
    first, _ = network_outputs(0)
    warm, _ = network_outputs(1, start=first, learning_rate=1e-12, start_rule="warm")
    fresh, _ = network_outputs(1, start=first, learning_rate=1e-12)
    for key, value in first.weights.items():
        np.testing.assert_allclose(warm.weights[key], value, atol=1e-6)
    assert any(not np.allclose(fresh.weights[key], value, atol=1e-3) for key, value in first.weights.items())


def test_a_round_has_so_many_batches_whatever_the_number_of_rows():
    """More passes are those of `epochs`; a part of one leaves the other rows unseen."""
    views, _ = make_views(n=320)
    table = views["U"]
    target = np.random.default_rng(0).normal(size=(320, 2))

    def fitted(target=target, **settings):
        learner = NetworkLearner(hidden=(6,), batch_size=32, **settings)
        prepared = learner.prepare(table)
        return learner.trainer(prepared, 2).fit(Target(target), seed=5).predict(prepared)

    np.testing.assert_array_equal(fitted(batches_per_round=(30, 50)), fitted(epochs=3))
    np.testing.assert_array_equal(fitted(batches_per_round=(5, 50)), fitted())
    np.testing.assert_array_equal(
        fitted(batches_per_round=(5, 15), epochs=2), fitted(batches_per_round=(15, 15))
    )
    first = torch.randperm(320, generator=torch.Generator().manual_seed(5))[: 4 * 32].numpy()
    changed = np.where(np.isin(np.arange(320), first)[:, None], target, 1e3)
    np.testing.assert_array_equal(fitted(changed, batches_per_round=(0, 4)), fitted(batches_per_round=(0, 4)))
    assert not np.array_equal(fitted(batches_per_round=(0, 4)), fitted(batches_per_round=(0, 5)))
    for steps in ((0, 0), (5, 4), (-1, 4)):
        refuses("batches_per_round", fitted, batches_per_round=steps)


def test_weights_are_repetitions():
    """A sample of weight 3 counts as three samples, for the exact minimiser of a linear network."""
    views, y = make_views(n=150)
    target = (y[:, None] * 2.0) - 1 + views["U"].numeric[:, :1]
    weights = np.where(np.arange(150) % 3 == 0, 3.0, 1.0)
    learner = NetworkLearner(hidden=(), batch_size=150, epochs=3000, optimizer="adam", learning_rate=0.02)
    prepared = learner.prepare(views["U"])
    got = learner.trainer(prepared, 1).fit(Target(target, weights), seed=0).predict(prepared)
    table = views["U"]
    one_hot = [np.eye(5)[table.codes[:, j]] for j in range(2)]
    design = np.column_stack([table.numeric, np.ones(150), *one_hot])
    root = np.sqrt(weights)[:, None]
    solution = np.linalg.lstsq(design * root, target * root, rcond=None)[0]
    np.testing.assert_allclose(got, design @ solution, atol=0.02)


@pytest.mark.parametrize("fusion", ["concat", "product"])
def test_two_branches_by_hand(fusion):
    views, y = make_views(3, n=120)
    model = TwoBranchNetworkClassifier(
        dnn1=(4,), dnn2=(6, 5), dnn3=(7,), fusion=fusion, n_epochs=2, device="cpu"
    ).fit(views, y)
    w = {key: value.astype(np.float64) for key, value in model.network_.weights.items()}

    def first_layer(table, name):
        offsets = np.cumsum([0, *table.cardinalities])[:-1]
        looked_up = w[f"{name}.0.lookup"][table.codes + offsets].sum(axis=1)
        return table.numeric @ w[f"{name}.0.weight"].T + w[f"{name}.0.bias"] + looked_up

    def relu(x):
        return np.maximum(x, 0)

    one = relu(first_layer(views["U"], "first"))
    two = relu(relu(first_layer(views["S"], "second")) @ w["second.2.weight"].T + w["second.2.bias"])
    if fusion == "product":
        joint = (one @ w["match.weight"].T + w["match.bias"]) * two
    else:
        joint = np.concatenate([one, two], axis=1)
    logits = (
        relu(joint @ w["joint.0.weight"].T + w["joint.0.bias"]) @ w["joint.2.weight"].T + w["joint.2.bias"]
    )
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(views), expected, rtol=1e-4, atol=1e-5)


def test_streamed_images_train_the_same_network():

    import pyarrow as pa

    views, y = bright(60, 24)
    images = views["U"]
    files = [encoded(image) for image in images.pixels[:, 0]]
    streamed = EncodedImages(pa.array(files, pa.binary()), channels=1, height=24, width=24)
    learner = NetworkLearner(hidden=(4,), batch_size=16, device="cpu")
    got = []
    for view in (images, streamed):
        prepared = learner.prepare(view)
        fitted = learner.trainer(prepared, 1).fit(Target(y[:, None].astype(float)), seed=0)
        got.append(fitted.predict(prepared))
    np.testing.assert_array_equal(got[0], got[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vgg16", "resnet50"])
def test_torchvision_weights_from_its_cache(name, tmp_path, monkeypatch):
    import torchvision

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    refuses(f"{name}.*pretrained: false", read_weights, name, True)
    torch.manual_seed(0)
    if name == "vgg16":  # with other fully connected layers: torchvision's take seconds to draw and to write
        features = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["D"])
        whole = torch.nn.ModuleDict({"features": features, "classifier": torch.nn.Linear(3, 2)}).eval()
    else:
        whole = torchvision.models.resnet50().eval()
    path = weights_file(name)[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(whole.state_dict(), path)
    images = bright(2, 24, 3)[0]["U"]
    backbone = Backbone(name, pretrained=True, finetune="none", size=64)
    got = backbone.embed(images, torch.device("cpu"))
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = torch.nn.functional.interpolate(
        torch.from_numpy(images.pixels).float() / 255, (64, 64), mode="bilinear", antialias=True
    )
    x = (x - mean.view(1, 3, 1, 1)) / deviation.view(1, 3, 1, 1)
    with torch.no_grad():
        if name == "vgg16":
            expected = whole["features"](x).mean(dim=(2, 3))
        else:
            expected = torch.nn.Sequential(*list(whole.children())[:-1])(x).flatten(1)
    np.testing.assert_allclose(got, expected.numpy(), rtol=2e-3, atol=1e-3)
    other = "resnet50" if name == "vgg16" else "vgg16"
    from usboost.learners.networks.image_network import ImageNetwork

    spec = Backbone(other, False, size=32).spec(images)
    with pytest.raises(UsboostError, match=f"are not those of {other}"):
        load_backbone(ImageNetwork(spec, []).backbone, other, read_weights(name, True), str(path))


NET = NetworkLearner(hidden=(6,), epochs=3, batch_size=32, device="cpu")
TWO = TwoBranchNetworkClassifier(dnn1=(4,), dnn2=(4,), dnn3=(4,), n_epochs=2, device="cpu")
MODELS = {
    "2wl": TwoWeakLearnerClassifier({"U": NET, "S": TreeLearner()}, n_rounds=3),
    "1wl_s": TwoWeakLearnerClassifier({"S": TreeLearner(engine="sklearn")}, n_rounds=3),
    "baseline": TWO,
    "bfv_dnn": BoostedFeatureNetworkClassifier(BoostedFeatures(n_trees=6), TWO),
    "lgbm": LightGBMBaseline(n_trees=20, num_leaves=5),
    "bnn": BoostedNetworkClassifier(learner=NET, n_rounds=3),
    "bnn cross-entropy": BoostedNetworkClassifier(loss="cross_entropy", learner=NET, n_rounds=3),
    "bnn of numbers": BoostedNetworkRegressor(learner=NET, n_rounds=2),
    "earlyboost": EarlyBoostClassifier(),
    "earlyboost logistic": EarlyBoostClassifier(LogisticRegression()),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_from_its_folder_as_it_was(name, n_classes, tmp_path):
    x, y = make_views(n_classes, n=200)
    if name.startswith("bnn"):
        x = x["S"]
    elif name.startswith("early"):
        x, y = sequences(n_classes, n=150, frames=4)
    numbers = name == "bnn of numbers"
    model = clone(MODELS[name]).fit(x, y * 1.5 if numbers else np.array(["a", "b", "c"])[y])
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    if not numbers:
        np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    assert type(again) is type(model)


def test_images_and_a_table_come_back(tmp_path):
    views, y = bright(80, 24)
    model = TwoWeakLearnerClassifier(
        {
            "U": NetworkLearner(
                hidden=(8,), batch_size=16, backbone=Backbone("small_cnn", False, "all", augment="flip_shift")
            ),
            "S": TreeLearner(),
        },
        n_rounds=6,
        validation_fraction=0,
    ).fit(views, y)
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(views), model.predict_proba(views))
    assert model.score(views, y) > 0.8


def test_many_stages_go_to_shards(tmp_path):
    views, y = make_views(n=60)
    model = TwoWeakLearnerClassifier(
        {"S": TreeLearner(max_depth=1)}, n_rounds=STAGES_PER_SHARD + 5, shrinkage=0.01, validation_fraction=0
    ).fit(views, y)
    save(model, tmp_path / "model")
    assert len(list((tmp_path / "model").glob("arrays-*.safetensors"))) == 2
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(views), model.predict_proba(views))


@pytest.mark.parametrize(("side", "size"), [(7, None), (40, 4)])
def test_images_that_are_too_small_are_refused(side, size):
    view = Images(np.zeros((3, 1, side, side), dtype=np.uint8))
    refuses("8 pixels or more", Backbone("small_cnn", False, size=size).spec, view)
    assert Backbone("small_cnn", False, size=8).spec(view)["size"] == 8


def test_threads_draw_weights_as_one_does():
    layers = [torch.nn.Linear(300, 300) for _ in range(80)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(initialise, layers, range(80)))
    for seed in range(80):
        initialise(alone := torch.nn.Linear(300, 300), seed)
        assert torch.equal(layers[seed].weight, alone.weight)


def save_backbone(weights, path):
    """Write the small CNN inside a network's weights."""
    parts = {key.partition("backbone.")[2]: torch.tensor(each) for key, each in weights.items()}
    save_file({key: each for key, each in parts.items() if key}, path)


def test_a_small_cnn_starts_from_the_weights_of_another_network(tmp_path):
    views, y = bright(60, 24)
    images = views["U"]
    learner = NetworkLearner((4,), epochs=3, device="cpu")
    prepared = learner.prepare(images)
    fitted = learner.trainer(prepared, 1).fit(Target(y[:, None].astype(float)), seed=0)
    save_backbone(fitted.weights, tmp_path / "small.safetensors")
    trained = Backbone("small_cnn", str(tmp_path / "small.safetensors"), "all", cache=False)
    module = fitted.module(torch.device("cpu"))
    module.head = torch.nn.Identity()
    with torch.no_grad():
        expected = module((torch.from_numpy(images.pixels),)).numpy()
    np.testing.assert_allclose(trained.embed(images, torch.device("cpu")), expected, rtol=1e-3, atol=1e-3)
    random = Backbone("small_cnn", False, cache=False, random=True).embed(images, torch.device("cpu"))
    assert not np.allclose(random, expected, rtol=1e-2, atol=1e-2)
    warm = NetworkLearner((4,), epochs=1, learning_rate=1e-12, backbone=trained, device="cpu")
    started = warm.trainer(warm.prepare(images), 1).fit(Target(y[:, None].astype(float)), seed=1)
    for name, array in started.weights.items():
        if "backbone" in name:
            np.testing.assert_allclose(array, fitted.weights[name], atol=1e-6)
    refuses("published", Backbone("small_cnn", pretrained=True).spec, images)


@pytest.mark.parametrize("kind", ["lgbm", "joined", "head"])
def test_a_model_on_frozen_images_keeps_the_weights_it_was_fitted_with(kind, tmp_path):
    views, y = bright(60, 24)
    images = views["U"]
    learner = NetworkLearner((4,), epochs=1, device="cpu")
    fitted = learner.trainer(learner.prepare(images), 1).fit(Target(y[:, None].astype(float)), seed=0)
    weights = tmp_path / "somewhere" / "small.safetensors"
    weights.parent.mkdir()
    save_backbone(fitted.weights, weights)
    frozen = Backbone("small_cnn", pretrained=str(weights), finetune="none")
    network = NetworkLearner((4,), backbone=frozen, device="cpu")
    model = {
        "lgbm": lambda: LightGBMBaseline(backbone=frozen, n_trees=3, device="cpu"),
        "joined": lambda: TwoWeakLearnerClassifier(
            {"U": clone(network).set_params(reads=("U", "S")), "S": TreeLearner(reads=("S", "U"))}, n_rounds=2
        ),
        "head": lambda: TwoWeakLearnerClassifier({"U": network, "S": TreeLearner()}, n_rounds=2),
    }[kind]().fit(views, y)
    save(model, tmp_path / "model")
    expected = model.predict_proba(views)
    shutil.rmtree(weights.parent)
    shutil.move(tmp_path / "model", tmp_path / "moved")
    again = load(tmp_path / "moved")
    np.testing.assert_array_equal(again.predict_proba(views), expected)
    save(again, tmp_path / "copy")
    shutil.rmtree(tmp_path / "moved")
    np.testing.assert_array_equal(load(tmp_path / "copy").predict_proba(views), expected)


@pytest.mark.parametrize("there", [True, False])
def test_a_trained_model_is_saved_whatever_its_first_weights_are(there, tmp_path):
    """A file of bfloat16, or none any more: the network's own weights count."""
    views, y = bright(60, 24)
    images = views["U"]
    weights = {name: tensor.bfloat16() for name, tensor in SmallCNN(1).state_dict().items()}
    first = tmp_path / "first.pth"
    torch.save(weights, first)
    network = NetworkLearner((4,), backbone=Backbone("small_cnn", str(first), "all"), device="cpu")
    model = TwoWeakLearnerClassifier({"U": network}, n_rounds=1).fit(Views(U=images), y)
    if not there:
        first.unlink()
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(Views(U=images)), model.predict_proba(Views(U=images)))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 13])
def test_small_networks_pool_as_torch_does_with_channels_last(channels, side):
    net = SmallCNN(channels)
    initialise(net, 0)
    spec = {"backbone": "small_cnn", "channels": channels, "size": None, "augment": "none"}
    whole = ImageNetwork({**spec, "mean": [0.5] * channels, "deviation": [0.25] * channels}, [])
    whole.backbone = net
    seen = []
    net[0].register_forward_hook(lambda *given: seen.append(given[2]))
    pixels = torch.from_numpy(
        np.random.default_rng(0).integers(0, 256, (4, channels, side, side), dtype=np.uint8)
    )
    with_gradients = whole((pixels,))
    with torch.no_grad():
        np.testing.assert_array_equal(whole((pixels,)), with_gradients.detach())
    for convolved in seen:
        assert convolved.is_contiguous(memory_format=torch.channels_last)
    layers = [torch.nn.MaxPool2d(2) if k in (1, 5, 9) else layer for k, layer in enumerate(net.children())]
    plain = torch.nn.Sequential(*layers)((pixels.float() / 255 - 0.5) / 0.25)
    torch.testing.assert_close(with_gradients, plain)

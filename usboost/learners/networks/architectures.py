"""Backbones by name: the networks themselves, how their images are normalised, where they are cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from usboost.errors import UsboostError, silenced

DEFAULT = "tf_efficientnet_lite0"
TORCHVISION = ("vgg16", "resnet50")  # the papers'; timm's own of these names are not offered

IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])  # mean and deviation that torchvision trained with
PLAIN = ([0.5], [0.25])

_SMALLEST = {"small_cnn": 8, "vgg16": 32, "resnet50": 1}  # pixels a side that its poolings leave one of
_SMALLEST_OF_TIMM = 32

_VGG16_LAST = 24  # the first layer of its last convolutional block
_RESNET50_LAST = 7  # layer4 among torchvision's children


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
    """What is published of a backbone of timm.

    Attributes
    ----------
    mean, deviation : of each channel, images being in [0, 1].
    side : pixels a side, where it reads no other size.
    repository : where its weights are on the Hugging Face hub, or None.
    """

    mean: list[float]
    deviation: list[float]
    side: int | None
    repository: str | None


def check_name(name: str) -> None:
    """Refuse what is no backbone. Raises `UsboostError` if there is no backbone of this name."""
    if name in ("small_cnn", *TORCHVISION):
        return
    if not isinstance(name, str) or ":" in name or "/" in name or name not in _names_of_timm():
        raise UsboostError(
            f"unknown backbone {name!r}; choose {DEFAULT}, small_cnn, {', '.join(TORCHVISION)} "
            "or a name of timm.list_models()"
        )


def is_timms(name: str) -> bool:
    """Whether timm builds it."""
    return name not in ("small_cnn", *TORCHVISION)


def smallest(name: str) -> int:
    """Pixels a side that a backbone needs."""
    return _SMALLEST.get(name, _SMALLEST_OF_TIMM)


@cache
def published(name: str) -> Published:
    """Of a backbone of timm, what its authors say of it."""
    with silenced():
        import timm

    about: Any = timm.get_pretrained_cfg(name)
    if about is None:
        return Published(*IMAGENET, None, None)
    side = int(about.input_size[-1]) if about.fixed_input_size else None
    return Published(list(about.mean), list(about.std), side, about.hf_hub_id)


def normalisation(name: str, channels: int, pretrained: bool) -> tuple[list[float], list[float]]:
    """Mean and deviation of the channels that a backbone's weights expect, images being in [0, 1]."""
    if name == "small_cnn" or (name in TORCHVISION and not pretrained):
        return PLAIN
    if name in TORCHVISION:
        return IMAGENET
    about = published(name)
    return about.mean, about.deviation


def build(name: str, channels: int) -> tuple[nn.Module, int]:
    """A backbone with any weights, from images (n, C, H, W) to features (n, d), and d.

    All but the small CNN read three channels. torch's global generator is left as it is.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # what `initialise` does not draw is the same each time
        if name == "small_cnn":
            return SmallCNN(channels), SmallCNN.n_features
        if name == "vgg16":
            with silenced():
                import torchvision

            # `vgg16()` would draw 124 million weights more, of layers that are not used
            features = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["D"])
            return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 512
        if name == "resnet50":
            with silenced():
                import torchvision

            resnet = torchvision.models.resnet50()
            return nn.Sequential(*list(resnet.children())[:-1], nn.Flatten()), 2048
        with silenced():
            import timm

        network: Any = timm.create_model(name, pretrained=False, num_classes=0)
        return network, int(getattr(network, "head_hidden_size", None) or network.num_features)


def split(backbone: Any, name: str, blocks: int = 1) -> tuple[nn.Module, nn.Module]:
    """A backbone cut before its last block or blocks: what stays as it is, and what is trained further.

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
        return (
            nn.Sequential(*stem, *layers[:-blocks]),
            nn.Sequential(*layers[-blocks:], backbone.global_pool),
        )
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
        out: torch.Tensor = self.first(tokens)
        return out


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
        out: torch.Tensor = self.fc_norm(pooled)
        return out


@cache
def _names_of_timm() -> frozenset[str]:
    with silenced():  # what it imports adds filters of its own to the process's
        import timm

    return frozenset(timm.list_models())

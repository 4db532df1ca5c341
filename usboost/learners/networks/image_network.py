"""Networks on pictures: a convolutional backbone, then fully connected layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from usboost.learners.networks.modules import dense_network

AUGMENTATIONS = ("none", "flip", "flip_shift")


SHIFT = 8  # a shifted picture moves by at most 1/SHIFT of its side


SMALLEST = {"small_cnn": 8, "vgg16": 32, "resnet50": 1}  # pixels a side that its poolings leave one of


IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])  # mean and deviation that torchvision trained with


class SmallCNN(nn.Sequential):
    """Three convolutions for small pictures and small machines: 256 features.

    Group normalisation, because it needs no running statistics: a weak learner may see one epoch.
    """

    n_features = 256

    def __init__(self, channels: int) -> None:
        layers: list[nn.Module] = []
        for before, after in ((channels, 16), (16, 32), (32, 64)):
            # pooled first: norm and activation then cost a quarter
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.MaxPool2d(2)]
            layers += [nn.GroupNorm(4, after), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())


def _torchvision(name: str) -> tuple[nn.Module, int]:
    """The convolutional part of a torchvision network, averaged over positions, and its width."""
    import torchvision

    if name == "vgg16":  # `vgg16()` would draw 124 million weights more, of layers that are not used
        features = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["D"])
        return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 512
    resnet = torchvision.models.resnet50()
    return nn.Sequential(*list(resnet.children())[:-1], nn.Flatten()), 2048


class ImageNetwork(nn.Module):
    """A backbone on uint8 pictures (n, C, H, W), then fully connected layers of the given widths."""

    def __init__(self, spec: dict[str, Any], widths: list[int]) -> None:
        super().__init__()

        self.spec = spec
        self.generator = torch.Generator()
        self.backbone: nn.Module
        with torch.random.fork_rng(devices=[]):  # `initialise` draws the weights that count
            if spec["backbone"] == "small_cnn":
                self.backbone, n_features = SmallCNN(spec["channels"]), SmallCNN.n_features
            else:
                self.backbone, n_features = _torchvision(spec["backbone"])
        self.head: nn.Module = nn.Identity()
        if widths:
            self.head = nn.Sequential(nn.ReLU(), dense_network([n_features, *widths]))
        mean, deviation = IMAGENET if spec["imagenet"] else ([0.5], [0.25])
        self.mean: torch.Tensor
        self.deviation: torch.Tensor
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).view(1, -1, 1, 1), persistent=False)

    def forward(self, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
        pictures = tensors[0].float().div_(255)
        if self.training and self.spec["augment"] != "none":
            pictures = self._augmented(pictures)
        size = self.spec["size"]
        if size and tuple(pictures.shape[-2:]) != (size, size):
            pictures = functional.interpolate(pictures, (size, size), mode="bilinear", antialias=True)
        if self.spec["backbone"] != "small_cnn" and pictures.shape[1] == 1:
            pictures = pictures.expand(-1, 3, -1, -1)
        pictures = (pictures - self.mean) / self.deviation
        pictures = pictures.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=pictures.is_cuda):
            out = self.head(self.backbone(pictures))
        return out.float()

    def _augmented(self, pictures: torch.Tensor) -> torch.Tensor:
        flip = torch.rand(len(pictures), generator=self.generator) < 0.5
        pictures = torch.where(flip.view(-1, 1, 1, 1).to(pictures.device), pictures.flip(-1), pictures)
        if self.spec["augment"] == "flip_shift":
            most = max(pictures.shape[-1] // SHIFT, 1)
            across, down = torch.randint(-most, most + 1, (2,), generator=self.generator).tolist()
            # one shift a batch: a roll of what was padded by repeating the border
            padded = functional.pad(pictures, (most, most, most, most), mode="replicate")
            height, width = pictures.shape[-2:]
            top, left = most + down, most + across
            pictures = padded[:, :, top : top + height, left : left + width]
        return pictures

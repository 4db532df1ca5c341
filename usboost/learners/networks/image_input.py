"""Networks on pictures: trained whole, or a head on the embeddings of a frozen backbone."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import nn

from usboost.data.images import EncodedImages, Images
from usboost.learners.networks.backbones import Backbone, embedded
from usboost.learners.networks.batches import Batches, Resident, Streamed
from usboost.learners.networks.image_network import SMALLEST, ImageNetwork
from usboost.learners.networks.inputs import Checked, Spec
from usboost.learners.networks.table_input import TableInput


class ImageSpec(Checked):
    """Of a network on pictures; see `usboost.learners.networks.backbones.Backbone`."""

    view: Literal["image"]
    channels: Literal[1, 3]
    backbone: Literal["small_cnn", "vgg16", "resnet50"]
    size: Annotated[int, Field(ge=1, le=4096)] | None
    augment: Literal["none", "flip", "flip_shift"]
    imagenet: bool

    @model_validator(mode="after")
    def _large_enough(self) -> ImageSpec:
        if self.size is not None and self.size < SMALLEST[self.backbone]:
            raise ValueError(f"size {self.size} is too small for {self.backbone}")
        return self


class ImageInput:
    """Pictures, in memory or decoded batch by batch."""

    kind: ClassVar[str] = "image"
    checked: ClassVar[type[Checked]] = ImageSpec

    @staticmethod
    def prepare(
        view: Images | EncodedImages, device: torch.device, reader: Any = None
    ) -> tuple[Spec, Batches]:
        """Specification and rows; of a frozen backbone the table of its embeddings, for a head."""
        backbone = reader or Backbone()
        spec: Spec = backbone.spec(view)
        if backbone.finetune == "head":
            return TableInput.prepare(embedded(view, backbone, device), device)
        if isinstance(view, EncodedImages):
            return spec, Streamed(view, device)
        return spec, Resident((torch.from_numpy(np.ascontiguousarray(view.pixels)).to(device),))

    @staticmethod
    def network(spec: Spec, widths: list[int]) -> nn.Module:
        """A backbone and fully connected layers after it."""
        return ImageNetwork(spec, widths)

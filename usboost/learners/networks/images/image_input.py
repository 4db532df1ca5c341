"""Networks on images: trained whole, their last block, or a head on a frozen backbone's embeddings."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import nn

from usboost.data.images import EncodedImages, Images
from usboost.data.pooled_images import PooledImages
from usboost.errors import UsboostError
from usboost.learners.networks import architectures
from usboost.learners.networks.images.backbones import Backbone, embedded
from usboost.learners.networks.images.image_network import ImageNetwork, LastBlock
from usboost.learners.networks.inputs import Checked, Spec
from usboost.learners.networks.table_input import TableInput
from usboost.learners.networks.training.batches import Batches, Resident, Streamed

PerChannel = Annotated[list[float], Field(min_length=1, max_length=3)]


class ImageSpec(Checked):
    """Of a network on images; see `usboost.learners.networks.images.backbones.Backbone`.

    `part` "last" is of a network on what the backbone without its last block gave.
    """

    view: Literal["image"]
    channels: Literal[1, 3]
    backbone: Annotated[str, Field(max_length=200)]
    size: Annotated[int, Field(ge=1, le=4096)] | None
    augment: Literal["none", "flip", "flip_shift"]
    mean: PerChannel
    deviation: PerChannel
    part: Literal["last"] | None = None

    @model_validator(mode="after")
    def _possible(self) -> ImageSpec:
        architectures.check_name(self.backbone)
        if self.size is not None and self.size < architectures.smallest(self.backbone):
            raise ValueError(f"size {self.size} is too small for {self.backbone}")
        if not {len(self.mean), len(self.deviation)} <= {1, self.channels, 3}:
            raise ValueError("mean and deviation are of one or of each channel")
        if not np.isfinite([*self.mean, *self.deviation]).all() or min(self.deviation) <= 0:
            raise ValueError("mean and deviation are finite, the deviation above 0")
        return self


class ImageInput:
    """Images, in memory or decoded batch by batch, or what a frozen backbone made of them."""

    kind: ClassVar[str] = "image"
    checked: ClassVar[type[Checked]] = ImageSpec

    @staticmethod
    def prepare(
        view: Images | EncodedImages, device: torch.device, reader: Any = None
    ) -> tuple[Spec, Batches]:
        """Specification and rows; of a frozen backbone the table of its embeddings, for a head.

        Without a `Backbone` as reader it is a small CNN that is trained.
        """
        backbone = reader or Backbone("small_cnn", pretrained=False, finetune="all")
        spec: Spec = backbone.spec(view)
        if backbone.is_frozen:
            return TableInput.prepare(embedded(view, backbone, device), device)
        if backbone.finetune == "last":
            values = torch.from_numpy(backbone.activations(view, device))
            return {**spec, "augment": "none", "part": "last"}, Resident((values.to(device),))
        if isinstance(view, EncodedImages):
            return spec, Streamed(view, device)
        return spec, Resident((torch.from_numpy(np.ascontiguousarray(view.pixels)).to(device),))

    @staticmethod
    def network(spec: Spec, widths: list[int]) -> nn.Module:
        """A backbone, or its last block, and fully connected layers after it."""
        return LastBlock(spec, widths) if spec.get("part") == "last" else ImageNetwork(spec, widths)


class PooledInput:
    """Several images a row, read as the mean of what a frozen backbone makes of them."""

    kind: ClassVar[str] = "pooled_images"
    checked: ClassVar[type[Checked]] = ImageSpec

    @staticmethod
    def prepare(view: PooledImages, device: torch.device, reader: Any = None) -> tuple[Spec, Batches]:
        """The table of the means, for a head.

        Raises
        ------
        UsboostError
            If the backbone is to be trained.
        """
        backbone = reader or Backbone()
        if not backbone.is_frozen:
            raise UsboostError(
                "pooled images are read by a frozen backbone; use finetune none, or a view for each column"
            )
        return TableInput.prepare(embedded(view, backbone, device), device)

    @staticmethod
    def network(spec: Spec, widths: list[int]) -> nn.Module:
        """None reads this view itself: what `prepare` describes is a table."""
        raise UsboostError("no network reads pooled images themselves")

"""Backbones: how a network reads images, and what frozen ones make of them (embeddings, activations)."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from sklearn.base import BaseEstimator
from torch import nn

from usboost.data.images import EncodedImages, Images
from usboost.data.table import Table
from usboost.errors import UsboostError
from usboost.files.onnx_graph import ImageNodes, TableNodes, no_form
from usboost.learners.networks import architectures, embeddings
from usboost.learners.networks.architectures import DEFAULT, is_timms, load_backbone, read_weights
from usboost.learners.networks.image_network import AUGMENTATIONS, FrozenNetwork, ImageNetwork, LastBlock
from usboost.learners.networks.inputs import Checked, Spec, TableInput, initialise
from usboost.learners.networks.nodes import image_network
from usboost.learners.networks.train import Batches, Resident, Streamed

FINETUNED = ("none", "auto", "last", "all")
"""Parts of a backbone that may be trained."""

_VERSION = 1  # of what embeddings are: count it up when the same weights would give others


@dataclass(eq=False, repr=False)
class Backbone(BaseEstimator):
    """A backbone, by which a network reads images.

    Parameters
    ----------
    name : a name of ``timm.list_models()``, by default EfficientNet-Lite0; "vgg16" and "resnet50" are
        torchvision's. "small_cnn" suits CPUs and has no published weights.
    pretrained : bool or str
        Start from ImageNet weights (True) or from a state dict in a file (a path, ``.pth`` or
        ``.safetensors``). Those of EfficientNet-Lite0 are installed with usboost; others come from the cache
        of torch or of the Hugging Face hub, and are downloaded if need be.
    finetune : {"none", "auto", "last", "all"}
        What is trained: "none" but the layers after it, its embeddings being computed once for each
        image; the "last" block, on what the frozen rest gave once; or "all" of it. Fits to a table tune it
        before the model is fitted, `usboost.models.tuned_images`, and "auto" is "last" there where it takes
        some minutes; elsewhere it is "none".
    size : side in pixels that images are resized to before the backbone; None keeps theirs where the backbone
        reads it, else takes the least that it reads. Of "auto" validation rows choose between None and
        `usboost.table.spec.SIZE`, see `usboost.models.tuned_images`; elsewhere it is None.
    augment : {"none", "flip", "flip_shift"}
        Of training images, with "all" only.
    cache : str, False or None
        Folder for embeddings; None: $USBOOST_CACHE, or the user's folder for caches; False or "off"
        keeps none.
    random : let a backbone with random weights be frozen: its embeddings say little of an image

    Examples
    --------
    >>> import numpy as np
    >>> from usboost import Backbone, Images, NetworkLearner, TwoWeakLearnerClassifier, Views
    >>> pixels = np.random.default_rng(0).integers(0, 99, (40, 1, 8, 8)).astype(np.uint8)
    >>> pixels[::2] += 100  # every second image is brighter
    >>> cnn = Backbone("small_cnn", pretrained=False, finetune="all")
    >>> learners = {"photo": NetworkLearner((8,), batch_size=8, epochs=4, backbone=cnn, device="cpu")}
    >>> model = TwoWeakLearnerClassifier(learners, n_rounds=3, validation_fraction=0)
    >>> views, y = Views(photo=Images(pixels)), np.arange(40) % 2
    >>> bool((model.fit(views, y).predict(views) == y).all())
    True
    """

    name: str = DEFAULT
    pretrained: bool | str = True
    finetune: str = "none"
    size: int | Literal["auto"] | None = None
    augment: str = "none"
    cache: str | bool | None = None
    random: bool = False

    @property
    def is_frozen(self) -> bool:
        """Return whether none of it is trained."""
        return self.finetune in ("none", "auto")

    def spec(self, view: Images | EncodedImages | ImageNodes) -> dict[str, Any]:
        """Return what `ImageNetwork` is built from, JSON."""
        architectures.check_name(self.name)
        if self.finetune not in FINETUNED:
            raise UsboostError(f"finetune is 'none', 'auto', 'last' or 'all', not {self.finetune!r}")
        if self.augment not in AUGMENTATIONS:
            raise UsboostError(f"augmentation is one of {', '.join(AUGMENTATIONS)}, not {self.augment!r}")
        if self.name == "small_cnn" and self.pretrained is True:
            raise UsboostError("small_cnn has no published weights; set pretrained: false, or to a file")
        only = architectures.published(self.name).side if is_timms(self.name) else None
        own = None if self.size == "auto" else self.size
        if only is not None and own not in (None, only):
            raise UsboostError(f"{self.name} reads images of {only} pixels a side, not {own}; set size")
        size, least = only or own, architectures.smallest(self.name)
        if size is None and is_timms(self.name) and min(view.height, view.width) < least:
            size = least
        side = size or min(view.height, view.width)
        if side < least:
            raise UsboostError(f"{self.name} reads images of {least} pixels or more, not {side}; set size")
        mean, deviation = architectures.normalisation(self.name, bool(self.pretrained))
        return {
            "view": "image",
            "channels": view.channels,
            "backbone": self.name,
            "size": size,
            "augment": self.augment,
            "mean": list(mean),
            "deviation": list(deviation),
        }

    def load_weights(self, network: nn.Module) -> None:
        """Put the pretrained weights, if any, into the backbones of a network."""
        for part in network.modules():
            if isinstance(part, LastBlock):
                whole = self._whole(part.spec).backbone
                last = architectures.split(whole, self.name)[1]
                part.backbone.load_state_dict(last.state_dict())
            elif isinstance(part, ImageNetwork) and self.pretrained:
                weights = read_weights(self.name, self.pretrained)
                load_backbone(part.backbone, self.name, weights, str(self.pretrained))

    def embed(self, view: Images | EncodedImages, device: torch.device) -> np.ndarray:
        """Return the frozen backbone's features of every image: float32 (n, d), zeros where there is none.

        Raises `UsboostError` if its weights would be random and nobody asked for that.
        """
        return np.asarray(self.activations(view, device, blocks=0), dtype=np.float32)

    def activations(self, view: Any, device: torch.device, blocks: int = 1) -> np.ndarray:
        """Return what the backbone without its last blocks makes of every image: float16 (n, …).

        Raises `UsboostError` as `embed`, and if it is not known where the last block begins.
        """
        if not self.pretrained and not self.random:
            raise UsboostError(
                f"a frozen {self.name} with random weights sees next to nothing; set pretrained, train it "
                "with finetune: all, or ask for that with random: true"
            )
        spec = self.spec(view)
        made: list[ImageNetwork] = []

        def network() -> ImageNetwork:
            if not made:
                made.append(self._whole(spec))
                if blocks:
                    made[0].backbone = architectures.split(made[0].backbone, self.name, blocks)[0]
            return made[0]

        side = (spec["size"],) * 2 if spec["size"] else (view.height, view.width)
        left_out = blocks if blocks > 1 else bool(blocks)  # as caches of before have it
        given = (_VERSION, self.name, side, spec["mean"], spec["deviation"], device.type, left_out)
        known = self._source()
        key = None if known is None else f"{known} {view.channels} {given}"
        if (digest := _digests.get(key or "", "")) == "":
            # of all that decides what the network gives for an image
            state = hashlib.sha256(repr(given).encode())
            for name, tensor in network().state_dict().items():
                state.update(name.encode() + tensor.contiguous().numpy().tobytes())
            digest = state.hexdigest()[:32]
            if key is not None:
                _digests[key] = digest
        called, folder = f"{self.name}-{digest}", embeddings.cache_folder(self.cache)

        def frozen() -> FrozenNetwork:
            # of equal sides one network may resize its images, and another not
            cached = _networks.get((called, spec["size"])) or (FrozenNetwork(network(), device),)
            _networks.put((called, spec["size"]), cached)
            return cached[0]

        return embeddings.values_of(view, frozen, None if folder is None else folder / called, called)

    def to_onnx(self, images: ImageNodes) -> TableNodes:
        """Return in the images' graph what `embed` gives, rounded to float16 as in its cache."""
        known, key = images.pixels.graph.embeddings, (self.name, self.pretrained, self.size, images.pixels)
        if key not in known:
            network = self._whole(self.spec(images))
            values = image_network(images, network).cast(np.float16).cast(np.float32)
            known[key] = TableNodes(values, None, network.n_features, (), images.absent)
        return known[key]

    def _source(self) -> str | None:
        """Name the weights without reading them; None where that is not certain."""
        if isinstance(self.pretrained, str) and Path(self.pretrained).is_file():
            about = Path(self.pretrained).stat()
            return f"{Path(self.pretrained).resolve()} {about.st_mtime_ns} {about.st_size} {about.st_ino}"
        return self.name if self.name == DEFAULT and self.pretrained is True else None

    def _whole(self, spec: dict[str, Any]) -> ImageNetwork:
        """Build the backbone without layers after it, with the weights that it starts from."""
        network = ImageNetwork(spec, [])
        initialise(network, 0)
        self.load_weights(network)
        return network


_digests: dict[str, str] = {}  # of the networks of this process, so that known images need none of them
# the last ones, so that a row need not wait for one to be built
_networks: embeddings.Recent[FrozenNetwork] = embeddings.Recent(1 << 28)


def embedded(view: Images | EncodedImages, backbone: Backbone | None, device: torch.device) -> Table:
    """Return images as a table of what a frozen backbone, EfficientNet-Lite0 by default, makes of them.

    Rows without an image are `absent`.
    """
    reader = backbone or Backbone()
    values = reader.embed(view, device)
    table = Table.from_numeric(values, tuple(f"image embedding {j}" for j in range(values.shape[1])))
    return replace(table, absent=view.absent)


def licence_of(backbone: Backbone) -> str:
    """Return the licence of a backbone's published weights; "" where there are none, or it is not known."""
    if not backbone.pretrained:
        return ""
    return "BSD-3-Clause" if not is_timms(backbone.name) else architectures.published(backbone.name).licence


def read_in_graph(view: Any, backbone: Backbone | None) -> Any:
    """Return the nodes of a view as a network reads it, whose rows `prepare_view` prepares.

    Raises `UsboostError` if it reads what a frozen part gave.
    """
    if not isinstance(view, ImageNodes) or backbone is None or backbone.finetune == "all":
        return view
    if not backbone.is_frozen:
        raise no_form(backbone, "whose last block is trained in rounds,")
    return backbone.to_onnx(view)


PerChannel = Annotated[list[float], Field(min_length=1, max_length=3)]


class ImageInputSpec(Checked):
    """A network on images; see `usboost.learners.networks.backbones.Backbone`.

    `part` "last": a network on what the backbone without its last block gave.
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
    def _possible(self) -> "ImageInputSpec":
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
    checked: ClassVar[type[Checked]] = ImageInputSpec

    @staticmethod
    def prepare(
        view: Images | EncodedImages, device: torch.device, reader: Any = None
    ) -> tuple[Spec, Batches]:
        """Return specification and rows; of a frozen backbone the table of its embeddings, for a head.

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
        """Build a backbone, or its last block, and fully connected layers after it."""
        return LastBlock(spec, widths) if spec.get("part") == "last" else ImageNetwork(spec, widths)

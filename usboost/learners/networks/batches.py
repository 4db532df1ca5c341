"""Views as networks read them: batches of rows as tensors on the device."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from usboost.data.images import EncodedImages, Images
from usboost.data.table import Table
from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.learners.networks.backbones import Backbone

Tensors = tuple[torch.Tensor, ...]


class Batches(Protocol):
    """Rows of a view as tensors on the device."""

    def __len__(self) -> int: ...

    def batch(self, rows: torch.Tensor | slice) -> Tensors: ...

    def expect(self, rows: torch.Tensor | slice) -> None:
        """A hint that these rows are asked for next."""
        ...


@dataclass(frozen=True)
class Resident:
    """Row-aligned tensors that live on the device: a batch is one gather per tensor."""

    tensors: Tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    @property
    def is_table(self) -> bool:
        return len(self.tensors) == 2

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        return tuple(tensor[rows] for tensor in self.tensors)

    def expect(self, rows: torch.Tensor | slice) -> None:
        pass


@dataclass
class Streamed:
    """Encoded pictures, decoded batch by batch while the device is busy with the one before."""

    images: EncodedImages
    device: torch.device
    _next: tuple[Any, Any] | None = None
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        expected, self._next = self._next, None
        pixels = expected[1].result() if expected is not None and expected[0] is rows else self._decode(rows)
        return (torch.from_numpy(pixels).to(self.device, non_blocking=True),)

    def expect(self, rows: torch.Tensor | slice) -> None:
        self._next = (rows, self._pool.submit(self._decode, rows))

    def _decode(self, rows: torch.Tensor | slice) -> np.ndarray:
        return self.images.decode(rows.cpu().numpy() if isinstance(rows, torch.Tensor) else rows)


def prepare_view(
    view: View, device: torch.device, backbone: Backbone | None
) -> tuple[dict[str, Any], Batches]:
    """The specification a network for this view is built from, and its rows.

    Pictures under a frozen backbone become a table of embeddings, so what is trained is a head.
    """
    if isinstance(view, (Images, EncodedImages)):
        reader = backbone or Backbone()
        spec = reader.spec(view)
        if reader.finetune == "head":
            return prepare_view(Table.from_numeric(reader.embed(view, device)), device, None)
        if isinstance(view, EncodedImages):
            return spec, Streamed(view, device)
        return spec, Resident((torch.from_numpy(np.ascontiguousarray(view.pixels)).to(device),))
    if isinstance(view, Table):
        offsets = np.cumsum([0, *view.cardinalities])[:-1].astype(np.int32)
        tensors = (
            torch.from_numpy(np.ascontiguousarray(view.numeric)).to(device),
            torch.from_numpy(view.codes + offsets).to(device),
        )
        spec = {"view": "table", "n_numeric": view.n_numeric, "cardinalities": list(view.cardinalities)}
        return spec, Resident(tensors)
    raise UsboostError(f"no network reads a view of type {type(view).__name__}")

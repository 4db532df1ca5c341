"""Views as networks read them: batches of rows as tensors on the device."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from usboost.data.images import EncodedImages

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


@dataclass(frozen=True)
class WithAbsent:
    """Rows beside a mask of those that the view lacks, as the last tensor: bool (n,) on the device."""

    rows: Batches
    absent: torch.Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        return (*self.rows.batch(rows), self.absent[rows])

    def expect(self, rows: torch.Tensor | slice) -> None:
        self.rows.expect(rows)


@dataclass
class Streamed:
    """Encoded images, decoded batch by batch while the device is busy with the one before."""

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

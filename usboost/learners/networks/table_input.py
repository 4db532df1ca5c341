"""Networks on tables: numbers as they are, categories looked up by code."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from usboost.data.table import Table
from usboost.learners.networks.inputs import WIDEST, Checked, Spec, Width
from usboost.learners.networks.modules import table_network
from usboost.learners.networks.training.batches import Resident


class TableSpec(Checked):
    """Of a network on a table; ``cardinalities`` are the numbers of codes of its categorical columns."""

    view: Literal["table"]
    n_numeric: Annotated[int, Field(ge=0, le=WIDEST)]
    cardinalities: Annotated[list[Width], Field(max_length=100_000)]


class TableInput:
    """Tables, whose rows live on the device."""

    kind: ClassVar[str] = "table"
    checked: ClassVar[type[Checked]] = TableSpec

    @staticmethod
    def prepare(view: Table, device: torch.device, reader: Any = None) -> tuple[Spec, Resident]:
        """Specification and rows; codes become positions in the concatenated categories."""
        offsets = np.cumsum([0, *view.cardinalities])[:-1].astype(np.int32)
        tensors = (
            torch.from_numpy(np.ascontiguousarray(view.numeric)).to(device),
            torch.from_numpy(view.codes + offsets).to(device),
        )
        spec = {"view": "table", "n_numeric": view.n_numeric, "cardinalities": list(view.cardinalities)}
        return spec, Resident(tensors)

    @staticmethod
    def network(spec: Spec, widths: list[int]) -> nn.Module:
        """Fully connected layers on the table."""
        return table_network(spec, widths)

"""How networks read views: one entry in `INPUTS` for each kind of view."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import nn

from usboost.data.table import Table
from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.files.registry import Registry
from usboost.learners.networks.modules import table_network
from usboost.learners.networks.train import TABLE_ROWS, Batches, Tensors

INPUTS = Registry(
    "view that a network reads",
    {
        "table": "usboost.learners.networks.inputs:TableInput",
        "coded_table": "usboost.learners.networks.inputs:CodedTableInput",
        "image": "usboost.learners.networks.images.backbones:ImageInput",
        "pooled_images": "usboost.learners.networks.images.backbones:PooledInput",
    },
)
"""By a view's `kind`, which stands as "view" in a network's specification."""

WIDEST = 10_000_000

LOOKED_UP = 256
"""Rows whose numbers are looked up in one go: their places stay in the cache."""

Width = Annotated[int, Field(ge=1, le=WIDEST)]
Widths = Annotated[list[Width], Field(max_length=1000)]
Spec = dict[str, Any]


class Checked(BaseModel):
    """Base of what a specification in a file must hold."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Input(Protocol):
    """How networks read one kind of view."""

    kind: ClassVar[str]
    checked: ClassVar[type[Checked]]
    """What a specification of this kind must hold."""

    @staticmethod
    def prepare(view: Any, device: torch.device, reader: Any) -> tuple[Spec, Batches]:
        """The specification of a network for this view, JSON with its kind as "view", and its rows."""
        ...

    @staticmethod
    def network(spec: Spec, widths: list[int]) -> nn.Module:
        """A network of this specification; its last width is its output."""
        ...


def prepare_view(view: View, device: torch.device, reader: Any = None) -> tuple[Spec, Batches]:
    """The specification that a network for this view is built from, and the view's rows on the device.

    Raises `UsboostError` if no network reads views of this kind.

    Parameters
    ----------
    reader : a `Backbone` for images, or what else a kind of view is read by
    """
    kind = getattr(view, "kind", None)
    if kind not in INPUTS:
        raise UsboostError(
            f"no network reads a view of type {type(view).__name__}; register how with INPUTS.register"
        )
    found: tuple[Spec, Batches] = INPUTS[str(kind)].prepare(view, device, reader)
    return found


def branch(spec: Mapping[str, Any], widths: list[int]) -> nn.Module:
    """The network that reads one view; its last width is its output."""
    module: nn.Module = INPUTS[spec["view"]].network(spec, widths)
    return module


def check_input(spec: Any) -> Spec:
    """An input's specification from a file, as its kind has it.

    Raises `UsboostError` if it lacks something or holds it in another form.
    """
    if not isinstance(spec, Mapping) or not isinstance(spec.get("view"), str):
        raise UsboostError("a network's input is of no kind of view that networks read")
    return validated(INPUTS[spec["view"]].checked, spec)


def validated(model: type[Checked], spec: Any) -> Spec:
    """A specification as plain JSON values, of the types that `model` declares."""
    try:
        return model.model_validate(spec).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the specification"
        raise UsboostError(f"a network's {where} is wrong: {first['msg']}") from None


def check_weights(weights: Mapping[str, np.ndarray], spec: Spec, build: Callable[[Spec], nn.Module]) -> None:
    """Weights are those of the network that `build` makes of a specification: names, shapes, finite.

    Raises `UsboostError`, naming the first that is not.
    """
    shapes = _shapes(build, json.dumps(spec))
    if set(weights) != set(shapes):
        raise UsboostError("a network's weights are not those of its specification")
    for name, array in weights.items():
        whole = name.endswith("num_batches_tracked")
        scalar = whole and array.shape == (1,)  # as files hold it
        if (array.shape != shapes[name] and not scalar) or array.dtype != (np.int64 if whole else np.float32):
            raise UsboostError(f"a network's {name} is {array.dtype} of shape {array.shape}")
        if not np.isfinite(array).all():
            raise UsboostError(f"a network's {name} holds a number that is not finite")


@lru_cache(maxsize=64)
def _shapes(build: Callable[[Spec], nn.Module], spec: str) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):  # where tensors have a shape and no memory
        network = build(json.loads(spec))
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


class TableSpec(Checked):
    """Of a network on a table; ``cardinalities`` are the numbers of codes of its categorical columns."""

    view: Literal["table"]
    n_numeric: Annotated[int, Field(ge=0, le=WIDEST)]
    cardinalities: Annotated[list[Width], Field(max_length=100_000)]


@dataclass(frozen=True)
class TableRows:
    """A table's rows on the device.

    Attributes
    ----------
    numeric : float32 (n, p)
    codes : uint8, int16 or int32 (n, q)
    starts : int32 (q,), the first place of each column among all categories
    """

    numeric: torch.Tensor
    codes: torch.Tensor
    starts: torch.Tensor

    rows_at_once: ClassVar[int] = TABLE_ROWS

    def __len__(self) -> int:
        return len(self.codes)

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        """Numbers, and codes as places in the concatenated categories, int32."""
        # one copy to int32 and a sum in place: torch is ten times as slow where it adds two types
        return self.numeric[rows], self.codes[rows].to(torch.int32, copy=True).add_(self.starts)

    def expect(self, rows: torch.Tensor | slice) -> None:
        pass


@dataclass(frozen=True)
class CodedRows:
    """The rows of a table of which each column has few numbers, which are looked up batch by batch.

    Attributes are those of `usboost.data.table.CodedTable`, as tensors on the device.
    """

    codes: torch.Tensor
    values: torch.Tensor
    starts: torch.Tensor

    rows_at_once: ClassVar[int] = TABLE_ROWS

    def __len__(self) -> int:
        return len(self.codes)

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        """Numbers, float32, and no codes."""
        codes = self.codes[rows]
        numbers = self.values.new_empty(codes.shape)
        for own, out in zip(codes.split(LOOKED_UP), numbers.split(LOOKED_UP)):
            places = own.to(torch.int32, copy=True).add_(self.starts)
            torch.index_select(self.values, 0, places.view(-1), out=out.view(-1))
        return numbers, self.starts.new_empty((len(codes), 0))

    def expect(self, rows: torch.Tensor | slice) -> None:
        pass


class TableInput:
    """Tables, whose rows live on the device."""

    kind: ClassVar[str] = "table"
    checked: ClassVar[type[Checked]] = TableSpec

    @staticmethod
    def prepare(view: Table, device: torch.device, reader: Any = None) -> tuple[Spec, TableRows]:
        """Specification and rows."""
        starts = np.cumsum([0, *view.cardinalities])[:-1].astype(np.int32)
        arrays = (np.ascontiguousarray(view.numeric), np.ascontiguousarray(view.codes), starts)
        spec = {"view": "table", "n_numeric": view.n_numeric, "cardinalities": list(view.cardinalities)}
        return spec, TableRows(*(torch.from_numpy(each).to(device) for each in arrays))

    @staticmethod
    def network(spec: Spec, widths: list[int]) -> nn.Module:
        """Fully connected layers on the table."""
        return table_network(spec, widths)


class CodedTableInput(TableInput):
    """The same network on a `CodedTable`, as on the `Table` of its numbers."""

    kind: ClassVar[str] = "coded_table"

    @staticmethod
    def prepare(view: Any, device: torch.device, reader: Any = None) -> tuple[Spec, Any]:
        """Specification, that of a table, and rows."""
        arrays = (view.codes, view.values, view.starts)
        spec = {"view": "table", "n_numeric": view.n_columns, "cardinalities": []}
        return spec, CodedRows(*(torch.from_numpy(each).to(device) for each in arrays))

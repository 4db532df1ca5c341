"""The views that networks read: one entry in `INPUTS` for each kind, and the layers that read them."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.sparse import csc_array
from torch import nn
from torch.nn import functional

from usboost.data.table import Table
from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.files.registry import Registry
from usboost.learners.networks.architectures import seeded
from usboost.learners.networks.train import Batches, Tensors


class _SumOfRows(torch.autograd.Function):
    """Σ_j lookup[codes_ij]: (n, width) from codes (n, q); its gradient is one sparse product.

    torch's own sorts the codes of every batch, which costs several times the arithmetic of a small network.
    """

    @staticmethod
    def forward(context: Any, codes: torch.Tensor, lookup: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(codes)
        context.n_codes = len(lookup)
        return functional.embedding_bag(codes, lookup, mode="sum")

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        (codes,) = context.saved_tensors
        if codes.device.type == "cpu":
            summed = one_hot(codes.numpy(), context.n_codes) @ gradient.contiguous().numpy()
            return None, torch.from_numpy(summed)
        out = gradient.new_zeros(context.n_codes, gradient.shape[1])
        return None, out.index_add_(0, codes.reshape(-1), gradient.repeat_interleave(codes.shape[1], dim=0))


def one_hot(codes: np.ndarray, n_codes: int) -> csc_array:
    """Return float32 (n_codes, n): column i has a one for each of the q codes of row i of (n, q)."""
    rows, columns = codes.shape
    ones = np.ones(codes.size, dtype=np.float32)
    starts = np.arange(0, codes.size + 1, columns, dtype=np.int32)
    return csc_array((ones, codes.reshape(-1), starts), shape=(n_codes, rows))


class TableLinear(nn.Module):
    """A linear layer on standardised numbers and one-hot categories.

    The one-hot part is a sum of weight rows looked up by code, so no dense matrix of zeros and ones
    is ever made. Reads ``(numeric float32 (n, p), codes int32 (n, q))``; codes are positions in the
    concatenated categories.
    """

    def __init__(self, n_numeric: int, cardinalities: list[int], width: int) -> None:
        super().__init__()
        self.n_numeric, self.n_codes = n_numeric, sum(cardinalities)
        self.n_columns = n_numeric + len(cardinalities)
        self.weight = nn.Parameter(torch.empty(width, n_numeric))
        self.lookup = nn.Parameter(torch.empty(self.n_codes, width))
        self.bias = nn.Parameter(torch.empty(width))

    def draw_weights(self, generator: torch.Generator) -> None:
        # fan-in is the number of columns: each category column lights up one weight row
        bound = 1 / math.sqrt(max(self.n_columns, 1))
        for parameter in (self.weight, self.lookup, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
        numeric, codes = tensors
        out = functional.linear(numeric, self.weight, self.bias)
        if codes.shape[1]:
            out = out + _SumOfRows.apply(codes, self.lookup)
        return out


class SeededLinear(nn.Linear):
    """`torch.nn.Linear` whose initial weights come from a given generator."""

    def reset_parameters(self) -> None:
        """Do nothing yet: `reset` draws them, and torch's global generator is left alone."""

    def draw_weights(self, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(max(self.in_features, 1))
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        nn.init.uniform_(self.bias, -bound, bound, generator=generator)


def table_network(spec: dict[str, Any], widths: list[int]) -> nn.Sequential:
    """Make fully connected layers of these widths on a table, ReLU between them (FCk1+k2 in the paper)."""
    if not widths:
        raise UsboostError("a network needs at least one layer width")
    layers: list[nn.Module] = [TableLinear(spec["n_numeric"], spec["cardinalities"], widths[0])]
    for previous, width in pairwise(widths):
        layers += [nn.ReLU(), SeededLinear(previous, width)]
    return nn.Sequential(*layers)


def dense_network(widths: list[int]) -> nn.Sequential:
    """Make fully connected layers from ``widths[0]`` inputs to ``widths[-1]`` outputs, ReLU between them."""
    layers: list[nn.Module] = []
    for previous, width in pairwise(widths):
        layers += [SeededLinear(previous, width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def generators(module: nn.Module) -> list[torch.Generator]:
    """Return what the parts of a network draw from while they train (augmentation), in order."""
    parts = (getattr(part, "generator", None) for part in module.modules())
    return [each for each in parts if isinstance(each, torch.Generator)]


def reseed(module: nn.Module, seed: int) -> None:
    """Let what a network draws while it trains follow from a seed."""
    for generator in generators(module):
        generator.manual_seed(seed)


def initialise(module: nn.Module, seed: int) -> None:
    """Draw all initial weights from one seed, and leave torch's global generator as it was.

    A part with a method ``draw_weights(generator)`` draws its own; torch's other layers draw as torch does.
    They are drawn on the CPU, so that they are equal on every device.
    """
    device = next((each.device for each in module.parameters()), torch.device("cpu"))
    module.to("cpu")
    generator = torch.Generator().manual_seed(seed)
    with seeded(seed):
        for part in module.modules():
            if callable(draw := getattr(part, "draw_weights", None)):
                draw(generator)
            elif isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
            elif callable(reset := getattr(part, "reset_parameters", None)):
                reset()
    reseed(module.to(device), seed)


INPUTS = Registry(
    "view that a network reads",
    {
        "table": "usboost.learners.networks.inputs:TableInput",
        "coded_table": "usboost.learners.networks.inputs:CodedTableInput",
        "image": "usboost.learners.networks.backbones:ImageInput",
    },
)
"""By a view's `kind`, which stands as "view" in a network's specification.

Each has ``prepare(view, device, reader)``, which returns a specification, JSON, and the view's rows;
``network(spec, widths)``, which builds the network of it; and `checked`, what such a specification must hold.
"""

WIDEST = 10_000_000

LOOKED_UP = 256
"""Rows whose numbers are looked up in one go: their places stay in the processor's cache."""

Width = Annotated[int, Field(ge=1, le=WIDEST)]
Widths = Annotated[list[Width], Field(max_length=1000)]
Spec = dict[str, Any]


class Checked(BaseModel):
    """Base of what a specification in a file must hold."""

    model_config = ConfigDict(extra="ignore", strict=True)


def prepare_view(view: View, device: torch.device, reader: Any = None) -> tuple[Spec, Batches]:
    """Return the specification of a network for this view, and the view's rows on the device.

    `reader` is a `Backbone` for images. Raises `UsboostError` if no network reads views of this kind.
    """
    kind = getattr(view, "kind", None)
    if kind not in INPUTS:
        raise UsboostError(f"no network reads a view of {type(view).__name__}; use INPUTS.register")
    spec, rows = INPUTS[str(kind)].prepare(view, device, reader)
    return spec, rows


def branch(spec: Mapping[str, Any], widths: list[int]) -> nn.Module:
    """Build the network that reads one view; its last width is its output."""
    return cast(nn.Module, INPUTS[spec["view"]].network(spec, widths))


def check_input(spec: Any) -> Spec:
    """Check an input's specification from a file, as its kind has it.

    Raises `UsboostError` if it lacks something or holds it in another form.
    """
    if not isinstance(spec, Mapping) or not isinstance(spec.get("view"), str):
        raise UsboostError("a network's input is of no kind of view that networks read")
    return validated(INPUTS[spec["view"]].checked, spec)


def validated(model: type[Checked], spec: Any) -> Spec:
    """Return a specification as plain JSON values, of the types that `model` declares."""
    try:
        return model.model_validate(spec).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the specification"
        raise UsboostError(f"a network's {where} is wrong: {first['msg']}") from None


def check_weights(weights: Mapping[str, np.ndarray], spec: Spec, build: Callable[[Spec], nn.Module]) -> None:
    """Check that weights are those of the network that `build` makes: names, shapes, finite.

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


class TableInputSpec(Checked):
    """A network on a table; ``cardinalities`` are the numbers of codes of its categorical columns."""

    view: Literal["table"]
    n_numeric: Annotated[int, Field(ge=0, le=WIDEST)]
    cardinalities: Annotated[list[Width], Field(max_length=100_000)]


@dataclass(frozen=True)
class TableRows(Batches):
    """A table's rows on the device: numbers, float32 (n, p), and codes, uint8, int16 or int32 (n, q).

    `starts`, int32 (q,), are the first places of columns among all categories.
    """

    numeric: torch.Tensor
    codes: torch.Tensor
    starts: torch.Tensor

    rows_at_once: ClassVar[int] = 16_384

    def __len__(self) -> int:
        return len(self.codes)

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        """Return numbers, and codes as places in the concatenated categories, int32."""
        # one copy to int32 and a sum in place: torch is ten times as slow where it adds two types
        return self.numeric[rows], self.codes[rows].to(torch.int32, copy=True).add_(self.starts)


@dataclass(frozen=True)
class CodedRows(Batches):
    """The rows of a table of which each column has few numbers, which are looked up batch by batch.

    Attributes are those of `usboost.data.table.CodedTable`, as tensors on the device.
    """

    codes: torch.Tensor
    values: torch.Tensor
    starts: torch.Tensor

    rows_at_once: ClassVar[int] = 16_384

    def __len__(self) -> int:
        return len(self.codes)

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        """Return numbers, float32, and no codes."""
        codes = self.codes[rows]
        numbers = self.values.new_empty(codes.shape)
        for own, out in zip(codes.split(LOOKED_UP), numbers.split(LOOKED_UP)):
            places = own.to(torch.int32, copy=True).add_(self.starts)
            torch.index_select(self.values, 0, places.view(-1), out=out.view(-1))
        return numbers, self.starts.new_empty((len(codes), 0))


class TableInput:
    """Tables, whose rows live on the device."""

    kind: ClassVar[str] = "table"
    checked: ClassVar[type[Checked]] = TableInputSpec

    @staticmethod
    def prepare(view: Table, device: torch.device, reader: Any = None) -> tuple[Spec, TableRows]:
        """Return specification and rows."""
        starts = np.cumsum([0, *view.cardinalities])[:-1].astype(np.int32)
        arrays = (np.ascontiguousarray(view.numeric), np.ascontiguousarray(view.codes), starts)
        spec = {"view": "table", "n_numeric": view.n_numeric, "cardinalities": list(view.cardinalities)}
        return spec, TableRows(*(torch.from_numpy(each).to(device) for each in arrays))

    network = staticmethod(table_network)


class CodedTableInput(TableInput):
    """The same network on a `CodedTable`, as on the `Table` of its numbers."""

    kind: ClassVar[str] = "coded_table"

    @staticmethod
    def prepare(view: Any, device: torch.device, reader: Any = None) -> tuple[Spec, Any]:
        """Return specification, that of a table, and rows."""
        arrays = (view.codes, view.values, view.starts)
        spec = {"view": "table", "n_numeric": view.n_columns, "cardinalities": []}
        return spec, CodedRows(*(torch.from_numpy(each).to(device) for each in arrays))

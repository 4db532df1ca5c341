"""An ONNX graph, its values, and views as such; parts of a model add their nodes with a method ``to_onnx``.

A node or constant that is there already is not written again: what two parts have in common, a frozen
backbone say, is computed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from usboost.errors import UsboostError

OPSETS = {"": 17, "ai.onnx.ml": 3}
"""The versions of operators that are written."""


def _operator(op: str, swapped: bool = False) -> Callable[[Any, Any], Value]:
    return lambda one, other: one.graph.node(op, *((other, one) if swapped else (one, other)))


@dataclass(frozen=True)
class Value:
    """A value of a graph, known by its name: ``2.0 * x + y``, ``x @ matrix``, and ``x.Clip(0.0, 1.0)`` of
    ONNX's operators by their names. What is no value is a constant, and has to be of the other's dtype."""

    graph: Graph
    name: str

    __array_ufunc__ = None  # so that an array on the left leaves the operator to us
    __add__, __sub__, __mul__, __truediv__ = map(_operator, ("Add", "Sub", "Mul", "Div"))
    __radd__, __rmul__, __matmul__ = map(_operator, ("Add", "Mul", "MatMul"))
    __rsub__, __rmatmul__ = _operator("Sub", True), _operator("MatMul", True)
    __ge__, __gt__, __lt__, __and__ = map(_operator, ("GreaterOrEqual", "Greater", "Less", "And"))

    def __getattr__(self, op: str) -> Callable[..., Value]:
        if not op[:1].isupper():
            raise AttributeError(op)
        return partial(self.graph.node, op, self)

    def __floordiv__(self, by: Any) -> Value:
        return (self / by).Floor()

    def __mod__(self, by: Any) -> Value:
        return self - self // by * by

    def cast(self, dtype: Any) -> Value:
        """Return it as another type."""
        return self.Cast(to=self.graph.kind(dtype))

    def summed(self, axis: int, keep: bool = False) -> Value:
        """Return sums along an axis."""
        return self.ReduceSum([axis], keepdims=int(keep))

    def picks(self, array: np.ndarray) -> Value:
        """Return the entries, along the first axis of an array, at the places that this holds."""
        return self.graph.node("Gather", array, self, axis=0)

    def each(self, values: np.ndarray) -> Value:
        """Return an array (k,) for each of the n rows that this, (n, …), has: (n, k)."""
        shape = self.Shape(start=0, end=1).Concat([len(values)], axis=0)
        return self.graph.node("Expand", values[None], shape)

    def unless(self, absent: Value | None, instead: Any) -> Value:
        """Return (n, k), but `instead`, of its dtype, in rows that `absent`, bool (n,), marks."""
        return self if absent is None else absent.Unsqueeze([1]).Where(instead, self)


def joined(values: Sequence[Any], axis: int = 1) -> Any:
    """Put values side by side, those that are not None; return None if there are none."""
    first, *more = [each for each in values if each is not None] or [None]
    return first.Concat(*more, axis=axis) if more else first


def sum_of(values: Iterable[Value]) -> Value:
    """Return the sum of one or more values."""
    first, *more = values
    return first.Sum(*more) if more else first


@dataclass(frozen=True)
class TableNodes:
    """A table of n rows in a graph.

    Attributes
    ----------
    numeric : float32 (n, p), or None where p is 0; codes : int64 (n, q), or None where q is 0.
    n_numeric : p; cardinalities : of the q columns.
    absent : bool (n,), as of `usboost.data.table.Table`, or None.
    """

    numeric: Value | None
    codes: Value | None
    n_numeric: int
    cardinalities: tuple[int, ...] = ()
    absent: Value | None = None

    @property
    def rows(self) -> Value:
        """Return some value of n rows."""
        value = self.numeric or self.codes
        assert value is not None
        return value

    def filled(self, missing: bool, instead: Any) -> TableNodes:
        """Put `instead` in absent rows; with `missing`, a further number says where. See `Table.filled`."""
        numeric = self.numeric and self.numeric.unless(self.absent, instead)
        codes = self.codes and self.codes.unless(self.absent, np.int64(0))
        if missing:
            none = self.rows.each(np.zeros(1, np.float32))
            numeric = joined([numeric, self.absent.Unsqueeze([1]).cast(np.float32) if self.absent else none])
        return TableNodes(numeric, codes, self.n_numeric + missing, self.cardinalities)

    def beside(self, other: TableNodes) -> TableNodes:
        """Join the columns of two tables, numbers first."""
        numeric, codes = joined([self.numeric, other.numeric]), joined([self.codes, other.codes])
        sizes = self.cardinalities + other.cardinalities
        return TableNodes(numeric, codes, self.n_numeric + other.n_numeric, sizes)

    def matrix(self) -> Value:
        """Return all columns as trees read them, float32 (n, p + q)."""
        return joined([self.numeric, self.codes and self.codes.cast(np.float32)])

    def linear(self, weights: np.ndarray, bias: np.ndarray, first: int = 0) -> Value:
        """Return x W + b of numbers and one-hot codes, (n, k), as the dtype of `weights` (p + Σ sizes, k).

        Codes below `first` have no weights. With m weights (m, p + Σ sizes, k) it is (m, n, k).
        """
        numbers, lookup = np.split(weights, [self.n_numeric], axis=-2)
        parts = [] if self.numeric is None else [self.numeric.cast(weights.dtype) @ numbers]
        if self.codes is not None:
            starts = np.cumsum([0, *self.cardinalities[:-1]])
            none = np.repeat(starts - first * np.arange(len(starts)), first)
            taken = self.codes.graph.node(
                "Gather", np.insert(lookup, none, 0, axis=-2), self.codes + starts[None], axis=-2
            )
            parts.append(taken.summed(-2))
        return sum_of(parts) + bias[..., None, :]


@dataclass(frozen=True)
class ImageNodes:
    """Images of one size in a graph: uint8 `pixels` (n, channels, height, width), bool `absent` (n,)."""

    pixels: Value
    absent: Value
    channels: int
    height: int
    width: int


ViewNodes = TableNodes | ImageNodes


class Graph:
    """A graph to which inputs, nodes and outputs are added."""

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise UsboostError("an export needs onnx: pip install 'usboost[onnx]'") from None
        self._onnx = onnx
        self._nodes: dict[Any, Any] = {}
        self.embeddings: dict[Any, TableNodes] = {}  # of images, by what makes them
        self._constants: dict[str, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> Value:
        """Add an input of n rows, of the given shape each. `dtype`: numpy's, or str."""
        self._inputs.append(self._described(name, dtype, shape))
        return Value(self, name)

    def output(self, name: str, value: Value, shape: Sequence[int | str] = ()) -> None:
        """Give out a float64 value (n, …) by a name; one that an input has gets "(answer)" behind it."""
        while any(name == each.name for each in self._inputs):
            name += " (answer)"
        self._nodes[name] = self._onnx.helper.make_node("Identity", [value.name], [name])
        self._outputs.append(self._described(name, np.float64, shape))

    def _described(self, name: str, dtype: Any, shape: Sequence[int | str]) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, self.kind(dtype), ["n", *shape])

    def constant(self, value: Any) -> Value:
        """Add a constant, an array or what numpy makes one of, once."""
        tensor = self._onnx.numpy_helper.from_array(np.asarray(value))
        tensor.name = f"/c/{hashlib.blake2b(tensor.SerializeToString(), digest_size=12).hexdigest()}"
        self._constants[tensor.name] = tensor
        return Value(self, tensor.name)

    def node(self, op: str, *values: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Value:
        """Add a node, once; return its first output. `values`: those of the graph, or constants."""
        names = [(each if isinstance(each, Value) else self.constant(each)).name for each in values]
        return self._add(self._onnx.helper.make_node(op, names, [], domain=domain, **attributes), outputs)[0]

    def _add(self, node: Any, outputs: int) -> Sequence[Value]:
        key = outputs, hashlib.blake2b(node.SerializeToString(deterministic=True), digest_size=16).digest()
        if key not in self._nodes:
            node.output.extend(f"/n/{len(self._nodes)}.{k}" for k in range(outputs))
            self._nodes[key] = node
        return [Value(self, name) for name in self._nodes[key].output]

    def embed(self, data: bytes, *inputs: Value) -> list[Value]:
        """Add the nodes of another model of the same versions, fed by `inputs`; return its outputs."""
        model = self._onnx.load_model_from_string(data)
        values = dict(zip((each.name for each in model.graph.input), inputs, strict=True))
        for tensor in model.graph.initializer:
            values[tensor.name] = self.constant(self._onnx.numpy_helper.to_array(tensor))
        for given in model.graph.node:
            node = self._onnx.NodeProto(op_type=given.op_type, domain=given.domain)
            node.input.extend(values[name].name if name else "" for name in given.input)
            node.attribute.extend(given.attribute)
            values |= zip(given.output, self._add(node, len(given.output)), strict=True)
        return [values[each.name] for each in model.graph.output]

    def model(self, about: Mapping[str, str]) -> Any:
        """Return the model of what was added, checked; `about` is stored in its metadata.

        Raises UsboostError if it is larger than a file can be.
        """
        onnx = self._onnx
        needed, nodes = {each.name for each in self._outputs}, []
        for node in reversed(self._nodes.values()):
            if needed.intersection(node.output):
                needed.update(node.input)
                nodes.append(node)
        constants = [each for name, each in self._constants.items() if name in needed]
        if sum(each.ByteSize() for each in constants) > (1 << 31) - (1 << 20):
            raise UsboostError("the model is larger than an ONNX file can be, 2 GB; export a smaller one")
        graph = onnx.helper.make_graph(nodes[::-1], "usboost", self._inputs, self._outputs, constants)
        versions = [onnx.helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        model = onnx.helper.make_model(graph, opset_imports=versions, ir_version=8, producer_name="usboost")
        onnx.helper.set_model_props(model, dict(about))
        onnx.checker.check_model(model)
        return model

    def kind(self, dtype: Any) -> int:
        """Return ONNX's number of a type."""
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(object if dtype is str else dtype)))


def added(part: Any, what: str, *given: Any) -> Value:
    """Return what a part's `to_onnx` makes of values; refuse a part without it: `what` it is in a model."""
    if not hasattr(part, "to_onnx"):
        raise no_form(part, what)
    return part.to_onnx(*given)


def no_form(part: object, what: str) -> UsboostError:
    """Return the refusal of a part without an ONNX form. `what`: a weak learner, say."""
    return UsboostError(
        f"{type(part).__name__}, {what}, has no ONNX form, so that the model cannot be exported; give the "
        "class a method `to_onnx`, or choose another model"
    )

"""An ONNX graph, written node by node; parts of a model add their own with a method ``to_onnx``.

Values of the graph are known by their names. A node or constant that is there already is not written again:
what two parts have in common, a frozen backbone say, is computed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from usboost.errors import UsboostError

OPSETS = {"": 17, "ai.onnx.ml": 3}
"""The versions of operators that are written."""

IR_VERSION = 8
LARGEST = (1 << 31) - (1 << 20)
"""Bytes of a file that protobuf can hold."""


class Graph:
    """A graph to which nodes are added: ``graph.Mul(x, 2.0)`` is the name of twice the value called x."""

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise UsboostError(
                "an export needs onnx; install it with `pip install 'usboost[onnx]'`"
            ) from None
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._offset = 0  # of their numbers: of nodes in branches, too
        self._known: dict[Any, Sequence[str]] = {}
        self._made: dict[Any, Any] = {}
        self._constants: dict[str, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> str:
        """Add an input of n rows, of the given shape each. `dtype`: numpy's, or str."""
        kind = self._onnx.TensorProto.STRING if dtype is str else self._kind(dtype)
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, kind, ["n", *shape]))
        return name

    def output(self, name: str, value: str, shape: Sequence[int | str] = ()) -> None:
        """Give out a float64 value (n, …) by a name."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        about = self._onnx.helper.make_tensor_value_info(name, self._kind(np.float64), ["n", *shape])
        self._outputs.append(about)

    def __getattr__(self, op: str) -> Callable[..., Any]:
        """Return what adds a node of an operator, see `node`."""
        if not op[:1].isupper():
            raise AttributeError(op)
        return partial(self.node, op)

    def constant(self, value: Any) -> str:
        """Add a constant, an array or what numpy makes one of, once; return its name."""
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        digest = hashlib.blake2b(array.tobytes(), digest_size=12)
        digest.update(f"{array.dtype} {array.shape}".encode())
        name = f"/c/{digest.hexdigest()}"
        if name not in self._constants:
            self._constants[name] = self._onnx.numpy_helper.from_array(array, name)
        return name

    def node(self, op: str, *values: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node, once; return the name of its output, or of several. `values`: names, or constants."""
        inputs = tuple(each if isinstance(each, str) else self.constant(each) for each in values)
        made = [
            value
            if isinstance(value, self._onnx.AttributeProto)
            else self._onnx.helper.make_attribute(name, value)
            for name, value in sorted(attributes.items())
        ]
        about = hashlib.blake2b(digest_size=16)
        for each in made:
            about.update(each.SerializeToString(deterministic=True))
        key = (op, domain, inputs, outputs, about.digest())
        if key not in self._known:
            names = [f"/n/{self._offset + len(self._nodes)}.{k}" for k in range(outputs)]
            node = self._onnx.helper.make_node(op, list(inputs), names, domain=domain)
            node.attribute.extend(made)
            self._nodes.append(node)
            self._known[key] = names
        found = self._known[key]
        return found[0] if outputs == 1 else found

    def embed(self, model: Any, inputs: Sequence[str]) -> list[str]:
        """Add the nodes of another graph of the same versions, fed by values of this; return its outputs."""
        names = dict(zip((each.name for each in model.graph.input), inputs, strict=True)) | {"": ""}
        for tensor in model.graph.initializer:
            names[tensor.name] = self.constant(self._onnx.numpy_helper.to_array(tensor))
        for node in model.graph.node:
            given = [names[name] for name in node.input]
            attributes = {each.name: each for each in node.attribute}
            outputs = len(node.output)
            found = self.node(node.op_type, *given, outputs=outputs, domain=node.domain, **attributes)
            names |= zip(node.output, [found] if outputs == 1 else found, strict=True)
        return [names[each.name] for each in model.graph.output]

    def either(self, condition: str, then: Callable[[], str], otherwise: Callable[[], str]) -> str:
        """Return one of two values, of which only that is computed. `condition`: bool ()."""
        branches = {}
        for name, make in (("then_branch", then), ("else_branch", otherwise)):
            outer, known, self._nodes = self._nodes, dict(self._known), []
            self._offset += len(outer)
            result = self._onnx.ValueInfoProto(name=make())
            branches[name] = self._onnx.helper.make_graph(self._nodes, name, [], [result])
            self._offset += len(self._nodes) - len(outer)
            self._nodes, self._known = outer, known
        return self.If(condition, **branches)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what `make` returned when it was first called with this key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def cast(self, value: str, dtype: Any) -> str:
        """Return the value as another type."""
        return self.Cast(value, to=self._kind(dtype))

    def joined(self, *columns: str, axis: int = 1) -> str:
        """Put values side by side."""
        return columns[0] if len(columns) == 1 else str(self.Concat(*columns, axis=axis))

    def column(self, value: str) -> str:
        """Return (n,) as (n, 1)."""
        return self.Unsqueeze(value, [1])

    def summed(self, value: str, axis: int, keep: bool = False) -> str:
        return self.ReduceSum(value, [axis], keepdims=int(keep))

    def rows(self, like: str, values: np.ndarray) -> str:
        """Return an array (k,) for each of the n rows that `like`, (n, …), has: (n, k)."""
        shape = self.Concat(self.Shape(like, start=0, end=1), [len(values)], axis=0)
        return self.Expand(values[None], shape)

    def softmax(self, scores: str) -> str:
        return self.Softmax(scores, axis=1)

    def unless(self, absent: str | None, value: str, dtype: Any = np.float64) -> str:
        """Return a value (n, k), but 0 in rows that `absent`, bool (n,), marks."""
        if absent is None:
            return value
        return self.Where(self.column(absent), dtype(0), value)

    def model(self, about: Mapping[str, str]) -> Any:
        """Return the model of what was added, checked; `about` is kept in its metadata.

        Raises UsboostError if it is larger than a file can be.
        """
        onnx = self._onnx
        needed, kept = {each.name for each in self._outputs}, []
        for node in reversed(self._nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                needed.update(name for a in node.attribute for inner in a.g.node for name in inner.input)
                kept.append(node)
        constants = [each for name, each in self._constants.items() if name in needed]
        if sum(each.ByteSize() for each in constants) > LARGEST:
            raise UsboostError("the model is larger than an ONNX file can be, 2 GB; export a smaller one")
        graph = onnx.helper.make_graph(kept[::-1], "usboost", self._inputs, self._outputs, constants)
        versions = [onnx.helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        model = onnx.helper.make_model(
            graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="usboost"
        )
        onnx.helper.set_model_props(model, dict(about))
        onnx.checker.check_model(model)
        return model

    def _kind(self, dtype: Any) -> int:
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def no_form(part: object, what: str) -> UsboostError:
    """Return the refusal of a part without an ONNX form. `what`: a weak learner, say."""
    return UsboostError(
        f"{type(part).__name__}, {what}, has no ONNX form, so that the model cannot be exported; give the "
        "class a method `to_onnx`, or choose another model"
    )

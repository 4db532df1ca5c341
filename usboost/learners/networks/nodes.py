"""Networks in ONNX graphs: fully connected ones written out, parts that read images as torch writes them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from usboost.data.nodes import ImageNodes, TableNodes, ViewNodes
from usboost.errors import UsboostError
from usboost.files.onnx_graph import OPSETS, Graph

Weights = Mapping[str, np.ndarray]

GROUP_WIDTH = 800
"""Hidden units side by side: what a batch of rows takes of memory grows with them."""


def first_layer(table: TableNodes, weight: np.ndarray, lookup: np.ndarray, bias: np.ndarray) -> str:
    """Return what a `TableLinear` of weights (k, p), (codes, k) and (k,) gives: float32 (n, k)."""
    graph, parts = table.graph, [] if table.numeric is None else [table.graph.MatMul(table.numeric, weight.T)]
    looked_up = table.looked_up(lookup)
    parts += [] if looked_up is None else [looked_up]
    return reduce(graph.Add, [*parts, bias[None]])


def dense(graph: Graph, values: str, weights: Weights) -> str:
    """Return what a `dense_network` of this state gives."""
    numbers = sorted({int(name.split(".")[0]) for name in weights})
    for k in numbers:
        if k != numbers[0]:
            values = graph.Relu(values)
        values = graph.Add(graph.MatMul(values, weights[f"{k}.weight"].T), weights[f"{k}.bias"])
    return values


def table_network(table: TableNodes, weights: Weights) -> str:
    """Return what a `table_network` of this state gives, float32 (n, D)."""
    out = first_layer(table, weights["0.weight"], weights["0.lookup"], weights["0.bias"])
    rest = {name: array for name, array in weights.items() if not name.startswith("0.")}
    return dense(table.graph, table.graph.Relu(out), rest) if rest else out


def sum_of_networks(table: TableNodes, networks: Sequence[Weights], steps: Sequence[float]) -> str:
    """Return Σ_k step_k · network_k(x), float64 (n, D), of `table_network`s of one shape, side by side."""
    graph, parts = table.graph, []
    size = max(1, GROUP_WIDTH // networks[0]["0.bias"].size)
    layers = sorted({int(name.split(".")[0]) for name in networks[0]})[1:]
    for start in range(0, len(networks), size):
        group = networks[start : start + size]
        weight, bias = (np.concatenate([each[f"0.{name}"] for each in group]) for name in ("weight", "bias"))
        lookup = np.concatenate([each["0.lookup"] for each in group], axis=1)
        shape = [0, len(group), -1]
        out = graph.Reshape(first_layer(table, weight, lookup, bias), shape)
        out = graph.Transpose(out, perm=[1, 0, 2])
        for k in layers:
            out = graph.MatMul(graph.Relu(out), np.stack([each[f"{k}.weight"].T for each in group]))
            out = graph.Add(out, np.stack([each[f"{k}.bias"][None] for each in group]))
        own = np.reshape(steps[start : start + size], (-1, 1, 1)).astype(np.float64)
        parts.append(graph.summed(graph.Mul(graph.cast(out, np.float64), own), 0))
    return reduce(graph.Add, parts)


def branch(view: ViewNodes, weights: Weights, build: Callable[[], nn.Module]) -> str:
    """Return what a network of `inputs.branch`, which `build` makes, gives of a view: float32 (n, D)."""
    if isinstance(view, TableNodes):
        return table_network(view, weights)
    network: Any = build()
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return image_network(view, network)


def image_network(images: ImageNodes, network: Any) -> str:
    """Return what an `ImageNetwork` gives of images, float32 (n, …)."""
    graph, spec = images.graph, network.spec
    values = graph.Div(graph.cast(images.pixels, np.float32), np.float32(255))
    channels, height, width = images.channels, images.height, images.width
    if (size := spec["size"]) and (height, width) != (size, size):
        # what torch's own filter does to each row and each column of pixels
        values = graph.MatMul(values, _filter(width, size))
        values = graph.MatMul(_filter(height, size).T, values)
        height = width = size
    if spec["backbone"] != "small_cnn" and channels == 1:
        values, channels = graph.joined(values, values, values), 3
    mean, deviation = (each.numpy() for each in (network.mean, network.deviation))
    values = graph.Div(graph.Sub(values, mean), deviation)
    channels = max(channels, len(spec["mean"]))
    backbone = network.backbone
    if isinstance(backbone, nn.Sequential):
        pool = nn.AdaptiveAvgPool2d
        backbone = nn.Sequential(*(_Averages(each) if isinstance(each, pool) else each for each in backbone))
    layers = nn.Sequential(backbone, network.head)
    return from_torch(graph, layers, values, torch.zeros(2, channels, height, width), spec["backbone"])


class _Averages(nn.Module):
    """Averages over parts of rows and of columns, of any number of these, as products of matrices."""

    def __init__(self, pool: nn.AdaptiveAvgPool2d) -> None:
        super().__init__()
        self.sides: Any = pool.output_size if isinstance(pool.output_size, tuple) else (pool.output_size,) * 2

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        down, across = (
            functional.adaptive_avg_pool1d(torch.eye(int(own))[None], side)[0]
            for own, side in zip(values.shape[-2:], self.sides)
        )
        return down.T @ values @ across


def _filter(side: int, size: int) -> np.ndarray:
    """Return by what a row of so many pixels is multiplied to have `size` of them: float32 (side, size)."""
    rows = torch.eye(side)[None, None]
    found = functional.interpolate(rows, (side, size), mode="bilinear", antialias=True)
    return np.asarray(found[0, 0].numpy())


def from_torch(graph: Graph, module: nn.Module, values: str, example: torch.Tensor, name: str) -> str:
    """Add a module's nodes, traced with an example of its input; return its output.

    Raises `UsboostError`, naming the backbone, if torch cannot write it.
    """
    import onnx

    file: Any = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what tracing takes as constant, and of its age
            torch.onnx.export(
                module.eval(),
                (example,),
                file,
                opset_version=OPSETS[""],
                dynamo=False,
                input_names=["x"],
                output_names=["y"],
                dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
            )
    except Exception as error:  # whatever torch raises of an operator without a form
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsboostError(f"the backbone {name} has no ONNX form: {first}; choose another one") from error
    return graph.embed(onnx.load_model_from_string(file.getvalue()), [values])[0]

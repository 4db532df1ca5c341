"""Networks in ONNX graphs: fully connected ones written out, parts that read images as torch writes them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from usboost.data.nodes import ImageNodes, TableNodes
from usboost.errors import UsboostError
from usboost.files.onnx_graph import OPSETS, Value, joined, no_form
from usboost.learners.networks.image_network import ImageNetwork
from usboost.learners.networks.inputs import TableLinear

Weights = Mapping[str, np.ndarray]

GROUP_WIDTH = 800
"""Hidden units side by side: what a batch of rows takes of memory grows with them."""


def through(view: Any, module: Any) -> Value:
    """Return what a network, or a layer of one, gives of a view, or of a value: float32 (n, D)."""
    if isinstance(module, ImageNetwork):
        return image_network(view, module)
    if isinstance(module, nn.Sequential):
        return reduce(through, module, view)
    if isinstance(module, TableLinear):
        return view.linear(*(array(each) for each in (module.weight.T, module.lookup, module.bias)))
    if isinstance(module, nn.Linear):
        return view @ array(module.weight.T) + array(module.bias)[None]
    if isinstance(module, nn.ReLU):
        return view.Relu()
    if isinstance(module, nn.Identity):
        return view
    raise no_form(module, "a layer of a network")


def array(tensor: torch.Tensor) -> np.ndarray:
    """Return what a tensor on the CPU holds."""
    return np.asarray(tensor.detach().numpy())


def sum_of_networks(table: TableNodes, networks: Sequence[Weights], steps: Sequence[float]) -> Value:
    """Return Σ_k step_k · network_k(x), float64 (n, D), of `table_network`s of one shape, side by side."""
    parts = []
    size = max(1, GROUP_WIDTH // networks[0]["0.bias"].size)
    layers = sorted({int(name.split(".")[0]) for name in networks[0]})[1:]
    for start in range(0, len(networks), size):
        group = networks[start : start + size]
        weight, bias = (np.concatenate([each[f"0.{name}"] for each in group]) for name in ("weight", "bias"))
        lookup = np.concatenate([each["0.lookup"] for each in group], axis=1)
        out = table.linear(weight.T, lookup, bias).Reshape([0, len(group), -1]).Transpose(perm=[1, 0, 2])
        for k in layers:
            out = out.Relu() @ np.stack([each[f"{k}.weight"].T for each in group])
            out = out + np.stack([each[f"{k}.bias"][None] for each in group])
        own = np.reshape(steps[start : start + size], (-1, 1, 1)).astype(np.float64)
        parts.append((out.cast(np.float64) * own).summed(0))
    return reduce(add, parts)


def image_network(images: ImageNodes, network: Any) -> Value:
    """Return what an `ImageNetwork` gives of images, float32 (n, …); the part behind pixels is traced.

    Raises `UsboostError`, naming the backbone, if torch cannot write it.
    """
    import onnx

    spec, values = network.spec, images.pixels.cast(np.float32) / np.float32(255)
    channels, height, width = images.channels, images.height, images.width
    if (size := spec["size"]) and (height, width) != (size, size):
        # what torch's own filter does to each row and each column of pixels
        values = _filter(height, size).T @ (values @ _filter(width, size))
        height = width = size
    if spec["backbone"] != "small_cnn" and channels == 1:
        values, channels = joined([values] * 3), 3
    values = (values - array(network.mean)) / array(network.deviation)
    channels = max(channels, len(spec["mean"]))
    backbone = network.backbone
    if isinstance(backbone, nn.Sequential):
        pool = nn.AdaptiveAvgPool2d
        backbone = nn.Sequential(*(_Averages(each) if isinstance(each, pool) else each for each in backbone))
    file: Any = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what tracing takes as constant, and of its age
            torch.onnx.export(
                nn.Sequential(backbone, network.head).eval(),
                (torch.zeros(2, channels, height, width),),
                file,
                opset_version=OPSETS[""],
                dynamo=False,
                input_names=["x"],
                output_names=["y"],
                dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
            )
    except Exception as error:  # whatever torch raises of an operator without a form
        first = (str(error).splitlines() or [type(error).__name__])[0]
        message = f"the backbone {spec['backbone']} has no ONNX form: {first}; choose another one"
        raise UsboostError(message) from error
    return values.graph.embed(onnx.load_model_from_string(file.getvalue()), [values])[0]


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
    weights = functional.interpolate(rows, (side, size), mode="bilinear", antialias=True)
    return np.asarray(weights[0, 0].numpy())

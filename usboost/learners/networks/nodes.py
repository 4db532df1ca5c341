"""Networks in ONNX graphs: fully connected ones written out, parts that read images as torch writes them."""

from __future__ import annotations

import io
import warnings
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from usboost.data.nodes import ImageNodes
from usboost.errors import UsboostError
from usboost.files.onnx_graph import OPSETS, Value, joined, no_form
from usboost.learners.networks.image_network import ImageNetwork
from usboost.learners.networks.inputs import TableLinear

WIDTH = 800
"""Hidden units side by side: what a batch of rows takes of memory grows with them."""


def through(view: Any, *networks: Any) -> Value:
    """Return what a network, or a layer of one, gives of a view, or of a value: float32 (n, D).

    Of m networks of one shape it is (m, n, D).
    """
    first = networks[0]
    if isinstance(first, ImageNetwork):
        return image_network(view, first)
    if isinstance(first, nn.Sequential):
        return reduce(lambda value, layers: through(value, *layers), zip(*networks), view)
    if isinstance(first, TableLinear | nn.Linear):
        is_table = isinstance(first, TableLinear)
        weights = [torch.cat([each.weight.T, *([each.lookup] if is_table else [])]) for each in networks]
        weight, bias = (array(torch.stack(each).squeeze(0)) for each in (weights, [n.bias for n in networks]))
        return view.linear(weight, bias) if is_table else view @ weight + bias[..., None, :]
    if isinstance(first, nn.ReLU):
        return view.Relu()
    if isinstance(first, nn.Identity):
        return view
    raise no_form(first, "a layer of a network")


def array(tensor: torch.Tensor) -> np.ndarray:
    """Return what a tensor on the CPU holds."""
    return np.asarray(tensor.detach().numpy())


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
    found = functional.interpolate(rows, (side, size), mode="bilinear", antialias=True)
    return np.asarray(found[0, 0].numpy())

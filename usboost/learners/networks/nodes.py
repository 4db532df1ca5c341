"""Networks in ONNX graphs: fully connected ones written out, parts that read images as torch writes them."""

import io
import warnings
from functools import partial, reduce
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from usboost.errors import UsboostError
from usboost.files.onnx_graph import OPSETS, ImageNodes, Value, no_form
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
        both = (weights, [each.bias for each in networks])
        weight, bias = (torch.stack(each).squeeze(0).detach().numpy() for each in both)
        return view.linear(weight, bias) if is_table else view @ weight + bias[..., None, :]
    if isinstance(first, nn.ReLU | nn.Identity):
        return view.Relu() if isinstance(first, nn.ReLU) else view
    raise no_form(first, "a layer of a network")


def image_network(images: ImageNodes, network: Any) -> Value:
    """Return what an `ImageNetwork` gives of images, float32 (n, …), as torch writes it.

    Raises `UsboostError`, naming the backbone, if torch cannot.
    """
    file: Any = io.BytesIO()
    pixels = torch.zeros((2, images.channels, images.height, images.width), dtype=torch.uint8)
    try:
        with warnings.catch_warnings(), _OnnxOperators():
            warnings.simplefilter("ignore")  # of what tracing takes as constant, and of its age
            torch.onnx.export(
                network.eval(),
                ((pixels,),),
                file,
                opset_version=OPSETS[""],
                dynamo=False,
                input_names=["x"],
                output_names=["y"],
                dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
            )
    except Exception as error:  # whatever torch raises of an operator without a form
        first = (str(error).splitlines() or [type(error).__name__])[0]
        message = f"the backbone {network.spec['backbone']} has no ONNX form: {first}; choose another one"
        raise UsboostError(message) from error
    return images.pixels.graph.embed(file.getvalue(), images.pixels)[0]


class _OnnxOperators(TorchFunctionMode):
    """Make torch's functions that ONNX lacks of those that it has, in its block and this thread alone."""

    def __torch_function__(self, function: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        if function is torch.Tensor.as_strided:
            return given[0]  # an order in memory, which a graph has not
        if function in (functional.interpolate, functional.adaptive_avg_pool2d):
            function = partial(_by_matrices, function)
        return function(*given, **(options or {}))


def _by_matrices(function: Any, values: torch.Tensor, size: Any, **options: Any) -> torch.Tensor:
    """Resize (n, C, H, W) to (n, C, *size) by products with what a function makes of unit matrices."""
    down, across = (
        function(torch.eye(int(own))[None, None], (int(own), side), **options)[0, 0]
        for own, side in zip(values.shape[-2:], size if isinstance(size, tuple) else (size, size))
    )
    return down.T @ values @ across

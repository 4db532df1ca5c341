"""The network of two branches, its specification, and what a checkpoint keeps of its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn
from torch.nn import functional

from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.rounds import Round
from usboost.errors import UsboostError
from usboost.learners.networks.inputs import (
    Checked,
    Width,
    Widths,
    branch,
    check_input,
    check_weights,
    validated,
)
from usboost.learners.networks.modules import Linear, dense_network, generators
from usboost.learners.networks.train import Batches, Optimizer, Tensors, run


class TwoBranchNetwork(nn.Module):
    """DNN1 on one view, DNN2 on the other, fusion, DNN3, one logit per class (US Figure 1), or one number.

    Fusion by "concat" joins the two embeddings; by "product" multiplies them element by element,
    and where their widths differ a linear layer first brings the first to the second's. Of more than two
    views, of images from several sides say, all but the last have a DNN1 each. A view that the
    specification says may be `missing` comes with a mask of the rows without it, which a learned vector
    stands for.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__()
        dnn1, dnn2 = list(spec["dnn1"]), list(spec["dnn2"])
        first, *further, last = spec["inputs"]
        self.first, self.second = branch(first, dnn1), branch(last, dnn2)
        self.further = nn.ModuleList(branch(each, dnn1) for each in further)
        one, two = dnn1[-1], dnn2[-1]
        self.product = spec["fusion"] == "product"
        self.match = Linear(one, two) if self.product and one != two else nn.Identity()
        fused = two if self.product else one * (1 + len(further)) + two
        self.joint = dense_network([fused, *spec["dnn3"], spec["n_classes"]])
        missing = spec["missing"]
        self.no_first = _vector(one, missing[0])
        self.no_second = _vector(two, missing[-1])
        self.no_further = nn.ParameterList(_vector(one, each) for each in missing[1:-1])

    def forward(self, first: Tensors, *others: Tensors) -> torch.Tensor:
        *further, last = others
        embedded = [self.match(_embedded(self.first, first, self.no_first))]
        for module, tensors, missing in zip(self.further, further, self.no_further):
            embedded.append(self.match(_embedded(module, tensors, missing)))
        embedded.append(_embedded(self.second, last, self.no_second))
        if not self.product:
            return self.joint(torch.cat(embedded, dim=1))
        return self.joint(reduce(torch.mul, embedded))


def _vector(width: int, needed: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(width)) if needed else None


def _embedded(branch: nn.Module, tensors: Tensors, missing: torch.Tensor | None) -> torch.Tensor:
    """What a branch makes of its rows, after the ReLU; of those without the view the vector `missing`."""
    if missing is None:
        return functional.relu(branch(tensors))
    *given, absent = tensors
    return torch.where(absent[:, None], missing, functional.relu(branch(tuple(given))))


@dataclass(frozen=True)
class FittedTwoBranch:
    """A trained two-branch network: its specification and weights, float32 on the CPU."""

    spec: dict[str, Any]
    weights: dict[str, np.ndarray]

    def logits(self, inputs: Sequence[Batches], device: torch.device) -> np.ndarray:
        """float32 (n, M), (n, 1) of a regression, from the rows of the views in the spec's order."""
        network = TwoBranchNetwork(self.spec)
        network.load_state_dict({name: torch.from_numpy(array) for name, array in self.weights.items()})
        return run(network.to(device), inputs)

    def check(self, n_classes: int) -> None:
        """The weights are those of the specification, for `n_classes` classes (1: a regression).

        Raises `UsboostError` if not.
        """
        spec = validated(_TwoBranchSpec, self.spec)
        if spec["n_classes"] != n_classes:
            raise UsboostError(f"the network has {spec['n_classes']} classes, not {n_classes}")
        spec["inputs"] = [check_input(each) for each in self.spec["inputs"]]
        if not len(spec["inputs"]) == len(spec["views"]) == len(spec["missing"]):
            raise UsboostError("the network's views are not as many as its inputs")
        check_weights(self.weights, spec, TwoBranchNetwork)


class _TwoBranchSpec(Checked):
    inputs: Annotated[list[dict[str, Any]], Field(min_length=2)]
    views: Annotated[list[str], Field(min_length=2)]
    dnn1: Annotated[Widths, Field(min_length=1)]
    dnn2: Annotated[Widths, Field(min_length=1)]
    dnn3: Widths
    fusion: Literal["concat", "product"]
    n_classes: Width  # 1 for a regression
    missing: list[bool]


@dataclass(frozen=True)
class Training:
    """What a checkpoint keeps of a network in training, epoch by epoch."""

    network: nn.Module
    optimizer: Optimizer
    generator: torch.Generator

    def keep(
        self,
        checkpoint: Checkpoint | None,
        round_: Round,
        best_weights: Mapping[str, np.ndarray],
        best: Mapping[str, float] | None,
    ) -> None:
        if checkpoint is None:
            return
        arrays = {f"best/{name}": array for name, array in best_weights.items()}
        arrays |= {f"now/{name}": tensor.cpu().numpy() for name, tensor in self._tensors().items()}
        arrays |= {f"drawn/{i}": each.get_state().numpy() for i, each in enumerate(self._generators())}
        # one file holds all that the next epoch needs; the epoch's own file may be missing after it
        described = {"metrics": round_.metrics, "seconds": round_.seconds}
        checkpoint.keep_state(round_.index, arrays, {"best": best, "round": described})
        checkpoint.keep(round_)

    def restore(
        self, checkpoint: Checkpoint | None
    ) -> tuple[list[Round], dict[str, np.ndarray], dict[str, float] | None]:
        """The epochs done, the best weights so far and their metrics."""
        state = checkpoint.state() if checkpoint is not None else None
        if checkpoint is None or state is None:
            return [], {}, None
        index, arrays, more = state
        done = checkpoint.rounds()[:index]
        if len(done) < index:
            done.append(Round(index, None, more["round"]["metrics"], more["round"]["seconds"]))
            checkpoint.keep(done[-1])  # else the next epoch's file would leave a gap
        for name, tensor in self._tensors().items():
            tensor.copy_(torch.from_numpy(arrays[f"now/{name}"]).reshape(tensor.shape))
        for i, generator in enumerate(self._generators()):
            generator.set_state(torch.from_numpy(arrays[f"drawn/{i}"]))
        best = {name[5:]: array for name, array in arrays.items() if name.startswith("best/")}
        return done, best, more["best"]

    def _tensors(self) -> dict[str, torch.Tensor]:
        tensors = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        return tensors | {f"optimizer/{name}": tensor for name, tensor in self.optimizer.state().items()}

    def _generators(self) -> list[torch.Generator]:
        return [self.generator, *generators(self.network)]

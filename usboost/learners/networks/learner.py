"""Neural networks as weak learners."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from sklearn.base import BaseEstimator
from torch import nn

from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.files.onnx_graph import TableNodes, Value, ViewNodes, sum_of
from usboost.learners.base import FittedLearner, Target, check_outputs, sum_one_by_one
from usboost.learners.networks import nodes
from usboost.learners.networks import written_out as by_hand
from usboost.learners.networks.backbones import Backbone, read_in_graph
from usboost.learners.networks.inputs import (
    Checked,
    Spec,
    Widths,
    branch,
    check_input,
    check_weights,
    initialise,
    prepare_view,
    reseed,
    validated,
)
from usboost.learners.networks.train import Batches, Tensors, make_optimizer, pick_device, run, run_epoch
from usboost.learners.search_space import BATCH, FINETUNE, HIDDEN, Choice, Integer, Real, Space
from usboost.shards.collective import world


@dataclass(frozen=True)
class PreparedView:
    """A view's rows on the device, with the specification that a network for it needs."""

    rows: Batches
    spec: dict[str, Any]
    device: torch.device


@dataclass(frozen=True)
class FittedNetwork:
    """One trained network: its specification and its weights, float32 on the CPU."""

    spec: dict[str, Any]
    weights: dict[str, np.ndarray]
    kind: ClassVar[str] = "network"

    def predict(self, prepared: PreparedView) -> np.ndarray:
        network = self.module(prepared.device)
        fast = by_hand.written_out(network, prepared.rows)
        return by_hand.predict(*fast) if fast else run(network, [prepared.rows])

    @classmethod
    def weighted_sum(
        cls, learners: "Sequence[FittedNetwork]", steps: Sequence[float], prepared: PreparedView
    ) -> np.ndarray:
        """Return Σ_k step_k · network_k(x), float64 (n, D): stacked where they are tables on the CPU."""
        if any(learner.spec != learners[0].spec for learner in learners):
            return sum_one_by_one(learners, steps, prepared)
        network = learners[0].module(prepared.device)
        if fast := by_hand.written_out(network, prepared.rows):
            return by_hand.weighted_sum([learner.weights for learner in learners], steps, fast[1])
        # one network for all: to build a large one takes longer than to run it
        total: Any = 0.0
        for learner, step in zip(learners, steps):
            learner._load(network)
            total = total + np.float64(step) * run(network, [prepared.rows])
        return np.asarray(total)

    @classmethod
    def sum_to_onnx(cls, learners: Sequence[Self], steps: Sequence[float], view: Any) -> Value:
        """Return Σ_k step_k · network_k(x) in a graph, float64 (n, D)."""
        networks, spec = [each.module(torch.device("cpu")) for each in learners], learners[0].spec
        alike = isinstance(view, TableNodes) and all(each.spec == spec for each in learners)
        at_once, parts = max(1, nodes.WIDTH // spec["widths"][0]) if alike else 1, []
        for start in range(0, len(networks), at_once):
            some = slice(start, start + at_once)
            outputs = nodes.through(view, *networks[some]).cast(np.float64)
            parts.append((outputs * np.reshape(np.asarray(steps[some], np.float64), (-1, 1, 1))).summed(0))
        return sum_of(parts)

    def module(self, device: torch.device) -> nn.Module:
        network = branch(self.spec["input"], self.spec["widths"])
        self._load(network)
        return network.to(device)

    def _load(self, network: nn.Module) -> None:
        network.load_state_dict({name: torch.from_numpy(array) for name, array in self.weights.items()})

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return dict(self.weights), {"spec": self.spec}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> "FittedNetwork":
        return cls(meta["spec"], arrays)

    def check(self, n_outputs: int | None = None, n_columns: int | None = None) -> None:
        """Check that the weights are those of the specification, and that there are `n_outputs` outputs."""
        spec = validated(_NetworkSpec, self.spec)
        spec["input"] = check_input(self.spec["input"])
        check_weights(self.weights, spec, _network)
        check_outputs(spec["widths"][-1], n_outputs)


class _NetworkSpec(Checked):
    input: dict[str, Any]
    widths: Annotated[Widths, Field(min_length=1)]


def _network(spec: Spec) -> nn.Module:
    return branch(spec["input"], spec["widths"])


@dataclass(eq=False, repr=False)
class NetworkLearner(BaseEstimator):
    """A network on a table or on images, fitted by (weighted) mean squared error.

    Batches are drawn by rows whatever their weights, by which the errors in them count.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the hidden layers: (100, 50) is the paper's FC100+50.
    optimizer : {"rmsprop", "sgd", "adam"}
    learning_rate : float
    batch_size : int
    epochs : passes over the training rows per round (not given by the paper)
    batches_per_round : (int, int), optional
        Rows of at least and at most so many whole batches per round: of few more passes than `epochs`, of
        many only some, drawn anew each round.
    start : {"fresh", "warm"}
        Whether a round's network starts from new random weights or from the last round's (not
        given by the paper).
    device : "auto", "cpu", "cuda" or any torch device
    backbone : how images are read; a small CNN by default. The hidden layers come after it. What of it is
        trained goes on from its pretrained weights every round, or with a "warm" start from the last round's.
    reads : tuple of view names, optional
        The views that it reads, several as tables side by side; by default the one with its own name.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import NetworkLearner, Table, TwoWeakLearnerClassifier, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> learners = {"both": NetworkLearner((16,), batch_size=16, epochs=4, reads=("U", "S"), device="cpu")}
    >>> TwoWeakLearnerClassifier(learners, n_rounds=20).fit(views, y).score(views, y) > 0.8
    True
    """

    kind: ClassVar[str] = "network"
    fitted: ClassVar[type] = FittedNetwork
    holds: ClassVar[dict[str, Any]] = {"backbone": ("Backbone",)}
    reads_images: ClassVar[bool] = True
    space: ClassVar[Space] = {
        "hidden": HIDDEN,
        "learning_rate": Real(1e-4, 0.03, log=True),
        "batch_size": BATCH,
        "epochs": Integer(1, 4, log=True),
        "start": Choice(("fresh", "warm")),
        "batches_per_round": Choice((None, (10, 200), (10, 400), (50, 200), (100, 400))),
        "backbone__finetune": Choice(FINETUNE, where="images alone"),
    }

    hidden: tuple[int, ...] = (100, 50)
    optimizer: str = "rmsprop"
    learning_rate: float = 1e-3
    batch_size: int = 512
    epochs: int = 1
    start: str = "fresh"
    device: str = "auto"
    backbone: Backbone | None = None
    reads: tuple[str, ...] | None = None
    batches_per_round: tuple[int, int] | None = None

    def prepare(self, view: View) -> PreparedView:
        device = pick_device(self.device)
        spec, rows = prepare_view(view, device, self.backbone)
        return PreparedView(rows, spec, device)

    def prepare_to_onnx(self, view: ViewNodes) -> Any:
        """Return a view as `prepare` reads it, in its graph."""
        return read_in_graph(view, self.backbone)

    def trainer(self, prepared: PreparedView, n_outputs: int) -> "NetworkTrainer":
        if self.start not in ("fresh", "warm"):
            raise UsboostError(f"a network starts 'fresh' or 'warm', not {self.start!r}")
        least, most = self.batches_per_round or (0, 1)
        if not 0 <= least <= most > 0:
            raise UsboostError(f"batches_per_round are the least and the most, not {self.batches_per_round}")
        return NetworkTrainer(self, prepared, n_outputs)


class NetworkTrainer:
    """Fits one network a round to that round's target."""

    takes_metric = True

    def __init__(self, learner: NetworkLearner, prepared: PreparedView, n_outputs: int) -> None:
        self._learner, self._prepared = learner, prepared
        self._spec: dict[str, Any] = {"input": prepared.spec, "widths": [*learner.hidden, n_outputs]}
        self._network = branch(self._spec["input"], self._spec["widths"]).to(prepared.device)

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedNetwork:
        learner, network, device = self._learner, self._network, self._prepared.device
        if learner.start == "warm" and isinstance(start, FittedNetwork):
            start._load(network)
            reseed(network, seed)
        else:
            initialise(network, seed)
            if learner.backbone is not None:
                learner.backbone.load_weights(network)
        targets = [torch.from_numpy(np.ascontiguousarray(target.values, dtype=np.float32)).to(device)]
        importance, present = _importance(target)
        taking_part = torch.from_numpy(np.flatnonzero(present))
        if importance is not None:
            targets.append(torch.from_numpy(importance).to(device))
        optimizer = make_optimizer(learner.optimizer, network, learner.learning_rate)
        generator = torch.Generator().manual_seed(world().seed(seed))
        rows, fast = self._prepared.rows, by_hand.written_out(network, self._prepared.rows)
        network.train()
        for batches in self._passes(taking_part, generator):
            if fast:
                by_hand.train_epoch(*fast, targets, optimizer, batches)
            else:
                run_epoch(network, [rows], _squared_error, tuple(targets), optimizer, batches)
        state = network.state_dict().items()
        return FittedNetwork(self._spec, {name: each.detach().cpu().numpy().copy() for name, each in state})

    def _passes(self, rows: torch.Tensor, generator: torch.Generator) -> Iterator[list[torch.Tensor]]:
        """Return the batches of each pass, in an order of its own; of the last one maybe not all.

        A batch has its share of each shard's rows: all shards have as many parts, which may be empty.
        """
        learner, size, own = self._learner, self._learner.batch_size, len(rows)
        n = int(world().sum(own))
        left = learner.epochs * n
        if learner.batches_per_round is not None:
            least, most = (steps * size for steps in learner.batches_per_round)
            left = min(max(left, least), most)
        while left > 0 and n:
            order, taken = rows[torch.randperm(own, generator=generator)], min(left, n)
            left -= taken
            cuts = [end * own // n for end in (*range(0, taken, size), taken)]
            yield [order[start:stop] for start, stop in pairwise(cuts)]


def _importance(target: Target) -> tuple[np.ndarray | None, np.ndarray]:
    """Return weights (n, D), or a metric (n, D, D), by which errors count, and which rows do, bool (n,).

    Scaled to a mean of 1, so that a learning rate means the same in every round; a metric by its trace.
    """
    n, d = target.values.shape

    def mean(values: np.ndarray) -> float:  # of all shards' rows
        return float(world().mean(values.mean() if values.size else np.nan, len(values)))

    if target.metric is not None and target.metric.ndim == 3:
        present = np.ones(n, dtype=bool)
        if target.left_out is not None:
            present[target.left_out] = False
        metric = target.metric if target.counts is None else target.metric * target.counts[:, None, None]
        trace = mean(np.einsum("nii->n", metric)[present])
        return (metric * (d / trace)).astype(np.float32), present
    if (given := target.fit_weights) is None:
        return None, np.ones(n, dtype=bool)
    weights = np.broadcast_to(given if given.ndim == 2 else given[:, None], target.values.shape)
    present = np.asarray(weights.any(axis=1))
    return (weights / mean(weights[present])).astype(np.float32), present


def _squared_error(outputs: torch.Tensor, targets: Tensors) -> torch.Tensor:
    error = outputs - targets[0]
    if len(targets) == 1:
        return error.square().mean()
    if targets[1].ndim == 3:  # a metric
        return (error * torch.einsum("nij,nj->ni", targets[1], error)).mean()
    return (error.square() * targets[1]).mean()

"""What the two-branch classifier and regressor share: how they are trained, and their files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from usboost.boosting.callbacks import improves, resume, tell, watched
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Round
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.files.arrays import read_arrays, write_arrays
from usboost.learners.dimensions import BATCH, FINETUNE, HIDDEN, Choice, Real, Space
from usboost.learners.networks.images.backbones import Backbone
from usboost.learners.networks.inputs import prepare_view
from usboost.learners.networks.modules import initialise
from usboost.learners.networks.training.batches import Batches, Tensors, WithAbsent
from usboost.learners.networks.training.optimizers import make_optimizer
from usboost.learners.networks.training.train import pick_device, run, run_epoch
from usboost.models.estimator import ViewsEstimator
from usboost.models.networks.two_branch_network import FittedTwoBranch, Training, TwoBranchNetwork

WEIGHTS = "network.safetensors"


@dataclass(frozen=True)
class Epochs:
    """A network in training, as callbacks see it: a round is an epoch."""

    n_rounds: int


class TwoBranches(ViewsEstimator):
    """What the classifier and the regressor share: settings, training, files."""

    views: Sequence[str]
    dnn1: Sequence[int]
    dnn2: Sequence[int]
    dnn3: Sequence[int]
    fusion: str
    optimizer: str
    learning_rate: float
    batch_size: int
    n_epochs: int
    patience: int | None
    device: str
    backbone: Backbone | None
    monitor: str
    random_state: int

    network_: FittedTwoBranch

    holds: ClassVar[Mapping[str, Any]] = {"backbone": ("Backbone",)}
    space: ClassVar[Space] = {
        "dnn1": HIDDEN,
        "dnn2": HIDDEN,
        "dnn3": Choice(((), (16,), (25,), (64,))),
        "optimizer": Choice(("rmsprop", "adam")),
        "learning_rate": Real(1e-4, 0.03, log=True),
        "batch_size": BATCH,
        "backbone__finetune": Choice(FINETUNE, where="images"),
    }

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        if self.fusion not in ("concat", "product"):
            raise UsboostError(f"fusion is 'concat' or 'product', not {self.fusion!r}")
        if len(self.views) < 2:
            raise UsboostError(f"a two-branch network reads two or more views; views names {len(self.views)}")
        # images may be missing when the model is used, also where none was in training
        missing = [getattr(views[name], "kind", None) == "image" for name in self.views]
        prepared = self._prepare(views, missing)
        spec = self._spec([spec for spec, _ in prepared], missing)
        network = self._network(spec)
        inputs, targets = [rows for _, rows in prepared], self._weighted(y, context.weights)
        validation, checkpoint = context.validation, context.checkpoint
        held_out = [rows for _, rows in self._prepare(validation[0], missing)] if validation else None
        optimizer = make_optimizer(self.optimizer, network, self.learning_rate)
        generator = torch.Generator().manual_seed(self.random_state)
        kept = Training(network, optimizer, generator)
        watch = context.watch(self.monitor, self.patience)
        with watched(Epochs(self.n_epochs), watch.callbacks):
            done, weights, best = kept.restore(checkpoint)
            if weights:
                self.network_ = FittedTwoBranch(spec, weights)
            stop = resume(watch.callbacks, done)
            for epoch in range(len(done) + 1, self.n_epochs + 1):
                if stop:
                    break
                start = time.perf_counter()
                order = torch.randperm(len(y), generator=generator)
                loss = run_epoch(
                    network, inputs, self._batch_loss, targets, optimizer, self.batch_size, order
                )
                trained = time.perf_counter()
                if not np.isfinite(loss):
                    raise UsboostError(
                        f"the training loss is no longer finite in epoch {epoch}; lower the learning rate"
                    )
                metrics = {"risk_train": loss}
                if held_out is not None and validation is not None:
                    metrics |= self._evaluate(run(network, held_out), validation[1], context.held_weights)
                if held_out is None or improves(metrics, best, self.monitor):
                    best = metrics
                    weights = {k: v.detach().cpu().numpy().copy() for k, v in network.state_dict().items()}
                    self.network_ = FittedTwoBranch(spec, weights)
                ended = time.perf_counter()
                seconds = {"fit": trained - start, "validation": ended - trained, "total": ended - start}
                round_ = Round(epoch, None, metrics, seconds)
                kept.keep(checkpoint, round_, self.network_.weights, best)
                stop = tell(watch.callbacks, round_)
        self.history_, self.best_round_ = watch.history, watch.best_round

    def _spec(self, inputs: list[dict[str, Any]], missing: list[bool]) -> dict[str, Any]:
        """What a network is built from, in training and when it is loaded."""
        return {
            "views": list(self.views),
            "inputs": inputs,
            "dnn1": list(self.dnn1),
            "dnn2": list(self.dnn2),
            "dnn3": list(self.dnn3),
            "fusion": self.fusion,
            "n_classes": self._n_classes(),
            "missing": missing,
        }

    def _network(self, spec: dict[str, Any]) -> TwoBranchNetwork:
        """A network to train: initial weights by the seed, a backbone's as they were trained."""
        network = TwoBranchNetwork(spec).to(pick_device(self.device))
        initialise(network, self.random_state)
        if self.backbone is not None:
            self.backbone.load_weights(network)
        return network

    def _weighted(self, y: np.ndarray, weights: np.ndarray | None) -> Tensors:
        """The targets, and the samples' weights if there are any, with a mean of 1."""
        device = pick_device(self.device)
        targets = self._targets(y).to(device)
        if weights is None:
            return (targets,)
        scaled = (weights / weights.mean()).astype(np.float32)
        return targets, torch.from_numpy(scaled).to(device)

    @property
    def n_estimators_(self) -> int:
        """One network: that of the best epoch."""
        self._check_fitted()
        return 1

    def _reads(self, n_columns: int) -> Sequence[str]:
        return self.views

    def _write(self, folder: Path) -> dict[str, Any]:
        write_arrays(self.network_.weights, folder / WEIGHTS)
        return {"network": self.network_.spec}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        if len(self.views) < 2:
            raise UsboostError("it reads one view only, not two or more")
        self.network_ = FittedTwoBranch(document["network"], read_arrays(folder / WEIGHTS))
        self.network_.check(self._n_classes())
        if list(self.views) != self.network_.spec["views"]:
            raise UsboostError("the network reads other views than the model")

    def _prepare(self, views: Views, missing: Sequence[bool]) -> list[tuple[dict[str, Any], Batches]]:
        """Specification and rows of each view, with a mask where it may be missing."""
        device = pick_device(self.device)
        prepared = []
        for name, masked in zip(self.views, missing):
            spec, rows = prepare_view(views[name], device, self.backbone)
            if masked:
                absent = getattr(views[name], "absent", None)
                mask = np.zeros(len(rows), dtype=bool) if absent is None else np.asarray(absent)
                rows = WithAbsent(rows, torch.tensor(mask, device=device))
            prepared.append((spec, rows))
        return prepared

    def _n_classes(self) -> int:
        """Outputs of the network: M; 1 for a regression."""
        raise AttributeError("_n_classes is defined by each model")

    def _targets(self, y: np.ndarray) -> torch.Tensor:
        """y as the loss takes it."""
        raise AttributeError("_targets is defined by each model")

    @staticmethod
    def _batch_loss(outputs: torch.Tensor, targets: Tensors) -> torch.Tensor:
        """The mean loss of a batch; `targets` are y and, if there are any, weights (n,) of mean 1."""
        raise AttributeError("_batch_loss is defined by each model")

    def _evaluate(self, outputs: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
        """What is shown of the validation samples; "risk_val" at least."""
        raise AttributeError("_evaluate is defined by each model")

    def _outputs(self, views: Views) -> np.ndarray:
        """What the network gives, float64 (n, M), or (n, 1) of a regression."""
        self._check_fitted()
        missing = self.network_.spec["missing"]
        inputs = [rows for _, rows in self._prepare(views, missing)]
        return self.network_.logits(inputs, pick_device(self.device)).astype(np.float64)


def mean_loss(loss: Callable[..., torch.Tensor], outputs: torch.Tensor, targets: Tensors) -> torch.Tensor:
    """The mean of a loss of torch over a batch, each row by its weight.

    Weights have the mean 1 over all rows, not over the batch: the mean over all batches is then the weighted
    mean, whatever batch a heavy row is in.
    """
    if len(targets) == 1:
        return loss(outputs, targets[0])
    rows = loss(outputs, targets[0], reduction="none").reshape(len(outputs), -1).mean(dim=1)
    return (rows * targets[1]).mean()

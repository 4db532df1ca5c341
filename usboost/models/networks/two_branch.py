"""Two-branch networks: the papers' baseline, and the network half of BFV+DNN."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import softmax
from torch.nn import functional

from usboost.boosting.callbacks import Callback, improves, resume, tell, watched
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Round
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import accuracy, f1, mae, rmse
from usboost.files.arrays import read_arrays, write_arrays
from usboost.learners.networks.images.backbones import Backbone
from usboost.learners.networks.inputs import prepare_view
from usboost.learners.networks.modules import initialise
from usboost.learners.networks.train import (
    Batches,
    Tensors,
    WithAbsent,
    make_optimizer,
    pick_device,
    run,
    run_epoch,
)
from usboost.learners.search_space import BATCH, FINETUNE, HIDDEN, Choice, Real, Space
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.networks.two_branch_network import FittedTwoBranch, Training, TwoBranchNetwork

WEIGHTS = "network.safetensors"


@dataclass(frozen=True)
class Epochs:
    """A network in training, as callbacks see it: a round is an epoch."""

    n_rounds: int


@dataclass(eq=False, repr=False)
class TwoBranches(ViewsEstimator):
    """What the classifier and the regressor share: settings, training, files."""

    views: Sequence[str] = ("U", "S")
    dnn1: Sequence[int] = (100, 50)
    dnn2: Sequence[int] = (100, 50)
    dnn3: Sequence[int] = (25,)
    fusion: str = "concat"
    optimizer: str = "rmsprop"
    learning_rate: float = 1e-3
    batch_size: int = 128
    n_epochs: int = 30
    patience: int | None = 5
    validation_fraction: float = 0.1
    device: str = "auto"
    backbone: Backbone | None = None
    monitor: str = "f1_val"
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None
    checkpoint: Checkpoint | Path | str | None = None

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
                batches = torch.randperm(len(y), generator=generator).split(self.batch_size)
                loss = run_epoch(network, inputs, self._batch_loss, targets, optimizer, batches)
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


class TwoBranchNetworkClassifier(TwoBranches, ViewsClassifier):
    """A network with one branch per view, fused (the papers' baseline).

    Parameters
    ----------
    views : names of views; the last is DNN2's, those before it have a DNN1 each
    dnn1, dnn2 : widths of the branches; dnn3 : hidden widths after the fusion
    fusion : {"concat", "product"}
    optimizer : {"rmsprop", "sgd", "adam"}
    learning_rate : float
    batch_size : int
    n_epochs : at most this many epochs
    patience : epochs without a better `monitor` before stopping, or None
    validation_fraction : share of the training samples set aside when `fit` gets no validation data
    device : "auto", "cpu", "cuda"
    backbone : Backbone, optional; how images are read, a small CNN by default
    monitor : {"f1_val", "risk_val", "accuracy_val"}
    random_state : int
    callbacks : sequence of Callback, optional
    checkpoint : Checkpoint or path, optional
        A folder to which the fit writes every round, and from which the same fit resumes.

    Attributes
    ----------
    classes_, history_ : as everywhere
    best_round_ : int, an epoch
    network_ : FittedTwoBranch of the best epoch
    n_estimators_ : 1, one network

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import Table, TwoBranchNetworkClassifier, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> model = TwoBranchNetworkClassifier(views=("U", "S"), batch_size=16, n_epochs=20, device="cpu")
    >>> model.fit(views, y).score(views, y) > 0.8
    True
    """

    def _n_classes(self) -> int:
        return len(self.classes_)

    def _targets(self, y: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(y.astype(np.int64))

    @staticmethod
    def _batch_loss(outputs: torch.Tensor, targets: Tensors) -> torch.Tensor:
        return mean_loss(functional.cross_entropy, outputs, targets)

    def _evaluate(self, outputs: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
        predicted = outputs.argmax(axis=1)
        targets: Tensors = (torch.from_numpy(y),)
        if weights is not None:
            targets = (*targets, torch.from_numpy(weights / weights.mean()))
        return {
            "risk_val": float(mean_loss(functional.cross_entropy, torch.from_numpy(outputs), targets)),
            "f1_val": f1(y, predicted, outputs.shape[1], weights),
            "accuracy_val": accuracy(y, predicted, weights),
        }

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        return softmax(self._outputs(as_views(X)), axis=1)


@dataclass(eq=False, repr=False)
class TwoBranchNetworkRegressor(TwoBranches, ViewsRegressor):
    """The same network with one output and the squared error, on standardised targets.

    Parameters
    ----------
    As of `TwoBranchNetworkClassifier`, but
    monitor : {"risk_val", "rmse_val", "mae_val"}

    Attributes
    ----------
    target_centre_, target_scale_ : mean and standard deviation of the training targets
    history_ : list of dicts, one an epoch
        Risks are mean squared errors of standardised targets; "rmse_val" and "mae_val" are in the units of y.
    best_round_, network_, n_estimators_ : as of `TwoBranchNetworkClassifier`

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from usboost import Table, TwoBranchNetworkRegressor, Views
    >>> X, y = load_diabetes(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :5]), S=Table.from_numeric(X[:, 5:]))
    >>> model = TwoBranchNetworkRegressor(views=("U", "S"), batch_size=32, n_epochs=20, device="cpu")
    >>> model.fit(views, y).score(views, y) > 0.3
    True
    """

    monitor: str = "risk_val"

    def _n_classes(self) -> int:
        return 1

    def _targets(self, y: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(y.astype(np.float32)[:, None])

    @staticmethod
    def _batch_loss(outputs: torch.Tensor, targets: Tensors) -> torch.Tensor:
        return mean_loss(functional.mse_loss, outputs, targets)

    def _evaluate(self, outputs: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
        found = outputs[:, 0].astype(np.float64)
        scored = {"rmse_val": rmse(y, found, weights), "mae_val": mae(y, found, weights)}
        in_units = {name: self.target_scale_ * value for name, value in scored.items()}
        return {"risk_val": scored["rmse_val"] ** 2, **in_units}

    def _predict(self, views: Views) -> np.ndarray:
        return self._outputs(views)[:, 0]

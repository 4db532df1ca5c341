"""Two-branch networks: the papers' baseline, and the network half of BFV+DNN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from torch.nn import functional

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.data.views import Views
from usboost.evaluation.metrics import accuracy, f1, mae, rmse
from usboost.learners.networks.images.backbones import Backbone
from usboost.learners.networks.training.batches import Tensors
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.estimator import as_views
from usboost.models.networks.two_branch_training import TwoBranches, mean_loss


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

    def __init__(
        self,
        views: Sequence[str] = ("U", "S"),
        dnn1: Sequence[int] = (100, 50),
        dnn2: Sequence[int] = (100, 50),
        dnn3: Sequence[int] = (25,),
        fusion: str = "concat",
        optimizer: str = "rmsprop",
        learning_rate: float = 1e-3,
        batch_size: int = 128,
        n_epochs: int = 30,
        patience: int | None = 5,
        validation_fraction: float = 0.1,
        device: str = "auto",
        backbone: Backbone | None = None,
        monitor: str = "f1_val",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> None:
        self.views = views
        self.dnn1 = dnn1
        self.dnn2 = dnn2
        self.dnn3 = dnn3
        self.fusion = fusion
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.backbone = backbone
        self.monitor = monitor
        self.random_state = random_state
        self.callbacks = callbacks
        self.checkpoint = checkpoint

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

    def __init__(
        self,
        views: Sequence[str] = ("U", "S"),
        dnn1: Sequence[int] = (100, 50),
        dnn2: Sequence[int] = (100, 50),
        dnn3: Sequence[int] = (25,),
        fusion: str = "concat",
        optimizer: str = "rmsprop",
        learning_rate: float = 1e-3,
        batch_size: int = 128,
        n_epochs: int = 30,
        patience: int | None = 5,
        validation_fraction: float = 0.1,
        device: str = "auto",
        backbone: Backbone | None = None,
        monitor: str = "risk_val",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> None:
        self.views = views
        self.dnn1 = dnn1
        self.dnn2 = dnn2
        self.dnn3 = dnn3
        self.fusion = fusion
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.backbone = backbone
        self.monitor = monitor
        self.random_state = random_state
        self.callbacks = callbacks
        self.checkpoint = checkpoint

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

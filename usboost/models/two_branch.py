"""Two-branch networks: the papers' baseline, and the network half of BFV+DNN."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from scipy.special import softmax
from torch import nn
from torch.nn import functional

from usboost.boosting.callbacks import Callback, improves, resume, tell, watched
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Round
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import accuracy, f1
from usboost.files.arrays import read_arrays, write_arrays
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.batches import Batches, Tensors, WithAbsent
from usboost.learners.networks.initial_weights import generators, initialise
from usboost.learners.networks.inputs import (
    Checked,
    Width,
    Widths,
    branch,
    check_input,
    check_weights,
    prepare_view,
    validated,
)
from usboost.learners.networks.modules import Linear, dense_network
from usboost.learners.networks.optimizers import Optimizer, make_optimizer
from usboost.learners.networks.training import pick_device, run, run_epoch
from usboost.models.base import ViewsClassifier, as_views

WEIGHTS = "network.safetensors"


class TwoBranchNetwork(nn.Module):
    """DNN1 on one view, DNN2 on the other, fusion, DNN3, one logit per class (US Figure 1).

    Fusion by "concat" joins the two embeddings; by "product" multiplies them element by element,
    and where their widths differ a linear layer first brings the first to the second's. A view that the
    specification says may be `missing` comes with a mask of the rows without it, which a learned vector
    stands for.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__()
        widths = [list(spec["dnn1"]), list(spec["dnn2"])]
        self.first, self.second = (branch(view, w) for view, w in zip(spec["inputs"], widths))
        one, two = (w[-1] for w in widths)
        self.product = spec["fusion"] == "product"
        self.match = Linear(one, two) if self.product and one != two else nn.Identity()
        fused = two if self.product else one + two
        self.joint = dense_network([fused, *spec["dnn3"], spec["n_classes"]])
        missing = spec.get("missing", (False, False))  # files of earlier versions do not say it
        self.no_first = nn.Parameter(torch.zeros(one)) if missing[0] else None
        self.no_second = nn.Parameter(torch.zeros(two)) if missing[1] else None

    def forward(self, first: Tensors, second: Tensors) -> torch.Tensor:
        one = self.match(_embedded(self.first, first, self.no_first))
        two = _embedded(self.second, second, self.no_second)
        return self.joint(one * two if self.product else torch.cat((one, two), dim=1))


def _embedded(branch: nn.Module, tensors: Tensors, missing: torch.Tensor | None) -> torch.Tensor:
    """What a branch makes of its rows, after the ReLU; of those without the view the vector `missing`."""
    if missing is None:
        return functional.relu(branch(tensors))
    *given, absent = tensors
    return torch.where(absent[:, None], missing, functional.relu(branch(tuple(given))))


@dataclass(frozen=True)
class Epochs:
    """A network in training, as callbacks see it: a round is an epoch."""

    n_rounds: int


@dataclass(frozen=True)
class FittedTwoBranch:
    """A trained two-branch network: its specification and weights, float32 on the CPU."""

    spec: dict[str, Any]
    weights: dict[str, np.ndarray]

    def logits(self, inputs: Sequence[Batches], device: torch.device) -> np.ndarray:
        """float32 (n, M), from the rows of the two views in the specification's order."""
        network = TwoBranchNetwork(self.spec)
        network.load_state_dict({name: torch.from_numpy(array) for name, array in self.weights.items()})
        return run(network.to(device), inputs)

    def check(self, n_classes: int) -> None:
        """The weights are those of the specification, for `n_classes` classes.

        Raises
        ------
        UsboostError
            If not.
        """
        spec = validated(_TwoBranchSpec, self.spec)
        if spec["n_classes"] != n_classes:
            raise UsboostError(f"the network has {spec['n_classes']} classes, not {n_classes}")
        spec["inputs"] = [check_input(each) for each in self.spec["inputs"]]
        check_weights(self.weights, spec, TwoBranchNetwork)


class _TwoBranchSpec(Checked):
    inputs: Annotated[list[dict[str, Any]], Field(min_length=2, max_length=2)]
    views: Annotated[list[str], Field(min_length=2, max_length=2)]
    dnn1: Annotated[Widths, Field(min_length=1)]
    dnn2: Annotated[Widths, Field(min_length=1)]
    dnn3: Widths
    fusion: Literal["concat", "product"]
    n_classes: Width
    missing: Annotated[list[bool], Field(min_length=2, max_length=2, default_factory=lambda: [False] * 2)]


class TwoBranchNetworkClassifier(ViewsClassifier):
    """A network with one branch per view, fused (the papers' baseline).

    Parameters
    ----------
    views : pair of view names, DNN1's and DNN2's
    dnn1, dnn2 : widths of the branches; dnn3 : hidden widths after the fusion
    fusion : {"concat", "product"}
    optimizer : {"rmsprop", "sgd", "adam"}
    learning_rate : float
    batch_size : int
    n_epochs : at most this many epochs
    patience : epochs without a better `monitor` before stopping, or None
    validation_fraction : share of the training samples set aside when `fit` gets no validation data
    device : "auto", "cpu", "cuda"
    backbone : Backbone, optional; how pictures are read, a small CNN by default
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
    """

    holds: ClassVar[Mapping[str, Any]] = {"backbone": ("Backbone",)}

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

    def _fit(self, views: Views, codes: np.ndarray, context: FitContext) -> None:
        if self.fusion not in ("concat", "product"):
            raise UsboostError(f"fusion is 'concat' or 'product', not {self.fusion!r}")
        device = pick_device(self.device)
        # pictures may be missing when the model is used, also where none was in training
        missing = [getattr(views[name], "kind", None) == "image" for name in self.views]
        prepared = self._prepare(views, missing)
        spec = {
            "views": list(self.views),
            "inputs": [spec for spec, _ in prepared],
            "dnn1": list(self.dnn1),
            "dnn2": list(self.dnn2),
            "dnn3": list(self.dnn3),
            "fusion": self.fusion,
            "n_classes": len(self.classes_),
            "missing": missing,
        }
        network = TwoBranchNetwork(spec).to(device)
        initialise(network, self.random_state)
        if self.backbone is not None:
            self.backbone.load_weights(network)
        inputs = [rows for _, rows in prepared]
        targets = (torch.from_numpy(codes.astype(np.int64)).to(device),)
        validation, checkpoint = context.validation, context.checkpoint
        held_out = [rows for _, rows in self._prepare(validation[0], missing)] if validation else None
        optimizer = make_optimizer(self.optimizer, network, self.learning_rate)
        generator = torch.Generator().manual_seed(self.random_state)
        kept = _Kept(network, optimizer, generator)
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
                order = torch.randperm(len(codes), generator=generator)
                loss = run_epoch(network, inputs, _cross_entropy, targets, optimizer, self.batch_size, order)
                trained = time.perf_counter()
                if not np.isfinite(loss):
                    raise UsboostError(
                        f"the training loss is no longer finite in epoch {epoch}; lower the learning rate"
                    )
                metrics = {"risk_train": loss}
                if held_out is not None and validation is not None:
                    metrics |= self._evaluate(run(network, held_out), validation[1])
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
        if len(self.views) != 2:
            raise UsboostError(f"it reads {len(self.views)} views, not two")
        self.network_ = FittedTwoBranch(document["network"], read_arrays(folder / WEIGHTS))
        self.network_.check(len(self.classes_))

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

    @staticmethod
    def _evaluate(logits: np.ndarray, y: np.ndarray) -> dict[str, float]:
        predicted = logits.argmax(axis=1)
        risk = float(functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(y)))
        return {
            "risk_val": risk,
            "f1_val": f1(y, predicted, logits.shape[1]),
            "accuracy_val": accuracy(y, predicted),
        }

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        self._check_fitted()
        missing = self.network_.spec.get("missing", (False, False))
        inputs = [rows for _, rows in self._prepare(as_views(X), missing)]
        logits = self.network_.logits(inputs, pick_device(self.device)).astype(np.float64)
        return softmax(logits, axis=1)


@dataclass(frozen=True)
class _Kept:
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


def _cross_entropy(outputs: torch.Tensor, targets: Tensors) -> torch.Tensor:
    return functional.cross_entropy(outputs, targets[0])

"""Two-branch networks: the papers' baseline, and the network half of BFV+DNN."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from scipy.special import softmax
from torch import nn
from torch.nn import functional

from usboost.boosting.callbacks import Callback, begin_and_end, improves, notify, notify_resumed
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Round
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import accuracy, f1, mae, rmse
from usboost.files.arrays import read_arrays, write_arrays
from usboost.files.onnx_graph import Value, ViewNodes, joined
from usboost.learners.networks import inputs as parts
from usboost.learners.networks import nodes, train
from usboost.learners.networks.backbones import Backbone, read_in_graph
from usboost.learners.search_space import BATCH, FINETUNE, HIDDEN, Choice, Real, Space
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.estimator import ViewsEstimator, as_views

WEIGHTS = "network.safetensors"


class TwoBranchNetwork(nn.Module):
    """DNN1 on one view, DNN2 on the other, fusion, DNN3, one logit per class (US Figure 1), or one number.

    Fusion by "concat" joins the two embeddings; by "product" multiplies them element by element,
    and where their widths differ a linear layer first brings the first to the second's. Of more than two
    views, of images from several sides say, all but the last have a DNN1 each. A view that the
    specification says may be `missing` comes with a mask of the rows without: a learned vector stands in.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__()
        dnn1, dnn2 = list(spec["dnn1"]), list(spec["dnn2"])
        first, *further, last = spec["inputs"]
        self.first, self.second = parts.branch(first, dnn1), parts.branch(last, dnn2)
        self.further = nn.ModuleList(parts.branch(each, dnn1) for each in further)
        one, two = dnn1[-1], dnn2[-1]
        self.product = spec["fusion"] == "product"
        self.match = parts.SeededLinear(one, two) if self.product and one != two else nn.Identity()
        fused = two if self.product else one * (1 + len(further)) + two
        self.joint = parts.dense_network([fused, *spec["dnn3"], spec["n_classes"]])
        widths = [one] * (len(further) + 1) + [two]
        absent = [nn.Parameter(torch.zeros(w)) if m else None for w, m in zip(widths, spec["missing"])]
        self.no_first, self.no_second = absent[0], absent[-1]
        self.no_further = nn.ParameterList(absent[1:-1])

    def forward(self, first: train.Tensors, *others: train.Tensors) -> torch.Tensor:
        *further, last = others
        embedded = [self.match(_embedded(self.first, first, self.no_first))]
        for module, tensors, missing in zip(self.further, further, self.no_further):
            embedded.append(self.match(_embedded(module, tensors, missing)))
        embedded.append(_embedded(self.second, last, self.no_second))
        return self.joint(reduce(torch.mul, embedded) if self.product else torch.cat(embedded, dim=1))


def _embedded(branch: nn.Module, tensors: train.Tensors, missing: torch.Tensor | None) -> torch.Tensor:
    """Embed rows by a branch and the ReLU; those without the view are the vector `missing`."""
    if missing is None:
        return functional.relu(branch(tensors))
    *given, absent = tensors
    return torch.where(absent[:, None], missing, functional.relu(branch(tuple(given))))


@dataclass(frozen=True)
class FittedTwoBranch:
    """A trained two-branch network: its specification and weights, float32 on the CPU."""

    spec: dict[str, Any]
    weights: dict[str, np.ndarray]

    def logits(self, inputs: Sequence[train.Batches], device: torch.device) -> np.ndarray:
        """Compute float32 (n, M), (n, 1) of a regression, from the rows of the views in the spec's order."""
        return train.run(self._network().to(device), inputs)

    def _network(self) -> TwoBranchNetwork:
        network = TwoBranchNetwork(self.spec)
        network.load_state_dict({name: torch.from_numpy(array) for name, array in self.weights.items()})
        return network

    def to_onnx(self, inputs: Sequence[Any]) -> Value:
        """Return the outputs in the graph of views as networks read them, in the spec's order: float32."""
        network, embedded = self._network(), list[Value]()
        branches = (network.first, *network.further, network.second)
        missing = (network.no_first, *network.no_further, network.no_second)
        for view, each, stands in zip(inputs, branches, missing):
            out = nodes.through(view, each).Relu()
            if stands is not None:
                out = view.absent.Unsqueeze([1]).Where(stands.detach().numpy()[None], out)
            embedded.append(out if each is network.second else nodes.through(out, network.match))
        joint = reduce(Value.__mul__, embedded) if network.product else joined(embedded)
        return nodes.through(joint, network.joint)

    def check(self, n_classes: int) -> None:
        """Check that the weights are those of the specification, of `n_classes` outputs, or 1."""
        spec = parts.validated(_TwoBranchSpec, self.spec)
        if spec["n_classes"] != n_classes:
            raise UsboostError(f"the network has {spec['n_classes']} classes, not {n_classes}")
        spec["inputs"] = [parts.check_input(each) for each in self.spec["inputs"]]
        if not len(spec["inputs"]) == len(spec["views"]) == len(spec["missing"]):
            raise UsboostError("the network's views are not as many as its inputs")
        parts.check_weights(self.weights, spec, TwoBranchNetwork)


class _TwoBranchSpec(parts.Checked):
    inputs: Annotated[list[dict[str, Any]], Field(min_length=2)]
    views: Annotated[list[str], Field(min_length=2)]
    dnn1: Annotated[parts.Widths, Field(min_length=1)]
    dnn2: Annotated[parts.Widths, Field(min_length=1)]
    dnn3: parts.Widths
    fusion: Literal["concat", "product"]
    n_classes: parts.Width  # 1 for a regression
    missing: list[bool]


@dataclass(frozen=True)
class Training:
    """A network in training as a checkpoint, if there is one, keeps it epoch by epoch."""

    network: nn.Module
    optimizer: train.Optimizer
    generator: torch.Generator
    checkpoint: Checkpoint | None

    def keep(self, round_: Round, weights: dict[str, np.ndarray], best: dict[str, float] | None) -> None:
        """Keep the network after an epoch, and the weights of the best one and its metrics."""
        if self.checkpoint is None:
            return
        arrays = {f"best/{name}": array for name, array in weights.items()}
        arrays |= {f"now/{name}": tensor.cpu().numpy() for name, tensor in self._tensors().items()}
        drawn = [self.generator, *parts.generators(self.network)]
        arrays |= {f"drawn/{i}": each.get_state().numpy() for i, each in enumerate(drawn)}
        # one file holds all that the next epoch needs; the epoch's own file may be missing after it
        described = {"metrics": round_.metrics, "seconds": round_.seconds}
        self.checkpoint.keep_state(round_.index, arrays, {"best": best, "round": described})
        self.checkpoint.keep(round_)

    def restore(self) -> tuple[list[Round], dict[str, np.ndarray], dict[str, float] | None]:
        """Restore the network; return the epochs done, the best weights so far and their metrics."""
        if self.checkpoint is None or (state := self.checkpoint.state()) is None:
            return [], {}, None
        index, arrays, more = state
        done = self.checkpoint.rounds()[:index]
        if len(done) < index:
            done.append(Round(index, None, more["round"]["metrics"], more["round"]["seconds"]))
            self.checkpoint.keep(done[-1])  # else the next epoch's file would leave a gap
        for name, tensor in self._tensors().items():
            tensor.copy_(torch.from_numpy(arrays[f"now/{name}"]).reshape(tensor.shape))
        for i, generator in enumerate([self.generator, *parts.generators(self.network)]):
            generator.set_state(torch.from_numpy(arrays[f"drawn/{i}"]))
        best = {name[5:]: array for name, array in arrays.items() if name.startswith("best/")}
        return done, best, more["best"]

    def _tensors(self) -> dict[str, torch.Tensor]:
        tensors = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        return tensors | {f"optimizer/{name}": tensor for name, tensor in self.optimizer.state().items()}


@dataclass(eq=False, repr=False)
class TwoBranches(ViewsEstimator):
    """Settings, training and files of the classifier and the regressor."""

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
    _evaluate: ClassVar[Any]  # (outputs, y, weights): metrics of validation samples; "risk_val" at least
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
        spec = {
            "views": list(self.views),
            "inputs": [spec for spec, _ in prepared],
            "dnn1": list(self.dnn1),
            "dnn2": list(self.dnn2),
            "dnn3": list(self.dnn3),
            "fusion": self.fusion,
            "n_classes": self.n_outputs,
            "missing": missing,
        }
        device = train.pick_device(self.device)
        network = TwoBranchNetwork(spec).to(device)
        parts.initialise(network, self.random_state)
        if self.backbone is not None:
            self.backbone.load_weights(network)  # as they were trained
        classes = self.n_outputs > 1
        encoded = torch.from_numpy(y.astype(np.int64) if classes else y.astype(np.float32)[:, None])
        inputs = [rows for _, rows in prepared]
        targets: train.Tensors = (encoded.to(device),)
        if context.weights is not None:
            scaled = (context.weights / context.weights.mean()).astype(np.float32)
            targets = (*targets, torch.from_numpy(scaled).to(device))

        batch_loss = partial(mean_loss, functional.cross_entropy if classes else functional.mse_loss)
        validation = context.validation
        val_inputs = [rows for _, rows in self._prepare(validation[0], missing)] if validation else None
        optimizer = train.make_optimizer(self.optimizer, network, self.learning_rate)
        generator = torch.Generator().manual_seed(self.random_state)
        training = Training(network, optimizer, generator, context.checkpoint)
        watch = context.watch(self.monitor, self.patience)
        with begin_and_end(SimpleNamespace(n_rounds=self.n_epochs), watch.callbacks):
            done, weights, best = training.restore()
            if weights:
                self.network_ = FittedTwoBranch(spec, weights)
            stop = notify_resumed(watch.callbacks, done)
            for epoch in range(len(done) + 1, self.n_epochs + 1):
                if stop:
                    break
                start = time.perf_counter()
                batches = torch.randperm(len(y), generator=generator).split(self.batch_size)
                loss = train.run_epoch(network, inputs, batch_loss, targets, optimizer, batches)
                trained = time.perf_counter()
                if not np.isfinite(loss):
                    raise UsboostError(f"the loss is not finite in epoch {epoch}; lower the learning rate")
                metrics = {"risk_train": loss}
                if val_inputs is not None and validation is not None:
                    outputs = train.run(network, val_inputs)
                    metrics |= self._evaluate(outputs, validation[1], context.val_weights)
                if val_inputs is None or improves(metrics, best, self.monitor):
                    best = metrics
                    weights = {k: v.detach().cpu().numpy().copy() for k, v in network.state_dict().items()}
                    self.network_ = FittedTwoBranch(spec, weights)
                ended = time.perf_counter()
                seconds = {"fit": trained - start, "validation": ended - trained, "total": ended - start}
                round_ = Round(epoch, None, metrics, seconds)
                training.keep(round_, self.network_.weights, best)
                stop = notify(watch.callbacks, round_)
        self.history_, self.best_round_ = watch.history, watch.best_round

    def _write(self, folder: Path) -> dict[str, Any]:
        write_arrays(self.network_.weights, folder / WEIGHTS)
        return {"network": self.network_.spec}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        if len(self.views) < 2:
            raise UsboostError("it reads one view only, not two or more")
        self.network_ = FittedTwoBranch(document["network"], read_arrays(folder / WEIGHTS))
        self.network_.check(self.n_outputs)
        if list(self.views) != self.network_.spec["views"]:
            raise UsboostError("the network reads other views than the model")

    def _prepare(self, views: Views, missing: Sequence[bool]) -> list[tuple[dict[str, Any], train.Batches]]:
        """Prepare the specification and rows of each view, with a mask where it may be missing."""
        device = train.pick_device(self.device)
        prepared = []
        for name, masked in zip(self.views, missing):
            spec, rows = parts.prepare_view(views[name], device, self.backbone)
            if masked:
                absent = getattr(views[name], "absent", None)
                mask = np.zeros(len(rows), dtype=bool) if absent is None else np.asarray(absent)
                rows = train.WithAbsent(rows, torch.tensor(mask, device=device))
            prepared.append((spec, rows))
        return prepared

    def _as_far(self) -> dict[str, Any]:
        return {"n_epochs": max(1, self.best_round_)}

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        scores = self.network_.to_onnx([read_in_graph(views[name], self.backbone) for name in self.views])
        outputs = scores.cast(np.float64)
        return outputs.Softmax(axis=1) if self.n_outputs > 1 else outputs

    def _outputs(self, views: Views) -> np.ndarray:
        """Compute the network's outputs, float64 (n, M), or (n, 1) of a regression."""
        self._check_fitted()
        inputs = [rows for _, rows in self._prepare(views, self.network_.spec["missing"])]
        return self.network_.logits(inputs, train.pick_device(self.device)).astype(np.float64)


def mean_loss(
    loss: Callable[..., torch.Tensor], outputs: torch.Tensor, targets: train.Tensors
) -> torch.Tensor:
    """Return the mean of a loss of torch over a batch, each row by its weight.

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
    random_state, callbacks, checkpoint : as of `TwoWeakLearnerClassifier`

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

    def _evaluate(self, outputs: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
        predicted = outputs.argmax(axis=1)
        targets: train.Tensors = (torch.from_numpy(y),)
        if weights is not None:
            targets = (*targets, torch.from_numpy(weights / weights.mean()))
        return {
            "risk_val": float(mean_loss(functional.cross_entropy, torch.from_numpy(outputs), targets)),
            "f1_val": f1(y, predicted, outputs.shape[1], weights),
            "accuracy_val": accuracy(y, predicted, weights),
        }

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Predict class probabilities, float64 (n, M), columns as in ``classes_``."""
        return softmax(self._outputs(as_views(X)), axis=1)


@dataclass(eq=False, repr=False)
class TwoBranchNetworkRegressor(TwoBranches, ViewsRegressor):
    """The same network with one output and the squared error, on standardised targets.

    Parameters are those of `TwoBranchNetworkClassifier`; `monitor` is "risk_val", "rmse_val" or "mae_val".

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

    def _evaluate(self, outputs: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
        predicted = outputs[:, 0].astype(np.float64)
        scored = {"rmse_val": rmse(y, predicted, weights), "mae_val": mae(y, predicted, weights)}
        in_units = {name: self.target_scale_ * value for name, value in scored.items()}
        return {"risk_val": scored["rmse_val"] ** 2, **in_units}

    def _predict(self, views: Views) -> np.ndarray:
        return self._outputs(views)[:, 0]

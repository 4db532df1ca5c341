"""The weighted mean of fitted models' scores: the base of the ensemble and of the average.

f = Σ_m w_m · f_m, with f_m the scores of a classifier, log p_m up to a constant, or a regressor's prediction.
The probabilities are so a geometric mean of the members', and what a column adds to f is the weighted sum of
what it adds to each member's.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import row_losses
from usboost.files.arrays import sha256
from usboost.files.onnx_graph import Value, ViewNodes, sum_of
from usboost.learners.networks import embeddings
from usboost.losses.base import ClassLoss, from_scores
from usboost.models import persistence
from usboost.models.base import MODELS, ViewsClassifier, ViewsRegressor
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.losses import LOSSES
from usboost.models.methods.fold_fits import Member

_TINY = 1e-300  # no logarithm of 0, where a margin is beyond what float64 holds


class Blend(ViewsEstimator):
    """Base of models whose answer is that of several fitted members, weighted.

    Attributes
    ----------
    weights_ : of the members kept, by name; fits_ : their fitted models, one a fold, that are kept
    full_refits_ : their fits to all rows by name
    losses_ : of every member by name; blend_loss_ : of the blend; members_ : a `Member` of each
    bytes_ : of each member's files, once they are written or read
    """

    holds: ClassVar[Mapping[str, Any]] = {"members": MODELS}
    members: Mapping[str, Any] | None
    weights_: dict[str, float]
    losses_: dict[str, float]
    members_: dict[str, Member]
    fits_: dict[str, list[Any]]
    full_refits_: dict[str, list[Any]]
    bytes_: dict[str, int]
    blend_loss_: float | None

    _margins: ClassVar[Any]  # (predicted): a member's predictions, as `_of` gives them, as f, float64 (n, D)
    _of_f: ClassVar[Any]  # (f): its predictions, float64 (n, M), or of numbers (n,)

    def _of(self, model: Any, views: Views) -> np.ndarray:
        """Predict by a member, as encoded: probabilities (n, M) or numbers (n,)."""
        return (model.predict if self.n_outputs == 1 else model.predict_proba)(views)

    def _f_of(self, model: Any, views: Views) -> np.ndarray:
        """Return f_m, float64 (n, D)."""
        return self._margins(self._of(model, views))

    def _losses(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        """Return the loss of each row, y as encoded, float64 (n,)."""
        return row_losses(y, self._as_encoded(f))

    def _as_encoded(self, f: np.ndarray) -> np.ndarray:
        """Return probabilities (n, M), or numbers (n,) in the units that members are fitted to."""
        return np.asarray(self._of_f(f) if self.n_outputs > 1 else f[:, 0])

    def weighted_fits(self) -> Iterator[tuple[Any, float]]:
        """Yield each fit and its weight in f; a member's to folds together have that of one to all rows."""
        for name, fits in self.fits_.items():
            whole = self.full_refits_.get(name, [])
            own = self.weights_[name] / (bool(fits) + len(whole))
            yield from ((fit, own / len(fits)) for fit in fits)
            yield from ((fit, own) for fit in whole)

    def _f(self, views: Views) -> np.ndarray:
        """Return f, float64 (n, D)."""
        self._check_fitted()
        with embeddings.shared_in_memory():
            return np.asarray(sum(weight * self._f_of(fit, views) for fit, weight in self.weighted_fits()))

    @property
    def n_estimators_(self) -> int:
        """Count the models whose predictions are averaged."""
        self._check_fitted()
        return sum(map(len, [*self.fits_.values(), *self.full_refits_.values()]))

    def _write(self, folder: Path) -> dict[str, Any]:
        for place, _, fit in self._places():
            persistence.save(fit, folder / place)
        first: dict[str, Path] = {}
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            # of equal files, a frozen backbone's weights say, further ones are links to the first
            known = first.setdefault(sha256(file), file)
            if known is not file:
                other = file.with_suffix(".link")
                os.link(known, other)
                other.replace(file)
        self.bytes_, inodes = dict.fromkeys(self.fits_, 0), set()
        for place, name, _ in self._places():
            for file in (folder / place).rglob("*"):
                about = file.stat()
                if file.is_file() and about.st_ino not in inodes:  # a shared file is the first one's
                    inodes.add(about.st_ino)
                    self.bytes_[name] += about.st_size
        return {
            "weights": self.weights_,
            "losses": self.losses_,
            "fits": {name: len(fits) for name, fits in self.fits_.items()},
            "whole": {name: len(fits) for name, fits in self.full_refits_.items()},
            "blend_loss": self.blend_loss_,
            "bytes": self.bytes_,
            "members": {name: asdict(each) for name, each in self.members_.items()},
        }

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        members = self.members or {}
        weights = {str(name): float(value) for name, value in document["weights"].items()}
        right = set(weights) <= set(members) and weights and min(weights.values()) > 0
        if not right or abs(sum(weights.values()) - 1) > 1e-9 or set(document["fits"]) != set(weights):
            raise UsboostError("the weights are not those of its members, which sum to 1")
        self.weights_ = weights
        self.losses_ = {str(name): float(value) for name, value in document["losses"].items()}
        self.members_ = {str(n): Member.from_json(each) for n, each in document["members"].items()}
        self.bytes_ = {str(name): int(size) for name, size in document["bytes"].items()}
        loss = document["blend_loss"]
        self.blend_loss_ = None if loss is None else float(loss)
        self.fits_, self.full_refits_ = {}, {}
        whole = document["whole"]
        for index, name in enumerate(weights):
            count, more = int(document["fits"][name]), int(whole.get(name, 0))
            if min(count, more) < 0 or not count + more:
                raise UsboostError(f"the member {name} has no fit")
            fits = [persistence.load(folder / f"m{index}-{k}") for k in range(count + more)]
            for fit in fits:
                if type(fit) is not type(members[name]):
                    raise UsboostError(f"the member {name} is a {type(fit).__name__}")
                if self.n_outputs > 1 and list(fit.classes_) != list(range(self.n_outputs)):
                    raise UsboostError("a member has other classes")
            self.fits_[name] = fits[:count]
            if more:
                self.full_refits_[name] = fits[count:]

    def _places(self) -> Iterator[tuple[str, str, Any]]:
        """Yield folder, member and fit of each fit; those to all rows after those to folds."""
        for index, (name, fits) in enumerate(self.fits_.items()):
            for k, fit in enumerate([*fits, *self.full_refits_.get(name, [])]):
                yield f"m{index}-{k}", name, fit


class BlendClassifier(Blend, ViewsClassifier):
    """Base of blends of classifiers: the answer is softmax(Σ_m w_m log p_m)."""

    def _loss(self) -> ClassLoss:
        m = len(self.classes_)
        return LOSSES["cross_entropy"].of_classes(m, per_class=m > 2)

    def _n_outputs(self) -> int:
        return self._loss().n_outputs

    def _margins(self, predicted: np.ndarray) -> np.ndarray:
        scores = np.log(np.maximum(predicted, _TINY))
        return from_scores(self._loss(), scores - scores.mean(axis=1, keepdims=True))

    def _of_f(self, f: np.ndarray) -> np.ndarray:
        return self._loss().probabilities(f)

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Return softmax(Σ_m w_m log p_m), float64 (n, M)."""
        return self._of_f(self._f(as_views(X)))

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        logs = (fit.to_onnx(views).Max(_TINY).Log() * weight for fit, weight in self.weighted_fits())
        return sum_of(logs).Softmax(axis=1)


class BlendRegressor(Blend, ViewsRegressor):
    """Base of blends of regressors: the answer is Σ_m w_m f_m."""

    def _n_outputs(self) -> int:
        return 1

    def _margins(self, predicted: np.ndarray) -> np.ndarray:
        return predicted[:, None]

    def _of_f(self, f: np.ndarray) -> np.ndarray:
        return self._in_units(f[:, 0])

    def _predict(self, views: Views) -> np.ndarray:
        return self._as_encoded(self._f(views))

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        return sum_of(fit.to_onnx(views) * weight for fit, weight in self.weighted_fits())

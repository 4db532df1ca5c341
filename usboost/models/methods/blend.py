"""Weigh, write and read fitted members: the base of the ensemble and of the average."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.files.arrays import digest_of
from usboost.models import persistence
from usboost.models.base import MODELS
from usboost.models.estimator import ViewsEstimator
from usboost.models.methods.fold_fits import Member


class Blend(ViewsEstimator):
    """Base of models whose answer is that of several fitted members, weighted.

    Attributes
    ----------
    weights_ : of the members kept, by name; fits_ : their fitted models, one a fold
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

    def _of(self, model: Any, views: Views) -> np.ndarray:
        """Predict by a member, as encoded: probabilities (n, M) or numbers (n,)."""
        found: np.ndarray = (model.predict if self.n_outputs == 1 else model.predict_proba)(views)
        return found

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
            known = first.setdefault(digest_of(file), file)
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
            if count < 1 or more < 0:
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

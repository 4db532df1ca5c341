"""An ensemble's files: a folder for each fit of each member, and what was found of the members."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from usboost.errors import UsboostError
from usboost.files.arrays import digest_of
from usboost.models import persistence
from usboost.models.ensembles.fold_fits import Member


def write(model: Any, folder: Path) -> dict[str, Any]:
    """Write the fits of a fitted ensemble, and give the JSON that `read` takes; sets the model's `bytes_`."""
    for place, _, fit in _places(model):
        persistence.save(fit, folder / place)
    _link_equal_files(folder)
    model.bytes_ = _sizes(model, folder)
    return {
        "weights": model.weights_,
        "losses": model.losses_,
        "fits": {name: len(fits) for name, fits in model.fits_.items()},
        "whole": {name: len(fits) for name, fits in model.full_refits_.items()},
        "blend_loss": model.blend_loss_,
        "alone": model.alone_,
        "bytes": model.bytes_,
        "members": {name: each.to_json() for name, each in model.members_.items()},
    }


def read(model: Any, document: Mapping[str, Any], folder: Path) -> None:
    """Give an unfitted ensemble what `write` wrote.

    Raises `UsboostError` if weights, members or fits are none that it can have.
    """
    members = model.members or {}
    weights = {str(name): float(value) for name, value in document["weights"].items()}
    right = set(weights) <= set(members) and weights and min(weights.values()) > 0
    if not right or abs(sum(weights.values()) - 1) > 1e-9 or set(document["fits"]) != set(weights):
        raise UsboostError("the weights are not those of its members, which sum to 1")
    model.weights_ = weights
    model.losses_ = {str(name): float(value) for name, value in document["losses"].items()}
    model.members_ = {str(n): Member.from_json(each) for n, each in document["members"].items()}
    model.bytes_ = {str(name): int(size) for name, size in document["bytes"].items()}
    loss, alone = document["blend_loss"], document["alone"]
    model.blend_loss_ = None if loss is None else float(loss)
    model.alone_ = None if alone is None else float(alone)
    model.fits_, model.full_refits_ = {}, {}
    whole = document["whole"]
    for index, name in enumerate(weights):
        count, more = int(document["fits"][name]), int(whole.get(name, 0))
        if count < 1 or more < 0:
            raise UsboostError(f"the member {name} has no fit")
        fits = [_fit(model, name, folder / _place(index, k)) for k in range(count + more)]
        model.fits_[name] = fits[:count]
        if more:
            model.full_refits_[name] = fits[count:]


def _fit(model: Any, name: str, folder: Path) -> Any:
    fit = persistence.load(folder)
    if type(fit) is not type(model.members[name]):
        raise UsboostError(f"the member {name} is a {type(fit).__name__}")
    model._check_member(fit)
    return fit


def _places(model: Any) -> Iterator[tuple[str, str, Any]]:
    """Folder, member and fit of each fit; those to all rows after those to folds."""
    for index, (name, fits) in enumerate(model.fits_.items()):
        for k, fit in enumerate([*fits, *model.full_refits_.get(name, [])]):
            yield _place(index, k), name, fit


def _place(member: int, k: int) -> str:
    return f"m{member}-{k}"


def _sizes(model: Any, folder: Path) -> dict[str, int]:
    """Bytes of each member's files; a file that several share is the first one's."""
    found, known = dict.fromkeys(model.fits_, 0), set()
    for place, name, _ in _places(model):
        for file in (folder / place).rglob("*"):
            about = file.stat()
            if file.is_file() and about.st_ino not in known:
                known.add(about.st_ino)
                found[name] += about.st_size
    return found


def _link_equal_files(folder: Path) -> None:
    """Keep equal files, such as a frozen backbone's weights, once: further ones are links to the first."""
    first: dict[str, Path] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        known = first.setdefault(digest_of(file), file)
        if known is not file:
            other = file.with_suffix(".link")
            os.link(known, other)
            other.replace(file)

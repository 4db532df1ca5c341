"""Models to files and back: JSON for settings, safetensors for arrays, nothing that can run code.

A model is a folder: ``model.json`` and ``arrays-00000.safetensors``, … Boosting models keep their
stages in shards, so that every weak learner can be read alone. A model brings its own part of the
files: ``_write(folder)`` gives JSON, ``_read(document, folder)`` takes it back and checks it.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save_file as save_tensors
from sklearn.utils.validation import check_is_fitted

from usboost.errors import UsboostError
from usboost.files import replacing
from usboost.files.arrays import read_json, sha256
from usboost.learners.base import check_writable
from usboost.learners.networks.architectures import published_features, read_weights
from usboost.models.base import MODELS
from usboost.models.settings import backbones, settings_from_json, settings_to_json
from usboost.process import with_own_settings

FORMAT = 3

_NUMBERS = ("target_centre_", "target_scale_", "delta_")
_FITTED = ("classes_", "n_outputs_", "flat_", "penalty_", *_NUMBERS)
_NAMES = ("columns", "feature_names_in")  # of models that have them
_MOST_CLASSES = 100_000


@with_own_settings
def save(model: Any, folder: Path | str) -> None:
    """Write a fitted model to a folder, whole or not at all.

    Raises `UsboostError` if the model, or a part of it, has no file form; the message names it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import LightGBMBaseline, Table, Views, load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> model = LightGBMBaseline(n_trees=5).fit(views, y)
    >>> save(model, "model")
    >>> bool((load("model").predict(views) == model.predict(views)).all())
    True
    """
    if MODELS.kind_of(type(model)) is None:
        own = "a model of your own is known by usboost.models.base.MODELS.register"
        why = getattr(model, "instead_of_a_file", own)
        raise UsboostError(f"{type(model).__name__} has no file form; {why}")
    check_is_fitted(model, "best_round_")
    for name, learner in model._weak_learners().items():
        check_writable(name, learner)
    settings = settings_to_json(model)
    settings_from_json(settings)  # what could not be read back is refused now
    with replacing(Path(folder)) as partial:
        document: dict[str, Any] = {"format": FORMAT, "settings": settings}
        _keep_weights(settings, partial)
        document["fitted"] = {
            name: value.tolist() if isinstance(value := getattr(model, name), np.ndarray) else value
            for name in _FITTED
            if hasattr(model, name)
        }
        document["best_round"] = model.best_round_
        document["n_features_in"] = model.n_features_in_
        for name in _NAMES:
            if hasattr(model, f"{name}_"):
                names = getattr(model, f"{name}_")
                document[name] = dict(names) if isinstance(names, Mapping) else list(names)
        document |= model._write(partial)
        document["files"] = digests(partial)
        (partial / "model.json").write_text(json.dumps(document, indent=1))


@with_own_settings
def load(folder: Path | str) -> Any:
    """Read a model that `save` wrote; it predicts the same.

    Raises `UsboostError` if a file is missing, cut short or changed, names a class or format that is not
    known, or holds what no model can hold.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import LightGBMBaseline, Table, Views, load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(S=Table.from_numeric(X))
    >>> save(LightGBMBaseline(views=("S",), n_trees=5).fit(views, y), "model")
    >>> load("model").predict(views[:2])
    array([0, 0])
    """
    folder = Path(folder)
    path = folder / "model.json"
    if (folder / "card.json").exists():
        raise UsboostError(f"{folder} is a model of a table; load it by `MultimodalClassifier` or …Regressor")
    document = read_json(path)
    try:
        if document["format"] != FORMAT:
            raise UsboostError(f"{path} has format {document['format']}, not {FORMAT}; train it again")
        check_digests(document, folder)
        for backbone in backbones(document["settings"]):
            if backbone["pretrained"] in document.get("files", {}):
                backbone["pretrained"] = str(folder / backbone["pretrained"])
        model = settings_from_json(document["settings"])
        if MODELS.kind_of(type(model)) is None or not isinstance(document["fitted"], dict):
            raise UsboostError(f"{path} does not describe a fitted model")
        for name, value in document["fitted"].items():
            if name not in _FITTED:
                raise UsboostError(f"{path} sets {name!r}, which is not part of a model")
            setattr(model, name, _fitted(name, value))
        model.best_round_ = int(document["best_round"])
        model.n_features_in_ = int(document["n_features_in"])
        for name in _NAMES:
            if name in document:
                setattr(model, f"{name}_", _names_from_json(name, document[name]))
        model._read(document, folder)
    except UsboostError as error:
        raise (error if str(folder) in str(error) else UsboostError(f"{folder}: {error}")) from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsboostError(f"{path} is not a usboost model: {error!r}") from error
    return model


def _fitted(name: str, value: Any) -> Any:
    """Check an attribute of a fitted model from JSON."""
    if name == "n_outputs_":
        return int(value)
    if name == "flat_":
        return bool(value)
    if name == "penalty_":  # which may be infinite
        if not float(value) > 0:
            raise UsboostError(f"its {name} is {value}")
        return float(value)
    if name in _NUMBERS:
        number = float(value)
        if not np.isfinite(number) or (name != "target_centre_" and number <= 0):
            raise UsboostError(f"its {name} is {number}")
        return number
    scalars = isinstance(value, list) and all(isinstance(part, (str, int, float)) for part in value)
    if not scalars or not 2 <= len(set(value)) == len(value) <= _MOST_CLASSES:
        raise UsboostError("its classes are not two or more different labels")
    classes = np.asarray(value)
    if classes.dtype.kind not in "biufU" or classes.tolist() != value:
        raise UsboostError("its classes are of different types")
    return classes


def _names_from_json(name: str, value: Any) -> Any:
    """Check `columns_`, the names of columns by learner, or `feature_names_in_`, an array of names."""
    parts = value if name == "columns" else {"": value}
    if not isinstance(parts, dict) or not all(
        isinstance(part, list) and part and all(isinstance(each, str) for each in part)
        for part in parts.values()
    ):
        raise UsboostError(f"its {name} are not names")
    if name == "columns":
        return {view: tuple(part) for view, part in parts.items()}
    return np.asarray(value, dtype=object)


def _keep_weights(settings: Any, folder: Path) -> None:
    """Copy the weights that backbones start from, which frozen ones need to predict, to the model, once.

    Files that are gone by now stay a path: what has been trained is saved all the same. Published weights
    are copied for backbones of which a part stays as it is.
    """
    files: dict[tuple[str, str | bool], str] = {}
    for backbone in backbones(settings):
        name, source = backbone["name"], backbone["pretrained"]
        if isinstance(source, str):
            needed = Path(source).is_file()
        else:
            needed = bool(source) and name != "small_cnn" and backbone["finetune"] != "all"
        if not needed:
            continue
        if (name, source) not in files:
            weights = read_weights(name, source) if isinstance(source, str) else published_features(name)
            files[name, source] = f"backbone-{len(files)}.safetensors"
            # as tensors: numpy has no bfloat16; each its own, as safetensors refuses shared memory
            own = {key: tensor.clone().contiguous() for key, tensor in weights.items()}
            save_tensors(own, folder / files[name, source])
        backbone["pretrained"] = files[name, source]


_FILE = re.compile(r"((point|lower|upper|m\d+-\d+)/)?(gbm/)?[a-z0-9-]+\.(safetensors|json|cbm)")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def check_digests(document: Mapping[str, Any], folder: Path) -> None:
    """Check that the files that a document lists are those that were saved.

    Raises `UsboostError`, naming the first that is missing or changed, or is no file of a model.
    """
    for name, digest in document.get("files", {}).items():
        if not _FILE.fullmatch(name):
            raise UsboostError(f"{folder} lists {name!r}, which is no file of a model")
        try:
            actual = sha256(folder / name)
        except OSError as error:
            raise UsboostError(f"{folder / name} cannot be read: {error.strerror}") from None
        if actual != digest:
            raise UsboostError(f"{folder / name} is not the file that was saved; copy or train it again")

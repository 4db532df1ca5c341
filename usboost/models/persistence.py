"""Models to files and back: JSON for settings, safetensors for arrays, nothing that can run code.

A model is a folder: ``model.json`` and ``arrays-00000.safetensors``, … Boosting models keep their
stages in shards, so that every weak learner can be read alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save_file as save_tensors
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from usboost.boosting.stages import Arrays, _read_arrays, _write_arrays, read_stages, write_stages
from usboost.data.frames import frame_name
from usboost.data.plain import VIEW
from usboost.errors import UsboostError
from usboost.files import replacing
from usboost.learners.networks.backbones import Backbone, read_weights
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.trees.learner import FittedTrees, TreeLearner
from usboost.learners.trees.tree import Tree
from usboost.models.baselines import LightGBMBaseline
from usboost.models.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.boosted_network import BoostedNetworkClassifier, BoostedNetworkRegressor
from usboost.models.checked import check_gbm, check_learner, check_settings, check_two_branch, contained_cache
from usboost.models.earlyboost import EarlyBoostClassifier
from usboost.models.gbm import BoostedFeatures, GradientBoostedTrees
from usboost.models.two_branch import FittedTwoBranch, TwoBranchNetworkClassifier
from usboost.models.two_weak_learner import TwoWeakLearnerClassifier

FORMAT = 1


# the only classes a file can name
_SETTINGS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        BoostedFeatureNetworkClassifier,
        BoostedFeatures,
        BoostedNetworkClassifier,
        BoostedNetworkRegressor,
        Backbone,
        DecisionTreeClassifier,
        EarlyBoostClassifier,
        LightGBMBaseline,
        LogisticRegression,
        NetworkLearner,
        TreeLearner,
        TwoBranchNetworkClassifier,
        TwoWeakLearnerClassifier,
    )
}
_STAGEWISE = (
    BoostedNetworkClassifier,
    BoostedNetworkRegressor,
    EarlyBoostClassifier,
    TwoWeakLearnerClassifier,
)
_WHOLE = (BoostedFeatureNetworkClassifier, LightGBMBaseline, TwoBranchNetworkClassifier)
_FITTED = ("classes_", "n_outputs_", "flat_")
_NAMES = ("columns", "feature_names_in")  # files from before they were kept have none
_NOT_KEPT = ("callbacks", "checkpoint", "gbm")
_FILE = re.compile(r"(gbm/)?[a-z0-9-]+\.(safetensors|json)")
_MOST_CLASSES = 100_000


def save(model: BaseEstimator, folder: Path) -> None:
    """Write a fitted classifier to a folder, whole or not at all.

    Raises
    ------
    UsboostError
        If the model's class has no file form.
    """
    with replacing(folder) as partial:
        document: dict[str, Any] = {"format": FORMAT, "settings": settings_to_json(model)}
        _keep_weights(document["settings"], partial)
        document["fitted"] = {
            name: value.tolist() if isinstance(value := getattr(model, name), np.ndarray) else value
            for name in _FITTED
            if hasattr(model, name)
        }
        document["best_round"] = model.best_round_
        document["n_features_in"] = model.n_features_in_
        for name in _NAMES:
            if hasattr(model, f"{name}_"):
                document[name] = _names_to_json(getattr(model, f"{name}_"))
        if isinstance(model, _STAGEWISE):
            document["stages"] = write_stages(model.stages_, partial)
        elif isinstance(model, LightGBMBaseline):
            save_gbm(model.gbm_, partial / "gbm")
        elif isinstance(model, TwoBranchNetworkClassifier):
            document["network"] = model.network_.spec
            _write_arrays(model.network_.weights, partial / "network.safetensors")
        elif isinstance(model, BoostedFeatureNetworkClassifier):
            document["network"] = model.network_.network_.spec
            arrays = {**model.network_.network_.weights, "bfv.mean": model.mean_, "bfv.scale": model.scale_}
            _write_arrays(arrays, partial / "network.safetensors")
            save_gbm(model.gbm_, partial / "gbm")
        else:
            raise UsboostError(f"{type(model).__name__} has no file form")
        document["files"] = _digests(partial)
        (partial / "model.json").write_text(json.dumps(document, indent=1))


def load(folder: Path) -> Any:
    """Read a classifier that `save` wrote; it predicts the same.

    Raises
    ------
    UsboostError
        If a file is missing, cut short or changed, names a class or format that is not ours, or holds
        what no model can hold (see `usboost.models.checked`).
    """
    document = _read_json(folder / "model.json")
    try:
        if document["format"] != FORMAT:
            raise UsboostError(f"{folder / 'model.json'} has format {document['format']}, not {FORMAT}")
        _check_digests(document, folder)
        for backbone in _backbones(document["settings"]):
            if backbone["pretrained"] in document.get("files", {}):
                backbone["pretrained"] = str(folder / backbone["pretrained"])
        model = settings_from_json(document["settings"])
        if not (isinstance(model, (*_STAGEWISE, *_WHOLE)) and isinstance(document["fitted"], dict)):
            raise UsboostError(f"{folder / 'model.json'} does not describe a fitted model")
        for name, value in document["fitted"].items():
            if name not in _FITTED:
                raise UsboostError(f"{folder / 'model.json'} sets {name!r}, which is not part of a model")
            setattr(model, name, _fitted(name, value))
        if isinstance(model, BoostedNetworkRegressor) and not hasattr(model, "flat_"):
            raise UsboostError(f"{folder / 'model.json'} lacks flat_; save the model again")
        model.best_round_ = int(document["best_round"])
        model.n_features_in_ = int(document["n_features_in"])
        for name in _NAMES:
            if name in document:
                setattr(model, f"{name}_", _names_from_json(name, document[name]))
        if isinstance(model, _STAGEWISE):
            model.stages_ = list(read_stages(document["stages"], folder))
            _check_stages(model)
        elif isinstance(model, LightGBMBaseline):
            model.gbm_ = load_gbm(folder / "gbm")
        else:
            arrays = _read_arrays(folder / "network.safetensors")
            if isinstance(model, BoostedFeatureNetworkClassifier):
                model.mean_, model.scale_ = arrays.pop("bfv.mean"), arrays.pop("bfv.scale")
                model.gbm_ = load_gbm(folder / "gbm")
                network = model.network or TwoBranchNetworkClassifier()
                network.set_params(views=document["network"]["views"])
                network.classes_, network.best_round_ = np.arange(len(model.classes_)), 0
                network.network_ = FittedTwoBranch(document["network"], arrays)
                check_two_branch(network.network_, len(model.classes_))
                for array in (model.mean_, model.scale_):
                    if array.shape != (model.gbm_.n_features,) or array.dtype != np.float32:
                        raise UsboostError("the means of the boosted features are not one for each tree")
                model.network_ = network
            else:
                if len(model.views) != 2:
                    raise UsboostError(f"it reads {len(model.views)} views, not two")
                model.network_ = FittedTwoBranch(document["network"], arrays)
                check_two_branch(model.network_, len(model.classes_))
        if hasattr(model, "gbm_") and model.gbm_.n_classes != len(model.classes_):
            raise UsboostError(f"its GBM tells {model.gbm_.n_classes} classes apart")
    except UsboostError as error:
        where = str(folder)
        raise (error if where in str(error) else UsboostError(f"{folder}: {error}")) from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsboostError(f"{folder / 'model.json'} is not a usboost model: {error!r}") from error
    return model


def _fitted(name: str, value: Any) -> Any:
    """An attribute of a fitted model as JSON holds it."""
    if name == "n_outputs_":
        return int(value)
    if name == "flat_":
        return bool(value)
    scalars = isinstance(value, list) and all(isinstance(part, (str, int, float)) for part in value)
    if not scalars or not 2 <= len(set(value)) == len(value) <= _MOST_CLASSES:
        raise UsboostError("its classes are not two or more different labels")
    classes = np.asarray(value)
    if classes.dtype.kind not in "biufU" or classes.tolist() != value:
        raise UsboostError("its classes are of different types")
    return classes


def _names_to_json(names: Any) -> Any:
    return dict(names) if isinstance(names, Mapping) else list(names)


def _names_from_json(name: str, value: Any) -> Any:
    """`columns_`, a mapping of view to its columns' names, or `feature_names_in_`, an array of names."""
    parts = value if name == "columns" else {"": value}
    if not isinstance(parts, dict) or not all(
        isinstance(part, list) and part and all(isinstance(each, str) for each in part)
        for part in parts.values()
    ):
        raise UsboostError(f"its {name} are not names")
    if name == "columns":
        return {view: tuple(part) for view, part in parts.items()}
    return np.asarray(value, dtype=object)


def _check_stages(model: Any) -> None:
    """Every weak learner is sound and fits the model's classes and views."""
    if not model.stages_:
        raise UsboostError("it has no stages")
    n_outputs = model._loss().n_outputs
    for index, stage in enumerate(model.stages_, start=1):
        if isinstance(model, TwoWeakLearnerClassifier):
            wanted = set(model._learners())
        else:
            wanted = {frame_name(index)} if isinstance(model, EarlyBoostClassifier) else {VIEW}
        if not stage.learners or not set(stage.learners) <= wanted:
            raise UsboostError(f"stage {index} reads views {sorted(stage.learners)}, not {sorted(wanted)}")
        for view, learner in stage.learners.items():
            columns = model.n_features_in_ if isinstance(model, EarlyBoostClassifier) else None
            check_learner(learner, n_outputs, columns)
            if not np.isfinite(stage.steps[view]):
                raise UsboostError(f"the step of stage {index} is {stage.steps[view]}")


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in files}


def _check_digests(document: Mapping[str, Any], folder: Path) -> None:
    for name, digest in document.get("files", {}).items():
        if not _FILE.fullmatch(name):
            raise UsboostError(f"{folder} lists {name!r}, which is no file of a model")
        try:
            found = _sha256(folder / name)
        except OSError as error:
            raise UsboostError(f"{folder / name} cannot be read: {error.strerror}") from None
        if found != digest:
            raise UsboostError(f"{folder / name} is not the file that was saved; copy or train it again")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def save_gbm(gbm: GradientBoostedTrees, folder: Path) -> None:
    """Write a GBM's trees; `load_gbm` reads them."""
    with replacing(folder) as partial:
        arrays, meta = FittedTrees(tuple(gbm.trees)).to_arrays()
        document = {
            **meta,
            "initial": gbm.initial.tolist(),
            "learning_rate": gbm.learning_rate,
            "n_classes": gbm.n_classes,
        }
        _write_arrays(_concatenated(arrays, meta["trees"]), partial / "trees.safetensors")
        document["files"] = _digests(partial)
        (partial / "gbm.json").write_text(json.dumps(document))


def load_gbm(folder: Path) -> GradientBoostedTrees:
    """Read a GBM that `save_gbm` wrote.

    Raises
    ------
    UsboostError
        If a file is missing, cut short or changed, or holds what is no GBM.
    """
    document = _read_json(folder / "gbm.json")
    try:
        _check_digests(document, folder)
        gbm = GradientBoostedTrees(
            _split_trees(_read_arrays(folder / "trees.safetensors")),
            np.asarray(document["initial"], dtype=np.float64),
            float(document["learning_rate"]),
            int(document["n_classes"]),
        )
        check_gbm(gbm)
        return gbm
    except UsboostError as error:
        where = str(folder)
        raise (error if where in str(error) else UsboostError(f"{folder}: {error}")) from None
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise UsboostError(f"{folder} is not a GBM that usboost wrote: {error!r}") from error


def _concatenated(arrays: Arrays, n_trees: int) -> Arrays:
    """Thousands of trees in one array per field, with where each begins."""
    out: Arrays = {}
    for name in (field.name for field in fields(Tree)):
        parts = [arrays[f"{i}.{name}"] for i in range(n_trees)]
        out[name] = np.concatenate(parts)
        out[f"{name}.start"] = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return out


def _split_trees(arrays: Arrays) -> list[Tree]:
    names = [field.name for field in fields(Tree)]
    if "gain" not in arrays:
        names.remove("gain")
    for name in names:
        starts = arrays[f"{name}.start"]
        if starts.ndim != 1 or starts.dtype != np.int64 or len(starts) != len(arrays["value.start"]):
            raise UsboostError(f"where each tree's {name} starts is not one number for each tree")
        if (
            not len(starts)
            or starts[0] != 0
            or starts[-1] != len(arrays[name])
            or (np.diff(starts) < 0).any()
        ):
            raise UsboostError(f"the trees' {name} is not cut where they start")
    parts = {name: np.split(arrays[name], arrays[f"{name}.start"][1:-1]) for name in names}
    return [Tree(**{name: parts[name][i] for name in names}) for i in range(len(parts[names[0]]))]


def settings_to_json(estimator: BaseEstimator) -> dict[str, Any]:
    """Class name and constructor arguments, estimators inside them included."""
    if type(estimator).__name__ not in _SETTINGS:
        raise UsboostError(f"{type(estimator).__name__} has no file form")
    parameters = estimator.get_params(deep=False)
    kept = {name: _plain(value) for name, value in parameters.items() if name not in _NOT_KEPT}
    return {"class": type(estimator).__name__, "parameters": kept}


def settings_from_json(document: Mapping[str, Any]) -> Any:
    """The unfitted estimator that `settings_to_json` described."""
    if not isinstance(document["class"], str) or document["class"] not in _SETTINGS:
        raise UsboostError(
            f"a model file names the class {document['class']!r}, which is not one of usboost's"
        )
    parameters = {name: _estimators(value) for name, value in document["parameters"].items()}
    check_settings(_SETTINGS[document["class"]], parameters)
    if document["class"] == "Backbone":
        parameters = contained_cache(parameters)
    return _SETTINGS[document["class"]](**parameters)


def _backbones(settings: Any) -> Iterator[dict[str, Any]]:
    """The parameters of every backbone in described settings."""
    if isinstance(settings, dict):
        if settings.get("class") == "Backbone" and isinstance(settings.get("parameters"), dict):
            yield settings["parameters"]
        for part in settings.values():
            yield from _backbones(part)


def _keep_weights(settings: Any, folder: Path) -> None:
    """Copy the weight files that backbones start from, which frozen ones need to predict, to the model.

    One that is gone by now stays a path: what has been trained is saved all the same.
    """
    kept: dict[str, str] = {}
    for backbone in _backbones(settings):
        source = backbone["pretrained"]
        if isinstance(source, str) and Path(source).is_file():
            if source not in kept:
                kept[source] = f"backbone-{len(kept)}.safetensors"
                weights = read_weights(backbone["name"], source)
                # as tensors: numpy has no bfloat16; each its own, as safetensors refuses shared memory
                own = {name: tensor.clone().contiguous() for name, tensor in weights.items()}
                save_tensors(own, folder / kept[source])
            backbone["pretrained"] = kept[source]


def _plain(value: Any) -> Any:
    if isinstance(value, BaseEstimator):
        return settings_to_json(value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _estimators(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"class", "parameters"}:
            return settings_from_json(value)
        return {key: _estimators(part) for key, part in value.items()}
    return value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UsboostError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise UsboostError(f"{path} does not hold a JSON object")
    return document

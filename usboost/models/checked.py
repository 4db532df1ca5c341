"""What the content of a model's file must be, looked at before anything is done with it.

A file may have been made by anyone: trees without cycles, network weights of the shapes that the
specification says, settings of the types that constructors declare. Nothing here costs more memory
than the file's own arrays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from usboost.errors import UsboostError
from usboost.learners.classifiers import FittedClassifiers, Hyperplane, SignTree
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.branches import branch
from usboost.learners.networks.image_network import SMALLEST
from usboost.learners.networks.learner import FittedNetwork, NetworkLearner
from usboost.learners.trees.learner import FittedTrees, TreeLearner
from usboost.learners.trees.tree import Tree
from usboost.models.gbm import BoostedFeatures, GradientBoostedTrees
from usboost.models.two_branch import FittedTwoBranch, TwoBranchNetwork, TwoBranchNetworkClassifier

DEEPEST = 500
"""Levels of a tree; each is a level of recursion when it predicts."""

HIGHEST_CODE = 1 << 24
"""Largest category code of a tree; above it float32 has no room for every integer."""

_WIDEST = 10_000_000

_PARTS: dict[str, tuple[type, ...]] = {
    "learner": (NetworkLearner, TreeLearner),
    "learners": (NetworkLearner, TreeLearner),
    "estimator": (DecisionTreeClassifier, LogisticRegression),
    "backbone": (Backbone,),
    "features": (BoostedFeatures,),
    "network": (TwoBranchNetworkClassifier,),
}
"""Parameters that are estimators, and of which classes they may be."""

_Width = Annotated[int, Field(ge=1, le=_WIDEST)]


class _Spec(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _TableInput(_Spec):
    view: Literal["table"]
    n_numeric: Annotated[int, Field(ge=0, le=_WIDEST)]
    cardinalities: Annotated[list[_Width], Field(max_length=100_000)]


class _ImageInput(_Spec):
    view: Literal["image"]
    channels: Literal[1, 3]
    backbone: Literal["small_cnn", "vgg16", "resnet50"]
    size: Annotated[int, Field(ge=1, le=4096)] | None
    augment: Literal["none", "flip", "flip_shift"]
    imagenet: bool

    @model_validator(mode="after")
    def _large_enough(self) -> _ImageInput:
        if self.size is not None and self.size < SMALLEST[self.backbone]:
            raise ValueError(f"size {self.size} is too small for {self.backbone}")
        return self


_Input = Annotated[_TableInput | _ImageInput, Field(discriminator="view")]
_Widths = Annotated[list[_Width], Field(max_length=1000)]


class _NetworkSpec(_Spec):
    input: _Input
    widths: Annotated[_Widths, Field(min_length=1)]


class _TwoBranchSpec(_Spec):
    inputs: Annotated[list[_Input], Field(min_length=2, max_length=2)]
    views: Annotated[list[str], Field(min_length=2, max_length=2)]
    dnn1: Annotated[_Widths, Field(min_length=1)]
    dnn2: Annotated[_Widths, Field(min_length=1)]
    dnn3: _Widths
    fusion: Literal["concat", "product"]
    n_classes: _Width


def check_settings(cls: type, parameters: Mapping[str, Any]) -> None:
    """Constructor arguments are of the types that the constructor declares.

    Raises
    ------
    UsboostError
        Naming the argument that is not.
    """
    for name, value in parameters.items():
        if name in _PARTS:
            parts = value if name == "learners" and value is not None else {"": value}
            right = isinstance(parts, Mapping) and all(
                part is None or isinstance(part, _PARTS[name]) for part in parts.values()
            )
            if name == "learners" and right and value is not None:
                right = all(part is not None for part in parts.values()) and bool(parts)
        else:
            right = not _holds_estimator(value) and _fits(cls, name, value)
        if not right:
            raise UsboostError(f"a model file gives {cls.__name__} a {name} that it cannot have")


def _holds_estimator(value: Any) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return isinstance(value, BaseEstimator) or any(map(_holds_estimator, parts))


def _fits(cls: type, name: str, value: Any) -> bool:
    adapter = _adapter(cls, name)
    if adapter is None or value is None:
        return True
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


@cache
def _adapter(cls: type, name: str) -> TypeAdapter[Any] | None:
    """None where nothing is declared: scikit-learn's own classes look at theirs in `fit`."""
    if (hint := get_type_hints(cls.__init__).get(name)) is None:  # type: ignore[misc]
        return None
    try:
        return TypeAdapter(hint)
    except PydanticUserError:
        return None


def contained_cache(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A backbone's parameters without a cache that a file puts outside the working folder."""
    cache_folder = parameters.get("cache")
    outside = isinstance(cache_folder, str) and (
        PurePath(cache_folder).is_absolute() or ".." in PurePath(cache_folder).parts
    )
    return {**parameters, "cache": None} if outside else dict(parameters)


def check_tree(tree: Tree) -> None:
    """A tree is one: every node and every leaf has one parent, which comes before it.

    Raises
    ------
    UsboostError
        If it is not, or an array has another shape or type than `Tree` says.
    """
    n = len(tree.feature) if tree.feature.ndim == 1 else -1
    shapes = {
        "feature": (n,),
        "threshold": (n,),
        "left": (n,),
        "right": (n,),
        "category_start": (n + 1,),
    }
    if tree.gain.size:  # empty where it is not known
        shapes["gain"] = (n,)
    kinds = {"threshold": "f", "value": "f", "gain": "f"}
    for name in (*shapes, "value", "categories"):
        array = getattr(tree, name)
        if array.dtype.kind != kinds.get(name, "i") or array.shape != shapes.get(name, array.shape):
            raise UsboostError(f"a tree's {name} is {array.dtype} of shape {array.shape}")
    if tree.value.ndim != 2 or len(tree.value) != n + 1 or not tree.value.shape[1]:
        raise UsboostError(f"a tree of {n} inner nodes has leaf values of shape {tree.value.shape}")
    finite = np.isfinite(tree.value).all() and np.isfinite(tree.gain).all()
    if not finite or np.isnan(tree.threshold).any() or (tree.feature < 0).any():
        raise UsboostError("a tree holds a number that is not finite, or a column below 0")
    left, right = tree.left.tolist(), tree.right.tolist()
    if sorted([*left, *right]) != [*range(-n - 1, 0), *range(1, n)][: 2 * n]:
        raise UsboostError("a tree has a node or leaf that is missing or has two parents")
    depth = [0] * n
    for node in range(n):
        for child in (left[node], right[node]):
            if 0 <= child <= node:
                raise UsboostError("a tree has a node before its parent")
            if child > 0:
                depth[child] = depth[node] + 1
    if max(depth, default=0) >= DEEPEST:
        raise UsboostError(f"a tree has more than {DEEPEST} levels")
    starts, codes = tree.category_start, tree.categories
    if codes.ndim != 1 or starts[0] != 0 or starts[-1] != len(codes) or (np.diff(starts) < 0).any():
        raise UsboostError("a tree's categories do not fit its nodes")
    if len(codes) and not 0 <= codes.min() <= codes.max() <= HIGHEST_CODE:
        raise UsboostError("a tree has a category code out of range")


def check_learner(learner: Any, n_outputs: int | None, n_columns: int | None = None) -> None:
    """A weak learner has what its kind needs, `n_outputs` outputs and reads `n_columns` columns, if given.

    Raises
    ------
    UsboostError
        If it has not.
    """
    if isinstance(learner, FittedNetwork):
        spec = _valid(_NetworkSpec, learner.spec)
        found = spec["widths"][-1]
        _check_weights(learner.weights, _network_shapes(json.dumps(spec)))
    elif isinstance(learner, FittedTrees):
        for tree in learner.trees:
            check_tree(tree)
        found = sum(tree.value.shape[1] for tree in learner.trees)
    elif isinstance(learner, FittedClassifiers):
        found = len(learner.rules)
        for rule in learner.rules:
            if isinstance(rule, SignTree):
                check_tree(rule.tree)
            elif isinstance(rule, Hyperplane):
                both = np.concatenate((rule.weights, rule.intercept), axis=None)
                if rule.weights.ndim != 1 or rule.intercept.shape != (1,) or both.dtype.kind != "f":
                    raise UsboostError("a hyperplane is not a vector of numbers and an intercept")
                if n_columns not in (None, len(rule.weights)) or not np.isfinite(both).all():
                    raise UsboostError("a hyperplane holds a number that is not finite, or too many or few")
    else:
        raise UsboostError(f"a {type(learner).__name__} cannot come from a file")
    if n_outputs not in (None, found):
        raise UsboostError(f"a weak learner has {found} outputs where {n_outputs} are needed")


def check_two_branch(fitted: FittedTwoBranch, n_classes: int) -> None:
    """A two-branch network's weights are those of its specification, for `n_classes` classes."""
    spec = _valid(_TwoBranchSpec, fitted.spec)
    if spec["n_classes"] != n_classes:
        raise UsboostError(f"the network tells {spec['n_classes']} classes apart, not {n_classes}")
    _check_weights(fitted.weights, _two_branch_shapes(json.dumps(spec)))


def check_gbm(gbm: GradientBoostedTrees) -> None:
    """A GBM has whole stages of trees with one value a leaf."""
    per_stage = 1 if gbm.n_classes == 2 else gbm.n_classes
    if gbm.initial.shape != (per_stage,) or gbm.n_classes < 2 or len(gbm.trees) % per_stage:
        raise UsboostError(f"a GBM of {gbm.n_classes} classes has {len(gbm.trees)} trees")
    if not (np.isfinite(gbm.initial).all() and np.isfinite(gbm.learning_rate)):
        raise UsboostError("a GBM holds a number that is not finite")
    for tree in gbm.trees:
        check_tree(tree)
        if tree.value.shape[1] != 1:
            raise UsboostError("a GBM's tree has more than one value a leaf")


def _valid(model: type[_Spec], spec: Any) -> dict[str, Any]:
    try:
        return model.model_validate(spec).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the specification"
        raise UsboostError(f"a network's {where} is wrong: {first['msg']}") from None


def _check_weights(weights: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    if set(weights) != set(shapes):
        raise UsboostError("a network's weights are not those of its specification")
    for name, array in weights.items():
        whole = name.endswith("num_batches_tracked")
        if array.shape != shapes[name] or array.dtype != (np.int64 if whole else np.float32):
            raise UsboostError(f"a network's {name} is {array.dtype} of shape {array.shape}")
        if not np.isfinite(array).all():
            raise UsboostError(f"a network's {name} holds a number that is not finite")


# Built on the meta device, where tensors have a shape and no memory.
@lru_cache(maxsize=64)
def _network_shapes(spec: str) -> dict[str, tuple[int, ...]]:
    document = json.loads(spec)
    return _shapes(lambda: branch(document["input"], document["widths"]))


@lru_cache(maxsize=64)
def _two_branch_shapes(spec: str) -> dict[str, tuple[int, ...]]:
    return _shapes(lambda: TwoBranchNetwork(json.loads(spec)))


def _shapes(build: Any) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        network = build()
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}

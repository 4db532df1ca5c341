"""XGBoost's trees, read from its JSON, as ours: what an export writes of them."""

import json
from typing import Any

import numpy as np

from usboost.files.onnx_graph import TableNodes, Value, no_form
from usboost.learners.tree import Node, Tree
from usboost.models.baselines.wrapper import Package
from usboost.models.methods.boosted_features import GradientBoostedTrees


class XGBoost(Package):
    """XGBoost by its interface of scikit-learn."""

    def to_onnx(self, model: Any, table: TableNodes) -> Value:
        """Return in the table's graph what `predict` gives, float64 (n, D)."""
        learner = json.loads(model.estimator_.get_booster().save_raw("json"))["learner"]
        booster, objective = learner["gradient_booster"], learner["objective"]["name"]
        known = objective in ("binary:logistic", "multi:softprob", "reg:squarederror")
        known &= booster["model"]["gbtree_model_param"]["num_parallel_tree"] == "1"
        if not known or booster["name"] != "gbtree" or not model.own_categories_:
            raise no_form(model.estimator_, f"with {objective}")
        n_outputs = max(booster["model"]["tree_info"]) + 1
        grown = booster["model"]["trees"]
        last = int(learner["attributes"].get("best_iteration", len(grown)))
        trees = [tree_of(each) for each in grown[: (last + 1) * n_outputs]]
        base = np.full(n_outputs, json.loads(learner["learner_model_param"]["base_score"]), np.float64)
        if objective == "binary:logistic":
            base = np.log(base / (1 - base))
        return GradientBoostedTrees(trees, base, 1.0, len(getattr(model, "classes_", [0]))).to_onnx(table)


def tree_of(grown: dict[str, Any]) -> Tree:
    """Return a tree of one in XGBoost's JSON: rows below a number go left there, codes of a set right."""
    left, right = (np.array(grown[f"{side}_children"]) for side in ("left", "right"))
    is_inner, conditions = left >= 0, np.array(grown["split_conditions"], dtype=np.float32)
    place = np.where(is_inner, np.cumsum(is_inner) - 1, ~(np.cumsum(~is_inner) - 1))
    below = np.nextafter(conditions, np.float32(-np.inf))
    segments = zip(*(grown[f"categories_{name}"] for name in ("nodes", "segments", "sizes")), strict=True)
    sets = {node: grown["categories"][start : start + size] for node, start, size in segments}
    nodes: list[Node] = []
    for node in np.flatnonzero(is_inner).tolist():
        sides, codes = (int(place[left[node]]), int(place[right[node]])), sets.get(node, [])
        nodes.append((grown["split_indices"][node], below[node], *(sides[::-1] if codes else sides), codes))
    return Tree._build(nodes, conditions[~is_inner, None], [0.0] * len(nodes))

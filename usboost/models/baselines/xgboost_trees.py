"""XGBoost's trees, read from its JSON, as ours: what an export writes of them."""

import json
from typing import Any

import numpy as np

from usboost.data.nodes import TableNodes
from usboost.files.onnx_graph import no_form
from usboost.learners.tree import Node, Tree
from usboost.learners.tree_nodes import tree_sum
from usboost.models.baselines.wrapper import Package

OBJECTIVES = ("binary:logistic", "multi:softprob", "reg:squarederror")


class XGBoost(Package):
    """XGBoost by its interface of scikit-learn."""

    def to_onnx(self, model: Any, table: TableNodes) -> str:
        """Return in the table's graph what `predict` gives, float64 (n, D)."""
        learner = json.loads(model.estimator_.get_booster().save_raw("json"))["learner"]
        booster, objective = learner["gradient_booster"], learner["objective"]["name"]
        if objective not in OBJECTIVES or booster["name"] != "gbtree" or not model.own_categories_:
            raise no_form(model.estimator_, f"with {objective}")
        grown, outputs = booster["model"]["trees"], booster["model"]["tree_info"]
        if best := learner["attributes"].get("best_iteration"):
            grown = grown[: (int(best) + 1) * len(set(outputs))]
        base = np.array(json.loads(learner["learner_model_param"]["base_score"]), np.float64, ndmin=1)
        if objective == "binary:logistic":
            base = np.log(base / (1 - base))
        base = np.broadcast_to(base, len(set(outputs)))
        trees, graph = [tree_of(each) for each in grown], table.graph
        sums = tree_sum(table, trees, [1.0] * len(trees), outputs[: len(trees)], len(base))
        raw = graph.Add(sums, base[None])
        if objective == "multi:softprob":
            return graph.softmax(raw)
        if objective == "reg:squarederror":
            return raw
        positive = graph.Sigmoid(raw)
        return graph.joined(graph.Sub(1.0, positive), positive)


def tree_of(grown: dict[str, Any]) -> Tree:
    """Return a tree of one in XGBoost's JSON: rows below a number go left there, codes of a set right."""
    children = list(zip(grown["left_children"], grown["right_children"], strict=True))
    leaves = [node for node, (left, _) in enumerate(children) if left < 0]
    inner = [node for node, (left, _) in enumerate(children) if left >= 0]
    place = {node: k for k, node in enumerate(inner)} | {node: ~k for k, node in enumerate(leaves)}
    sets = {}
    segments = zip(
        grown["categories_nodes"], grown["categories_segments"], grown["categories_sizes"], strict=True
    )
    for node, start, size in segments:
        sets[node] = grown["categories"][start : start + size]
    nodes: list[Node] = []
    for node in inner:
        left, right = (place[child] for child in children[node])
        column, condition = grown["split_indices"][node], np.float32(grown["split_conditions"][node])
        if codes := sets.get(node):
            nodes.append((column, 0.0, right, left, codes))
        else:
            below = float(np.nextafter(condition, np.float32(-np.inf)))
            nodes.append((column, below, left, right, []))
    values = np.array([grown["split_conditions"][node] for node in leaves], dtype=np.float32)
    return Tree._build(nodes, values[:, None], [0.0] * len(nodes))

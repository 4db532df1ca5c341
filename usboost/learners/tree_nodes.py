"""Trees as ONNX's TreeEnsembleRegressor: the leaf that each row falls into is the same, to the bit.

Numbers and thresholds are float32 in both. A split by category reads a further column, 0 where the code goes
left, which is looked up: sets of categories in the trees themselves are chains of comparisons, and not all
runtimes take them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from usboost.data.nodes import TableNodes
from usboost.learners.tree import Tree

TREES_AT_ONCE = 64
"""Trees whose float32 values are summed before the sum goes on in float64."""

SETS_AT_ONCE = 1024
"""Sets of categories that are looked up before memory is free again, unless one tree has more."""


def tree_values(table: TableNodes, trees: Sequence[Tree]) -> str:
    """Return the value of the leaf that each row falls into, tree by tree: float32 (n, T), for k = 1."""
    parts = []
    for run in _cut(trees):
        some = trees[run]
        parts.append(_ensemble(table, some, [each.value for each in some], range(len(some)), len(some)))
    return table.graph.joined(*parts)


def tree_sum(
    table: TableNodes,
    trees: Sequence[Tree],
    weights: Sequence[float],
    outputs: Sequence[int] | None = None,
    n_outputs: int | None = None,
) -> str:
    """Return Σ_t weight_t · tree_t(x), float64 (n, D).

    `outputs`: the place among the D of each tree's first value; by default 0. `n_outputs`: D, by default the
    first tree's.
    """
    graph, count = table.graph, n_outputs or trees[0].value.shape[1]
    places, parts = outputs or [0] * len(trees), [graph.rows(table.rows, np.zeros(count))]
    for run in _cut(trees):
        some = zip(weights[run], trees[run], strict=True)
        values = [weight * tree.value.astype(np.float64) for weight, tree in some]
        parts.append(graph.cast(_ensemble(table, trees[run], values, places[run], count), np.float64))
    return reduce(graph.Add, parts)


def leaf_numbers(table: TableNodes, trees: Sequence[Tree]) -> str:
    """Return the number of the leaf that each row falls into, tree by tree: int64 (n, T)."""
    numbered = [
        Tree(**{**tree.arrays(), "value": np.arange(len(tree.value), dtype=np.float32)[:, None]})
        for tree in trees
    ]
    return table.graph.cast(tree_values(table, numbered), np.int64)


def _cut(trees: Sequence[Tree]) -> Iterator[slice]:
    """Cut trees into runs of which none has too many trees, or sets of categories."""
    first, sets = 0, 0
    for k, tree in enumerate(trees):
        own = int((np.diff(tree.category_start) > 0).sum())
        if k > first and (k - first == TREES_AT_ONCE or sets + own > SETS_AT_ONCE):
            yield slice(first, k)
            first, sets = k, 0
        sets += own
    if first < len(trees):
        yield slice(first, len(trees))


def _ensemble(
    table: TableNodes,
    trees: Sequence[Tree],
    values: Sequence[np.ndarray],
    outputs: Sequence[int],
    n_outputs: int,
) -> str:
    """Return the sum of trees of these leaf values, float32 (n, n_outputs)."""
    graph, n_columns = table.graph, table.n_numeric + len(table.cardinalities)
    places: dict[tuple[int, bytes], int] = {}  # of sets of categories, among further columns
    sets: dict[int, list[np.ndarray]] = {}
    attributes: dict[str, Any] = {name: [] for name in _NODES + _LEAVES}
    for t, (tree, leaf_values, output) in enumerate(zip(trees, values, outputs, strict=True)):
        inner, leaves = len(tree.feature), len(leaf_values)
        feature, threshold = tree.feature.astype(np.int64), tree.threshold.copy()
        for node in np.flatnonzero(np.diff(tree.category_start)).tolist():
            codes = tree.categories[tree.category_start[node] : tree.category_start[node + 1]]
            column = int(tree.feature[node])
            if (key := (column, codes.tobytes())) not in places:
                places[key] = len(places)
                sets.setdefault(column, []).append(codes)
            feature[node], threshold[node] = -1 - places[key], 0.5
        # leaves are nodes behind the inner ones
        left, right = (np.where(side < 0, inner + ~side, side) for side in (tree.left, tree.right))
        none = [0] * leaves
        attributes["nodes_treeids"] += [t] * (inner + leaves)
        attributes["nodes_nodeids"] += range(inner + leaves)
        attributes["nodes_featureids"] += [*feature.tolist(), *none]
        attributes["nodes_values"] += [*threshold.tolist(), *none]
        attributes["nodes_modes"] += ["BRANCH_LEQ"] * inner + ["LEAF"] * leaves
        attributes["nodes_truenodeids"] += [*left.tolist(), *none]
        attributes["nodes_falsenodeids"] += [*right.tolist(), *none]
        k = leaf_values.shape[1]
        attributes["target_treeids"] += [t] * (leaves * k)
        attributes["target_nodeids"] += np.repeat(np.arange(inner, inner + leaves), k).tolist()
        attributes["target_ids"] += [*range(output, output + k)] * leaves
        attributes["target_weights"] += leaf_values.astype(np.float32).ravel().tolist()
    columns, order = [table.matrix()], np.zeros(len(places), dtype=np.int64)
    for column, own in sets.items():
        q = column - table.n_numeric
        goes_right = np.ones((table.cardinalities[q], len(own)), dtype=np.uint8)
        for j, codes in enumerate(own):
            order[places[column, codes.tobytes()]] = n_columns + j
            goes_right[codes[codes < len(goes_right)], j] = 0
        n_columns += len(own)
        code = graph.Gather(table.codes, q, axis=1)
        looked_up = graph.Gather(goes_right, code, axis=0)
        columns.append(graph.cast(looked_up, np.float32))
    features = attributes["nodes_featureids"]
    attributes["nodes_featureids"] = [f if f >= 0 else int(order[-1 - f]) for f in features]
    matrix = graph.joined(*columns)
    found = graph.TreeEnsembleRegressor(matrix, domain="ai.onnx.ml", n_targets=n_outputs, **attributes)
    return str(found)


_NODES = (
    *("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes"),
    *("nodes_truenodeids", "nodes_falsenodeids"),
)
_LEAVES = ("target_treeids", "target_nodeids", "target_ids", "target_weights")

"""Trees as ONNX's TreeEnsembleRegressor: the leaf that each row falls into is the same, to the bit.

Numbers and thresholds are float32 in both. A split by category reads a further column, 0 where the code goes
left, which is looked up: sets of categories in the trees themselves are chains of comparisons, and not all
runtimes take them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from usboost.files.onnx_graph import TableNodes, Value, joined, sum_of
from usboost.learners.tree import Tree

TREES_AT_ONCE = 64
"""Trees whose float32 values are summed before the sum goes on in float64."""


def tree_sum(
    table: TableNodes, trees: Sequence[Tree], weights: Sequence[float] = (), outputs: Sequence[int] = ()
) -> Value:
    """Return Σ_t weight_t · tree_t(x), float64 (n, D); each weight is 1 by default.

    `outputs`: the place among the D of each tree's first value, by default 0.
    """
    weights = weights if len(weights) else [1.0] * len(trees)
    places = outputs or [0] * len(trees)
    count = max(place + tree.value.shape[1] for place, tree in zip(places, trees))
    parts = []
    for start in range(0, len(trees), TREES_AT_ONCE):
        some = slice(start, start + TREES_AT_ONCE)
        parts.append(_ensemble(table, trees[some], weights[some], places[some], count).cast(np.float64))
    return sum_of(parts)


def _sets(tree: Tree) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield node, column and codes that go left of each split by category."""
    for node in np.flatnonzero(np.diff(tree.category_start)).tolist():
        start, stop = tree.category_start[node : node + 2]
        yield node, int(tree.feature[node]), tree.categories[start:stop]


def _ensemble(
    table: TableNodes, trees: Sequence[Tree], weights: Sequence[float], outputs: Sequence[int], n_outputs: int
) -> Value:
    """Return the sum of trees, float32 (n, n_outputs)."""
    sets: dict[int, dict[bytes, np.ndarray]] = {}
    for _, column, codes in (each for tree in trees for each in _sets(tree)):
        sets.setdefault(column, {})[codes.tobytes()] = codes
    columns, width, places = [table.matrix()], table.n_numeric + len(table.cardinalities), {}
    for column, own in sets.items():
        q = column - table.n_numeric
        goes_right = np.ones((table.cardinalities[q], len(own)), dtype=np.uint8)
        for j, (key, codes) in enumerate(own.items()):
            goes_right[codes[codes < len(goes_right)], j] = 0
            places[column, key] = width + j
        width += len(own)
        assert table.codes is not None
        columns.append(table.codes.Gather(q, axis=1).picks(goes_right).cast(np.float32))
    made: list[dict[str, Any]] = []
    for t, (tree, weight, output) in enumerate(zip(trees, weights, outputs, strict=True)):
        inner, (leaves, k) = len(tree.feature), tree.value.shape
        feature, threshold = tree.feature.tolist(), tree.threshold.tolist()
        for node, column, codes in _sets(tree):
            feature[node], threshold[node] = places[column, codes.tobytes()], 0.5
        # leaves are nodes behind the inner ones
        left, right = (np.where(side < 0, inner + ~side, side).tolist() for side in (tree.left, tree.right))
        none = [0] * leaves
        attributes = {
            "nodes_treeids": [t] * (inner + leaves),
            "nodes_nodeids": range(inner + leaves),
            "nodes_featureids": feature + none,
            "nodes_values": threshold + [0.0] * leaves,
            "nodes_modes": ["BRANCH_LEQ"] * inner + ["LEAF"] * leaves,
            "nodes_truenodeids": left + none,
            "nodes_falsenodeids": right + none,
            "target_treeids": [t] * (leaves * k),
            "target_nodeids": np.repeat(np.arange(inner, inner + leaves), k).tolist(),
            "target_ids": [*range(output, output + k)] * leaves,
            "target_weights": (weight * tree.value.astype(np.float64)).astype(np.float32).ravel().tolist(),
        }
        made.append(attributes)
    lists = {name: [value for each in made for value in each[name]] for name in made[0]}
    return joined(columns).TreeEnsembleRegressor(domain="ai.onnx.ml", n_targets=n_outputs, **lists)

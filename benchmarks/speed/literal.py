"""The US paper done literally: what the fast path is measured against, and must agree with.

Dense one-hot matrices, scikit-learn's exact trees with all M outputs, a DataLoader, one optimizer per
round, `gp_minimize` on the risk as printed, weak learners called one by one. Algorithms 1 and 2 with
unit codewords, line by line; of `usboost` nothing but the tables that are read is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.tree import DecisionTreeRegressor
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from usboost.data.table import Table

STEP_BOUNDS = (0.0, 10.0)


def dense(table: Table) -> np.ndarray:
    """Return numbers and one-hot categories, float32 (n, d): what scikit-learn and a plain network take."""
    codes = zip(table.cardinalities, table.codes.T)
    columns = [np.eye(size, dtype=np.float32)[each] for size, each in codes]
    return np.concatenate([table.numeric, *columns], axis=1)


@dataclass
class LiteralBoosting:
    """2WL (US Algorithm 1) and, with `second_order`, 2WL2O (Algorithm 2).

    Parameters
    ----------
    n_classes : M
    codewords : (M, D), unit vectors if not given
    n_inner : N₂, fits per round
    search : (risk of a list of steps, round) -> steps, with N₂ > 1 also of j; thirty evaluations of
        `gp_minimize` if not given
    network : round -> network; new random weights of FC(hidden) if not given
    orders : (round, n) -> row numbers of an epoch; shuffled by the DataLoader if not given
    views : "US", "U" or "S"

    Attributes
    ----------
    stages_ : list of (network or None, tree or None, steps)
    kept_ : list of (j, round), which inner iteration was kept
    f_ : float64 (n, D) scores on the training samples
    """

    n_classes: int
    second_order: bool = False
    hidden: tuple[int, ...] = (100, 50)
    learning_rate: float = 1e-3
    batch_size: int = 512
    max_depth: int = 3
    min_samples_leaf: int = 20
    initial_step: float = 0.1
    n_inner: int = 1
    codewords: np.ndarray | None = None
    search: Callable[..., Iterable[float]] | None = None
    network: Callable[[int], nn.Module] | None = None
    orders: Callable[[int, int], list[int]] | None = None
    views: str = "US"
    seed: int = 0
    stages_: list[tuple[nn.Module | None, DecisionTreeRegressor | None, list[float]]] = field(
        default_factory=list
    )
    kept_: list[tuple[int, int]] = field(default_factory=list)

    def fit(self, U: np.ndarray, S: np.ndarray, y: np.ndarray, n_rounds: int) -> LiteralBoosting:
        """Fit rounds to U, float32 (n, d) dense, and S, float32 (n, p), with classes y of shape (n,)."""
        if self.codewords is None:
            self.codewords = np.eye(self.n_classes)
        torch.manual_seed(self.seed)
        self.f_ = np.zeros((len(y), self.codewords.shape[1]))
        for index in range(1, n_rounds + 1):
            self._round(index, U, S, y)
        return self

    def decision_function(self, U: np.ndarray, S: np.ndarray) -> np.ndarray:
        """Return ⟨f, y^k⟩, float64 (n, M), learner by learner."""
        f = np.zeros((len(U), self.codewords.shape[1]))
        for network, tree, steps in self.stages_:
            outputs = [self._run(network, U)] if network else []
            outputs += [tree.predict(S).reshape(len(S), -1)] if tree else []
            for step, output in zip(steps, outputs):
                f += step * output
        return f @ self.codewords.T

    def _round(self, index: int, U: np.ndarray, S: np.ndarray, y: np.ndarray) -> None:
        """Algorithm 2's inner loop: fit with (ε_j, δ_j), search (ε_{j+1}, δ_{j+1}); the best j is kept."""
        steps = [self.initial_step] * len(self.views)
        best: tuple[float, int, Any, Any, list[float], list[np.ndarray]] | None = None
        for inner in range(self.n_inner):
            targets = self._targets(y, steps)
            outputs, network, tree = [], None, None
            if "U" in self.views:
                network = self._train(index, U, targets[0])
                outputs.append(self._run(network, U))
            if "S" in self.views:
                tree = DecisionTreeRegressor(
                    max_depth=self.max_depth, min_samples_leaf=self.min_samples_leaf, random_state=0
                ).fit(S, targets[-1])
                outputs.append(tree.predict(S).reshape(len(S), -1))
            risk = self._along(outputs, y)
            if self.search:
                found = self.search(risk, index, *([inner] if self.n_inner > 1 else []))
            else:
                found = gp_search(risk, self.seed + index, n_steps=len(self.views))
            steps = [float(step) for step in found[: len(outputs)]]
            if best is None or risk(steps) < best[0]:
                best = risk(steps), inner, network, tree, steps, outputs
        assert best is not None
        _, inner, network, tree, steps, outputs = best
        self.f_ = self.f_ + sum(step * output for step, output in zip(steps, outputs))
        self.stages_.append((network, tree, steps))
        self.kept_.append((inner, index))

    def _along(self, outputs: list[np.ndarray], y: np.ndarray) -> Callable[[Any], float]:
        """Return the risk as a function of the steps along these outputs."""

        def risk(steps: Any) -> float:
            return self.risk(self.f_ + sum(step * output for step, output in zip(steps, outputs)), y)

        return risk

    def risk(self, f: np.ndarray, y: np.ndarray) -> float:
        """Return mean_i Σ_k exp(−½⟨f_i, y_i − y^k⟩)."""
        own = self.codewords[y]
        with np.errstate(over="ignore"):
            terms = [np.exp(-0.5 * np.sum(f * (own - codeword), axis=1)) for codeword in self.codewords]
        return float(np.sum(terms, axis=0).mean())

    def _targets(self, y: np.ndarray, steps: list[float]) -> list[np.ndarray]:
        own = self.codewords[y]
        w, w_tilde = np.zeros_like(self.f_), np.zeros_like(self.f_)
        for codeword in self.codewords:
            margin = np.sum(self.f_ * (own - codeword), axis=1)
            w += 0.5 * (own - codeword) * np.exp(-0.5 * margin)[:, None]
            w_tilde += (own - codeword) * np.exp(-0.25 * margin)[:, None]
        if not self.second_order:
            return [w, w]
        epsilon, delta = steps[0], steps[-1]
        if len(self.views) == 1:
            return [epsilon * w - epsilon**2 / 4 * w_tilde]
        return [
            epsilon * w - epsilon**2 / 4 * w_tilde - epsilon * delta / 2 * w,
            delta * w - delta**2 / 4 * w_tilde - epsilon * delta / 2 * w,
        ]

    def _train(self, index: int, U: np.ndarray, target: np.ndarray) -> nn.Module:
        network = self.network(index) if self.network else self._fresh(U.shape[1], target.shape[1])
        data = TensorDataset(torch.from_numpy(U), torch.from_numpy(target.astype(np.float32)))
        order: dict[str, Any] = {"sampler": self.orders(index, len(U))} if self.orders else {"shuffle": True}
        optimizer = torch.optim.RMSprop(network.parameters(), lr=self.learning_rate)
        network.train()
        for rows, values in DataLoader(data, batch_size=self.batch_size, **order):
            optimizer.zero_grad()
            nn.functional.mse_loss(network(rows), values).backward()
            optimizer.step()
        return network

    def _fresh(self, n_inputs: int, n_outputs: int) -> nn.Module:
        layers: list[nn.Module] = []
        for width in self.hidden:
            layers += [nn.Linear(n_inputs, width), nn.ReLU()]
            n_inputs = width
        return nn.Sequential(*layers, nn.Linear(n_inputs, n_outputs))

    @torch.no_grad()
    def _run(self, network: nn.Module, U: np.ndarray) -> np.ndarray:
        network.eval()
        return network(torch.from_numpy(U)).numpy().astype(np.float64)


def gp_search(risk: Callable[[Any], float], seed: int, n_steps: int = 2) -> list[float]:
    """Search by ten random and twenty guided evaluations, as the paper says."""
    from skopt import gp_minimize

    found = gp_minimize(risk, [STEP_BOUNDS] * n_steps, n_initial_points=10, n_calls=30, random_state=seed)
    return list(found.x)


def leaf_values(gbm: GradientBoostingClassifier, S: np.ndarray) -> np.ndarray:
    """Return BFV(x) by calling every tree of `estimators_`: float64 (n, N·T)."""
    return np.column_stack([tree.predict(S) for stage in gbm.estimators_ for tree in stage])

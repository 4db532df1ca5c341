"""Sums over the rows of a leaf, and what they say of its value and of its splits' gains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from usboost.shards.here import here

TIE = 1e-12
"""Gains that differ by less, as a share of the squared length of the target, are equal."""

RIDGE = 1e-12
"""Added to a leaf's metric, as a share of the root's: a singular one then has an inverse."""


@dataclass(frozen=True)
class Moments:
    """What is summed over rows, and what the sums say of a leaf.

    A row's C channels are weight·metric·value (D numbers; their sum is G), weight·metric (their sum is H:
    one number where it is a multiple of the identity, else the D(D + 1)/2 of its lower triangle), and how
    many rows it is. Sums have the channels on their first axis.

    Attributes
    ----------
    channels : float64 (n, C)
    d : D, the number of outputs
    total : float64 (C,)
        The sums over all rows.
    identity, ridge : float64 (C − D − 1,)
        The identity matrix, and what is added to H when splits are compared.
    tie : gains that differ by less are equal
    """

    channels: np.ndarray
    d: int
    total: np.ndarray
    identity: np.ndarray
    ridge: np.ndarray
    tie: float

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        weights: np.ndarray | None,
        metric: np.ndarray | None,
        counts: np.ndarray | None = None,
    ) -> Moments:
        n, d = values.shape
        places = [(0, 0)] if metric is None else lower_triangle(d)
        channels = np.empty((n, d + len(places) + 1))
        if metric is None:
            channels[:, :d], channels[:, d] = values, 1.0
        else:
            channels[:, :d] = np.einsum("nij,nj->ni", metric, values)
            channels[:, d:-1] = metric.reshape(n, d * d).take([i * d + j for i, j in places], axis=1)
        channels[:, -1] = 1.0
        if weights is not None:
            channels[:, :-1] *= weights[:, None]
            channels[:, -1] = weights > 0
        if counts is not None:
            channels[:, -1] *= _exact(counts)
        squares = here().sum(float(np.einsum("nd,nd->", values, channels[:, :d])))
        total = here().sum(np.ones(n) @ channels)
        identity = np.asarray([float(i == j) for i, j in places])
        scale = float(total[d:-1] @ identity) or 1.0
        return cls(channels, d, total, identity, RIDGE * scale * identity, TIE * squares)

    def value(self, sums: np.ndarray, penalty: np.ndarray) -> np.ndarray:
        """A leaf's value (H + penalty)⁻¹ G, float64 (D,), from its sums (C,)."""
        scale = float(sums[self.d : -1] @ self.identity) or 1.0
        return np.linalg.solve(self.matrix(sums, penalty + RIDGE * scale * self.identity), sums[: self.d])

    def matrix(self, sums: np.ndarray, penalty: np.ndarray) -> np.ndarray:
        """H + penalty: (C,) to (D, D)."""
        packed = sums[self.d : -1] + penalty
        if len(packed) == 1:
            return packed * np.eye(self.d)
        out = np.empty((self.d, self.d))
        for number, (i, j) in zip(packed, lower_triangle(self.d)):
            out[i, j] = out[j, i] = number
        return out

    def residuals(self, sums: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What parts of leaves have left of their target at the leaf's value, and their masses.

        Both are measured by the leaf's metric: what is left is its root's inverse times G − H · value, the
        mass the trace of its inverse times H, up to a factor.

        Parameters
        ----------
        sums : float64 (C, L, B), of B parts of L leaves
        total : float64 (C, L)

        Returns
        -------
        float64 (L, D, B) and (L, B)
        """
        gradient, packed = sums[: self.d].swapaxes(0, 1), sums[self.d : -1]
        if len(packed) == 1:
            value = (total[: self.d] / (total[self.d] + self.ridge)).T
            return gradient - packed[0][:, None] * value[:, :, None], packed[0]
        places = lower_triangle(self.d)
        root = self._inverse_roots(total)
        inverse = root.swapaxes(1, 2) @ root
        value = (inverse @ total[: self.d].T[:, :, None])[..., 0]
        left = gradient.copy()
        for numbers, (i, j) in zip(packed, places):
            left[:, i] -= numbers * value[:, j, None]
            if i != j:
                left[:, j] -= numbers * value[:, i, None]
        # tr(H_total⁻¹ H_part) from lower triangles: off the diagonal each number is there twice
        factors = np.stack([(1 + (i != j)) * inverse[:, i, j] for i, j in places])
        return root @ left, np.einsum("tlb,tl->lb", packed, factors)

    def _inverse_roots(self, total: np.ndarray) -> np.ndarray:
        """L⁻¹ of H = L Lᵀ, float64 (L, D, D), of leaves' sums (C, L).

        A leaf of rows that are all but certain has an H of rounding errors, which may have no root; it then
        gets a thousand times the ridge until it has.
        """
        ridge = self.ridge
        while True:
            try:
                return np.linalg.inv(np.linalg.cholesky([self.matrix(each, ridge) for each in total.T]))
            except np.linalg.LinAlgError:
                ridge = 1000 * ridge


def _exact(counts: np.ndarray) -> np.ndarray:
    """Counts (n,) rounded so that they add up exactly: an empty bin then holds 0, not what rounding left."""
    # whole numbers of a unit that all together stay below 2⁵²: float64 adds them without rounding
    unit = 2.0 ** (np.ceil(np.log2(here().sum(counts.sum()))) - 51)
    return np.asarray(np.maximum(np.round(counts / unit), 1.0) * unit)


def lower_triangle(d: int) -> list[tuple[int, int]]:
    """Row and column of each number of a lower triangle, as they are packed."""
    return [(i, j) for i in range(d) for j in range(i + 1)]


def score(gradient: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """Gᵀ H⁻¹ G, by which a leaf lowers the error: (D, …) and packed (D(D + 1)/2, …) to (…), both overwritten.

    By elimination in step for all leaves, which for small D is many times faster than a solver's call each.
    """
    if len(metric) == 1:
        return np.einsum("d...,d...->...", gradient, gradient) / metric[0]
    # H = L D Lᵀ a column at a time: Gᵀ H⁻¹ G = Σ_j z_j² / D_j with L z = G
    d = len(gradient)
    at = {place: t for t, place in enumerate(lower_triangle(d))}
    total = np.zeros_like(gradient[0])
    for j in range(d):
        pivot = metric[at[j, j]]
        pivot[pivot <= 0] = np.inf  # by rounding alone, where there is nothing to gain
        total += np.square(gradient[j]) / pivot
        for i in range(j + 1, d):
            factor = metric[at[i, j]] / pivot
            gradient[i] -= factor * gradient[j]
            for k in range(j + 1, i + 1):
                metric[at[i, k]] -= factor * metric[at[k, j]]
    return total

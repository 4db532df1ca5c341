"""The interface of losses, and what they share.

A loss sees predictions ``f`` of shape (n, D) and encoded labels; every array is float64, because
margins are exponentiated. Papers and their misprints: docs/methods.md.
"""

from typing import ClassVar, Protocol, Self

import numpy as np

from usboost.errors import UsboostError

# (risk, gradient of shape (V,), Hessian of shape (V, V)) at a step vector of shape (V,)
Expansion = tuple[float, np.ndarray, np.ndarray]


class Line(Protocol):
    """The risk R(f + Σ_v step_v · direction_v) as a function of the V steps."""

    def risk(self, steps: np.ndarray) -> float: ...

    def expand(self, steps: np.ndarray) -> Expansion: ...


class ClosedFormLine(Line, Protocol):
    """A line whose lowest point has a formula."""

    def minimiser(self) -> np.ndarray:
        """Return the steps of the lowest risk, (V,); infinite where the risk falls for ever."""
        ...


class Loss(Protocol):
    """A loss as the stagewise loop takes it."""

    @property
    def n_outputs(self) -> int: ...

    def risk(self, f: np.ndarray, y: np.ndarray) -> float: ...

    def line(self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray]) -> Line: ...


class CountingLoss(Loss, Protocol):
    """A loss whose means count row i `counts[i]` times, float64 (n,); each once by default."""

    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float: ...

    def line(
        self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
    ) -> Line: ...


class ClassLoss(CountingLoss, Protocol):
    """A loss of M classes, which a classifier is boosted on; `usboost.models.losses` has those with a name.

    Target rules ask for more: "gradient" for ``w(f, y)``, the negative gradient per sample, (n, D);
    "newton" for ``w`` and ``hessian(f, y)``, (n, D, D) or of one output (n, 1), and with more outputs for
    ``newton_direction(f, y)``, which solves H d = w, and of many for ``hessian_diagonal(f, y)``, (n, D).
    """

    kind: ClassVar[str]
    n_classes: int

    @classmethod
    def of_classes(cls, n_classes: int, per_class: bool = False) -> Self:
        """Return the loss of so many classes; `per_class` asks for D = M outputs, else D may be M − 1."""
        ...

    def labels(self, codes: np.ndarray) -> np.ndarray:
        """Return what `risk` takes as y, of classes 0 to M − 1, int (n,)."""
        ...

    def scores(self, f: np.ndarray) -> np.ndarray:
        """Return a score for each class, (n, M); the largest is the answer."""
        ...

    def probabilities(self, f: np.ndarray) -> np.ndarray: ...


class RegressionLoss(CountingLoss, Protocol):
    """A loss of one output, L(y − f), with targets y of shape (n, 1); its lines are `ClosedFormLine`s."""

    refits_leaves: ClassVar[bool]  # the best constant of a leaf is not the mean of what its tree is fitted to

    def pseudo_residual(self, residual: np.ndarray) -> np.ndarray:
        """Return what learners are fitted to, of the residual's shape: −∂L/∂f up to a positive factor."""
        ...

    def constants(
        self, residual: np.ndarray, groups: np.ndarray, n_groups: int, counts: np.ndarray | None = None
    ) -> np.ndarray:
        """Return for each group of samples, from 0, the c of the lowest Σ counts_i L(residual_i − c).

        float64 (n_groups,); a group without a sample gets 0.
        """
        ...


def mean(values: np.ndarray, counts: np.ndarray | None = None) -> float:
    """Return the mean of values (n,), of which the i-th counts `counts[i]` times."""
    return float(values.mean() if counts is None else np.average(values, weights=counts))


def relative(counts: np.ndarray) -> np.ndarray:
    """Return counts (n,) over their mean: with these factors a mean over the n rows is the counted one."""
    return np.asarray(counts / counts.mean())


def simplex_codewords(n_classes: int) -> np.ndarray:
    """Return codewords (M, M − 1) whose differences have the inner products of the unit vectors'.

    The targets w of the codeword loss sum to zero over the classes, so they live in a space of
    M − 1 dimensions; these rows are the unit vectors of R^M in an orthonormal basis of it. For two
    classes they are −1/√2 and 1/√2: one scalar regression instead of two.
    """
    from scipy.linalg import helmert  # here, because what only reads settings needs no SciPy

    # turned round: for two classes −1/√2 comes first, so that f > 0 is the second class
    return np.ascontiguousarray(-helmert(n_classes).T)


def from_scores(loss: ClassLoss, scores: np.ndarray) -> np.ndarray:
    """Return the f, float64 (n, D), whose scores ⟨f, y^k⟩ are these, (n, M) with rows that sum to 0."""
    # scores are linear in f: f = scores · B⁺, where row d of B are the scores of the d-th unit vector
    return scores @ np.linalg.pinv(loss.scores(np.eye(loss.n_outputs)))


def refuse_zero(lengths: np.ndarray) -> None:
    """Raise `UsboostError` if a direction's length, one of (V,), is zero: it has no best step."""
    if not np.all(lengths):
        raise UsboostError(
            "a weak learner's outputs are all zero, so it has no step; its targets may be fitted already "
            "(use fewer rounds), or the learner cannot learn (use another one)"
        )

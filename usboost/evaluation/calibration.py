"""Calibration: the temperature of probabilities, learnt on rows that the model did not see; and the lower end
of numbers that come near 0 and are never below it, as prices and counts."""

from collections.abc import Sequence

import numpy as np

from usboost.evaluation.metrics import SMALLEST
from usboost.evaluation.statistics import median
from usboost.shards.collective import world

FOLDS = 5
"""Parts of the rows; each is scored at the temperature of the others."""

LOWEST, HIGHEST = 0.1, 10.0

PRIOR_ROWS = 20
"""Rows that came out as the probabilities say, counted with the others: few rows that are all right would
otherwise make the model certain."""

PSEUDO_COUNT = 1
"""Rows that came out as any class, counted too (Platt, 1999): n rows that are all right tell of one in n + 1
that may not be."""

_SMALLEST_GAIN = 1e-6  # of log-loss; certain and right, a row gains what rounding makes


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Return p^(1/T) over its sum, (n, M): flatter for T > 1, sharper for T < 1; the order stays."""
    if temperature == 1.0:
        return np.asarray(probabilities, dtype=np.float64)
    return np.exp(_scaled(_logs(probabilities), temperature))


def temperature_of(probabilities: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the T in [0.1, 10] of the lowest log-loss on these rows, `PRIOR_ROWS` and `PSEUDO_COUNT`.

    With p_i the probabilities of row i, q_i = `tempered`(p_i, T) and n the number of rows, with weights
    (Σw)²/Σw², it is the T of the least
    mean_i [−ln q_i(y_i) − (20/n) Σ_m p_im ln q_im − (1/n) Σ_m ln q_im / M]; all parts are weighted, by
    weights of which only the ratios count.
    """
    from scipy.optimize import minimize_scalar  # not for those who only temper

    logs, counts = _logs(probabilities), np.ones(len(y)) if weight is None else weight
    rows = counts.sum() ** 2 / np.square(counts).sum()
    expected = np.exp(_scaled(logs, 1.0)) * (PRIOR_ROWS / rows) + PSEUDO_COUNT / rows / logs.shape[1]
    expected[np.arange(len(y)), y] += 1.0

    def loss(log_temperature: float) -> float:
        scaled = _scaled(logs, np.exp(log_temperature))
        return float(np.average(-(expected * scaled).sum(axis=1), weights=counts))

    solution = minimize_scalar(loss, bounds=(np.log(LOWEST), np.log(HIGHEST)), method="bounded")
    return float(np.exp(solution.x)) if solution.fun < loss(0.0) else 1.0


def calibrated(
    probabilities: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    seed: int = 0,
    folds: Sequence[tuple[np.ndarray, np.ndarray]] | None = None,
) -> float:
    """Return the temperature of rows that the model did not see, or 1.0 if it does not help.

    It helps if the rows of each of `FOLDS` parts, and `PSEUDO_COUNT` among them, have a lower log-loss, on
    average over all rows and by more than its standard error, at the temperature of the other parts. Instead
    of parts, `folds` are positions of rows to find a temperature on and of rows to score at it.
    """
    n = len(y)
    if n < 2 * FOLDS:
        return 1.0
    logs = _logs(probabilities)
    if folds is None:
        part = np.random.default_rng(seed).permutation(n) % FOLDS
        folds = [(np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in range(FOLDS)]
    gains, surprised, scored = np.zeros(n), np.zeros(n), np.zeros(n)
    for others, rows in folds:
        best = temperature_of(probabilities[others], y[others], None if weight is None else weight[others])
        gain = _scaled(logs[rows], best) - _scaled(logs[rows], 1.0)
        gains[rows] = gain[np.arange(len(rows)), y[rows]]
        surprised[rows] = gain.mean(axis=1)
        scored[rows] = 1.0 if weight is None else weight[rows]
    shares = scored / scored.sum()
    mean = float(shares @ gains)
    error = float(np.sqrt(np.square(shares) @ np.square(gains - mean)))
    mean += PSEUDO_COUNT * float(np.square(shares).sum() * (shares @ surprised))
    return temperature_of(probabilities, y, weight) if mean > max(error, _SMALLEST_GAIN) else 1.0


def _logs(probabilities: np.ndarray) -> np.ndarray:
    return np.log(np.clip(np.asarray(probabilities, dtype=np.float64), SMALLEST, None))


def _scaled(logs: np.ndarray, temperature: float) -> np.ndarray:
    scaled = logs / temperature
    scaled -= scaled.max(axis=1, keepdims=True)
    return np.asarray(scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True)))


NEAR = 0.05
"""Share of the median: predictions of numbers whose least is from 0 to that are not below the least."""


def floor_of(labels: np.ndarray) -> float | None:
    """Return the least of numbers (n,), such as prices, none below 0 but some near it; else None."""
    least = -world().highest(-float(labels.min(initial=np.inf)))
    return least if 0 <= least <= NEAR * median(labels) else None


def clip_lower(predicted: np.ndarray, floor: float | None) -> np.ndarray:
    """Return the predictions (n,), none below the floor."""
    return predicted if floor is None else np.maximum(predicted, floor)

"""What is asked of predictions of classes and of numbers, against the scores themselves."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, mean_absolute_error, r2_score

from usboost.evaluation.ranking import LOWER_IS_BETTER
from usboost.evaluation.task import TASKS


def test_a_gain_is_the_score_of_which_more_is_better() -> None:
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 3, 50), rng.dirichlet(np.ones(3), 50)
    task = TASKS["classification"]
    assert task.answers(p).tolist() == p.argmax(axis=1).tolist()
    found = task.gain("f1", p)(y, task.answers(p))
    assert found == pytest.approx(f1_score(y, p.argmax(axis=1), average="macro"))
    numbers, predicted = rng.normal(size=50), rng.normal(size=50)
    task = TASKS["regression"]
    scores = task.score(numbers, predicted)
    for metric in task.metrics:
        gain = task.gain(metric, predicted)(numbers, task.answers(predicted))
        assert gain == pytest.approx(scores[metric] * (-1 if metric in LOWER_IS_BETTER else 1))
    assert task.gain("mae", predicted)(numbers, predicted) == -mean_absolute_error(numbers, predicted)
    assert task.gain("r2", predicted)(numbers, predicted) == pytest.approx(r2_score(numbers, predicted))


def test_no_constant_is_better_than_the_one_that_is_told() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 40)
    assert TASKS["classification"].constant(y)[1:] == ("accuracy", max((y == k).mean() for k in range(3)))
    numbers = rng.normal(5, 2, 40)
    words, metric, value = TASKS["regression"].constant(numbers)
    tried = [np.sqrt(np.mean((numbers - c) ** 2)) for c in np.linspace(0, 10, 2001)]
    assert (words, metric) == ("these rows’ mean", "rmse") and value <= min(tried) < value + 1e-4

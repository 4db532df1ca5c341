"""What docs/results/stability.md says of rounds that jump, by hand and against the loop's own risks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.study.stability import Kept, rise, rounds_of, share_of_heaviest, summary
from tests.small_models import boosting
from usboost.data.table import Table
from usboost.data.views import Views


def test_the_heaviest_hundredth_by_hand() -> None:
    weights = np.array([*[1.0] * 198, 50.0, 52.0])
    assert share_of_heaviest(weights) == pytest.approx(102 / 300)
    assert share_of_heaviest(np.array([1.0, 3.0])) == pytest.approx(0.75)  # a row at least


def test_a_rise_is_of_the_whole_risk() -> None:
    """R = 1 + mean of the weights: 1 + 1, 1 + .5, 1 + .8."""
    weights = [np.array([1.0, 1.0]), np.array([0.2, 0.8]), np.array([0.0, 1.6])]
    assert rise(weights) == pytest.approx([1.5 / 2 - 1, 1.8 / 1.5 - 1])


def samples(seed: int, n: int) -> tuple[Views, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(n, 4))
    y = (x[:, 0] + x[:, 2] + np.random.default_rng(seed + 9).normal(size=n) > 0).astype(int)
    return Views(U=Table.from_numeric(x[:, :2]), S=Table.from_numeric(x[:, 2:])), y


@pytest.mark.parametrize("changes", [{}, {"step_fraction": 0.3}, {"target": "second_order"}])
def test_the_rounds_are_those_of_the_fit(changes: dict[str, object]) -> None:
    """Added up again from the stages they have the risks that the loop has told."""
    kept = Kept()
    model = boosting(n_rounds=12, patience=None, monitor="risk_val", callbacks=[kept], **changes)
    splits = {"train": samples(0, 150), "val": samples(1, 90), "test": samples(2, 60)}
    model.fit(*splits["train"], validation=splits["val"])
    rounds, without = rounds_of(model, kept.stages, splits)
    told = pd.DataFrame(model.history_)
    np.testing.assert_allclose(rounds["risk"], told["risk_val"], rtol=1e-6)
    risk = told["risk_train"].to_numpy()
    np.testing.assert_allclose(rounds["rise_train"][1:], risk[1:] / risk[:-1] - 1, atol=1e-6)
    assert rounds["cosine"].abs().max() <= 1 and rounds["largest"].max() > rounds["largest_train"].min()
    assert without >= -1


def test_a_fit_in_one_line() -> None:
    rounds = pd.DataFrame(
        {
            "risk": [1.4, 1.3, 1.33, 1.32],
            "rise": [-0.3, -0.07, 0.023, -0.008],
            "rise_train": [-0.3, -0.1, -0.01, -0.01],
            "risk_train": [1.4, 1.26, 1.25, 1.24],
            "few": [0.0, 0.0, 0.7, 0.0],
            "f1": [0.1, 0.5, 0.6, 0.6],
            "log_loss": [0.4, 0.3, 0.31, 0.33],
            "negative": [False, False, True, False],
            "largest": [2.0, 5.0, 9.0, 9.5],
            "largest_train": [2.0, 3.0, 3.0, 3.5],
            "heavy": [0.1, 0.2, 0.9, 0.3],
            "heavy_val": [0.1, 0.2, 0.8, 0.3],
            "cosine": [0.0, 0.3, 0.5, 0.0],
        }
    )
    found = summary(rounds, 0.001, (1.25, 1.2))
    assert found["rise"] == 0.023 and found["rise_without"] == 0.001 and found["rise_train"] == -0.01
    assert found["jumps"] == 1 and found["first_jump"] == 3 and found["few"] == 0.7
    assert (found["best_round"], found["risk"], found["f1"], found["log_loss"]) == (2, 1.3, 0.5, 0.3)
    assert found["negative"] == 0.25 and found["last_log_loss"] == 0.33 and found["largest"] == 9.5
    assert found["heavy_jump"] == 0.9 and found["heavy_else"] == pytest.approx(0.2)
    assert (found["risk_at_1.25"], found["largest_at_1.25"]) == (1.33, 9.0)
    assert np.isnan(found["risk_at_1.2"])
    assert found["cosine_else"] == pytest.approx(0.1)

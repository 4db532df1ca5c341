"""Numbers that end at 0, and those that do not."""

from __future__ import annotations

import numpy as np
import pytest

from usboost.evaluation.calibration import clip_lower, floor_of


@pytest.mark.parametrize(
    ("labels", "floor"),
    [
        ([0, 0, 0, 5], 0.0),  # counts
        ([1.0, 40, 90, 3000], 0.0),  # prices
        ([11.0, 18, 22, 31], None),  # a summer's temperatures
        ([-0.1, 40, 90], None),
        ([-9.0, -5, -1], None),
        ([0.0, 0, 0], 0.0),
    ],
)
def test_where_numbers_come_near_0_and_never_below_it_that_is_their_end(
    labels: list[float], floor: float | None
):
    assert floor_of(np.array(labels, dtype=np.float64)) == floor


def test_nothing_is_below_the_floor() -> None:
    numbers = np.array([-2.0, 0.5, 3.0])
    np.testing.assert_array_equal(clip_lower(numbers, 0.0), [0, 0.5, 3])
    assert clip_lower(numbers, None) is numbers

"""Each model has a colour of its own, that of its line in the report where that has it alone."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from usboost.models import catalogue
from usboost.models.catalogue import model_colour
from usboost.report import figures


def test_colours_are_told_apart() -> None:
    colours = {name: model_colour(name) for name in catalogue.CATALOGUE}
    parts = {
        name: np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
        for name, colour in colours.items()
        if colour
    }
    assert set(parts) == set(catalogue.CATALOGUE)
    near = [
        pair
        for pair in itertools.combinations(parts, 2)
        if np.linalg.norm(parts[pair[0]] - parts[pair[1]]) < 30
    ]
    assert not near
    assert model_colour("somebodys.own.Model") is None


def test_the_first_of_a_colour_has_that_of_its_line_in_the_report() -> None:
    frame = pd.DataFrame({"seed": 0, "round": [1, 2], "seconds": [0.1, 0.2], "f1_val": [0.5, 0.6]})
    trace = frame.assign(**dict.fromkeys(("risk_train", "risk_val", "epsilon", "delta"), 0.5))
    for model in ("2wl", "2wl2o", "lgbm", "prior"):
        figure = figures.performance({model: trace}, "a table")
        assert model_colour(model) in {str(line.get_color()) for line in figure.axes[0].lines}

"""The variants that only the study fits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.study.plan import CELLS, CENSUS, ONCE, TITLES, VARIANTS, cells
from tasks import settings
from tasks.fits import models
from usboost.models import catalogue

PAPER = settings.load(Path(__file__).parents[2] / "params.yaml").model_copy(
    update={
        "profile": "paper",
        "models": {name: settings.Model.model_validate(given) for name, given in VARIANTS.items()},
    }
)


def test_every_model_of_the_plan_can_be_built() -> None:
    for dataset, model in {(cell.dataset, cell.model) for cell in cells()}:
        assert models.build(model, dataset, PAPER, seed=0)
    assert set(VARIANTS) - set(catalogue.CATALOGUE) == set(TITLES)


def test_a_variant_differs_in_one_thing() -> None:
    plain = models.build("2wl", "ci_a", PAPER, seed=0)
    plain.set_params(step="newton", shrinkage=0.3, step_settings={})
    found = models.build("2wl_shrunk", "ci_a", PAPER, seed=0)
    one, other = ({k: str(v) for k, v in each.get_params().items()} for each in (found, plain))
    assert one == other


@pytest.mark.parametrize(("dataset", "name"), [("ci_a", "baseline_paper"), ("ci_b", "baseline_paper_b")])
def test_the_papers_baseline_is_that_of_table_1(dataset: str, name: str) -> None:
    """params.yaml has Table 1 as it is printed; the study changes what the tuned baseline has of it."""
    found = models.build(name, dataset, PAPER.model_copy(update=changed(CENSUS)), seed=0).get_params()
    literal = models.build("baseline", dataset, PAPER, seed=0).get_params()
    for key in ("dnn1", "dnn2", "dnn3", "fusion", "optimizer", "learning_rate", "batch_size", "n_epochs"):
        assert np.array_equal(found[key], literal[key]), key


def changed(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings' sections with the plan's changes by dotted key, of the networks' tables alone."""
    document = PAPER.model_dump()
    for key, value in changes.items():
        *path, last = key.split(".")
        reduce(lambda section, part: section[part], path, document)[last] = value
    new = settings.Settings.model_validate(document)
    return {"table1": new.table1, "profiles": new.profiles}


def test_models_that_draw_nothing_are_fitted_once() -> None:
    seeds = {model: {cell.seed for cell in cells() if cell.model == model} for model in ONCE}
    assert set(map(tuple, seeds.values())) == {(0,)}
    assert all(len({cell.seed for cell in cells() if cell.model == model}) > 2 for model in CELLS)

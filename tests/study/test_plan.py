"""The variants that only the study fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.study.plan import TITLES, VARIANTS, cells
from tasks import settings
from tasks.fits import models
from usboost.models.catalogue import catalogue

PAPER = settings.load(Path(__file__).parents[2] / "params.yaml").model_copy(
    update={
        "profile": "paper",
        "models": {name: settings.Model.model_validate(given) for name, given in VARIANTS.items()},
    }
)


def test_every_model_of_the_plan_can_be_built() -> None:
    for dataset, model in {(cell.dataset, cell.model) for cell in cells()}:
        assert models.build(model, dataset, PAPER, seed=0)
    assert set(TITLES) == set(VARIANTS) and not set(VARIANTS) & set(catalogue.CATALOGUE)


@pytest.mark.parametrize(
    ("name", "differs"),
    [
        ("2wl_shrunk", {"step": "newton", "shrinkage": 0.3}),
        ("2wl_held_out", {"step": "newton", "step_fraction": 0.2}),
        ("2wl_warm", {"step": "newton", "learners__U__start": "warm"}),
        ("2wl_tree_first", {"step": "newton", "sequential": True}),
        ("bfv_dnn_oof", {"out_of_fold": True}),
    ],
)
def test_a_variant_differs_in_one_thing(name: str, differs: dict[str, Any]) -> None:
    plain = models.build("bfv_dnn" if name == "bfv_dnn_oof" else "2wl", "ci_a", PAPER, seed=0)
    plain.set_params(**differs)
    if "step" in differs:
        plain.set_params(step_settings={})
    found = models.build(name, "ci_a", PAPER, seed=0)
    one, other = ({k: str(v) for k, v in each.get_params().items()} for each in (found, plain))
    if name == "2wl_tree_first":
        assert list(found.learners) == ["S", "U"]  # the network is fitted to what the tree has left
        del one["learners"], other["learners"]
    assert one == other

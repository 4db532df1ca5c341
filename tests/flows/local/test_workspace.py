"""A workspace is the checkout's parameters with changes, and leaves the checkout alone."""

import subprocess

import pytest

from flows.local import workspace
from tasks import settings
from usboost.errors import UsboostError


def test_a_paper_workspace(tmp_path):
    before = (workspace.ROOT / "params.yaml").read_bytes()
    folder = workspace.make(tmp_path / "paper", profile="paper", datasets=["ci_a"], rounds=7, seeds=2)
    made = settings.load(folder / "params.yaml")
    assert (made.profile, made.run.datasets, made.sizes.boosting.rounds, made.seeds) == (
        "paper",
        ["ci_a"],
        7,
        [0, 1],
    )
    assert {(cell.dataset, cell.model) for cell in made.run.further.values()} >= {("ci_a", "bnn")}
    stages = subprocess.run(
        ["dvc", "stage", "list"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    assert "boosting@ci_a-2wl2o_fix" in stages and "ci_b" not in stages
    assert (folder / made.code / "usboost").is_dir()
    assert (workspace.ROOT / "params.yaml").read_bytes() == before
    again = workspace.make(folder, profile="paper", datasets=["ct"])
    assert all(cell.dataset != "ci_a" for cell in settings.load(again / "params.yaml").run.further.values())


def test_an_unknown_profile(tmp_path):
    with pytest.raises(UsboostError, match="no profile 'test'"):
        workspace.make(tmp_path / "paper", profile="test")


def test_values_set_by_dotted_keys(tmp_path):
    changes = {"boosting.patience": 7, "table1.ci_a.dnn3": [5], "profiles.paper.boosting.step": "newton"}
    made = settings.load(
        workspace.make(tmp_path / "w", profile="paper", datasets=["ci_a"], changes=changes) / "params.yaml"
    )
    assert made.boosting.patience == 7
    assert made.networks_of("ci_a").dnn3 == [5]
    assert made.sizes.boosting.step == "newton"


@pytest.mark.parametrize("key", ["boosting.patients", "nothing.at.all", "device.cpu", "models.mine"])
def test_a_key_that_is_not_there(tmp_path, key):
    with pytest.raises(UsboostError, match=f"no key {key}"):
        workspace.make(tmp_path / "w", profile="paper", changes={key: 1})


def test_set_needs_a_value():
    assert workspace._changes(["device=cpu", "custom.drop=[a, b]"]) == {
        "device": "cpu",
        "custom.drop": ["a", "b"],
    }
    with pytest.raises(UsboostError, match="gives no value"):
        workspace._changes(["device"])

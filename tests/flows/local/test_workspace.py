"""A workspace is the checkout's parameters with changes, and leaves the checkout alone."""

import subprocess

import pytest
from typer.testing import CliRunner

from flows.local import own_table, workspace
from tasks import settings
from usboost.datasets.custom.demo import write_demo
from usboost.errors import UsboostError
from usboost.models import zoo


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


def test_a_workspace_for_a_persons_table(tmp_path):
    """The models that `usboost compare` offers, and nothing of the papers' data."""
    write_demo(tmp_path / "parts", rows_train=9, rows_test=3, seed=0)
    words = ["make", str(tmp_path / "w"), "--profile", "own", "--table", str(tmp_path / "parts/table.csv")]
    words += ["--label", "batch", "--image", "picture", "--split", "split", "--drop", "line"]
    done = CliRunner().invoke(workspace.app, words)
    assert done.exit_code == 0, done.output
    made = settings.load(tmp_path / "w/params.yaml")
    assert (made.profile, made.run.datasets, made.run.further_datasets, made.run.further) == (
        *("own", ["custom"]),
        *([], {}),
    )
    assert set(made.model_names) == set(zoo.compared(one_table=False))
    assert made.custom.table == str(tmp_path / "parts/table.csv")
    assert (made.custom.label, made.custom.image, made.custom.drop) == ("batch", "picture", ["line"])
    alone = own_table.changes(tmp_path / "parts/table.csv", "batch")
    assert "lgbm_s" not in alone["run.external_baselines"] and alone["custom.image"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "own"], "give its path with --table"),
        (["--profile", "own", "--table", "nothing.csv"], "nothing.csv does not exist"),
    ],
)
def test_a_persons_table_that_is_not_there(tmp_path, words, said):
    done = CliRunner().invoke(workspace.app, ["make", str(tmp_path / "w"), *words])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ") and said in done.stderr
    assert not (tmp_path / "w").exists()


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

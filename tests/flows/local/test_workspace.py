"""A workspace is the checkout's parameters with changes, and leaves the checkout alone."""

import difflib
import json
import subprocess
import sys

import pandas as pd
import pytest
import yaml
from dvc.utils.hydra import apply_overrides
from typer.testing import CliRunner

from flows.local import workspace
from tasks import settings
from tests.conftest import refuses
from tests.flows.conftest import DATA, Workspace
from usboost.errors import UsboostError
from usboost.models import catalogue
from usboost.table.demo import write_demo
from usboost.table.spec import TableSpec


@pytest.mark.slow
def test_a_paper_workspace(tmp_path):
    before = (workspace.ROOT / "params.yaml").read_bytes()
    folder = workspace.make(tmp_path / "paper", profile="paper", datasets=["ci_a"], rounds=7, seeds=2)
    made = settings.load(folder / "params.yaml")
    assert (made.profile, made.run.datasets) == ("paper", ["ci_a"])
    assert (made.sizes.boosting.rounds, made.sizes.seeds) == (7, 2)
    assert "bnn" in made.models_of("ci_a")
    stages = subprocess.run(
        ["dvc", "stage", "list"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    assert "fit@ci_a" in stages and "ci_b" not in stages
    assert (folder / "usboost/losses").is_dir()
    assert (workspace.ROOT / "params.yaml").read_bytes() == before


@pytest.mark.parametrize(
    "change", ["boosting.patience=60", "images.backbone=vgg16", "+models._2wl.shrinkage=0.3"]
)
def test_dvc_changes_only_what_is_set(tmp_path, change):
    """`dvc exp run -S` writes params.yaml anew: it is kept as DVC writes it."""
    before = (workspace.ROOT / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(before)
    apply_overrides(tmp_path / "params.yaml", [change])
    after = (tmp_path / "params.yaml").read_text()
    changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert 0 < len(changed) <= 4, changed
    found = settings.load(tmp_path / "params.yaml")
    assert found.model("2wl").changes.get("shrinkage") == (0.3 if "_2wl" in change else None)


def test_a_workspaces_files_are_its_own(tmp_path, capsys):
    folder = workspace.make(tmp_path / "w")
    path = folder / "params.yaml"
    assert path.read_text().count("#") == (workspace.ROOT / "params.yaml").read_text().count("#")
    assert workspace.differences(folder) == []
    path.write_text(path.read_text().replace("epochs_per_round: 1", "epochs_per_round: 3  # slower"))
    with (folder / "dvc.yaml").open("a") as stages:
        stages.write("\n# mine\n")
    edited = {name: (folder / name).read_bytes() for name in workspace.COPIED}
    done = CliRunner().invoke(workspace.app, ["make", str(folder)])
    assert done.exit_code == 0
    assert {name: (folder / name).read_bytes() for name in workspace.COPIED} == edited
    assert "keeps its own params.yaml, dvc.yaml, other than the checkout's" in done.stdout
    # what an option names changes, and nothing else
    done = CliRunner().invoke(workspace.app, ["make", str(folder), "--seeds", "2"])
    assert done.exit_code == 0
    made = settings.load(path)
    assert (made.sizes.seeds, made.boosting.epochs_per_round) == (2, 3)
    assert "# slower" in path.read_text()
    bad = CliRunner().invoke(workspace.app, ["make", str(folder), "--set", "boosting.patients=1"])
    assert bad.exit_code == 1
    assert settings.load(path) == made


def test_a_workspace_for_a_persons_table(tmp_path):
    write_demo(tmp_path / "parts", rows_train=9, rows_test=3, seed=0)
    words = ["make", str(tmp_path / "w"), "--profile", "user", "--table", str(tmp_path / "parts/table.csv")]
    words += ["--label", "batch", "--image", "image", "--split", "split", "--drop", "line"]
    done = CliRunner().invoke(workspace.app, words)
    assert done.exit_code == 0, done.output
    made = settings.load(tmp_path / "w/params.yaml")
    assert (made.profile, made.run.datasets, made.run.models_of) == ("user", ["user_table"], {})
    assert set(made.run.models) == set(catalogue.compared(one_table=False))
    assert made.user_table.table == str(tmp_path / "parts/table.csv")
    table = made.user_table
    assert (table.label, table.image, table.drop) == ("batch", "image", ["line"])
    alone = workspace.changes_for(tmp_path / "parts/table.csv", TableSpec("batch"))
    assert "lgbm_s" not in alone["run.models"] and alone["user_table.image"] is None
    assert alone["user_table.task"] == "classification"


def test_a_workspace_for_a_number(tmp_path):
    """The models for numbers, and a line on what is left out; beside datasets with classes those of both."""
    pd.DataFrame({"age": range(30), "price": [k / 7 for k in range(30)]}).to_csv(tmp_path / "houses.csv")
    words = ["--profile", "user", "--table", str(tmp_path / "houses.csv"), "--label", "price"]
    done = CliRunner().invoke(workspace.app, ["make", str(tmp_path / "w"), *words])
    assert done.exit_code == 0, done.output
    assert "the label 'price' has 30 different numbers, so a number is predicted" in done.stdout
    assert "left out, since a number is predicted: logistic, 2wl_logistic" in done.stdout
    made = settings.load(tmp_path / "w/params.yaml")
    assert made.user_table.task == "regression"
    assert set(made.run.models) == set(catalogue.compared(True, "regression")) >= {"ridge", "linear_trees"}
    both = workspace.changes_for(tmp_path / "houses.csv", TableSpec("price"), with_classes=True)
    assert set(made.run.models) - set(both["run.models"]) == {"ridge"}
    classes = workspace.changes_for(tmp_path / "houses.csv", TableSpec("price", task="classification"))
    assert "logistic" in classes["run.models"]
    with pytest.raises(UsboostError, match="has no column 'cost'; its columns"):
        workspace.changes_for(tmp_path / "houses.csv", TableSpec("cost"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "user"], "give its path with --table"),
        (["--image", "photo"], "give its path with --table"),
        (["--profile", "user", "--table", "nothing.csv"], "nothing.csv does not exist"),
    ],
)
def test_a_persons_table_that_is_not_there(tmp_path, words, said):
    done = CliRunner().invoke(workspace.app, ["make", str(tmp_path / "w"), *words])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ") and said in done.stderr
    assert not (tmp_path / "w").exists()


def test_files_of_somebody_else_are_not_replaced(tmp_path):
    (tmp_path / ".gitignore").write_text("*.secret")
    refuses("gitignore is there already", workspace.make, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [".gitignore"]


def test_an_unknown_profile(tmp_path):
    refuses("no profile 'test'", workspace.make, tmp_path / "paper", profile="test")


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
    refuses(f"no key {key}", workspace.make, tmp_path / "w", profile="paper", changes={key: 1})


def test_set_needs_a_value():
    changes = workspace._changes(["device=cpu", "user_table.drop=[a, b]"])
    assert changes == {"device": "cpu", "user_table.drop": ["a", "b"]}
    refuses("gives no value", workspace._changes, ["device"])


def test_files_are_found_from_a_workspace(tmp_path, monkeypatch):
    """Paths in the checkout's params.yaml are as seen from there; a relative one stays as it is elsewhere."""
    for name in ("params.yaml", "dvc.yaml", ".dvcignore", "prefect.yaml", ".dvc/config"):
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_bytes((workspace.ROOT / name).read_bytes())
    (tmp_path / "code/table.csv").write_text("a,photo\n1,table.csv\n")
    (tmp_path / "code/mine.py").touch()
    for name in workspace.CODE:
        (tmp_path / "code" / name).mkdir()
    monkeypatch.setattr(workspace, "ROOT", tmp_path / "code")
    changes = {"user_table.table": "table.csv", "images.pretrained": "elsewhere.pth", "imports": ["mine.a"]}
    folder = workspace.make(tmp_path / "w", profile="user", changes=changes)
    made = yaml.safe_load((folder / "params.yaml").read_text())
    assert made["user_table"]["table"] == str(tmp_path / "code/table.csv")
    assert made["images"]["pretrained"] == "elsewhere.pth"
    assert (folder / "mine.py").resolve() == tmp_path / "code/mine.py"
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.run(status, cwd=folder, capture_output=True, text=True).stdout == ""
    workspace.make(folder, changes={"user_table.image": "photo"})  # images named later are followed
    assert f'"{tmp_path / "code"}"{workspace.OWN}' in (folder / "dvc.yaml").read_text()


def test_git_ignores_what_make_run_leaves():
    left = ["workspace/dvc.lock", ".usboost/mlflow.db", "deploy/.env"]
    done = subprocess.run(["git", "check-ignore", *left], cwd=workspace.ROOT, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("no Git repository")
    assert done.stdout.split() == left


def tiny(document):
    sizes = document["profiles"]["demo"]
    sizes["data"] = DATA
    sizes["features"]["trees"], sizes["networks"]["epochs"], sizes["boosting"]["rounds"] = 4, 1, 3
    models = {"datasets": ["ci_b", "iris"], "models": ["baseline", "2wl", "lgbm"]}
    document["run"] |= models | {"models_of": {"iris": ["bnn"]}}
    document["bnn"] = {"loss": "squared", "hidden": 4, "epochs": 2, "rounds": 2}


@pytest.mark.long
def test_make_run_leaves_a_clone_clean_and_dvc_compares_experiments(tmp_path):
    clone = Workspace(tmp_path / "clone", tmp_path / "clone/.usboost")
    clone.environment["PYTHONPATH"] = str(clone.folder)
    subprocess.run(["git", "clone", "--quiet", workspace.ROOT, clone.folder], check=True)
    clone.params(tiny)
    author = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    clone.run("git", *author, "commit", "--quiet", "--all", "--message", "smaller")
    installed = ("--old-file", ".venv/.ready", f"PYTHON={sys.executable}")
    clone.run("make", *installed, "run")
    assert clone.run("git", "status", "--porcelain").stdout == ""
    assert (clone.folder / "workspace/reports/index.html").is_file()
    made = Workspace(clone.folder / "workspace", tmp_path / "clone/.usboost")
    made.environment = clone.environment
    assert made.run("git", "status", "--porcelain").stdout == ""
    made.run("dvc", "exp", "run", "--quiet", "-S", "+models._2wl.shrinkage=0.3")
    assert clone.run("git", "status", "--porcelain").stdout == ""
    changed = json.loads(made.run("dvc", "params", "diff", "--json").stdout)
    assert changed == {"params.yaml": {"models._2wl.shrinkage": {"old": None, "new": 0.3}}}
    scored = json.loads(made.run("dvc", "metrics", "diff", "--json").stdout)
    scored = scored.get("diff", scored)
    assert set(scored) == {"data/metrics/ci_b.json"}
    assert "2wl" in scored["data/metrics/ci_b.json"]
    drawn = json.loads(made.run("dvc", "plots", "diff", "--json").stdout)["data"]
    (steps,) = drawn["reports/curves/epsilon/ci_b-2wl.csv"]
    assert {"HEAD", "workspace"} <= set(steps["revisions"])
    (made.folder / "dvc.lock").write_text("")  # as Ctrl-C leaves it while DVC writes
    again = clone.run("make", *installed, "run")  # which keeps what the experiment has set
    assert "keeps its own params.yaml, other than the checkout's" in again.stdout
    assert yaml.safe_load((made.folder / "params.yaml").read_text())["models"]["_2wl"] == {"shrinkage": 0.3}
    assert made.run("git", "status", "--porcelain").stdout == ""
    assert "CI-B" in again.stdout and "log-loss" in again.stdout


HALVES = """
import subprocess, sys, time
from flows.local import workspace
def half(targets):
    if targets != ["fit@iris"]:
        time.sleep(2)  # of no stage
        subprocess.run(["sleep", "600"])
    sys.exit(1)
workspace._reproduce = half
workspace.run()
"""


@pytest.mark.slow
def test_a_half_that_is_between_two_stages_when_the_other_fails_is_ended_in_the_next(tmp_path):
    folder = workspace.make(tmp_path / "w", datasets=["iris", "digits_rows"])
    assert subprocess.run([sys.executable, "-c", HALVES], cwd=folder, timeout=300).returncode == 1

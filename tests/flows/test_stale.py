"""What an edit of the code makes stale, as DVC says it of a workspace and a fit of its checkpoint."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from tasks.stages import lists
from tests.flows.conftest import ROOT, Workspace

pytestmark = pytest.mark.slow

RUN = {
    "datasets": ["ci_a"],
    "boosting": ["2wl"],
    "external_baselines": ["lgbm"],
    "further_datasets": ["iris"],
    "further": {"iris-bnn": {"dataset": "iris", "model": "bnn"}},
}
OUTPUTS = ["raw/ci_a", "prepared/ci_a", "features/ci_a", "raw/iris", "prepared/iris", "results/iris/bnn"]
OUTPUTS += [f"results/ci_a/{model}" for model in ("baseline", "bfv_dnn", "2wl", "lgbm")]
FITS = ["iris/bnn", *(f"ci_a/{model}" for model in ("baseline", "bfv_dnn", "2wl", "lgbm"))]
CURVES = [f"metrics/{fit}.json" for fit in FITS] + ["steps/ci_a/2wl.csv"]
CURVES += [f"rounds/ci_a/{model}.csv" for model in ("baseline", "bfv_dnn", "2wl")]


@pytest.fixture
def code(tmp_path):
    """A copy of the code that a test may edit."""
    folder = tmp_path / "code"
    for part in ("usboost", "tasks", "flows"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def edit(file):
    with file.open("a") as stream:
        stream.write("\nedited = True\n")


def stale(workspace):
    """The stages that DVC names, without their items."""
    found = json.loads(workspace.run("dvc", "status", "--json").stdout)
    return {name.split("@")[0] for name in found}


def test_dvc_names_the_stages_that_run_a_file(code, tmp_path, warm, reproduced):
    """Their outputs are made up; DVC takes them as they are."""
    workspace = Workspace(tmp_path / "workspace", tmp_path / "home", reproduced.warm)
    document = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"code": str(code), "run": RUN}
    (workspace.folder / "data/code").mkdir(parents=True)
    for stage in lists():
        (workspace.folder / "data/code" / stage).write_text("made up")
    for name in [*(f"data/{output}" for output in OUTPUTS), "reports"]:
        (workspace.folder / name).mkdir(parents=True)
        (workspace.folder / name / "made.txt").write_text("made up")
    for name in CURVES:
        (workspace.folder / "data/curves" / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.folder / "data/curves" / name).write_text("{}")
    (workspace.folder / "params.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    shutil.copy(ROOT / "dvc.yaml", workspace.folder)
    workspace.run("dvc", "init", "--quiet", "--no-scm")
    workspace.run("dvc", "commit", "--force", "--quiet")
    assert stale(workspace) == set()

    for file in ("cli/app.py", "multimodal/fit.py", "multimodal/bundle.py", "__main__.py", "__init__.py"):
        edit(code / "usboost" / file)
    edit(code / "flows/train.py")
    bytecode = code / "usboost/learners/trees/__pycache__/forest.cpython.pyc"
    bytecode.parent.mkdir()
    bytecode.write_text("compiled")
    assert stale(workspace) == set()

    edit(code / "usboost/learners/trees/forest.py")
    named = stale(workspace)
    digests = {"code_features", "code_external_baselines", "code_boosting"}
    assert digests <= named
    assert not {"code_data", "code_fits"} & named
    workspace.run("dvc", "repro", *sorted(digests), **warm.shim(workspace.environment))
    assert {"features", "external_baselines", "boosting"} <= stale(workspace)


FIT = """
import sys
import numpy as np
from usboost.boosting.callbacks import Callback
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.learners.trees.learner import TreeLearner
from usboost.models.two_weak_learner import TwoWeakLearnerClassifier

class Tells(Callback):
    def on_resume(self, rounds):
        print("resumed", len(rounds))
        return False

x = np.random.default_rng(0).normal(size=(60, 2))
settings = {"n_rounds": 3, "callbacks": [Tells()], "checkpoint": sys.argv[1]}
model = TwoWeakLearnerClassifier({"S": TreeLearner()}, **settings)
model.fit(Views(S=Table.from_numeric(x)), (x[:, 0] > 0).astype(int))
"""


def test_a_checkpoint_outlives_an_edit_of_the_command_line_but_not_of_its_learner(code, tmp_path, warm):
    def fit():
        environment = {"PATH": "", "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}
        return warm.run(["-c", FIT, str(tmp_path / "kept")], code, environment)

    assert fit().returncode == 0
    edit(code / "usboost/cli/app.py")
    edit(code / "usboost/reporting/html.py")
    learner = code / "usboost/learners/trees/forest.py"
    learner.write_text(f"# A typo, mended.\n{learner.read_text()}")
    done = fit()
    assert (done.returncode, done.stdout) == (0, "resumed 3\n"), done.stderr
    edit(learner)
    done = fit()
    assert done.returncode == 1
    assert "is the checkpoint of another fit (code differ)" in done.stderr

"""What an edit of the code makes stale: stages as DVC says it, fits by their fingerprints and checkpoints."""

import json
import shutil

import pytest
import yaml

from flows.local.workspace import CODE
from tests.flows.conftest import ROOT, Workspace
from tests.workspaces import with_cards

pytestmark = pytest.mark.slow

RUN = {"datasets": ["ci_a", "iris"], "models": ["2wl", "lgbm"], "models_of": {"iris": ["bnn"]}}
OUTPUTS = [f"data/{kind}/{name}" for kind in ("raw", "prepared", "results") for name in RUN["datasets"]]
MODELS = ["baseline", "bfv_dnn", "2wl", "1wl_u", "lgbm", "logistic"]


@pytest.fixture
def code(tmp_path):
    """A copy of the code that a test may edit."""
    folder = tmp_path / "code"
    for part in CODE:
        shutil.copytree(ROOT / part, folder / part)
    return folder


def edit(file):
    with file.open("a") as stream:
        stream.write("\nedited = True\n")


def comment(file):
    file.write_text(f"# A typo, mended.\n{file.read_text()}")


def stale(workspace):
    """The stages that DVC names."""
    return set(json.loads(workspace.run("dvc", "status", "--json").stdout))


def test_dvc_starts_the_stages_whose_folders_of_code_have_changed(code, tmp_path, reproduced):
    """Their outputs are made up; DVC takes them as they are."""
    workspace = Workspace(tmp_path / "workspace", tmp_path / "home", reproduced.warm)
    document = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"run": RUN}
    curves = [f"reports/curves/{name}" for name in ("score", "epsilon", "delta")]
    for name in [*OUTPUTS, "reports", *curves, "data/metrics"]:
        (workspace.folder / name).mkdir(parents=True)
        (workspace.folder / name / "made.txt").write_text("made up")
    for name in RUN["datasets"]:
        (workspace.folder / f"data/metrics/{name}.json").write_text("{}")
    (workspace.folder / "params.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    for name in CODE:
        (workspace.folder / name).symlink_to(code / name)
    for name in ("dvc.yaml", ".dvcignore"):
        shutil.copy(ROOT / name, workspace.folder)
    workspace.run("dvc", "init", "--quiet", "--no-scm")
    workspace.run("dvc", "commit", "--force", "--quiet")
    assert stale(workspace) == set()
    bytecode = code / "usboost/learners/__pycache__/forest.cpython.pyc"
    bytecode.parent.mkdir(exist_ok=True)
    bytecode.write_text("compiled")
    edit(code / "flows/fit.py")
    assert stale(workspace) == set()
    comment(code / "usboost/learners/forest.py")
    assert stale(workspace) == {"fit@ci_a", "fit@iris"}
    edit(code / "usboost/datasets/census.py")
    edit(code / "usboost/report/pages.py")
    assert stale(workspace) == {"data@ci_a", "data@iris", "fit@ci_a", "fit@iris", "report"}


PLAN = """
import json, sys
from tasks import settings
from tasks.data import fingerprint
from tasks.folders import raw_folder
from tasks.fits.models import plan
chosen = settings.load()
found = {name: plan("ci_a", name, 0, chosen).fingerprint for name in sys.argv[1:]}
json.dump({**found, "data": fingerprint("ci_a", chosen, raw_folder("ci_a"))}, sys.stdout)
"""


def test_a_fit_is_stale_by_the_code_that_it_runs_and_not_by_comments(code, tmp_path, warm):
    folder = with_cards(tmp_path / "workspace", "ci_a")
    (folder / "data/raw/ci_a").mkdir(parents=True)
    (folder / "data/raw/ci_a/rows.csv").write_text("1\n")
    shutil.copy(ROOT / "params.yaml", folder)

    def fingerprints():
        return json.loads(warm.printed(["-c", PLAN, *MODELS], folder, code))

    known = fingerprints()

    def changed(*files):
        """The fits, and "data", whose fingerprint an edit of these files changes."""
        for file in files:
            edit(code / file)
        before = dict(known)
        known.update(fingerprints())
        return {name for name in before if before[name] != known[name]}

    assert len(set(known.values())) == len(MODELS) + 1
    for file in ("usboost/losses/exponential.py", "usboost/learners/forest.py", "tasks/fits/scores.py"):
        comment(code / file)
    assert changed() == set()
    # how fits are run, shown and logged, and the command line, change no number
    of_tasks = ("fits/fit_cell", "folders", "flow_page", "settings", "mlflow_log")
    shown = ("flows/fit.py", *(f"tasks/{name}.py" for name in of_tasks))
    assert changed(*shown, "usboost/cli/app.py", "usboost/report/pages.py") == set()
    edited = ("usboost/losses/exponential.py", "usboost/datasets/census.py")
    assert changed(*edited) == {"2wl", "1wl_u", "data"}
    assert changed("usboost/learners/forest.py") >= {"bfv_dnn", "2wl", "lgbm"}
    assert changed("tasks/fits/scores.py") == set(MODELS)


FIT = """
import sys
import numpy as np
from usboost.boosting.callbacks import Callback
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.learners.tree_learner import TreeLearner
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier

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
    edit(code / "usboost/report/pages.py")
    learner = code / "usboost/learners/forest.py"
    comment(learner)
    done = fit()
    assert (done.returncode, done.stdout) == (0, "resumed 3\n"), done.stderr
    edit(learner)
    done = fit()
    assert done.returncode == 1
    assert "is the checkpoint of another fit (code differ)" in done.stderr

"""What decides a fit is the code of its parts and what that imports: all of it, and nothing else."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from usboost import Backbone, BoostedFeatures, NetworkLearner, TreeLearner, TwoWeakLearnerClassifier
from usboost.boosting.callbacks import History
from usboost.boosting.code import PACKAGE, closure, code_digest, digest, modules_of
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier

MODEL = TwoWeakLearnerClassifier({"U": NetworkLearner(), "S": TreeLearner()})


def package(folder: Path, files: dict[str, str]) -> Path:
    """A package called pack, of modules by their path."""
    for name, text in {"__init__": "", **files}.items():
        path = folder / "pack" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "pack"


@pytest.mark.parametrize(
    "text",
    [
        "import pack.other",
        "import pack.other as known",
        "from pack import other",
        "from pack.other import x",
        "from . import other",
        "from .other import x",
        "def f():\n    from pack.other import x",
        "class A:\n    def f(self):\n        import pack.other",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.other import x",
        "try:\n    import pack.other\nexcept ImportError:\n    pass",
        "import pack.between",
        "INPUTS = {'x': 'pack.other:X'}",
    ],
)
def test_an_import_is_found_wherever_it_stands(tmp_path, text):
    between = {"between": "import pack.other", "other": "x = 1", "unused": "x = 1"}
    found = closure(["pack.root"], [package(tmp_path, {"root": text, **between})])
    assert set(found) - {"pack.between"} == {"pack.root", "pack.other"}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (
            {"sub/__init__": "import pack.other", "sub/root": "x = 1", "sub/near": "x = 1", "other": "x = 1"},
            {"pack.sub", "pack.sub.root", "pack.other"},
        ),
        (
            {"sub/root": "from ..near import x\nfrom .beside import y", "sub/beside": "y = 1"}
            | {"beside": "y = 1", "near": "x = 1"},
            {"pack.sub.root", "pack.sub.beside", "pack.near"},
        ),
        ({"sub/root": "import pack.cut", "cut": "import pack.far", "far": "x = 1"}, {"pack.sub.root"}),
    ],
    ids=[
        "a package that a module lies in is run",
        "relative imports climb",
        "what is left out is not followed",
    ],
)
def test_the_modules_that_are_run(tmp_path, files, found):
    assert set(closure(["pack.sub.root"], [package(tmp_path, files)], without=["pack.cut"])) == found


def test_an_entry_in_a_registry_of_parts_is_not_followed_and_voids_nothing(tmp_path):
    one = "x = 1\nLEARNERS = {'other': 'pack.other:Other'}"
    two = "x = 1\nLEARNERS = {'other': 'pack.other:Other', 'more': 'pack.more:More'}"
    found = [
        closure(["pack.root"], [package(tmp_path / name, {"root": text, "other": "y = 1"})])
        for name, text in (("one", one), ("two", two))
    ]
    assert set(found[0]) == {"pack.root"}
    assert digest(found[0]) == digest(found[1])


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('"""Another docstring."""\nx = 1\n\n\ndef f():\n    """Too."""\n    return x\n', True),
        ("x = 1  # a comment\n# and one\ndef f(): return x\n", True),
        ('x = 1\n"""About x."""\ndef f():\n    return (\n        x\n    )\n', True),
        ("x = 2\ndef f():\n    return x\n", False),
        ("x = 1\ndef f():\n    return 'a string'\n", False),
        ("x = 1\ndef f(): return x\ny = 1", False),
    ],
)
def test_comments_and_docstrings_decide_nothing(tmp_path, text, same):
    old = package(tmp_path / "old", {"root": '"""A docstring."""\nx = 1\ndef f():\n    return x'})
    new = package(tmp_path / "new", {"root": text})
    digests = {digest(closure(["pack.root"], [here])) for here in (old, new)}
    assert len(digests) == (1 if same else 2)


def test_the_same_code_in_another_folder_is_the_same_and_under_another_name_another(tmp_path):
    a, b = (package(tmp_path / name, {"root": "x = 1", "other": "x = 1"}) for name in "ab")
    assert digest(closure(["pack.root"], [a])) == digest(closure(["pack.root"], [b]))
    assert digest(closure(["pack.root"], [a])) != digest(closure(["pack.other"], [a]))


def test_parts_inside_parts_are_found():
    with_images = NetworkLearner(backbone=Backbone("small_cnn", False, "all"))
    model = TwoWeakLearnerClassifier({"U": with_images}, callbacks=[History()], checkpoint=Path("kept"))
    learners = "usboost.learners.networks"
    assert {name for name in modules_of(model) if name.startswith("usboost")} == {
        "usboost.losses.exponential",  # named by its kind
        "usboost.models.methods.two_weak_learner",
        f"{learners}.learner",
        f"{learners}.backbones",
    }
    assert "usboost.models.methods.boosted_features" in modules_of(
        BoostedFeatureNetworkClassifier(BoostedFeatures())
    )
    found = modules_of({"a": [closure], "b": NetworkLearner})
    assert found >= {"usboost.boosting.code", f"{learners}.learner"}


def test_a_persons_own_module_counts_with_what_it_imports_of_their_own(tmp_path, monkeypatch):
    (tmp_path / "own_learner.py").write_text(
        "import numpy\nimport json\nfrom own_helper import twice\n"
        "from usboost.learners.tree_learner import TreeLearner\nclass Mine(TreeLearner):\n    pass\n"
    )
    (tmp_path / "own_helper.py").write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    own_learner = importlib.import_module("own_learner")
    model = TwoWeakLearnerClassifier({"S": own_learner.Mine()})
    found = closure(modules_of(model))
    assert found["own_learner"] == tmp_path / "own_learner.py"
    assert {"own_helper", "usboost.learners.tree_learner"} <= set(found)
    assert not [name for name in found if name.split(".")[0] in ("numpy", "json", "sklearn")]
    assert code_digest(model) != code_digest(TwoWeakLearnerClassifier({"S": TreeLearner()}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "void"),
    [
        ("learners/forest.py", True),
        ("learners/networks/train.py", True),
        ("boosting/steps.py", True),
        ("losses/exponential.py", True),
        ("data/views.py", True),
        ("errors.py", True),
        ("models/methods/two_weak_learner.py", True),
        ("cli/app.py", False),
        ("report/pages.py", False),
        ("fit/build.py", False),
        ("models/persistence.py", False),
        ("models/baselines/trees.py", False),
        ("models/baselines/packages.py", False),
        ("models/baselines/linear.py", True),
        ("datasets/census.py", False),
        ("__init__.py", False),
    ],
)
def test_a_change_voids_a_checkpoint_if_the_fit_runs_it(tmp_path, file, void):
    copy = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / file).open("a") as stream:
        stream.write("\nchanged = True\n")
    assert (code_digest(MODEL, package=copy) != code_digest(MODEL)) is void


FITS = {
    "two weak learners": """
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.tree_learner import TreeLearner
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier
learners = {"U": NetworkLearner(hidden=(4,), device="cpu"), "S": TreeLearner()}
model = TwoWeakLearnerClassifier(learners, target="newton", loss="cross_entropy", n_rounds=2)
""",
    "boosted features": """
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.methods.boosted_features import BoostedFeatures
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier
network = TwoBranchNetworkClassifier(dnn1=(4,), dnn2=(4,), dnn3=(4,), n_epochs=2, device="cpu")
model = BoostedFeatureNetworkClassifier(BoostedFeatures(n_trees=3), network)
""",
    "LightGBM": """
from usboost.models.baselines.trees import LightGBMBaseline
model = LightGBMBaseline(n_trees=3)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_all_that_a_fit_loads_is_in_its_closure(tmp_path, warm, name):
    code = f"""
import sys
import numpy as np
from usboost.data.table import Table
from usboost.data.views import Views
{FITS[name]}
from usboost.boosting.code import closure, modules_of
rng = np.random.default_rng(0)
views = Views(U=Table.from_numeric(rng.normal(size=(80, 3))), S=Table.from_numeric(rng.normal(size=(80, 3))))
y = (views["S"].numeric[:, 0] > 0).astype(int)
for _ in range(2):
    if "checkpoint" in model.get_params():
        model.set_params(checkpoint="kept")
    model.fit(views, y).predict_proba(views)
loaded = {{name for name in sys.modules if name.startswith("usboost.")}}
print(sorted(closure(loaded).keys() & loaded - closure(modules_of(model)).keys()))
"""
    assert warm.printed(["-c", code], tmp_path).strip() == "[]"


PARSES = """
import gc, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from usboost.boosting.code import PACKAGE, closure

def modules(folder):
    return closure(["usboost." + path.stem for path in Path(folder).glob("*.py")], [Path(folder)])

sys.setswitchinterval(1e-6)
gc.callbacks.append(lambda *_: sum(range(200)))  # Python code in the middle of a parse, as hypothesis has it
folders = sys.argv[1:]
with ThreadPoolExecutor(len(folders)) as pool:
    print(*(len(found) for found in pool.map(modules, folders)))
"""


@pytest.mark.slow
def test_threads_that_ask_at_a_time_all_get_an_answer(tmp_path):
    folders = [tmp_path / name / "usboost" for name in "ab"]
    for folder in folders:
        folder.mkdir(parents=True)
        for k, path in enumerate(sorted(PACKAGE.rglob("[a-z]*.py"))[:120]):
            shutil.copy(path, folder / f"part_{k}.py")
    result = subprocess.run([sys.executable, "-c", PARSES, *folders], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert [int(word) for word in result.stdout.split()] == [120, 120]

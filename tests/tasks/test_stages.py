"""The stages of dvc.yaml depend on the code that they run, as a checkpoint's identity does."""

from importlib.util import find_spec

import pytest

from tasks import identity, models, settings
from tasks.stages import FITTED_AND_SCORED, ROOT, STAGES, WITHOUT, code_of, files_of, with_code
from usboost.boosting.code import modules_of
from usboost.errors import UsboostError

LOADED = settings.load(ROOT / "params.yaml")
FITS = {"baseline", "bfv_dnn", "boosting", "external_baselines", "further"}
CODE = {stage: set(files_of(stage)) for stage in STAGES}


def named(stage):
    """The cells of a stage, as params.yaml lists them: models and datasets."""
    run = LOADED.run
    of_all = {
        "baseline": ["baseline"],
        "bfv_dnn": ["bfv_dnn"],
        "boosting": run.boosting,
        "external_baselines": run.external_baselines,
    }
    if stage == "further":
        return [(cell.model, cell.dataset) for cell in run.further.values()]
    return [(model, dataset) for model in of_all[stage] for dataset in run.datasets]


def test_dvc_yaml_says_what_its_stages_run():
    text = (ROOT / "dvc.yaml").read_text()
    assert with_code(text, CODE) == text, "run `python -m flows.local.stages --write`"


@pytest.mark.parametrize("stage", sorted(FITS))
def test_a_stage_runs_the_parts_of_its_models_and_no_other(stage):
    """A stage depends on what a checkpoint covers of its fits, and on what reads, folds and scores."""
    fitted = set().union(*(modules_of(models.build(*cell, LOADED, 0)) for cell in named(stage)))
    around = {module for module in STAGES[stage] if not module.startswith("usboost.")}
    found = code_of({*fitted, *around, *FITTED_AND_SCORED})
    own = {name for name in found if name.split(".")[0] in ("tasks", "usboost")}
    assert own == set(code_of(STAGES[stage]))


def test_an_identity_covers_what_reads_the_data():
    assert identity.READER in FITTED_AND_SCORED


@pytest.mark.parametrize(
    ("file", "stages"),
    [
        ("usboost/learners/trees/forest.py", {"features", "external_baselines", "boosting"}),
        ("usboost/learners/trees/engines.py", {"features", "external_baselines", "boosting"}),
        ("usboost/learners/trees/learner.py", {"boosting"}),
        ("usboost/models/zoo.py", {"features", *FITS}),
        ("usboost/learners/networks/training.py", {"baseline", "bfv_dnn", "boosting", "further"}),
        ("usboost/models/base.py", FITS),
        ("usboost/data/views.py", {"prepare", "features", *FITS}),
        ("usboost/evaluation/metrics.py", {"features", *FITS}),
        ("usboost/boosting/loop.py", {"boosting", "further"}),
        ("usboost/losses/codeword.py", {"boosting"}),
        ("usboost/datasets/covertype/shapes.py", {"fetch", "prepare"}),
        ("usboost/datasets/sequences/read.py", {"further_data"}),
        ("usboost/reporting/results.py", {"report"}),
    ],
)
def test_a_file_makes_stale_what_runs_it(file, stages):
    assert {stage for stage in STAGES if file in CODE[stage]} >= stages


@pytest.mark.parametrize(
    ("folder", "stages"),
    [
        ("usboost/cli", set()),
        ("usboost/__init__.py", set()),
        ("usboost/multimodal", set()),
        ("flows", set()),
        ("usboost/reporting", {"report"}),
        ("usboost/datasets/census", {"fetch", "prepare", "further_data"}),
        ("usboost/boosting/loop.py", {"boosting", "further", "report"}),
        ("usboost/models/persistence.py", set()),
        ("usboost/learners/networks", {*FITS, "report"}),
    ],
)
def test_a_file_makes_nothing_else_stale(folder, stages):
    assert {stage for stage in STAGES if any(file.startswith(folder) for file in CODE[stage])} <= stages


def test_what_is_left_out_is_there():
    assert [module for module in WITHOUT if find_spec(module) is None] == []


TEXT = """\
# A comment: with a colon.
stages:
  one:
    cmd: python -m one
    deps:
      - data/one
      - ${code}/old.py
      # why
      - ${code}/older.py
    outs:
      - ${code}/an/output

  two:
    foreach: [a]
    do:
      deps:
        - ${code}/old.py
"""

CHANGED = """\
# A comment: with a colon.
stages:
  one:
    cmd: python -m one
    deps:
      - data/one
      # why
      - ${code}/a.py
      - ${code}/b.py
    outs:
      - ${code}/an/output

  two:
    foreach: [a]
    do:
      deps:
        - ${code}/c.py
"""


def test_only_dependencies_on_code_are_rewritten():
    files = {"one": ["b.py", "a.py"], "two": ["c.py"]}
    assert with_code(TEXT, files) == CHANGED
    assert with_code(CHANGED, files) == CHANGED


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"one": []}, "has a stage 'two'; add what it runs to STAGES"),
        ({"one": [], "two": [], "three": []}, "has no stage 'three' with `deps`"),
    ],
)
def test_stages_that_are_not_those_of_dvc_yaml(files, message):
    with pytest.raises(UsboostError, match=message):
        with_code(TEXT, files)

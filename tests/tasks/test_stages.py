"""The stages of dvc.yaml depend on the code that they run, as a checkpoint's identity does."""

import shutil
from importlib.util import find_spec

import pytest
import yaml

from tasks import identity, models, settings
from tasks.stages import (
    CONFIGURED,
    FITTED_AND_SCORED,
    ROOT,
    STAGES,
    WITHOUT,
    code_of,
    digest_of,
    files_of,
    with_code,
)
from usboost.boosting.code import modules_of
from usboost.errors import UsboostError
from usboost.models import zoo
from usboost.models.entry import KINDS

LOADED = settings.load(ROOT / "params.yaml")
CUSTOM = {"table": "parts.csv", "image": "photo"}
OWN = LOADED.model_copy(update={"profile": "own", "custom": LOADED.custom.model_copy(update=CUSTOM)})
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


def test_every_stage_depends_on_the_digest_of_its_code():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    own = {name: stage.get("do", stage) for name, stage in stages.items() if not name.startswith("code_")}
    assert set(own) == set(STAGES)
    for name, stage in own.items():
        assert f"data/code/{name}" in stage["deps"]
        assert stages[f"code_{name}"]["outs"] == [f"data/code/{name}"]


def test_the_digest_is_that_of_the_code_without_comments(tmp_path):
    for part in ("usboost", "tasks"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    before = {stage: digest_of(stage, ROOT) for stage in STAGES}
    assert len(set(before.values())) == len(set(map(frozenset, CODE.values())))
    forest, configured = tmp_path / "usboost/learners/trees/forest.py", tmp_path / CONFIGURED[0]
    for file in (forest, configured):
        file.write_text(f"# A typo, mended.\n{file.read_text()}")
    assert digest_of("boosting", tmp_path) == before["boosting"]

    def edit(file, text="\nedited = True\n"):
        """Edit a copy, which has another name each time: code is read once in a process."""
        copy = tmp_path / f"{file.name}-copy"
        for part in ("usboost", "tasks"):
            shutil.copytree(tmp_path / part, copy / part)
        with (copy / file.relative_to(tmp_path)).open("a") as stream:
            stream.write(text)
        return {stage for stage in STAGES if digest_of(stage, copy) != before[stage]}

    assert edit(forest) == {stage for stage in STAGES if "usboost/learners/trees/forest.py" in CODE[stage]}
    assert edit(configured) == {stage for stage in STAGES if CONFIGURED[0] in CODE[stage]}
    assert edit(tmp_path / "usboost/reporting/templates/paper.html.j2", "<p>") == {"report"}


@pytest.mark.parametrize("stage", sorted(FITS))
def test_a_stage_runs_the_parts_of_its_models_and_no_other(stage):
    """A stage depends on what a checkpoint covers of its fits, and on what reads, folds and scores."""
    own = [
        (name, "custom")
        for name in zoo.compared(one_table=False)
        if KINDS[zoo.find(name).kind].stage == stage
    ]
    cells = [*((cell, LOADED) for cell in named(stage)), *((cell, OWN) for cell in own)]
    fitted = set().union(*(modules_of(models.build(*cell, given, 0)) for cell, given in cells))
    around = {module for module in STAGES[stage] if not module.startswith("usboost.")}
    found = code_of({*fitted, *around, *FITTED_AND_SCORED})
    ours = {name for name in found if name.split(".")[0] in ("tasks", "usboost")}
    assert ours == set(code_of(STAGES[stage]))


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
        ("usboost/multimodal", {"features", *FITS}),  # its models.py configures a person's models
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
  code_one:
    cmd: python -m one
    deps:
      - data/one
      - ${code}/old.py
      # why
      - ${code}/older.py
    outs:
      - ${code}/an/output

  code_two:
    foreach: [a]
    do:
      deps:
        - ${code}/old.py
"""

CHANGED = """\
# A comment: with a colon.
stages:
  code_one:
    cmd: python -m one
    deps:
      - data/one
      # why
      - ${code}/a.py
      - ${code}/b.py
    outs:
      - ${code}/an/output

  code_two:
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
        ({"one": []}, "has a stage 'code_two'; add what it runs to STAGES"),
        ({"one": [], "two": [], "three": []}, "has no stage 'code_three' with `deps`"),
    ],
)
def test_stages_that_are_not_those_of_dvc_yaml(files, message):
    with pytest.raises(UsboostError, match=message):
        with_code(TEXT, files)

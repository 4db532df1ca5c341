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
    lists,
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
LISTS = lists()


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
    assert with_code(text, LISTS) == text, "run `python -m flows.local.stages --write`"


def test_every_stage_depends_on_the_digests_of_all_its_code_and_no_other():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    own = {name: stage.get("do", stage) for name, stage in stages.items() if not name.startswith("code_")}
    assert set(own) == set(STAGES)
    for name, stage in own.items():
        digests = {dep.removeprefix("data/code/") for dep in stage["deps"] if dep.startswith("data/code/")}
        assert sorted(file for each in digests for file in LISTS[each]) == sorted(CODE[name])
    for name in LISTS:
        assert stages[f"code_{name}"]["outs"] == [f"data/code/{name}"]


def test_the_digest_is_that_of_the_code_without_comments(tmp_path):
    for part in ("usboost", "tasks"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    before = {name: digest_of(name, ROOT) for name in LISTS}
    assert len(set(before.values())) == len(LISTS)
    forest, configured = tmp_path / "usboost/learners/trees/forest.py", tmp_path / CONFIGURED[0]
    for file in (forest, configured):
        file.write_text(f"# A typo, mended.\n{file.read_text()}")
    assert digest_of("boosting", tmp_path) == before["boosting"]

    def edited(*files):
        """The lists whose digest differs in a copy, which has a name of its own: code is read once."""
        copy = tmp_path / f"{files[0].name}-copy"
        for part in ("usboost", "tasks"):
            shutil.copytree(tmp_path / part, copy / part)
        for file in files:
            with (copy / file.relative_to(tmp_path)).open("a") as stream:
                stream.write("\nedited = True\n")
        return {name for name in LISTS if digest_of(name, copy) != before[name]}

    assert edited(forest) == {name for name in LISTS if "usboost/learners/trees/forest.py" in LISTS[name]}
    page = tmp_path / "usboost/reporting/templates/paper.html.j2"
    assert edited(configured, page) == {name for name in LISTS if CONFIGURED[0] in LISTS[name]} | {"report"}


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
        ({"one": []}, "has a stage 'code_two'; add what it runs to tasks/stages.py"),
        ({"one": [], "two": [], "three": []}, "has no stage 'code_three' with `deps`"),
    ],
)
def test_stages_that_are_not_those_of_dvc_yaml(files, message):
    with pytest.raises(UsboostError, match=message):
        with_code(TEXT, files)

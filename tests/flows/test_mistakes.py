"""Mistakes and faults in the pipeline: one sentence, and what is on disk stays."""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from flows import monitor, tune
from tests.conftest import contents
from tests.flows.test_pipeline import runs

FILES = ("census-income.data.gz", "census-income.test.gz")

pytestmark = pytest.mark.slow


def spoil(path, how):
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(how(data))


@pytest.mark.parametrize(
    ("flow", "change", "said"),
    [
        (
            ("fit", "ci_b"),
            lambda w: (
                w.params(lambda p: p["models"]["2wl"].update(shrinkage=0.9)),  # or there is nothing to fit
                spoil(w.folder / "data/prepared/ci_b/val.parquet", lambda b: b[:-200]),
            ),
            "val.parquet",
        ),
        (("fit", "ci_b", "--model=9wl"), lambda w: None, "9wl"),
        (("fit", "ci_z"), lambda w: None, "python -m flows.data ci_z"),
        (("data", "ci_z"), lambda w: None, "ci_z"),
        (
            ("fit", "ci_b"),
            lambda w: w.params(lambda p: p["boosting"].update(shrinkage=-1)),
            "boosting.shrinkage",
        ),
        (
            ("fit", "ci_b"),
            lambda w: w.params(lambda p: p["models"]["2wl"].update(colour="red")),
            "models.2wl.colour",
        ),
        (("data", "ci_b"), lambda w: w.params(lambda p: p.update(profile="paper")), "census-income.data.gz"),
        (
            ("data", "ci_b"),
            lambda w: (
                w.params(lambda p: p.update(profile="paper")),
                (w.folder / "census_income_kdd").mkdir(),
                *((w.folder / "census_income_kdd" / each).write_bytes(b"cut") for each in FILES),
            ),
            "census-income.data.gz",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_loses_nothing(workspace, flow, change, said):
    change(workspace)
    kept = outputs(workspace)
    away = {"https_proxy": "http://127.0.0.1:9", "USBOOST_DATA": str(workspace.folder)}
    done = workspace.flow(*flow, check=False, **away)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert [line for line in lines if line.startswith("error:")] == lines[-1:], done.stderr
    assert said in lines[-1]
    assert "task records" not in done.stderr  # the proxy is not asked for our own server
    assert outputs(workspace) == kept


def test_a_number_out_of_range_is_told_before_anything_starts():
    for app, words in ((monitor.app, ["ci_a", "t.csv", "--psi=0"]), (tune.app, ["ci_a", "--minutes=0"])):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2 and "greater than 0" in done.output


def outputs(workspace):
    places = ("data/prepared", "data/results", "reports")
    return [contents(workspace.folder / place) for place in places]


def test_a_failing_fit_leaves_a_failed_run(workspace):
    workspace.params(lambda p: p["models"]["2wl"].update(step="fixed", fixed_step=1e9))
    before = contents(workspace.folder / "data/results")
    done = workspace.flow("fit", "ci_b", check=False)
    assert done.returncode == 1
    assert "the risk is no longer finite" in done.stderr and "round " in done.stderr
    failed = runs(workspace).query("status == 'FAILED' and `tags.model` == '2wl'")
    assert any("no longer finite" in text for text in failed["tags.error"])
    assert contents(workspace.folder / "data/results") == before
    assert "2wl" not in json.loads((workspace.folder / "data/metrics/ci_b.json").read_text())
    assert_nothing_pickled(Path(workspace.environment["USBOOST_HOME"]) / "prefect", "no longer finite")


def assert_nothing_pickled(prefect, sentence):
    """What Prefect keeps of failed flow runs is JSON with the sentence, in its storage and its database."""
    kept = [json.loads(path.read_text()) for path in (prefect / "storage").iterdir()]
    assert any(sentence in text for text in kept)
    assert all(re.match(r"\w+: ", text) for text in kept), "what flows return is not kept"
    for database in prefect.glob("prefect.db*"):
        held = database.read_bytes()
        assert not [mark for mark in (b"gASV", b"\x80\x05\x95", b"cloudpickle") if mark in held]


def test_a_failing_stage_fails_dvc_and_keeps_the_lock(workspace):
    lock = (workspace.folder / "dvc.lock").read_text()
    workspace.params(lambda p: p["models"]["2wl"].update(step="fixed", fixed_step=1e9))
    done = workspace.run("dvc", "repro", "fit@ci_b", check=False)
    assert done.returncode != 0
    locked = yaml.safe_load((workspace.folder / "dvc.lock").read_text())["stages"]["fit@ci_b"]
    assert locked == yaml.safe_load(lock)["stages"]["fit@ci_b"]
    assert (workspace.folder / "data/results/ci_b/2wl/seed-0/record.json").exists()


def test_the_first_stage_that_fails_ends_both_halves_of_make_run(workspace):
    def change(document):
        document["run"].update(datasets=["ci_b", "digits_rows"], models_of={"digits_rows": ["2wl"]})
        document["profiles"]["demo"]["seeds"] = 80

    workspace.params(change)
    done = workspace.run(sys.executable, "-m", "flows.local.workspace", "run", check=False)
    assert done.returncode == 1 and "digits_rows" in done.stderr
    assert not (workspace.folder / "data/results/ci_b/lgbm/seed-79").exists()
    assert not {"interrupted", "ERROR", "Traceback"} & {*re.findall(r"\w+", done.stderr)}

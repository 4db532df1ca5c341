"""The search for settings on a user's table, and successive halving."""

import json
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest

from tests.conftest import refuses
from tests.fit.conftest import accepted, environment, numbers, refused, run, until
from tests.warm import Warm
from usboost.boosting.rounds import Round
from usboost.fit import tune as tuned
from usboost.fit.build import by_name, fit
from usboost.fit.evaluate import FitData, divisible
from usboost.fit.trials import (
    JOURNAL,
    ModelTrials,
    State,
    Trial,
    Trials,
    own_values,
    pruner_of_rungs,
    report_rungs,
    space_of,
)
from usboost.fit.tune import FEW, FOLDS, Plan, SearchResult, default_folds, search_folds, tune
from usboost.fit.workers import Job, Rungs, SearchTask, run_trial
from usboost.models.entry import read_settings
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("tune") / "table.parquet"
    numbers(240).to_parquet(path)
    return path


@pytest.fixture(scope="module")
def table(path: Path) -> UserTable:
    return read_table(path, TableSpec(label="kind"))


def searched(
    table: UserTable, out: Path, *names: str, plan: Plan | None = None, folds: int | None = 0, **more: Any
) -> SearchResult:
    models = by_name(names or ("linear_trees",), images=None, rounds=30, task=table.task)
    return tune(table, models, out=out, plan=plan or Plan(6, 3), folds=folds, **more)


def trials_of(out: Path, table: UserTable, name: str) -> list[Trial]:
    """What a search has kept of a model."""
    model = by_name((name,), images=None, rounds=30, task=table.task)[name](0)
    folder = out / "trials" / name
    lines = [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()]
    (identity,) = (each["user_attr"]["search"] for each in lines if "search" in each.get("user_attr", {}))
    space = space_of(model)
    ended = Trials(folder, name, space, own_values(model, space), identity).ended
    return [replace(ended[number], seconds=0) for number in sorted(ended)]


@pytest.fixture(scope="module")
def whole(table: UserTable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that ran through, in one process."""
    out: Path = tmp_path_factory.mktemp("whole")
    searched(table, out, "linear_trees", "lgbm", plan=Plan(6, 3))
    return out


def test_the_first_trial_is_the_model_as_it_is(table: UserTable, whole: Path) -> None:
    for name in ("linear_trees", "lgbm"):
        first = trials_of(whole, table, name)[0]
        rounds = 30 if name == "linear_trees" else None
        fitted = fit(table, name, rounds=rounds, calibrate=False, refit=False)
        assert {each: first.scores[each] for each in fitted.scores} == pytest.approx(fitted.scores, rel=1e-12)
        assert first.score == first.scores["log_loss"]
        assert first.best_round == fitted.best_round


def test_every_model_has_as_many_trials_and_nothing_is_left_behind(table: UserTable, whole: Path) -> None:
    for name in ("linear_trees", "lgbm"):
        trials = trials_of(whole, table, name)
        assert len(trials) == 6 and {each.state for each in trials} <= {"finished", "pruned"}
        assert len({repr(each.settings) for each in trials}) == 6
    assert not [folder for folder in whole.rglob("checkpoint") if folder.exists()]


SCRIPT = """
import sys
from pathlib import Path
from usboost.table.user_table import read_table
from usboost.table.spec import TableSpec
from usboost.fit.build import by_name
from usboost.fit.tune import Plan, tune

table = read_table(Path(sys.argv[1]), TableSpec("kind"))
models = by_name(("linear_trees", "lgbm"), images=None, rounds=30, task=table.task)
tune(table, models, out=Path(sys.argv[2]), folds=0, plan=Plan(6, 3))
"""


@pytest.mark.slow
def test_killed_twice_and_gone_on_with_by_two_processes_it_ends_as_one_that_was_not(
    path: Path, table: UserTable, whole: Path, tmp_path: Path, warm: Warm
) -> None:
    command = ["python", "-c", SCRIPT, str(path), str(tmp_path)]
    rounds = tmp_path / "trials" / "linear_trees"
    for trial, index in ((1, 3), (4, 2)):
        process = subprocess.Popen(command, env=warm.shim(environment(OMP_NUM_THREADS="1")))
        mark = rounds / f"{trial:03d}" / "checkpoint" / "0" / f"round-{index:06d}.safetensors"
        until(process, mark.exists)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert [*rounds.rglob("round-*.safetensors")] and len(trials_of(tmp_path, table, "linear_trees")) < 6
    with (rounds / JOURNAL).open("a") as file:
        file.write('{"op_code": 4, "study_')  # as a kill within a write would leave it
    found = searched(table, tmp_path, "linear_trees", "lgbm", plan=Plan(6, 3, jobs=2))
    assert not found.interrupted
    for name in ("linear_trees", "lgbm"):
        assert trials_of(tmp_path, table, name) == trials_of(whole, table, name)


def test_a_pruned_fit_that_is_best_in_the_end_goes_on(table: UserTable, tmp_path: Path) -> None:
    clean = searched(table, tmp_path, plan=Plan(3, 3)).models["linear_trees"]
    kept = clean.trials[2]
    journal = tmp_path / "trials" / "linear_trees" / JOURNAL
    whole = journal.read_bytes()

    def again(score: float) -> list[Trial]:
        """The trials of a search in which the last one was pruned with this score."""
        (line,) = (each for each in whole.splitlines() if b'"number":2' in each)
        changed = json.loads(line)
        changed["user_attr"]["result"] |= {"state": "pruned", "score": score, "rounds": 8}
        journal.write_bytes(whole.replace(line, json.dumps(changed).encode()))
        return searched(table, tmp_path, plan=Plan(3, 3)).models["linear_trees"].trials

    first, second = ([replace(t, seconds=0) for t in trials] for trials in (again(0.001), clean.trials))
    assert first == second
    assert again(9.0) == [*clean.trials[:2], replace(kept, state="pruned", score=9.0, rounds=8)]


def test_a_pruned_fits_rounds_are_not_fitted_again(table: UserTable, tmp_path: Path) -> None:
    parts = [FitData.of(table, fold) for fold in search_folds(table, 0, 0)]
    model = by_name(("linear_trees",), images=None, rounds=30, task="classification")["linear_trees"](0)
    task = SearchTask({"m": model}, parts, "classification", "log_loss")
    own = Trial("m", 0, {"shrinkage": 0.1})
    best = told(Trial("m", 0, {}, "finished", risks={8: 0.0}, end=0.0, rounds=8))
    pruned = run_trial(task, Job(own, tmp_path / "a", best, 8))
    assert (pruned.state, pruned.rounds) == ("pruned", 8)
    kept = sorted((tmp_path / "a" / "0").glob("round-*"))
    assert len(kept) == 8
    kept[-1].unlink()  # as a kill would leave it: its round is fitted again, the others are not
    times = {file: file.stat().st_mtime_ns for file in kept[:-1]}
    late = run_trial(task, Job(pruned, tmp_path / "a", deadline=time.time()))
    assert late == pruned and {file: file.stat().st_mtime_ns for file in kept[:-1]} == times
    ended = run_trial(task, Job(pruned, tmp_path / "a"))
    fresh = run_trial(task, Job(own, tmp_path / "b"))
    assert replace(ended, seconds=0) == replace(fresh, seconds=0) and ended.rounds > 8


@pytest.mark.parametrize("folds", [0, 2])
def test_rows_of_the_test_split_change_nothing(path: Path, tmp_path: Path, folds: int) -> None:
    rng = np.random.default_rng(1)
    frame = pd.read_parquet(path)
    frame["part"] = rng.choice(["train", "train", "val", "test"], len(frame))
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", TableSpec(label="kind", split="part"))
    rows = divisible(table)
    unseen = np.flatnonzero(rows.splits == "test")
    labels = table.labels.copy()
    labels[unseen] = (labels[unseen] + 1) % 3
    features = table.features.copy()
    features.iloc[unseen, features.columns.get_loc("width")] = 1e6
    other = replace(table, labels=labels, features=features)
    plan = Plan(2, 2, prune=False)
    clean = searched(table, tmp_path / "a", "lgbm", plan=plan, folds=folds)
    spoiled = searched(other, tmp_path / "b", "lgbm", plan=plan, folds=folds)
    held = rows.hold_out(0)[1]
    labels = table.labels.copy()
    labels[held] = (labels[held] + 1) % 3
    seen = searched(replace(table, labels=labels), tmp_path / "c", "lgbm", plan=plan, folds=folds)

    def scores(found: SearchResult) -> list[Any]:
        return [(each.settings, each.scores) for each in found.models["lgbm"].trials]

    assert scores(clean) == scores(spoiled) != scores(seen)


def test_what_fails_stops_nothing_and_counts_as_worst(table: UserTable, tmp_path: Path) -> None:
    models = by_name(("lgbm",), images=None, task="classification")
    models["wrong"] = lambda seed: models["lgbm"](seed).set_params(views=("V",))
    found = tune(table, models, out=tmp_path, folds=0, plan=Plan(4, 2)).models
    assert found["lgbm"].best is not None and found["wrong"].best is None
    assert [each.state for each in found["wrong"].trials] == ["failed", "failed"]  # and no second batch
    assert "unknown view 'V'" in found["wrong"].trials[0].reason


def test_a_fit_that_ended_after_the_deadline_counts(table: UserTable, tmp_path: Path) -> None:
    """One round is told of after it, so it could never be resumed."""
    models = {"forest": by_name(("forest",), images=None, task="classification")["forest"](0)}
    parts = [FitData.of(table, fold) for fold in search_folds(table, 0, 0)]
    task = SearchTask(models, parts, "classification", "log_loss")
    trial = Trial("forest", 0, {"leaf_sizes": (1,)})
    seconds = run_trial(task, Job(trial, tmp_path)).seconds
    late = run_trial(task, Job(trial, tmp_path, deadline=time.time() + seconds / 2))
    assert late.state == "finished"
    assert run_trial(task, Job(trial, tmp_path, deadline=time.time() - 1)).state == "proposed"


def test_a_pruned_trial_that_fails_later_hides_no_other(table: UserTable, tmp_path: Path) -> None:
    models = {"lgbm": by_name(("lgbm",), images=None, task="classification")["lgbm"](0)}
    parts = [FitData.of(table, fold) for fold in search_folds(table, 0, 0)]
    task = SearchTask(models, parts, "classification", "log_loss")
    pruned = Trial("lgbm", 1, {"num_leaves": -1}, state="pruned", score=0.3, scores={"log_loss": 0.3})
    failed = run_trial(task, Job(pruned, tmp_path))
    assert (failed.state, failed.score, failed.scores) == ("failed", None, {})
    other = replace(pruned, number=2, score=0.4)
    done = replace(pruned, number=0, state="finished", score=0.5)
    assert ModelTrials("lgbm", float, [done, failed, other]).promising is other


def test_few_rows_are_divided_into_folds(path: Path, table: UserTable, tmp_path: Path) -> None:
    assert default_folds(table, 0) == FOLDS
    found = searched(table, tmp_path, "lgbm", plan=Plan(1, 1), folds=None).models["lgbm"]
    asked = searched(table, tmp_path, "lgbm", plan=Plan(1, 1), folds=FOLDS).models["lgbm"]
    assert found.trials == asked.trials and found.trials[0].state == "finished"
    frame = pd.read_parquet(path)
    rare = frame.assign(kind=np.where(np.arange(len(frame)) < FOLDS, "rare", frame["kind"].astype(str)))
    days = frame.assign(day=np.arange(len(frame)))
    divided = frame.assign(part=np.array(["train", "train", "val", "test"])[np.arange(len(frame)) % 4])
    many = pd.concat([frame] * -(-FEW // len(frame)))
    cases: list[tuple[pd.DataFrame, dict[str, Any]]] = [(rare, {}), (many, {})]
    cases += [(days, {"time": "day"}), (divided, {"split": "part"})]
    for k, (changed, roles) in enumerate(cases):
        changed.to_parquet(tmp_path / f"{k}.parquet")
        assert default_folds(read_table(tmp_path / f"{k}.parquet", TableSpec(label="kind", **roles)), 0) == 0


def test_parts_know_the_groups_of_their_scored_rows(path: Path, tmp_path: Path) -> None:
    frame = pd.read_parquet(path)
    patients = np.arange(len(frame)) // 4
    frame.assign(patient=patients).to_parquet(tmp_path / "t.parquet")
    grouped = read_table(tmp_path / "t.parquet", TableSpec(label="kind", group="patient"))
    for folds in (0, 3):
        for fold in search_folds(grouped, folds, 0):
            part, scored = FitData.of(grouped, fold), fold.test
            assert part.groups is not None and len(part.groups) == len(scored)
            same = patients[scored][:, None] == patients[scored]
            np.testing.assert_array_equal(part.groups[:, None] == part.groups, same)


def test_a_gain_within_noise_changes_no_settings(tmp_path: Path) -> None:
    own = Trial("m", 0, {"depth": 3}, "finished", 0.5, {"log_loss": 0.5}, draws=[0.4, 0.6, 0.5])
    better = Trial("m", 1, {"depth": 6}, "finished", 0.49, {"log_loss": 0.49}, draws=[0.6, 0.4, 0.47])
    models = {"m": ModelTrials("m", float, [own, better])}
    tuned.write(models, {"m": {"seen": 2}}, tmp_path, "a table")
    assert read_settings(tmp_path / tuned.SETTINGS) == {"m": {"seen": 2, "depth": 3}}
    assert list(pd.read_csv(tmp_path / tuned.CSV)["chosen"]) == [True, False]
    assert tuned.chosen_in_words(models["m"]) == "as it is; 0.4900 of trial 1 is within noise"
    models["m"].trials[1] = replace(better, draws=[0.39, 0.59, 0.49])
    assert tuned.settings_of(models, {}) == {"m": {"depth": 6}}
    assert tuned.chosen_in_words(models["m"]) == "depth 6"


def test_another_search_is_not_gone_on_with(table: UserTable, tmp_path: Path) -> None:
    searched(table, tmp_path, "lgbm", plan=Plan(2, 2))
    assert len(searched(table, tmp_path, "lgbm", plan=Plan(3, 2)).models["lgbm"].trials) == 3
    refuses(r"lgbm .*\(rows differ\)", searched, table, tmp_path, "lgbm", plan=Plan(2, 2), folds=2)
    journal = tmp_path / "trials" / "lgbm" / JOURNAL
    whole = journal.read_bytes()
    no_json = whole.replace(b'"op_code"', b"op_code", 1)
    no_result = whole.replace(b'"number":1', b'"score":{}')
    for bad in (no_json, no_result, b"\xff\n" + whole, b"[]\n" + whole, b"[" * 100_000 + b"\n" + whole):
        assert bad != whole
        journal.write_bytes(bad)
        refuses(r"journal.jsonl is damaged", searched, table, tmp_path, "lgbm", plan=Plan(2, 2))


def test_the_command_and_what_reads_its_file(path: Path, tmp_path: Path) -> None:
    table = (path, "--label", "kind")
    out, names = tmp_path / "out", "linear_trees,prior"
    given = ("--trials", 3, "--jobs", 1, "--folds", 0, "--rounds", 20, "--set", "learners__S__max_depth=2")
    done = accepted("tune", *table, "--models", names, *given, "--out", out)
    kept = read_settings(out / "settings.yaml")
    assert kept["prior"] == {} and kept["linear_trees"]["learners__S__max_depth"] == 2
    trials = pd.read_csv(out / "trials.csv")
    assert list(trials["model"]) == ["linear_trees"] * 3 + ["prior"]
    assert "learners__S__max_depth" not in trials
    (best,) = trials[(trials["model"] == "linear_trees") & trials["chosen"]]["log_loss"]
    assert f"{best:.4f}" in done.stdout and "nothing to choose" in done.stdout
    assert f"--settings {out / 'settings.yaml'}" in done.stdout.replace("\n", "")
    fitted = accepted(
        *("fit", *table, "--model", "linear_trees", "--rounds", 20, "--no-calibrate", "--no-refit"),
        *("--settings", out / "settings.yaml", "--out", tmp_path / "model"),
    )
    assert f"log-loss {best:.4f}" in fitted.stdout
    accepted(
        *("compare", *table, "--models", names, "--folds", 2, "--rounds", 5),
        *("--settings", out / "settings.yaml"),
    )


def test_settings_that_a_search_began_with_are_in_its_file(path: Path, tmp_path: Path) -> None:
    begin = tmp_path / "begin.yaml"
    begin.write_text("models: {lgbm: {set: {patience: 7, num_leaves: 5, lambda_l2: 2.0}}}")
    given = ("--models", "lgbm", "--trials", 1, "--jobs", 1, "--folds", 0, "--set", "lambda_l2=3.0")
    accepted("tune", path, "--label", "kind", *given, "--settings", begin, "--out", tmp_path / "out")
    found = read_settings(tmp_path / "out" / "settings.yaml")["lgbm"]
    assert (found["patience"], found["num_leaves"], found["lambda_l2"]) == (7, 5, 3.0)


def test_mistakes_of_the_command(path: Path, tmp_path: Path) -> None:
    table = ("--label", "kind", "--out", tmp_path / "out")
    assert "--set 'shrinkage' sets nothing" in refused("fit", path, *table, "--set", "shrinkage")
    assert refused("tune", path, *table, "--models", "9wl").startswith("unknown model '9wl'")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/settings.yaml").write_text("models: {lgbm: {set: {}}}")
    assert "settings.yaml has settings of lgbm" in run("tune", path, *table, "--models", "forest").stderr
    gone = tmp_path / "gone.yaml"
    assert f"{gone} is missing" in refused("fit", path, *table, "--settings", gone)
    gone.write_text("models: [crossed]")
    assert "has no key 'models'" in refused("compare", path, "--label", "kind", "--settings", gone)


def shown(rungs: Rungs, risks: list[float]) -> int:
    """After how many rounds it ends a fit; 0 if it does not."""
    for index, risk in enumerate(risks, start=1):
        if rungs.on_round(Round(index, None, {"risk_val": risk}, {"total": 0.0})):
            return index
    return 0


def told(*trials: Trial) -> list[optuna.trial.FrozenTrial]:
    """Trials as Optuna has them once they have ended."""
    study = optuna.create_study(pruner=pruner_of_rungs())
    for each in trials:
        asked = study.ask()
        report_rungs(asked, each)
        study.tell(asked, 0.0)
    return study.trials


def of(
    risks: dict[int, float], end: float | None = None, rounds: int = 24, state: State = "finished"
) -> Trial:
    return Trial("m", 0, {}, state, risks=risks, end=end, rounds=rounds)


def test_a_fit_ends_at_the_first_rung_where_it_is_behind() -> None:
    risks = [1.0 - 0.01 * k for k in range(30)]
    assert shown(Rungs(told(of({8: 0.93, 24: 0.7})), 24), risks) == 24
    assert shown(Rungs(told(of({8: 0.92})), 24), risks) == 8
    assert shown(Rungs(told(of({7: 0.0})), 24), risks) == 0
    worse = Rungs()
    assert shown(worse, [0.5, 0.4, *[0.9] * 10]) == 0
    assert (worse.risks, worse.best, worse.pruned) == ({8: 0.4}, 0.4, False)


def test_without_a_risk_nothing_is_pruned() -> None:
    rungs = Rungs(told(of({8: 0.0})))
    for index in range(1, 10):
        assert not rungs.on_round(Round(index, None, {"risk_train": 1.0}, {"total": 0.0}))


@pytest.mark.parametrize(
    ("earlier", "risk", "ends"),
    [
        # of five, one goes on; of six, two
        ([of({8: 0.1 * k}) for k in (4, 1, 3, 2)], 0.1, 0),
        ([of({8: 0.1 * k}) for k in (4, 1, 3, 2)], 0.11, 8),
        ([of({8: 0.1 * k}) for k in (4, 1, 3, 2, 5)], 0.19, 0),
        ([of({8: 0.1 * k}) for k in (4, 1, 3, 2, 5)], 0.21, 8),
        # one that ended by itself has its last risk at later rungs, a pruned or failed one has none there
        ([of({8: 0.5}, 0.2), of({}, state="failed")], 0.3, 24),
        ([of({8: 0.5}, 0.2, state="pruned"), of({}, state="failed")], 0.3, 0),
        # not before a quarter of the rounds that the model's own settings took
        ([of({8: 0.1, 24: 0.1}, rounds=40)], 0.3, 24),
    ],
)
def test_the_best_third_of_those_so_far_goes_on(earlier: list[Trial], risk: float, ends: int) -> None:
    assert shown(Rungs(told(*earlier), earlier[0].rounds), [risk] * 30) == ends

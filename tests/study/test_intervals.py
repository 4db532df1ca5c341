"""The published means, intervals and differences of the papers' pages against SciPy and by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.study import plan, results
from benchmarks.study.cells import kept_at
from benchmarks.study.results import claims, luck, paired, printed, scores, shown
from benchmarks.study.rows import interval
from tests.conftest import refuses

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_the_interval_is_students(n: int) -> None:
    values = np.random.default_rng(n).normal(0.6, 0.01, n)
    mean, half = interval(values)
    low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert (mean - half, mean + half) == pytest.approx((low, high), rel=1e-12)


def test_few_values_as_they_are_printed() -> None:
    assert printed([0.1, 0.2, 0.6]) == ".3000 ± .6572" and printed([0.5]) == ".5000" and printed([]) == "–"
    assert interval([0.5])[0] == 0.5 and np.isnan(interval([0.5])[1])


def frame(seeds: dict[str, list[int]], dataset: str = "ci_a", part: str = "census") -> pd.DataFrame:
    """Scores that tell model and seed, in no order; of seeds each has its own luck."""
    rng = np.random.default_rng(0)
    level = {"2wl": 0.03, "baseline": 0.0, "1wl_s": 0.01, "2wl2o": 0.02}
    luck = {seed: 10.0 ** -(seed + 1) for seed in range(6)}
    lines = [
        {"part": part, "dataset": dataset, "model": model, "seed": seed, "stop": stop, "rows": 40_000}
        | {"best_round": 30, "rounds": 30 if model == "2wl2o" else 40, "fit_seconds": 2.0, "cpu_seconds": 1.0}
        | dict.fromkeys(("f1", "f1_tuned", "log_loss", "auc"), 0.5 + level[model] + luck[seed])
        for model, of in seeds.items()
        for seed in of
        for stop in ("log_loss", "f1")
    ]
    return pd.DataFrame([lines[k] for k in rng.permutation(len(lines))])


def cells(text: str, name: str) -> list[str]:
    """The cells of a table's row."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_pairs_are_of_the_same_seed() -> None:
    """With pairs a seed apart the seeds' luck would not cancel."""
    found = paired(frame({"2wl": [0, 1, 2, 3], "1wl_s": [3, 1, 0, 5]}), "2wl", "1wl_s", "f1")
    np.testing.assert_allclose(found[[0, 1, 3]], 0.02, atol=1e-12)
    assert len(found) == 3 and paired(frame({"2wl": [0]}), "2wl", "1wl_s", "f1").empty


def test_a_model_that_draws_nothing_stands_beside_every_seed() -> None:
    level = frame({"2wl": [0, 1, 2], "1wl_s": [1]})
    found = paired(level, "2wl", "1wl_s", "f1")
    np.testing.assert_allclose(found, 0.02 + np.array([1e-1, 1e-2, 1e-3]) - 1e-2, atol=1e-12)
    assert list(paired(frame({"2wl": [0, 1], "baseline": [1]}), "2wl", "baseline", "f1").index) == [1]


def test_the_percentage_over_the_baseline_is_of_its_own_seed_and_stopped_by_f1() -> None:
    both = frame({"2wl": [2, 0, 1], "baseline": [1, 2, 0], "2wl2o": [0, 1, 2]})
    both.loc[both["stop"] == "log_loss", "f1"] = 0.9
    gains = [100 * 0.03 / (0.5 + 10.0 ** -(seed + 1)) for seed in range(3)]
    assert cells(claims(both), "2WL") == [f"{printed(gains, 1, sign='+')} (+3.50)"]
    lost = [-100 * 0.01 / (0.53 + 10.0 ** -(seed + 1)) for seed in range(3)]
    published = f"+{100 * (103.97 / 103.50 - 1):.1f}".replace("0.", ".")
    assert cells(claims(both), "2WL2O over 2WL") == [f"{printed(lost, 1, sign='+')} ({published})"]


def test_a_fit_whose_best_round_is_the_last_is_marked() -> None:
    table = scores(frame({"2wl": [0, 1], "baseline": [0, 1], "2wl2o": [0, 1]}))
    ends = [cells(table, name)[0].endswith(results.CUT) for name in ("2WL2O", "2WL", "Baseline")]
    assert ends == [True, False, False]


@pytest.mark.parametrize("wrong", [{"model": "2wll"}, {"part": "ct", "dataset": "mi"}, {"seed": 77}])
def test_a_cell_that_the_plan_lacks_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    refuses(str(next(iter(wrong.values()))), results.run, tmp_path, **wrong)
    assert list(tmp_path.iterdir()) == []


def test_rows_are_paired_by_seed(tmp_path: Path) -> None:
    """Two models that are the same seed by seed differ by nothing; a model that lacks a seed is left out."""
    one, other = "2wl2o", "2wl"
    assert (one, other) in plan.HEADLINES
    wanted = [cell for cell in plan.cells() if cell.part == "ct" and cell.model in (one, other)]
    y = np.random.default_rng(9).integers(3, size=60)
    for cell in wanted:
        raw = np.random.default_rng(cell.seed).random((60, 3)) + 0.4 * np.eye(3)[y]
        file = kept_at(tmp_path / cell.part, cell.dataset, cell.model, cell.seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, y=y, probabilities=raw / raw.sum(axis=1, keepdims=True), threshold=np.nan)
    seeds = sorted({cell.seed for cell in wanted})
    assert len(seeds) > 2 and len(wanted) == 2 * len(seeds)
    for own in (seeds, seeds[1:]):
        scored = frame({one: own, other: seeds[::-1]}, "ct", "ct")
        (line,) = luck(tmp_path, scored).to_dict("records")
        assert line["log_loss"].startswith("+0.0000 ± 0.0000") and line["model"] == one
    kept_at(tmp_path / "ct", "ct", other, 0).unlink()
    assert luck(tmp_path, scored).empty


def test_the_page_says_what_was_scored() -> None:
    text, kept = (ROOT / results.PAGE).read_text(), pd.read_csv(ROOT / results.SCORES)
    drawn = pd.read_csv(ROOT / results.LUCK, keep_default_na=False)
    assert results.with_tables(text, kept, drawn) == text
    assert results.with_tables(text, kept.assign(f1=kept["f1"] / 2), drawn) != text


def test_the_sentences_of_the_page_have_the_numbers_of_the_scores() -> None:
    text = (ROOT / results.PAGE).read_text()
    parts = shown(pd.read_csv(ROOT / results.SCORES))
    for dataset, said in (("ci_a", "on CI-A by .039 in F1"), ("ci_b", "on CI-B by .027")):
        own = parts[dataset][parts[dataset]["stop"] == "log_loss"]
        lead = paired(own, "2wl", "baseline", "f1").mean()
        assert said in text and f"{lead:.3f}"[1:] in said


def test_a_folder_with_one_cell_changes_its_lines_alone(tmp_path: Path) -> None:
    kept = pd.read_csv(ROOT / results.SCORES)
    line = kept[(kept["dataset"] == "ct") & (kept["stop"] == "f1")].iloc[-1]
    (tmp_path / line["part"]).mkdir()
    (tmp_path / line["part"] / "cells.jsonl").write_text(line.replace({line["f1"]: 0.5}).to_json() + "\n")
    found = results.collect(tmp_path, kept, list(results.PLAN)).reset_index(drop=True)
    other = found["f1"] != kept["f1"]
    assert other.sum() == 1 and found.loc[other, "f1"].item() == 0.5
    cell = ["model", "seed", "stop"]
    assert found.loc[other, cell].iloc[0].tolist() == line[cell].tolist()
    pd.testing.assert_frame_equal(found[~other], kept[~other], check_dtype=False)


def test_a_cell_is_kept_once_for_each_rule() -> None:
    kept = pd.read_csv(ROOT / results.SCORES)
    key = ["part", "dataset", "model", "seed", "stop"]
    assert not kept.duplicated(key).any()
    planned = {(cell.part, cell.dataset, cell.model, cell.seed) for cell in plan.cells()}
    assert set(kept[key[:-1]].itertuples(index=False, name=None)) <= planned

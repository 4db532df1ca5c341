"""The published means, intervals and differences of the papers' pages against SciPy and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.speed.bench import between_marks
from benchmarks.study import plan, results, stability
from benchmarks.study.cells import kept_at
from benchmarks.study.results import differences, luck, paired, printed, rows
from benchmarks.study.results import scores as table
from benchmarks.study.rows import interval, spread

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_the_interval_is_students(n: int) -> None:
    values = np.random.default_rng(n).normal(0.6, 0.01, n)
    mean, half = interval(values)
    low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert (mean - half, mean + half) == pytest.approx((low, high), rel=1e-12)


def test_three_seeds_by_hand() -> None:
    """t of two degrees of freedom has the quantile (2p − 1)·√(2 / (4p(1 − p))): 4.3027 at .975."""
    mean, half = interval([0.1, 0.2, 0.6])
    assert mean == pytest.approx(0.3)
    p = 0.975
    t = (2 * p - 1) * np.sqrt(2 / (4 * p * (1 - p)))
    assert half == pytest.approx(t * np.sqrt(0.07) / np.sqrt(3), rel=1e-12)
    assert printed([0.1, 0.2, 0.6]) == "0.3000 ± 0.6572"
    assert interval([0.5])[0] == 0.5 and np.isnan(interval([0.5])[1])


def frame(seeds: dict[str, list[int]], dataset: str = "ci_a") -> pd.DataFrame:
    """Scores that tell model and seed, in no order; of seeds each has its own luck."""
    rng = np.random.default_rng(0)
    level = {"2wl": 0.03, "baseline": 0.0, "1wl_s": 0.01}
    luck = {seed: 10.0 ** -(seed + 1) for seed in range(6)}
    found = [
        {"dataset": dataset, "model": model, "seed": seed, "stop": stop, "best_round": 3, "fit_seconds": 1.0}
        | dict.fromkeys(("f1", "f1_tuned", "log_loss", "auc"), 0.5 + level[model] + luck[seed])
        for model, of in seeds.items()
        for seed in of
        for stop in ("log_loss", "f1")
    ]
    return pd.DataFrame([found[k] for k in rng.permutation(len(found))])


def test_pairs_are_of_the_same_seed() -> None:
    """With pairs a seed apart the seeds' luck would not cancel."""
    found = paired(frame({"2wl": [0, 1, 2, 3], "1wl_s": [3, 1, 0, 5]}), "2wl", "1wl_s", "f1")
    assert sorted(found.index) == [0, 1, 3]
    np.testing.assert_allclose(found, 0.02, atol=1e-12)
    assert paired(frame({"2wl": [0]}), "2wl", "1wl_s", "f1").empty


def test_a_model_that_draws_nothing_stands_beside_every_seed() -> None:
    """One fit of LightGBM is paired with each of another model; of a model that draws, only its own seed."""
    level = frame({"2wl": [0, 1, 2], "1wl_s": [1]})
    found = paired(level, "2wl", "1wl_s", "f1")
    luck = np.array([1e-1, 1e-2, 1e-3])
    np.testing.assert_allclose(found, 0.02 + luck - luck[1], atol=1e-12)
    assert list(paired(frame({"2wl": [0, 1], "baseline": [1]}), "2wl", "baseline", "f1").index) == [1]


def test_a_difference_is_bold_where_zero_is_outside_its_interval() -> None:
    both = frame({"2wl": [0, 1, 2], "1wl_s": [0, 1, 2]}).sort_values("seed")
    wanted = (both["model"] == "2wl") & (both["stop"] == "log_loss")
    both.loc[wanted, "log_loss"] += np.array([0.5, -0.5, 0.02])
    line = differences(both, "ci_a", [("2wl", "1wl_s")]).splitlines()[2]
    _, _, f1, _, log_loss, *_ = (cell.strip() for cell in line.split("|"))
    assert f1 == "**+0.0200 ± 0.0000**"
    assert log_loss.startswith("+0.0267 ± 1.24") and "*" not in log_loss


def test_the_percentage_over_the_baseline_is_of_its_own_seed_and_stopped_by_f1() -> None:
    both = frame({"2wl": [2, 0, 1], "baseline": [1, 2, 0]})
    both.loc[both["stop"] == "log_loss", "f1"] = 0.9
    (line,) = (line for line in table(both, "ci_a").splitlines() if line.startswith("| 2WL"))
    gains = [100 * 0.03 / (0.5 + 10.0 ** -(seed + 1)) for seed in range(3)]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["2WL", "3", "0.9000 ± 0.0000"] and cells[7] == printed(gains, 2, sign=True)


def test_half_the_percentile_interval() -> None:
    model, against = np.random.default_rng(0).normal(size=(2, 4000))
    d = np.sort(model - against)
    assert spread(model, against) == pytest.approx((d[3899] - d[100]) / 2, rel=1e-3)
    assert spread(model, model) == 0


def test_rows_are_paired_by_seed(tmp_path: Path) -> None:
    """Two models that are the same seed by seed, one without its first seed, differ by nothing."""
    one, other = "2wl2o", "2wl"
    assert (one, other) in plan.HEADLINES["ct"]
    wanted = [cell for cell in plan.cells() if cell.dataset == "ct" and cell.model in (one, other)]
    y = np.random.default_rng(9).integers(3, size=60)
    for cell in wanted:
        raw = np.random.default_rng(cell.seed).random((60, 3)) + 0.4 * np.eye(3)[y]
        file = kept_at(tmp_path / cell.part, cell.dataset, cell.model, cell.seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        if cell.model == other and cell.seed == 0:
            continue
        np.savez(file, y=y, probabilities=raw / raw.sum(axis=1, keepdims=True), threshold=np.nan)
    (line,) = rows(luck(tmp_path, ["ct"])).splitlines()[2:]
    assert line.startswith("| CT: 2WL2O − 2WL | +0.0000 ± 0.0000 ± ")
    seeds = {cell.seed for cell in wanted}
    assert len(seeds) > 2 and len(wanted) == 2 * len(seeds)


@pytest.mark.parametrize("dataset", plan.PAIRS)
def test_the_page_says_what_was_scored(dataset: str) -> None:
    """Each table is what the kept scores give."""
    kept = pd.read_csv(ROOT / results.SCORES)
    (page,) = (path for path, names in results.CELLS.items() if dataset in names)
    text = (ROOT / page).read_text()
    assert between_marks(text, f"{dataset} scores", table(kept, dataset)) == text
    pairs = results.PAIRS[dataset]
    assert between_marks(text, f"{dataset} differences", differences(kept, dataset, pairs)) == text


def test_the_page_of_the_headlines_says_what_was_drawn() -> None:
    text = (ROOT / results.PAGE).read_text()
    assert between_marks(text, "rows", rows(pd.read_csv(ROOT / results.LUCK, keep_default_na=False))) == text


@pytest.mark.parametrize("page", stability.PAGES)
def test_the_pages_on_stability_say_what_was_measured(page: Path) -> None:
    text, kept = (ROOT / page).read_text(), pd.read_csv(ROOT / stability.KEPT)
    assert stability.with_tables(text, kept) == text
    assert stability.with_tables(text, kept.assign(risk=0.0)) != text


def test_a_folder_with_one_cell_changes_its_lines_alone(tmp_path: Path) -> None:
    kept = pd.read_csv(ROOT / results.SCORES)
    line = kept[(kept["dataset"] == "ct") & (kept["stop"] == "f1")].iloc[-1]
    (tmp_path / line["part"]).mkdir()
    (tmp_path / line["part"] / "cells.jsonl").write_text(line.replace({line["f1"]: 0.5}).to_json() + "\n")
    found = results.collect(tmp_path, kept).reset_index(drop=True)
    other = found["f1"] != kept["f1"]
    assert other.sum() == 1 and found.loc[other, "f1"].item() == 0.5
    assert (
        found.loc[other, ["model", "seed", "stop"]].iloc[0].tolist()
        == line[["model", "seed", "stop"]].tolist()
    )
    pd.testing.assert_frame_equal(found[~other], kept[~other], check_dtype=False)


def test_a_cell_is_kept_once_for_each_rule() -> None:
    kept = pd.read_csv(ROOT / results.SCORES)
    key = ["part", "dataset", "model", "seed", "stop"]
    assert not kept.duplicated(key).any()
    planned = {(cell.part, cell.dataset, cell.model, cell.seed) for cell in plan.cells()}
    assert set(kept[key[:-1]].itertuples(index=False, name=None)) <= planned

"""The published means, intervals and differences of the papers' pages against SciPy and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.speed.bench import between_marks
from benchmarks.study import plan, results
from benchmarks.study.results import differences, paired, printed, rows
from benchmarks.study.results import scores as table
from benchmarks.study.rows import FILE, interval, spread

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
        {"dataset": dataset, "model": model, "seed": seed, "best_round": 3, "fit_seconds": 1.0}
        | dict.fromkeys(("f1", "f1_tuned", "log_loss", "auc"), 0.5 + level[model] + luck[seed])
        for model, of in seeds.items()
        for seed in of
    ]
    return pd.DataFrame([found[k] for k in rng.permutation(len(found))])


def test_pairs_are_of_the_same_seed() -> None:
    """With pairs a seed apart the seeds' luck would not cancel."""
    found = paired(frame({"2wl": [0, 1, 2, 3], "1wl_s": [3, 1, 0, 5]}), "2wl", "1wl_s", "f1")
    assert sorted(found.index) == [0, 1, 3]
    np.testing.assert_allclose(found, 0.02, atol=1e-12)
    assert paired(frame({"2wl": [0]}), "2wl", "1wl_s", "f1").empty


def test_a_difference_is_bold_where_zero_is_outside_its_interval() -> None:
    both = frame({"2wl": [0, 1, 2], "1wl_s": [0, 1, 2]})
    both.loc[both["model"] == "2wl", "log_loss"] += np.array([0.5, -0.5, 0.02])
    line = differences(both, "ci_a", [("2wl", "1wl_s")]).splitlines()[2]
    _, _, f1, _, log_loss, *_ = (cell.strip() for cell in line.split("|"))
    assert f1 == "**+0.0200 ± 0.0000**"
    assert log_loss.startswith("+0.0267 ± 1.24") and "*" not in log_loss


def test_the_percentage_over_the_baseline_is_of_its_own_seed() -> None:
    text = table(frame({"2wl": [2, 0, 1], "baseline": [1, 2, 0]}), "ci_a")
    (line,) = (line for line in text.splitlines() if "± 0.4" in line or "+" in line)
    gains = [100 * 0.03 / (0.5 + 10.0 ** -(seed + 1)) for seed in range(3)]
    assert f"| {printed(gains, 2, sign=True)} |" in line


def test_half_the_percentile_interval() -> None:
    model, against = np.random.default_rng(0).normal(size=(2, 4000))
    d = np.sort(model - against)
    assert spread(model, against) == pytest.approx((d[3899] - d[100]) / 2, rel=1e-3)
    assert spread(model, model) == 0


def test_rows_are_paired_by_seed(tmp_path: Path) -> None:
    """Two models that are the same seed by seed, one without its first seed, differ by nothing."""
    one, other = plan.HEADLINES["ct"][0]
    every = [cell for cell in plan.cells() if cell.dataset == "ct"]
    wanted = [cell for cell in every if cell.model + cell.suffix in (one, other)]
    y = np.random.default_rng(9).integers(3, size=60)
    for cell in wanted:
        raw = np.random.default_rng(cell.seed).random((60, 3)) + 0.4 * np.eye(3)[y]
        file = tmp_path / cell.place / FILE
        file.parent.mkdir(parents=True)
        if cell.model + cell.suffix == other and cell.seed == 0:
            continue
        np.savez(file, y=y, probabilities=raw / raw.sum(axis=1, keepdims=True), threshold=np.nan)
    text = rows(tmp_path)
    (line,) = text.splitlines()[2:]
    assert "+0.0000 ± 0.0000 ± " in line
    seeds = {cell.seed for cell in wanted}
    assert len(seeds) > 2 and len(wanted) == 2 * len(seeds)


def test_every_page_has_the_marks_of_its_tables() -> None:
    """`write` would rewrite them; as they stand they are of the study's models."""
    for path, datasets in results.CELLS.items():
        text = (ROOT / path).read_text()
        for name in (f"{dataset} {kind}" for dataset in datasets for kind in ("scores", "differences")):
            assert between_marks(text, name, "new\n") != text, name
    assert "new" in between_marks((ROOT / results.PAGE).read_text(), "rows", "new\n")
    assert sorted(name for names in results.CELLS.values() for name in names) == sorted(plan.PAIRS)


def test_the_list_of_runs_is_by_cell_and_seed() -> None:
    """As the kept list has it: five runs of a cell, or three, each by its first characters."""
    fits = frame({"2wl": [2, 0, 1], "1wl_s": [0]}).assign(experiment="census/main")
    fits["mlflow_run"] = [f"{model}{seed}" + "f" * 20 for model, seed in zip(fits["model"], fits["seed"])]
    found = results.runs(fits)
    assert list(found.columns) == list(pd.read_csv(ROOT / results.RUNS).columns)
    cells = {row.model: (row.dataset, row.runs) for row in found.itertuples()}
    assert cells == {"2WL": ("CI-A", "2wl0ffff 2wl1ffff 2wl2ffff"), "1WL_S": ("CI-A", "1wl_s0ff")}
    kept = pd.read_csv(ROOT / results.RUNS)["runs"].str.split()
    assert set(kept.map(len)) == {3, 5} and {len(run) for of in kept for run in of} == {8}

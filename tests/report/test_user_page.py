"""The page about a user's table: validation chooses, test reports, and differences may be noise."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from tests.report import Page, fit, write_card, write_cell, write_rows
from usboost.evaluation.task import TASKS
from usboost.report.blocks import Origin, RunLink
from usboost.report.pages import write_pages
from usboost.report.results import chosen, collect, ranked_fits

MODELS = ("baseline", "lgbm_s", "linear_trees", "2wl")


def _scored(val: float, test: float) -> dict[str, Any]:
    """A fit whose two splits say different things."""
    scores = fit(0, test)
    scores["scores"]["val"] = {**scores["scores"]["val"], "f1": val}
    return scores


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The best on the validation rows, linear_trees, is not the best on the test rows, 2wl."""
    folder = tmp_path / "results"
    mistakes = {"baseline": range(25), "lgbm_s": range(20, 45), "linear_trees": range(6), "2wl": range(3, 8)}
    for model, val in (("baseline", 0.6), ("lgbm_s", 0.7), ("linear_trees", 0.9), ("2wl", 0.8)):
        write_cell(folder, "user_table", model, [_scored(val, 0.99 if model == "2wl" else 0.5)], "user")
        write_rows(folder, "user_table", model, mistakes[model])
    write_card(
        tmp_path / "prepared",
        "user_table",
        "user",
        classes=["no", "<b>yes"],
        roles={"label": "<i>kind", "image": [], "dropped": ["id"]},
        sources={"mine.csv": "ab" * 32},
        splits={"train": {"rows": 1200}, "val": {"rows": 70}, "test": {"rows": 60}},
        columns={"age": {"view": "S", "kind": "number"}, "shop": {"view": "S", "kind": "category"}},
        left_out={"name": "each row has its own value"},
    )
    return folder


def _report(results: Path, **more: Any) -> Path:
    return write_pages(results, results.parent / "prepared", results.parent / "out", models=MODELS, **more)


def test_validation_chooses_and_test_reports(results: Path) -> None:
    frame = collect(results, ["user_table"], MODELS)
    assert chosen(frame, "user_table", "f1") == ("linear_trees", 0)
    assert [each.model for each in ranked_fits(frame, results, "user_table", "f1")] == [
        *("linear_trees", "2wl", "lgbm_s", "baseline")
    ]
    page = Page(_report(results, datasets=["user_table"]).read_text())
    assert page.heads["h1"] == "Your data: predicting <i>kind"
    assert "Selected (validation F1 0.900) Linear + trees" in page.words
    assert "models:/usboost-user-user_table@champion" in page.words
    assert "Demo data" not in page.words


def test_the_papers_page_chooses_by_validation_too(tmp_path: Path) -> None:
    for model, val, test in (("baseline", 0.9, 0.5), ("2wl", 0.6, 0.99)):
        write_cell(tmp_path / "results", "ct", model, [_scored(val, test)], "paper")
    html = write_pages(
        tmp_path / "results", tmp_path, tmp_path / "out", datasets=["ct"], models=("baseline", "2wl")
    ).read_text()
    assert "Selected on CT (validation F1 0.9000) Baseline" in Page(html).words
    assert re.findall(r'class="first best">([^<]+)<', html) == ["0.5000", "0.9000"]  # of each split


def test_a_part_of_a_model_is_not_chosen(tmp_path: Path) -> None:
    """No run of its own could be promoted."""
    gbm = {"val": {"f1": 0.99}, "test": {"f1": 0.99}}
    write_cell(tmp_path, "ct", "bfv_dnn", [fit(0, 0.6, gbm=gbm)], "demo")
    write_cell(tmp_path, "ct", "2wl", [fit(0, 0.5)], "demo")
    assert chosen(collect(tmp_path, ["ct"], ["bfv_dnn", "2wl"]), "ct", "f1") == ("bfv_dnn", 0)


def test_differences_have_intervals_and_a_test(results: Path) -> None:
    frame = collect(results, ["user_table"], MODELS)
    best, level, *behind = ranked_fits(frame, results, "user_table", "f1")
    value, low, high = best.test["f1"]
    assert value == pytest.approx(0.9)  # 6 of 60 rows are wrong, 3 of each class
    assert low < value < high
    assert best.difference is None
    assert level.within_noise and level.difference and level.difference[1] < 0 < level.difference[2]
    for each in behind:
        assert not each.within_noise and each.p_holm and each.p_holm < 0.05
        assert each.difference and each.difference[0] > each.difference[1] > 0
    text = Page(_report(results, datasets=["user_table"]).read_text()).words
    assert "ahead of LightGBM on S and Baseline; statistically significant" in text
    assert "The test rows do not separate it from 2WL" in text


def test_under_best_round_is_the_one_that_is_scored(results: Path) -> None:
    html = _report(results, datasets=["user_table"]).read_text()
    assert html.count('data-name="best round">30<small class="under">of 37</small>') == 4
    assert ">rounds<" not in html


def test_an_accuracy_of_1_has_an_interval_with_a_width(results: Path) -> None:
    write_rows(results, "user_table", "linear_trees", [])
    best = ranked_fits(collect(results, ["user_table"], MODELS), results, "user_table", "f1")[0]
    value, low, high = best.test["accuracy"]
    assert value == 1.0 and high == pytest.approx(1.0)
    assert low == pytest.approx(binomtest(60, 60).proportion_ci(0.95, method="wilson").low)
    text = Page(_report(results, datasets=["user_table"]).read_text()).words
    assert "1.000 0.940 to 1.000" in text and "1.000 to 1.000" not in text


def test_what_was_read_and_what_made_it(results: Path) -> None:
    runs = (
        RunLink("MLflow", "f" * 32, "http://127.0.0.1:5000/#/experiments/1/runs/x"),
        RunLink("Prefect", "0123456789", "javascript:alert(1)"),
    )
    origin = Origin("boosting@user_table-2wl", {"prepared": "md5:" + "0" * 32}, runs)
    html = _report(results, datasets=["user_table"], origins={("user_table", "2wl", 0): origin}).read_text()
    page = Page(html)
    for piece in ("1,200 training", "Numbers age", "Categories shop", "Not read id, name", "<b>yes"):
        assert piece in page.words
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a" and attrs["href"]]
    assert [link for link in links if not link.startswith("#")] == [runs[0].address]
    anchors = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    assert "made-user_table-2wl" in anchors and "boosting@user_table-2wl" in page.words
    assert f'title="{origin.inputs["prepared"]}"' in html


def test_two_reports_lead_to_each_other(results: Path) -> None:
    write_cell(results, "ct", "baseline", [fit(0, 0.5)], "user")
    own = _report(results, datasets=["user_table", "ct"])
    paper = own.with_name("paper.html")
    assert 'href="paper.html"' in own.read_text() and 'href="index.html"' in paper.read_text()
    assert " on CT" not in Page(own.read_text()).words
    alone = write_pages(results, results, results.parent / "alone", datasets=["ct"], models=("baseline",))
    assert "Selected on CT" in Page(alone.read_text()).words and not alone.with_name("paper.html").exists()


def test_results_of_earlier_versions_have_no_intervals(results: Path) -> None:
    (results / "user_table/2wl/seed-0/rows.parquet").unlink()
    found = ranked_fits(collect(results, ["user_table"], MODELS), results, "user_table", "f1")
    assert found[1].test["f1"][0] == 0.99 and found[1].p_holm is None
    assert all(each.p_holm is not None for each in found[2:])
    assert "Linear + trees" in _report(results, datasets=["user_table"]).read_text()


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Four models of a number, each off by so much: linear_trees is the best on the validation rows."""
    rng, folder = np.random.default_rng(0), tmp_path / "results"
    true = rng.normal(20_000, 5_000, 80)
    for model, error in (("baseline", 4000), ("lgbm_s", 3000), ("linear_trees", 1000), ("2wl", 1050)):
        predicted = true + rng.normal(0, error, 80)
        scores = {"val": {"rmse": float(error), "mae": 0.8 * error, "r2": 0.5}}
        scores["test"] = TASKS["regression"].score(true, predicted)
        cost = {"rounds": 9, "best_round": 7, "fit_seconds": 1.0, "margin": [-1600.0, 1700.0], "floor": 0}
        write_cell(folder, "user_table", model, [{"seed": 0, "scores": scores, **cost}], "user")
        rows = pd.DataFrame({"seed": 0, "label": true, "prediction": predicted})
        rows.to_parquet(folder / "user_table" / model / "seed-0/rows.parquet", index=False)
        trace = {"seed": 0, "round": np.arange(1, 10), "seconds": np.arange(9.0), "rmse_val": 2.0 * error}
        trace |= {"risk_train": 0.5, "risk_val": 0.6, "f1_val": np.nan}
        pd.DataFrame(trace).to_parquet(folder / "user_table" / model / "seed-0/trace.parquet", index=False)
    label = {"mean": 2e4, "std": 5e3, "min": 1e4, "max": 3e4}
    write_card(
        tmp_path / "prepared",
        "user_table",
        "user",
        task="regression",
        classes=[],
        roles={"label": "price", "image": [], "dropped": []},
        sources={"houses.csv": "ab" * 32},
        splits={split: {"rows": 80, "label": label} for split in ("train", "val", "test")},
        columns={"age": {"view": "S", "kind": "continuous"}},
    )
    return folder


def test_of_a_number_the_lowest_rmse_is_chosen_and_a_lead_is_positive(numbers: Path) -> None:
    frame, task = collect(numbers, ["user_table"], MODELS), TASKS["regression"]
    gained = frame.query("model == 'linear_trees' and metric == 'rmse' and split == 'val'")
    assert gained["relative_improvement_pct"].item() == pytest.approx(75)  # 1000 instead of 4000
    best, level, *behind = ranked_fits(frame, numbers, "user_table", "rmse", task)
    assert [each.model for each in (best, level, *behind)] == ["linear_trees", "2wl", "lgbm_s", "baseline"]
    assert level.within_noise and level.difference and level.difference[1] < 0 < level.difference[2]
    for each in behind:
        assert not each.within_noise and each.difference
        assert each.difference[0] == pytest.approx(each.test["rmse"][0] - best.test["rmse"][0])
        assert 0 < each.difference[1] < each.difference[0] < each.difference[2]
    html = _report(numbers, datasets=["user_table"]).read_text()
    text = Page(html).words
    for said in (
        *("Your data: predicting price", "is selected: validation RMSE 1,000.0."),
        *(
            "ahead of LightGBM on S and Baseline; statistically significant",
            "RMSE and MAE are in the units of price",
        ),
        *("Always these rows’ mean", "Predicted against true", "Residuals", "Prediction intervals"),
        *(
            "wide, and none reaches below 0; the standard",
            "Validation RMSE against runtime",
            "Risk per round",
        ),
    ):
        assert said in text, said
    for other in ("F1", "class", "confusion", "Log-loss"):
        assert other not in text, other


@pytest.mark.parametrize(
    ("mistakes", "said"),
    [
        (
            range(20, 45),
            "Images help. Linear + trees has F1 0.900 on the test rows, and LightGBM on S, which reads",
        ),
        (
            range(2, 9),
            "Images: no difference that these rows show. Linear + trees has F1 0.900 on the test rows",
        ),
        ((), "Images do harm. Linear + trees has F1 0.900 on the test rows, and LightGBM on S"),
    ],
)
def test_whether_images_help_is_one_answer_and_its_ground(results: Path, mistakes, said) -> None:
    write_card(results.parent / "prepared", "user_table", "user", classes=["a", "b"], columns={}, images={})
    for val in (0.7, 0.95):  # whether the selected model reads images or not
        write_cell(results, "user_table", "lgbm_s", [_scored(val, 0.5)], "user")
        write_rows(results, "user_table", "lgbm_s", mistakes)
        text = Page(_report(results, datasets=["user_table"]).read_text()).words
        assert said in text and "of this one difference; in the table p is adjusted for all models)" in text
        assert ("asks the same of all rows" in text) == ("these rows show" in said)


def test_a_question_asked_of_one_model_alone_is_not_adjusted(results: Path) -> None:
    write_rows(results, "user_table", "lgbm_s", range(14))
    frame = collect(results, ["user_table"], MODELS)
    found = {each.model: each for each in ranked_fits(frame, results, "user_table", "f1")}
    each = found["lgbm_s"]
    assert each.p is not None and each.p_holm is not None and each.p < each.p_holm
    rest = sorted(other.p for other in found.values() if other.p is not None)
    assert each.p_holm == pytest.approx(max(3 * rest[0], 2 * rest[1]) if each.p == rest[1] else each.p_holm)

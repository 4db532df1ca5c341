"""Contributions, importances, calibration and worst samples against what is computed by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from tests.conftest import refuses
from tests.small_models import boosting, lgbm, network
from usboost import Table, TreeLearner, TwoWeakLearnerRegressor, Views
from usboost.evaluation.metrics import score, score_regression
from usboost.evaluation.task import TASKS
from usboost.models.inspection import inspect as inspection
from usboost.models.inspection.inspect import (
    calibration,
    expected_calibration_error,
    informative_columns,
    view_contributions,
    view_importance,
    worst_samples,
)


def test_contributions_are_steps_times_output_sizes(two_views):
    views, y = two_views(3)
    fitted = boosting(validation_fraction=0, patience=None).fit(views, y)
    found = view_contributions(fitted, views)
    assert len(found) == 2 * len(fitted.stages_)
    for row in found.itertuples():
        stage, learner = fitted.stages_[row.round - 1], fitted.learners[row.view]
        outputs = stage.learners[row.view].predict(learner.prepare(views[row.view]))
        sizes = [sum(float(value) ** 2 for value in output) for output in outputs]
        expected = abs(stage.steps[row.view]) * np.sqrt(np.mean(sizes))
        assert row.contribution == pytest.approx(expected, rel=1e-6)


def test_only_the_view_that_decides_matters():
    rng = np.random.default_rng(0)
    u, s = rng.normal(size=(400, 3)), rng.normal(size=(400, 3))
    y = np.where(s[:, 0] > 0, "b", "a")
    views = Views(U=Table.from_numeric(u), S=Table.from_numeric(s))
    fitted = lgbm(n_trees=30).fit(views, y)
    found = view_importance(fitted, views, y, n_repeats=4).set_index(["view", "metric"])
    assert found.loc[("S", "accuracy"), "mean"] > 0.3
    assert found.loc[("S", "log_loss"), "mean"] > 0.3
    assert abs(found.loc[("U", "accuracy"), "mean"]) < 0.03
    assert found.loc[("S", "f1"), "std"] > 0
    again = view_importance(fitted, views, y, n_repeats=4).set_index(["view", "metric"])
    assert found.equals(again)


def test_of_a_number_the_rise_of_its_rmse(two_views):
    views, _ = two_views(n=150)
    y = views["S"].numeric[:, 0].astype(np.float64) * 20 + 300
    fitted = TwoWeakLearnerRegressor({"S": TreeLearner(max_depth=3)}, n_rounds=5).fit(views, y)
    found = view_importance(fitted, views, y, n_repeats=2, seed=5).set_index(["view", "metric"])
    rng, before = np.random.default_rng(5), score_regression(y, fitted.predict(views))
    for view in views.names:
        after = [
            score_regression(y, fitted.predict(views.with_view(view, views[view][rng.permutation(len(y))])))
            for _ in range(2)
        ]
        for metric, sign in (("rmse", 1), ("r2", -1)):
            losses = [sign * (each[metric] - before[metric]) for each in after]
            assert found.loc[(view, metric), "mean"] == pytest.approx(np.mean(losses), abs=1e-9)
    assert found.loc[("S", "rmse"), "mean"] > 5 > found.loc[("U", "rmse"), "mean"] == 0


def test_columns_that_tell_of_a_number_come_first():
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    kind = np.where(y > 0.5, "big", "small")
    frame = pd.DataFrame({"noise": rng.normal(size=400), "kind": kind, "near": y + rng.normal(0, 0.1, 400)})
    assert informative_columns(frame, y) == ["near", "kind", "noise"]


@pytest.mark.parametrize("names", [("U", "S"), ("UU", "SS"), ("U", "S", "SS"), ("S",)])
def test_a_sum_of_learners_is_shuffled_as_the_model_itself_would_be(two_views, names):
    views, y = two_views(3, n=150)
    reads = {"U": ("U",), "S": ("S",), "UU": ("U", "S"), "SS": ("S", "U")}
    learners = {
        name: network(reads=reads[name]) if name.startswith("U") else TreeLearner(reads=reads[name])
        for name in names
    }
    fitted = boosting(learners=learners, n_rounds=3, validation_fraction=0, patience=None).fit(views, y)
    found = view_importance(fitted, views, y, n_repeats=2, seed=5)
    rng, before, expected = np.random.default_rng(5), score(y, fitted.predict_proba(views)), []
    for view in views.names:
        after = []
        for _ in range(2):
            order = rng.permutation(len(y))
            shuffled = {name: views[name][order] if name == view else views[name] for name in views.names}
            after.append(score(y, fitted.predict_proba(shuffled)))
        for metric in TASKS["classification"].shuffled:
            lost = [(after[k][metric] - before[metric]) * (1 if metric == "log_loss" else -1) for k in (0, 1)]
            expected.append((view, metric, np.mean(lost), np.std(lost, ddof=1)))
    pd.testing.assert_frame_equal(found, pd.DataFrame(expected, columns=found.columns), atol=1e-9)
    if names == ("S",):
        assert (found.loc[found["view"] == "U", ["mean", "std"]] == 0).all(axis=None)


def test_what_cannot_be_shuffled_is_refused(two_views):
    views, y = two_views(n=60)
    fitted = lgbm().fit(views, y)
    refuses("59 labels but 60 rows", view_importance, fitted, views, y[1:])
    refuses("n_repeats must be at least 1", view_importance, fitted, views, y, n_repeats=0)
    refuses("not among the classes", view_importance, fitted, views, y + 5)


def test_a_calibrated_forecast_is_inside_its_intervals():
    rng = np.random.default_rng(1)
    p = rng.random(20_000)
    y = (rng.random(20_000) < p).astype(int)
    bins = calibration(y, np.stack([1 - p, p], axis=1))
    assert bins["count"].sum() == 20_000
    inside = (bins["observed_low"] <= bins["predicted"]) & (bins["predicted"] <= bins["observed_high"])
    assert inside.sum() >= 8
    assert expected_calibration_error(bins) < 0.02
    sure = np.stack([p < 0.5, p >= 0.5], axis=1).astype(float)
    assert expected_calibration_error(calibration(y, sure)) == pytest.approx(0.25, abs=0.02)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=40))
def test_bins_by_brute_force(rows):
    y = np.array([label for label, _, _ in rows])
    raw = np.array([[a, b, 10 - max(a, b)] for _, a, b in rows], dtype=float)
    p = raw / raw.sum(axis=1, keepdims=True)
    bins = calibration(y, p, n_bins=5)
    top, right = p.max(axis=1), p.argmax(axis=1) == y
    for row in bins.itertuples():
        inside = (top >= row.low) & ((top < row.high) | (row.high == 1))
        assert row.count == inside.sum()
        assert row.predicted == pytest.approx(top[inside].mean())
        assert row.observed == pytest.approx(right[inside].mean())
        assert row.observed_low <= row.observed + 1e-9 and row.observed <= row.observed_high + 1e-9
    assert bins["count"].sum() == len(y)


def test_worst_samples_are_the_surest_mistakes():
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.99, 0.01], [0.3, 0.7]])
    y = np.array([0, 0, 0, 1, 1])
    found = worst_samples(y, p, n=2)
    assert found["row"].tolist() == [3, 1]
    assert found["p_true"].tolist() == [0.01, 0.2]
    assert found["predicted"].tolist() == [0, 1]
    assert len(worst_samples(y, p)) == 3


@pytest.mark.parametrize("seed", range(8))
def test_informative_columns_as_pandas_and_scikit_learn_have_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(30, 300))
    y = rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {
            "normal": rng.normal(size=n),
            "whole": rng.integers(0, 30, n) + y,
            "word": rng.choice(list("xyz"), n),
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n) + y),
            "few": rng.integers(0, 5, n),
            "infinite": np.where(rng.random(n) < 0.05, np.inf, rng.exponential(size=n)),
            "nominal": pd.Categorical(np.where(y == 1, "u", None)),
            "zeros": np.where(np.arange(n) % 3 > 0, 0.0, rng.normal(size=n)),
        }
    )
    worth = {}
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column) and column.nunique() > 10:
            column = pd.qcut(column.where(np.isfinite(column)), 10, labels=False, duplicates="drop")
        codes = pd.factorize(column, use_na_sentinel=False)[0]
        codes = np.where(np.bincount(codes)[codes] < inspection._RARE, -1, codes)
        chance = (len(np.unique(codes)) - 1) * 2 / (2 * n)
        worth[name] = mutual_info_score(y, codes) - chance
    expected = sorted(worth, key=lambda name: -worth[name])
    assert informative_columns(frame, y, len(expected)) == expected

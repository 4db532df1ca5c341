"""Weights of a table's rows and classes, from DataFrames and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from tests.conftest import refuses
from tests.fit.conftest import accepted, refused
from usboost.evaluation.intervals import margin_of
from usboost.evaluation.metrics import accuracy
from usboost.fit.build import build, fit
from usboost.fit.compare import compare
from usboost.fit.estimator import MultimodalClassifier, MultimodalRegressor
from usboost.fit.evaluate import divisible
from usboost.fit.evaluate import folds_of as folds
from usboost.models.estimator import class_factors
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

RNG = np.random.default_rng(0)
N = 240
X = pd.DataFrame(RNG.normal(size=(N, 4)), columns=list("abcd"))
X["e"] = RNG.choice(["p", "q", "r"], N)
Z = (X["a"] + X["b"] * X["c"] + RNG.normal(size=N)).rename("z")
Y = pd.Series(np.where(Z > 1.2, "rare", "common"), name="label")
WEIGHT = pd.Series(RNG.integers(0, 4, N).astype(float), name="w")


def table(label: pd.Series = Y, rows: Any = slice(None), **roles: str) -> Any:
    frame = pd.concat([X, label, WEIGHT], axis=1).iloc[rows].reset_index(drop=True)
    return read_table(FrameRows(frame, None), TableSpec(label=str(label.name), **roles))  # type: ignore[arg-type]


def test_a_row_of_weight_0_takes_no_part() -> None:
    kept = (WEIGHT > 0).to_numpy()
    for estimator, y in (
        (MultimodalClassifier(model="logistic", rounds=2), Y),
        (MultimodalRegressor(model="ridge"), Z),
    ):
        spoiled = X.copy()
        spoiled.loc[~kept, "a"] = 1e6
        fitted = clone(estimator).fit(spoiled, y, sample_weight=WEIGHT)
        other = clone(estimator).fit(X[kept], y[kept], sample_weight=WEIGHT[kept])
        found, expected = (each.predict_proba(X) if y is Y else each.predict(X) for each in (fitted, other))
        np.testing.assert_array_equal(found, expected)
        plain = clone(estimator).fit(X[kept], y[kept])
        assert fitted.scores_ == other.scores_ != plain.scores_


def test_class_weights_are_weights() -> None:
    """Balanced classes in the fit; scores are those of the classes as frequent as they are."""
    own = table()
    plain, even = (fit(own, "logistic", class_weight=each, calibrate=False) for each in (None, "balanced"))
    assert even.scores["accuracy"] <= plain.scores["accuracy"]
    rows = np.arange(len(own))
    views = own.views(own.fit_encoding(rows), rows)
    p_plain, p_even = (each.bundle.model.predict_proba(views)[:, 1] for each in (plain, even))
    assert p_even.mean() > p_plain.mean() + 0.1
    factors = dict(zip(own.classes, class_factors("balanced", own.labels, own.classes), strict=True))
    estimator = MultimodalClassifier(model="logistic", calibrate=False)
    by_name, by_rows = (
        clone(estimator).set_params(class_weight=each).fit(X, Y, sample_weight=weights)
        for each, weights in ((factors, None), (None, Y.map(factors)))
    )
    np.testing.assert_allclose(by_name.predict_proba(X), by_rows.predict_proba(X), atol=1e-9)
    refuses("none of the classes", clone(estimator).set_params(class_weight={"other": 2}).fit, X, Y)
    refuses("classes, but a number is predicted", fit, table(Z), "ridge", class_weight="balanced")


def test_comparisons_weigh_fits_and_scores() -> None:
    own, views = table(weight="w"), lambda name: lambda seed: build(name, images=False, seed=seed)
    found = compare(own, {"prior": views("prior")}, folds=3).scores
    for fold, row in zip(folds(own, 3, 1, 0), found.itertuples()):
        assert (own.weights[np.concatenate([fold.train, fold.val, fold.test])] > 0).all()
        most = np.bincount(own.labels[fold.train], own.weights[fold.train]).argmax()
        y, weights = own.labels[fold.test], own.weights[fold.test]
        assert row.accuracy == pytest.approx(accuracy(y, np.full(len(y), most), weights))
        assert row.rows_test == len(fold.test)


def test_margins_hold_weight() -> None:
    rng = np.random.default_rng(1)
    residuals, counts = rng.normal(size=600), rng.integers(1, 4, 600).astype(float)
    low, high = margin_of(residuals, counts)
    held = counts[(low <= residuals) & (residuals <= high)].sum() / counts.sum()
    assert held == pytest.approx(0.9, abs=0.01)
    for n in (10, 19, 20, 39, 59, 60, 600):
        ranked, k = np.sort(residuals[:n]), max((n + 1) // 20, 1)
        for equal in (None, np.ones(n), np.full(n, 1e-3), np.full(n, 1e4)):
            assert margin_of(residuals[:n], equal) == (ranked[k - 1], ranked[n - k])


def test_the_scale_of_weights_decides_nothing() -> None:
    """Shares of a sample add up to 1, a survey's weights to a country: both say how much a row matters."""
    plain = MultimodalRegressor(model="2wl_ridge", rounds=5).fit(X, Z, sample_weight=WEIGHT)
    for scale in (1e-3, 1024.0):
        other = clone(plain).fit(X, Z, sample_weight=WEIGHT * scale)
        np.testing.assert_allclose(other.predict(X), plain.predict(X), rtol=1e-6)
        np.testing.assert_allclose(other.bundle_.card.margin, plain.bundle_.card.margin, rtol=1e-6)
    own = table(weight="w")
    assert own.weights is not None and own.weights[own.weights > 0].mean() == pytest.approx(1)
    np.testing.assert_allclose(own.weights / own.weights.max(), WEIGHT / WEIGHT.max())


def test_rows_of_weight_0_do_not_make_up_a_table() -> None:
    weights = np.zeros(N)
    weights[[*np.flatnonzero(Y == "rare")[:4], *np.flatnonzero(Y == "common")[:5]]] = 1
    for model, y in ((MultimodalClassifier("prior"), Y), (MultimodalRegressor("prior"), Z)):
        refuses("9 rows of weight above 0", model.fit, X, y, sample_weight=weights)
    rare = np.flatnonzero(Y == "rare")
    weights = np.ones(N)
    weights[rare[1:]] = 0
    refuses(r"'rare' of .* 1 row", MultimodalClassifier("prior").fit, X, Y, sample_weight=weights)
    parts = pd.Series(np.where(np.arange(N) < 200, "train", "val"), name="part")
    frame = pd.concat([X, Y, WEIGHT.where(parts == "train", 0.0), parts], axis=1)
    own = read_table(FrameRows(frame, None), TableSpec(label="label", weight="w", split="part"))
    refuses("no row that counts has `split` val", fit, own, "prior")


def test_wrong_weights_are_refused() -> None:
    estimator = MultimodalClassifier(model="prior")
    refuses("the weight 'w' must be a number of at least 0", estimator.fit, X, Y, sample_weight=WEIGHT - 1)
    refuses("the weight has the shape", estimator.fit, X, Y, sample_weight=np.ones(3))
    refuses("are zero", estimator.fit, X, Y, sample_weight=0 * WEIGHT)


def test_on_the_command_line(tmp_path: Path) -> None:
    path, out = tmp_path / "rows.csv", tmp_path / "model"
    pd.concat([X, Y, WEIGHT], axis=1).to_csv(path, index=False)
    words = [path, "--label", "label", "--weight", "w"]
    more = ["--model", "logistic", "--class-weight", "balanced", "--out", out]
    done = accepted("fit", *words, *more)
    assert f"{(WEIGHT == 0).sum()} rows have the weight 0 and take no part" in done.stderr
    frame = pd.read_csv(path)
    own = read_table(path, TableSpec(label="label", weight="w"))
    expected = fit(own, "logistic", class_weight="balanced")
    loaded = MultimodalClassifier.load(out).predict_proba(frame[list("abcde")])
    again = expected.bundle.predict(FrameRows(frame, None)).drop(columns="label")
    order = np.argsort(expected.bundle.labels, kind="stable")
    np.testing.assert_allclose(loaded, again.iloc[:, order])
    accepted("compare", *words, "--models", "prior,logistic", "--folds", 2)
    assert "nowhere" in refused("fit", *words[:3], "--weight", "nowhere", "--out", tmp_path / "new")
    done = accepted("report", out, path, "--out", tmp_path / "report.html")
    assert done.stderr == "note: the model was fitted with weights, 'w'; here each row counts once\n"
    assert "The model was fitted with the weights w; here each row" in (tmp_path / "report.html").read_text()


def test_the_prior_is_that_of_all_rows_that_the_saved_fit_has_seen() -> None:
    own = table(weight="w")
    for refit in (True, False):
        fitted = fit(own, "logistic", refit=refit)
        train, held = divisible(own)[np.flatnonzero(WEIGHT > 0)].hold_out(0)
        rows = np.flatnonzero(WEIGHT > 0)[np.concatenate([train, held]) if refit else train]
        shares = np.bincount(own.labels[rows], WEIGHT[rows], minlength=2) / WEIGHT[rows].sum()
        np.testing.assert_allclose(fitted.bundle.card.prior, shares)

"""Which weights count where: those of classes in fits and early stopping, the rows' own in all answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from pydantic import TypeAdapter
from sklearn.base import clone

from tests.conftest import encoded, refuses
from tests.fit.conftest import accepted, refused
from usboost.evaluation.calibration import calibrated, tempered
from usboost.evaluation.intervals import ends, margin_of, margins
from usboost.evaluation.metrics import accuracy, best_threshold, row_losses, score
from usboost.fit.build import build, fit
from usboost.fit.card import PlainMargin
from usboost.fit.compare import compare
from usboost.fit.estimator import MultimodalClassifier, MultimodalRegressor
from usboost.fit.evaluate import FitData, divisible, related_of
from usboost.fit.evaluate import folds_of as folds
from usboost.fit.table_fit import TableFit
from usboost.fit.trials import DRAWS
from usboost.fit.tune import search_folds
from usboost.fit.workers import SearchTask, draws_of
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.baselines.packages import PriorBaseline
from usboost.models.estimator import class_factors
from usboost.models.methods.ensemble import EnsembleClassifier
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table

N = 900


def rows(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 3))
    z = x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=N)
    weight = np.exp(rng.normal(size=N)) * np.where(x[:, 0] > 1, 8, 1)
    return pd.DataFrame(x, columns=list("abc")).assign(
        z=np.exp(z), label=np.where(z > 1, "rare", "common"), w=weight, g=rng.integers(0, 90, N)
    )


def table(label: str, **roles: Any) -> UserTable:
    drop = [name for name in ("z", "label", "w", "g") if name not in (label, *roles.values())]
    return read_table(FrameRows(rows()), TableSpec(label=label, drop=drop, **roles))


class Sure(LinearBaseline):
    """Is surer of everything than it should be."""

    def predict_proba(self, X: Any) -> np.ndarray:
        found: np.ndarray = tempered(super().predict_proba(X), 0.4)
        return found


def both_parts(own: UserTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, validation rows, and weights of all."""
    assert own.weights is not None
    return *divisible(own).hold_out(0), own.weights


def test_probabilities_are_calibrated_by_the_rows_own_weights() -> None:
    own = table("label", weight="w")
    train, held, weights = both_parts(own)
    labels, class_weight = own.labels, {"rare": 10.0}
    in_fit = weights * np.where(labels == own.classes.index("rare"), 10.0, 1.0)
    model = Sure(("S",), penalties=(0.01,))
    fitted = TableFit(own, model, "sure", threshold="f1", refit=False, class_weight=class_weight).run()
    views = own.views(own.fit_encoding(train), held)
    p, y = model.predict_proba(views), labels[held]
    logistic = LinearBaseline(("S",), penalties=(0.01,), validation_fraction=0)
    logistic.fit(own.views(own.fit_encoding(train), train), labels[train], sample_weight=in_fit[train])
    np.testing.assert_allclose(tempered(logistic.predict_proba(views), 0.4), p, atol=1e-6)
    risk = np.average(row_losses(y, logistic.predict_proba(views)), weights=in_fit[held])
    assert model.history_[0]["risk_val"] == pytest.approx(risk, rel=1e-6)
    temperatures = [calibrated(p, y, each) for each in (weights[held], in_fit[held], None)]
    assert len({round(each, 2) for each in (1.0, *temperatures)}) == 4
    card = fitted.bundle.card
    assert card.temperature == temperatures[0]
    q = tempered(p, card.temperature)
    thresholds = [best_threshold(y, q[:, 1], each) for each in (weights[held], in_fit[held], None)]
    assert card.threshold == thresholds[0] and len(set(thresholds)) == 3
    assert fitted.scores == pytest.approx(score(y, q, weights[held]))


def test_a_blend_is_calibrated_by_the_rows_that_folds_left_out_too() -> None:
    own = table("label", weight="w")
    train, held, weights = both_parts(own)
    model = EnsembleClassifier({"sure": Sure(("S",), penalties=(0.01,))}, folds=3)
    card = TableFit(own, model, "blend", refit=False).run().bundle.card
    p = model.predict_proba(own.views(own.fit_encoding(train), held))
    rows, both = np.concatenate([held, train]), np.concatenate([p, model.out_of_fold_])
    order = np.argsort(rows)
    expected = calibrated(both[order], own.labels[rows[order]], weights[rows[order]])
    assert card.temperature == expected != calibrated(p, own.labels[held], weights[held])


@pytest.mark.parametrize("group", [None, "g"])
def test_whether_a_temperature_helps_is_judged_by_the_seed_and_by_groups(group: str | None) -> None:
    """For some seeds rows that are divided in another way would say otherwise."""
    frame = rows().iloc[:240].assign(g=np.arange(240) // 12)
    drop = ["z", "w", *([] if group else ["g"])]
    own = read_table(FrameRows(frame), TableSpec(label="label", drop=drop, group=group))
    others = 0
    for seed in range(16):
        model = Sure(("S",), penalties=(0.01,))
        card = TableFit(own, model, "sure", seed=seed, refit=False).run().bundle.card
        train, held = divisible(own).hold_out(seed)
        p = model.predict_proba(own.views(own.fit_encoding(train), held))
        y, related = own.labels[held], related_of(own, held)
        folds = None if related is None else related.folds(5, np.zeros(len(held)), seed)
        assert card.temperature == calibrated(p, y, seed=seed, folds=folds)
        others += card.temperature != calibrated(p, y, seed=0 if group is None else seed)
    assert others


def test_margins_are_of_the_rows_weights_and_of_what_is_answered() -> None:
    """Of prices, none of which is below 0: residuals are those of predictions that are not, either."""
    own = table("z", weight="w")
    train, held, weights = both_parts(own)
    model = RidgeBaseline(("S",))
    card = TableFit(own, model, "ridge", refit=False).run().bundle.card
    predicted = model.predict(own.views(own.fit_encoding(train), held))
    assert card.floor == own.labels[train].min() and (predicted < 0).any()
    floored = np.maximum(predicted, card.floor)
    assert card.margin == margins(own.labels[held], floored, weights[held])
    others = margins(own.labels[held], floored), margins(own.labels[held], predicted, weights[held])
    assert card.margin not in others


def test_an_interval_is_as_wide_as_errors_at_predictions_like_it() -> None:
    """Errors that grow with the prediction: one width for all holds too few of the largest fifth."""
    rng = np.random.default_rng(0)
    predicted = rng.uniform(1, 10, 5480)
    y, weights = predicted * (1 + 0.2 * rng.normal(size=5480)), rng.uniform(0.5, 2, 480)
    margin = margins(y[:480], predicted[:480], weights)
    parts, size = np.array_split(np.argsort(predicted[:480]), 8), np.empty(8)
    for k, (at, *_) in enumerate(margin):
        assert at == pytest.approx(np.average(predicted[parts[k]], weights=weights[parts[k]]))
        size[k] = np.average(abs(y - predicted)[parts[k]], weights=weights[parts[k]])
    line = np.interp(predicted[:480], [at for at, *_ in margin], size)
    low, high = margin_of((y - predicted)[:480] / line, weights)
    np.testing.assert_allclose(np.array(margin)[:, 1:], np.outer(size, [low, high]))
    fifths = np.array_split(480 + np.argsort(predicted[480:]), 5)
    one = predicted + margin_of((y - predicted)[:480])[1]
    assert np.mean(y[fifths[4]] <= one[fifths[4]]) < 0.88
    low, high = ends(predicted, margin, None)
    held = [np.mean((low <= y)[rows] & (y <= high)[rows]) for rows in fifths]
    assert min(held) > 0.85 and max(held) < 0.95 and 0.88 < np.mean(held) < 0.92
    few = margins(y[:119], predicted[:119])
    assert few == [pytest.approx([predicted[:119].mean(), *margin_of((y - predicted)[:119])])]
    # another fit's predictions may all be outside the range of those that hardly vary
    assert len(margins(y[:480], 5 + predicted[:480] / 50)) == 1 < len(margins(y[:480], predicted[:480] / 2))
    exact = np.where(predicted < 3, predicted, y)[:480]  # of which no interval is a point
    assert margins(exact, predicted[:480])[0][2] > 0.05
    assert len(margins(y[:480], np.full(480, 5.0))) == 1 and margins(y[:3], y[:3])[0][1:] == [0.0, 0.0]
    assert TypeAdapter(PlainMargin).validate_python([-1.5, 2.0], strict=True) == [[0.0, -1.5, 2.0]]


def test_the_ends_of_an_interval_by_hand() -> None:
    """With lognormal weights 400 rows are worth (Σw)²/Σw² = 169 of equal weight, so that ends are wider."""
    rng = np.random.default_rng(1)
    residuals, weights = rng.normal(size=400), np.exp(rng.normal(size=400))
    n = weights.sum() ** 2 / np.square(weights).sum()
    assert n == pytest.approx(169.5, abs=0.1)
    wanted = np.ceil((n + 1) * 0.95) / n
    shares = {each: weights[residuals <= each].sum() / weights.sum() for each in residuals}
    high = min([each for each, share in shares.items() if share >= wanted], default=residuals.max())
    shares = {each: weights[residuals >= each].sum() / weights.sum() for each in residuals}
    low = max([each for each, share in shares.items() if share >= wanted], default=residuals.min())
    found = margin_of(residuals, weights)
    assert found == (low, high)
    assert found == pytest.approx((-1.4818, 1.6273), abs=1e-4)  # by the number of rows −1.4253 and 1.5239


@pytest.mark.parametrize("class_weight", [None, "balanced", {"rare": 3.0}])
def test_a_fit_to_all_rows_has_the_weights_of_both_parts(class_weight: Any) -> None:
    own = table("label", weight="w")
    train, held, weights = both_parts(own)
    rare = (own.labels == own.classes.index("rare")).astype(int)
    factors = np.ones(2)
    if class_weight == "balanced":
        totals = np.bincount(rare[train], weights[train])
        factors = totals.sum() / 2 / totals
    elif class_weight:
        factors = np.array([1.0, 3.0])
    model = LinearBaseline(("S",), penalties=(0.1,))
    fitted = TableFit(own, model, "logistic", refit=True, class_weight=class_weight).run()
    every = np.sort(np.concatenate([train, held]))
    views = own.views(own.fit_encoding(every), every)
    expected = LinearBaseline(("S",), penalties=(0.1,), validation_fraction=0)
    expected.fit(views, own.labels[every], sample_weight=(weights * factors[rare])[every])
    found = fitted.bundle.model.predict_proba(views)
    np.testing.assert_allclose(found, expected.predict_proba(views), atol=1e-6)


def test_a_comparison_stops_on_rows_as_they_count() -> None:
    own, models = table("label", weight="w"), list[LinearBaseline]()

    def build(seed: int) -> LinearBaseline:
        models.append(LinearBaseline(("S",), penalties=(0.1,)))
        return models[-1]

    compare(own, {"logistic": build}, folds=2)
    told = [model.history_[0]["risk_val"] for model in models if hasattr(model, "history_")]
    fitted = [model for model in models if hasattr(model, "history_")]
    for fold, model, risk in zip(folds(own, 2, 1, 0), fitted, told, strict=True):
        p = model.predict_proba(own.views(own.fit_encoding(fold.train), fold.val))
        losses = row_losses(own.labels[fold.val], p)
        assert risk == pytest.approx(np.average(losses, weights=own.weights[fold.val]), rel=1e-6)
        assert risk != pytest.approx(losses.mean(), rel=1e-2)


def test_a_comparisons_predictions_end_where_its_training_rows_do() -> None:
    """Prices, one of which is below 0: the fold that is scored on it has learnt that none is."""
    frame = rows().drop(columns=["label", "w", "g"])
    frame.loc[7, "z"] = -1.0
    own, made = read_table(FrameRows(frame), TableSpec(label="z")), list[RidgeBaseline]()

    def build(seed: int) -> RidgeBaseline:
        made.append(RidgeBaseline(("S",)))
        return made[-1]

    found = compare(own, {"ridge": build}, folds=2).scores
    fitted = [model for model in made if hasattr(model, "coefficients_")]
    floors = []
    for fold, model, told in zip(folds(own, 2, 1, 0), fitted, found["rmse"], strict=True):
        predicted = model.predict(own.views(own.fit_encoding(fold.train), fold.test))
        least = own.labels[fold.train].min()
        floors.append(least if least >= 0 else -np.inf)
        off = own.labels[fold.test] - np.maximum(predicted, floors[-1])
        assert (predicted < 0).any() and told == pytest.approx(np.sqrt(np.square(off).mean()))
    assert max(floors) >= 0


def test_trials_are_compared_on_rows_as_they_count() -> None:
    """All weight is on rows of one class, which is known for certain: no sample of rows loses anything."""
    own = table("label")
    part = FitData.of(own, search_folds(own, 0, 0)[0])
    model = LinearBaseline(("S",), penalties=(0.1,)).fit(*part.train[:2])
    views, labels, _ = part.test
    weights = np.where(labels == 0, 1.0, 1e-9)
    by = "accuracy"
    task = SearchTask({}, [part], "classification", by)
    wrong = np.eye(2)[np.zeros(len(labels), dtype=int)]
    draws = draws_of(task, replace(part, test=(views, labels, weights)), wrong, 0)
    assert draws == pytest.approx(np.ones(DRAWS))
    assert draws_of(task, replace(part, test=(views, labels, None)), wrong, 0).std() > 0.01
    predicted = model.predict_proba(views)
    first, second = (draws_of(task, part, predicted, k) for k in (0, 1))
    assert not np.array_equal(first, second)


RNG = np.random.default_rng(0)
FEW = 240
X = pd.DataFrame(RNG.normal(size=(FEW, 4)), columns=list("abcd"))
X["e"] = RNG.choice(["p", "q", "r"], FEW)
Z = (X["a"] + X["b"] * X["c"] + RNG.normal(size=FEW)).rename("z")
Y = pd.Series(np.where(Z > 1.2, "rare", "common"), name="label")
WEIGHT = pd.Series(RNG.integers(0, 4, FEW).astype(float), name="w")


def weighed(label: pd.Series = Y, rows: Any = slice(None), **roles: str) -> Any:
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
    own = weighed()
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
    refuses("classes, but a number is predicted", fit, weighed(Z), "ridge", class_weight="balanced")


def test_comparisons_weigh_fits_and_scores() -> None:
    own, views = weighed(weight="w"), lambda name: lambda seed: build(name, images=False, seed=seed)
    found = compare(own, {"prior": views("prior")}, folds=3).scores
    for fold, row in zip(folds(own, 3, 1, 0), found.itertuples()):
        most = np.bincount(own.labels[fold.train], own.weights[fold.train]).argmax()
        y, weights = own.labels[fold.test], own.weights[fold.test]
        assert row.accuracy == pytest.approx(accuracy(y, np.full(len(y), most), weights))
        assert row.rows_test == len(fold.test)


def test_the_scale_of_weights_decides_nothing() -> None:
    """Shares of a sample add up to 1, a survey's weights to a country: both say how much a row matters."""
    plain = MultimodalRegressor(model="2wl_ridge", rounds=5).fit(X, Z, sample_weight=WEIGHT)
    for scale in (1e-3, 1024.0):
        other = clone(plain).fit(X, Z, sample_weight=WEIGHT * scale)
        np.testing.assert_allclose(other.predict(X), plain.predict(X), rtol=1e-6)
        np.testing.assert_allclose(other.bundle_.card.margin, plain.bundle_.card.margin, rtol=1e-6)
    own = weighed(weight="w")
    assert own.weights is not None and own.weights.mean() == pytest.approx(1)
    np.testing.assert_allclose(own.weights / own.weights.max(), WEIGHT[WEIGHT > 0] / WEIGHT.max())


def test_rows_of_weight_0_do_not_make_up_a_table() -> None:
    weights = np.zeros(FEW)
    weights[[*np.flatnonzero(Y == "rare")[:4], *np.flatnonzero(Y == "common")[:5]]] = 1
    for model, y in ((MultimodalClassifier("prior"), Y), (MultimodalRegressor("prior"), Z)):
        refuses("9 rows of weight above 0", model.fit, X, y, sample_weight=weights)
    rare = np.flatnonzero(Y == "rare")
    weights = np.ones(FEW)
    weights[rare[1:]] = 0
    refuses(r"'rare' of .* 1 row", MultimodalClassifier("prior").fit, X, Y, sample_weight=weights)
    parts = pd.Series(np.where(np.arange(FEW) < 200, "train", "val"), name="part")
    frame = pd.concat([X, Y, WEIGHT.where(parts == "train", 0.0), parts], axis=1)
    spec = TableSpec(label="label", weight="w", split="part")
    refuses("'val' is missing", read_table, FrameRows(frame, None), spec)


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
    own = weighed(weight="w")
    for refit in (True, False):
        fitted = fit(own, "logistic", refit=refit)
        train, held = divisible(own).hold_out(0)
        rows = np.concatenate([train, held]) if refit else train
        shares = np.bincount(own.labels[rows], own.weights[rows], minlength=2) / own.weights[rows].sum()
        np.testing.assert_allclose(fitted.bundle.card.prior, shares)


class ByBrightness(PriorBaseline):
    """Says yes of bright images, with a probability of .8."""

    def predict_proba(self, X: Any) -> np.ndarray:
        bright = X["U"].decode().mean(axis=(1, 2, 3)) > 127
        yes = np.where(bright, 0.8, 0.2)
        return np.column_stack([1 - yes, yes])


def image(bright: bool) -> bytes:
    return encoded(Image.new("L", (16, 16), 220 if bright else 30))


@pytest.mark.parametrize(("right", "wrong", "helps"), [(1, 1, False), (50, 1, True), (1, 50, False)])
def test_by_what_rows_count_for(right: int, wrong: int, helps: bool) -> None:
    rng = np.random.default_rng(0)
    label, told = rng.random(FEW) < 0.5, rng.random(FEW) < 1 / 3
    frame = pd.DataFrame({"x": rng.normal(size=FEW), "w": np.where(told, float(right), float(wrong))})
    frame["label"] = np.where(label, "yes", "no")
    frame["photo"] = [image(each) for each in label == told]
    own = read_table(FrameRows(frame), TableSpec(label="label", weight="w", image=["photo"], size=16))
    fitted = TableFit(own, ByBrightness(), "brightness", refit=False, calibrate=False).run()
    assert fitted.images_help is helps

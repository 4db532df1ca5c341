"""Greedy weights against all weights; an ensemble of fits to folds, from files, and what it falls back to."""

import itertools
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.datasets import load_diabetes, load_wine

from tests.conftest import refuses, reloaded, rewritten
from tests.tables import one
from usboost.boosting.callbacks import Callback, TimeLimit
from usboost.errors import Unsuited
from usboost.evaluation.folds import inner_folds
from usboost.evaluation.metrics import row_losses
from usboost.fit.evaluate import WeightedRows
from usboost.fit.refit import refit
from usboost.models import persistence
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.baselines.packages import PriorBaseline, PriorBaselineRegressor
from usboost.models.baselines.trees import ForestBaseline, LightGBMBaseline, LightGBMBaselineRegressor
from usboost.models.methods.ensemble import EnsembleClassifier, EnsembleRegressor
from usboost.models.methods.fold_fits import FoldFits, Unseen, blended, in_time
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

X, Y = load_wine(return_X_y=True)
WINE = one(X)


def noisy() -> tuple:
    """Rows where a linear model and trees each know something."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 5))
    score = 1.5 * x[:, 0] + x[:, 3] + 3 * (x[:, 1] > 0.3) * (x[:, 2] > 0) + rng.normal(size=400)
    return one(x), (score > 1).astype(int)


NOISY, Z = noisy()


def members() -> dict:
    return {
        "linear": LinearBaseline(("S",)),
        "forest": ForestBaseline(("S",), n_trees=20),
        "lgbm": LightGBMBaseline(("S",), n_trees=30),
        "prior": PriorBaseline(),
    }


def logs(fit, x):
    """Return log p, and 0 has one, too."""
    return np.log(np.maximum(fit.predict_proba(x), 1e-300))


@pytest.mark.parametrize("seed", range(5))
def test_the_weights_are_nearly_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=300)
    predicted = {name: y + rng.normal(size=300) * scale for name, scale in (("a", 1), ("b", 1.2), ("c", 3))}
    found = Unseen(y).greedy_weights(predicted)
    assert sum(found.values()) == pytest.approx(1)
    loss = row_losses(y, blended(predicted, found)).mean()
    grid = (
        row_losses(y, blended(predicted, dict(zip("abc", (a, b, 1 - a - b), strict=True)))).mean()
        for a, b in itertools.product(np.linspace(0, 1, 51), repeat=2)
        if a + b <= 1
    )
    assert loss <= min(grid) * 1.005
    assert loss <= min(row_losses(y, each).mean() for each in predicted.values())


def test_what_each_adds_is_the_blend_without_it():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    predicted = {name: rng.dirichlet(np.ones(3), 200) * 0.5 + np.eye(3)[y] * 0.5 for name in "abc"}
    kept = Unseen(y).greedy_weights(predicted)
    found = Unseen(y).without_each(predicted, kept)
    assert set(found) == set(kept)
    for name, loss in found.items():
        others = {each: predicted[each] for each in predicted if each != name}
        assert loss == row_losses(y, blended(others, Unseen(y).greedy_weights(others))).mean()
        assert loss > row_losses(y, blended(predicted, kept)).mean()
    assert Unseen(y).without_each({"a": predicted["a"]}, {"a": 1.0}) == {}


def grown(
    fold_fits: dict[str, FoldFits], takes: dict[str, float], seconds: float, folds: int = 3
) -> list[str]:
    """The fits that there is time for, of members that take so many seconds each."""
    spent, order = [0.0], []
    for fold in range(folds):
        for name, most in in_time(fold_fits, fold, lambda: seconds - spent[0]):
            fold_fits[name].fits.append(name)
            fold_fits[name].seconds.append(min(takes[name], most) if order else takes[name])
            spent[0] += fold_fits[name].seconds[-1]
            order.append(f"{name}{fold}")
    assert order and (spent[0] <= seconds or len(order) == 1)
    return order


def fold_fits(names: str) -> dict[str, FoldFits]:
    return {name: FoldFits(None, lambda model, views: np.zeros(0), np.zeros(0)) for name in names}


@pytest.mark.parametrize(
    ("seconds", "order"),
    [
        (0.0, "a0"),
        (1.5, "a0"),  # the share of b is shorter than a
        (1000.0, "a0 b0 c0 a1 b1 c1 a2 b2 c2"),
        (40.0, "a0 b0 c0 a1 b1 a2 b2"),  # c is cut short, so that half of what is left stays
        (68.0, "a0 b0 c0 a1 b1 c1 a2 b2"),
    ],
)
def test_the_fits_that_there_is_time_for(seconds, order):
    assert grown(fold_fits("abc"), {"a": 1.0, "b": 5.0, "c": 25.0}, seconds) == order.split()


def test_equal_models_are_no_blend():
    y = np.random.default_rng(0).normal(size=100)
    same = y + 0.1
    assert Unseen(y).greedy_weights({"a": same, "b": same.copy()}) == {"a": 1.0}
    assert not Unseen(y).better_than_noise(same, same)


def test_classes(tmp_path):
    names = np.array(["red", "rose", "white"])[Y]
    model = EnsembleClassifier(members(), folds=3).fit(WINE, names)
    assert "prior" not in model.weights_ and sum(model.weights_.values()) == pytest.approx(1)
    found = model.predict_proba(WINE)
    assert np.allclose(found.sum(axis=1), 1) and (model.predict(WINE) == names).mean() > 0.97
    assert set(model.full_refits_) == set(model.weights_)
    expected = sum(
        weight * np.mean([logs(each, WINE) for each in model.fits_[name]], axis=0) / 2
        + weight * logs(model.full_refits_[name][0], WINE) / 2
        for name, weight in model.weights_.items()
    )
    np.testing.assert_allclose(found, softmax(expected, axis=1))
    assert model.members_["prior"].without is None
    assert row_losses(Y, model.out_of_fold_).mean() == pytest.approx(model.blend_loss_, rel=1e-12)
    held = inner_folds(Y, 3, 0)[0][1]
    seen = blended({m: logs(fits[0], WINE[held]) for m, fits in model.fits_.items()}, model.weights_)
    np.testing.assert_allclose(model.out_of_fold_[held], softmax(seen, axis=1))
    weighed = {name: each.weight for name, each in model.members_.items() if each.weight}
    assert weighed == model.weights_ and model.blend_loss_ <= min(model.losses_.values())
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(WINE), found)
    assert again.members_ == model.members_ and again.blend_loss_ == model.blend_loss_
    on_disk = sum(file.stat().st_size for file in (tmp_path / "model").glob("m*/**/*") if file.is_file())
    assert 0 < sum(again.bytes_.values()) <= on_disk and set(again.bytes_) == set(model.weights_)


class Slow(Callback):
    """Makes each round last."""

    def on_round(self, round_):
        time.sleep(0.05)
        return False


def test_a_member_far_behind_is_fitted_to_one_fold_alone(tmp_path):
    linear = LinearBaseline(("S",))
    model = EnsembleClassifier({"prior": PriorBaseline(), "linear": linear, "again": linear}, folds=3)
    model.fit(WINE, Y)
    assert {name: each.fits for name, each in model.members_.items()} == {"prior": 1, "linear": 3, "again": 3}
    assert model.weights_ == {"linear": 1.0} and set(model.losses_) == {"linear", "again"}
    assert model.members_["prior"].left_out == "it adds nothing to the others on the first fold's rows"
    persistence.save(model, tmp_path / "model")
    assert persistence.load(tmp_path / "model").members_ == model.members_


def test_no_fold_is_fitted_once_enough_rows_are_held_out(monkeypatch):
    """Rows of the other folds have no prediction of a fit that did not see them."""
    held = [rows for _, rows in inner_folds(Z, 5, 0)]
    for enough, folds in ((1, 3), (240, 3), (241, 4), (400, 5), (401, 5)):
        monkeypatch.setattr("usboost.models.methods.ensemble.ENOUGH", enough)
        model = EnsembleClassifier(several(), folds=5).fit(NOISY, Z)
        assert {len(fits) for fits in model.fits_.values()} == {folds}
        known = np.flatnonzero(~np.isnan(model.out_of_fold_[:, 0]))
        np.testing.assert_array_equal(known, np.sort(np.concatenate(held[:folds])))
        assert row_losses(Z[known], model.out_of_fold_[known]).mean() == pytest.approx(model.blend_loss_)


def test_of_many_rows_there_is_one_fold_and_one_fit_to_all(monkeypatch, tmp_path):
    first = len(inner_folds(Z, 3, 0)[0][1])
    for plenty, folds in ((first, 1), (first + 1, 3)):
        monkeypatch.setattr("usboost.models.methods.ensemble.PLENTY", plenty)
        model = EnsembleClassifier({"lgbm": several()["lgbm"]}, folds=3, repeats=3).fit(NOISY, Z)
        assert folds == len(model.full_refits_["lgbm"]) == model.members_["lgbm"].fits
        # a single fold's fit knows fewer rows than that to all, which answers alone
        assert len(model.fits_["lgbm"]) == (folds if folds > 1 else 0)
        persistence.save(model, tmp_path / f"{folds}")
        expected = model.predict_proba(NOISY)
        np.testing.assert_array_equal(persistence.load(tmp_path / f"{folds}").predict_proba(NOISY), expected)
        if folds == 1:
            alone = model.full_refits_["lgbm"][0].predict_proba(NOISY)
            np.testing.assert_allclose(expected, alone, rtol=1e-12)


def test_time_is_shared_and_never_overrun_by_more_than_a_round():
    slow = LightGBMBaseline(("S",), n_trees=300, patience=300)
    quick_first = {"linear": LinearBaseline(("S",)), "lgbm": slow}
    model = EnsembleClassifier(quick_first, folds=5, callbacks=[Slow(), TimeLimit(6)])
    began = time.monotonic()
    model.fit(WINE, Y)
    assert time.monotonic() - began < 12  # of all that there is to fit it would be a minute
    linear, lgbm = model.members_["linear"], model.members_["lgbm"]
    assert lgbm.cut and 1 <= lgbm.fits < 5 and not linear.cut and linear.fits >= lgbm.fits
    assert np.isfinite(model.predict_proba(WINE)).all()
    short = EnsembleClassifier(quick_first, folds=5, callbacks=[TimeLimit(0)]).fit(WINE, Y)
    assert short.weights_ == {"linear": 1.0} and len(short.fits_["linear"]) == 1
    assert short.members_["lgbm"].fits == 0 and short.members_["lgbm"].loss is None
    assert not short.full_refits_ and set(model.full_refits_) <= set(model.weights_)


def test_a_class_of_one_row_is_always_fitted_to():
    x, y = load_wine(return_X_y=True)
    y = y.copy()
    y[5] = 3
    model = EnsembleClassifier({"linear": LinearBaseline(("S",)), "prior": PriorBaseline()}, folds=4)
    assert model.fit(one(x), y).predict_proba(one(x)).shape == (178, 4)


def test_no_fit_sees_the_rows_it_is_judged_by():
    """Labels that mean nothing: what is told of them comes from rows that were fitted to, were there any."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 4)), rng.integers(0, 2, 300)
    model = EnsembleClassifier({"forest": ForestBaseline(("S",), n_trees=30, leaf_sizes=(1,))}, folds=5)
    assert model.fit(one(x), y).losses_["forest"] > 0.6


def test_members_that_are_kept_are_fitted_to_all_rows_as_far_as_their_folds_went():
    both = {"lgbm": LightGBMBaseline(("S",), n_trees=200, patience=5), "linear": LinearBaseline(("S",))}
    model = EnsembleClassifier(both, folds=3).fit(WINE, Y)
    assert model.n_estimators_ == sum(3 + 1 for _ in model.weights_)
    for name in model.weights_:
        middle = sorted(each.best_round_ for each in model.fits_[name])[1]
        alone = next(fit for fit in model.fits_[name] if fit.best_round_ == middle).for_all_rows()
        expected = alone.fit(WINE, Y).predict_proba(WINE)
        (whole,) = model.full_refits_[name]
        np.testing.assert_array_equal(whole.predict_proba(WINE), expected)
        assert model.members_[name].full_refits == 1 and model.members_[name].fits == 3


def several() -> dict:
    """One that draws columns, and one that draws nothing."""
    return {
        "lgbm": LightGBMBaseline(("S",), n_trees=60, patience=5, feature_fraction=0.5),
        "linear": LinearBaseline(("S",)),
    }


def test_several_fits_to_all_rows_have_seeds_of_their_own(tmp_path):
    model = EnsembleClassifier(several(), folds=3, repeats=3, checkpoint=tmp_path / "kept").fit(NOISY, Z)
    assert set(model.weights_) == {"lgbm", "linear"}  # else this test tests nothing
    assert {name: len(fits) for name, fits in model.full_refits_.items()} == {"lgbm": 3, "linear": 1}
    assert {name: each.full_refits for name, each in model.members_.items()} == {"lgbm": 3, "linear": 1}
    assert model.n_estimators_ == 3 + 3 + 3 + 1
    typical = sorted(model.fits_["lgbm"], key=lambda fit: fit.best_round_)[1]
    drawn = []
    for k, whole in enumerate(model.full_refits_["lgbm"]):
        alone = typical.for_all_rows().set_params(random_state=1000 * k).fit(NOISY, Z)
        drawn.append(whole.predict_proba(NOISY))
        np.testing.assert_array_equal(drawn[-1], alone.predict_proba(NOISY))
    assert not np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[1], drawn[2])
    parts = {
        "lgbm": np.mean([logs(fit, NOISY) for fit in model.fits_["lgbm"]], axis=0) / 4
        + np.log(drawn).sum(axis=0) / 4,
        "linear": np.mean([logs(fit, NOISY) for fit in model.fits_["linear"]], axis=0) / 2
        + logs(model.full_refits_["linear"][0], NOISY) / 2,
    }
    found = model.predict_proba(NOISY)
    np.testing.assert_allclose(found, softmax(blended(parts, model.weights_), axis=1))
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(NOISY), found)
    assert again.members_ == model.members_ and again.n_estimators_ == 10
    # members that were fitted before a kill come from their files, and can be fitted again
    resumed = EnsembleClassifier(several(), folds=3, repeats=3, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(resumed.fit(NOISY, Z).predict_proba(NOISY), found)


def test_further_fits_to_all_rows_wait_for_the_first_of_every_member():
    """Six fits are let go to their end: two folds of both members, and one to all rows of each."""
    model = EnsembleClassifier(several(), folds=2, repeats=2, callbacks=[StopLast(2 * 2 + 2)])
    model.fit(NOISY, Z)
    assert {name: len(fits) for name, fits in model.full_refits_.items()} == {"lgbm": 1, "linear": 1}


class Left(Callback):
    """A limit of time with so many seconds left, always."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def time_left(self):
        return self.seconds


def test_further_fits_to_all_rows_leave_time_to_write_the_model(monkeypatch):
    monkeypatch.setattr("usboost.models.methods.ensemble.SPARE", 1e6)
    model = EnsembleClassifier(several(), folds=2, repeats=2, callbacks=[Left(100.0)]).fit(NOISY, Z)
    assert {name: len(fits) for name, fits in model.full_refits_.items()} == {"lgbm": 1, "linear": 1}
    monkeypatch.setattr("usboost.models.methods.ensemble.SPARE", 0.0)
    model = EnsembleClassifier(several(), folds=2, repeats=2, callbacks=[Left(100.0)]).fit(NOISY, Z)
    assert {name: len(fits) for name, fits in model.full_refits_.items()} == {"lgbm": 2, "linear": 1}


@pytest.mark.parametrize("gone", ["whole", "members", "bytes"])
def test_a_file_that_says_less_is_refused(gone, tmp_path):
    persistence.save(EnsembleClassifier(several(), folds=2).fit(NOISY, Z), tmp_path / "model")
    with rewritten(tmp_path / "model/model.json") as document:
        assert document["whole"] == {"lgbm": 1, "linear": 1}
        del document[gone]
    refuses(f"is not a usboost model: KeyError\\('{gone}'\\)", persistence.load, tmp_path / "model")


class ForFewRows(LinearBaseline):
    """Is made for 130 rows at most, as packages are for so many."""

    def _fit(self, views, y, context):
        if len(y) > 130:
            raise Unsuited("it takes up to 130 rows")
        super()._fit(views, y, context)


def test_time_for_all_rows_is_by_the_rows_of_the_last_fit():
    """Of fits by time the last one has half of the rows."""
    each = FoldFits(
        None, None, np.zeros(1000), fits=[None] * 5, rows=[900, 800, 700, 600, 500], seconds=[1.0] * 5
    )
    assert each.takes_whole(1000) == 2.0 and FoldFits(None, None, np.zeros(9)).takes_whole(1000) == 0.0


def test_fewer_rows_than_folds():
    rows = [0, 1, 100, 177]
    model = EnsembleRegressor({"prior": PriorBaselineRegressor()}, folds=5).fit(WINE[rows], Y[rows] * 1.0)
    assert len(model.fits_["prior"]) == 4
    refuses("one row only", EnsembleRegressor({"prior": PriorBaselineRegressor()}).fit, WINE[:1], Y[:1] * 1.0)


def test_fits_to_other_rows_too_are_added_later():
    names, rows = np.array(["red", "rose", "white"])[Y], np.arange(0, len(Y), 2)
    model = EnsembleClassifier(members(), folds=3, refit_full=False).fit(WINE[rows], names[rows])
    weights, found = dict(model.weights_), model.predict_proba(WINE)
    assert not model.full_refits_ and not any(each.full_refits for each in model.members_.values())
    assert model.add_full_refits(WINE, names) and model.refit_full
    assert model.weights_ == weights
    name = next(iter(weights))
    assert set(model.full_refits_) == set(weights) and all(model.members_[m].full_refits for m in weights)
    (added,) = model.full_refits_[name]
    halves = sum(w * logs(model.full_refits_[m][0], WINE) for m, w in weights.items())
    expected = softmax((np.log(found) + halves) / 2, axis=1)
    np.testing.assert_allclose(model.predict_proba(WINE), expected, rtol=1e-5, atol=1e-12)
    again = sorted(model.fits_[name], key=lambda fit: fit.best_round_)[1].for_all_rows()
    again.fit(WINE, Y)
    np.testing.assert_array_equal(added.predict_proba(WINE), again.predict_proba(WINE))
    refuses("refit_full=False", model.add_full_refits, WINE, names)


def test_a_member_that_is_not_made_for_all_rows_keeps_its_folds():
    model = EnsembleClassifier({"few": ForFewRows(("S",)), "prior": PriorBaseline()}, folds=3)
    model.fit(WINE, Y)
    assert not model.full_refits_ and model.n_estimators_ == 3 and not model.members_["few"].full_refits


def test_a_fit_to_more_rows_than_a_model_is_made_for_leaves_the_one_before():
    rows = np.random.default_rng(0).permutation(len(Y))[:100]
    model = EnsembleClassifier({"few": ForFewRows(("S",))}, folds=3, refit_full=False)
    found = model.fit(WINE[rows], Y[rows]).predict_proba(WINE)
    assert not model.add_full_refits(WINE, Y) and not model.refit_full
    np.testing.assert_array_equal(model.predict_proba(WINE), found)
    table = read_table(FrameRows(pd.DataFrame(X).rename(columns=str).assign(y=Y)), TableSpec(label="y"))
    others = np.setdiff1d(np.arange(len(Y)), rows)
    encoding = table.fit_encoding(rows)
    single = ForFewRows(("S",)).fit(table.views(encoding, rows), table.labels[rows])
    parts = WeightedRows(rows, None, None), WeightedRows(others, None, None)
    assert refit(single, table, parts, encoding, 1.0, wanted=None) is None
    with pytest.raises(Unsuited, match="up to 130 rows"):
        refit(single, table, parts, encoding, 1.0, wanted=True)


class StopLast(Callback):
    """Asks the fit after so many to stop in its second round."""

    def __init__(self, fits: int) -> None:
        self.left = fits

    def on_fit_begin(self, fit):
        self.left -= 1

    def on_round(self, round_):
        return self.left < 0 and round_.index == 2


def test_a_fit_to_all_rows_that_is_asked_to_stop_is_left_out():
    one = {"lgbm": LightGBMBaseline(("S",), n_trees=60)}
    folds = EnsembleClassifier(one, folds=3, callbacks=[StopLast(3)]).fit(WINE, Y)
    assert not folds.full_refits_ and folds.n_estimators_ == 3 and not folds.members_["lgbm"].full_refits
    assert EnsembleClassifier(one, folds=3, callbacks=[StopLast(4)]).fit(WINE, Y).full_refits_


def test_a_fit_to_all_rows_chooses_nothing():
    """Labels that mean nothing and a model that learns them by heart: no loss tells of this fit."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 4)), rng.integers(0, 2, 300)
    by_heart = {"forest": ForestBaseline(("S",), n_trees=30, leaf_sizes=(1,)), "prior": PriorBaseline()}
    model = EnsembleClassifier(by_heart, folds=5).fit(one(x), y)
    assert model.weights_.get("forest", 0.0) < 0.3 and model.blend_loss_ > 0.69


def test_numbers(tmp_path):
    x, y = load_diabetes(return_X_y=True)
    both = {"ridge": RidgeBaseline(("S",)), "lgbm": LightGBMBaselineRegressor(("S",), n_trees=60)}
    train, test = np.arange(len(y)) % 4 > 0, np.arange(len(y)) % 4 == 0
    model = EnsembleRegressor(both, folds=3).fit(one(x[train]), y[train])
    assert model.score(one(x[test]), y[test]) > 0.4
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict(one(x[test])), model.predict(one(x[test])))


def test_a_changed_file_of_a_member_is_seen(tmp_path: Path):
    persistence.save(EnsembleClassifier(members(), folds=2).fit(WINE, Y), tmp_path / "model")
    path = tmp_path / "model/model.json"
    document = json.loads(path.read_text())
    for change in ({"linear": 0.5}, {"linear": -1.0, "forest": 2.0}, {"gone": 1.0}):
        path.write_text(json.dumps({**document, "weights": change}))
        refuses("weights are not those of its members", persistence.load, tmp_path / "model")
    path.write_text(json.dumps(document))
    part = next((tmp_path / "model").glob("m0-0/*.safetensors"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    refuses(".", persistence.load, tmp_path / "model")

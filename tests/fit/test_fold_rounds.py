"""Of few rows folds say how far a model goes, how probabilities are tempered, and how good it is."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from tests.fit.conftest import numbers, table_of
from tests.leaks.probes import spoiled_table, training
from usboost.boosting.callbacks import Callback, TimeLimit
from usboost.evaluation.intervals import UNKNOWN, ends
from usboost.evaluation.ranking import number
from usboost.fit import refit as refits
from usboost.fit.build import build, fit
from usboost.fit.bundle import load
from usboost.fit.evaluate import FitData, WeightedRows
from usboost.fit.refit import FoldsResult, by_folds, choose_rounds, round_folds
from usboost.report.members import members_table
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table


def numbers_to_predict(n: int = 140, noise: float = 0.3, curved: float = 1.0, seed: int = 0) -> UserTable:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    frame["y"] = frame["a"] - frame["b"] + curved * np.abs(frame["c"]) * 2 + noise * rng.normal(size=n)
    return read_table(FrameRows(frame), TableSpec(label="y"))


def started(table: UserTable, seed: int = 0, rounds: int = 30) -> Any:
    """As `fit` builds the model, fitted so far that it has settings of its own."""
    model = build("linear_trees", images=False, seed=seed, rounds=rounds, task=table.task)
    everything = np.arange(len(table))
    encoding = table.fit_encoding(everything)
    views = table.views(encoding, everything)
    return model.fit(views, table.labels, (views, table.labels))


def everything_of(table: UserTable) -> WeightedRows:
    return WeightedRows(np.arange(len(table)), table.weights, table.weights)


def chosen(table: UserTable, model: Any) -> FoldsResult:
    found = choose_rounds(table, everything_of(table), model, 0, ())
    assert found is not None
    return found


def folds_of(table: UserTable) -> list[tuple[FitData, np.ndarray]]:
    """Each fold, and the rows that it leaves out."""
    return list(zip(*round_folds(table, everything_of(table), 0), strict=True))


@pytest.mark.parametrize("make", [lambda: table_of(150), numbers_to_predict])
def test_the_rounds_are_the_best_of_fits_of_every_length(make: Any) -> None:
    table = make()
    found = chosen(table, started(table, rounds=3))
    assert found.model.n_rounds == found.best_round_

    def loss(length: int) -> float:
        losses = []
        for fold, _ in folds_of(table):
            model = found.model.unfitted().set_params(n_rounds=length)
            if not table.classes:  # each fold's own, by its leave-one-out error
                model.set_params(start=unfitted_start(table))
            model.fit(*fold.train[:2])
            views, labels, _ = fold.test
            if table.classes:
                losses.append(-np.log(model.predict_proba(views)[np.arange(len(labels)), labels]))
            else:
                losses.append(np.square((model.predict(views) - labels) / model.target_scale_))
        return float(np.concatenate(losses).mean())

    losses = [loss(length) for length in range(len(found.history_) + 1)]
    assert found.best_round_ == int(np.argmin(losses)) and len(losses) == 4
    scale = losses[1] / found.history_[0]["risk_val"]  # half the squared error, say
    np.testing.assert_allclose([row["risk_val"] * scale for row in found.history_], losses[1:], rtol=1e-5)


def unfitted_start(table: UserTable) -> Any:
    return build("linear_trees", images=False, task=table.task).start


def test_what_is_predicted_of_each_row_is_by_a_fit_without_it() -> None:
    table = numbers_to_predict()
    found = chosen(table, started(table))
    np.testing.assert_array_equal(found.rows.rows, np.arange(len(table)))
    fold, held = folds_of(table)[2]
    model = found.model.unfitted().set_params(start=unfitted_start(table)).fit(*fold.train[:2])
    np.testing.assert_allclose(found.predicted[held], model.predict(fold.test[0]))


def test_a_start_alone_may_be_best_and_is_saved(tmp_path: Any) -> None:
    table = numbers_to_predict(noise=2.0, curved=0.0, n=90, seed=1)
    fitted = fit(table, "linear_trees")
    model = fitted.bundle.model
    assert fitted.best_round == 0 == model.best_round_ == model.n_estimators_ == len(model.stages_)
    rows = np.arange(len(table))
    views = table.views(table.fit_encoding(rows), rows)
    np.testing.assert_allclose(model._f(views), model.start_.scores(views))
    fitted.bundle.save(tmp_path / "model")
    again = load(tmp_path / "model").model
    np.testing.assert_array_equal(again.predict(views), model.predict(views))


def test_scores_and_margins_are_of_all_rows() -> None:
    table = numbers_to_predict()
    fitted = fit(table, "linear_trees")
    assert (fitted.judged, fitted.folds, fitted.rows, fitted.again) == (140, 5, (119, 21), True)
    residual = table.labels - fitted.predicted
    assert fitted.scores["rmse"] == pytest.approx(float(np.sqrt(np.mean(residual**2))))
    low, high = ends(fitted.predicted, fitted.bundle.card.margin or UNKNOWN, None)
    assert np.mean((table.labels >= low) & (table.labels <= high)) == pytest.approx(0.9, abs=0.02)
    assert len(fitted.bundle.card.history["round"]) >= fitted.best_round


def test_members_losses_are_in_the_unit_of_the_fits_that_they_judged() -> None:
    fitted = fit(numbers_to_predict(), "average", rounds=4, settings={"members__forest__n_trees": 20})
    model, rmse = fitted.bundle.model, fitted.scores["rmse"]
    shown = {row["member"]: row["loss"] for row in members_table(model, rmse)[1]}
    losses = {**model.losses_, "blend": model.blend_loss_}
    assert shown == {name: number(rmse * (loss / losses["blend"]) ** 0.5) for name, loss in losses.items()}


@pytest.mark.parametrize("unlike", ["refit", "rows", "network", "split"])
def test_only_where_it_is_quick_and_asked_for(unlike: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, name, refit = table_of(150), "linear_trees", None
    if unlike == "refit":
        refit = False
    elif unlike == "rows":
        monkeypatch.setattr(refits, "FEW", 150)
    elif unlike == "network":
        name = "2wl"
    else:
        parts = np.array(["train", "val"])[(np.arange(150) % 5 == 0).astype(int)]
        spec = TableSpec(label="kind", split="part")
        table = read_table(FrameRows(numbers(150).assign(part=parts)), spec)
    fitted = fit(table, name, rounds=3, refit=refit)
    assert fitted.folds == 0 and fitted.judged == fitted.rows[1] < 40
    assert by_folds(started(table_of(150)), table_of(150), 149)


@pytest.mark.parametrize(("n", "share", "by"), [(3000, 0.02, True), (3000, 0.2, False), (12000, 0.01, False)])
def test_folds_choose_where_nearly_all_rows_are_of_one_class(n: int, share: float, by: bool) -> None:
    y = np.where(np.arange(n) % round(1 / share), "well", "ill")
    table = read_table(FrameRows(pd.DataFrame({"x": np.arange(n) * 7 % 11, "y": y})), TableSpec("y"))
    assert by_folds(started(table_of(150)), table, n) == by


@pytest.mark.parametrize("role", ["group", "time"])
def test_folds_keep_groups_and_the_order_of_time(role: str) -> None:
    of, of_role = np.random.default_rng(0).integers(0, 30, 150), dict[str, Any]({role: "of"})
    frame = numbers(150).assign(of=of if role == "time" else [f"g{k}" for k in of])
    table = read_table(FrameRows(frame), TableSpec(label="kind", **of_role))
    folds = folds_of(table)
    assert len(folds) > 2
    for fold, places in folds:
        held = of[places]
        seen = [k for k in range(150) if _is_in(fold.train[0], table, k, fold)]
        assert seen
        if role == "group":
            assert not set(held) & set(of[seen])
        else:
            assert of[seen].max() < held.min()
    held = np.concatenate([places for _, places in folds])
    assert len(np.unique(held)) == len(held) == 150 if role == "group" else 60 < len(held) < 90


def _is_in(views: Any, table: UserTable, row: int, fold: Any) -> bool:
    """Whether a row is among those that a fold fits to, by its group or time."""
    kept = fold.related.groups if fold.related.groups is not None else fold.related.times
    own = table.groups if table.groups is not None else table.times
    assert own is not None and len(kept) == len(fold.train[1])
    return bool((kept == own[row]).any())


def test_no_fit_sees_the_rows_of_its_fold_and_no_encoder() -> None:
    table = table_of(90, words=[f"number {k} is {k % 7}" for k in range(90)])
    model = started(table, rounds=3).set_params(start__penalties=(0.1,), patience=None)
    places = folds_of(table)[1][1]
    others = np.setdiff1d(np.arange(90), places)[:12]

    def fitted(rows: np.ndarray) -> tuple[Any, np.ndarray, dict[str, float]]:
        fold, _ = folds_of(spoiled_table(table, rows))[1]
        found = model.unfitted().fit(*fold.train[:2], fold.test[:2])
        return fold.train[0]["S"].numeric, training(found), found.before_

    clean, forbidden, allowed = fitted(places[:0]), fitted(places), fitted(others)
    np.testing.assert_array_equal(clean[0], forbidden[0])  # encoders: medians, scales, words
    np.testing.assert_array_equal(clean[1], forbidden[1])
    assert clean[2] != forbidden[2]  # the rows left out do judge
    assert clean[0].shape != allowed[0].shape or (clean[0] != allowed[0]).any()
    assert (clean[1] != allowed[1]).any()


class StopsAfter(Callback):
    """Asks every fit but the first ones to stop after its first round."""

    def __init__(self, most: int) -> None:
        self.fits, self.most = 0, most

    def on_fit_begin(self, fit: Any) -> None:
        self.fits += 1

    def on_round(self, round_: Any) -> bool:
        return self.fits > self.most


@pytest.mark.parametrize(
    ("name", "fits"), [("linear_trees", 1), ("average", 3), ("average", 9), ("average", 19)]
)
def test_a_later_fit_that_is_stopped_leaves_the_first(name: str, fits: int) -> None:
    few = {"members__forest__n_trees": 20} if name == "average" else {}
    fitted = fit(numbers_to_predict(), name, rounds=4, callbacks=[StopsAfter(fits)], settings=few)
    alone = fit(numbers_to_predict(), name, rounds=4, refit=False, settings=few)
    assert fitted.folds == 0 and not fitted.again and fitted.scores == alone.scores
    model, other = fitted.bundle.model, alone.bundle.model
    assert fitted.best_round == model.best_round_ == other.best_round_
    assert getattr(model, "weights_", None) == getattr(other, "weights_", None)


def test_an_average_is_of_rows_that_its_fits_did_not_see() -> None:
    table = table_of(150, 3)
    everything = np.arange(len(table))
    views = table.views(table.fit_encoding(everything), everything)
    few = {"members__forest__n_trees": 20}
    model = build("average", images=False, rounds=4, settings=few).fit(views, table.labels)
    found = chosen(table, model)
    weights = found.model.weights
    assert set(found.model.members) == set(weights) and set(model.weights_.values()) == {1 / 3} != set(
        weights.values()
    )
    fold, held = folds_of(table)[1]
    logs = sum(
        weight * np.log(clone(found.model.members[name]).fit(*fold.train[:2]).predict_proba(fold.test[0]))
        for name, weight in weights.items()
    )
    expected = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.predicted[held], expected, rtol=1e-6)
    loss = -np.log(found.predicted[everything, table.labels]).mean()
    assert found.model._before[1] == pytest.approx(loss)


def test_a_limit_of_time_that_leaves_none_for_folds() -> None:
    slow = fit(numbers_to_predict(), "linear_trees", callbacks=[TimeLimit(0.0)])
    assert slow.folds == 0 and not slow.again
    quick = fit(numbers_to_predict(), "linear_trees", callbacks=[TimeLimit(300.0)])
    assert quick.folds == 5 and quick.again


def test_weights_count_in_the_mean_over_folds() -> None:
    frame = numbers(150).assign(w=np.repeat([1.0, 9.0], 75))
    table = read_table(FrameRows(frame), TableSpec(label="kind", weight="w"))
    model = started(table)
    folds = [fold for fold, _ in folds_of(table)]
    two_rounds = model.unfitted().set_params(patience=None, n_rounds=2)
    fits = refits.fit_folds(two_rounds, folds, refits.StopRecorder(()))
    found = refits.means(fits, folds)
    weights = [0.0 if fold.test[2] is None else float(fold.test[2].sum()) for fold in folds]
    wanted = np.average([fit.history_[1]["risk_val"] for fit in fits], weights=weights)
    assert found[2]["risk_val"] == pytest.approx(wanted)
    assert table.weights is not None and sum(weights) == pytest.approx(table.weights.sum())

"""Nothing inside a fit sees across a group, or is judged by rows that are not later."""

from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.svm import LinearSVC

from usboost import BoostedFeatures, Table, TreeLearner, Views
from usboost.errors import Unsuited, UsboostError
from usboost.evaluation.folds import Related
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.baselines.packages import PriorBaseline, PriorBaselineRegressor, ScikitBaseline
from usboost.models.baselines.trees import ForestBaseline, LightGBMBaseline
from usboost.models.methods.ensemble import EnsembleClassifier, EnsembleRegressor
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor


class _Noting:
    """Notes rows that it is fitted to and stopped on, by the first column, and how they are related."""

    noted: ClassVar[list[tuple[np.ndarray, np.ndarray, dict[str, Any]]]] = []

    def fit(self, X, y, validation=None, sample_weight=None, **related):
        held = np.zeros(0) if validation is None else validation[0]["S"].numeric[:, 0]
        self.noted.append((X["S"].numeric[:, 0].astype(int), held.astype(int), related))
        return super().fit(X, y, validation, sample_weight, **related)  # type: ignore[misc]


class NotingClassifier(_Noting, PriorBaseline):
    pass


class PriorNotingRegressor(_Noting, PriorBaselineRegressor):
    pass


@pytest.fixture
def noted():
    _Noting.noted.clear()
    return _Noting.noted


N = 60
ROWS = Views(S=Table.from_numeric(np.arange(N, dtype=np.float32)[:, None]))
GROUPS = np.random.default_rng(1).integers(0, 12, N)
LABELS = np.arange(N) % 3


@pytest.mark.parametrize("key", ["groups", "times"])
def test_an_ensembles_fits_and_the_fits_inside_them(noted, key):
    inner = EnsembleClassifier({"a": NotingClassifier()}, folds=2, refit_full=False)
    members = {"one": NotingClassifier(), "two": inner}
    model = EnsembleClassifier(members, folds=4, refit_full=False).fit(ROWS, LABELS, **{key: GROUPS})
    assert len(noted) == 12 and model.n_estimators_ in (4, 8)
    for train, held, related in noted:
        assert len(train) and len(held)
        # positions stay with their rows, so that a fit further inside divides them as well
        assert (_names(related[key]) == _names(GROUPS[train])).all()
        if key == "groups":
            assert not set(GROUPS[train]) & set(GROUPS[held])
        else:
            assert GROUPS[train].max() < GROUPS[held].min()


def _names(groups: np.ndarray) -> np.ndarray:
    """Whether each two rows are of one group, or in what order: what counts of groups' names."""
    return groups[:, None] == groups


def test_rows_of_no_weight_and_the_fit_to_all_rows(noted):
    weights = (np.arange(N) % 5 > 0).astype(float)
    model = EnsembleRegressor({"one": PriorNotingRegressor()}, folds=3)
    model.fit(ROWS, LABELS + 0.5, None, weights, groups=GROUPS)
    counted = np.flatnonzero(weights)
    assert len(noted) == 4 and np.array_equal(noted[-1][0], counted)
    for train, held, related in noted:
        assert not set(GROUPS[train]) & set(GROUPS[held]) and set(train) <= set(counted)
        assert (_names(related["groups"]) == _names(GROUPS[train])).all()


def test_samples_that_a_model_sets_aside(noted):
    class SetsAside(PriorBaseline):
        def _fit(self, views, codes, context):
            held, _ = context.validation
            noted.append([each["S"].numeric[:, 0].astype(int) for each in (views, held)])
            super()._fit(views, codes, context)

    for times, groups in ((None, GROUPS), (GROUPS, None)):
        SetsAside(validation_fraction=0.3).fit(ROWS, LABELS, groups=groups, times=times)
    (first, second) = noted
    assert not set(GROUPS[first[0]]) & set(GROUPS[first[1]])
    assert GROUPS[second[0]].max() < GROUPS[second[1]].min()


def leaking(n_groups: int = 40, size: int = 8) -> tuple[Views, np.ndarray, np.ndarray]:
    """Rows whose columns tell their group, and whose label is the group's, drawn by chance."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(n_groups), size)
    x = rng.normal(size=(n_groups, 60))[groups] + 0.01 * rng.normal(size=(len(groups), 60))
    return Views(S=Table.from_numeric(x.astype(np.float32))), rng.permutation(n_groups)[groups] % 2, groups


def test_an_ensemble_is_not_good_at_groups_that_it_has_not_seen():
    views, y, groups = leaking()
    members = {
        "forest": ForestBaseline(("S",), n_trees=20),
        "lgbm": LightGBMBaseline(("S",), n_trees=30),
        "prior": PriorBaseline(),
    }
    by_rows = EnsembleClassifier(members, folds=3).fit(views, y)
    assert by_rows.blend_loss_ < 0.05  # which no new group would show
    by_groups = EnsembleClassifier(members, folds=3).fit(views, y, groups=groups)
    assert by_groups.blend_loss_ > 0.6 and min(by_groups.losses_.values()) > 0.6


def test_what_boosting_starts_from_is_not_good_at_groups_that_it_has_not_seen():
    views, y, groups = leaking()
    related = Related(groups=groups)
    linear = LinearBaseline(("S",), penalties=(1e-3,), validation_fraction=0).fit(views, y)
    losses = [linear.losses(linear.out_of_fold(views, y, None, each), y).mean() for each in (None, related)]
    assert losses[0] < 0.1 and losses[1] > 0.6
    numbers = y + 0.01 * np.random.default_rng(1).normal(size=len(y))
    ridge = RidgeBaseline(("S",)).fit(views, numbers)
    grouped = RidgeBaseline(("S",)).fit(views, numbers, groups=groups)
    assert ridge.history_[0]["risk_train"] < 0.1 and grouped.history_[0]["risk_train"] > 0.6
    assert grouped.penalty_ > 10 * ridge.penalty_
    for model, start, target in (
        (TwoWeakLearnerClassifier, LinearBaseline(("S",), penalties=(1e-3,)), y),
        (TwoWeakLearnerRegressor, RidgeBaseline(("S",), penalties=(1e-3,)), numbers),
    ):
        trees = {"S": TreeLearner(max_depth=1)}
        one = model(trees, start=start, n_rounds=1, validation_fraction=0, patience=None, shrinkage=1e-6)
        risks = [one.fit(views, target, groups=each).history_[0]["risk_train"] for each in (None, groups)]
        assert risks[1] > 3 * risks[0]
    chooses = TwoWeakLearnerRegressor(trees, start=RidgeBaseline(("S",)), n_rounds=1, validation_fraction=0)
    for given, expected in ((None, ridge), (groups, grouped)):
        found = chooses.fit(views, numbers, groups=given).start_.penalty_
        assert found == pytest.approx(expected.penalty_, rel=1e-6)


@pytest.mark.parametrize("key", ["groups", "times"])
def test_ridge_regressions_of_related_rows_by_hand(key):
    rng = np.random.default_rng(3)
    groups, x = rng.integers(0, 9, 80), rng.normal(size=(80, 5)).astype(np.float32)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y = (x[:, 0] + rng.normal(size=80)).astype(float)
    y = (y - y.mean()) / y.std()
    weights = rng.integers(1, 4, 80).astype(float)
    related, views = Related(**{key: groups}), Views(S=Table.from_numeric(x))
    penalties = (10.0, 1.0, 0.1, 0.01)
    model = RidgeBaseline(("S",), penalties, random_state=4).fit(views, y, None, weights, **{key: groups})
    read, centred = model._rows(views), (y - model.target_centre_) / model.target_scale_

    def fitted(seen: np.ndarray, penalty: float) -> Ridge:
        own = weights[seen]
        mean = np.average(read[seen], axis=0, weights=own)
        scale = (own @ np.square(read[seen] - mean)).sum() / 5
        return Ridge(penalty * scale).fit(read[seen], centred[seen], own)

    risks = []
    for penalty in penalties:
        wrong = [
            (weights[held], np.square(fitted(seen, penalty).predict(read[held]) - centred[held]))
            for seen, held in related.folds(5, y, 4)
        ]
        own, squares = map(np.concatenate, zip(*wrong))
        risks.append(np.average(squares, weights=own))
    assert model.penalty_ == pytest.approx(penalties[int(np.argmin(risks))])
    assert model.history_[0]["risk_train"] == pytest.approx(min(risks), rel=1e-4)
    part = related.parts(5, y, 4)
    found = model.out_of_fold(views, centred, weights, related)[:, 0]
    for k in range(5):
        expected = fitted(part != k, model.penalty_).predict(read[part == k])
        np.testing.assert_allclose(found[part == k], expected, atol=1e-4)
    again = model.for_all_rows().fit(views, y, None, weights, **{key: groups})
    np.testing.assert_allclose(again.predict(views), model.predict(views), rtol=1e-6)


def test_boosted_features_of_other_groups():
    views, y, groups = leaking(12, 10)
    seen = np.zeros(len(y), dtype=int)
    for rows, _ in BoostedFeatures(n_trees=5).out_of_fold(views["S"], y, 3, related=Related(groups=groups)):
        assert not set(groups[rows]) & set(np.delete(groups, rows))
        seen[rows] += 1
    assert (seen == 1).all()
    with pytest.raises(UsboostError, match="a class is in one part of the rows only"):
        list(BoostedFeatures(n_trees=5).out_of_fold(views["S"], groups, 3, related=Related(groups=groups)))


def test_decisions_are_calibrated_by_other_groups():
    views, y, groups = leaking()
    order = np.random.default_rng(0).permutation(len(y))
    views, y, groups = views[order], y[order], groups[order]
    found = [
        ScikitBaseline(LinearSVC(), ("S",)).fit(views, y, groups=each).predict_proba(views).max(axis=1).mean()
        for each in (None, groups)
    ]
    assert found[0] > 0.9 and found[1] < 0.85
    half = len(y) // 2
    held = views[half:], y[half:]
    ScikitBaseline(LinearSVC(), ("S",)).fit(views[:half], y[:half], held, groups=groups[:half])
    with pytest.raises(Unsuited, match=r"LinearSVC .*calibrated"):
        ScikitBaseline(LinearSVC(), ("S",)).fit(views, groups, groups=groups)


def test_one_group_is_divided_by_chance_where_no_fit_is_judged():
    views, y, _ = leaking(20, 5)
    own = TwoWeakLearnerClassifier({"S": TreeLearner(max_depth=1)}, start=LinearBaseline(("S",)), n_rounds=1)
    own.fit(views, y, (views, y), groups=np.zeros(len(y), int))
    with pytest.raises(UsboostError, match="leave `group` out"):
        EnsembleClassifier({"prior": PriorBaseline()}).fit(views, y, groups=np.zeros(len(y), int))

"""Rows that say when to stop, set aside or given, are not fitted to; no others tune images."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from tests.conftest import make_views
from tests.leaks.probes import same_start, spoiled, training, watched
from tests.small_models import boosting, lgbm, network, on_features, two_branches
from tests.tables import bright
from usboost import Backbone, EarlyBoostClassifier, TreeLearner, Views
from usboost.learners.networks import finetuning
from usboost.models.baselines.linear import LinearBaseline
from usboost.models.methods.boosted_network import BoostedNetworkClassifier, BoostedNetworkRegressor
from usboost.models.methods.ensemble import EnsembleClassifier
from usboost.models.tuned_images import fit_weighted


def networks(**changes: Any) -> BoostedNetworkClassifier:
    return BoostedNetworkClassifier(learner=network(), n_rounds=3, **changes)


def trees(**changes: Any) -> Any:
    return boosting(learners={"S": TreeLearner(min_samples_leaf=5)}, patience=None, **changes)


MODELS: dict[str, Any] = {
    "trees": trees,
    "2wl": boosting,
    "2wl, steps on other rows": lambda **changes: trees(step_fraction=0.3, **changes),
    "linear start": lambda **changes: trees(start=LinearBaseline(penalties=(0.01,)), **changes),
    "two branches": two_branches,
    "bfv_dnn": on_features,
    "lgbm": lambda **changes: lgbm(patience=50, n_trees=20, **changes),
    "bnn": networks,
}

N = 200


def data(name: str, n_classes: int = 2) -> tuple[Views, np.ndarray]:
    views, y = make_views(n_classes, n=N)
    return (Views(x=views["S"]), y) if name == "bnn" else (views, y)


@pytest.mark.parametrize("name", MODELS)
def test_rows_set_aside_are_not_fitted_to(name: str) -> None:
    views, y = data(name)
    kept, held = train_test_split(np.arange(N), test_size=0.25, stratify=y, random_state=0)

    def fit(rows: np.ndarray) -> Any:
        return MODELS[name](validation_fraction=0.25, random_state=0).fit(_as_given(spoiled(views, rows)), y)

    clean, forbidden, allowed = fit(held[:0]), fit(held), fit(kept[:25])
    assert same_start(training(clean), training(forbidden))
    assert not same_start(training(clean), training(allowed))
    assert not same_start(watched(clean), watched(forbidden))


@pytest.mark.parametrize("name", MODELS)
def test_rows_given_for_stopping_are_not_fitted_to(name: str) -> None:
    views, y = data(name)
    rest, held = np.arange(150), np.arange(150, N)

    def fit(X: Views, labels: np.ndarray) -> Any:
        given = _as_given(X[held]), labels[held]
        return MODELS[name](random_state=0).fit(_as_given(X[rest]), labels[rest], given)

    flipped = np.where(np.arange(N) < 150, y, 1 - y)
    clean, forbidden = fit(views, y), fit(spoiled(views, held), flipped)
    assert same_start(training(clean), training(forbidden))
    assert not same_start(watched(clean), watched(forbidden))
    wrong = np.where(np.arange(N) < 25, 1 - y, y)
    assert not same_start(training(clean), training(fit(views, wrong)))


def _as_given(views: Views) -> Any:
    return views["x"] if "x" in views.names else views


def test_a_regressors_rows_set_aside() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 3)), rng.normal(size=N)
    kept, held = train_test_split(np.arange(N), test_size=0.25, random_state=0)

    def fit(rows: np.ndarray) -> np.ndarray:
        values, targets = X.copy(), y.copy()
        values[rows], targets[rows] = 50.0, -50.0
        model = BoostedNetworkRegressor(network(), n_rounds=3, validation_fraction=0.25)
        return training(model.fit(values, targets))

    assert same_start(fit(held[:0]), fit(held))
    assert not same_start(fit(held[:0]), fit(kept[:5]))


def test_a_sequences_rows_given_for_stopping() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 3, 2)), rng.integers(0, 2, N)
    X[:, :, 0] += y[:, None]

    def fit(values: np.ndarray, labels: np.ndarray) -> EarlyBoostClassifier:
        given = values[150:], labels[150:]
        return EarlyBoostClassifier().fit(values[:150], labels[:150], given)

    flipped = np.where(np.arange(N) < 150, y, 1 - y)
    far = np.where((np.arange(N) < 150)[:, None, None], X, -40 * X)
    clean, forbidden = fit(X, y), fit(far, flipped)
    np.testing.assert_array_equal(training(clean), training(forbidden))
    np.testing.assert_array_equal(clean.predict_proba(X), forbidden.predict_proba(X))
    wrong = np.where(np.arange(N) < 25, 1 - y, y)
    assert not np.array_equal(training(clean), training(fit(X, wrong)))


@pytest.fixture(autouse=True)
def one_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetuning, "EPOCHS", 1)
    monkeypatch.setattr(finetuning, "STEPS", 1)
    monkeypatch.setattr(finetuning, "FEWEST", 1)


def linear(cache: Path) -> LinearBaseline:
    given = Backbone(finetune="auto", cache=str(cache / "embeddings"))
    return LinearBaseline(("U", "S"), backbone=given, device="cpu")


@pytest.mark.slow
def test_an_ensembles_fits_are_tuned_on_their_folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, tuned = [], finetuning.tuned

    def spy(backbone: Backbone, train: Any, held: Any, device: Any) -> Backbone:
        made.append([set(map(bytes, each.images[0].digests())) for each in (train, held)])
        return tuned(backbone, train, held, device)

    monkeypatch.setattr(finetuning, "tuned", spy)
    (views, y), (beside, y_beside) = bright(36, 32, 3), bright(16, 32, 3, seed=1)
    model = EnsembleClassifier({"one": linear(tmp_path), "two": linear(tmp_path)}, folds=2)
    fit_weighted(model, (views, y, None), (beside, y_beside, None))
    every = set(map(bytes, views["U"].digests()))
    assert len(made) == 4 and made[0] == made[1] and made[2] == made[3]
    for train, held in made:
        assert train | held == every and not train & held
    assert made[0][1] == made[2][0] and made[0][0] == made[2][1]
    assert len(list((tmp_path / "tuned").glob("*.safetensors"))) == 2

"""Logistic regression as an external baseline: scikit-learn's, of the penalty with the lowest loss."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.conftest import make_views, reloaded
from usboost import RidgeLearner, Table, TreeLearner, TwoWeakLearnerClassifier, UsboostError, Views
from usboost.models.baselines.linear import LinearBaseline, Multinomial, RidgeBaseline
from usboost.models.inspection.inspect import view_contributions


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_scikit_learns_on_standardised_numbers_and_indicators(n_classes: int) -> None:
    views, y = make_views(n_classes, n=400)
    train, val, test = views[:250], views[250:320], views[320:]

    def columns(part):
        tables = [part["U"], part["S"]]
        return np.column_stack([t.numeric for t in tables]), np.column_stack([t.codes for t in tables])

    numbers, codes = columns(train)
    scaler, encoder = StandardScaler().fit(numbers), OneHotEncoder(sparse_output=False)
    encoder.set_params(categories=[range(c) for t in ("U", "S") for c in views[t].cardinalities]).fit(codes)

    def matrix(part):
        numbers, codes = columns(part)
        return np.column_stack((scaler.transform(numbers), encoder.transform(codes)))

    penalties, losses, probabilities = (0.1, 0.01, 0.001), [], []
    for penalty in penalties:
        # scikit-learn has one vector for two classes, of twice the length
        C = (2 if n_classes == 2 else 1) / (penalty * 250)
        expected = LogisticRegression(C=C, max_iter=1000, tol=1e-8)
        expected.fit(matrix(train), y[:250])
        losses.append(log_loss(y[250:320], expected.predict_proba(matrix(val))))
        probabilities.append(expected.predict_proba(matrix(test)))
    model = LinearBaseline(penalties=penalties, max_iter=1000).fit(train, y[:250], (val, y[250:320]))
    best = int(np.argmin(losses))
    assert model.best_round_ == best + 1
    assert [row["risk_val"] for row in model.history_] == pytest.approx(losses, abs=1e-4)
    np.testing.assert_allclose(model.predict_proba(test), probabilities[best], atol=1e-3)


def test_classes_that_a_fold_has_not_seen_are_unlikely() -> None:
    views, y = make_views(2, n=60)
    y = y.copy()
    y[3] = 2
    scores = LinearBaseline(penalties=(0.01,), validation_fraction=0).fit(views, y).out_of_fold(views, y)
    assert np.isfinite(scores).all()
    assert scores[3].argmax() != 2


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("loss", ["exponential", "cross_entropy"])
def test_boosting_goes_on_from_a_linear_start(tmp_path, n_classes: int, loss: str) -> None:
    views, y = make_views(n_classes, n=500)
    start = LinearBaseline(penalties=(0.1, 0.01))
    model = TwoWeakLearnerClassifier(
        {"S": TreeLearner()}, loss=loss, start=start, n_rounds=4, patience=None, shrinkage=0.3
    )
    model.fit(views[:300], y[:300], (views[300:400], y[300:400]))
    alone = LinearBaseline(penalties=(0.1, 0.01)).fit(views[:300], y[:300], (views[300:400], y[300:400]))
    np.testing.assert_allclose(model._loss().scores(model._start_f(views)), alone.scores(views), atol=1e-5)
    # the first trees are fitted to what out-of-fold scores leave, not to what the start leaves on its rows
    first = model._loss().risk(
        model._from_scores(alone.out_of_fold(views[:300], y[:300])), model._loss().labels(y[:300])
    )
    assert model.history_[0]["risk_train"] < first
    assert model.history_[0]["risk_train"] > model._loss().risk(
        model._start_f(views[:300]), model._loss().labels(y[:300])
    ) - (first - model.history_[0]["risk_train"])
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(views), model.predict_proba(views))
    assert len(list(again.staged_predict(views))) == model.n_estimators_
    assert view_contributions(model, views)["view"].tolist()[0] == "start"


def test_the_names_of_the_classes_are_in_no_particular_order() -> None:
    views, y = make_views(3, n=300)
    made = TwoWeakLearnerClassifier(
        {"S": TreeLearner()}, loss="cross_entropy", target="newton", start=LinearBaseline(), n_rounds=3
    )
    renamed = np.array([2, 0, 1])
    settings = (views[:200], y[:200]), (views[200:], y[200:])
    one = clone(made).fit(*settings[0], settings[1])
    other = clone(made).fit(views[:200], renamed[y[:200]], (views[200:], renamed[y[200:]]))
    np.testing.assert_allclose(other.predict_proba(views)[:, renamed], one.predict_proba(views), atol=1e-3)


def test_a_columns_name_changes_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(200, 2)) * [1e6, 1]
    for names in (("a", "b"), ("embedding_0", "component_1")):
        views = Views(S=Table.from_numeric(x, names))
        assert RidgeBaseline(views=("S",)).fit(views, x[:, 1]).score(views, x[:, 1]) > 0.99


@pytest.mark.parametrize("shape", [(300, 8), (40, 90)])
def test_the_factorisation_changes_no_minimum(shape) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) * rng.uniform(0.1, 5, shape[1]) + 3).astype(np.float32)
    y = rng.integers(0, 3, shape[0])
    some = rng.random(shape[0]) < 0.7
    fits = Multinomial(x)
    for rows in (None, some):
        seen = np.ones(len(y), dtype=bool) if rows is None else some
        expected = LogisticRegression(C=1 / (0.01 * seen.sum()), max_iter=5000, tol=1e-10)
        expected.fit(x[seen].astype(np.float64), y[seen])
        coefficients, intercepts = fits.fit(y, 3, 0.01, rows, tolerance=1e-8)
        np.testing.assert_allclose(
            softmax(x @ coefficients + intercepts, axis=1), expected.predict_proba(x), atol=2e-3
        )


def images_beside(n: int, seed: int, helps: bool) -> tuple[Views, np.ndarray]:
    """A table that tells the class in part, and a wide view that tells the rest, or nothing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    told, wide = rng.normal(size=(n, 3)) + np.eye(3)[y], rng.normal(size=(n, 150))
    if helps:
        wide[:, :3] += 2 * np.eye(3)[y]
    return Views(U=Table.from_numeric(wide), S=Table.from_numeric(told)), y


@pytest.mark.parametrize("seed", range(4))
def test_a_view_that_says_nothing_is_left_out(tmp_path, seed: int) -> None:
    views, y = images_beside(400, seed, helps=False)
    learners = {"U": RidgeLearner(reads=("U", "S")), "S": TreeLearner()}
    settings = {"loss": "cross_entropy", "n_rounds": 5, "random_state": seed}
    model = TwoWeakLearnerClassifier(
        learners, start=LinearBaseline(), optional=("U",), **settings, monitor="risk_val"
    ).fit(views, y)
    assert model.left_out_ == ("U",)
    alone = {"U": RidgeLearner(reads=("S",)), "S": TreeLearner()}
    table = TwoWeakLearnerClassifier(
        alone, start=LinearBaseline(views=("S",)), **settings, monitor="risk_val"
    ).fit(views, y)
    np.testing.assert_array_equal(model.predict_proba(views), table.predict_proba(views))
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(views), model.predict_proba(views))


def test_a_view_that_helps_is_read() -> None:
    views, y = images_beside(400, 0, helps=True)
    model = TwoWeakLearnerClassifier(
        {"S": TreeLearner()}, start=LinearBaseline(), optional=("U",), loss="cross_entropy", n_rounds=5
    ).fit(views, y)
    assert model.left_out_ == () and model.start_.views == ("U", "S")
    for spoiled in ({"left_out": ["S"]}, {"start": ["U", "S", "T"]}):
        with pytest.raises(UsboostError, match="views that its start reads"):
            model._read({"start": ["U", "S"], "left_out": [], **spoiled}, None)

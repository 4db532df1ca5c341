"""Earlyboost and Earlyboost.MH: the paper's pseudocode, its bound, a hand computation, degenerate data."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from tests.conftest import refuses
from tests.tables import sequences
from usboost import Callback, EarlyBoostClassifier


def ragged(
    n_classes: int, seed: int = 0, n: int = 90, frames: int = 6
) -> tuple[list[np.ndarray], np.ndarray]:
    X, y = sequences(n_classes, n=n, frames=frames, seed=seed)
    lengths = np.random.default_rng(seed).integers(1, frames + 1, n)
    lengths[0] = frames
    return [x[:length] for x, length in zip(X, lengths)], y


def tree(depth: int = 2) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=depth)


def literal_binary(X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Earlyboost as the paper writes it, y in {−1, 1}; no cap, no floor.

    Bayes is the weak classifier: it has no ties that a last digit of D would break, as trees do.
    """
    n, T, _ = X.shape
    D = np.full(n, 1 / n)
    H, log = np.zeros(n), {"alpha": [], "epsilon": [], "H": [], "Z": [], "D": []}
    for t in range(T):
        h = GaussianNB().fit(X[:, t], y, sample_weight=D * n).predict(X[:, t])
        epsilon = sum(D[i] for i in range(n) if h[i] != y[i])
        alpha = 0.5 * np.log((1 - epsilon) / epsilon)
        D = D * np.exp(-y * alpha * h)
        Z = D.sum()
        D = D / Z
        H = H + alpha * h
        for name, value in {"alpha": alpha, "epsilon": epsilon, "H": H, "Z": Z, "D": D}.items():
            log[name].append(value)
    return log


def literal_mh(X: np.ndarray, y: np.ndarray, n_classes: int) -> dict[str, Any]:
    """Earlyboost.MH as the paper writes it."""
    n, T, _ = X.shape
    g = np.array([[1 if y[i] == k else -1 for k in range(n_classes)] for i in range(n)])
    D = np.full((n, n_classes), 1 / (n * n_classes))
    H, log = np.zeros((n, n_classes)), {"alpha": [], "r": [], "H": [], "Z": [], "D": []}
    for t in range(T):
        h, r = np.empty((n, n_classes)), np.empty(n_classes)
        for k in range(n_classes):
            weak = GaussianNB().fit(X[:, t], g[:, k], sample_weight=D[:, k] / D[:, k].mean())
            h[:, k] = weak.predict(X[:, t])
            right = h[:, k] == g[:, k]
            r[k] = D[right, k].sum() - D[~right, k].sum()
        alpha = 0.5 * np.log((1 + r.sum()) / (1 - r.sum()))
        D = D * np.exp(-g * alpha * h)
        Z = D.sum()
        D = D / Z
        H = H + alpha * h
        for name, value in {"alpha": alpha, "r": r, "H": H, "Z": Z, "D": D}.items():
            log[name].append(value)
    return log


@pytest.mark.parametrize("seed", range(3))
def test_the_loop_is_earlyboost_to_the_letter(seed: int) -> None:
    X, y = sequences(2, seed=seed)
    paper = literal_binary(X, 2 * y - 1)
    model = EarlyBoostClassifier(GaussianNB(), max_alpha=50.0).fit(X, y)
    np.testing.assert_allclose(model.alphas_, paper["alpha"], rtol=1e-9)
    np.testing.assert_allclose(model.errors_, paper["epsilon"], rtol=1e-9)
    np.testing.assert_allclose(model.r_[:, 0], 1 - 2 * np.array(paper["epsilon"]), atol=1e-12)
    np.testing.assert_allclose(list(model.staged_decision_function(X)), paper["H"], rtol=1e-9, atol=1e-12)
    for H, answers in zip(paper["H"], model.staged_predict(X)):
        np.testing.assert_array_equal(answers, np.sign(H) > 0)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_loop_is_earlyboost_mh_to_the_letter(n_classes: int) -> None:
    X, y = sequences(n_classes)
    paper = literal_mh(X, y, n_classes)
    model = EarlyBoostClassifier(GaussianNB(), algorithm="mh", max_alpha=50.0).fit(X, y)
    np.testing.assert_allclose(model.alphas_, paper["alpha"], rtol=1e-9)
    np.testing.assert_allclose(model.r_, paper["r"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.errors_, (1 - np.sum(paper["r"], axis=1)) / 2, rtol=1e-9)
    np.testing.assert_allclose(list(model.staged_decision_function(X)), paper["H"], rtol=1e-9, atol=1e-12)
    for H, answers in zip(paper["H"], model.staged_predict(X)):
        np.testing.assert_array_equal(answers, H.argmax(axis=1))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_bound_is_the_product_of_the_normalisers(n_classes: int) -> None:
    X, y = sequences(n_classes, n=120, frames=10)
    model = EarlyBoostClassifier(GaussianNB(), max_alpha=50.0).fit(X, y)
    paper = literal_binary(X, 2 * y - 1) if n_classes == 2 else literal_mh(X, y, n_classes)
    signs = model._signs(y)
    scores = [H.reshape(len(y), -1) for H in model.staged_decision_function(X)]
    J = [float(np.exp(-signs * H).sum()) for H in scores]
    np.testing.assert_allclose(J, signs.size * np.cumprod(paper["Z"]), rtol=1e-9)
    np.testing.assert_allclose([row["risk_train"] * len(y) for row in model.history_], J, rtol=1e-9)
    # Z_t = 2 √(ε(1 − ε)), so the loss falls whenever ε_t is not ½
    np.testing.assert_allclose(paper["Z"], 2 * np.sqrt(model.errors_ * (1 - model.errors_)), rtol=1e-9)
    for H, D in zip(scores, paper["D"]):
        weights = np.exp(-signs * H)
        np.testing.assert_allclose(weights / weights.sum(), D.reshape(weights.shape), rtol=1e-9)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    n_classes=st.integers(2, 4),
    algorithm=st.sampled_from(["auto", "mh"]),
    depth=st.integers(1, 6),
    uneven=st.booleans(),
)
def test_the_loss_never_rises(seed: int, n_classes: int, algorithm: str, depth: int, uneven: bool) -> None:
    """Also with frames that are perfect (deep trees), sequences that end, and capped steps."""
    X, y = (ragged if uneven else sequences)(n_classes, seed=seed, n=24)
    model = EarlyBoostClassifier(tree(depth), algorithm=algorithm).fit(X, y)
    signs = model._signs(y)
    risks = [float(signs.shape[1]), *(row["risk_train"] for row in model.history_)]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(risks))
    for H, risk in zip(model.staged_decision_function(X), risks[1:]):
        assert np.exp(-signs * H.reshape(signs.shape)).sum() / len(y) == pytest.approx(risk, rel=1e-9)
    assert (model.alphas_ >= 0).all()
    assert np.isfinite(model.predict_proba(X)).all()


def test_three_samples_by_hand() -> None:
    """y = (1, 1, −1). Frame 1 is constant: h = (1, 1, 1), ε = 1/3, α = ½ log 2, D = (¼, ¼, ½).

    Frame 2 tells sample 0 from the others, whose weight is −: h = (1, −1, −1), ε = ¼, α = ½ log 3,
    D ∝ (¼/√3, √3/4, ½/√3) = (1/6, 1/2, 1/3). Frame 3 tells sample 1: h = (−1, 1, −1), ε = 1/6,
    α = ½ log 5. H³ = α₁ + α₂ − α₃, α₁ − α₂ + α₃, α₁ − α₂ − α₃.
    """
    X = np.array([[[0.0], [1.0], [0.0]], [[0.0], [0.0], [1.0]], [[0.0], [0.0], [0.0]]])
    y = np.array([1, 1, -1])
    model = EarlyBoostClassifier(DecisionTreeClassifier(max_depth=1), max_alpha=10.0).fit(X, y)
    a = 0.5 * np.log([2, 3, 5])
    np.testing.assert_allclose(model.errors_, [1 / 3, 1 / 4, 1 / 6], rtol=1e-12)
    np.testing.assert_allclose(model.alphas_, a, rtol=1e-12)
    H = list(model.staged_decision_function(X))
    np.testing.assert_allclose(H[0], [a[0]] * 3)
    np.testing.assert_allclose(H[1], [a[0] + a[1], a[0] - a[1], a[0] - a[1]])
    np.testing.assert_allclose(H[2], [a[0] + a[1] - a[2], a[0] - a[1] + a[2], a[0] - a[1] - a[2]])
    for scores, expected in zip(H, [(1 / 4, 1 / 4, 1 / 2), (1 / 6, 1 / 2, 1 / 3)]):
        D = np.exp(-y * scores)
        np.testing.assert_allclose(D / D.sum(), expected, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), np.where(H[2] > 0, 1, -1))
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-2 * H[2])))


def test_two_classes_by_mh_are_the_binary_version() -> None:
    X, y = sequences(2, n=150, frames=8)
    unseen, _ = sequences(2, n=150, frames=8, seed=1)
    binary, mh = (
        EarlyBoostClassifier(tree(), algorithm=name, max_alpha=9.0).fit(X, y) for name in ("binary", "mh")
    )
    np.testing.assert_allclose(mh.alphas_, binary.alphas_, rtol=1e-9)
    np.testing.assert_allclose(mh.errors_, binary.errors_, rtol=1e-9)
    np.testing.assert_allclose(mh.r_, binary.r_ / 2 * [[1, 1]], rtol=1e-9)
    np.testing.assert_allclose(mh.decision_function(unseen)[:, 1], binary.decision_function(unseen))
    np.testing.assert_allclose(mh.predict_proba(unseen), binary.predict_proba(unseen), rtol=1e-9)
    np.testing.assert_array_equal(mh.predict(unseen), binary.predict(unseen))


def test_answers_at_every_prefix() -> None:
    X, y = sequences(3)
    model = EarlyBoostClassifier().fit(X, y)
    staged = zip(model.staged_predict(X), model.staged_predict_proba(X), model.staged_decision_function(X))
    for t, (answers, probabilities, scores) in enumerate(staged, 1):
        np.testing.assert_array_equal(answers, model.predict(X[:, :t]))
        np.testing.assert_array_equal(probabilities, model.predict_proba(X[:, :t]))
        np.testing.assert_array_equal(scores, model.decision_function(X[:, :t]))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], answers)
    assert t == model.n_frames_ == 6
    assert model.n_features_in_ == 2


@pytest.mark.parametrize("n_classes", [2, 3])
def test_unequal_lengths_answer_as_each_sequence_alone(n_classes: int) -> None:
    X, y = ragged(n_classes)
    model = EarlyBoostClassifier().fit(X, y)
    together = model.decision_function(X)
    for i in range(0, len(X), 7):
        np.testing.assert_array_equal(model.decision_function([X[i]])[0], together[i])
    assert model.n_frames_ == 6


def test_sequences_that_ended_neither_teach_nor_change() -> None:
    """A frame's classifier and α depend on those that run: α = ½ log of the weights right over wrong."""
    X, y = ragged(2)
    model = EarlyBoostClassifier(tree()).fit(X, y)
    lengths = np.array([len(x) for x in X])
    H = np.zeros(len(y))
    signs = 2.0 * y - 1
    for t, (alpha, scores) in enumerate(zip(model.alphas_, model.staged_decision_function(X)), 1):
        on = lengths >= t
        frame = np.stack([x[t - 1] for x, length in zip(X, lengths) if length >= t])
        D = np.exp(-signs * H)[on]
        h = tree().set_params(random_state=0).fit(frame, signs[on], sample_weight=D / D.mean()).predict(frame)
        right, wrong = D[h == signs[on]].sum(), D[h != signs[on]].sum()
        expected = 0.5 * np.log(right / wrong) if wrong else np.inf
        assert alpha == pytest.approx(np.clip(expected, 0, 0.5 * np.log(2 * len(y) - 1)))
        np.testing.assert_array_equal(scores[~on], H[~on])
        H[on] += alpha * h
        np.testing.assert_allclose(scores, H)


class Contrary(ClassifierMixin, BaseEstimator):
    """A weak classifier that is always wrong on its training data."""

    def fit(self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> "Contrary":
        self.tree_ = DecisionTreeClassifier().fit(X, y, sample_weight=sample_weight)
        self.classes_ = self.tree_.classes_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return -self.tree_.predict(X)


def test_a_frame_no_better_than_chance_does_not_vote() -> None:
    X, y = sequences(2, n=60)
    X[:, 0] = 1.0
    model = EarlyBoostClassifier().fit(X, y)
    assert model.alphas_[0] == 0
    assert model.errors_[0] == pytest.approx(0.5)
    assert (model.alphas_[1:] > 0).all()
    worse = EarlyBoostClassifier(Contrary()).fit(X, y)
    assert (worse.alphas_ == 0).all()
    np.testing.assert_allclose(worse.errors_[1:], 1.0)
    np.testing.assert_allclose([row["risk_train"] for row in worse.history_], 1.0)
    assert (worse.predict(X) == worse.classes_[0]).all()
    np.testing.assert_allclose(worse.predict_proba(X), 0.5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_perfect_frame_gets_the_cap(n_classes: int) -> None:
    X, y = sequences(n_classes, n=30)
    X[:, 2, 0] = 10.0 * y
    model = EarlyBoostClassifier().fit(X, y)
    columns = 1 if n_classes == 2 else n_classes
    assert model.alphas_[2] == pytest.approx(0.5 * np.log(2 * 30 * columns - 1))
    assert model.errors_[2] == pytest.approx(0, abs=1e-12)
    scaled = EarlyBoostClassifier().fit(X, y, sample_weight=np.full(30, 1 / 30))
    np.testing.assert_allclose(scaled.alphas_[:3], model.alphas_[:3])
    lower = EarlyBoostClassifier(max_alpha=1.5).fit(X, y)
    assert lower.alphas_[2] == 1.5
    assert lower.alphas_.max() <= 1.5


def test_nothing_but_perfect_frames_stays_finite() -> None:
    """α of 400 capped frames adds up to 900: exp(−900) is 0, and the weights are still weights."""
    y = np.arange(40) % 2
    X = np.repeat((2.0 * y - 1)[:, None, None], 400, axis=1)
    model = EarlyBoostClassifier().fit(X, y)
    assert np.isfinite(model.alphas_).all()
    assert np.abs(model.decision_function(X)).min() > 700
    np.testing.assert_array_equal(model.predict_proba(X), np.eye(2)[y])
    assert model.history_[-1]["risk_train"] == 0


def test_a_class_missing_from_training_is_never_answered() -> None:
    X, y = sequences(4)
    seen = y != 2
    model = EarlyBoostClassifier().fit(X[seen], y[seen])
    assert model.classes_.tolist() == [0, 1, 3]
    assert 2 not in model.predict(X)
    assert model.predict_proba(X).shape == (90, 3)
    refuses(r"label .*2.* is not among", EarlyBoostClassifier().fit, X[seen], y[seen], (X, y))


def test_what_is_logged() -> None:
    X, y = sequences(3)
    held, y_held = sequences(3, n=60)
    model = EarlyBoostClassifier().fit(X, y, (held[:, :4], y_held))
    assert len(model.history_) == 6
    row = model.history_[3]
    assert set(row) >= {"alpha", "error", "r_0", "r_1", "r_2", "risk_train", "risk_val", "seconds"}
    assert row["accuracy_val"] == pytest.approx(model.score(held[:, :4], y_held))
    assert model.history_[5]["accuracy_val"] == row["accuracy_val"]  # no further frames there
    assert row["accuracy_train"] == pytest.approx(model.score(X[:, :4], y))
    assert [r["alpha"] for r in model.history_] == model.alphas_.tolist()


def test_scikit_learns_tools() -> None:
    X, y = sequences(3)
    labels = np.array(["a", "b", "c"])[y]
    assert cross_val_score(EarlyBoostClassifier(), X, labels, cv=3).mean() > 0.6
    uneven, _ = ragged(3)
    assert np.isfinite(cross_val_score(EarlyBoostClassifier(), uneven, labels, cv=3)).all()
    search = GridSearchCV(EarlyBoostClassifier(tree()), {"estimator__max_depth": [1, 2]}, cv=3)
    assert search.fit(X, labels).predict(X).dtype == labels.dtype
    model = EarlyBoostClassifier(max_alpha=2.0, algorithm="mh")
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"algorithm": "samme"}, "unknown algorithm 'samme'"),
        ({"algorithm": "binary"}, "'binary' takes two classes, not 3"),
        ({"max_alpha": 0.0}, "max_alpha must be a positive finite number"),
        ({"max_alpha": np.inf}, "max_alpha must be a positive finite number"),
        ({"estimator": Callback()}, "Callback is no classifier"),
    ],
)
def test_settings_that_do_not_suit(change: dict[str, Any], said: str) -> None:
    X, y = sequences(3)
    refuses(said, EarlyBoostClassifier(**change).fit, X, y)


def test_data_that_do_not_suit() -> None:
    X, y = sequences(2)
    broken = X.copy()
    broken[3, 4, 1] = np.nan
    refuses("sequence 3 has nan in frame 5, feature 1", EarlyBoostClassifier().fit, broken, y)
    refuses("two classes are needed", EarlyBoostClassifier().fit, X, np.zeros(len(y)))
    refuses("one label for each of the 90 rows", EarlyBoostClassifier().fit, X, y[:-1])
    model = EarlyBoostClassifier().fit(X, y)
    refuses("sequence 3 has nan", model.predict, broken)
    refuses("7 frames but the model was trained on 6", model.predict, np.zeros((1, 7, 2)))
    refuses("3 features, those of the fit 2", model.predict, np.zeros((1, 6, 3)))

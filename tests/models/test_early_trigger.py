"""The trigger: one sample after the other by hand, frame by frame as all at once, the figures of score."""

from pathlib import Path
from statistics import harmonic_mean as mean_of_two
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from tests.conftest import refuses
from tests.tables import sequences
from usboost import EarlyBoostClassifier, save
from usboost.models.methods.early_trigger import EarlyTrigger, harmonic_mean

MODELS = {
    (k, algorithm): EarlyBoostClassifier(algorithm=algorithm).fit(*sequences(k))
    for k, algorithm in ((2, "binary"), (2, "mh"), (3, "auto"))
}
settings_of_triggers = {
    "which": st.sampled_from(sorted(MODELS)),
    "by": st.sampled_from(["probability", "margin"]),
    "threshold": st.floats(0.0, 1.0),
}


def trigger(which: tuple[int, str], by: str, threshold: float) -> EarlyTrigger:
    return EarlyTrigger(threshold=threshold, by=by).use(MODELS[which])


def literal(rule: EarlyTrigger, x: np.ndarray, length: int) -> tuple[Any, int]:
    """Label and frame of the decision for one sequence of which `length` frames have come; −1, 0 if none."""
    model = rule.classifier_
    for t in range(1, length + 1):
        prefix = x[None, :t]
        if rule.by == "probability":
            sure = model.predict_proba(prefix).max()
        else:
            scores = np.atleast_1d(model.decision_function(prefix)[0])
            scores = np.sort(scores if len(scores) > 1 else [-scores[0], scores[0]])
            sure = scores[-1] - scores[-2]
        if sure >= rule.threshold or t == model.n_frames_:
            return model.predict(prefix)[0], t
    return -1, 0


@settings(max_examples=30)
@given(**settings_of_triggers, length=st.integers(1, 6))
def test_decisions_are_as_by_hand(which: tuple[int, str], by: str, threshold: float, length: int) -> None:
    rule = trigger(which, by, threshold)
    X, _ = sequences(which[0], n=8, seed=5)
    labels, decisions = rule.predict(X[:, :length])
    expected = [literal(rule, x, length) for x in X]
    assert labels.tolist() == [label for label, _ in expected]
    assert decisions.tolist() == [t > 0 for _, t in expected]
    assert labels.dtype == decisions.astype(int).dtype


@settings(max_examples=30)
@given(**settings_of_triggers, uneven=st.booleans())
def test_by_frame_is_all_at_once(which: tuple[int, str], by: str, threshold: float, uneven: bool) -> None:
    rule = trigger(which, by, threshold)
    X, _ = sequences(which[0], n=20, seed=6)
    lengths = np.random.default_rng(0).integers(1, 7, 20) if uneven else np.full(20, 6)
    lengths[0] = 6
    stream, before = rule.stream(20), np.zeros(20, dtype=bool)
    for t in range(1, 7):
        present = lengths >= t
        labels, decisions = stream.feed(np.where(present[:, None], X[:, t - 1], np.nan), present)
        at_once = rule.predict([x[: min(length, t)] for x, length in zip(X, lengths)])
        np.testing.assert_array_equal(labels, at_once[0])
        np.testing.assert_array_equal(decisions, at_once[1])
        assert (decisions | ~before).all()  # none is taken back
        before = decisions
    assert decisions[lengths == 6].all()


@settings(max_examples=30)
@given(**settings_of_triggers, uneven=st.booleans())
def test_the_figures_of_score(which: tuple[int, str], by: str, threshold: float, uneven: bool) -> None:
    rule = trigger(which, by, threshold)
    X, y = sequences(which[0], n=25, seed=7)
    lengths = np.random.default_rng(1).integers(2, 7, 25) if uneven else np.full(25, 6)
    given_X = [x[:length] for x, length in zip(X, lengths)] if uneven else X
    right, shares = [], []
    for x, length, label in zip(X, lengths, y):
        answer, t = literal(rule, x, length)
        if t == 0:  # its last frame forces an answer
            answer, t = rule.classifier_.predict(x[None, :length])[0], length
        right.append(answer == label)
        shares.append(t / length)
    hm, accuracy, earliness = rule.figures(given_X, y)
    assert rule.score(given_X, y) == hm
    assert accuracy == pytest.approx(np.mean(right))
    assert earliness == pytest.approx(np.mean(shares))
    w = np.arange(25)
    by_weight = [np.average(each, weights=w) for each in (right, shares)]
    assert rule.figures(given_X, y, w)[1:] == pytest.approx(by_weight)
    assert hm == pytest.approx(mean_of_two([accuracy, 1 - earliness]))


def test_the_harmonic_mean_is_of_accuracy_and_one_minus_earliness() -> None:
    assert harmonic_mean(0.8, 0.4) == pytest.approx(2 * 0.8 * 0.6 / 1.4)
    assert harmonic_mean(1.0, 1.0) == 0.0
    assert harmonic_mean(0.0, 1.0) == 0.0  # 0/0
    assert harmonic_mean(0.9, 0.1) > harmonic_mean(0.9, 0.9)  # earlier is better


@pytest.mark.parametrize(
    ("names", "undecided"),
    [
        (np.array(["a", "b", "c"]), object),
        (np.array([1.0, 2.0, 3.0]), np.float64),
        (np.array([1, 2, 3], dtype=np.uint8), np.int16),
        (np.array([-1, 0, 1]), np.int64),
    ],
)
def test_labels_of_any_type(names: np.ndarray, undecided: type) -> None:
    X, y = sequences(3)
    rule = EarlyTrigger(EarlyBoostClassifier(), threshold=0.8).fit(X, names[y - 1])
    labels, decisions = rule.predict(X[:, :2])
    assert 0 < decisions.sum() < len(X)
    assert labels.dtype == undecided
    assert all(label == -1 for label in labels[~decisions])
    assert set(labels[decisions].tolist()) <= set(names.tolist())
    assert rule.decision_times(X)[0].dtype == names.dtype


def test_scikit_learns_search_finds_a_threshold() -> None:
    X, y = sequences(3, n=90)
    grid = GridSearchCV(EarlyTrigger(EarlyBoostClassifier()), {"threshold": [0.4, 0.7, 1.0]}, cv=3).fit(X, y)
    assert grid.best_params_["threshold"] < 1.0
    assert clone(grid.best_estimator_).get_params()["by"] == "probability"
    assert EarlyTrigger().fit(X, y).figures(X, y)[1] > 0.5


def test_mistakes_are_named(tmp_path: Path) -> None:
    X, y = sequences(3)
    for change, said in (
        ({"by": "luck"}, "goes by 'probability' or 'margin', not 'luck'"),
        ({"threshold": 1.5}, "the threshold 1.5 is no probability"),
        ({"threshold": -1.0, "by": "margin"}, "the threshold -1.0 is no margin"),
        ({"threshold": float("nan")}, "the threshold nan"),
    ):
        refuses(said, EarlyTrigger(**change).fit, X, y)
    rule = trigger((3, "auto"), "probability", 0.7)
    refuses("a label for each of the 90 sequences", rule.score, X, y[:5])
    refuses("trained on 6", rule.predict, np.zeros((1, 7, 2)))
    refuses("save its classifier_", save, rule, tmp_path / "rule")
    stream = rule.stream(2)
    refuses(r"2 sequences, not \(3, 2\)", stream.feed, np.zeros((3, 2)))
    refuses(r"must have the shape \(2, 2\), not \(2, 5\)", stream.feed, np.zeros((2, 5)))
    refuses("sequence 1 has NaN or infinity in frame 1", stream.feed, [[0.0, 1.0], [np.nan, 0.0]])
    for _ in range(6):
        _, decisions = stream.feed(np.zeros((2, 2)))
    assert decisions.all()
    refuses("there is no frame 7", stream.feed, np.zeros((2, 2)))

"""Earlyboost and Earlyboost.MH (EB): boosting where round t sees frame t of a sequence and no other.

Of the stagewise loop's parts: the exponential loss on signs, one view per frame, the weighted signs as
targets, and the closed-form step.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import Tags

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.boosting.loop import StagewiseLoop, advance
from usboost.boosting.rounds import BoostedSamples, Stage, StagewiseModel
from usboost.boosting.steps import ClosedForm
from usboost.boosting.targets import WeightedSigns
from usboost.data.views import Frame, Views, as_sequences, frame_name
from usboost.errors import UsboostError
from usboost.evaluation.metrics import accuracy, f1
from usboost.evaluation.statistics import effective_sample_size
from usboost.learners.base import Target
from usboost.learners.estimators import ClassifierLearner
from usboost.losses.exponential import Exponential
from usboost.models.base import ViewsClassifier
from usboost.process import OwnSettings


@dataclass(eq=False, repr=False)
class EarlyBoostClassifier(StagewiseModel, ViewsClassifier):
    """Classifier of sequences that can answer after any number of frames.

    H^t(x) = Σ_{s ≤ t} α_s h_s(x_s), where the weak classifier h_s was fitted to frame s alone; the
    answer at time t is the sign of H^t (binary) or the class of the largest H^t_k (MH).

    Sequences are an array (n, T, d), an array (n, T) for d = 1, or a list of n arrays (T_i, d) of
    unequal lengths. Then T is the longest one, and a sequence that has ended has no frame t: h_t is
    0 for it, it is not fitted to, and its answer stays. α_t is computed of the weight that still
    runs, which is the exact minimiser of the loss (the boosting literature's abstaining classifier).
    NaN is refused, wherever it is; so are sequences longer than T.

    A frame whose weak classifier is no better than chance gets α_t = 0: its vote does not count. One
    without a training error would get α_t = ∞ and gets `max_alpha`. Unseen classes are never answered.

    Parameters
    ----------
    estimator : scikit-learn classifier whose ``fit`` takes ``sample_weight``, optional
        Cloned for every frame and class. Default: a tree of depth 3.
    algorithm : {"auto", "binary", "mh"}
        "binary" is Earlyboost, for two classes; "mh" is Earlyboost.MH, with one one-vs-all classifier
        per class and frame; "auto" is "binary" where there are two classes.
    max_alpha : the largest α_t. Default: ½ log(2nD − 1) for n sequences and D = 1 or K classifiers a frame,
        what half of one wrong decision among equally weighted ones would give.
    random_state, callbacks, checkpoint : as of `TwoWeakLearnerClassifier`

    Attributes
    ----------
    classes_ : array of the K labels
    n_features_in_ : d
    n_frames_, n_estimators_ : T
    stages_ : list of T Stage
    alphas_ : float64 (T,)
        α_t.
    errors_ : float64 (T,)
        ε_t, the weight that the frame's classifiers got wrong, of the weight D that still runs.
    r_ : float64 (T, D)
        r_{t,k} of (23); 1 − 2 ε_t = Σ_k r_{t,k}. One column when binary.
    history_ : list of dicts, one a frame
        "alpha", "error", "r_<k>" (k counts ``classes_``; "r_0" when binary), "risk_train" (J(H^t)/n),
        "accuracy_train", with validation data "risk_val", "accuracy_val" and "f1_val", and seconds.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from usboost import EarlyBoostClassifier
    >>> digits = load_digits(n_class=3)
    >>> model = EarlyBoostClassifier().fit(digits.images, digits.target)  # eight rows, one a frame
    >>> right = [sum(answers == digits.target) for answers in model.staged_predict(digits.images)]
    >>> len(right), bool(right[7] > right[0])
    (8, True)
    """

    holds: ClassVar[Mapping[str, Any]] = {
        "estimator": ("DecisionTreeClassifier", "ExtraTreeClassifier", "LogisticRegression")
    }

    estimator: Any = None
    algorithm: str = "auto"
    max_alpha: float | None = None
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None
    checkpoint: Checkpoint | Path | str | None = None

    def fit(
        self,
        X: Any,
        y: Any,
        validation: tuple[Any, ...] | None = None,
        sample_weight: Any = None,
        groups: Any = None,
        times: Any = None,
    ) -> Self:
        """Fit to n sequences and their labels.

        Raises `UsboostError` if sequences, labels or weights are not usable, or the algorithm or estimator
        does not suit.

        Parameters
        ----------
        X : sequences, see above
        y : (n,) labels of any type that sorts
        validation : (X, y) or (X, y, sample_weight), optional
            Other sequences, scored after every frame and never fitted to.
        sample_weight : as of `usboost.models.base.ViewsClassifier.fit`; a sequence's D(i, k) is that of all
            rows that it stands for
        groups, times : as there; no samples are set aside, so that they change nothing
        """
        sequences = as_sequences(X)
        n_frames, n_features = sequences.n_frames, sequences.n_features
        if validation is not None:
            val = as_sequences(validation[0], n_features, n_frames)
            validation = val.views(n_frames), *validation[1:]
        super().fit(sequences.views(n_frames), y, validation, sample_weight, groups, times)
        self.n_features_in_ = n_features
        self.errors_ = np.array([row["error"] for row in self.history_])
        columns = range(self._loss().n_outputs)
        self.r_ = np.array([[row[f"r_{k}"] for k in columns] for row in self.history_])
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _reads(self, n_columns: int) -> Sequence[str]:
        return [frame_name(t) for t in range(1, n_columns + 1)]

    def _weak_learners(self) -> dict[str, Any]:
        return {"a frame": ClassifierLearner(self.estimator)}

    def _learner_names(self, index: int) -> set[str]:
        return {frame_name(index)}

    def _columns_of(self, name: str) -> int | None:
        return self.n_features_in_

    @property
    def n_frames_(self) -> int:
        """Return T."""
        return len(self.stages_)

    @property
    def alphas_(self) -> np.ndarray:
        """Return α_t of every frame, float64 (T,)."""
        return np.array([step for stage in self.stages_ for step in stage.steps.values()])

    def _fit(self, views: Views, codes: np.ndarray, context: FitContext) -> None:
        if self.algorithm not in ("auto", "binary", "mh"):
            raise UsboostError(f"unknown algorithm {self.algorithm!r}; use 'auto', 'binary' or 'mh'")
        if self.algorithm == "binary" and len(self.classes_) > 2:
            raise UsboostError(f"'binary' takes two classes, not {len(self.classes_)}; use 'mh'")
        loss, n_classes = self._loss(), len(self.classes_)
        cap = self.max_alpha
        if cap is None:
            w = np.ones(len(codes)) if context.weights is None else context.weights
            rows = max(float(w.sum()), effective_sample_size(w))  # whatever the weights' scale
            # α for half of one entry of D being wrong, ε = 1/(2 n D)
            cap = 0.5 * math.log(2 * rows * loss.n_outputs - 1)
        elif not 0 < cap < math.inf:
            raise UsboostError(f"max_alpha must be a positive finite number, not {cap}")

        def describe(
            stage: Stage, train: BoostedSamples, targets: Sequence[Target], outputs: Sequence[np.ndarray]
        ) -> dict[str, float]:
            (alpha,), (target,), (output,) = stage.steps.values(), targets, outputs
            assert target.error_weights is not None
            # r_k = Σ_right D − Σ_wrong D of the sequences that have this frame, D scaled to sum 1 (EB 25)
            running = target.error_weights * np.abs(output)
            r = (running * target.values * output).sum(axis=0) / max(running.sum(), 1e-300)
            metrics = {"alpha": alpha, "error": 0.5 * (1.0 - float(r.sum()))}
            metrics |= {f"r_{k}": float(value) for k, value in enumerate(r)}
            return metrics | {"accuracy_train": accuracy(codes, _answers(train.f), context.weights)}

        def evaluate(f: np.ndarray, y: np.ndarray) -> dict[str, float]:
            true, predicted, weights = _answers(y), _answers(f), context.val_weights
            scored = {"f1": f1(true, predicted, n_classes, weights)}
            return scored | {"accuracy": accuracy(true, predicted, weights)}

        learner = ClassifierLearner(self.estimator)
        validation = context.validation and (context.validation[0], self._signs(context.validation[1]))
        watch = context.watch()
        loop = StagewiseLoop(
            loss=loss,
            learners=lambda t: {frame_name(t): learner},
            target=WeightedSigns(),
            step=ClosedForm(lowest=0.0, highest=cap),
            n_rounds=len(views.names),
            evaluate=evaluate,
            describe=describe,
            seed=self.random_state,
            callbacks=watch.callbacks,
            checkpoint=context.checkpoint,
        )
        weights = context.weights, context.val_weights
        self.stages_ = loop.run(views, self._signs(codes), validation, (), *weights)
        # all T rounds are run and kept: a sequence may have that many frames
        self.history_, self.best_round_ = watch.history, len(self.stages_)

    def _loss(self) -> Exponential:
        binary = self.algorithm != "mh" and len(self.classes_) == 2
        return Exponential(1 if binary else len(self.classes_))

    def _signs(self, codes: np.ndarray) -> np.ndarray:
        """Return g_k(y) = ±1, float64 (n, D)."""
        if self._loss().n_outputs == 1:
            return 2.0 * codes[:, None] - 1.0
        return 2.0 * np.eye(len(self.classes_))[codes] - 1.0

    def running(self, n: int) -> "RunningScores":
        """Begin the scores of n new sequences, whose frames `RunningScores.feed` takes."""
        self._check_fitted()
        return RunningScores(self, n)

    def staged_decision_function(self, X: Any) -> Iterator[np.ndarray]:
        """Return `decision_function` after each frame of the longest sequence in X."""
        return (scores.decision_function() for scores in self._staged(X))

    def staged_predict_proba(self, X: Any) -> Iterator[np.ndarray]:
        """Return `predict_proba` after each frame of the longest sequence in X."""
        return (scores.probabilities() for scores in self._staged(X))

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Return `predict` after each frame of the longest sequence in X."""
        return (self.classes_[scores.codes()] for scores in self._staged(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return H^t of sequences that have had t ≤ T frames: float64 (n,) when binary, else (n, K)."""
        return self._last(X).decision_function()

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict class probabilities of sequences that have had t ≤ T frames: float64 (n, K).

        1 / (1 + exp(−2 H^t)), the link at which the exponential loss is calibrated; the K one-vs-all
        ones are scaled to sum 1.
        """
        return self._last(X).probabilities()

    def predict(self, X: Any) -> np.ndarray:
        """Predict for sequences that have had t ≤ T frames, (n,); the first class on a draw."""
        self._check_fitted()
        return self.classes_[self._last(X).codes()]

    def _last(self, X: Any) -> "RunningScores":
        *_, last = self._staged(X)
        return last

    def _staged(self, X: Any) -> "Iterator[RunningScores]":
        self._check_fitted()
        sequences = as_sequences(X, self.n_features_in_, self.n_frames_)
        scores = self.running(len(sequences))
        for t in range(1, sequences.n_frames + 1):
            scores.feed(sequences.frame(t))
            yield scores


class RunningScores(OwnSettings):
    """H^t of n sequences whose frames arrive one by one: `f`, float64 (n, D), after `t` of `n_frames`, T."""

    def __init__(self, model: EarlyBoostClassifier, n: int) -> None:
        self._stages, self._loss = model.stages_, model._loss()
        self._learner, self._n_features = ClassifierLearner(model.estimator), model.n_features_in_
        self.t, self.n_frames = 0, len(model.stages_)
        self.f = np.zeros((n, self._loss.n_outputs))

    def feed(self, frame: Frame) -> None:
        """Add the next frame of all n sequences.

        Raises `UsboostError` if the model has no further frame or the frame has another shape.
        """
        expected = len(self.f), self._n_features
        if frame.values.shape != expected:
            raise UsboostError(f"a frame must have the shape {expected}, not {frame.values.shape}")
        if self.t == self.n_frames:
            raise UsboostError(f"the model was trained on {self.t} frames; there is no frame {self.t + 1}")
        self.t += 1
        advance(self.f, self._stages[self.t - 1], {frame_name(self.t): self._learner.prepare(frame)})

    def decision_function(self) -> np.ndarray:
        """Return H^t, (n,) when binary, else (n, K)."""
        return self.f[:, 0].copy() if self.f.shape[1] == 1 else self.f.copy()

    def probabilities(self) -> np.ndarray:
        """Return class probabilities, (n, K)."""
        return self._loss.probabilities(self.f)

    def margins(self) -> np.ndarray:
        """Return the difference of the two largest scores H^t_k, (n,); when binary they are H^t and −H^t."""
        if self.f.shape[1] == 1:
            return 2.0 * np.abs(self.f[:, 0])
        second, first = np.partition(self.f, -2, axis=1)[:, -2:].T
        return first - second

    def codes(self) -> np.ndarray:
        """Return answers as positions in the classes, int (n,)."""
        return _answers(self.f)


def _answers(f: np.ndarray) -> np.ndarray:
    """Return codes of the classes that scores, or signs, of shape (n, D) stand for."""
    return (f[:, 0] > 0).astype(np.intp) if f.shape[1] == 1 else f.argmax(axis=1)

"""A trigger that decides at which frame a classifier with an answer at every frame is believed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from usboost.data.views import Frame, Sequences, as_sequences
from usboost.errors import UsboostError
from usboost.models.methods.earlyboost import EarlyBoostClassifier
from usboost.process import OwnSettings


def harmonic_mean(accuracy: float, earliness: float) -> float:
    """Return 2·acc·(1 − e) / (acc + 1 − e), with earliness e = mean t/T in (0, 1]; 0 if both terms are 0."""
    timeliness = 1.0 - earliness
    total = accuracy + timeliness
    return 2.0 * accuracy * timeliness / total if total > 0 else 0.0


@dataclass(eq=False, repr=False)
class EarlyTrigger(ClassifierMixin, OwnSettings, BaseEstimator):
    """Answers as soon as the classifier is sure enough, and at the last frame in any case.

    `predict` follows the convention of early classifiers in aeon: sequences so far in, a label or −1
    and whether it is decided out. A decision, once made, is not taken back, and depends on the
    frames up to it alone; so frames one by one (`stream`) and all at once give the same answers.

    Parameters
    ----------
    classifier : EarlyBoostClassifier, optional
        Default: one with its defaults.
    threshold : answer when the probability or margin is at least this. No value suits all data: choose it on
        other sequences by `score`.
    by : {"probability", "margin"}
        The probability of the most probable class, or the difference of the two largest scores
        H^t_k; when binary these are H^t and −H^t.

    Attributes
    ----------
    classifier_ : the fitted classifier
    classes_ : array of the K labels

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from usboost import EarlyTrigger
    >>> digits = load_digits(n_class=3)
    >>> trigger = EarlyTrigger(threshold=0.8).fit(digits.images, digits.target)
    >>> answers, rows_read = trigger.decision_times(digits.images)
    >>> bool((answers == digits.target).mean() > 0.8), bool(rows_read.mean() < 5)  # of eight rows
    (True, True)
    """

    instead_of_a_file = "save its classifier_, and give the loaded one to `EarlyTrigger(…).use`"

    classifier: EarlyBoostClassifier | None = None
    threshold: float = 0.7
    by: str = "probability"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "EarlyTrigger":
        """Fit a clone of the classifier to sequences and labels; see `EarlyBoostClassifier.fit`.

        Raises `UsboostError` if the trigger's settings, the sequences or the labels are not usable.
        """
        self._check_settings()
        classifier = EarlyBoostClassifier() if self.classifier is None else clone(self.classifier)
        return self.use(classifier.fit(X, y, sample_weight=sample_weight))

    def use(self, fitted: EarlyBoostClassifier) -> "EarlyTrigger":
        """Take a fitted classifier as it is instead of fitting one."""
        self.classifier_, self.classes_ = fitted, fitted.classes_
        return self

    def _check_settings(self) -> None:
        if self.by not in ("probability", "margin"):
            raise UsboostError(f"a trigger goes by 'probability' or 'margin', not {self.by!r}")
        if not self.threshold >= 0 or (self.by == "probability" and self.threshold > 1):
            raise UsboostError(f"the threshold {self.threshold} is no {self.by}; no sample could meet it")

    def stream(self, n: int) -> "Stream":
        """Begin n sequences whose frames are yet to come."""
        check_is_fitted(self, "classifier_")
        self._check_settings()
        return Stream(self, n)

    def predict(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Predict labels and decisions for sequences as far as they have come.

        Parameters
        ----------
        X : sequences of up to T frames, as `EarlyBoostClassifier` takes them

        Returns
        -------
        labels : (n,)
            The label, or −1 where there is no decision yet. Of the labels' own dtype where that is a
            signed number, else of Python objects. Where −1 is a class itself, ask `decisions`.
        decisions : bool (n,)
            True for all that have had T frames. A sequence that ended before may be undecided for
            ever, since it might go on as far as this method knows; see `decision_times`.
        """
        return self._run(self._sequences(X)).answers()

    def decision_times(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return labels (n,) and the frame t at which each was decided, int (n,), for complete sequences.

        A sequence undecided at its last frame T_i is answered then.
        """
        sequences = self._sequences(X)
        stream = self._run(sequences)
        codes = np.where(stream.decided, stream.codes, stream.scores.codes())
        return self.classes_[codes], np.where(stream.decided, stream.times, sequences.lengths)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the harmonic mean of `figures`, by which searches can choose the threshold."""
        return self.figures(X, y, sample_weight)[0]

    def figures(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[float, float, float]:
        """Return (harmonic mean, accuracy, earliness) on complete sequences with labels y.

        Earliness is the mean of t_i/T_i, the share of each sequence that was read. The harmonic mean
        is that of the accuracy and 1 − earliness; see `harmonic_mean`.
        """
        sequences = self._sequences(X)
        y = np.asarray(y)
        if y.shape != (len(sequences),):
            raise UsboostError(f"y needs a label for each of the {len(sequences)} sequences, not {y.shape}")
        labels, times = self.decision_times(sequences)
        accuracy = float(np.average(labels == y, weights=sample_weight))
        earliness = float(np.average(times / sequences.lengths, weights=sample_weight))
        return harmonic_mean(accuracy, earliness), accuracy, earliness

    def _sequences(self, X: Any) -> Sequences:
        check_is_fitted(self, "classifier_")
        return as_sequences(X, self.classifier_.n_features_in_, self.classifier_.n_frames_)

    def _run(self, sequences: Sequences) -> "Stream":
        stream = self.stream(len(sequences))
        for t in range(1, sequences.n_frames + 1):
            stream.take(sequences.frame(t))
        return stream


class Stream(OwnSettings):
    """n sequences whose frames arrive one by one, the classifier's `scores`, and what is decided of them.

    `decided`, bool (n,); `codes`, positions in ``classes_``, or −1; `times`, the decisions' frames, or 0.
    """

    def __init__(self, trigger: EarlyTrigger, n: int) -> None:
        self._trigger, self.scores = trigger, trigger.classifier_.running(n)
        self.decided = np.zeros(n, dtype=bool)
        self.codes, self.times = np.full(n, -1), np.zeros(n, dtype=int)

    def feed(self, frame: Any, present: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Take the next frame of every sequence.

        Parameters
        ----------
        frame : (n, d) numbers, or (n,) for d = 1; finite
        present : bool (n,), optional
            False for sequences that have ended; default: none has. Their numbers are not read.

        Returns
        -------
        Labels and decisions, as `EarlyTrigger.predict` gives them for all frames so far.
        """
        present = np.ones(len(self.decided), dtype=bool) if present is None else np.asarray(present, bool)
        values = np.asarray(frame, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != len(present) or len(present) != len(self.decided):
            raise UsboostError(f"a frame has rows of {len(self.decided)} sequences, not {values.shape}")
        values = np.where(present[:, None], values, 0.0)
        wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(wrong):
            raise UsboostError(f"sequence {wrong[0]} has NaN or infinity in frame {self.scores.t + 1}")
        self.take(Frame(values, present))
        return self.answers()

    def take(self, frame: Frame) -> None:
        """Take a frame that is known to be in order, without the answers."""
        self.scores.feed(frame)
        trigger, t = self._trigger, self.scores.t
        by_margin = trigger.by == "margin"
        confidence = self.scores.margins() if by_margin else self.scores.probabilities().max(axis=1)
        sure = (confidence >= trigger.threshold) | (t == self.scores.n_frames)
        new = ~self.decided & frame.present & sure
        self.codes[new], self.times[new] = self.scores.codes()[new], t
        self.decided |= new

    def answers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return labels, −1 where undecided, and decisions."""
        classes = self._trigger.classes_
        numeric = classes.dtype.kind in "iuf"
        labels = np.full(len(self.codes), -1, np.result_type(classes.dtype, np.int8) if numeric else object)
        labels[self.decided] = classes[self.codes[self.decided]]
        return labels, self.decided.copy()

"""scikit-learn estimators for DataFrames with columns of any kind, images among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, column_or_1d

from usboost.boosting.callbacks import Callback, TimeLimit
from usboost.check import beside_fit
from usboost.data.value import find
from usboost.errors import UsboostError, warn
from usboost.fit import bundle as bundles
from usboost.fit.build import fit as fit_table
from usboost.fit.bundle import Bundle
from usboost.fit.card import OF_PROCESS
from usboost.fit.explain import explain_rows
from usboost.fit.options import FitOptions, ImageOptions
from usboost.fit.parameters import check_parameters, column_of, frame_of, has_names, label_name, seed_of
from usboost.models import catalogue
from usboost.process import OwnSettings, with_own_settings
from usboost.table.schema import describe, notes_of_table
from usboost.table.source import FrameRows
from usboost.table.spec import SIZE, TableSpec
from usboost.table.user_table import FEWEST, UserTable, read_table

LABEL = "label"
"""Name of y where it has none."""

Columns = str | Sequence[str] | None


class _FitAttributes(OwnSettings, BaseEstimator):  # apart: a dataclass's annotations are parameters
    bundle_: Bundle
    scores_: dict[str, float]
    best_round_: int
    images_help_: bool | None
    feature_names_in_: np.ndarray
    n_features_in_: int


@dataclass(eq=False, repr=False)
class _Multimodal(_FitAttributes):
    """Base of the classifier and the regressor; a `Bundle` does the predicting.

    Fields of the same name as those of `TableSpec`, `ImageOptions` and `FitOptions` are these.
    """

    task: ClassVar[Literal["classification", "regression"]]
    instead_of_a_file = "use its own `save`"

    model: str | None = None
    image: Columns = None
    categorical: Columns = None
    text: Columns = None
    drop: Columns = None
    missing: Columns = None
    images_root: Path | str | None = None
    backbone: str = "tf_efficientnet_lite0"
    finetune: Literal["auto", "none", "last", "all"] = "auto"
    size: int | Literal["auto"] = SIZE
    skip_unreadable: bool = False
    rounds: int | None = None
    refit: bool | None = None
    device: str = "auto"
    preset: Literal["fast", "best"] | None = None
    time_limit: float | None = None
    random_state: int | np.random.RandomState | None = 0
    callbacks: Sequence[Callback] | None = None
    group: str | None = None
    time: str | None = None
    split: str | None = None

    def fit(self, X: Any, y: Any, groups: Any = None, times: Any = None, sample_weight: Any = None) -> Self:
        """Fit to n rows and their labels, or numbers.

        Raises `UsboostError` if a column or label cannot be used, or a setting is not known.

        Parameters
        ----------
        X : DataFrame of n rows, or an array (n, p)
        y : (n,) labels, or numbers; rows whose label is missing are left out
        groups : (n,), optional; rows of one group are never on both sides of a split, also inside the fit
        times : (n,), optional; the later rows are those for early stopping, and judge fits inside the fit
        sample_weight : (n,) numbers of at least 0, optional; how much each row counts, 0 for not at all.
            Those above 0 are divided by their mean.
        """
        check_parameters(self)
        seed = seed_of(self.random_state)
        limit = [] if self.time_limit is None else [TimeLimit(self.time_limit)]
        frame = self._frame(X, reset=True)
        if len(frame) < FEWEST:
            rows = "1 sample" if len(frame) == 1 else f"{len(frame)} samples"
            raise UsboostError(f"X has {rows}; {FEWEST} or more are needed to learn from")
        table = self._table(frame, y, groups, times, sample_weight)
        for each in notes_of_table(table, describe(table)):
            warn(each)
        given = self.get_params(deep=False)
        if isinstance(by_label := given.get("class_weight"), Mapping):
            given["class_weight"] = {label_name(label): weight for label, weight in by_label.items()}
        limited, with_images = self.time_limit is not None, bool(table.images)
        fitted = fit_table(
            table,
            catalogue.resolve_model(self.model, self.preset, limited, images=with_images, task=table.task),
            images=ImageOptions.of(given).for_preset(self.preset) if table.images else None,
            callbacks=[*(self.callbacks or ()), *limit],
            **vars(FitOptions.of(given, seed=seed)),
        )
        for each in beside_fit(table, fitted.bundle.model):
            warn(each)
        labels: dict[str, Any] = {}
        if table.classes and table.label_kind == "str":  # of one class what most rows have
            given = y if isinstance(y, pd.Series) else np.asarray(y, dtype=object).ravel()
            values = pd.Series([*given], dtype=object).iloc[table.rows]
            by_class = values.groupby(table.labels).agg(lambda each: each.value_counts(sort=True).index[0])
            if by_class.map(lambda each: isinstance(each, (str, bytes))).all():
                labels = dict(zip(table.classes, by_class, strict=True))
        names = frame.columns.to_list()
        self.feature_names_in_, self.n_features_in_ = np.asarray(names, dtype=object), len(names)
        bundle = fitted.bundle.as_given(names, labels)
        self.bundle_ = bundle.fitted_with(self.get_params(deep=False))
        self.scores_ = fitted.scores
        self.best_round_, self.images_help_ = fitted.best_round, fitted.images_help
        self._loaded()
        return self

    def _table(self, frame: pd.DataFrame, y: Any, groups: Any, times: Any, weights: Any) -> UserTable:
        """Return the rows with their labels, groups, times and weights, as further columns."""
        if y is None:
            raise UsboostError("fit requires y to be passed, but the target y is None; pass the labels")
        named = {"group": self.group, "time": self.time, "split": self.split}
        taken, names = set(frame.columns), {role: name for role, name in named.items() if name is not None}
        given = {"label": y, "group": groups, "time": times, "weight": weights}
        for role, values in given.items():
            if values is None:
                continue
            if role in names:
                raise UsboostError(f"{role}s are given, and the column {names[role]!r}; leave one out")
            column = column_of(values)
            is_period = isinstance(getattr(values, "dtype", None), pd.PeriodDtype)
            if role == "label" and (is_period or column.dtype.kind in "mM"):
                raise UsboostError("y holds dates or durations; give numbers, or y.astype(str) as classes")
            if column.ndim == 2 and column.shape[1] == 1:
                column = column_or_1d(column, warn=True)
            if column.ndim != 1 or len(column) != len(frame):
                raise UsboostError(f"the {role} has the shape {column.shape}; X has {len(frame)} rows")
            name = str(getattr(values, "name", None) or (LABEL if role == "label" else role))
            while name in taken:
                name = f"{name}_"
            taken.add(name)
            names[role] = name
            frame = frame.assign(**{name: column})
        root, given = self._root(), self.get_params(deep=False)
        positive = getattr(self, "positive", None)
        roles = {**names, "task": self.task, "image": self.image, "images_root": root}
        roles["positive"] = None if positive is None else label_name(positive)
        return read_table(FrameRows(frame, root), TableSpec.of(given, **roles))

    def _root(self) -> Path | None:
        return None if self.images_root is None else Path(self.images_root)

    def _frame(self, X: Any, *, reset: bool = False) -> pd.DataFrame:
        """Return X as a DataFrame, see `frame_of`; one to be fitted to tells its columns."""
        # of a model that the command line fitted, which may have left out columns, the order is not known
        card = None if reset else self.bundle_.card
        placed = card is not None and (card.names or len(card.columns) == self.n_features_in_)
        frame = frame_of(X, list(self.feature_names_in_) if placed else None)
        if reset:
            if not len(frame) or not frame.shape[1]:
                few = "0 sample(s)" if not len(frame) else "0 feature(s)"
                raise UsboostError(f"X has {few} (shape={frame.shape}) while a minimum of 1 is required.")
        elif not has_names(X) and frame.shape[1] != self.n_features_in_:
            raise UsboostError(
                f"X has {frame.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return frame

    def predict(self, X: Any) -> np.ndarray:
        """Return the label, or float64 number, of each row, (n,)."""
        return self.predict_frame(X).iloc[:, 0].to_numpy()

    def predict_frame(self, X: Any, strict: bool = False) -> pd.DataFrame:
        """Return the answers with X's index, as `usboost predict` writes them; see `Bundle.answers`.

        Numbers, dates and images that cannot be read count as missing; a `UsboostWarning` says how many.

        Raises `UsboostError` if a column is missing, or no value of one (no image of several) can be read.

        Parameters
        ----------
        X : DataFrame of n rows, or an array (n, p); images may be Pillow's, or uint8 arrays, too.
        strict : refuse what cannot be read, and a column that lacks far more values than in training.
        """
        check_is_fitted(self, "bundle_")
        frame = self._frame(X)
        answers = self.bundle_.predict(FrameRows(frame, self._root(), mixed=True), strict=strict)
        answers.index = frame.index
        return answers

    def explain(self, X: Any, against: Any = None, *, parts: bool = False) -> pd.DataFrame:
        """Return what each column adds to the margin of each row's answer, with X's index.

        Shapley values, see `usboost.models.inspection.attribution`. The margin of a class is its log-odds; of
        more than two classes it is its score less the mean of the others'; a number's is the number,
        before its floor.

        Raises `UsboostError` if the model is none that can be explained, the rows to compare with are fewer
        than 10, or as `predict_frame`.

        Parameters
        ----------
        X : as of `predict_frame`.
        against : rows of the same columns that each is compared with, of which 64 are drawn; by default X.
        parts : share out what the images add over 5 × 5 squares of each; seconds for each image.

        Returns
        -------
        A column for each one that the model reads, one for all images, or each square (``photo 1,2``: the
        second of the first line), and ``mean``, the margin's mean over the rows compared with. A row's sum is
        its margin.
        """
        check_is_fitted(self, "bundle_")
        frame, root = self._frame(X), self._root()
        other = frame if against is None else self._frame(against)
        sources = [FrameRows(each, root, mixed=True) for each in (frame, other)]
        shares = explain_rows(self.bundle_, *sources, parts=parts)
        shares.index = frame.index
        return shares

    def save(self, folder: Path | str) -> None:
        """Write the fitted model, as `usboost fit` does; `load`, `usboost predict` and MLflow read it.

        Raises `UsboostError` if it cannot be written, or something other than a saved model is there.
        """
        check_is_fitted(self, "bundle_")
        self.bundle_.save(Path(folder))

    @classmethod
    @with_own_settings
    def load(cls, folder: Path | str, images_root: Path | str | None = None) -> Self:
        """Return the estimator of a model that `save` or `usboost fit` wrote.

        Raises `UsboostError` if there is none, it is damaged, or it is of another task.

        Parameters
        ----------
        images_root : folder that paths of images are relative to.
        """
        bundle = bundles.load(Path(folder))
        card = bundle.card
        if card.task != cls.task:
            raise UsboostError(f"{folder} holds a model for {card.task}; load it with the other class")
        images = card.images
        made = cls(model=card.model, image=images.columns if images else None, random_state=card.seed)
        made.set_params(images_root=images_root, **({"size": images.size[0]} if images else {}))
        known = made.get_params(deep=False).keys() & card.parameters.keys() - OF_PROCESS
        made.set_params(**{name: card.parameters[name] for name in known})
        made.bundle_ = bundle
        made.scores_ = {key: value for key, value in card.scores.items() if value is not None}
        names = card.names or card.read_and_dropped
        made.feature_names_in_, made.n_features_in_ = np.asarray(names, dtype=object), len(names)
        made._loaded()
        return made

    def _loaded(self) -> None:
        """Set what a fit would have set besides the bundle."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "bundle_")


@dataclass(eq=False, repr=False)
class MultimodalClassifier(ClassifierMixin, _Multimodal):
    """Predicts the classes of a DataFrame's rows: numbers, categories, dates, texts, images.

    Columns are read as `usboost fit` reads those of a file: gaps, categories that training did not have and
    rows without an image are no error. What `usboost fit` and `usboost predict` print as notes is a
    `UsboostWarning`.

    Parameters
    ----------
    model : a name in `models.catalogue.OFFERED`; by default average, or with `time_limit` best
    image : column, or columns, of images: bytes, or paths below `images_root`
    categorical, text, drop : columns that are categories, or text, whatever they look like, and columns to
        leave out
    missing : further values that count as missing
    images_root : folder that paths of images are relative to
    backbone, finetune : how images are read, see `usboost.fit.options.ImageOptions`; size : their side
        in pixels, or "auto": 160 or 224, as validation rows say
    skip_unreadable : count images that cannot be read as missing in `fit`; elsewhere they do anyway
    rounds : boosting rounds, epochs or trees at most
    calibrate : whether probabilities are tempered where that helps on rows that were not fitted to
    threshold : of two classes, the probability of the positive one from which it is the answer; "f1" takes
        the one of the best F1 on the validation rows
    positive : of two classes, the one that `threshold` is of; by default the rarer
    refit : whether the model is fitted again to all rows, for as many rounds as validation rows chose; by
        default as `usboost.fit.table_fit.TableFit` says: if there is time
    device : of networks: "auto" (a GPU if there is one), "cpu" or "cuda"
    class_weight : "balanced", or a weight for each label (1 for those not in it), times the rows' own; see
        `usboost.fit.table_fit.TableFit` for what it does to probabilities
    preset : instead of `model`: "fast" is one model, "best" a blend of several, each fitted many times
    time_limit : seconds; no round, or fit of a blend, begins that would end later
    random_state : of the rows for early stopping, which are 15 %, and of the model; None for another one each
        time, or a RandomState
    callbacks : of the fit, see `usboost.boosting.callbacks`
    group, time, split : column of X that says how rows are divided, and is no feature: those of one group
        stay on one side, the later ones are for early stopping, or train, val and test. They hold inside the
        fit, too, see `usboost.evaluation.folds.Related`. `predict` does not need the column

    Attributes
    ----------
    classes_ : labels, sorted; columns of `predict_proba`
    bundle_ : the fitted `Bundle`
    scores_ : of the rows for early stopping, hence optimistic
    best_round_ ; images_help_ ; feature_names_in_ ; n_features_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import MultimodalClassifier
    >>> table, y = load_iris(as_frame=True, return_X_y=True)
    >>> model = MultimodalClassifier(model="logistic").fit(table, y)  # image="photo": a column of images
    >>> list(model.predict_frame(table.head(2)))
    ['label', 'p_0', 'p_1', 'p_2']
    """

    task = "classification"

    calibrate: bool = True
    threshold: Literal["f1"] | float | None = None
    positive: Any = None
    class_weight: Any = None

    def _loaded(self) -> None:
        labels = self.bundle_.labels
        self._order = np.argsort(labels, kind="stable")
        self.classes_ = labels[self._order]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities, float64 (n, M), columns as in ``classes_``."""
        return self.predict_frame(X).drop(columns="label").to_numpy()[:, self._order]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows, by their weights, whose label is predicted, however y has it written."""
        check_is_fitted(self, "bundle_")
        given = column_or_1d(column_of(y))
        if none := int(pd.isna(given).sum()):
            raise UsboostError(f"{none:,} of {len(given):,} labels are missing; leave these rows out")
        known = find({name: name for name in self.bundle_.card.classes}, names := [*map(label_name, given)])
        called = dict(zip(self.bundle_.labels, self.bundle_.card.classes, strict=True))
        predicted = [called[each] for each in self.predict(X)]
        return float(accuracy_score([known.get(v, v) for v in names], predicted, sample_weight=sample_weight))

    def predict_set(self, X: Any, *, per_class: bool = False) -> np.ndarray:
        """Return which classes may be a row's, bool (n, M), columns as in ``classes_``.

        About 9 in 10 sets hold the true class, by validation rows (split conformal prediction); on average,
        not for each class or group; with `per_class`, sets hold 9 in 10 rows of each class that has nine such
        rows or more. A set holds the answer, and several classes where the model is uncertain.
        """
        predicted = self.predict_frame(X).drop(columns="label").to_numpy()
        return self.bundle_.sets(predicted, per_class=per_class)[:, self._order]


@dataclass(eq=False, repr=False)
class MultimodalRegressor(RegressorMixin, _Multimodal):
    """Predicts a number for each row of a DataFrame: from numbers, categories, dates, texts, images.

    Parameters
    ----------
    As of `MultimodalClassifier`, but those of probabilities.

    Attributes
    ----------
    bundle_, scores_, best_round_, images_help_, feature_names_in_, n_features_in_
        As of `MultimodalClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from usboost import MultimodalRegressor
    >>> table, y = load_diabetes(as_frame=True, return_X_y=True)
    >>> model = MultimodalRegressor(model="ridge").fit(table, y)
    >>> list(model.predict_frame(table.head(2)))
    ['prediction', 'low', 'high']
    """

    task = "regression"

"""A fitted model's inspection: computed after the fit, kept in files, shown on the report's page."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import confusion
from usboost.models.base import ViewsClassifier
from usboost.models.inspection import (
    calibration,
    expected_calibration_error,
    view_contributions,
    view_importance,
    worst_samples,
)
from usboost.reporting import inspection_figures as drawn
from usboost.reporting.figures import to_svg

FOLDER = "inspection"
"""Beside a cell's scores."""

FILE = "inspection.json"
TABLES = {
    "contributions": ("round", "view", "contribution"),
    "importance": ("view", "metric", "mean", "std"),
    "calibration": ("low", "high", "count", "predicted", "observed", "observed_low", "observed_high"),
    "worst": ("row", "true", "predicted", "p_true", "p_predicted"),
}
TITLES = {
    "contributions": "Contribution of each view",
    "importance": "Permutation importance of each view",
    "calibration": "Calibration",
    "confusion": "Confusion matrix",
}
_KINDS = {"view": str, "metric": str, "round": int, "count": int, "row": int, "true": int, "predicted": float}
COLUMNS = 8  # of a sample
SHUFFLES = 5  # of each view
_MOST_VIEWS = 4  # a sequence has a view a frame
_LARGEST = 4_000_000  # bytes of a picture or a table that a page takes


@dataclass(frozen=True)
class Inspection:
    """One fitted model on one set of samples.

    Attributes
    ----------
    classes : names
    confusion : counts (M, M), a row a true class
    contributions, importance, calibration, worst : as `usboost.models.inspection` gives them; the first
        two are empty where a model has a single view
    """

    classes: list[str]
    confusion: np.ndarray
    contributions: pd.DataFrame
    importance: pd.DataFrame
    calibration: pd.DataFrame
    worst: pd.DataFrame

    @property
    def figures(self) -> dict[str, Callable[[], Figure]]:
        """What draws each figure that can be drawn, by name."""
        error = expected_calibration_error(self.calibration)
        of_calibration = f"{TITLES['calibration']} (expected error {error:.3f})"
        found: dict[str, Callable[[], Figure]] = {
            "contributions": lambda: drawn.contributions(self.contributions, TITLES["contributions"]),
            "importance": lambda: drawn.importance(self.importance, TITLES["importance"]),
            "calibration": lambda: drawn.calibration(self.calibration, of_calibration),
            "confusion": lambda: drawn.confusion(self.confusion, self.classes, TITLES["confusion"]),
        }
        left_out = {name for name in ("contributions", "importance") if getattr(self, name).empty}
        if len(self.classes) > drawn.MOST_CLASSES:
            left_out.add("confusion")
        return {name: draw for name, draw in found.items() if name not in left_out}


def inspect(
    classifier: ViewsClassifier,
    X: Views,
    y: np.ndarray,
    classes: Sequence[str],
    *,
    probabilities: np.ndarray | None = None,
    sample: np.ndarray | None = None,
    n_repeats: int = SHUFFLES,
) -> Inspection:
    """Inspect a fitted classifier on n samples.

    Parameters
    ----------
    y : int array of shape (n,), codes as the classifier was fitted to
    classes : their names
    probabilities : the classifier's for the samples, (n, M), if known; else they are computed
    sample : positions of the samples on which views are shuffled and learners measured, which takes
        further predictions; all by default
    n_repeats : shuffles per view
    """
    from usboost.models.two_weak_learner import TwoWeakLearnerClassifier

    if probabilities is None:
        probabilities = classifier.predict_proba(X)
    some, labels = (X, y) if sample is None else (X[sample], y[sample])
    boosted = isinstance(classifier, TwoWeakLearnerClassifier)
    several = 1 < len(X.names) <= _MOST_VIEWS
    return Inspection(
        list(classes),
        confusion(y, probabilities.argmax(axis=1), len(classes)),
        view_contributions(classifier, some) if boosted else pd.DataFrame(),
        view_importance(classifier, some, labels, n_repeats) if several else pd.DataFrame(),
        calibration(y, probabilities),
        worst_samples(y, probabilities),
    )


def write(
    found: Inspection,
    folder: Path,
    rows: pd.DataFrame | None = None,
    pictures: Mapping[int, bytes] | None = None,
) -> None:
    """Write tables as CSV, figures as SVG, the worst samples' pictures, and `FILE` for the report.

    Parameters
    ----------
    rows : raw values of the samples, for those that are shown; a page shows the first columns
    pictures : PNG files by the samples' positions
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        getattr(found, name).to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
    names = pd.Index(found.classes, name="true")
    pd.DataFrame(found.confusion, names, found.classes).to_csv(folder / "confusion.csv")
    for name, draw in found.figures.items():
        (folder / f"{name}.svg").write_text(to_svg(draw()))
    shown = []
    for place, row in enumerate(found.worst.itertuples()):
        about: dict[str, Any] = {"values": {}, "picture": None}
        if rows is not None:
            values = rows.iloc[int(row.row)]
            about["values"] = {str(name): _text(value) for name, value in values.items()}
        if pictures and int(row.row) in pictures:
            about["picture"] = f"worst-{place:02d}.png"
            (folder / about["picture"]).write_bytes(pictures[int(row.row)])
        shown.append(about)
    document = {"classes": found.classes, "shown": shown}
    (folder / FILE).write_text(json.dumps(document, indent=1) + "\n")


def _text(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def read(folder: Path) -> dict[str, Any] | None:
    """What the page shows: figures as SVG and the worst samples; None if nothing was kept.

    Raises
    ------
    UsboostError
        If a file there is damaged.
    """
    if not (folder / FILE).is_file():
        return None
    try:
        document = json.loads(_bytes(folder / FILE))
        classes = [str(name) for name in document["classes"]]
        tables = {name: _table(folder / f"{name}.csv", columns) for name, columns in TABLES.items()}
        counts = _table(folder / "confusion.csv").iloc[:, 1:].astype(np.int64).to_numpy()
        if counts.shape != (len(classes), len(classes)):
            raise ValueError("confusion.csv is not of these classes")
        found = Inspection(classes, counts, **tables)
        worst = [
            {
                "true": classes[int(row.true)],
                "predicted": classes[int(row.predicted)],
                "p_true": f"{row.p_true:.3f}",
                "p_predicted": f"{row.p_predicted:.3f}",
                "values": [(str(k), str(v)) for k, v in about["values"].items()][:8],
                "picture": _data_uri(folder / Path(about["picture"]).name) if about["picture"] else None,
            }
            for row, about in zip(found.worst.itertuples(), document["shown"], strict=True)
        ]
        figures = {name: _drawn(folder / f"{name}.svg", draw) for name, draw in found.figures.items()}
    except UsboostError:
        raise
    except Exception as error:  # a damaged table can make pandas and matplotlib raise nearly anything
        raise UsboostError(f"{folder} is damaged ({type(error).__name__}); train this model again") from error
    return {"figures": [(TITLES[name], svg) for name, svg in figures.items()], "worst": worst}


def _drawn(path: Path, draw: Callable[[], Figure]) -> str:
    """The figure as the fit drew it; drawn now where an earlier version kept a PNG."""
    return _bytes(path).decode() if path.is_file() else to_svg(draw())


def _table(path: Path, columns: Sequence[str] = ()) -> pd.DataFrame:
    """A table with at least these columns, or an empty one."""
    text = _bytes(path).decode()
    if not text.strip():
        return pd.DataFrame()
    return pd.read_csv(io.StringIO(text)).astype({name: _KINDS.get(name, float) for name in columns})


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > _LARGEST:
        raise UsboostError(f"{path} is larger than anything the training flow writes; train this model again")
    return path.read_bytes()


def _data_uri(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(_bytes(path)).decode()

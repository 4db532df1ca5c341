"""BNN and Earlyboost beside their peers; docs/results/papers.md.

``USBOOST_DATA=… python -m benchmarks.study.two_papers run FOLDER [NAME …]`` fits what FOLDER lacks, of each
division and model; ``write FOLDER`` takes its scores into the repository, and ``write`` alone makes the
page's tables and figure of those that are there. Minutes on a core.

Every model has four settings to choose among, on a fifth of the training rows, and is then fitted to all of
them. Models that have no Earlyboost in them are fitted anew for every prefix.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import ParameterGrid, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from benchmarks.pages import between_marks, number, run_or_write, table_of
from usboost.datasets import census
from usboost.datasets.sequences import digits_rows, iris, pendigits, ts_split
from usboost.errors import UsboostError
from usboost.learners.networks.learner import NetworkLearner
from usboost.models.methods.boosted_network import BoostedNetworkClassifier
from usboost.models.methods.early_trigger import harmonic_mean
from usboost.models.methods.earlyboost import EarlyBoostClassifier

PAGE = Path("docs/results/papers.md")
FIGURE = Path("docs/figures/earlyboost.png")
SCORES = Path("benchmarks/study/papers/two_papers.csv")
DIVISIONS = 5
CHOOSING = 0.2
"""The share of the training rows that choose a setting."""
THRESHOLDS = 21
"""How many are tried, quantiles of a model's own probabilities on the rows that choose."""

Rows = tuple[np.ndarray, np.ndarray]
Division = tuple[Rows, Rows]
"""Rows that are fitted to, and rows that score."""
Settings = Callable[[int], list[Any]]


def settings_of(model: str, seed: int) -> list[Any]:
    """Return what a model may be, unfitted: four settings, but of the prior one."""
    tree, own = DecisionTreeClassifier(random_state=seed), {"random_state": seed}
    learners = [NetworkLearner((16,), "adam", rate, 32, 30) for rate in (0.01, 0.003)]
    # the one network has as many hidden units as five rounds have, and as many epochs
    network = MLPClassifier((80,), batch_size=32, max_iter=150, **own)
    grown = LGBMClassifier(num_leaves=15, n_jobs=1, verbose=-1, **own)
    grids: dict[str, tuple[Any, dict[str, Sequence[Any]]]] = {
        "bnn": (
            BoostedNetworkClassifier(n_rounds=5, **own),
            {"loss": ("squared", "cross_entropy"), "learner": learners},
        ),
        "network": (network, {"learning_rate_init": (0.01, 0.003), "alpha": (1e-4, 1e-1)}),
        "lgbm": (grown, {"learning_rate": (0.1, 0.03), "n_estimators": (50, 200)}),
        "logistic": (LogisticRegression(max_iter=1000), {"C": (0.01, 0.1, 1.0, 10.0)}),
        "prior": (DummyClassifier(strategy="prior"), {}),
        "tree": (tree, {"max_depth": (1, 3, 5, 8)}),
        "earlyboost": (EarlyBoostClassifier(tree, **own), {"estimator__max_depth": (1, 3, 5, 8)}),
        "adaboost": (
            AdaBoostClassifier(DecisionTreeClassifier(), n_estimators=50, **own),
            {"estimator__max_depth": (1, 2, 3, 5)},
        ),
    }
    unfitted, grid = grids[model]
    return [clone(unfitted).set_params(**one) for one in ParameterGrid(grid)]


_NAMES = (
    ("bnn", "network", "lgbm", "logistic", "prior"),
    ("earlyboost", "adaboost", "tree", "logistic", "prior"),
)
NETWORKS, SEQUENCES = ({name: partial(settings_of, name) for name in names} for names in _NAMES)
"""By model of tables, and of sequences, what makes its settings of a seed."""


# boosted networks


def _tables(name: str) -> Iterator[Division]:
    """Yield divisions of a table; of the census three draws of 10,000 rows, columns one-hot."""
    if name == "census":
        folder = Path(os.environ["USBOOST_DATA"]) / census.SOURCE
        files = [folder / file.name for file in census.FILES]
        made = census.prepare(*files, split="ci_a", seed=0, profile="paper").splits
        whole = pd.concat([made["train"], made["test"]], keys=["train", "test"])
        texts = [column for column in whole if whole[column].dtype.kind not in "iuf" and column != "label"]
        for seed in range(3):
            parts = [whole.loc[part].sample(10_000, random_state=seed) for part in ("train", "test")]
            drawn = pd.concat(parts)
            codes = OneHotEncoder(min_frequency=50, sparse_output=False).fit_transform(drawn[texts])
            x = np.hstack([drawn.drop(columns=["label", *texts]), codes])
            y = np.unique(drawn["label"], return_inverse=True)[1]
            yield (x[:10_000], y[:10_000]), (x[10_000:], y[10_000:])
        return
    x, y = iris() if name == "iris" else load_digits(return_X_y=True)
    y = np.unique(y, return_inverse=True)[1]
    for seed in range(4 * DIVISIONS if name == "iris" else DIVISIONS):
        seen, unseen = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=seed)
        yield (x[seen], y[seen]), (x[unseen], y[unseen])


def chosen(settings: Sequence[Any], rows: Rows) -> Any:
    """Fit the setting of the lowest log-loss on a fifth of the rows to all of them."""
    x, y = rows
    if len(settings) > 1:
        seen, held = train_test_split(np.arange(len(y)), test_size=CHOOSING, stratify=y, random_state=0)
        losses = []
        for each in settings:
            model = make_pipeline(StandardScaler(), each).fit(x[seen], y[seen])
            losses.append(log_loss(y[held], model.predict_proba(x[held]), labels=np.unique(y)))
        settings = [settings[int(np.argmin(losses))]]
    return make_pipeline(StandardScaler(), settings[0]).fit(x, y)


def networks(name: str, model: str, seed: int, division: Division) -> Iterator[dict[str, Any]]:
    """Yield one line: test scores of the setting chosen."""
    began = time.process_time()
    fitted = chosen(NETWORKS[model](seed), division[0])
    seconds, (x, y) = time.process_time() - began, division[1]
    said = fitted.predict_proba(x)
    scores = {"accuracy": float(np.mean(said.argmax(axis=1) == y)), "log_loss": log_loss(y, said)}
    yield {"frame": 0, **scores, "seconds": seconds}


# Earlyboost


def _sequences(name: str) -> Iterator[Division]:
    """Yield divisions of all sequences (n, T, d) into parts of the sizes that the official ones have."""
    raw = Path(os.environ.get("USBOOST_DATA", ""))
    read = {"digits by rows": digits_rows, "pen digits": lambda: pendigits(raw / "pendigits")}
    data = read.get(name, lambda: ts_split(raw / "gunpoint", "GunPoint"))()
    x = np.concatenate([np.asarray(each, dtype=float) for each in (data.X_train, data.X_test)])
    y = np.unique(np.concatenate([data.y_train, data.y_test]), return_inverse=True)[1]
    for seed in range(DIVISIONS):
        rows, size = np.arange(len(y)), len(data.X_train)
        train, test = train_test_split(rows, train_size=size, stratify=y, random_state=seed)
        yield (x[train], y[train]), (x[test], y[test])


def _asked(n_frames: int) -> list[int]:
    """Return the frames after which an answer may be given, the same for all models: 25 at most."""
    return [t for t in range(1, n_frames + 1) if t % -(-n_frames // 25) == 0 or t == n_frames]


def probabilities(setting: Any, rows: Rows, unseen: np.ndarray) -> np.ndarray:
    """Return class probabilities of sequences after each frame at which may be answered, (frames, n, K)."""
    x, y = rows
    frames = _asked(x.shape[1])
    if isinstance(setting, EarlyBoostClassifier):
        staged = list(setting.fit(x, y).staged_predict_proba(unseen))
        return np.stack([staged[t - 1] for t in frames])
    fitted = make_pipeline(StandardScaler(), setting)
    flat = [(x[:, :t].reshape(len(x), -1), unseen[:, :t].reshape(len(unseen), -1)) for t in frames]
    return np.stack([fitted.fit(seen, y).predict_proba(other) for seen, other in flat])


def answered(said: np.ndarray, y: np.ndarray, threshold: float, n_frames: int) -> tuple[float, float, float]:
    """Return harmonic mean, accuracy and earliness of answers at the threshold, or else at the end."""
    sure = said.max(axis=2) >= threshold
    sure[-1] = True
    at = sure.argmax(axis=0)
    right = float(np.mean(said[at, np.arange(len(y))].argmax(axis=1) == y))
    early = float(np.mean(np.array(_asked(n_frames))[at] / n_frames))
    return harmonic_mean(right, early), right, early


def sequences(name: str, model: str, seed: int, division: Division) -> Iterator[dict[str, Any]]:
    """Yield a line for each frame, and one, frame 0, of answers at the threshold chosen."""
    (x, y), (x_test, y_test) = division
    n_frames, began = x.shape[1], time.process_time()
    seen, held = train_test_split(np.arange(len(y)), test_size=CHOOSING, stratify=y, random_state=0)
    options = SEQUENCES[model](seed)
    curves = [probabilities(each, (x[seen], y[seen]), x[held]) for each in options]
    best = int(np.argmax([np.mean(each.argmax(axis=2) == y[held]) for each in curves]))
    tried = np.quantile(curves[best].max(axis=2), np.linspace(0, 1, THRESHOLDS))
    means = [answered(curves[best], y[held], threshold, n_frames)[0] for threshold in tried]
    predicted = probabilities(options[best], (x, y), x_test)
    seconds = time.process_time() - began
    mean, right, early = answered(predicted, y_test, tried[int(np.argmax(means))], n_frames)
    yield {"frame": 0, "accuracy": right, "earliness": early, "harmonic_mean": mean, "seconds": seconds}
    for t, each in zip(_asked(n_frames), predicted, strict=True):
        yield {"frame": t, "accuracy": float(np.mean(each.argmax(axis=1) == y_test))}


# both

Fit = Callable[[str, str, int, Division], Iterator[dict[str, Any]]]
PARTS: dict[str, tuple[dict[str, Settings], Callable[[str], Iterator[Division]], Fit]] = {
    **dict.fromkeys(("iris", "digits", "census"), (NETWORKS, _tables, networks)),
    **dict.fromkeys(("pen digits", "GunPoint", "digits by rows"), (SEQUENCES, _sequences, sequences)),
}
TITLES = {
    "bnn": "BNN, five networks of 16",
    "network": "one network of 80",
    "lgbm": "LightGBM",
    "logistic": "logistic regression",
    "prior": "prior",
    "earlyboost": "Earlyboost",
    "adaboost": "AdaBoost, one per prefix",
    "tree": "a tree, one per prefix",
}


def run(folder: Path, names: Sequence[str] = ()) -> None:
    """Fit what the folder lacks of the named data, or of all. Raises `UsboostError` if there are no such."""
    if unknown := set(names) - set(PARTS):
        raise UsboostError(f"no data are named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / SCORES.name
    lines = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["data", "model", "division"])
    there = set(map(tuple, lines[["data", "model", "division"]].drop_duplicates().to_numpy()))
    for name in names or PARTS:
        models, divisions, fit = PARTS[name]
        for seed, division in enumerate(divisions(name)):
            for model in models:
                if (name, model, seed) in there:
                    continue
                new = pd.DataFrame(fit(name, model, seed, division))
                lines = pd.concat([lines, new.assign(data=name, model=model, division=seed)])
                lines.to_csv(file, index=False, float_format="%.6g")
                print(name, model, seed, new.iloc[0].to_dict(), flush=True)


def table(frame: pd.DataFrame, data: Sequence[str], metrics: Sequence[str]) -> str:
    """Return the means over the divisions, of models by data and metric, and the seconds."""
    own = frame[(frame["frame"] == 0) & frame["data"].isin(data)]
    heads = [""]
    for name in data:
        heads += [f"{name}: {metrics[0].replace('_', ' ')}", *(m.replace("_", " ") for m in metrics[1:]), "s"]
    lines = []
    for model in dict.fromkeys(own["model"]):
        line = [TITLES[model]]
        for name in data:
            part = own[(own["model"] == model) & (own["data"] == name)]
            line += [number(part[metric].mean(), 3) for metric in metrics]
            line.append(number(part["seconds"].mean(), 1))
        lines.append(line)
    return table_of(heads, lines)


def figure(frame: pd.DataFrame, path: Path) -> None:
    """Draw accuracy after each frame, a panel for each set of sequences; bands are a standard deviation."""
    from matplotlib import pyplot

    names = [name for name, (models, _, _) in PARTS.items() if models is SEQUENCES]
    drawn, axes = pyplot.subplots(1, len(names), figsize=(12, 3.8), sharey=True)
    for axis, name in zip(axes, names, strict=True):
        own = frame[(frame["data"] == name) & (frame["frame"] > 0)]
        for k, model in enumerate(SEQUENCES):
            part = own[own["model"] == model].groupby("frame")["accuracy"]
            mean, spread = part.mean(), part.std()
            axis.plot(mean.index, mean, color=f"C{k}", label=TITLES[model], lw=1.2 if k else 2.4)
            axis.fill_between(mean.index, mean - spread, mean + spread, color=f"C{k}", alpha=0.15, lw=0)
        axis.set(title=name, xlabel="frames seen")
    axes[0].set_ylabel("accuracy, test sequences")
    axes[0].legend(fontsize=8)
    drawn.tight_layout()
    drawn.savefig(path, dpi=120, metadata={"Software": None})
    pyplot.close(drawn)


def with_tables(text: str, frame: pd.DataFrame) -> str:
    """Return the page's text with the tables of the scores."""
    text = between_marks(text, "bnn", table(frame, ["iris", "digits", "census"], ["accuracy", "log_loss"]))
    names, metrics = ["pen digits", "GunPoint", "digits by rows"], ["accuracy", "earliness", "harmonic_mean"]
    return between_marks(text, "earlyboost", table(frame, names, metrics))


def write(folder: Path | None) -> None:
    """Take the folder's scores into the repository; make the page's tables and figure of those there."""
    frame = pd.read_csv(SCORES)
    if folder is not None:
        key = ["data", "model", "division", "frame"]
        frame = pd.concat([frame, pd.read_csv(folder / SCORES.name)]).drop_duplicates(key, keep="last")
        frame.to_csv(SCORES, index=False, float_format="%.6g")
    PAGE.write_text(with_tables(PAGE.read_text(), frame))
    figure(frame, FIGURE)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    run_or_write(__doc__, run, write, names={"nargs": "*"})

"""Input as the training and prepare flows write it, invented but plausible."""

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

DATASETS = ("ci_b", "mi")
MODELS = ("baseline", "bfv_dnn", "2wl", "2wl_fix", "2wl2o", "2wl2o_fix", "1wl_s", "1wl_u")
SEEDS = (0, 1)

# final validation F1, how fast it comes, seconds a round
_SHAPES = {
    "baseline": (0.781, 6.0, 9.0),
    "bfv_dnn": (0.792, 5.0, 9.5),
    "2wl": (0.789, 8.0, 4.0),
    "2wl_fix": (0.762, 30.0, 3.1),
    "2wl2o": (0.797, 7.0, 8.2),
    "2wl2o_fix": (0.641, 60.0, 6.0),
    "1wl_s": (0.733, 12.0, 0.6),
    "1wl_u": (0.768, 10.0, 3.6),
    "lgbm": (0.785, 9.0, 0.1),
}
_NETWORKS = ("baseline", "bfv_dnn")


class Page(HTMLParser):
    """A page's tags with their attributes, its text as it stands and by words, its title and first head."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.pieces: list[str] = []
        self.heads: dict[str, str] = {}
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._inside in ("title", "h1") and data.strip():
            self.heads.setdefault(self._inside, data)
        if self._inside != "style":
            self.pieces.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.pieces))


def _scores(f1: float) -> dict[str, float]:
    values = {"f1": f1, "accuracy": f1 + 0.11, "log_loss": 0.9 - 0.8 * f1, "auc": min(0.99, f1 + 0.14)}
    return {name: float(value) for name, value in values.items()}


def write_cell(results: Path, dataset: str, model: str, seeds: list[dict[str, Any]], profile: str) -> None:
    """The record.json of each of these seeds."""
    for fit in seeds:
        folder = results / dataset / model / f"seed-{fit['seed']}"
        folder.mkdir(parents=True, exist_ok=True)
        record = {"dataset": dataset, "model": model, "profile": profile, **fit}
        (folder / "record.json").write_text(json.dumps(record))


def write_trace(results: Path, dataset: str, model: str, trace: pd.DataFrame) -> None:
    """The trace.parquet of each seed."""
    for seed, rounds in trace.groupby("seed"):
        rounds.to_parquet(results / dataset / model / f"seed-{seed}" / "trace.parquet")


def fit(seed: int, f1: float, **more: Any) -> dict[str, Any]:
    """A seed's record whose test F1 is `f1` and validation F1 0.01 more."""
    scores = {"val": _scores(f1 + 0.01), "test": _scores(f1)}
    return {"seed": seed, "rounds": 37, "best_round": 30, "fit_seconds": 12.3, "scores": scores} | more


def _trace(model: str, seed: int, rounds: int, rng: np.random.Generator) -> pd.DataFrame:
    level, pace, seconds = _SHAPES[model]
    t = np.arange(1, rounds + 1)
    rise = 1 - np.exp(-t / pace)
    drop = 0.03 * np.clip((t - 0.7 * rounds) / rounds, 0, None)
    f1 = 0.5 + (level - 0.5) * rise - drop + rng.normal(0, 0.004, rounds)
    network = model in _NETWORKS
    start, floor = (0.69, 0.3) if network else (2.0, 1.25)
    train = floor + (start - floor) * np.exp(-t / (pace * 1.5))
    searched = model in ("2wl", "2wl2o", "1wl_u")
    epsilon = 1.6 * np.exp(-t / 15) + rng.gamma(2.0, 0.12, rounds) if searched else 0.1
    delta = 0.9 * np.exp(-t / 25) + rng.gamma(2.0, 0.15, rounds) if searched else 0.1
    return pd.DataFrame(
        {
            "seed": seed,
            "round": t,
            "seconds": np.cumsum(seconds * rng.uniform(0.8, 1.3, rounds)),
            "risk_train": train + rng.normal(0, 0.004, rounds),
            "risk_val": train + 0.06 * (1 - rise) + 0.25 * drop + 0.03 + rng.normal(0, 0.006, rounds),
            "f1_val": f1,
            "accuracy_val": f1 + 0.11,
            "epsilon": np.nan if network or model == "1wl_s" else epsilon,
            "delta": np.nan if network or model == "1wl_u" else delta,
            "seconds_U": seconds,
        }
    )


def write_rows(results: Path, dataset: str, model: str, wrong: Sequence[int], n: int = 60) -> None:
    """The test rows of a two-class cell's seed 0: the model is sure, and mistaken in the rows `wrong`."""
    labels = np.arange(n) % 2
    right = np.ones(n, dtype=bool)
    right[list(wrong)] = False
    p = np.where(right, 0.9, 0.1)
    p_1 = np.where(labels == 1, p, 1 - p)
    rows = pd.DataFrame({"seed": 0, "label": labels, "p_0": 1 - p_1, "p_1": p_1})
    rows.to_parquet(results / dataset / model / "seed-0/rows.parquet", index=False)


def write_results(
    results: Path,
    datasets: Sequence[str] = DATASETS,
    models: Sequence[str] = MODELS,
    seeds: Sequence[int] = SEEDS,
    profile: str = "demo",
) -> None:
    """A whole results folder: record.json and trace.parquet of every cell."""
    rng = np.random.default_rng(7)
    for dataset in datasets:
        for model in models:
            traces, fits = [], []
            for seed in seeds:
                rounds = 40 if model in _NETWORKS else int(rng.integers(90, 130))
                trace = _trace(model, seed, rounds, rng)
                best = int(trace["f1_val"].to_numpy().argmax())
                f1 = float(trace["f1_val"].iloc[best]) - 0.012 + float(rng.normal(0, 0.002))
                cost = {
                    "rounds": rounds,
                    "best_round": best + 1,
                    "fit_seconds": float(trace["seconds"].iloc[-1]),
                }
                gbm = {"gbm": {"val": _scores(f1 - 0.006), "test": _scores(f1 - 0.018)}}
                fits.append(fit(seed, f1, **cost, **(gbm if model == "bfv_dnn" else {})))
                traces.append(trace)
            write_cell(results, dataset, model, fits, profile)
            write_trace(results, dataset, model, pd.concat(traces))


def write_card(prepared: Path, dataset: str, profile: str = "demo", **more: Any) -> None:
    """A data card: CI-B's as `usboost.datasets.store` writes it, of any other one only what all have."""
    names = ["age", "class of worker", "education", "capital gains", "weeks worked", "sex", "race", "year"]
    reasons = ["kept by backward elimination" if j % 3 == 0 else f"removed at step {j}" for j in range(8)]
    views = ["S" if j % 3 == 0 else "U" for j in range(8)]
    sizes = {"train": (183912, 12382), "val": (46788, 3093), "test": (46788, 3093)}
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    card: dict[str, Any] = {"format": 1, "dataset": dataset, "profile": profile, "seed": 20240101}
    if dataset == "ci_b":
        card["splits"] = {
            split: {"rows": sum(n), "classes": dict(zip(("- 50000.", "50000+."), n)), "sha256": digest}
            for split, n in sizes.items()
        }
        card["columns"] = {
            name: {"view": view, "kind": "nominal", "why": why}
            for name, view, why in zip(names, views, reasons, strict=True)
        } | {"instance weight": {"view": None, "kind": "continuous", "why": "not a feature; dropped"}}
        card["views"] = {v: [n for n, view in zip(names, views, strict=True) if view == v] for v in "US"}
        card["encoders"] = {"U": {"hidden": True}}
        card["lines"] = {"read": 199523, "distinct": 196294}
        card["elimination"] = [{"removed": None, "loss": 0.1312, "remaining": 8}] + [
            {"removed": name, "loss": 0.1312 + 0.0007 * j * j, "remaining": 7 - j}
            for j, name in enumerate(names[:5])
        ]
    card["sources"] = {"census-income.data.gz": digest, "census-income.test.gz": digest[::-1]}
    (prepared / dataset).mkdir(parents=True, exist_ok=True)
    (prepared / dataset / "card.json").write_text(json.dumps(card | more))

"""One cell of the papers' study: its data made, its model fitted and stopped by two rules, its scores kept.

A part of the plan is a workspace; its file ``cells.jsonl`` has a line for each fit and stopping rule, and
``kept`` the test rows' predictions and the rounds. Every fit has one thread. A fit of other data or settings
than its line's is made again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.study.plan import PLAN, VARIANTS, Cell
from benchmarks.study.rows import Predicted
from flows.local import workspace
from tasks import settings
from tasks.fits import models, scores
from usboost.boosting.callbacks import Callback, EarlyStopping, Patience
from usboost.boosting.checkpoint import Checkpoint, described
from usboost.boosting.rounds import Round
from usboost.data.views import Views
from usboost.datasets import store
from usboost.evaluation import metrics
from usboost.evaluation.task import TASKS
from usboost.files.arrays import key_of, sha256
from usboost.process import limit_threads

STOPS = {"log_loss": "risk_val", "f1": "f1_val"}
"""What a stopping rule looks at: the loss that is fitted, and the papers' F1."""

Samples = tuple[Views, np.ndarray]


class BothRest(Callback):
    """Stops when neither risk nor F1 on the validation rows has been better for some rounds."""

    def __init__(self, patience: Patience) -> None:
        self.cpu_seconds: list[float] = []
        self._each = [EarlyStopping(monitor, patience) for monitor in STOPS.values()]

    def on_fit_begin(self, fit: Any) -> None:
        for each in self._each:
            each.on_fit_begin(fit)

    def on_round(self, round_: Round) -> bool:
        self.cpu_seconds.append(time.process_time())
        resting = [each.on_round(round_) for each in self._each]  # each hears of every round
        return all(resting)


def make(folder: Path, part: str) -> Path:
    """Make the part's workspace with its prepared data."""
    chosen = PLAN[part]
    place = workspace.make(
        folder / part,
        profile="paper",
        datasets=chosen.datasets,
        changes={**chosen.changes, "models": VARIANTS},
    )
    environment = os.environ | {"PYTHONPATH": str(workspace.ROOT)}
    for dataset in chosen.datasets:
        if not (place / "data/prepared" / dataset / "card.json").is_file():
            words = [sys.executable, "-m", "flows.data", dataset]
            subprocess.run(words, cwd=place, check=True, env=environment)
    return place


@lru_cache(maxsize=1)
def samples(prepared: Path) -> dict[str, Samples]:
    """Return each split of a prepared dataset."""
    return {split: store.read(prepared, split) for split in ("train", "val", "test")}


def stopped(model: Any, splits: dict[str, Samples]) -> Iterator[tuple[str, Any]]:
    """Yield the fitted model as it was in its best round by each rule; one without rounds by the first alone.

    The fit goes on until both rules rest, so that both have seen the same rounds. The second time a boosting
    model reads its rounds back, and a network repeats its epochs.
    """
    given = model.get_params(deep=True)
    rounds = next((key for key in ("monitor", "network__monitor") if key in given), None)
    if rounds is None:
        yield "log_loss", model.fit(*splits["train"], validation=splits["val"])
        return
    patience = rounds.replace("monitor", "patience")
    with tempfile.TemporaryDirectory() as kept:
        again = {"checkpoint": Checkpoint(kept, {"of": "this fit"})} if "learners" in given else {}
        for rule, monitor in STOPS.items():
            watch = [BothRest(given[patience])]
            model.set_params(**{rounds: monitor, patience: None, "callbacks": watch, **again})
            yield rule, model.fit(*splits["train"], validation=splits["val"])


def fit(folder: Path, cell: Cell) -> None:
    """Fit a cell and keep what it gives, unless that is there, of the same data and settings."""
    place = (folder / cell.part).resolve()
    limit_threads(1)
    with chdir(place):  # where embeddings are kept
        chosen = settings.load()
        prepared = place / "data/prepared" / cell.dataset
        model = models.build(cell.model, cell.dataset, chosen, cell.seed)
        decided = {"model": described(model), "data": sha256(prepared / "card.json")}
        of = key_of(decided)[:12]
        if any((row["model"], row["of"]) == (cell.model, of) for row in rows_of(place, cell)):
            return
        splits, lines, began = samples(prepared), [], time.perf_counter()
        busy = first_busy = time.process_time()
        sha_of_code = subprocess.run(
            ["git", "rev-parse", "--short=8", "HEAD"], cwd=workspace.ROOT, capture_output=True, text=True
        ).stdout.strip()
        for rule, fitted in stopped(model, splits):
            seconds = time.perf_counter() - began
            said = scores.predict(TASKS["classification"], fitted, splits)
            scored = scores.score(TASKS["classification"], said)["test"]
            row: dict[str, Any] = {**vars(cell), "stop": rule, "of": of, "rows": len(splits["train"][1])}
            row |= {"best_round": fitted.best_round_, "rounds": len(fitted.history_), "fit_seconds": seconds}
            row |= {"cpu_seconds": time.process_time() - busy, "commit": sha_of_code}
            history = list(fitted.history_)
            if rule == "log_loss" and getattr(fitted, "callbacks", None):
                for round_, spent in zip(history, fitted.callbacks[0].cpu_seconds):
                    round_["cpu_seconds"] = spent - first_busy
            of_test = predicted_of(said)
            out = kept_at(place, cell.dataset, cell.model, cell.seed, rule)
            out.parent.mkdir(exist_ok=True)
            np.savez(out, **vars(of_test) | {"probabilities": of_test.probabilities.astype(np.float32)})
            pd.DataFrame(history).to_parquet(out.with_suffix(".parquet"))
            lines.append(json.dumps(row | scored))
            began, busy = time.perf_counter(), time.process_time()
    with (place / "cells.jsonl").open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def predicted_of(said: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Predicted:
    """Return what a fit says of the test rows, with the threshold that is best on the validation rows."""
    y, probabilities = said["val"]
    two = probabilities.shape[1] == 2
    threshold = metrics.best_threshold(y, probabilities[:, 1]) if two else float("nan")
    return Predicted(*said["test"], threshold)


def kept_at(place: Path, dataset: str, model: str, seed: int, rule: str = "log_loss") -> Path:
    """Return the file of the test rows' predictions; that of the rounds has the suffix ``.parquet``."""
    return place / "kept" / f"{dataset}-{model}-{seed}-{rule}.npz"


def predicted(folder: Path, cell: Cell) -> Predicted | None:
    """Return what a cell's fit, stopped by log-loss, says of the test rows; None where there is none."""
    path = kept_at(folder / cell.part, cell.dataset, cell.model, cell.seed)
    if not path.is_file():
        return None
    with np.load(path) as kept:
        return Predicted(kept["y"], kept["probabilities"], float(kept["threshold"]))


def rows_of(place: Path, cell: Cell | None = None) -> list[dict[str, Any]]:
    """Return the lines of a workspace, or of a cell; the last of a cell and rule counts."""
    file = place / "cells.jsonl"
    lines = file.read_text().splitlines() if file.is_file() else []
    found = {(row["dataset"], row["model"], row["seed"], row["stop"]): row for row in map(json.loads, lines)}
    if cell is None:
        return list(found.values())
    return [row for key, row in found.items() if key[:3] == (cell.dataset, cell.model, cell.seed)]

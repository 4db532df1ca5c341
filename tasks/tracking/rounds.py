"""A fit's rounds in MLflow: numbers in batches, weak learners in shards."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tasks.tracking import description
from tasks.tracking.patience import away, retry
from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import STAGES_PER_SHARD, Round, Stage, write_stages

FLUSH_ROUNDS = 50
FLUSH_SECONDS = 20  # slow rounds show up in the UI all the same
BATCH = 1000  # metrics in one request, the server's limit
TIMES = ("step", "fit", "wait", "sum", "total")
"""Beside those of the weak learners' fits; the others are next to nothing."""
RISK = description.of_round("risk_train")  # every round has it


class MLflowCallback(Callback):
    """Logs rounds in batches (`FLUSH_ROUNDS`, or `FLUSH_SECONDS`), weak learners in shards.

    One request per round would cost more than many a round; `seconds` holds the time spent here, and
    `earlier` that of the rounds of processes before this one. While
    MLflow is down rounds wait here and training continues; at the end they are sent, with retries. A fit
    that resumes from a checkpoint logs what the run does not have yet.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.seconds = self.earlier = 0.0
        self._flushed = time.perf_counter()
        self._client = MlflowClient()
        self._rounds: list[list[Metric]] = []
        self._stages: list[Stage] = []
        self._described: list[dict[str, Any]] = []
        self._failed = False

    def on_resume(self, rounds: Sequence[Round]) -> bool:
        started = time.perf_counter()
        logged = retry("its history", lambda: self._client.get_metric_history(self.run_id, RISK))
        steps = {metric.step for metric in logged}
        self.earlier = sum(round_.seconds["total"] for round_ in rounds)
        for round_ in rounds:
            self._add(round_, known=round_.index in steps)
        self.seconds += time.perf_counter() - started
        return False

    def on_round(self, round_: Round) -> bool:
        started = time.perf_counter()
        self._add(round_)
        due = round_.index % FLUSH_ROUNDS == 0 or started - self._flushed > FLUSH_SECONDS
        if (due and not self._failed) or started - self._flushed > FLUSH_SECONDS:
            self._try(self._flush_metrics)
        if len(self._stages) >= STAGES_PER_SHARD and not self._failed:
            self._try(self._flush_stages)
        self.seconds += time.perf_counter() - started
        return False

    def on_fit_end(self) -> None:
        """Send what is left, retry unless the fit is failing anyway."""
        started = time.perf_counter()
        seconds = 0.0 if isinstance(sys.exception(), BaseException) else None
        retry("the rounds", self._flush_metrics, seconds)
        retry("the weak learners", self._flush_stages, seconds)
        self.seconds += time.perf_counter() - started

    def _add(self, round_: Round, known: bool = False) -> None:
        now = int(time.time() * 1000)
        values = {description.of_round(key): value for key, value in round_.metrics.items()}
        spent = {part: s for part, s in round_.seconds.items() if part.startswith("fit_") or part in TIMES}
        values |= {description.of_round(f"seconds_{part}"): seconds for part, seconds in spent.items()}
        if round_.rows:
            found = {
                "number": len(round_.rows),
                "rows_least": min(round_.rows),
                "rows_most": max(round_.rows),
            }
            values |= {description.of_round(f"ranks_{name}"): count for name, count in found.items()}
        if not known:
            self._rounds.append([Metric(k, float(v), now, round_.index) for k, v in values.items()])
        if round_.stage is not None:
            self._stages.append(round_.stage)

    def _try(self, send: Callable[[], None]) -> None:
        try:
            send()
            self._failed = False
        except (MlflowException, OSError) as error:
            if not away(error):
                raise
            self._failed, self._flushed = True, time.perf_counter()

    def _flush_metrics(self) -> None:
        while self._rounds:
            # whole rounds in a request, which MLflow takes or leaves whole: none is ever half there
            count = max(1, min(len(self._rounds), BATCH // max(len(self._rounds[0]), 1)))
            self._client.log_batch(self.run_id, metrics=[m for each in self._rounds[:count] for m in each])
            del self._rounds[:count]
        self._flushed = time.perf_counter()

    def _flush_stages(self) -> None:
        while self._stages:
            shard = self._stages[:STAGES_PER_SHARD]
            with tempfile.TemporaryDirectory() as folder:
                described = write_stages(shard, Path(folder), start=len(self._described))
                document = json.dumps([*self._described, *described])
                (Path(folder) / "stages.json").write_text(document)
                self._client.log_artifacts(self.run_id, folder, "learners")
            self._described += described
            del self._stages[: len(shard)]


def log_folds(run_id: str, trace: pd.DataFrame, scored: Sequence[Mapping[str, float]]) -> None:
    """A cross-validated fit: its mean round over the folds, and each fold's scores as ``fold/f1``.

    Parameters
    ----------
    trace : one row a round, ``round`` from 1; `history_frame`'s columns
    scored : each fold's scores
    """
    now = int(time.time() * 1000)
    values = trace.drop(columns=["seed", "round", "seconds"], errors="ignore").select_dtypes("number")
    logged = [
        Metric(description.of_round(str(name)), float(value), now, int(step))
        for name in values
        for step, value in zip(trace["round"], values[name], strict=True)
        if np.isfinite(value)
    ]
    logged += [
        Metric(description.of_score("fold", name), float(value), now, fold)
        for fold, found in enumerate(scored, start=1)
        for name, value in found.items()
    ]
    log_numbers(run_id, logged, "the folds")


def log_numbers(run_id: str, metrics: Sequence[Metric], what: str) -> None:
    """Metrics in as many requests as they need; `what` they are is said if MLflow does not take them."""
    for start in range(0, len(metrics), BATCH):
        send = partial(MlflowClient().log_batch, run_id, metrics=metrics[start : start + BATCH])
        retry(what, send)


def history_frame(history: list[dict[str, float]], seed: int) -> pd.DataFrame:
    """A fit's rounds as the report reads them: one row a round, the papers' letters for the steps."""
    frame = pd.DataFrame(history).rename(columns=description.STEPS)
    for name in ("risk_train", "risk_val", "f1_val", "accuracy_val", "epsilon", "delta"):
        if name not in frame:
            frame[name] = float("nan")
    frame.insert(0, "seed", seed)
    return frame.astype({"round": "int64"})

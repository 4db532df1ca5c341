"""Open, resume, search and supersede MLflow runs, and tag each with what it comes from: data, code, DVC
stage and Prefect flow run."""

import hashlib
import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient, MlflowException
from mlflow.entities import Dataset, DatasetInput, InputTag, Run, RunTag
from mlflow.utils import mlflow_tags
from prefect import runtime

from tasks import flow_page
from tasks.folders import prepared_folder
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.files import write_atomically
from usboost.files.yaml_file import parsed_yaml

SUPERSEDED = "superseded"  # the tag of a run that does not count
VIEW = "mlflow.sharedViewState.usboost"  # the tag with the view of an experiment's runs that ours link to
SCORES = ("test/f1", "test/log_loss", "test/rmse", "val/f1", "val/log_loss", "val/rmse")
SHOWN = ("dataset", "model", "seed")  # the view's columns before the scores, as far as a task has them


class Unlogged(UsboostError):
    """Raised where a fit's rounds are on disk, but could not be logged to MLflow."""


class Superseded(UsboostError):
    """Another run has taken this one's place: its results must not count."""


@contextmanager
def one_sentence() -> Iterator[None]:
    """Raise `Unlogged` where a request to MLflow fails in the block."""
    try:
        yield
    except MlflowException as error:
        reason, place = str(error).strip().splitlines()[0][:200], mlflow.get_tracking_uri()
        if error.error_code == "INVALID_PARAMETER_VALUE":
            raise Unlogged(f"MLflow at {place} refuses this: {reason}") from error
        raise Unlogged(
            f"MLflow at {place} does not answer ({reason}); what was done is kept, and the same command goes "
            "on when MLflow is back"
        ) from error


def experiment_id(name: str) -> str:
    """Return the id of an experiment, made if need be, with a kind, a view of scores and a description.

    What a user has given it stays. A local store has artifacts next to its database.
    """
    experiment: Any = mlflow.get_experiment_by_name(name)
    if experiment is None:
        scheme, local, database = mlflow.get_tracking_uri().partition("sqlite:///")
        place = (Path(database).parent / "mlartifacts" / name).as_uri() if local and not scheme else None
        experiment = mlflow.get_experiment(mlflow.create_experiment(name, place))
    experiment_id = str(experiment.experiment_id)
    columns = [*(f"params.`{name}`" for name in SHOWN), *(f"metrics.`{name}`" for name in SCORES)]
    columns += ["tags.`changed`", "tags.`dvc_experiment`"]
    state: dict[str, Any] = {"searchFilter": "", "selectedColumns": columns, "columnOrder": columns}
    # the page adds a chart for each metric
    state |= {"columnWidths": dict.fromkeys(columns, 90), "compareRunCharts": []}
    now = int(time.time() * 1000)
    view = {"name": "Scores", "createdAt": now, "updatedAt": now, "state": json.dumps(state)}
    # these words are read on MLflow's pages for language models, which it opens first
    choose = "Choose **Model training** at the top left, once, and MLflow opens these."
    wanted = {
        "mlflow.experimentKind": "custom_model_development",
        VIEW: json.dumps(view),
        mlflow_tags.MLFLOW_RUN_NOTE: f"One run for each fit: [scores]({runs_page(experiment_id)}). {choose}",
    }
    for tag in wanted.keys() - experiment.tags.keys():
        MlflowClient().set_experiment_tag(experiment_id, tag, wanted[tag])
    return experiment_id


def runs_page(experiment_id: str) -> str:
    """Return the end of the address of an experiment's runs."""
    view = VIEW.rpartition(".")[2]
    return f"#/experiments/{experiment_id}/runs{flow_page.TRAINING_VIEW}&viewStateShareKey={view}"


def first_page(store: str, profile: str) -> str:
    """Return the end of the address to begin at: a profile's runs, or else the experiments."""
    experiment = MlflowClient(store).get_experiment_by_name(f"usboost-{profile}")
    return runs_page(experiment.experiment_id) if experiment else f"#/experiments{flow_page.TRAINING_VIEW}"


@contextmanager
def tracked_run(
    experiment: str, name: str, tags: Mapping[str, str], named: Path | None = None
) -> Iterator[str]:
    """Open an MLflow run and yield its id; FAILED with the error's sentence when the block raises.

    Raises `Unlogged` if MLflow does not answer.

    Parameters
    ----------
    named : file, optional
        Where the run's id is written; if it already names a run, that is resumed, with the new tags.
    """
    client = MlflowClient()
    with one_sentence():
        run_id = read_run_id(named) if named else None
        if run_id is None or not _resumed(client, run_id, tags):
            made = client.create_run(experiment_id(experiment), run_name=name, tags=dict(tags))
            run_id = str(made.info.run_id)
            if named is not None:
                document = json.dumps({"run_id": run_id, "tracking_uri": mlflow.get_tracking_uri()})
                write_atomically(named, document.encode())
        try:
            yield run_id
            client.set_terminated(run_id, status="FINISHED")
        except BaseException as error:
            with suppress(MlflowException, OSError):  # it may be MLflow that is away
                client.set_tag(run_id, "error", str(error)[:500] or type(error).__name__)
                killed = isinstance(error, KeyboardInterrupt | Superseded)
                client.set_terminated(run_id, status="KILLED" if killed else "FAILED")
            raise


def _resumed(client: MlflowClient, run_id: str, tags: Mapping[str, str]) -> bool:
    """Set a run RUNNING again; return whether MLflow still has it as one that counts."""
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    if run.info.lifecycle_stage != "active" or run.data.tags.get(SUPERSEDED) == "true":
        return False
    client.update_run(run_id, status="RUNNING")
    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
    if "error" in run.data.tags:
        client.delete_tag(run_id, "error")
    return True


def read_run_id(named: Path) -> str | None:
    """Return the id of the run that a file names; None where it names none of this MLflow."""
    with suppress(OSError, ValueError, KeyError):
        document = json.loads(named.read_text())
        if document["tracking_uri"] == mlflow.get_tracking_uri():
            return str(document["run_id"])
    return None


def supersede(run_id: str | None) -> None:
    """Mark a run, if there is one, as one that does not count, and end it."""
    with suppress(OSError, MlflowException):
        if run_id:
            MlflowClient().set_tag(run_id, SUPERSEDED, "true")
            MlflowClient().set_terminated(run_id, status="KILLED")


def runs_of(dataset: str, wanted: str) -> list[Run]:
    """Search the runs of a dataset's fits that count and fit the filter, newest first."""
    profile = store.read_card(prepared_folder(dataset))["profile"]
    experiments = [experiment_id(f"usboost-{profile}")]
    wanted = f"{wanted} and tags.dataset = '{dataset}'"
    runs: Any = mlflow.search_runs(experiments, wanted, order_by=["start_time DESC"], output_format="list")
    return [run for run in runs if run.data.tags.get(SUPERSEDED) != "true"]


def described(
    about: str, inputs: Mapping[str, Path], command: Sequence[str], **places: Path
) -> dict[str, str]:
    """Return the tags of a run's origin, see `lineage`, and of its description and source.

    Parameters
    ----------
    about : what the run is, in Markdown
    inputs : the folders that it reads
    command : that makes it
    places : where it leaves what, by what it is
    """
    tags = lineage(inputs)
    read = [f"`{path.as_posix()}` ({tags[f'input.{name}']})" for name, path in inputs.items()]
    lines = []  # the page folds all but the first few
    if run_id := tags.get("prefect.flow_run_id"):
        name, address = tags["prefect.flow_run_name"], flow_page.prefect(run_id)
        lines.append("Prefect flow run: " + (f"[{name}]({address})" if address else f"{name} (`{run_id}`)"))
    stage = f"DVC stage: `{tags['stage']}`, of " if "stage" in tags else "Read: "
    lines += [f"Command: `{shlex.join(command)}`", stage + " and ".join(read)]
    lines.append("; ".join(f"{name}: `{path.as_posix()}`" for name, path in places.items()))
    if commit := tags.get("git.commit"):
        lines.append(f"Code: commit `{commit}`" + (" and changes" if tags["git.dirty"] == "true" else ""))
    text = "\n".join([about, "", *(f"- {line}" for line in lines)])
    tags |= {mlflow_tags.MLFLOW_RUN_NOTE: text, mlflow_tags.MLFLOW_SOURCE_NAME: shlex.join(command)}
    tags |= {mlflow_tags.MLFLOW_GIT_COMMIT: commit} if commit else {}
    return tags | {mlflow_tags.MLFLOW_SOURCE_TYPE: "LOCAL"}


def lineage(inputs: Mapping[str, Path]) -> dict[str, str]:
    """Return tags of where a run comes from: code, DVC stage if one runs it, inputs, Prefect flow run."""
    names = {"stage": "DVC_STAGE", "dvc_experiment": "DVC_EXP_NAME"}
    tags = {tag: os.environ[name] for tag, name in names.items() if os.environ.get(name)}
    tags |= {"changed": changed} if (changed := changed_parameters()) else {}
    git = ["git", "-C", str(Path(__file__).resolve().parent), "describe", "--always", "--dirty"]
    with suppress(OSError, subprocess.CalledProcessError):
        words = [*git, "--abbrev=40", "--exclude=*"]  # the commit and not a tag
        said = subprocess.check_output(words, text=True, stderr=subprocess.DEVNULL)
        commit, _, dirty = said.strip().partition("-")
        tags |= {"git.commit": commit, "git.dirty": str(bool(dirty)).lower()}
    tags |= {f"input.{name}": digest(path) for name, path in inputs.items()}
    flow, task = runtime.flow_run, runtime.task_run
    ids = {"flow_run_id": flow.id, "flow_run_name": flow.id and flow.name, "task_run_id": task.id}
    return tags | {f"prefect.{name}": str(value) for name, value in ids.items() if value}


def changed_parameters() -> str:
    """Write what params.yaml here has other than at the last commit, ``boosting.shrinkage=0.3``."""
    place, command = "params.yaml", ["git", "show", "HEAD:./params.yaml"]
    with suppress(OSError, subprocess.CalledProcessError, UsboostError):
        old = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
        text = Path(place).read_text()
        if old == text:  # as in most fits; to parse both takes a tenth of a second
            return ""
        before, now = flat(parsed_yaml(old, place)), flat(parsed_yaml(text, place))
        return ", ".join(f"{key}={value}" for key, value in now.items() if before.get(key, ...) != value)
    return ""


def flat(value: Any, key: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by dotted key."""
    if not isinstance(value, Mapping):
        return {key: value}
    values: dict[str, Any] = {}
    for name, each in value.items():
        values |= flat(each, f"{key}.{name}".lstrip("."))
    return values


def digest(path: Path) -> str:
    """Digest what lies in a folder, by the file in it that has the digests of all others."""
    files = [path / "card.json", path / "fingerprint"]
    known = next((file for file in files if file.is_file()), None)
    return f"sha256:{hashlib.sha256(known.read_bytes()).hexdigest()}" if known else "unknown"


def log_datasets(run_id: str, card: Mapping[str, Any], folder: Path) -> None:
    """List the splits of a prepared dataset, whose card was read from the folder, as a run's inputs."""
    inputs, images = [], card.get("images", {}).get("splits", {})
    for split, about in card["splits"].items():
        shards = "".join(shard["sha256"] for shard in images.get(split, {}).get("shards", []))
        digest = hashlib.sha256(f"{about['sha256']}{shards}".encode()).hexdigest()[:12]
        uri, rows = (folder / f"{split}.parquet").as_posix(), json.dumps({"num_rows": about["rows"]})
        dataset = Dataset(str(card["dataset"]), digest, "local", json.dumps({"uri": uri}), profile=rows)
        context = "cross-validation" if card.get("folds") else {"val": "validation"}.get(split, split)
        inputs.append(DatasetInput(dataset, [InputTag(mlflow_tags.MLFLOW_DATASET_CONTEXT, context)]))
    try:
        MlflowClient().log_inputs(run_id, inputs)
    except MlflowException:  # another fit has made the same dataset at the same moment; now it is found
        MlflowClient().log_inputs(run_id, inputs)

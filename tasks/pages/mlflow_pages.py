"""MLflow's pages: a run's description, datasets, names of scores and origin; an experiment's views; links
to them and to Prefect's."""

import hashlib
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlflow import MlflowClient, MlflowException
from mlflow.entities import Dataset, DatasetInput, InputTag
from mlflow.entities.model_registry import ModelVersion
from mlflow.utils import mlflow_tags
from prefect import artifacts, runtime

from tasks.pages import flow_page as page
from usboost.errors import UsboostError
from usboost.files.yaml_file import parsed_yaml

STEPS = {"step_U": "epsilon", "step_S": "delta"}  # the papers' letters for the steps along their two views

_GROUPS = {
    **dict.fromkeys(("step", *STEPS.values(), "gamma", "alpha"), "step"),
    **dict.fromkeys(("f1", "accuracy", "rmse", "mae"), "score"),
    **dict.fromkeys(("fit_error", "error", "r"), "weak_learner"),
    **{name: name for name in ("risk", "seconds", "ranks")},
}


def key_of(name: str) -> str:
    """Make a key of MLflow's of a name: views may be called anything, "S+U" for one."""
    return re.sub(r"[^\w\-. :/]", "-", name)


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
        name, address = tags["prefect.flow_run_name"], page.prefect(run_id)
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


def made_by(run_id: str) -> dict[str, Any]:
    """Return a fit's MLflow run, Prefect flow run, DVC stage and its inputs' digests, for its record."""
    run = MlflowClient().get_run(run_id)
    tags = run.data.tags
    return {
        "mlflow_run": run.info.run_id,
        "mlflow_experiment": run.info.experiment_id,
        "prefect_flow_run": tags.get("prefect.flow_run_id"),
        "stage": tags.get("stage"),
        "inputs": {name[6:]: tags[name] for name in sorted(tags) if name.startswith("input.")},
    }


VIEW = "mlflow.sharedViewState.usboost"  # the tag with the view of an experiment's runs that ours link to
SCORES = ("test/f1", "test/log_loss", "test/rmse", "val/f1", "val/log_loss", "val/rmse")
SHOWN = ("dataset", "model", "seed")  # the view's columns before the scores, as far as a task has them


def add_view(experiment_id: str, tags: Mapping[str, str]) -> None:
    """Give an experiment its kind, a view of scores and a description with a link; a user's own stay."""
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
    for name in wanted.keys() - tags.keys():
        MlflowClient().set_experiment_tag(experiment_id, name, wanted[name])


def runs_page(experiment_id: str) -> str:
    """Return the end of the address of an experiment's runs."""
    view = VIEW.rpartition(".")[2]
    return f"#/experiments/{experiment_id}/runs{page.TRAINING_VIEW}&viewStateShareKey={view}"


def first_page(store: str, profile: str) -> str:
    """Return the end of the address to begin at: a profile's runs, or else the experiments."""
    experiment = MlflowClient(store).get_experiment_by_name(f"usboost-{profile}")
    return runs_page(experiment.experiment_id) if experiment else f"#/experiments{page.TRAINING_VIEW}"


def link_run(run_id: str, what: str) -> None:
    """Link an MLflow run, which says what it comes from, on the page of this flow run.

    Parameters
    ----------
    what : the run stands for, e.g. ``ci_a/2wl/seed-0``.
    """
    if page.inside_a_run():
        with suppress(MlflowException, OSError):  # MLflow is away; the fit will say so
            address = page.run_page(MlflowClient().get_run(run_id).info.experiment_id, run_id)
            _show(address, page.key("mlflow", what), f"MLflow run `{run_id}`", f"MLflow run of {what}")
            page.log(f"MLflow run {address}")


def link_version(version: ModelVersion, description: str) -> None:
    """Link a version of a registered model, list its scores, and link the MLflow run that it is of."""
    name, what = version.name, f"{version.name}, version {version.version}"
    address = f"{page.mlflow()}/#/models/{name}/versions/{version.version}"
    _show(address, page.key("model", name), what, description)
    rows = [{"what": key, "value": value} for key, value in sorted(version.tags.items())]
    page.show_table(page.key("model", name, "tags"), rows, what)
    if version.run_id:
        link_run(version.run_id, what)


def _show(address: str, key: str, text: str, description: str) -> None:
    """Show a link; of a store that is a file with the command whose server it leads to."""
    command = "" if os.environ.get("MLFLOW_TRACKING_URI", "").startswith("http") else ", once `make ui` runs"
    shown = f"[{text}]({address}){command}"
    page.show(artifacts.create_markdown_artifact, shown, key=key, description=description)

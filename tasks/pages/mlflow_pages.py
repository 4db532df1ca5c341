"""MLflow's pages: a run's description, datasets, names of scores and origin; an experiment's views."""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any

from mlflow.entities import Dataset, DatasetInput, InputTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import (
    MLFLOW_DATASET_CONTEXT,
    MLFLOW_GIT_COMMIT,
    MLFLOW_RUN_NOTE,
    MLFLOW_SOURCE_NAME,
    MLFLOW_SOURCE_TYPE,
)

from tasks.folders import REPORTS, features_folder, prepared_folder
from tasks.pages import addresses
from usboost.errors import UsboostError
from usboost.files.yaml_file import parsed_yaml
from usboost.models.catalogue import model_colour

if TYPE_CHECKING:
    from tasks.fits.cell import Cell

MLFLOW_RUN_COLOR = "mlflow.runColor"
"""The tag in which MLflow's pages keep a run's colour; its Python part has no name for it."""

STEPS = {"step_U": "epsilon", "step_S": "delta"}
"""The papers' letters for the steps along the papers' two views."""

_GROUPS = {
    **dict.fromkeys(("step", *STEPS.values(), "gamma", "alpha"), "step"),
    **dict.fromkeys(("f1", "accuracy", "rmse", "mae"), "score"),
    **dict.fromkeys(("fit_error", "error", "r"), "weak_learner"),
    "risk": "risk",
    "seconds": "seconds",
    "ranks": "ranks",
}
_FINAL = re.compile(r"(train|val|test)[/_]")


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


def scores(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return a run's final scores as ``test_f1``, those that were logged without groups, too."""
    return {name.replace("/", "_", 1): value for name, value in metrics.items() if _FINAL.match(name)}


def described(
    about: str, tags: Mapping[str, str], inputs: Mapping[str, Path], command: Sequence[str], **places: Path
) -> dict[str, str]:
    """Return the tags of a run's description and source.

    Parameters
    ----------
    about : what the run is, in Markdown
    tags : where it comes from, see `lineage`
    inputs : the folders that it reads, as `lineage` was given them
    command : that makes it
    places : where it leaves what, by what it is
    """
    read = [f"`{path.as_posix()}` ({tags[f'input.{name}']})" for name, path in inputs.items()]
    lines = []  # the page folds all but the first few
    if run_id := tags.get("prefect.flow_run_id"):
        name, address = tags["prefect.flow_run_name"], addresses.prefect(run_id)
        lines.append("Prefect flow run: " + (f"[{name}]({address})" if address else f"{name} (`{run_id}`)"))
    stage = f"DVC stage: `{tags['stage']}`, of " if "stage" in tags else "Read: "
    lines += [f"Command: `{shlex.join(command)}`", stage + " and ".join(read)]
    lines.append("; ".join(f"{name}: `{path.as_posix()}`" for name, path in places.items()))
    if commit := tags.get("git.commit"):
        lines.append(f"Code: commit `{commit}`" + (" and changes" if tags["git.dirty"] == "true" else ""))
    text = "\n".join([about, "", *(f"- {line}" for line in lines)])
    source = {MLFLOW_SOURCE_NAME: shlex.join(command), MLFLOW_SOURCE_TYPE: "LOCAL"}
    return {MLFLOW_RUN_NOTE: text, **source, **({MLFLOW_GIT_COMMIT: commit} if commit else {})}


def tags_of(cell: Cell, profile: str) -> dict[str, str]:
    """Return the tags of a cell's run: what it is, its origin, its description.

    Parameters
    ----------
    profile : of the prepared dataset
    """
    entry, inputs = cell.entry, {"prepared": prepared_folder(cell.dataset)}
    if entry.needs_features:
        inputs["features"] = features_folder(cell.dataset, cell.seed)
    given = lineage(inputs)
    given |= {"dataset": cell.dataset, "model": cell.model, "seed": str(cell.seed), "profile": profile}
    given |= {"title": entry.title, "kind": entry.kind, "task": cell.task.name}
    given |= {MLFLOW_RUN_COLOR: colour} if (colour := model_colour(cell.model)) else {}
    about = f"**{entry.title}**, {entry.about}, fitted to `{cell.dataset}` with seed {cell.seed}."
    places = {"report": REPORTS / "index.html", "results": cell.results}
    words = [cell.dataset, "--model", cell.model, "--seeds", str(cell.seed + 1)]
    return given | described(about, given, inputs, ["python", "-m", "flows.fit", *words], **places)


def log_datasets(run_id: str, card: Mapping[str, Any], folder: Path) -> None:
    """List the splits of a prepared dataset as a run's inputs.

    Parameters
    ----------
    card : of the dataset
    folder : that it was read from
    """
    inputs, images = [], card.get("images", {}).get("splits", {})
    for split, about in card["splits"].items():
        shards = "".join(shard["sha256"] for shard in images.get(split, {}).get("shards", []))
        digest = hashlib.sha256(f"{about['sha256']}{shards}".encode()).hexdigest()
        dataset = Dataset(
            name=str(card["dataset"]),
            digest=digest[:12],
            source_type="local",
            source=json.dumps({"uri": (folder / f"{split}.parquet").as_posix()}),
            profile=json.dumps({"num_rows": about["rows"]}),
        )
        context = "cross-validation" if card.get("folds") else {"val": "validation"}.get(split, split)
        inputs.append(DatasetInput(dataset, [InputTag(MLFLOW_DATASET_CONTEXT, context)]))

    try:
        MlflowClient().log_inputs(run_id, inputs)
    except MlflowException:  # another fit has made the same dataset at the same moment; now it is found
        MlflowClient().log_inputs(run_id, inputs)


def lineage(inputs: Mapping[str, Path]) -> dict[str, str]:
    """Return tags of where a run comes from: code, DVC stage if one runs it, inputs, Prefect flow run."""
    from prefect import runtime

    names = {"stage": "DVC_STAGE", "dvc_experiment": "DVC_EXP_NAME"}
    tags = {tag: os.environ[name] for tag, name in names.items() if os.environ.get(name)}
    tags |= {"changed": changed} if (changed := changed_parameters()) else {}
    git = ["git", "-C", str(Path(__file__).resolve().parent)]
    with suppress(OSError, subprocess.CalledProcessError):
        dirty = subprocess.check_output(
            [*git, "status", "--porcelain", "--untracked-files=no"], stderr=subprocess.DEVNULL
        )
        commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True, stderr=subprocess.DEVNULL)
        tags |= {"git.commit": commit.strip(), "git.dirty": str(bool(dirty)).lower()}
    tags |= {f"input.{name}": digest(path) for name, path in inputs.items()}
    if runtime.flow_run.id:
        tags["prefect.flow_run_id"] = str(runtime.flow_run.id)
        tags["prefect.flow_run_name"] = str(runtime.flow_run.name)
    if runtime.task_run.id:
        tags["prefect.task_run_id"] = str(runtime.task_run.id)
    return tags


def changed_parameters() -> str:
    """Write what params.yaml here has other than at the last commit, ``boosting.shrinkage=0.3``."""
    place, command = "params.yaml", ["git", "show", "HEAD:./params.yaml"]
    with suppress(OSError, subprocess.CalledProcessError, UsboostError):
        old = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
        before, now = _flat(parsed_yaml(old, place)), _flat(parsed_yaml(Path(place).read_text(), place))
        return ", ".join(f"{key}={value}" for key, value in now.items() if before.get(key, ...) != value)
    return ""


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by dotted key."""
    if not isinstance(value, Mapping):
        return {key: value}
    found: dict[str, Any] = {}
    for name, each in value.items():
        found |= _flat(each, f"{key}.{name}".lstrip("."))
    return found


def digest(path: Path) -> str:
    """Digest what lies in a folder, by the file in it that has the digests of all others."""
    files = [path / "card.json", path / "fingerprint"]
    known = next((file for file in files if file.is_file()), None)
    return f"sha256:{hashlib.sha256(known.read_bytes()).hexdigest()}" if known else "unknown"


def made_by(run_id: str) -> dict[str, Any]:
    """Return a fit's MLflow run, Prefect flow run, DVC stage and its inputs' digests, for its record."""
    run = MlflowClient().get_run(run_id)
    tags = run.data.tags
    inputs = {name: tags[name] for name in sorted(tags) if name.startswith("input.")}
    return {
        "mlflow_run": run.info.run_id,
        "mlflow_experiment": run.info.experiment_id,
        "prefect_flow_run": tags.get("prefect.flow_run_id"),
        "stage": tags.get("stage"),
        "inputs": {name.removeprefix("input."): digest for name, digest in inputs.items()},
    }


VIEW = "mlflow.sharedViewState.usboost"
"""The tag with the view of an experiment's runs that ours link to."""

SCORES = ("test/f1", "test/log_loss", "test/rmse", "val/f1", "val/log_loss", "val/rmse")
"""The columns of scores, as far as a task has them; before them stand dataset, model and seed."""


def add_view(experiment_id: str, tags: Mapping[str, str]) -> None:
    """Give an experiment its kind, a view of scores and a description with a link; a user's own stay."""
    columns = [f"params.`{name}`" for name in ("dataset", "model", "seed")]
    columns += [f"metrics.`{name}`" for name in SCORES] + ["tags.`changed`", "tags.`dvc_experiment`"]
    state = {
        "searchFilter": "",
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": dict.fromkeys(columns, 90),
        "compareRunCharts": [],  # the page adds one for each metric
    }
    now = int(time.time() * 1000)
    view = {"name": "Scores", "createdAt": now, "updatedAt": now, "state": json.dumps(state)}
    # these words are read on MLflow's pages for language models, which it opens first
    choose = "Choose **Model training** at the top left, once, and MLflow opens these."
    wanted = {
        "mlflow.experimentKind": "custom_model_development",
        VIEW: json.dumps(view),
        MLFLOW_RUN_NOTE: f"One run for each fit: [scores]({runs_page(experiment_id)}). {choose}",
    }
    for name in wanted.keys() - tags.keys():
        MlflowClient().set_experiment_tag(experiment_id, name, wanted[name])


def runs_page(experiment_id: str) -> str:
    """Return the end of the address of an experiment's runs."""
    view = VIEW.rpartition(".")[2]
    return f"#/experiments/{experiment_id}/runs{addresses.TRAINING_VIEW}&viewStateShareKey={view}"


def first_page(store: str, profile: str) -> str:
    """Return the end of the address to begin at: a profile's runs, or else the experiments."""
    found = MlflowClient(store).get_experiment_by_name(f"usboost-{profile}")
    return runs_page(found.experiment_id) if found else f"#/experiments{addresses.TRAINING_VIEW}"

"""What a run's page says of it, the datasets that it lists, the names of its scores, where it comes from."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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

from tasks.pages import addresses
from tasks.tracking.patience import away, retry

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
    """A name as MLflow takes it as a key: views may be called anything, "S+U" for one."""
    return re.sub(r"[^\w\-. :/]", "-", name)


def of_round(name: str) -> str:
    """Of a number of a round: ``step/epsilon``, ``risk/train``, ``score/f1_val``, ``seconds/fit_U``.

    A number that no other model has keeps its name.
    """
    for start, group in _GROUPS.items():
        if name == start or name.startswith(f"{start}_"):
            return key_of(f"{group}/{STEPS.get(name, name).removeprefix(f'{group}_')}")
    return key_of(name)


def of_score(split: str, metric: str) -> str:
    """Of a final score: ``test/f1``."""
    return key_of(f"{split}/{metric}")


def scores(metrics: Mapping[str, float]) -> dict[str, float]:
    """A run's final scores as ``test_f1`` and the like; of runs that were logged without groups, too."""
    return {name.replace("/", "_", 1): value for name, value in metrics.items() if _FINAL.match(name)}


CONTEXTS = {"train": "train", "val": "validation", "test": "test"}
"""MLflow's words for the splits."""


def described(
    about: str, tags: Mapping[str, str], inputs: Mapping[str, Path], command: Sequence[str], **places: Path
) -> dict[str, str]:
    """Tags for a run's description and source.

    Parameters
    ----------
    about : what the run is, in Markdown
    tags : where it comes from, see `origin.lineage`
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


def with_scores(described: str, scores: str) -> str:
    """A description with the scores below its first line: the page's own list begins with the rounds."""
    first, *rest = described.split("\n")
    return "\n".join([first, "", f"Scores: {scores}", *rest])


def datasets(card: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Name and digest in MLflow of each split of a prepared dataset; nothing but its card is read."""
    images = card.get("images", {}).get("splits", {})
    digests = {
        split: [about["sha256"], *(shard["sha256"] for shard in images.get(split, {}).get("shards", []))]
        for split, about in card["splits"].items()
    }
    return {
        split: (
            str(card["dataset"]),
            (found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest())[:12],
        )
        for split, found in digests.items()
    }


def log_datasets(run_id: str, card: Mapping[str, Any], folder: Path) -> None:
    """List the splits of a prepared dataset as the run's inputs.

    Parameters
    ----------
    card : of the dataset
    folder : that it was read from
    """
    kinds = {name: about["kind"] for name, about in card["columns"].items()}
    schema = [
        {"name": name, "type": "double" if kind in ("continuous", "number") else "string", "required": True}
        for name, kind in kinds.items()
    ]
    inputs = []
    for split, (name, digest) in datasets(card).items():
        about = card["splits"][split]
        profile = {"num_rows": about["rows"], "num_elements": about["rows"] * len(kinds)}
        dataset = Dataset(
            name=name,
            digest=digest,
            source_type="local",
            source=json.dumps({"uri": (folder / f"{split}.parquet").as_posix()}),
            schema=json.dumps({"mlflow_colspec": schema}),
            profile=json.dumps({**profile, **{k: about[k] for k in ("classes", "label") if k in about}}),
        )
        context = "cross-validation" if card.get("folds") else CONTEXTS.get(split, split)
        inputs.append(DatasetInput(dataset, [InputTag(MLFLOW_DATASET_CONTEXT, context)]))

    def log() -> None:
        try:
            MlflowClient().log_inputs(run_id, inputs)
        except MlflowException as error:
            if away(error):
                raise
            # another fit has made the same dataset at the same moment; now it is found
            MlflowClient().log_inputs(run_id, inputs)

    retry("the datasets", log)


def lineage(inputs: Mapping[str, Path]) -> dict[str, str]:
    """Tags that say where a run comes from: code, DVC stage if one runs it, inputs, Prefect flow run."""
    from prefect import runtime

    names = {"stage": "DVC_STAGE", "dvc_experiment": "DVC_EXP_NAME"}
    tags = {tag: os.environ[name] for tag, name in names.items() if os.environ.get(name)}
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
    """A digest of what lies in a folder, by the file in it that has one of all others."""
    files = [path / "card.json", path / "fingerprint"]
    known = next((file for file in files if file.is_file()), None)
    return f"sha256:{hashlib.sha256(known.read_bytes()).hexdigest()}" if known else "unknown"


def made_by(run_id: str) -> dict[str, Any]:
    """A fit's MLflow run, Prefect flow run, DVC stage and the digests of its inputs, as a record keeps it."""
    run = retry("the run", lambda: MlflowClient().get_run(run_id))
    tags = run.data.tags
    return {
        "mlflow_run": run.info.run_id,
        "mlflow_experiment": run.info.experiment_id,
        "prefect_flow_run": tags.get("prefect.flow_run_id"),
        "stage": tags.get("stage"),
        "inputs": {
            name.removeprefix("input."): digest
            for name, digest in sorted(tags.items())
            if name.startswith("input.")
        },
    }

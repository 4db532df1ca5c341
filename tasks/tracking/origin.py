"""Where a run comes from: code, DVC stage and inputs, Prefect flow run; and what a record keeps of that."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.tracking import MlflowClient

from tasks.retry import retry


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

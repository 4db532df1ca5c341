"""Where a run comes from: code, DVC stage and inputs, Prefect flow run."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


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

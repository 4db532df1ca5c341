"""What a home's services are, for tests: their files and their processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil


def state(home: Path | str) -> dict[str, Any]:
    """Addresses of Prefect's API and MLflow's server, and the workers' names, pools and process ids."""
    known = {path.stem: json.loads(path.read_text()) for path in Path(home, "services").glob("*.json")}
    workers = [
        {"name": name, "pool": name.rpartition("-")[0], "pid": facts["pid"]}
        for name, facts in sorted(known.items())
        if "url" not in facts
    ]
    return {name: facts["url"] for name, facts in known.items() if "url" in facts} | {"workers": workers}


def home_of(process: psutil.Process) -> str:
    """The home whose services it belongs to, or nothing."""
    try:
        return process.environ().get("USBOOST_SERVICES", "")
    except (psutil.Error, OSError):
        return ""


def marked(home: Path | str) -> list[int]:
    """Ids of the processes that are detached in this home, and of what they started."""
    return [process.pid for process in psutil.process_iter() if home_of(process) == str(home)]


def end_below(folder: Path) -> None:
    """End what is detached in homes below a folder."""
    for process in psutil.process_iter():
        if home_of(process).startswith(f"{folder.resolve()}/"):
            process.kill()

"""A home's services, for tests: the processes that have its mark."""

import os
from pathlib import Path
from typing import Any

import psutil


def home_of(process: psutil.Process) -> str:
    """The home whose services it belongs to, or nothing."""
    try:
        return process.environ().get("USBOOST_SERVICES", "")
    except (psutil.Error, OSError):
        return ""


def marked(home: Path | str) -> list[int]:
    """Ids of the processes that are detached in this home, and of what they started."""
    return [process.pid for process in psutil.process_iter() if home_of(process) == str(home)]


def state(home: Path | str) -> dict[str, Any]:
    """Addresses of Prefect's API and MLflow's server, and the workers' names, pools and process ids."""
    found: dict[str, Any] = {"workers": []}
    for pid in marked(home):
        process = psutil.Process(pid)
        name, words = process.environ()["USBOOST_SERVICE"], process.cmdline()
        if os.getsid(pid) != pid:
            continue
        if "--port" in words:
            port = words[words.index("--port") + 1]
            found[name] = f"http://127.0.0.1:{port}" + "/api" * (name == "prefect")
        else:
            found["workers"].append({"name": name, "pool": name.rpartition("-")[0], "pid": pid})
    found["workers"].sort(key=lambda worker: worker["name"])
    return found


def end_below(folder: Path) -> None:
    """End what is detached in homes below a folder."""
    for process in psutil.process_iter():
        if home_of(process).startswith(f"{folder.resolve()}/"):
            process.kill()

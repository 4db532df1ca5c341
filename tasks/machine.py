"""Running with others on a machine: locks, a GPU of one's own, and retries."""

import fcntl
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from usboost.errors import UsboostError

HALF = "USBOOST_HALF"
"""A variable of the environment of what runs half of the stages: it has half of the fits at a time."""


def place() -> str:
    """Name this machine and the working folder."""
    return f"{socket.gethostname()}:{Path.cwd()}"


def devices(description: Any) -> set[str]:
    """Return the devices that a described model names; none for trees alone."""
    if not isinstance(description, Mapping):
        return set()
    named = {value.strip("'") for key, value in description.items() if key == "device"}
    return named.union(*(devices(value) for value in description.values()))


def on_gpu(devices: set[str]) -> bool:
    """Return whether any of the devices that a model names is CUDA on this machine."""
    from usboost.learners.networks.train import pick_device  # here, as what imports torch takes seconds

    return any(pick_device(name).type == "cuda" for name in devices)


@contextmanager
def gpu_slot(devices: set[str], slots: int) -> Iterator[None]:
    """Take one of the GPU's slots for the block; none where the model runs on the CPU.

    The slots are a global concurrency limit of the Prefect server, so all workers and commands on
    this host that ask the same server share them. It is a lease: a killed holder loses it by itself.
    """
    if not on_gpu(devices):
        yield
        return
    from prefect.client.orchestration import get_client
    from prefect.concurrency.sync import concurrency
    from prefect.exceptions import ObjectAlreadyExists

    # of the GPU that CUDA takes here: the first that this process can see
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
    name = f"gpu:{socket.gethostname()}:{first}"
    # suppressed: another training has just made it
    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.upsert_global_concurrency_limit_by_name(name, slots)
    with concurrency(name, occupy=1, strict=True, lease_duration=60):  # seconds until a killed holder's ends
        yield


@contextmanager
def locked(lock: Path, *, wait: bool) -> Iterator[bool]:
    """Lock the file `lock` in the block; yield whether it is locked.

    While another process or thread has it: wait, or go on without it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        free = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            free = False
        yield free


def worth_retrying(task: Any, run: Any, state: Any) -> bool:
    """Return whether Prefect retries a task: a network may come back; a user's mistake stays one."""
    error = state.result(raise_on_failure=False)
    return not isinstance(error, UsboostError) or isinstance(error.__cause__, OSError)

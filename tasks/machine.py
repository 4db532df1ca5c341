"""What a training may use of its machine: its share of the cores, and one GPU that is its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectAlreadyExists
from threadpoolctl import threadpool_limits

from usboost.learners.networks.train import pick_device

LEASE_SECONDS = 60  # a killed training's slot is free again after this


def thread_share(workers: int) -> int:
    """Threads for each of `workers` trainings side by side; OMP_NUM_THREADS where a user has set it."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) else max(1, len(os.sched_getaffinity(0)) // workers)


def limit_threads(threads: int) -> None:
    """OpenMP, BLAS and torch use this many threads from now on.

    It is for the whole process, in which fits may run side by side: a fit that set the number back would
    change that of the others, and with it the order in which their networks sum.
    """
    threadpool_limits(threads)
    torch.set_num_threads(threads)


def gpu_name() -> str:
    """The limit's name for the GPU that CUDA takes here: the first that this process can see."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
    return f"gpu:{socket.gethostname()}:{first}"


def on_gpu(devices: set[str]) -> bool:
    """Whether any of the devices that a model names is CUDA on this machine."""
    return any(pick_device(name).type == "cuda" for name in devices)


@contextmanager
def gpu_slot(devices: set[str], slots: int) -> Iterator[None]:
    """Hold one of the GPU's slots in the block; nothing is held where the model runs on the CPU.

    The slots are a global concurrency limit of the Prefect server, so all workers and commands on
    this host that ask the same server share them. It is a lease: a killed holder loses it by itself.
    """
    if not on_gpu(devices):
        yield
        return
    with get_client(sync_client=True) as client:
        try:
            client.upsert_global_concurrency_limit_by_name(gpu_name(), slots)
        except ObjectAlreadyExists:  # another training has just made it
            client.upsert_global_concurrency_limit_by_name(gpu_name(), slots)
    with concurrency(gpu_name(), occupy=1, strict=True, lease_duration=LEASE_SECONDS):
        yield

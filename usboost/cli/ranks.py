"""One fit in the processes that torchrun, or whatever sets its variables, has started: its ranks."""

import atexit
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from usboost.cli.console import silent
from usboost.errors import UsboostError, within_memory

SHARDS = 8  # of a fit in ranks, if no other number was given
COME = 40  # seconds that a process waits for the others where they meet


def ranks() -> int:
    """Count the processes that were started together, this one included; 0 if it was started alone."""
    given = os.environ.get("WORLD_SIZE") or "1"
    if not given.isdecimal():
        raise UsboostError(f"WORLD_SIZE is {given!r} and no number of processes; unset it")
    size = int(given)
    together = "TORCHELASTIC_RUN_ID" in os.environ or ("RANK" in os.environ and size > 1)
    return size if together else 0


def in_each_shard(work: Callable[[], None], shards: int | None, check: Callable[[], None]) -> None:
    """Call `work` once, or in a fit on shards, in each shard of this process; only the first shard prints.

    `shards` is None for those of ranks, if there are any; `check` is of a fit on several shards, called
    before processes meet. Raises UsboostError if not all ranks come, there are more than shards or one fails.
    """
    if shards is None and not ranks():
        work()
        return
    if ranks():  # before torch is imported: what cannot be bound or reached is said below, in one sentence
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    if (shards or SHARDS) > 1:
        check()

    def one(shard: int) -> None:
        silent.set(shard > 0)
        work()

    with _joined():
        from usboost.models.sharded import link_of
        from usboost.shards.threads import run

        run(one, link_of(shards or SHARDS))


@contextmanager
def _joined() -> Iterator[None]:
    """Make the ranks one process group within the block."""
    if not ranks():
        yield
        return
    loopback = hasattr(socket, "if_nameindex") and "lo" in dict(socket.if_nameindex()).values()
    if loopback and os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a machine need not know its own name
    import torch.distributed as dist

    failed: list[Exception] = []

    def meet() -> None:
        try:
            with within_memory():
                dist.init_process_group("gloo", timeout=timedelta(seconds=COME))
        except (RuntimeError, ValueError) as error:
            failed.append(error)

    # its own limit of time does not hold where something else answers, or nobody does at first
    meeting = threading.Thread(target=meet, daemon=True)
    meeting.start()
    meeting.join(COME)
    if meeting.is_alive():
        atexit.register(os._exit, 1)  # the thread waits where nothing can end it
    if failed or meeting.is_alive():
        raise _not_met(*failed)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _not_met(error: Exception | None = None) -> UsboostError:
    """Return why the processes have not met; `error` is this one's, if it has not only waited."""
    if isinstance(error, UsboostError):
        return error
    at, text = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}", str(error)
    if "EADDRINUSE" in text or "already in use" in text:
        return UsboostError(f"{at}, where the processes of this fit meet, is in use; choose another port")
    if "environment variable" in text:
        return UsboostError(f"this process cannot join the others: {text}; start all of them with torchrun")
    return UsboostError(
        f"not all {ranks()} processes of this fit have met at {at} within {COME} seconds; start all of them "
        f"at the same time (this is process {os.environ.get('RANK')})"
    )

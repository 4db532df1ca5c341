"""What a task needs to run beside others: locks, and whether a failure may pass."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from usboost.errors import UsboostError


@contextmanager
def waiting(lock: Path) -> Iterator[None]:
    """Hold the file `lock` in the block; wait while another process or thread holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@contextmanager
def if_free(lock: Path) -> Iterator[bool]:
    """Hold the file `lock` in the block, if nobody else does; whether it is held."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def worth_retrying(task: Any, run: Any, state: Any) -> bool:
    """Prefect's `retry_condition_fn`: a network may come back; a user's mistake stays one."""
    try:
        state.result()
    except UsboostError as error:
        return isinstance(error.__cause__, OSError)
    except Exception:
        return True
    return False

"""Calls of MLflow that are made again while it is away."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import mlflow
from mlflow.exceptions import MlflowException
from requests import RequestException

from usboost.errors import UsboostError

RETRY_SECONDS = 90.0
"""How long a server may be away before a fit that has nothing left to do gives up."""

# MLflow's error codes for which a retry does not help
_FINAL = {
    "BAD_REQUEST",
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "PERMISSION_DENIED",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_DOES_NOT_EXIST",
    "UNAUTHENTICATED",
}

T = TypeVar("T")


class Unlogged(UsboostError):
    """What a fit made is on disk, but not in MLflow."""


def away(error: Exception) -> bool:
    """Whether an error of an MLflow call may pass by itself: no server, a locked database, a disk."""
    if isinstance(error, MlflowException):
        return error.error_code not in _FINAL
    return isinstance(error, OSError | RequestException)


def retry(what: str, call: Callable[[], T], seconds: float | None = None) -> T:
    """The call's result, tried again with growing pauses while MLflow is away.

    Raises
    ------
    Unlogged
        If it is still away after `seconds` (`RETRY_SECONDS` if not given).
    """
    deadline = time.monotonic() + (RETRY_SECONDS if seconds is None else seconds)
    pause, announced = 0.5, False
    while True:
        try:
            return call()
        except (MlflowException, OSError) as error:
            if not away(error):
                raise
            if time.monotonic() + pause > deadline:
                reason = str(error).strip().splitlines()[0][:200]
                raise Unlogged(
                    f"MLflow at {mlflow.get_tracking_uri()} does not take {what} ({reason}); the fit is kept "
                    "under data/checkpoints, and the same command logs it when MLflow is back"
                ) from error
            if not announced:
                print(f"MLflow does not answer; trying again with {what}", file=sys.stderr)
                announced = True
            time.sleep(pause)
            pause = min(2 * pause, 10.0)

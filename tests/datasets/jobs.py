"""A job of other processes, in a module of its own: these need not import what tests do."""

import os
import time

from usboost.errors import UsboostError


def work(job: int) -> tuple[int, int]:
    time.sleep(0.05 * (job % 2 == 0))
    if job == 10:
        raise UsboostError("job 10 cannot be done")
    return job, os.getpid()

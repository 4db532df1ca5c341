"""Work spread over processes."""

from __future__ import annotations

import os
import time

import pytest

from tests.conftest import refuses
from usboost.data.progress import spread
from usboost.errors import UsboostError


def _slow_when_even(job: int) -> tuple[int, int]:
    time.sleep(0.05 * (job % 2 == 0))
    return job, os.getpid()


def _refuse_five(job: int) -> int:
    if job == 5:
        raise UsboostError("job 5 cannot be done")
    return job


def test_results_keep_the_order_of_jobs_that_other_processes_do() -> None:
    found = list(spread(_slow_when_even, range(9), 2))
    assert [job for job, _ in found] == list(range(9))
    processes = {process for _, process in found}
    assert len(processes) == 2 and os.getpid() not in processes
    assert list(spread(_slow_when_even, [1, 3], 1)) == [(1, os.getpid()), (3, os.getpid())]


def test_jobs_are_taken_only_a_few_ahead() -> None:
    taken = 0

    def jobs():
        nonlocal taken
        for job in range(1000):
            taken += 1
            yield job

    results = spread(_refuse_five, jobs(), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert taken <= 3 + 2 * 2
    results.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_back_as_it_was(workers: int) -> None:
    results = spread(_refuse_five, range(100), workers)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    refuses("job 5 cannot be done", next, results)

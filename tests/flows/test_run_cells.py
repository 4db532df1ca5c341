"""What the task runners of fits give their workers."""

import os

import pytest

from tasks.fits.run_cells import task_runner
from tasks.settings import FitsSection

pytestmark = pytest.mark.slow


def test_a_dask_worker_keeps_the_memory_that_it_frees():
    """With Dask's own setting of malloc a training took twice as long."""
    with task_runner(FitsSection(runner="dask", workers=1)) as runner:
        (found,) = runner.client.run(os.environ.get, "MALLOC_TRIM_THRESHOLD_").values()
        (threads,) = runner.client.run(os.environ.get, "OMP_NUM_THREADS").values()
    assert found is None
    assert threads == os.environ.get("OMP_NUM_THREADS", "1")

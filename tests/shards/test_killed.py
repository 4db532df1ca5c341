"""A rank of a fit is killed in a random round, and the fit goes on; see `benchmarks.robustness.kill`."""

import os
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.long
def test_ranks_killed_in_random_rounds(tmp_path: Path, warm: Any) -> None:
    words = ["-m", "benchmarks.robustness.kill", "--kills", "0", "--ranks", "2", "--folder", str(tmp_path)]
    done = warm.run(words, Path(__file__).parents[2], {**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "survived 2 of 2 killed ranks" in done.stdout

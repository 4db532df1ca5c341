"""A rank of a fit is killed in a random round, and the fit goes on; see `benchmarks.robustness.kill`."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT


@pytest.mark.long
def test_ranks_killed_in_random_rounds(tmp_path: Path, warm: Any) -> None:
    words = ["-m", "benchmarks.robustness.kill", "--kills", "0", "--ranks", "2", "--folder", str(tmp_path)]
    assert "survived 2 of 2 killed ranks" in warm.printed(words, ROOT)

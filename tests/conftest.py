"""Small seeded data in two views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from usboost.views import Table, Views

torch.set_num_threads(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `make test`'s two processes: the flows in one, as they share a workspace, the rest file by file."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "flows" if nodeid.startswith("tests/flows/") else nodeid.partition("::")[0]

    return Scheduling(config, log)


def make_views(n_classes: int = 2, n: int = 300, seed: int = 0) -> tuple[Views, np.ndarray]:
    """Two tables with numbers and categories (codes from 1), and labels that depend on both."""
    rng = np.random.default_rng(seed)

    def table(offset: float) -> tuple[Table, np.ndarray]:
        numeric = rng.normal(size=(n, 3)).astype(np.float32)
        codes = rng.integers(1, 5, size=(n, 2)).astype(np.int32)
        return Table(numeric, codes, (5, 5)), numeric[:, 0] + offset * (codes[:, 0] % 2) + np.sin(
            2 * numeric[:, 1]
        )

    (u, from_u), (s, from_s) = table(1.0), table(-1.0)
    score = from_u + from_s + 0.5 * rng.normal(size=n)
    return Views(U=u, S=s), np.digitize(score, np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1]))


@pytest.fixture
def two_views():
    return make_views

"""The same model, bit for bit, in any number of processes; and what is said when one of them fails."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.shards.cases import Digests, data, fits, model, outcome, parts, ranks
from usboost.models.sharded import fit_sharded


@pytest.fixture(scope="module")
def in_one_process() -> str:
    return "".join(f"{line}\n" for line in fits())


@pytest.mark.parametrize(
    "size", [2, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 3, 4, 8))]
)
def test_any_number_of_processes_fits_the_same(size: int, in_one_process: str, tmp_path: Path) -> None:
    assert outcome(ranks(size, tmp_path, "fits"), 400) == [in_one_process] * size


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_killed_process_is_named_and_the_fit_goes_on_in_any_number(size: int, tmp_path: Path) -> None:
    watched = Digests()
    fit_sharded(model("2wl", n_rounds=6, callbacks=[watched]), parts(*data(2)))
    start = time.monotonic()
    found = outcome(ranks(3, tmp_path, "checkpointed", str(tmp_path / "rounds"), "3"))
    assert time.monotonic() - start < 60
    for rank in (0, 2):
        assert found[rank].startswith("process 1 of this fit is gone")
    kept = len(list((tmp_path / "rounds").glob("round-*")))
    assert kept >= 2
    again = outcome(ranks(size, tmp_path, "checkpointed", str(tmp_path / "rounds")))
    assert again == [f"{watched.found}\n"] * size


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("columns", "the form of the rows of shard 4 is not that of shard 0"),
        ("model", "the model of shard 4 is not that of shard 0"),
        ("shards", "the processes of this fit were given different numbers of shards"),
        ("label", "y holds NaN or infinity; every row needs a label"),
    ],
)
@pytest.mark.slow
def test_a_process_that_comes_with_something_else_ends_the_fit(
    mistake: str, sentence: str, tmp_path: Path
) -> None:
    found = outcome(ranks(2, tmp_path, "mistaken", mistake))
    assert all(sentence in each for each in found), found

"""The same model, bit for bit, in any number of processes; and what is said when one of them fails."""

import signal
import time
from pathlib import Path

import pytest

from tests.shards.cases import MODELS, Digests, boosted, data, fits, outcome, parts, ranks
from tests.warm import Warm
from usboost import Checkpoint, fit_sharded

QUICK = ("2wl_newton", "linear_trees")


@pytest.mark.slow
def test_two_processes_fit_the_same_as_one(tmp_path: Path, warm: Warm) -> None:
    alone = "".join(f"{line}\n" for line in fits(*QUICK))
    assert outcome(ranks(2, tmp_path, "fits", *QUICK, warm=warm)) == [alone] * 2


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_any_number_of_processes_fits_the_same(size: int, tmp_path: Path) -> None:
    alone = "".join(f"{line}\n" for line in fits(*MODELS))
    assert outcome(ranks(size, tmp_path, "fits", *MODELS), 600) == [alone] * size


@pytest.mark.long
def test_a_killed_process_is_named_and_the_fit_goes_on_in_any_number(tmp_path: Path) -> None:
    watched, rounds = Digests(), tmp_path / "rounds"
    fit_sharded(boosted(n_rounds=6, callbacks=[watched]), parts(*data(2)))
    started = ranks(3, tmp_path, "checkpointed", str(rounds), "3")
    started[1].wait(200)
    killed = time.monotonic()
    found = outcome(started)
    assert time.monotonic() - killed < 60
    for rank in (0, 2):
        assert found[rank].startswith("process 1 of this fit is gone")
    assert len(list(rounds.glob("round-*"))) >= 2
    again = outcome(ranks(2, tmp_path, "checkpointed", str(rounds)))
    assert again == [f"{watched.found}\n"] * 2
    told = Checkpoint(rounds).rounds()
    assert [len(each.rows) for each in told] == sorted((len(each.rows) for each in told), reverse=True)
    assert {len(each.rows) for each in told} == {2, 3}
    assert all(min(each.seconds["wait"], each.seconds["sum"], each.seconds["fit"]) > 0 for each in told)
    # whoever reads them: all shards in one process, from the rounds as they are
    resumed = Digests()
    fit_sharded(boosted(n_rounds=6, checkpoint=rounds, callbacks=[resumed]), parts(*data(2)))
    assert resumed.found == watched.found


@pytest.mark.long
def test_a_process_that_hangs_is_named(tmp_path: Path) -> None:
    started = ranks(2, tmp_path, "checkpointed", str(tmp_path / "rounds"), "2", str(int(signal.SIGSTOP)))
    try:
        (said,) = outcome(started[:1])
        assert said.startswith("process 1 of this fit is gone")
    finally:
        started[1].kill()
        started[1].communicate()


@pytest.mark.long
@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("shards", "the processes of this fit were given different numbers of shards"),
        ("label", "y holds NaN, None or infinity; every row needs a label"),
    ],
)
def test_all_processes_tell_the_mistake_of_one(mistake: str, sentence: str, tmp_path: Path) -> None:
    found = outcome(ranks(2, tmp_path, "mistaken", mistake))
    assert all(sentence in each for each in found), found


@pytest.mark.long
def test_a_process_that_is_gone_before_the_fit_is_named_and_a_slow_one_is_waited_for(tmp_path: Path) -> None:
    (said, _) = outcome(ranks(2, tmp_path, "mistaken", "gone"))
    assert said.startswith("process 1 of this fit is gone")
    assert outcome(ranks(2, tmp_path, "mistaken", "none, but it is slow")) == ["fitted\n"] * 2

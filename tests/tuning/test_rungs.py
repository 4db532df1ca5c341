"""Successive halving."""

from __future__ import annotations

from usboost.boosting.rounds import Round
from usboost.tuning.rungs import Rungs, limits


def shown(rungs: Rungs, risks: list[float]) -> int:
    """After how many rounds it ends a fit; 0 if it does not."""
    for index, risk in enumerate(risks, start=1):
        if rungs.on_round(Round(index, None, {"risk_val": risk}, {"total": 0.0})):
            return index
    return 0


def test_a_fit_ends_at_the_first_rung_where_it_is_behind() -> None:
    risks = [1.0 - 0.01 * k for k in range(30)]
    assert shown(Rungs({8: 0.93, 24: 0.7}), risks) == 24
    assert shown(Rungs({8: 0.92}), risks) == 8
    assert shown(Rungs({7: 0.0}), risks) == 0
    worse = Rungs()
    assert shown(worse, [0.5, 0.4, *[0.9] * 10]) == 0
    assert (worse.risks, worse.best, worse.rounds, worse.pruned) == ({8: 0.4}, 0.4, 12, False)


def test_without_a_risk_nothing_is_pruned() -> None:
    rungs = Rungs()
    for index in range(1, 10):
        assert not rungs.on_round(Round(index, None, {"risk_train": 1.0}, {"total": 0.0}))


def test_limits_are_the_best_third_of_those_that_came_so_far() -> None:
    earlier = [({8: 0.1 * k, 24: 0.05 * k}, None) for k in (4, 1, 3, 2)]
    assert limits(earlier, 10) == {8: 0.2, 24: 0.1}
    # one that ended by itself has its last risk at later rungs, a pruned one has none there
    assert limits([*earlier[:2], ({8: 0.5}, 0.5), ({8: 0.6}, None)], 10)[24] == 0.05
    assert limits([*earlier[:2], ({8: 0.6}, None)], 10) == {8: 0.1}
    assert 8 not in limits(earlier, 40) and 24 in limits(earlier, 40)

"""Successive halving."""

import optuna
import pytest

from usboost.boosting.rounds import Round
from usboost.fit.trials import State, Trial, pruner_of_rungs, report_rungs
from usboost.fit.workers import Rungs


def shown(rungs: Rungs, risks: list[float]) -> int:
    """After how many rounds it ends a fit; 0 if it does not."""
    for index, risk in enumerate(risks, start=1):
        if rungs.on_round(Round(index, None, {"risk_val": risk}, {"total": 0.0})):
            return index
    return 0


def told(*trials: Trial) -> list[optuna.trial.FrozenTrial]:
    """Trials as Optuna has them once they have ended."""
    study = optuna.create_study(pruner=pruner_of_rungs())
    for each in trials:
        asked = study.ask()
        report_rungs(asked, each)
        study.tell(asked, 0.0)
    return study.trials


def of(
    risks: dict[int, float], end: float | None = None, rounds: int = 24, state: State = "finished"
) -> Trial:
    return Trial("m", 0, {}, state, risks=risks, end=end, rounds=rounds)


def test_a_fit_ends_at_the_first_rung_where_it_is_behind() -> None:
    risks = [1.0 - 0.01 * k for k in range(30)]
    assert shown(Rungs(told(of({8: 0.93, 24: 0.7})), 24), risks) == 24
    assert shown(Rungs(told(of({8: 0.92})), 24), risks) == 8
    assert shown(Rungs(told(of({7: 0.0})), 24), risks) == 0
    worse = Rungs()
    assert shown(worse, [0.5, 0.4, *[0.9] * 10]) == 0
    assert (worse.risks, worse.best, worse.pruned) == ({8: 0.4}, 0.4, False)


def test_without_a_risk_nothing_is_pruned() -> None:
    rungs = Rungs(told(of({8: 0.0})))
    for index in range(1, 10):
        assert not rungs.on_round(Round(index, None, {"risk_train": 1.0}, {"total": 0.0}))


@pytest.mark.parametrize(
    ("earlier", "risk", "ends"),
    [
        # of five, one goes on; of six, two
        ([of({8: 0.1 * k}) for k in (4, 1, 3, 2)], 0.1, 0),
        ([of({8: 0.1 * k}) for k in (4, 1, 3, 2)], 0.11, 8),
        ([of({8: 0.1 * k}) for k in (4, 1, 3, 2, 5)], 0.19, 0),
        ([of({8: 0.1 * k}) for k in (4, 1, 3, 2, 5)], 0.21, 8),
        # one that ended by itself has its last risk at later rungs, a pruned or failed one has none there
        ([of({8: 0.5}, 0.2), of({}, state="failed")], 0.3, 24),
        ([of({8: 0.5}, 0.2, state="pruned"), of({}, state="failed")], 0.3, 0),
        # not before a quarter of the rounds that the model's own settings took
        ([of({8: 0.1, 24: 0.1}, rounds=40)], 0.3, 24),
    ],
)
def test_the_best_third_of_those_that_came_so_far_goes_on(
    earlier: list[Trial], risk: float, ends: int
) -> None:
    assert shown(Rungs(told(*earlier), earlier[0].rounds), [risk] * 30) == ends

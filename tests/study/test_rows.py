"""The plan, cells and intervals over test rows of the papers' study, by hand."""

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from benchmarks.study.cells import STOPS, BothRest, Samples, stopped
from benchmarks.study.plan import CENSUS, TITLES, VARIANTS, cells
from benchmarks.study.rows import Predicted, drawn, draws, row, spread
from tasks import settings
from tasks.fits import models
from tests.conftest import refuses
from tests.small_models import boosting, on_features, two_branches
from usboost.boosting.rounds import Round
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.evaluation import metrics
from usboost.models import catalogue


def fit(n_classes=2, n=200, seed=0):
    """Labels, the same for every seed, and probabilities that know something of them."""
    y = np.random.default_rng(99).integers(n_classes, size=n)
    rng = np.random.default_rng(seed)
    raw = rng.random((n, n_classes)) + 0.4 * np.eye(n_classes)[y]
    return Predicted(y, raw / raw.sum(axis=1, keepdims=True), 0.45 if n_classes == 2 else float("nan"))


def scored(found, metric, rows):
    y, probabilities = found.y[rows], found.probabilities[rows]
    if metric == "f1_tuned":
        return metrics.f1(y, (probabilities[:, 1] >= found.threshold).astype(int), 2)
    return metrics.score(y, probabilities)[metric]


@pytest.mark.parametrize(
    ("metric", "n_classes"), [("f1", 2), ("f1_tuned", 2), ("log_loss", 2), ("f1", 4), ("log_loss", 4)]
)
def test_a_draw_is_the_score_of_its_rows(metric, n_classes):
    fits = [fit(n_classes, seed=seed) for seed in range(3)]
    draws = np.random.default_rng(5).integers(200, size=(7, 200))
    counts = np.stack([np.bincount(rows, minlength=200) for rows in draws]).astype(float)
    by_hand = [np.mean([scored(found, metric, rows) for found in fits]) for rows in draws]
    np.testing.assert_allclose(drawn(fits, metric, counts), by_hand, rtol=1e-12)


def test_the_spread_is_that_of_the_mean():
    """Log-loss is a mean over rows, so its spread is known: 1.96 standard errors of the paired difference."""
    one, other = fit(n=4000, seed=1), fit(n=4000, seed=2)
    losses = [-np.log(found.probabilities[np.arange(4000), found.y]) for found in (one, other)]
    expected = 1.96 * (losses[0] - losses[1]).std() / np.sqrt(4000)
    drawn_one, drawn_other = (draws([found], 2000)["log_loss"] for found in (one, other))
    assert spread(drawn_one, drawn_other) == pytest.approx(expected, rel=0.06)


def test_bold_is_what_leaves_0_outside_both_intervals_together():
    """A model that is better on each of three seeds, by about as much: the luck of the rows decides."""
    y = np.arange(40) % 2
    sure, unsure = np.eye(2)[y] * 0.8 + 0.1, np.eye(2)[y] * 0.6 + 0.2
    better = [Predicted(y, sure + 0.001 * k * (1 - 2 * np.eye(2)[y]), 0.5) for k in range(3)]
    worse = [Predicted(y, unsure, 0.5)] * 3
    for luck, bold in ((0.001, True), (1.0, False)):
        d = {m: np.random.default_rng(1).normal(0, luck, 4000) for m in ("f1", "f1_tuned", "log_loss")}
        still = {m: np.zeros(4000) for m in d}
        cell = row(better, worse, d, still)[2]
        assert cell.startswith("**-0.1") if bold else cell.startswith("-0.1"), cell


def test_other_rows_are_refused():
    other = Predicted(fit().y[::-1], fit().probabilities, 0.5)
    refuses("test rows", row, [fit()], [other], {}, {})


PAPER = settings.load(Path(__file__).parents[2] / "params.yaml").model_copy(
    update={
        "profile": "paper",
        "models": {name: settings.Model.model_validate(given) for name, given in VARIANTS.items()},
    }
)


def test_every_model_of_the_plan_can_be_built() -> None:
    for dataset, model in {(cell.dataset, cell.model) for cell in cells()}:
        assert models.build(model, dataset, PAPER, seed=0)
    assert set(VARIANTS) - set(catalogue.CATALOGUE) == set(TITLES)


def test_a_variant_differs_in_one_thing() -> None:
    plain = models.build("2wl", "ci_a", PAPER, seed=0)
    plain.set_params(step="newton", shrinkage=0.3, step_settings={})
    found = models.build("2wl_shrunk", "ci_a", PAPER, seed=0)
    one, other = ({k: str(v) for k, v in each.get_params().items()} for each in (found, plain))
    assert one == other


@pytest.mark.parametrize(("dataset", "name"), [("ci_a", "baseline_settled"), ("ci_b", "baseline_settled_b")])
def test_the_papers_baseline_is_that_of_table_1(dataset: str, name: str) -> None:
    """params.yaml has Table 1 as it is printed; the study changes what the tuned baseline has of it."""
    found = models.build(name, dataset, PAPER.model_copy(update=changed(CENSUS)), seed=0).get_params()
    literal = models.build("baseline", dataset, PAPER, seed=0).get_params()
    for key in ("dnn1", "dnn2", "dnn3", "fusion", "optimizer", "learning_rate", "batch_size"):
        assert np.array_equal(found[key], literal[key]), key


def changed(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings' sections with the plan's changes by dotted key, of the networks' tables alone."""
    document = PAPER.model_dump()
    for key, value in changes.items():
        *path, last = key.split(".")
        reduce(lambda section, part: section[part], path, document)[last] = value
    new = settings.Settings.model_validate(document)
    return {"table1": new.table1, "profiles": new.profiles}


def samples(seed: int, n: int) -> Samples:
    x = np.random.default_rng(seed).normal(size=(n, 4))
    y = (x[:, 0] * x[:, 2] + np.random.default_rng(seed + 9).normal(size=n) > 0.5).astype(int)
    return Views(U=Table.from_numeric(x[:, :2]), S=Table.from_numeric(x[:, 2:])), y


SPLITS = {"train": samples(0, 120), "val": samples(1, 80), "test": samples(2, 50)}


def test_a_fit_goes_on_until_neither_rule_has_found_better() -> None:
    """Risk is lowest in round 2, F1 highest in round 4: two rounds after that both have rested."""
    watch, told = BothRest(2), []
    watch.on_fit_begin(None)
    for k, (risk, f1) in enumerate([(3, 1), (1, 1), (2, 1), (2, 5), (2, 2), (2, 3), (9, 3)], start=1):
        metrics = {"risk_val": float(risk), "f1_val": float(f1)}
        told.append(watch.on_round(Round(k, None, metrics, {})))
    assert told == [False, False, False, False, False, True, True]


@pytest.mark.parametrize(
    "model",
    [boosting(n_rounds=25, patience=4), two_branches(n_epochs=12, patience=3), on_features()],
    ids=["boosting", "two branches", "boosted features"],
)
def test_each_rule_has_its_best_of_the_same_rounds(model: Any) -> None:
    found = {}
    for rule, fitted in stopped(clone(model), SPLITS):
        history = fitted.history_
        best = {"log_loss": np.argmin, "f1": np.argmax}[rule]([row[STOPS[rule]] for row in history])
        assert history[fitted.best_round_ - 1][STOPS[rule]] == history[int(best)][STOPS[rule]]
        found[rule] = len(history), fitted.predict_proba(SPLITS["test"][0])
        # as a fit alone with this rule that does not stop
        nested = "network__" if "network__monitor" in model.get_params() else ""
        alone = clone(model).set_params(
            **{f"{nested}monitor": STOPS[rule], f"{nested}patience": None, "callbacks": [BothRest(999)]}
        )
        rounds = {"n_rounds", f"{nested}n_epochs"} & set(model.get_params())
        alone.set_params(**dict.fromkeys(rounds, len(history)))
        said = alone.fit(*SPLITS["train"], validation=SPLITS["val"]).predict_proba(SPLITS["test"][0])
        np.testing.assert_array_equal(found[rule][1], said)
    assert found["log_loss"][0] == found["f1"][0]

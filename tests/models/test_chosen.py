"""The best of several models on validation rows: which it is, what it sees, and what is kept of it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import usboost
from tests.conftest import make_views
from usboost.boosting.callbacks import Callback
from usboost.errors import UsboostError
from usboost.evaluation.metrics import score
from usboost.models import builders, zoo
from usboost.models.baselines.estimators import LightGBMBaseline
from usboost.models.baselines.linear import LinearBaseline
from usboost.models.chosen import ChosenClassifier

VIEWS, CODES = make_views(3, 400)
TRAIN, HELD = np.arange(300), np.arange(300, 400)
NAMES = np.asarray(["c", "a", "b"])[CODES]


def parts(rows):
    return VIEWS[rows], NAMES[rows]


def candidates():
    return {
        "poor": LightGBMBaseline(("S",), n_trees=1),
        "linear": LinearBaseline(("U", "S")),
        "table": LinearBaseline(("S",)),
    }


def test_it_is_the_one_with_the_lowest_loss_and_predicts_as_it_does_alone():
    model = ChosenClassifier(candidates()).fit(*parts(TRAIN), parts(HELD))
    codes = np.searchsorted(model.classes_, NAMES[HELD])
    alone = {name: clone(each).fit(*parts(TRAIN), parts(HELD)) for name, each in candidates().items()}
    losses = {name: score(codes, each.predict_proba(VIEWS[HELD]))["log_loss"] for name, each in alone.items()}
    assert model.losses_ == pytest.approx(losses)
    assert model.chosen_name_ == min(losses, key=losses.__getitem__) == "linear"
    np.testing.assert_array_equal(model.predict_proba(VIEWS), alone["linear"].predict_proba(VIEWS))
    assert model.history_ == model.chosen_.history_ and model.best_round_ == model.chosen_.best_round_


def test_of_equals_the_first_is_kept():
    same = {"first": LinearBaseline(("S",)), "second": LinearBaseline(("S",))}
    assert ChosenClassifier(same).fit(*parts(TRAIN), parts(HELD)).chosen_name_ == "first"


def test_rows_that_choose_are_not_fitted_to():
    """Other labels of the validation rows change which model it is, not what each has learned."""
    other = NAMES[HELD][np.random.default_rng(0).permutation(len(HELD))]
    model = ChosenClassifier(candidates()).fit(*parts(TRAIN), (VIEWS[HELD], other))
    alone = clone(candidates()[model.chosen_name_]).fit(*parts(TRAIN), (VIEWS[HELD], other))
    np.testing.assert_array_equal(model.predict_proba(VIEWS), alone.predict_proba(VIEWS))


def test_what_is_saved_is_the_chosen_model(tmp_path):
    model = ChosenClassifier(candidates(), random_state=1).fit(VIEWS, NAMES)
    usboost.save(model, tmp_path / "model")
    again = usboost.load(tmp_path / "model")
    assert type(again) is type(model.chosen_)
    np.testing.assert_array_equal(again.predict_proba(VIEWS), model.predict_proba(VIEWS))


def test_callbacks_watch_every_fit():
    begun = []

    class Watches(Callback):
        def on_fit_begin(self, fit):
            begun.append(type(fit).__name__)

    chosen = ChosenClassifier(candidates(), callbacks=[Watches()])
    chosen.fit(*parts(TRAIN), parts(HELD))
    assert len(begun) >= 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ChosenClassifier(), "candidates is empty"),
        (ChosenClassifier(candidates(), validation_fraction=0.0), "models are chosen on validation rows"),
    ],
)
def test_what_it_needs(model, message):
    with pytest.raises(UsboostError, match=message):
        model.fit(VIEWS, NAMES)


def test_the_catalogues_candidates_are_its_entries():
    entry = zoo.find("chosen")
    model = builders.build(entry)
    assert tuple(model.candidates) == entry.changes["candidates"]
    for name, candidate in model.candidates.items():
        assert str(candidate.get_params()) == str(builders.build(name).get_params())

"""Labels of every kind, classes of one sample, columns that say nothing, risks that explode."""

import numpy as np
import pytest

from tests.conftest import make_views, refuses
from tests.small_models import boosting, lgbm, network, on_features, two_branches
from usboost import Table, TreeLearner, UsboostError, Views

MODELS = {
    "2wl": boosting,
    "2wl2o": lambda **changes: boosting(target="second_order", **changes),
    "2wl-newton": lambda **changes: boosting(target="newton", **changes),
    "two branches": two_branches,
    "bfv_dnn": on_features,
    "lgbm": lgbm,
}
LABELS = {
    "strings": lambda y: np.array(["no", "maybe", "yes"])[y],
    "objects": lambda y: np.array(["no", "maybe", "yes"], dtype=object)[y],
    "floats": lambda y: np.array([-1.0, 0.0, 2.0])[y],
    "booleans": lambda y: y > 0,
    "far integers": lambda y: np.array([-7, 0, 10**12])[y],
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind(name, kind):
    views, y = make_views(3, n=150)
    labels = LABELS[kind](y)
    model = MODELS[name]().fit(views, labels)
    predicted = model.predict(views)
    assert predicted.dtype == model.classes_.dtype
    assert set(predicted.tolist()) <= set(labels.tolist())
    assert list(model.classes_) == sorted(set(labels.tolist()))
    probabilities = model.predict_proba(views)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_a_class_of_one_sample(name):
    """It cannot be split for validation, which is said; with validation data given, or none, it is learnt."""
    views, y = make_views(2, n=120)
    y = y.copy()
    y[7] = 2
    refuses("cannot set samples aside for validation", MODELS[name]().fit, views, y)
    held, held_y = make_views(2, n=40, seed=3)
    model = MODELS[name]().fit(views, y, validation=(held, held_y))
    assert model.predict_proba(views).shape == (120, 3)
    assert np.isfinite(model.predict_proba(held)).all()


@pytest.mark.parametrize("name", MODELS)
def test_columns_that_say_nothing(name):
    _, y = make_views(2, n=200)
    nothing = Table.from_numeric(np.zeros((200, 3)))
    model = MODELS[name](validation_fraction=0.2).fit(Views(U=nothing, S=nothing), y)
    probabilities = model.predict_proba(Views(U=nothing, S=nothing))
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities, probabilities[:1].repeat(200, axis=0), rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_extreme_imbalance(name):
    views, _ = make_views(2, n=2000)
    y = np.zeros(2000, dtype=int)
    y[[5, 700, 1500]] = 1
    held = views[:400], y[:400]
    model = MODELS[name]().fit(views, y, validation=held)
    assert np.isfinite(model.predict_proba(views)).all()
    if name != "lgbm":  # which reports no risk
        assert all(np.isfinite(row["risk_train"]) for row in model.history_)


def test_a_risk_that_explodes_names_the_round():
    views, y = make_views(2, n=100)
    model = boosting(step="fixed", step_settings={"value": 1e3}, n_rounds=50, validation_fraction=0)
    refuses(r"round \d+: .*1000.0, 1000.0", model.fit, views, y)


def test_a_network_that_diverges_names_the_round():
    views, y = make_views(2, n=100)
    wild = {"U": network(optimizer="sgd", learning_rate=1e30, epochs=3), "S": TreeLearner()}
    refuses(r"round 1: .*'U'.* NaN", boosting(learners=wild).fit, views, y)
    with pytest.raises(UsboostError, match=r"not finite in epoch \d+"):
        two_branches(optimizer="sgd", learning_rate=1e30, n_epochs=5).fit(views, y)


def test_labels_that_are_no_classes_are_refused():
    views, y = make_views(2, n=60)
    for labels, said in ((np.ones(60), "two classes"), (np.linspace(0.1, 0.9, 60), "class labels")):
        refuses(said, boosting().fit, views, labels)
    refuses("y ", boosting().fit, views, np.array([np.nan, 1.0] * 30))
    refuses("label 5 is not among", boosting().fit, views, y, validation=(views, np.full(60, 5)))

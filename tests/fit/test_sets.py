"""Sets of classes that hold the true one of 9 in 10 rows."""

import json

import numpy as np
import pandas as pd
import pytest

from benchmarks.robustness import tables
from tests.fit.conftest import accepted, numbers, refused
from usboost import MultimodalClassifier
from usboost.evaluation.intervals import least_by_class, least_probability
from usboost.fit import bundle


def test_the_least_probability_is_a_rank_of_the_true_classes():
    p = np.linspace(0.01, 0.99, 19)
    probabilities, labels = np.column_stack([p, 1 - p]), np.zeros(19, dtype=int)
    # ⌈20 · .9⌉ = 18 of 19 rows are held: all but the one of the least probability
    assert least_probability(labels, probabilities) == pytest.approx(np.sort(p)[1])
    assert least_probability(labels[:8], probabilities[:8]) == 0  # ⌈9 · .9⌉ = 9 of 8 rows: none will do
    weights = np.ones(19)
    weights[0] = 5  # so the lightest 10 % of the weight are within that row
    assert least_probability(labels, probabilities, weights) == pytest.approx(p[0])


def test_coverage_over_many_draws_of_wrong_probabilities():
    """The mean over calibration sets of n = 29 rows is ⌈30 · .9⌉/30, whatever the probabilities are worth."""
    rng, held, size = np.random.default_rng(0), [], []
    for _ in range(600):
        scores = rng.normal(size=(129, 4))
        true = np.array([rng.choice(4, p=each) for each in np.exp(scores) / np.exp(scores).sum(1)[:, None]])
        said = np.exp(3 * scores + rng.normal(size=4))  # far too sure, and biased
        said /= said.sum(axis=1, keepdims=True)
        least = least_probability(true[:29], said[:29])
        sets = said[29:] >= least
        held.append(sets[np.arange(100), true[29:]].mean())
        size.append(sets.mean())
    error = np.std(held) / np.sqrt(len(held))
    assert error < 0.004 and abs(np.mean(held) - 27 / 30) < 3 * error
    assert np.mean(size) < 0.95  # not by taking every class


def test_a_class_with_too_few_rows_is_in_all_sets():
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1, 2], [40, 9, 8])
    p, weights = rng.dirichlet(np.ones(4), 57), rng.uniform(0.5, 2, 57)
    found = least_by_class(labels, p)
    assert found[0] == np.sort(p[:40, 0])[3]  # 37 of 40 are held
    assert found[1] == p[40:49, 1].min()  # 9 of 9
    assert found[2:] == [0, 0]  # of 8 rows, and of none
    own = labels == 0
    assert least_by_class(labels, p, weights)[0] == least_probability(labels[own], p[own], weights[own])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model of three classes fitted to 800 rows, their table, and 2,000 new rows."""
    folder = tmp_path_factory.mktemp("sets")
    frame = numbers(2800, classes=3)
    frame.iloc[:800].to_parquet(folder / "table.parquet")
    frame.iloc[800:].to_parquet(folder / "new.parquet")
    given = ("--label", "kind", "--model", "logistic", "--out", folder / "model")
    accepted("fit", folder / "table.parquet", *given)
    return folder


def test_new_rows_are_held(saved, tmp_path):
    model, new = saved / "model", saved / "new.parquet"
    for name in ("p.csv", "p.parquet"):
        accepted("predict", model, new, "--sets", "--keep", "kind", "--out", tmp_path / name)
    found, read = pd.read_parquet(tmp_path / "p.parquet"), pd.read_csv(tmp_path / "p.csv")
    assert list(found) == ["label", "p_maybe", "p_no", "p_yes", "set", "kind"]
    assert (found["set"] == read["set"]).all()
    sets = found["set"].map(json.loads)
    held = np.array([kind in each for kind, each in zip(found["kind"], sets, strict=True)])
    n = bundle.load(model).card  # 120 of the 800 rows were held out
    assert n.least is not None and 0 < n.least < 0.5
    assert abs(held.mean() - 0.9) < 3 * np.sqrt(0.09 / 120 + 0.09 / 2000)
    assert all(label in each for label, each in zip(found["label"], sets, strict=True))
    p = found[["p_maybe", "p_no", "p_yes"]].to_numpy()
    assert sets.map(len).between(1, 3).all()
    assert (sets.map(len) == np.maximum(1, (p >= n.least).sum(axis=1))).all()
    in_python = MultimodalClassifier.load(model).predict_set(pd.read_parquet(new).drop(columns="kind"))
    assert in_python.sum(axis=1).tolist() == sets.map(len).tolist()


def test_new_rows_of_each_class_are_held(saved, tmp_path):
    model, new, out = saved / "model", saved / "new.parquet", tmp_path / "p.parquet"
    accepted("predict", model, new, "--sets-per-class", "--keep", "kind", "--out", out)
    found, loaded = pd.read_parquet(out), bundle.load(model)
    sets = found["set"].map(json.loads)
    p, least = found[["p_maybe", "p_no", "p_yes"]].to_numpy(), loaded.card.least_by_class
    assert (sets.map(len) == np.maximum(1, (p >= least).sum(axis=1))).all()
    held = pd.Series([kind in each for kind, each in zip(found["kind"], sets, strict=True)])
    # a class has some 40 of the 120 rows held out
    assert (held.groupby(found["kind"]).mean() - 0.9).abs().max() < 3 * np.sqrt(0.09 / 40 + 0.09 / 600)
    in_python = MultimodalClassifier.load(model)
    asked = in_python.predict_set(pd.read_parquet(new).drop(columns="kind"), per_class=True)
    assert asked.sum(axis=1).tolist() == sets.map(len).tolist()


def test_the_report_says_how_many_are_held(saved, tmp_path):
    accepted("report", saved / "model", saved / "new.parquet", "--out", tmp_path / "r.html")
    loaded, text = bundle.load(saved / "model"), (tmp_path / "r.html").read_text()
    frame = pd.read_parquet(saved / "new.parquet")
    answers = loaded.predict(frame.drop(columns="kind"))
    p = answers[["p_maybe", "p_no", "p_yes"]].to_numpy()
    true = frame["kind"].map({"maybe": 0, "no": 1, "yes": 2}).to_numpy()
    share = loaded.sets(p)[np.arange(len(p)), true].mean()
    assert f"They hold <strong>{share:.1%}</strong>" in text


@pytest.mark.filterwarnings("ignore:.*An input example")
def test_a_served_model_gives_sets_where_a_request_asks_for_them(saved, tmp_path):
    served = tables.served(saved / "model", tmp_path / "served")
    rows = pd.read_parquet(saved / "new.parquet").drop(columns="kind").head(50)
    assert list(served.predict(rows)) == ["label", "p_maybe", "p_no", "p_yes"]
    found = served.predict(rows, params={"sets": True})
    expected = bundle.load(saved / "model").predict(rows, sets=True)
    assert list(found) == ["label", "p_maybe", "p_no", "p_yes", "set"]
    assert found["set"].tolist() == expected["set"].tolist()


def test_labels_are_as_the_table_has_them(tmp_path):
    frame = numbers(200)
    frame["kind"] = (frame["kind"] == "yes").astype(int)
    model = MultimodalClassifier("logistic").fit(frame.drop(columns="kind"), frame["kind"])
    texts = model.bundle_.set_texts(np.array([[0.999, 0.001], [0.5, 0.5]]))
    order = [int(each) for each in model.bundle_.card.classes]
    assert json.loads(texts[0]) == [order[0]] and json.loads(texts[1]) == order
    sure = model.bundle_.card.model_copy(update={"threshold": 0.9, "least": 0.5})
    answered = bundle.Bundle(model.bundle_.model, sure).sets(np.array([[0.2, 0.8], [0.05, 0.95]]))
    assert answered.tolist() == [[True, True], [False, True]]  # the answer, and what is probable


def test_who_has_no_sets(saved, tmp_path):
    frame = numbers(60).drop(columns="kind").dropna()
    frame.to_csv(tmp_path / "t.csv", index=False)
    given = ("--label", "height", "--model", "ridge", "--out", tmp_path / "m")
    accepted("fit", tmp_path / "t.csv", *given)
    said = refused("predict", tmp_path / "m", tmp_path / "t.csv", "--sets", "--out", tmp_path / "p.csv")
    assert said == "a predicted number has an interval and no set; leave --sets out"
    card = json.loads((saved / "model" / "card.json").read_text())
    for option, key in (("--sets", "least"), ("--sets-per-class", "least_by_class")):
        del card[key]
        (saved / "model" / "card.json").write_text(json.dumps(card))
        said = refused("predict", saved / "model", saved / "new.parquet", option, "--out", tmp_path / "p.csv")
        assert said == "logistic was saved without what sets take; fit the model again"
    (saved / "model" / "card.json").write_text(json.dumps({**card, "least_by_class": [0.1]}))
    said = refused("predict", saved / "model", saved / "new.parquet", "--out", tmp_path / "p.csv")
    assert "least_by_class is not one number for each class" in said

"""The report of two classes and of a number, against scores and shuffles written out."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    mean_absolute_error,
    precision_recall_fscore_support,
    r2_score,
)

from tests.fit.conftest import accepted, numbers, refused
from tests.report import Page
from usboost.evaluation.metrics import score, score_regression
from usboost.evaluation.ranking import number, number_of_label
from usboost.fit import bundle
from usboost.fit.predict import score_table
from usboost.fit.table_fit import MOST, history_of
from usboost.models.inspection.inspect import ColumnGroup, predictor, shuffled
from usboost.report.importance import permutation
from usboost.report.rows import value_of


@pytest.fixture(scope="module")
def priced(tmp_path_factory):
    """A model of a number, fitted to 160 rows, and 240 others."""
    folder = tmp_path_factory.mktemp("priced")
    for name, n, seed in (("t.csv", 160, 0), ("new.csv", 240, 1)):
        rng = np.random.default_rng(seed + 9)
        frame = numbers(n, seed).drop(columns="kind")
        frame["price"] = 50 * frame["height"].fillna(0) + 20 * frame["width"] + 5 * rng.normal(size=n)
        frame["price"] = frame["price"].abs()  # so that no interval reaches below 0
        frame.to_csv(folder / name, index=False)
    out = ("--out", folder / "m")
    accepted("fit", folder / "t.csv", "--label", "price", "--preset", "fast", "--rounds", 6, *out)
    accepted("report", folder / "m", folder / "new.csv", "--out", folder / "r.html")
    return folder


def test_a_number_beside_its_mean(priced):
    page = Page((priced / "r.html").read_text())
    why = ("--explain-page", priced / "why.html")
    accepted("predict", priced / "m", priced / "new.csv", "--out", priced / "p.csv", *why)
    floor = pd.read_csv(priced / "t.csv")["price"].min()  # of all rows, to which it was fitted
    assert (priced / "why.html").read_text().count(f"prediction, before its floor of {floor:g}<") == 12
    found, true = pd.read_csv(priced / "p.csv"), pd.read_csv(priced / "new.csv")["price"]
    rmse = float(np.sqrt(np.mean((true - found["prediction"]) ** 2)))
    shown = [rmse, mean_absolute_error(true, found["prediction"]), r2_score(true, found["prediction"])]
    (mean,) = json.loads((priced / "m" / "card.json").read_text())["prior"]
    assert mean == pytest.approx(pd.read_csv(priced / "t.csv")["price"].mean())  # it was fitted to all rows
    for value, simple in zip(shown, score_regression(true, np.full(240, mean)).values(), strict=True):
        assert number(value) in page.text
        assert f"mean {number(simple)}".replace("-", "−") in page.text.replace("-", "−")
    inside = ((found["low"] <= true) & (true <= found["high"])).mean()
    assert f"They hold {inside:.1%} of these" in page.text
    width = found["high"] - found["low"]
    assert f"Intervals are {number(width.mean())} wide in the mean, {number(width.min())} to" in page.text
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "iframe", "object"})
    rounds = bool(bundle.load(priced / "m").model.stages_)
    # scatter, residuals, curve, and contributions, of which a start alone has none
    assert sum(tag == "img" for tag, _ in page.tags) == 3 + rounds
    assert "Predicting price" in page.text and "logistic" not in page.text


def test_the_rows_of_the_largest_error_come_first(priced):
    text = (priced / "r.html").read_text()
    found, true = pd.read_csv(priced / "p.csv")["prediction"], pd.read_csv(priced / "new.csv")["price"]
    expected = (found - true).abs().sort_values(ascending=False, kind="stable").index[:12] + 1
    assert [int(row) for row in re.findall(r"<dt>row</dt><dd>(\d+)</dd>", text)] == expected.tolist()
    assert refused(
        "report", priced / "m", priced / "new.csv", "--out", priced / "x.html", "--label", "colour"
    ).startswith(str(priced / "new.csv"))


@pytest.mark.parametrize(
    ("given", "shown"),
    [("0.038075906423423026", "0.0380759"), ("-7.913883691088233e-05", "-7.91388e-05"),
     ("12.50", "12.50"), ("2024.10001x", "2024.10001x"), (0.1 + 0.2, "0.3"),
     (None, "missing"), (float("nan"), "missing")],
)  # fmt: skip
def test_a_value_of_the_table_is_short(given, shown):
    assert value_of(given) == shown


def test_a_label_that_is_whole_has_no_digits_after_the_point():
    assert [number_of_label(value) for value in (52.0, -3.0, 1_250_000.0)] == ["52", "−3", "1,250,000"]
    assert [number(value) for value in (-3.14159e-8, 0.0004, 0.0)] == ["−3.14e-08", "0.0004", "0.0000"]
    assert number_of_label(52.25) == number(52.25) == "52.2500"


def test_a_columns_importance_is_the_rise_when_its_values_are_shuffled(priced):
    loaded = bundle.load(priced / "m")
    scored = score_table(loaded, priced / "new.csv", "price")
    shuffles = permutation(loaded, scored.views, scored.labels)["rows"]
    found = {row["name"]: list(row["cells"].values()) for row in shuffles}
    assert set(found) == {"height", "width", "colour"}
    frame, rng = pd.read_csv(priced / "new.csv").drop(columns="price"), np.random.default_rng(0)
    of_one = permutation(loaded, scored.views, np.full(len(frame), 5.0))["rows"]  # R² is not defined
    assert of_one[0]["size"] and {row["cells"]["r2"] for row in of_one} == {("–", "")}
    before = score_regression(scored.labels, scored.predicted)
    for name in loaded.card.columns:
        changes = []
        for _ in range(5):
            order = rng.permutation(len(frame))
            other = frame.assign(**{name: frame[name].to_numpy()[order]})
            after = score_regression(scored.labels, loaded.predict(other)["prediction"].to_numpy())
            changes.append((after["rmse"] - before["rmse"], before["r2"] - after["r2"]))
        mean, spread = np.mean(changes, axis=0), np.std(changes, axis=0, ddof=1)
        for (change, around), m, s in zip(found[name], mean, spread, strict=True):
            assert (change, around) == (("−" if m < 0 else "+") + number(abs(m)), f"± {number(s)}")


def test_without_trees_more_columns_are_shuffled(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(150, 26))).rename(columns="c{}".format)
    frame["y"] = np.exp(frame["c25"]).round()
    frame.to_csv(tmp_path / "t.csv", index=False)
    accepted("fit", tmp_path / "t.csv", "--label", "y", "--model", "ridge", "--out", tmp_path / "m")
    accepted("report", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "r.html")
    assert "are not shuffled" not in (tmp_path / "r.html").read_text()


def test_two_classes_at_the_threshold(tmp_path):
    for name, n, seed in (("t.csv", 150, 3), ("new.csv", 200, 4)):
        numbers(n, seed).to_csv(tmp_path / name, index=False)
    out = ("--model", "lgbm", "--rounds", 5, "--threshold=0.3", "--positive", "yes", "--out", tmp_path / "m")
    accepted("fit", tmp_path / "t.csv", "--label", "kind", *out)
    accepted("report", tmp_path / "m", tmp_path / "new.csv", "--out", tmp_path / "r.html")
    accepted("predict", tmp_path / "m", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    text = (tmp_path / "r.html").read_text()
    page = Page(text)
    found, true = pd.read_csv(tmp_path / "p.csv"), pd.read_csv(tmp_path / "new.csv")["kind"]
    assert ((found["p_yes"] >= 0.3) == (found["label"] == "yes")).all()
    classes = bundle.load(tmp_path / "m").card.classes
    for value in (
        average_precision_score(true == "yes", found["p_yes"]),
        balanced_accuracy_score(true, found["label"]),
        f1_score(true == "yes", found["label"] == "yes"),
        (true == found["label"]).mean(),
    ):
        assert f"{value:.4f}" in page.text
    assert "yes from probability 0.3 on" in page.text
    counts = pd.crosstab(true, found["label"]).reindex(index=classes, columns=classes, fill_value=0)
    cells = re.findall(r'--share: [\d.]+"(?: class="right")?>(\d+)<small>', text)
    assert [int(cell) for cell in cells] == counts.to_numpy().ravel().tolist()
    expected = precision_recall_fscore_support(true, found["label"], labels=classes)
    for name, precision, recall, f1, support in zip(classes, *expected, strict=True):
        cells = [f"{precision:.1%}", f"{recall:.1%}", f"{f1:.4f}", str(support)]
        row = f'<th scope="row">{name}</th>' + "".join(f"<td>{cell}</td>" for cell in cells)
        assert row in text
    shares = (pd.read_csv(tmp_path / "t.csv")["kind"].value_counts(normalize=True))[classes].to_numpy()
    codes = np.array([classes.index(each) for each in true])
    # the training rows are 85 % of each class
    prior = score(codes, np.tile(json.loads((tmp_path / "m/card.json").read_text())["prior"], (200, 1)))
    assert f"prior {prior['log_loss']:.4f}" in page.text
    assert prior["log_loss"] == pytest.approx(score(codes, np.tile(shares, (200, 1)))["log_loss"], rel=0.02)


@pytest.mark.parametrize("name", [pytest.param("linear_trees", marks=pytest.mark.slow), "2wl"])
def test_a_sum_with_a_start_is_shuffled_as_the_model_would_be(name, demo, model, tmp_path):
    folder = model
    if name != "linear_trees":
        roles = ("--label", "batch", "--image", "image", "--size", "32", "--drop", "split")
        accepted("fit", demo, *roles, "--model", name, "--rounds", 2, "--out", tmp_path / "m")
        folder = tmp_path / "m"
    loaded = bundle.load(folder)
    views = score_table(loaded, demo, "batch").views
    predict, order = predictor(loaded.model, views, loaded.model.predict_proba), np.random.default_rng(0)
    for group in (
        ColumnGroup("U", ("U",)),
        ColumnGroup("S", ("S",)),
        ColumnGroup("all", ("U", "S")),
        ColumnGroup("columns", columns={"S": ("weight", "weight_missing", "colour")}),
    ):
        rows = order.permutation(len(views))
        expected = loaded.model.predict_proba(shuffled(views, group, rows))
        # networks read rows in float32, whose last digits depend on a row's place in its batch
        assert np.allclose(predict(group, rows), expected, rtol=0, atol=1e-6)
        if group.name == "all":
            assert not np.allclose(expected, loaded.model.predict_proba(views))


def test_the_history_is_short_and_holds_the_best_round():
    class Model:
        best_round_ = 777
        history_ = ({"risk_train": 1 / k, "f1_val": 0.5, "seconds": 1.0} for k in range(1, 1001))

    found = history_of(Model())
    assert set(found) == {"round", "risk_train", "f1_val"}
    assert MOST <= len(found["round"]) <= MOST + 1
    assert {1.0, 777.0, 1000.0} <= set(found["round"])
    assert found["risk_train"] == [1 / k for k in found["round"]]


@pytest.mark.slow
def test_a_card_may_have_neither_prior_nor_history(model, demo, tmp_path):
    loaded = bundle.load(model)
    assert len(loaded.card.history["round"]) == 4
    old = bundle.Bundle(loaded.model, loaded.card.model_copy(update={"prior": [], "history": {}}))
    old.save(tmp_path / "m")
    assert not {"prior", "history"} & json.loads((tmp_path / "m/card.json").read_text()).keys()
    accepted("report", tmp_path / "m", demo, "--out", tmp_path / "r.html")
    assert "the classes in these rows for every row" in Page((tmp_path / "r.html").read_text()).text

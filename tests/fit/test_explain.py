"""Why single rows are answered as they are: by the command, in Python and on the report."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from tests.conftest import refuses
from tests.fit.conftest import ROLES, accepted, numbers, refused
from usboost import MultimodalClassifier, MultimodalRegressor
from usboost.fit import bundle
from usboost.fit.explain import names_of
from usboost.fit.predict import score_table
from usboost.report.rows import three_rows


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model of 200 rows without images, with a column of dates, and their table."""
    folder = tmp_path_factory.mktemp("explained")
    frame = numbers(200).assign(day=pd.date_range("2020-01-01", periods=200))
    frame.to_csv(folder / "table.csv", index=False)
    given = ("--label", "kind", "--model", "linear_trees", "--rounds", 10, "--out", folder / "model")
    accepted("fit", folder / "table.csv", *given)
    return folder / "model", folder / "table.csv"


def test_the_columns_sum_to_the_log_odds_of_the_answer(plain):
    model = MultimodalClassifier.load(plain[0])
    frame = pd.read_csv(plain[1]).drop(columns="kind")
    found = model.explain(frame.head(20), against=frame)
    assert list(found) == ["height", "width", "colour", "day", "mean"]
    p = model.predict_proba(frame.head(20))
    margin = np.log(p.max(axis=1) / p.min(axis=1))
    np.testing.assert_allclose(found.sum(axis=1), margin, atol=1e-4)
    # the label depends on height most, and on width not at all
    assert found["height"].abs().mean() > 5 * found["width"].abs().mean()


def test_a_number():
    frame = numbers(150).drop(columns="kind").dropna()
    model = MultimodalRegressor(rounds=10).fit(frame.drop(columns="height"), 10 * frame["height"])
    found = model.explain(frame)
    np.testing.assert_allclose(found.sum(axis=1), model.predict(frame), atol=1e-3)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_command_names_the_columns_that_say_most(plain, tmp_path, form):
    model, table = plain
    out = tmp_path / f"p.{form}"
    accepted("predict", model, table, "--explain", "--keep", "height", "--out", out)
    found = pd.read_parquet(out) if form == "parquet" else pd.read_csv(out)
    assert list(found) == ["label", "p_no", "p_yes", "why", "height"]
    assert all(re.fullmatch(r"(\w+ [+-]\d+\.\d\d(; |$))+", each) for each in found["why"])
    sure = found.loc[found["height"].idxmax()]
    assert sure["label"] == "yes" and sure["why"].startswith("height +")


def test_one_row_is_compared_with_others(plain, tmp_path):
    model, table = plain
    pd.read_csv(table).head(1).to_csv(tmp_path / "one.csv", index=False)
    said = refused("predict", model, tmp_path / "one.csv", "--explain", "--out", tmp_path / "p.csv")
    assert "one.csv has 1 row, too few" in said and "--against" in said
    given = ("predict", model, tmp_path / "one.csv", "--explain", "--against", table)
    accepted(*given, "--out", tmp_path / "p.csv")
    assert "height" in pd.read_csv(tmp_path / "p.csv")["why"][0]


def test_a_model_that_cannot_be_explained(plain, tmp_path):
    table = plain[1]
    given = ("--label", "kind", "--model", "logistic", "--out", tmp_path / "m")
    accepted("fit", table, *given)
    said = refused("predict", tmp_path / "m", table, "--explain", "--out", tmp_path / "p.csv")
    assert said.startswith("single rows of logistic cannot be explained")
    accepted("report", tmp_path / "m", table, "--out", tmp_path / "r.html")
    assert "Single rows explained" not in (tmp_path / "r.html").read_text()
    refuses("logistic", MultimodalClassifier.load(tmp_path / "m").explain, pd.read_csv(table))


def test_the_report_explains_a_right_a_wrong_and_an_uncertain_row(plain, tmp_path):
    model, table = plain
    accepted("report", model, table, "--out", tmp_path / "r.html")
    loaded, text = bundle.load(model), (tmp_path / "r.html").read_text()
    scored = score_table(loaded, table, "kind")
    kinds = dict(three_rows(loaded, scored))
    answers = scored.predicted.argmax(axis=1)
    assert list(kinds) == ["right", "wrong", "uncertain"]
    assert answers[kinds["right"]] == scored.labels[kinds["right"]]
    assert answers[kinds["wrong"]] != scored.labels[kinds["wrong"]]
    assert scored.predicted[kinds["uncertain"]].max() == scored.predicted.max(axis=1).min()
    for kind, row in kinds.items():
        shown = text[text.index(f"{kind}, row {row + 1}") :]
        margin = np.log(scored.predicted[row].max() / scored.predicted[row].min())
        assert re.search(r"margin</th><td></td><td>(.*?)<", shown)[1] == f"{margin:.2f}"


def test_images_are_one_of_the_columns(demo, tmp_path):
    given = (*ROLES, "--model", "2wl_ridge", "--finetune", "none", "--rounds", 4, "--out", tmp_path / "m")
    accepted("fit", demo, *given)
    assert names_of(bundle.load(tmp_path / "m"))[-1] == "images (image)"
    found = MultimodalClassifier.load(tmp_path / "m", images_root=demo.parent)
    frame = pd.read_csv(demo)
    explained = found.explain(frame)
    p = np.log(found.predict_proba(frame))
    margin = 1.5 * (p.max(axis=1) - p.mean(axis=1))  # of three classes
    np.testing.assert_allclose(explained.sum(axis=1), margin, atol=1e-3)
    columns = explained.drop(columns="mean").abs().mean()
    assert columns.idxmax() == "images (image)"  # the batch shows in the image
    # one whose images do not help does not read them
    frame["image"] = frame["image"].sample(frac=1.0, random_state=0).to_numpy()
    frame.to_csv(demo.parent / "shuffled.csv", index=False)
    given = (*ROLES, "--finetune", "none", "--rounds", 4, "--out", tmp_path / "shuffled")
    accepted("fit", demo.parent / "shuffled.csv", *given)
    left_out = bundle.load(tmp_path / "shuffled")
    assert left_out.model.left_out_ and names_of(left_out) == tuple(left_out.card.columns)

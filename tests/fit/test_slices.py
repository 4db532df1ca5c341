"""Scores by the groups of a column: the groups, on a report and of a comparison."""

import numpy as np
import pandas as pd
import pytest

from tests.conftest import refuses
from tests.fit.conftest import accepted, numbers, refused, run
from usboost.evaluation.metrics import score
from usboost.evaluation.ranking import number
from usboost.fit import bundle
from usboost.fit.build import by_name
from usboost.fit.compare import compare
from usboost.fit.evaluate import folds_of
from usboost.fit.predict import score_table
from usboost.report.model_page import write_report
from usboost.table.columns.slices import MOST, read_slices
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """200 rows; ``site`` is left out by the model."""
    frame = numbers(200).assign(site=np.random.default_rng(1).choice(["north", "south"], 200))
    frame.loc[:9, "site"] = None
    path = tmp_path_factory.mktemp("slices") / "table.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(table):
    out = table.parent / "model"
    given = ("--label", "kind", "--drop", "site", "--model", "logistic", "--out", out)
    accepted("fit", table, *given)
    return out


def test_a_report_scores_each_group_alone(table, model, tmp_path):
    out = tmp_path / "r.html"
    result = accepted("report", model, table, "--by-column", "site", "--out", out)
    loaded = bundle.load(model)
    scored, site = score_table(loaded, table, "kind"), pd.read_csv(table)["site"]
    page = out.read_text()
    assert '<h2 id="slices">Scores by site</h2>' in page
    for name, rows in {"north": site == "north", "south": site == "south", "(missing)": site.isna()}.items():
        alone = score(scored.labels[rows], scored.predicted[rows])
        line = next(each for each in result.stdout.splitlines() if each.startswith(name))
        html = next(each for each in page.splitlines() if f">{name}</th>" in each)
        for metric in ("accuracy", "f1", "auc", "log_loss"):
            assert number(alone[metric]) in line and number(alone[metric]) in html
        assert f" {rows.sum()} " in line and f">{rows.sum()}" in html
        assert ("few" in line, "few" in html) == (rows.sum() < 30,) * 2


def test_a_column_that_is_not_there(table, model, tmp_path):
    said = refused("report", model, table, "--by-column", "colur", "--out", tmp_path / "r.html")
    assert "'colur'" in said and "did you mean 'colour'?" in said and not (tmp_path / "r.html").exists()
    given = ("--label", "kind", "--models", "logistic,prior", "--by-column", "colur")
    result = run("compare", table, *given)
    assert result.exit_code == 1 and "did you mean 'colour'?" in result.stderr
    assert result.stderr.count("error:") == 1 and result.stdout == ""


def test_a_number_is_predicted_by_groups_of_another(tmp_path):
    frame = numbers(120).drop(columns="kind").fillna({"height": 0.0})
    frame.to_csv(tmp_path / "t.csv", index=False)
    given = ("--label", "height", "--model", "ridge", "--out", tmp_path / "m")
    accepted("fit", tmp_path / "t.csv", *given)
    loaded = bundle.load(tmp_path / "m")
    scored = write_report(loaded, tmp_path / "t.csv", tmp_path / "r.html", by_column="width")
    assert [each.name for each in scored.slices] == ["all rows", *map(str, range(9))]
    for k, each in enumerate(scored.slices[1:]):
        rows = frame["width"].to_numpy() == k
        errors = np.abs(scored.labels[rows] - scored.predicted[rows])
        assert each.scores["mae"][0] == pytest.approx(errors.mean())


@pytest.mark.slow
def test_a_comparison_scores_groups_as_the_folds_predicted_them(table, tmp_path):
    own = read_table(table, TableSpec(label="kind", drop=("site",)))
    models = by_name(["logistic", "prior"], images=None)
    given = {"folds": 3, "repeats": 2, "seed": 1}
    found = compare(own, models, by_column="site", keep=tmp_path, **given)
    predicted, site = np.full((200, 2), np.nan), pd.read_csv(table)["site"].to_numpy(object)
    for fold in folds_of(own, 3, 2, 1):
        if fold.repeat == 1:
            encoding, model = own.fit_encoding(fold.train), models["logistic"](1)
            views = [own.views(encoding, rows) for rows in (fold.train, fold.val, fold.test)]
            model.fit(views[0], own.labels[fold.train], (views[1], own.labels[fold.val]))
            predicted[fold.test] = model.predict_proba(views[2])
    assert list(found.slices) == [each.model for each in found.standings()]
    by_group = {each.name: each for each in found.slices["logistic"]}
    assert by_group["all rows"].rows == 200
    for name in ("north", "south"):
        rows = site == name
        assert by_group[name].rows == rows.sum()
        alone = score(own.labels[rows], predicted[rows])
        assert {key: each[0] for key, each in by_group[name].scores.items()} == pytest.approx(alone)
    again = compare(own, models, by_column="site", keep=tmp_path, **given)
    assert again.cached == 12 and again.slices == found.slices
    # kept without what was predicted, a fit is made again when that is asked for
    plain = compare(own, models, keep=tmp_path / "plain", **given)
    assert not plain.slices
    later = compare(own, models, by_column="site", keep=tmp_path / "plain", **given)
    assert later.cached == 0 and later.slices == found.slices


def test_the_command_prints_and_keeps_the_groups(table, tmp_path):
    given = ("--label", "kind", "--models", "logistic,prior", "--folds", 2, "--by-column", "colour")
    result = accepted("compare", table, *given, "--out", tmp_path)
    lines = result.stdout.splitlines()
    at = lines.index("accuracy by colour:")
    assert lines[at + 1].split() == ["colour", "rows", "logistic", "prior"]
    assert lines[at + 2].startswith("all rows")
    assert {line.split()[0] for line in lines[at + 3 : at + 6]} == {"red", "green", "blue"}
    written = (tmp_path / "comparison.md").read_text()
    assert "## accuracy by colour" in written and "| red |" in written


def groups(values, rows=None, **given) -> list[str | None]:
    """The name of each row's group."""
    frame = pd.DataFrame({"x": values, "age": 0})
    rows = np.arange(len(frame)) if rows is None else np.array(rows)
    found = read_slices(FrameRows(frame, mixed=True), "x", rows, **given)
    assert found.codes.dtype == np.int64 and set(found.codes) == set(range(len(found.names)))
    return [found.names[k] for k in found.codes]


def test_categories_and_rows_without_one():
    assert groups(["a", None, "b", " b", ""]) == ["a", "(missing)", "b", "b", "(missing)"]
    assert groups([True, False, True]) == ["True", "False", "True"]
    assert groups([None, None]) == ["(missing)"] * 2


def test_the_most_frequent_come_first_and_the_rarest_are_one_group():
    values = [each for k in range(15) for each in [f"c{k:02}"] * (20 - k)]
    found = groups(values)
    names = list(dict.fromkeys(found))
    assert names == [*(f"c{k:02}" for k in range(MOST - 1)), "(4 rarer values)"]
    assert all(
        name == (value if int(value[1:]) < MOST - 1 else names[-1])
        for name, value in zip(found, values, strict=True)
    )
    assert set(groups(values[: sum(20 - k for k in range(MOST))])) == {f"c{k:02}" for k in range(MOST)}


def test_numbers_in_quarters_of_the_rows_that_count():
    values = [*range(1, 101), np.nan]
    assert dict.fromkeys(groups(values)) == dict.fromkeys(
        ["1 to 25", "26 to 50", "51 to 75", "76 to 100", "(missing)"]
    )
    assert set(groups(values, rows=range(20))) == {"1 to 5", "6 to 10", "11 to 15", "16 to 20"}
    # three quarters of all values are 0, so there are two groups
    assert groups([0.0] * 75 + [*np.arange(1, 26) / 10])[70:80] == ["0"] * 5 + ["0.1 to 2.5"] * 5


def test_few_numbers_are_groups_of_their_own_in_rising_order():
    frame = pd.DataFrame({"x": [3, 1, 2, 1]})
    found = read_slices(FrameRows(frame), "x", np.arange(4))
    assert found.names == ("1", "2", "3") and found.codes.tolist() == [2, 0, 1, 0]
    assert groups([1204501, 1204502, 1999998.25, 1999999.5])[-1] == "1999999.5"
    assert groups([1204501, 1204502])[0] == "1204501"


def test_what_a_model_reads_as_categories_and_values_that_count_as_missing():
    codes = [str(k % 20) for k in range(40)]
    assert set(groups(codes)) == {"0 to 4", "5 to 9", "10 to 14", "15 to 19"}
    assert "19" not in groups(codes, kind="category") and "(9 rarer values)" in groups(codes, kind="category")
    assert groups(["1", "-9", "2"], missing=("-9",)) == ["1", "(missing)", "2"]


def test_what_is_written_otherwise_than_for_the_fit_and_what_cannot_be_read():
    assert set(groups([f"${k},053" for k in range(1, 25)])) >= {"1053 to 6053"}
    assert groups(["1,5", "2,25", "abc"] * 9, kind="number")[:3] == ["1.5", "2.25", "(missing)"]
    assert groups([f"{k}/12/2020" for k in range(1, 25)])[0] == "2020-12-01 to 2020-12-06"


def test_dates_in_quarters():
    days = pd.date_range("2020-01-01", periods=40)
    assert groups(days)[0] == "2020-01-01 to 2020-01-10" and groups(days)[-1] == "2020-01-31 to 2020-02-09"
    assert groups(days[:2] + pd.Timedelta("30min"))[0] == "2020-01-01 00:30:00"
    assert groups(days[:2].time)[0] == "00:00:00"


def test_what_cannot_be_grouped():
    ages = FrameRows(pd.DataFrame({"age": [1]}))
    refuses(r"lacks column 'agee'.*did you mean 'age'", read_slices, ages, "agee", np.arange(1))
    refuses("column 'x' is of type binary, which has no groups; name a column", groups, [b"1", b"2"])

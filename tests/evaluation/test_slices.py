"""Scores of groups of rows: those of the group's rows alone."""

import numpy as np

from usboost.evaluation.task import ALL, TASKS, score_slices, table_of, table_of_models

RNG = np.random.default_rng(0)


def test_classes():
    labels, codes = RNG.integers(0, 2, 200), RNG.integers(0, 3, 200)
    predicted = RNG.dirichlet([1, 1], 200)
    weight = RNG.uniform(0.5, 2, 200)
    task = TASKS["classification"]
    found = score_slices(task, labels, predicted, ["a", "b", "c", "nobody"], codes, weight)
    assert [each.name for each in found] == [ALL, "a", "b", "c"]
    for k, each in enumerate(found[1:]):
        rows = codes == k
        assert each.rows == rows.sum()
        assert each.scores == task.intervals(labels[rows], predicted[rows], weight[rows])
    assert found[0].scores == task.intervals(labels, predicted, weight)


def test_f1_of_several_classes_is_left_out_and_small_groups_say_so():
    labels, predicted = np.arange(90) % 3, RNG.dirichlet([1, 1, 1], 90)
    found = score_slices(
        TASKS["classification"], labels, predicted, ["a", "b"], (np.arange(90) > 9).astype(int)
    )
    table = table_of(found)
    assert list(table["columns"]) == ["rows", "accuracy", "auc", "log_loss"]
    assert [row["cells"]["rows"] for row in table["rows"]] == [("90", ""), ("10", "few"), ("80", "")]
    one = score_slices(TASKS["classification"], labels, predicted, ["class 0"], np.where(labels, -1, 0))[1]
    assert table_of([one])["rows"][0]["cells"]["auc"] == ("–", "")


def test_numbers_of_several_models():
    y, codes = RNG.normal(size=60), np.arange(60) % 2
    models = {name: y + RNG.normal(size=60) for name in ("good", "bad")}
    found = {
        name: score_slices(TASKS["regression"], y, predicted, ["even", "odd"], codes)
        for name, predicted in models.items()
    }
    table = table_of_models(found, "rmse")
    assert list(table["columns"]) == ["rows", "good", "bad"]
    odd = np.sqrt(np.square(models["bad"] - y)[1::2].mean())
    assert table["rows"][2]["name"] == "odd" and table["rows"][2]["cells"]["bad"][0] == f"{odd:.4f}"

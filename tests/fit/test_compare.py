"""Models on the same folds, through the library and the command line, and what is said of them."""

import io
import re
from dataclasses import replace
from time import sleep
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tests.conftest import refuses
from tests.fit.conftest import ROLES, accepted, numbers, run
from usboost.errors import UsboostError
from usboost.evaluation.statistics import corrected_t_test
from usboost.fit.build import by_name
from usboost.fit.compare import Comparison, Pace, Watched, compare
from usboost.fit.compare_results import (
    VERDICT,
    Inputs,
    cells,
    markdown,
    next_steps,
    notes,
    rendered,
    summary,
    titles,
    what_is_read,
)
from usboost.fit.evaluate import folds_of
from usboost.models import catalogue
from usboost.models.base import ViewsClassifier
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table


class Noisy(ViewsClassifier):
    """Knows the sign of the first number and errs at a rate of its own, whatever it is fitted to."""

    def __init__(self, rate=0.0, fails_on=None, random_state=0):
        self.rate, self.fails_on, self.random_state = rate, fails_on, random_state

    def fit(self, X, y, validation=None):
        if self.fails_on == len(y):
            raise UsboostError("it cannot learn these rows; try others")
        if self.fails_on == "bug":
            raise ZeroDivisionError("division by zero\nsecond line")
        self.classes_ = np.unique(y)
        self.best_round_ = 1
        return self

    def predict_proba(self, X):
        truth = X["S"].numeric[:, 0] > 0
        rng = np.random.default_rng([self.random_state, *X["S"].numeric[:3, 0].view(np.uint32)])
        one = np.where(rng.random(len(truth)) < self.rate, ~truth, truth)
        p = np.where(one, 0.9, 0.1)
        return np.column_stack([1 - p, p])


@pytest.fixture(scope="module")
def signs(tmp_path_factory):
    """300 rows whose class is the sign of ``x``."""
    x = np.random.default_rng(0).permutation(np.linspace(-1, 1, 300))
    path = tmp_path_factory.mktemp("signs") / "signs.parquet"
    pd.DataFrame({"x": x, "y": np.where(x > 0, "plus", "minus")}).to_parquet(path)
    return read_table(path, TableSpec(label="y"))


def test_folds_partition_and_keep_shares(signs):
    folds = folds_of(signs, folds=5, repeats=2, seed=3)
    assert len(folds) == 10
    for repeat in (1, 2):
        tests = np.concatenate([fold.test for fold in folds if fold.repeat == repeat])
        assert sorted(tests) == list(range(300))
    for fold in folds:
        assert sorted(np.concatenate([fold.train, fold.val, fold.test])) == list(range(300))
        for rows in (fold.train, fold.val, fold.test):
            assert abs(signs.labels[rows].mean() - 0.5) < 0.05
    assert not np.array_equal(folds[0].test, folds[5].test)


def test_useless_models_stand_out_and_equal_ones_do_not(signs):
    models = {
        "good": lambda seed: Noisy(0.10, random_state=1),
        "as good": lambda seed: Noisy(0.10, random_state=2),
        "useless": lambda seed: Noisy(0.50, random_state=3),
    }
    comparison = compare(signs, models, folds=5, repeats=2)
    standing = {each.model: each for each in comparison.standings()}
    assert comparison.standings()[-1].model == "useless"
    assert not standing["useless"].within_noise
    assert standing["good"].within_noise and standing["as good"].within_noise
    verdicts = {row["model"]: row[VERDICT] for row in cells(comparison)}
    assert verdicts["useless"].startswith("worse (−0.")
    words = sorted(verdict.split(" (")[0] for verdict in verdicts.values())
    assert words == ["best", "not separated by 10 folds", "worse"]


def test_standings_are_the_scores_means_and_the_corrected_test(signs):
    models = {f"m{k}": lambda seed, k=k: Noisy(0.1 + 0.05 * k, random_state=k) for k in range(3)}
    comparison = compare(signs, models, folds=4, by="log_loss")
    best, *others = comparison.standings()
    by_model = dict(iter(comparison.scores.groupby("model")))
    loss = {name: part["log_loss"].to_numpy() for name, part in by_model.items()}
    assert best.mean["log_loss"] == min(part.mean() for part in loss.values())
    p = []
    for other in others:
        differences = loss[other.model] - loss[best.model]
        assert other.difference == pytest.approx(differences.mean())
        assert other.spread["auc"] == pytest.approx(by_model[other.model]["auc"].std(ddof=1))
        assert other.p == pytest.approx(corrected_t_test(differences, 75 / 225)[1])
        p.append(other.p)
    adjusted = [other.p_holm for other in others]
    assert adjusted[int(np.argmin(p))] == pytest.approx(min(1, 2 * min(p)))
    assert max(adjusted) == pytest.approx(max(2 * min(p), max(p)) if max(adjusted) < 1 else 1)


@pytest.mark.parametrize(
    ("by", "own", "lower"),
    [
        ("balanced_accuracy", "balanced_accuracy", False),
        ("average_precision", "pr_auc", False),
        ("roc_auc", "auc", False),
        ("neg_log_loss", "log_loss", True),
        ("neg_brier_score", "brier", True),
    ],
)
def test_models_are_ranked_by_scikit_learns_names(signs, by, own, lower):
    models = {f"m{k}": lambda seed, k=k: Noisy(0.4 - 0.15 * k, random_state=k) for k in range(3)}
    comparison = compare(signs, models, folds=2, by=by)
    means = comparison.scores.groupby("model")[own].mean().sort_values(ascending=lower)
    assert [each.model for each in comparison.standings()] == list(means.index) == ["m2", "m1", "m0"]
    assert comparison.by == own in comparison.metrics
    heads = ["model", *comparison.metrics, "seconds", VERDICT]
    assert list(titles(comparison)) == heads and all(list(row) == heads for row in cells(comparison))
    assert ("and so is PR-AUC" in notes(comparison)[0]) == (own == "pr_auc")


def test_one_that_fails_stops_no_other(signs):
    models = {
        "fine": lambda seed: Noisy(0.2),
        "fails": lambda seed: Noisy(fails_on=204),
        "bug": lambda seed: Noisy(fails_on="bug"),
    }
    told = []
    comparison = compare(signs, models, folds=5, progress=lambda done, total: told.append((done, total)))
    assert comparison.failures == {
        "fails": "it cannot learn these rows; try others",
        "bug": "ZeroDivisionError: division by zero",
    }
    assert [each.model for each in comparison.standings()] == ["fine"]
    assert cells(comparison)[1][VERDICT] == "failed: it cannot learn these rows; try others"
    assert told[-1] == (15, 15)


def test_jobs_change_nothing(signs):
    models = {"a": lambda k: Noisy(0.2, random_state=k), "b": lambda k: Noisy(0.3, random_state=k)}
    one, two = (compare(signs, models, folds=3, repeats=2, jobs=jobs).scores for jobs in (1, 3))
    pd.testing.assert_frame_equal(one.drop(columns="seconds"), two.drop(columns="seconds"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_it_says_what_runs(signs, jobs):
    models = {"a": lambda seed: Noisy(0.2), "b": lambda seed: Noisy(fails_on=204)}
    told = []
    compare(signs, models, folds=5, jobs=jobs, running=told.append)
    assert max(map(len, told)) == jobs and told[-1] == []
    begun = [each for last, now in zip([[], *told], told, strict=False) for each in now if each not in last]
    assert sorted(set(begun)) == sorted(begun)
    assert [f"a on fold {k} of 5" for k in range(1, 6)] == [each for each in begun if each[0] == "a"]
    assert "b on fold 1 of 5" in begun


def test_too_few_rows_of_a_class(signs):
    refuses("class 'minus' of 'y' has 150 rows, too few for 151 folds", folds_of, signs, 151, 1, 0)


def test_markdown_says_what_it_means(signs):
    models = {"a|b": lambda seed: Noisy(0.2), "c": lambda seed: Noisy(0.5)}
    comparison = compare(signs, models, folds=3)
    assert "| a\\|b | 0." in markdown(comparison, "signs")
    said = " ".join(notes(comparison))
    assert "F1 is that of 'plus'" in said
    assert "Nadeau and Bengio" in said and "Holm" in said and "The best of 2" in said


def table_of(comparison, width):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(rendered(comparison, width))
    return console.export_text().rstrip().splitlines()


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (200, ["accuracy", "F1", "AUC", "log-loss", "seconds", "against the best"]),
        (120, ["accuracy", "F1", "AUC", "log-loss", "seconds", "against the best"]),
        (80, ["accuracy", "AUC", "log-loss", "sec.", "against the best"]),
        (55, ["accuracy", "sec.", "against the best"]),
    ],
)
def test_columns_are_chosen_by_the_width(signs, width, columns):
    names = ("linear_trees", "2wl_logistic", "lgbm")
    models = {name: lambda seed, k=k: Noisy(0.2 + k / 50, random_state=k) for k, name in enumerate(names)}
    models["fails"] = lambda seed: Noisy(fails_on="bug")
    comparison = compare(signs, models, folds=3)
    shown = table_of(comparison, width)
    assert re.split(" {2,}", shown[0].strip())[1:] == columns
    every = [list(row.values()) for row in (titles(comparison), *cells(comparison))][:4]
    assert (width == 200) == ([re.split(" {2,}", line.strip()) for line in shown[:4]] == every)
    assert len(shown) == 5 and max(map(len, shown)) <= width  # a line for each model
    assert {line.split()[0] for line in shown[1:4]} == set(names)
    assert shown[1].rstrip().endswith("best") and shown[4].rstrip().endswith("failed")
    assert ("±" in shown[1]) == (width > 55) and "p = " in shown[2]


def test_a_model_that_takes_far_longer_is_told_of_before_it_does():
    told = []
    pace = Pace(9, told.append)
    for name, seconds in {"lgbm": 0.4, "logistic": 0.1, "forest": 1.0}.items():
        pace.ended(name, seconds)
    pace.goes_on("crossed", 0.3, 75.0, 1000)
    assert told == []  # too little of it is known
    pace.goes_on("crossed", 1.3, 75.0, 1000)
    pace.goes_on("crossed", 2.6, 75.0, 1000)
    pace.ended("crossed", 40.0)
    (said,) = told
    for piece in ("crossed", "75 s", "1,000 rounds", "11 min for the 9", "0.4 s", "`models`", "`rounds`"):
        assert piece in said
    pace.ended("svm", 20.0)  # has no rounds: told once a fit of it has ended
    assert told[1].startswith("svm will take about 20 s a fit, 3 min for the 8 still to make; the other")
    pace.ended("quick", 0.2)
    assert len(told) == 2
    watched = Watched("2wl", pace, lambda said: None)
    watched.on_fit_begin(SimpleNamespace(n_rounds=10_000))
    sleep(0.1)  # what is done once, in the first round
    for index in (1, 2):
        watched.on_round(SimpleNamespace(index=index))
    assert len(told) == 2


@pytest.mark.parametrize(
    ("of_each", "fits", "said"),
    [
        (3, [("prior", 0.001), ("lgbm", 0.5), ("crossed", 10.0)], []),  # beside others that take no time
        (5, [("crossed", 30.0)], []),
        (
            5,
            [("crossed", 30.0), ("lgbm", 0.5)],
            ["crossed will take about 30 s a fit, 2 min for the 4 still"],
        ),
    ],
)
def test_a_model_is_judged_when_others_are_known(of_each, fits, said):
    told = []
    pace = Pace(of_each, told.append)
    for name, seconds in fits:
        if name == "crossed":
            pace.goes_on(name, 0.4, 0.6, 100)
        pace.ended(name, seconds)
    assert [each[: len(said[0])] for each in told] == said


def test_rounds_are_shown_while_a_fit_runs(signs):
    told = []
    models = by_name(["2wl", "lgbm"], images=None, rounds=3)
    compare(signs, models, folds=2, running=told.append)
    lines = [each for now in told for each in now]
    assert "2wl on fold 1 of 2, round 2 of 3" in lines and "2wl on fold 2 of 2, round 3 of 3" in lines
    assert any(line.startswith("lgbm on fold 2 of 2, round ") for line in lines)


@pytest.mark.slow
def test_the_command(demo, tmp_path, few_trees):
    models = catalogue.compared(one_table=False)
    given = ("--folds", 2, "--rounds", 2, "--settings", few_trees, "--jobs", 2)
    result = accepted("compare", demo, *ROLES, *given, "--out", tmp_path / "out")
    scores = pd.read_csv(tmp_path / "out" / "comparison.csv")
    assert sorted(scores["model"]) == sorted(models * 2), result.output
    assert scores[["accuracy", "f1", "auc", "log_loss", "seconds"]].notna().all(axis=None)
    assert (scores["rows_train"] + scores["rows_test"] == 120).all()
    text = (tmp_path / "out" / "comparison.md").read_text()
    lines = [line for line in result.stdout.splitlines() if re.search(r"\d ± \d", line)]
    best = scores.groupby("model")["accuracy"].mean().max()
    assert f"{best:.4f}" in lines[0] and lines[0].rstrip().endswith("best")
    for name in models:
        assert any(line.startswith(name) for line in lines) and f"| {name} |" in text


def test_the_next_command_limits_rounds_only_where_the_comparison_did(tmp_path):
    numbers(150).to_parquet(tmp_path / "table.parquet")
    words = ("compare", tmp_path / "table.parquet", "--label", "kind", "--rounds", 3, "--folds", 2)
    for name, limited in (("lgbm", False), ("linear_trees", True)):
        said = " ".join(run(*words, "--models", f"prior,{name}").stdout.split())
        command = said[said.index("usboost fit") :]
        assert f"--model {name}" in command and ("--rounds 3" in command) == limited


@pytest.mark.slow
def test_without_images_and_with_labels_that_mean_nothing(tmp_path):
    frame = numbers(150)
    frame["kind"] = np.random.default_rng(5).permutation(frame["kind"])
    frame.to_parquet(tmp_path / "table.parquet")
    named = (tmp_path / "table.parquet", "--label", "kind")
    result = accepted("compare", *named, "--rounds", 3, "--folds", 3)
    lines = [line for line in result.stdout.splitlines() if re.search(r"\d ± \d", line)]
    assert {line.split()[0] for line in lines} == {*catalogue.compared(one_table=True)}
    assert all("not separated by 3 folds" in line for line in lines[1:])
    fitted = accepted("fit", *named, "--model", "lgbm", "--out", tmp_path / "model")
    assert re.search("within the luck of|it has learnt nothing", fitted.stdout)


def test_a_few_rows_far_off_do_not_hide_what_is_learnt_of_the_others(tmp_path):
    x = np.random.default_rng(0).normal(size=400)
    frame = pd.DataFrame({"x": x, "y": np.where(np.arange(400) % 100 == 7, 1000.0, 5 * x)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    robust = ("--model", "linear_trees", "--set", "loss=absolute", "--rounds", 30, "--out", tmp_path / "m")
    fitted = accepted("fit", tmp_path / "t.csv", "--label", "y", *robust)
    assert re.search(r"MAE \S+ against \S+ of the median alone: \d+% less", fitted.stdout)


def test_rows_are_paired_as_well_as_folds(signs):
    """31 errors against none in five folds, most of them in one: the folds say nothing, the rows do."""
    found = comparison(folds=5, a=0.99, b=0.95)
    wrong = {"a": np.zeros(300, dtype=bool), "b": np.arange(300) < 31}
    value = np.array([1, 1, 1, 1, 1, 1, 1, 1, 1, 31 / 60])
    found = replace(found, scores=found.scores.assign(accuracy=value[[0, 5, 1, 6, 2, 7, 3, 8, 4, 9]]))
    paired = replace(found, wrong=wrong)
    other = paired.standings()[1]
    assert other.within_noise and other.pairs == (31, 0) and other.p_rows == pytest.approx(2**-30)
    (verdict,) = (row[VERDICT] for row in cells(paired) if row["model"] == "b")
    assert verdict.startswith("not separated by 5 folds (−0.")
    assert verdict.endswith("; but 31 rows lost, 0 won)")
    assert "McNemar" in " ".join(notes(paired)) and "McNemar" not in " ".join(notes(found))
    # each of the three pairs might have been the best and another
    wrong["c"] = np.arange(300) < 8
    third = replace(comparison(a=0.99, b=0.95, c=0.98), wrong=wrong).standings()[1]
    assert third.model == "c" and third.p_rows == pytest.approx(1.5 * 2**-7)
    # what `compare` has counted is what the models answer
    models = {f"m{k}": lambda seed, k=k: Noisy(0.1 + 0.2 * k, random_state=k) for k in range(2)}
    made = compare(signs, models, folds=3)
    assert not compare(replace(signs, groups=np.arange(300) // 3), models, folds=3).wrong  # no rows in groups
    for standing in made.standings():
        share = (made.scores.query("model == @standing.model").eval("accuracy * rows_test")).sum() / 300
        assert made.wrong[standing.model].mean() == pytest.approx(1 - share)


COMMANDS = ("usboost fit t.csv --model {} --out model".format, "usboost compare t.csv --repeats 3")
BOTH, COLUMNS, NOTHING = Inputs(4, ("photo",), "frozen embeddings"), Inputs(4), Inputs(0)


def comparison(folds=9, **accuracies) -> Comparison:
    """Scores around these accuracies, with a little noise of their own."""
    rng, rows = np.random.default_rng(0), []
    for fold in range(folds):
        for name, accuracy in accuracies.items():
            value = accuracy + 0.01 * rng.normal()
            row = {"model": name.replace("__", ":"), "repeat": 1, "fold": fold + 1}
            row |= {"rows_train": 200, "rows_test": 100, "accuracy": value, "f1": value, "auc": value}
            rows.append({**row, "log_loss": 1 - value, "seconds": 9.0 if name == "crossed" else 0.1})
    return Comparison(pd.DataFrame(rows), {}, "accuracy", ["a", "b"], len(rows))


def said(found, inputs):
    steps = (f"{words} {command}" for words, command in next_steps(found, *COMMANDS))
    return "\n".join([*summary(found, inputs), *steps])


def test_images_help_and_the_best_is_named():
    found = comparison(crossed=0.95, logistic=0.949, lgbm=0.90, lgbm_s=0.70, prior=0.5)
    inputs = {"crossed": BOTH, "logistic": BOTH, "lgbm": BOTH, "lgbm_s": COLUMNS, "prior": NOTHING}
    text = said(found, inputs)
    best, close = (each.model for each in found.standings()[:2])
    assert {best, close} == {"crossed", "logistic"}
    assert text.startswith(f"{best} is best, accuracy 0.95")
    assert "better than lgbm, lgbm_s and prior" in text
    assert f"Images help: {best}, the best that reads them" in text
    assert "lgbm_s, the best of the columns alone, 0.7" in text
    assert "to tell close models apart: usboost compare t.csv --repeats 3" in text
    assert f"to fit and save {best}: usboost fit t.csv --model {best} --out model" in text
    close = "logistic, accuracy 0.9490, is not separated from the best and fits in 0.1 s, not"
    assert (close in text) == (best == "crossed")


def test_images_that_make_no_difference_and_those_that_do_harm():
    inputs = {"lgbm": BOTH, "lgbm_s": COLUMNS}
    assert "Images: no difference that these folds show" in said(comparison(lgbm=0.8, lgbm_s=0.8), inputs)
    assert "Images do harm" in said(comparison(lgbm=0.7, lgbm_s=0.8), inputs)
    assert "Images" not in said(comparison(lgbm=0.7, forest=0.8), {"lgbm": COLUMNS, "forest": COLUMNS})


def test_what_is_not_shown_to_be_better_than_the_prior():
    text = said(comparison(lgbm=0.5, prior=0.5), {"lgbm": COLUMNS, "prior": NOTHING})
    assert "No model is better by accuracy than prior, which reads nothing" in text and "to fit" not in text
    assert "No model is better" not in said(comparison(prior=0.5), {"prior": NOTHING})  # nothing else ran
    text = said(comparison(crossed=0.51, prior=0.5), {"crossed": COLUMNS, "prior": NOTHING})
    assert "So few folds do not show that crossed is better than prior" in text
    assert "crossed is best" in text and "No model is better" not in text and "level" not in text


def test_another_packages_model_is_not_saved():
    inputs = {"sklearn.svm:SVC": COLUMNS, "lgbm": COLUMNS}
    text = said(comparison(**{"sklearn.svm__SVC": 0.9, "lgbm": 0.8}), inputs)
    assert "to fit and save lgbm, as sklearn.svm:SVC cannot be saved by usboost: usboost fit" in text


def test_one_test_part_is_not_tested():
    found = comparison(folds=1, lgbm=0.9, prior=0.5)
    assert "One test part tells nothing of noise" in said(found, {"lgbm": COLUMNS, "prior": NOTHING})
    assert cells(found)[1][VERDICT].startswith("not tested (−0.4")
    assert cells(found)[0]["accuracy"].count("±") == 0
    assert not any("Nadeau" in line for line in notes(found))


def test_an_interrupted_one_ranks_on_the_folds_of_all():
    whole = comparison(folds=3, lgbm=0.9, forest=0.8, prior=0.5)
    part = Comparison(whole.scores.iloc[:7], {}, "accuracy", ["a", "b"], 9, interrupted=True)
    assert part.parts == 2 and [each.model for each in part.standings()] == ["lgbm", "forest", "prior"]
    first = whole.scores.iloc[:6]
    expected = first[first["model"] == "lgbm"]["accuracy"].mean()
    assert part.standings()[0].mean["accuracy"] == expected
    begun = Comparison(whole.scores.iloc[:2], {}, "accuracy", ["a", "b"], 9, interrupted=True)
    assert [each.model for each in begun.standings()] == ["lgbm", "forest"]
    assert summary(Comparison(whole.scores.iloc[:0], {}, "accuracy", ["a", "b"], 9, True), {}) == []


def test_a_score_that_some_folds_lack_ranks_on_the_others():
    whole = comparison(folds=5, lgbm=0.7, forest=0.9)
    whole.scores.loc[whole.scores["fold"] < 4, "auc"] = np.nan
    found = replace(whole, by="auc")
    assert found.parts == 2 and [each.model for each in found.standings()] == ["forest", "lgbm"]
    assert "over 2 test folds" in notes(found)[0] and "Some folds have no AUC" in notes(found)[0]


def test_a_score_that_no_test_row_has_is_refused(signs):
    part = np.where((signs.labels == 1) & (np.arange(300) % 2 > 0), "test", "train").astype(object)
    part[::10] = "val"
    refuses("no test rows have AUC", compare, replace(signs, split=part), {"m": Noisy}, by="auc")


def test_what_is_read_in_words():
    assert what_is_read(
        {"lgbm": BOTH, "lgbm_s": Inputs(1), "forest": BOTH, "2wl": BOTH, "prior": NOTHING}
    ) == [
        "lgbm, forest and 2wl read 4 columns, images in photo (frozen embeddings).",
        "lgbm_s reads 1 column.",
        "prior reads nothing.",
    ]

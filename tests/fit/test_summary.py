"""What a comparison says in words, of scores that are given."""

from __future__ import annotations

import numpy as np
import pandas as pd

from usboost.fit.compare import Comparison
from usboost.fit.compare_results import VERDICT, Inputs, cells, next_steps, notes, summary, what_is_read

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
    assert "better than lgbm, lgbm_s and prior beyond noise" in text
    assert f"Images help: {best}, the best that reads them" in text
    assert "lgbm_s, the best of the columns alone, 0.7" in text
    assert "to tell close models apart: usboost compare t.csv --repeats 3" in text
    assert f"to fit and save {best}: usboost fit t.csv --model {best} --out model" in text
    assert ("logistic is within noise of the best and fits in 0.1 s instead of 9.0 s" in text) == (
        best == "crossed"
    )


def test_images_that_make_no_difference_and_those_that_do_harm():
    inputs = {"lgbm": BOTH, "lgbm_s": COLUMNS}
    assert "Images: no difference beyond noise" in said(comparison(lgbm=0.8, lgbm_s=0.8), inputs)
    assert "Images do harm" in said(comparison(lgbm=0.7, lgbm_s=0.8), inputs)
    alone = said(comparison(lgbm=0.7, forest=0.8), {"lgbm": COLUMNS, "forest": COLUMNS})
    assert "Images" not in alone


def test_nothing_is_better_than_the_prior():
    text = said(comparison(lgbm=0.5, prior=0.5), {"lgbm": COLUMNS, "prior": NOTHING})
    assert "No model is better by accuracy than prior, which reads nothing" in text


def test_too_few_folds_do_not_show_that_the_best_is_better_than_the_prior():
    text = said(comparison(lgbm=0.51, prior=0.5), {"lgbm": COLUMNS, "prior": NOTHING})
    assert "So few folds do not show that lgbm is better than prior" in text
    assert "lgbm is best" in text and "No model is better" not in text


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


def test_what_is_read_in_words():
    assert what_is_read(
        {"lgbm": BOTH, "lgbm_s": Inputs(1), "forest": BOTH, "2wl": BOTH, "prior": NOTHING}
    ) == [
        "lgbm, forest and 2wl read 4 columns, images in photo (frozen embeddings).",
        "lgbm_s reads 1 column.",
        "prior reads nothing.",
    ]

"""A name that is not known: what was meant, in one way for columns, models, scores, settings and parts."""

from __future__ import annotations

import pytest

from usboost.errors import FEW, MOST, UsboostError, choices, listed
from usboost.evaluation.ranking import check_metric
from usboost.fit.build import build
from usboost.learners.base import LEARNERS
from usboost.models import catalogue
from usboost.models.entry import parsed_settings

MANY = [f"column_{k:03}" for k in range(100)] + ["weight", "Height"]


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("wieght", ["weight", "line"], "it has weight, line; did you mean 'weight'?"),
        ("Y", ["x", " y"], "it has x, ' y'; did you mean ' y'?"),
        ("BATCH", ["batch", "image"], "it has batch, image; did you mean 'batch'?"),
        ("zzz", ["weight", "line"], "it has weight, line"),
        ("zzz", [], "it has none"),
        ("wieght", MANY, "did you mean 'weight'? ALL"),
        ("height ", MANY, "did you mean 'Height'? ALL"),
        ("max_dept", ["learners__S__max_depth", *MANY], "did you mean 'learners__S__max_depth'? ALL"),
    ],
)
def test_what_was_meant(name, known, said):
    assert choices(name, known, "it has", "ALL") == said


def test_long_lists_are_cut_and_short_ones_are_whole():
    assert choices("zzz", MANY, "it has").endswith(f"column_{MOST - 1:03} and {len(MANY) - MOST} more")
    assert choices("a", list("abcdefghijkl")).startswith(
        "choose among a, b, c, d, e, f, g, h, i, j, k, l; did"
    )
    assert FEW == 12


def test_names_whose_blanks_would_hide_are_quoted():
    assert listed(["a", " b", "c d", "e ", ""]) == "a, ' b', c d, 'e ', ''"


def refusal(function, *given, **named):
    with pytest.raises(UsboostError) as raised:
        function(*given, **named)
    return str(raised.value)


def test_models_scores_parts_and_settings():
    assert refusal(catalogue.find, "lgmb") == "unknown model 'lgmb'; did you mean 'lgbm'?"
    assert "did you mean 'crossed'?" in refusal(catalogue.for_table, "Crosed")
    assert refusal(catalogue.for_table, "zzz").startswith("unknown model 'zzz'; choose among baseline, ")
    assert (
        refusal(check_metric, "acuracy") == "unknown score 'acuracy'; choose among accuracy, f1, auc, "
        "log_loss; did you mean 'accuracy'?"
    )
    assert "did you mean 'tree'?" in refusal(lambda: LEARNERS["tre"])


def test_a_setting_is_not_drowned_in_all_of_them():
    def of(*given):
        return refusal(build, "linear_trees", images=None, settings=parsed_settings(given))

    assert of("shrinkag=0.1").startswith(
        "linear_trees has no setting 'shrinkag'; did you mean 'shrinkage'? `get_params()` lists all "
    )
    assert "did you mean 'learners__S__max_depth'?" in of("max_depth=3")
    assert of("list").startswith("linear_trees has the settings loss, monitor, ")

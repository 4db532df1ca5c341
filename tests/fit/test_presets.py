"""Models by their aim, and what the commands say of an ensemble's members."""

import html
import re

import pandas as pd
import pytest

from tests.conftest import refuses
from tests.fit.conftest import accepted, labelled, numbers, refused, table_of
from usboost import MultimodalClassifier
from usboost.boosting.callbacks import Callback, TimeLimit
from usboost.fit import build, bundle
from usboost.models import catalogue


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("presets") / "t.parquet"
    numbers(150, classes=3).to_parquet(path)
    return path


@pytest.mark.slow
def test_fit_and_report_show_the_members(table, tmp_path):
    out = tmp_path / "model"
    options = ("--label", "kind", "--rounds", 5, "--set", "members__forest__n_trees=20", "--out", out)
    done = accepted("fit", table, *options)
    model, card = bundle.load(out).model, bundle.load(out).card
    assert card.model == "average"
    assert set(model.members_) == {"linear_trees", "crossed", "forest"}
    accepted("report", out, table, "--out", tmp_path / "r.html")
    page = html.unescape(re.sub("<[^>]+>", " ", (tmp_path / "r.html").read_text()))
    for name, member in model.members_.items():
        if member.left_out:  # by the first fold
            assert f"{name} is left out: {member.left_out}." in page
            continue
        assert re.search(
            rf"{name} +{member.weight:.2f} +{member.loss:.4f} ".replace("0.00", "(0.00|–)"), done.stdout
        )
        assert re.search(rf"{name}\s+\S+\s+{member.loss:.4f}", page)
    assert f"{model.blend_loss_:.4f}" in done.stdout and f"{model.blend_loss_:.4f}" in page
    assert "best round" not in done.stdout
    history = pd.DataFrame(card.history)  # the forest has none
    assert set(history["member"]) == {"linear_trees", "crossed"} and history.notna().all(axis=None)
    for name, fit in model.boosted().items():
        assert {0, *history.loc[history["member"] == name, "round"]} >= {fit.best_round_}
        curve = (tmp_path / "r.html").read_text().partition(f"each round of the fit of {name}")[2]
        assert f"round {fit.best_round_}, which is kept" in curve.partition("</p>")[0]


def test_what_cannot_be_asked_for(table, tmp_path):
    fit = ("fit", table, "--label", "kind", "--out", tmp_path / "m")
    both = refused(*fit, "--model", "lgbm", "--preset", "best")
    assert both == "the model lgbm and the preset best are given; leave one of them out"
    refuses("unknown preset 'slow'; choose among fast, best", catalogue.resolve_model, None, "slow")


def test_the_estimator_knows_them_too(table):
    x, y = labelled(150, classes=3)
    model = MultimodalClassifier(preset="best", rounds=3, time_limit=0.0).fit(x, y)
    assert model.bundle_.card.model == "best" and model.bundle_.model.n_estimators_ == 1
    own = MultimodalClassifier(rounds=3, refit=False).fit(x, y)
    assert own.bundle_.card.model == catalogue.DEFAULT
    assert catalogue.resolve_model(None, None, limited=True, images=False) == "best"


def test_the_fast_model_follows_the_table():
    chosen, fast = catalogue.resolve_model, catalogue.PRESETS["fast"]
    assert chosen(None, None) == chosen(None, None, images=False) == catalogue.DEFAULT
    assert chosen(None, "fast") == chosen(None, "fast", images=False, task="regression") == fast
    assert chosen(None, "fast", images=False) == catalogue.FAST_ALONE
    assert chosen("lgbm", None, images=False) == "lgbm"
    assert chosen(None, "best", images=False) == "best"


class Ended(Callback):
    """A limit of time that three rounds reach."""

    rounds = 0

    def on_round(self, round_):
        self.rounds += 1
        return self.rounds >= 3

    def time_left(self):
        return 3.0 - self.rounds


def test_a_limit_that_ended_the_first_fit_does_not_end_the_one_to_all_rows():
    model = MultimodalClassifier("lgbm", refit=True, callbacks=[Ended()]).fit(*labelled(150))
    assert model.best_round_ == 3 and model.bundle_.model.n_estimators_ == 3


def test_a_blend_is_fitted_to_all_rows_where_that_is_asked_for():
    x, y = labelled(150)
    for refit, val in ((None, 22), (True, 0)):
        model = MultimodalClassifier("best", rounds=3, refit=refit, callbacks=[TimeLimit(0.0)]).fit(x, y)
        assert model.bundle_.card.rows["val"] == val


class AsksAt(Callback):
    """Asks to stop at the third round of one of the fits, counted from 1, as Ctrl-C does."""

    def __init__(self, fit, left=float("inf")):
        self.fit, self.fits, self.left = fit, 0, left

    def on_fit_begin(self, fit):
        self.fits += 1

    def on_round(self, round_):
        return self.fits == self.fit and round_.index == 3

    def time_left(self):
        return self.left


@pytest.mark.parametrize(
    ("callback", "fits"), [(AsksAt(1), 1), (AsksAt(2), 2), (AsksAt(9, left=0.0), 1), (AsksAt(9), 2)]
)
def test_the_first_fit_is_kept_where_one_is_cut_short_or_there_is_no_time(callback, fits):
    model = MultimodalClassifier("lgbm", rounds=12, callbacks=[callback]).fit(*labelled(150))
    kept = fits == 2 and callback.fit > 2
    assert callback.fits == fits
    assert model.bundle_.card.rows == ({"train": 150, "val": 0} if kept else {"train": 128, "val": 22})
    assert model.bundle_.model.best_round_ == model.best_round_


def test_models_and_blends_are_fitted_to_all_rows_unless_told_otherwise():
    few, own = {"lgbm": {}, "average": {"members__forest__n_trees": 20}}, table_of(150)
    rows = {
        (name, refit): build.fit(own, name, rounds=2, refit=refit, settings=few[name]).bundle.card.rows["val"]
        for name in few
        for refit in (None, True, False)
    }
    held = rows["lgbm", False]
    assert held > 0 and rows == {(name, refit): held * (refit is False) for name, refit in rows}

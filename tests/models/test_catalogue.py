"""The catalogue: every entry builds from both sides, and nobody else knows a model by its name."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from tasks import settings
from tasks.fits import models as from_params
from tests.conftest import refuses
from usboost import BoostedNetworkRegressor, RidgeBaseline
from usboost.boosting.checkpoint import described
from usboost.fit.build import OneComputer
from usboost.fit.options import ImageOptions
from usboost.models import build as builders
from usboost.models import catalogue
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.catalogue import model_colour
from usboost.models.entry import KINDS
from usboost.report import figures

ROOT = Path(__file__).parents[2]
PARAMS = settings.load(ROOT / "params.yaml")
SIDES = {
    "params.yaml": from_params.FromParams("ct", PARAMS),
    "one computer, images": OneComputer(ImageOptions()),
    "one computer, a table": OneComputer(None),
    "the classes' own": None,
}
FOR = {"classification": ViewsClassifier, "regression": (ViewsRegressor, BoostedNetworkRegressor)}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("name", "task"), [(n, task) for n, e in catalogue.CATALOGUE.items() for task in e.tasks]
)
def test_every_entry_builds_from_both_sides(name: str, task: str, side: str) -> None:
    entry = catalogue.find(name)
    model = builders.build(entry, SIDES[side], 3, task)
    assert isinstance(model, FOR[task])
    assert described(clone(model)) == described(model)
    assert model.get_params()["random_state"] == 3
    if entry.kind == "boosting":
        assert len(model.learners) == len(entry.learners)
        both = ("shrinkage", "sequential", "step_fraction")
        for key in both if task == "regression" else (*both, "target", "loss"):
            if key in entry.changes:
                assert model.get_params()[key] == entry.changes[key]


def test_a_regression_has_its_own_losses_and_steps() -> None:
    entry = catalogue.find("crossed").changed("mine", {"loss": "quantile", "quantile": 0.9, "monitor": "mae"})
    mine = builders.build(entry, seed=1, task="regression")
    assert (mine.loss, mine.quantile, mine.monitor, mine.step) == ("quantile", 0.9, "mae_val", "closed")
    plain = builders.build("crossed", task="regression")
    assert (plain.loss, plain.monitor, plain.step) == ("squared", "risk_val", "closed")
    start = builders.build("linear_trees", task="regression").start
    assert isinstance(start, RidgeBaseline) and start.views == ("U", "S")


def test_a_model_for_one_task_is_refused_for_the_other() -> None:
    refuses(r"ridge.* for classification.* for regression", builders.build, "ridge")
    refuses(r"logistic.* for regression.* among baseline", catalogue.for_table, "logistic", "regression")
    offered = catalogue.OFFERED_FOR["regression"]
    assert "ridge" in offered and "logistic" not in offered and "ridge" not in catalogue.OFFERED
    compared = set(catalogue.compared(True, "regression"))
    assert {"crossed", "linear_trees", "lgbm", "ridge"} <= compared <= {*offered}


def test_every_entry_has_its_title_and_its_kind() -> None:
    titles = [entry.title for entry in catalogue.CATALOGUE.values()]
    assert len(set(titles)) == len(titles) and all(titles)
    assert all(entry.about and entry.kind in KINDS for entry in catalogue.CATALOGUE.values())
    assert set(builders.BUILDERS) <= set(KINDS)
    assert {entry.same_without_images for entry in catalogue.CATALOGUE.values()} - {None} <= set(
        catalogue.CATALOGUE
    )
    for entry in catalogue.CATALOGUE.values():
        assert set(entry.changes) <= set(KINDS[entry.kind].settings)
    assert {spec.kind for e in catalogue.CATALOGUE.values() for spec in e.learners.values()} <= {
        *builders.LEARNERS
    }
    assert (catalogue.title("bfv_dnn"), catalogue.title("gbm"), catalogue.title("mine")) == (
        "BFV+DNN",
        "GBM alone",
        "mine",
    )


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    for refuse in (catalogue.find, catalogue.for_table, builders.build):
        refuses(r"'9wl'.*'3wl' or '2wl'", refuse, "9wl")
    refuses(r"earlyboost.* choose among", catalogue.for_table, "earlyboost")
    assert "earlyboost" not in catalogue.OFFERED


def test_the_order_of_tables_and_the_parts_in_them() -> None:
    names = ["zeta", "gbm", "2wl", "eta", "baseline", "zeta"]
    assert catalogue.ordered(names) == ["baseline", "gbm", "2wl", "zeta", "eta"]
    assert catalogue.with_parts(["2wl", "bfv_dnn", "zeta"]) == ["2wl", "bfv_dnn", "gbm", "zeta"]
    whole = catalogue.model_with_part("gbm")
    assert whole is not None and whole.name == "bfv_dnn" and catalogue.model_with_part("bfv_dnn") is None


def test_where_both_views_are_one_table_nothing_is_read_twice() -> None:
    table, images = SIDES["one computer, a table"], SIDES["one computer, images"]
    assert list(builders.build("crossed", table).learners) == ["U", "S"]
    assert builders.build("crossed", table).learners["U"].batches_per_round == (10, 200)
    assert builders.build("crossed", images).learners["U"].batches_per_round == (50, 200)
    assert builders.build("crossed", table).learners["S"].category_l2 == 300
    assert builders.build("crossed", table).step_settings == {"limit": 2.0}
    assert builders.build("crossed", images).learners["S"].category_l2 == 30
    chosen = catalogue.find("crossed").changed("crossed", {}, {"U": {"batches_per_round": [30, 40]}})
    assert builders.build(chosen, table).learners["U"].batches_per_round == (30, 40)
    assert builders.build("lgbm", table).views == ("S",)
    assert builders.build("lgbm", images).views == ("U", "S")


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_images_are_measured_against_the_best_of_the_columns_alone(task: str) -> None:
    """Boosted trees, a linear model, and the default's own kind; without images each is another entry."""
    linear = "logistic" if task == "classification" else "ridge"
    both, alone = (set(catalogue.compared(one_table, task)) for one_table in (False, True))
    assert both - alone == {"lgbm_s", f"{linear}_s", "linear_trees_s"} <= set(catalogue.WITHOUT_IMAGES)
    assert alone < both
    images, table = SIDES["one computer, images"], SIDES["one computer, a table"]
    for name in both - alone:
        model = builders.build(name, images, task=task)
        start = getattr(model, "start", None)
        assert (model.start if start else model).views == ("S",) and not getattr(model, "optional", ())
        same = builders.build(catalogue.find(name).same_without_images, table, task=task)
        assert repr(builders.build(name, table, task=task)) == repr(same)


def test_changes_of_an_entry() -> None:
    entry = catalogue.find("crossed")
    mine = entry.changed("mine", {"shrinkage": 0.2}, {"S": {"max_leaves": 7}, "T": {"kind": "tree"}})
    assert (mine.name, mine.title, mine.kind) == ("mine", "mine", "boosting")
    assert mine.changes == {**entry.changes, "shrinkage": 0.2}
    assert list(mine.learners) == ["U", "S", "T"]
    assert mine.learners["S"].reads == ("S", "U")
    assert mine.learners["S"].parameters == {**entry.learners["S"].parameters, "max_leaves": 7}
    other = entry.changed("mine", {}, {"S": {"kind": "network", "hidden": [4]}}).learners["S"]
    assert (other.reads, other.parameters) == (("S", "U"), {"hidden": (4,)})
    own = catalogue.find("2wl").changed("2wl", {"shrinkage": 0.2})
    assert (own.title, own.line) == ("2WL", catalogue.find("2wl").line)


def test_names_and_titles_import_nothing_heavy() -> None:
    code = (
        "import sys; from usboost.models import catalogue; catalogue.title('2wl'); "
        "print([n for n in ('numpy', 'torch', 'sklearn', 'pandas', 'lightgbm', 'scipy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def compared_names(source: str) -> set[str]:
    """The models whose name decides: compared, looked up in a list, or asked for its beginning."""
    text = source.replace("'", '"').replace('"best" in one', "")  # a column of a trace, not the model
    lists = re.findall(r"\b(?:in|==|!=) [(\[{]([^)\]}]*)", text)
    alone = re.findall(r'"(\w+)" (?:not )?(?:in|==|!=) |(?:==|!=|case) "(\w+)"', text)
    words = {word for each in lists for word in re.findall(r'"(\w+)"', each)} | {
        w for pair in alone for w in pair
    }
    starts = [
        w
        for each in re.findall(r"(?:startswith|removeprefix)\(([^)]*)", text)
        for w in re.findall(r'"(\w\w+)"', each)
    ]
    return words & set(catalogue.CATALOGUE) | {
        w for w in starts if any(n.startswith(w) for n in catalogue.CATALOGUE)
    }


@pytest.mark.parametrize("top", ["usboost", "tasks", "flows", "benchmarks"])
def test_nobody_else_compares_a_models_name(top: str) -> None:
    found = {
        str(path.relative_to(ROOT)): places
        for path in (ROOT / top).rglob("*.py")
        if path.name != "catalogue.py" and (places := compared_names(path.read_text()))
    }
    assert found == {}
    for page in (ROOT / top).rglob("*.j2"):
        asked = re.findall(r"""["'](\w+)["'] (?:in|==|!=)|(?:==|!=) ["'](\w+)["']""", page.read_text())
        assert not {name for pair in asked for name in pair} & set(catalogue.CATALOGUE), page


def test_such_comparisons_are_found() -> None:
    for line in (
        'model == "bfv_dnn"',
        'name in ("lgbm", "x")',
        'name.startswith("lgbm")',
        'm.startswith(("1wl", "2wl"))',
        '"bfv_dnn" in fits.models',
    ):
        assert compared_names(line), line
    assert compared_names('name.startswith("/") or name == catalogue.BASELINE or kind == "network"') == set()


def test_colours_are_told_apart() -> None:
    colours = {name: model_colour(name) for name in catalogue.CATALOGUE}
    parts = {
        name: np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
        for name, colour in colours.items()
        if colour
    }
    assert set(parts) == set(catalogue.CATALOGUE)
    near = [
        pair
        for pair in itertools.combinations(parts, 2)
        if np.linalg.norm(parts[pair[0]] - parts[pair[1]]) < 30
    ]
    assert not near
    assert model_colour("somebodys.own.Model") is None


def test_the_first_of_a_colour_has_that_of_its_line_in_the_report() -> None:
    frame = pd.DataFrame({"seed": 0, "round": [1, 2], "seconds": [0.1, 0.2], "f1_val": [0.5, 0.6]})
    trace = frame.assign(**dict.fromkeys(("risk_train", "risk_val", "epsilon", "delta"), 0.5))
    for model in ("2wl", "2wl2o", "lgbm", "prior"):
        figure = figures.performance({model: trace}, "a table")
        assert model_colour(model) in {str(line.get_color()) for line in figure.axes[0].lines}

"""Other packages as members of an ensemble, by a stand-in that learns when it predicts."""

import sys
from importlib import import_module

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine

from tests.conftest import refuses, reloaded
from tests.tables import one
from usboost.cli.options import OUTSIDE
from usboost.errors import Unsuited
from usboost.models import build as builders
from usboost.models import persistence
from usboost.models.baselines.packages import (
    PACKAGES,
    PackageClassifier,
    PackageRegressor,
    PriorBaseline,
    check_outside,
    installed,
    outside,
)
from usboost.models.baselines.wrapper import Package
from usboost.models.build import Parts
from usboost.models.methods.ensemble import EnsembleClassifier

STAND_IN = """
import numpy as np
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor


class TabICLClassifier(KNeighborsClassifier):
    def __init__(self, random_state=None, n_jobs=None):
        super().__init__(n_jobs=n_jobs)
        self.random_state = random_state


class TabICLRegressor(KNeighborsRegressor):
    def __init__(self, random_state=None, n_jobs=None):
        super().__init__(n_jobs=n_jobs)
        self.random_state = random_state
"""


MEANS = """
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin


class Mean(RegressorMixin, BaseEstimator):
    def __init__(self, shift=0.0):
        self.shift = shift

    def fit(self, x, y):
        self.mean_ = y.mean() + self.shift
        return self

    def predict(self, x):
        return np.full(len(x), self.mean_)

    def save_model(self, path):
        open(path, "w").write(f"{self.mean_ - self.shift} {self.shift}")

    def load_model(self, path):
        self.mean_ = sum(map(float, open(path).read().split()))
"""


@pytest.fixture
def tabicl(tmp_path, monkeypatch):
    (tmp_path / "tabicl.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tabicl", raising=False)
    yield
    sys.modules.pop("tabicl", None)


def test_its_file_is_its_training_rows(tabicl, tmp_path, monkeypatch):
    assert "tabicl" in installed()
    for load, cls in ((load_wine, PackageClassifier), (load_diabetes, PackageRegressor)):
        x, y = load(return_X_y=True)
        held = one(x[:20]), y[:20]
        model = cls("tabicl", ("S",), random_state=3).fit(one(x[20:]), y[20:], held)
        assert model.estimator_.random_state == 3 and len(model.rows_[0]) == len(x) - 20
        again = reloaded(model, tmp_path / "m")
        np.testing.assert_array_equal(again.predict(one(x)), model.predict(one(x)))
    monkeypatch.setattr("usboost.models.baselines.packages.find_spec", lambda name: None)
    refuses("`pip install tabicl`", persistence.load, tmp_path / "m")


def test_a_member_of_the_best_where_it_is_installed(tabicl, monkeypatch):
    monkeypatch.setattr("usboost.models.build.installed", lambda: ["tabicl"])
    model = builders.build("best", Parts(), 4)
    assert model.members["tabicl"].package == "tabicl" and list(model.members)[-1] == "tabicl"
    x, y = load_wine(return_X_y=True)
    two = {"prior": PriorBaseline(), "tabicl": PackageClassifier("tabicl", ("S",))}
    fitted = EnsembleClassifier(two, folds=3).fit(one(x), y)
    assert fitted.members_["tabicl"].fits == 3 and "tabicl" in fitted.weights_
    # it is judged by rows that it has not learnt from: a neighbour of itself would be certain
    rng = np.random.default_rng(0)
    noise = EnsembleClassifier(two, folds=3).fit(one(rng.normal(size=(200, 3))), rng.integers(0, 2, 200))
    assert noise.weights_ == {"prior": 1.0}


def test_a_member_that_rows_do_not_suit_is_left_out(tabicl, monkeypatch):
    x, y = load_wine(return_X_y=True)
    monkeypatch.setitem(PACKAGES, "tabicl", Package(PACKAGES["tabicl"].classes, n_classes=2))
    alone = PackageClassifier("tabicl", ("S",))
    with pytest.raises(Unsuited, match="tabicl takes up to 2 classes here, not 3"):
        alone.fit(one(x), y)
    fitted = EnsembleClassifier({"tabicl": alone, "prior": PriorBaseline()}, folds=3).fit(one(x), y)
    assert fitted.weights_ == {"prior": 1.0} and "2 classes" in fitted.members_["tabicl"].left_out
    refuses("takes up to 2 classes", EnsembleClassifier({"tabicl": alone}, folds=3).fit, one(x), y)
    monkeypatch.setattr(import_module("tabicl").TabICLClassifier, "fit", lambda self, x, y: 1 / 0)
    monkeypatch.setitem(PACKAGES, "tabicl", Package(PACKAGES["tabicl"].classes))
    with pytest.raises(Unsuited, match="tabicl: division by zero"):
        alone.fit(one(x), y)


def test_a_package_more_is_one_entry(tmp_path, monkeypatch):
    (tmp_path / "means.py").write_text(MEANS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "means", raising=False)
    entry = Package({"regression": "means:Mean"}, lambda threads, seed: {"shift": 2.0}, file="means.json")
    monkeypatch.setitem(PACKAGES, "means", entry)
    x, y = load_diabetes(return_X_y=True)
    check_outside("means", "regression")
    outside("means", "regression", views=("S",)).fit(one(x), y)
    model = PackageRegressor("means", ("S",)).fit(one(x), y)
    np.testing.assert_allclose(model.predict(one(x)), y.mean() + 2 * y.std())
    persistence.save(model, tmp_path / "m")
    assert (tmp_path / "m" / "means.json").read_text().endswith("2.0")
    np.testing.assert_array_equal(persistence.load(tmp_path / "m").predict(one(x)), model.predict(one(x)))


def test_the_command_line_names_the_packages_of_the_table():
    assert tuple(PACKAGES) == OUTSIDE

"""What MLflow is given of models whose views have names that it would refuse as keys."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest
from mlflow.tracking import MlflowClient

from tasks import tracking
from tests.conftest import make_views
from usboost.data.views import Views
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.trees.learner import TreeLearner
from usboost.models.two_weak_learner import TwoWeakLearnerClassifier

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path):
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    yield
    mlflow.set_tracking_uri(before)


def test_views_may_be_called_anything(store):
    views, y = make_views(n=200)
    views = Views({"naïve (left)": views["U"], "S": views["S"], "U": views["U"]})
    learners = {
        "naïve (left)": NetworkLearner((4,), device="cpu"),
        "U+S": NetworkLearner((4,), device="cpu", reads=("U", "S")),
        "S+U": TreeLearner(reads=("S", "U")),
    }
    with tracking.tracked_run("names", "fit", {}) as run_id:
        fitted = TwoWeakLearnerClassifier(learners, n_rounds=3, patience=None)
        tracking.log_estimator(run_id, fitted, dataset="none", model="3wl", seed=0)
        fitted.set_params(callbacks=[tracking.MLflowCallback(run_id)])
        fitted.fit(views, y)
    run = MlflowClient().get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["learner_S-U.max_depth"] == "3"
    assert {"step_U-S", "step_S-U", "step_naïve -left-"} <= set(run.data.metrics)
    assert run.data.metrics["step_S-U"] == fitted.history_[-1]["step_S+U"]

"""What made a number of the report: the MLflow run of its fit, and what that says of where it comes from."""

from __future__ import annotations

from typing import Any

from mlflow.tracking import MlflowClient

from tasks.retry import retry


def made_by(run_id: str) -> dict[str, Any]:
    """A fit's MLflow run, Prefect flow run, DVC stage and the digests of its inputs, as a record keeps it."""
    run = retry("the run", lambda: MlflowClient().get_run(run_id))
    tags = run.data.tags
    return {
        "mlflow_run": run.info.run_id,
        "mlflow_experiment": run.info.experiment_id,
        "prefect_flow_run": tags.get("prefect.flow_run_id"),
        "stage": tags.get("stage"),
        "inputs": {
            name.removeprefix("input."): digest
            for name, digest in sorted(tags.items())
            if name.startswith("input.")
        },
    }

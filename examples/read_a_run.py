"""Runs of the pipeline, read back from MLflow: scores, rounds, a model.

`make run` leaves a store with a run for each fit. It is read where it lies, without a server:
`python examples/read_a_run.py`, or with the address of another store, and a dataset.
"""

import sys

import mlflow
from mlflow.tracking import MlflowClient

from usboost import MultimodalClassifier

given = dict(enumerate(sys.argv))
address, dataset = given.get(1, "sqlite:///.usboost/mlflow.db"), given.get(2, "ct")
mlflow.set_tracking_uri(address)
runs = mlflow.search_runs(
    search_all_experiments=True,
    filter_string=f"params.dataset = '{dataset}' and attributes.status = 'FINISHED'",
    order_by=["metrics.`val/log_loss`"],
    output_format="list",
)
if not runs:
    sys.exit(f"{address} has no finished fit of {dataset}; `make run` makes some")

print("log-loss val   test")
for run in runs:
    scores = run.data.metrics
    print(f"       {scores['val/log_loss']:.3f}  {scores['test/log_loss']:.3f}  {run.info.run_name}")

# Rounds of 2WL: the risk, the steps epsilon along the network and delta along the tree.
boosted = next(run.info.run_id for run in runs if run.data.params["model"] == "2wl")
curves = [MlflowClient().get_metric_history(boosted, f) for f in ("risk/train", "step/epsilon", "step/delta")]
for risk, epsilon, delta in list(zip(*curves))[:5]:
    print(f"round {risk.step}: risk {risk.value:.3f}, steps {epsilon.value:.3f} and {delta.value:.3f}")

# The best model as MLflow serves it: raw rows in, as numbers, text and files of images; answers out.
best = f"models:/{runs[0].outputs.model_outputs[0].model_id}"
served = mlflow.pyfunc.load_model(best)
print(served.predict(served.metadata.load_input_example()).round(2).to_string(index=False))

# And as usboost has it: the folder that `usboost fit` writes is in it.
model = MultimodalClassifier.load(f"{mlflow.artifacts.download_artifacts(best)}/artifacts/bundle")
print(f"{model.model} reads", *model.feature_names_in_[:3], "… and answers", *model.classes_)

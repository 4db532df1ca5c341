"""Give the best fit of a dataset the registry's alias `champion`, if it beats the model that has it."""

from typing import Literal

from flows.flow import Dataset, Model, command, flow
from flows.local import runtime
from tasks import flow_page as page
from tasks import registered_models
from tasks import settings as params

Metric = Literal["auto", "f1", "accuracy", "auc", "log_loss", "roc_auc", "neg_log_loss", "rmse", "mae", "r2"]


@flow(name="promote", flow_run_name="promote-{dataset}")
def promote(dataset: Dataset, model: Model | None = None, metric: Metric = "auto") -> str:
    """Register the best fit under the alias `champion` if it beats the one that has it; return its URI.

    Args:
        dataset: prepared dataset, e.g. ci_a
        model: only fits of this model, e.g. 2wl; empty: all models
        metric: what decides, on the validation split; auto: F1, or RMSE where a number is predicted
    """
    if model:
        params.load().model(model)
    promoted, reason = registered_models.promote(dataset, model or "", metric)
    uri = f"models:/{registered_models.registered_name(dataset)}@{registered_models.ALIAS}"
    print(reason)
    page.log(reason)
    if version := registered_models.champion(dataset):
        page.link_version(version, reason)
    if promoted:
        page.emit("usboost.promoted", dataset, {"dataset": dataset, "model": uri, "reason": reason})
    return runtime.finished(uri)


app = command(__name__, promote, print)

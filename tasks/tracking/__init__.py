"""MLflow: one run per dataset × model × seed, rounds in batches, every weak learner, the model."""

from tasks.tracking.description import (
    datasets,
    described,
    digest,
    key_of,
    lineage,
    log_datasets,
    made_by,
    scores,
)
from tasks.tracking.logged_model import describe_version, log_model, requirements, signature
from tasks.tracking.patience import retry
from tasks.tracking.rounds import MLflowCallback, history_frame, log_folds, log_numbers
from tasks.tracking.runs import (
    Superseded,
    experiment_id,
    kept_run,
    log_estimator,
    log_parameters,
    log_scores,
    once,
    supersede_kept,
    tracked_run,
)
from tasks.tracking.tabs import CURVES, first_page

__all__ = [
    "CURVES",
    "MLflowCallback",
    "Superseded",
    "datasets",
    "describe_version",
    "described",
    "digest",
    "experiment_id",
    "first_page",
    "history_frame",
    "kept_run",
    "key_of",
    "lineage",
    "log_datasets",
    "log_estimator",
    "log_folds",
    "log_model",
    "log_numbers",
    "log_parameters",
    "log_scores",
    "made_by",
    "once",
    "requirements",
    "retry",
    "scores",
    "signature",
    "supersede_kept",
    "tracked_run",
]

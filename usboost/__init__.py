"""Boosting and deep learning together, for tables with images.

Everything below can be imported from here, ``from usboost import TwoWeakLearnerClassifier``; a part is
loaded when it is first asked for, so ``import usboost`` itself loads nothing.

Models of a DataFrame, with columns of any kind and images among them
    `MultimodalClassifier`, `MultimodalRegressor`
Models: scikit-learn estimators on `Views`
    `TwoWeakLearnerClassifier` (2WL, 2WL2O), `BoostedFeatureNetworkClassifier` (BFV+DNN),
    `TwoBranchNetworkClassifier`, `LightGBMBaseline`; for numbers `TwoWeakLearnerRegressor`,
    `BoostedFeatureNetworkRegressor`, `TwoBranchNetworkRegressor`, `LightGBMBaselineRegressor`,
    `RidgeBaseline`
Models on a matrix or a DataFrame
    `BoostedNetworkClassifier`, `BoostedNetworkRegressor` (BNN), `SplitColumns` and
    `SplitColumnsRegressor` (a model on views as one on a matrix)
Models on sequences
    `EarlyBoostClassifier`, `EarlyTrigger` (answers as soon as it is confident)
Data
    `Views` (views of the same samples, by name), `Table`, `Images`, `Sequences`
Parts of models
    `NetworkLearner`, `RidgeLearner`, `TreeLearner` (weak learners), `Backbone` (how a network reads
    images), `BoostedFeatures` (leaf values of a GBM)
While a model is fitted
    `fit_sharded` (one fit on rows that several processes and machines hold parts of),
    `Callback`, `EarlyStopping`, `Checkpoint` (from which a killed fit resumes)
Files
    `save`, `load`
Mistakes
    `UsboostError`, the one exception; `UsboostWarning`, the one warning
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usboost.boosting.callbacks import Callback as Callback
    from usboost.boosting.callbacks import EarlyStopping as EarlyStopping
    from usboost.boosting.checkpoint import Checkpoint as Checkpoint
    from usboost.data.images import Images as Images
    from usboost.data.table import Table as Table
    from usboost.data.views import Sequences as Sequences
    from usboost.data.views import Views as Views
    from usboost.errors import UsboostError as UsboostError
    from usboost.errors import UsboostWarning as UsboostWarning
    from usboost.fit.estimator import MultimodalClassifier as MultimodalClassifier
    from usboost.fit.estimator import MultimodalRegressor as MultimodalRegressor
    from usboost.learners.networks.backbones import Backbone as Backbone
    from usboost.learners.networks.learner import NetworkLearner as NetworkLearner
    from usboost.learners.ridge import RidgeLearner as RidgeLearner
    from usboost.learners.tree_learner import TreeLearner as TreeLearner
    from usboost.models.baselines.linear import RidgeBaseline as RidgeBaseline
    from usboost.models.baselines.trees import LightGBMBaseline as LightGBMBaseline
    from usboost.models.baselines.trees import LightGBMBaselineRegressor as LightGBMBaselineRegressor
    from usboost.models.methods.bfv_network import (
        BoostedFeatureNetworkClassifier as BoostedFeatureNetworkClassifier,
    )
    from usboost.models.methods.bfv_network import (
        BoostedFeatureNetworkRegressor as BoostedFeatureNetworkRegressor,
    )
    from usboost.models.methods.boosted_features import BoostedFeatures as BoostedFeatures
    from usboost.models.methods.boosted_network import BoostedNetworkClassifier as BoostedNetworkClassifier
    from usboost.models.methods.boosted_network import BoostedNetworkRegressor as BoostedNetworkRegressor
    from usboost.models.methods.early_trigger import EarlyTrigger as EarlyTrigger
    from usboost.models.methods.earlyboost import EarlyBoostClassifier as EarlyBoostClassifier
    from usboost.models.methods.two_branch import TwoBranchNetworkClassifier as TwoBranchNetworkClassifier
    from usboost.models.methods.two_branch import TwoBranchNetworkRegressor as TwoBranchNetworkRegressor
    from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier as TwoWeakLearnerClassifier
    from usboost.models.methods.two_weak_learner import TwoWeakLearnerRegressor as TwoWeakLearnerRegressor
    from usboost.models.persistence import load as load
    from usboost.models.persistence import save as save
    from usboost.models.sharded import fit_sharded as fit_sharded
    from usboost.models.split_columns import SplitColumns as SplitColumns
    from usboost.models.split_columns import SplitColumnsRegressor as SplitColumnsRegressor

__version__ = "0.1.0"

# the module of each name; the imports above are for type checkers and editors and never run
_MODULES = {
    "Backbone": "usboost.learners.networks.backbones",
    "BoostedFeatureNetworkClassifier": "usboost.models.methods.bfv_network",
    "BoostedFeatureNetworkRegressor": "usboost.models.methods.bfv_network",
    "BoostedFeatures": "usboost.models.methods.boosted_features",
    "BoostedNetworkClassifier": "usboost.models.methods.boosted_network",
    "BoostedNetworkRegressor": "usboost.models.methods.boosted_network",
    "Callback": "usboost.boosting.callbacks",
    "Checkpoint": "usboost.boosting.checkpoint",
    "EarlyBoostClassifier": "usboost.models.methods.earlyboost",
    "EarlyStopping": "usboost.boosting.callbacks",
    "EarlyTrigger": "usboost.models.methods.early_trigger",
    "Images": "usboost.data.images",
    "LightGBMBaseline": "usboost.models.baselines.trees",
    "LightGBMBaselineRegressor": "usboost.models.baselines.trees",
    "MultimodalClassifier": "usboost.fit.estimator",
    "MultimodalRegressor": "usboost.fit.estimator",
    "NetworkLearner": "usboost.learners.networks.learner",
    "RidgeBaseline": "usboost.models.baselines.linear",
    "RidgeLearner": "usboost.learners.ridge",
    "Sequences": "usboost.data.views",
    "SplitColumns": "usboost.models.split_columns",
    "SplitColumnsRegressor": "usboost.models.split_columns",
    "Table": "usboost.data.table",
    "TreeLearner": "usboost.learners.tree_learner",
    "TwoBranchNetworkClassifier": "usboost.models.methods.two_branch",
    "TwoBranchNetworkRegressor": "usboost.models.methods.two_branch",
    "TwoWeakLearnerClassifier": "usboost.models.methods.two_weak_learner",
    "TwoWeakLearnerRegressor": "usboost.models.methods.two_weak_learner",
    "UsboostError": "usboost.errors",
    "UsboostWarning": "usboost.errors",
    "Views": "usboost.data.views",
    "fit_sharded": "usboost.models.sharded",
    "load": "usboost.models.persistence",
    "save": "usboost.models.persistence",
}

__all__ = ["__version__", *_MODULES]

if not TYPE_CHECKING:  # so that type checkers still find misspelt names

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value  # found here from now on
        return value


def __dir__() -> list[str]:
    return sorted(__all__)

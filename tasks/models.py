"""The named models of the papers' tables: name → configured, unfitted estimator."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from tasks.settings import BoostingSizes, NetworkSizes, Settings, Table1, Table2
from usboost.errors import UsboostError
from usboost.learners.base import Learner
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.trees.learner import TreeLearner
from usboost.models.baselines import LightGBMBaseline
from usboost.models.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.boosted_network import BoostedNetworkClassifier
from usboost.models.earlyboost import EarlyBoostClassifier
from usboost.models.gbm import BoostedFeatures, GradientBoostedTrees
from usboost.models.two_branch import TwoBranchNetworkClassifier
from usboost.models.two_weak_learner import TwoWeakLearnerClassifier

TARGETS = {"first": "gradient", "second": "second_order", "newton": "newton"}


def build(
    name: str, dataset: str, settings: Settings, seed: int, gbm: GradientBoostedTrees | None = None
) -> Any:
    """The model called `name` as Tables 1 and 2 configure it for a dataset.

    Parameters
    ----------
    gbm : the GBM of BFV+DNN, where it has been fitted before

    Raises
    ------
    UsboostError
        If params.yaml has no such model, or its tables no such dataset.
    """
    chosen = settings.model(name).features
    if name == "baseline":
        return two_branch(dataset, settings, seed)
    if name == "bfv_dnn" or chosen is not None:
        return BoostedFeatureNetworkClassifier(
            boosted_features(dataset, settings, seed),
            two_branch(dataset, settings, seed),
            encoding="numbers" if chosen == "leaf_numbers" else "values",
            out_of_fold=chosen == "out_of_fold",
            gbm=gbm,
            random_state=seed,
        )
    if name == "bnn":
        return boosted_network(settings, seed)
    if name == "earlyboost":
        return early(settings, seed)
    if name in settings.run.external_baselines:
        return external_baseline(name, dataset, settings, seed)
    return boosting(name, dataset, settings, seed)


def backbone(
    table: Table1 | Table2, sizes: NetworkSizes | BoostingSizes, settings: Settings
) -> Backbone | None:
    """How pictures are read: the table's backbone unless the profile names another; None for tables."""
    if table.backbone is None:
        return None
    name = sizes.backbone or table.backbone
    pretrained = settings.pictures.pretrained
    chosen = table.pretrained if pretrained is None else pretrained
    return Backbone(
        name,
        pretrained=chosen if name != "small_cnn" or isinstance(chosen, str) else False,
        finetune=settings.pictures.finetune,
        size=settings.pictures.size,
        augment=settings.pictures.augment,
        cache="data/embeddings",
    )


def boosted_network(settings: Settings, seed: int) -> BoostedNetworkClassifier:
    """Damião's boosted neural networks: one hidden layer, closed-form γ."""
    chosen = settings.bnn
    network = NetworkLearner(
        hidden=(chosen.hidden,),
        optimizer="adam",
        learning_rate=0.01,
        batch_size=32,
        epochs=chosen.epochs,
        device=settings.device,
    )
    return BoostedNetworkClassifier(chosen.loss, network, n_rounds=chosen.rounds, random_state=seed)


def early(settings: Settings, seed: int) -> EarlyBoostClassifier:
    """Earlyboost for two classes, Earlyboost.MH for more."""
    chosen = settings.earlyboost
    weak: Any = DecisionTreeClassifier(max_depth=chosen.max_depth)
    if chosen.estimator == "logistic":
        weak = LogisticRegression()
    return EarlyBoostClassifier(weak, random_state=seed)


def external_baseline(name: str, dataset: str, settings: Settings, seed: int) -> LightGBMBaseline:
    """LightGBM on the model's views; pictures as embeddings of the boosting models' backbone, frozen."""
    table, chosen = settings.boosting_of(dataset), settings.external_baselines
    return LightGBMBaseline(
        views=settings.model(name).views,
        n_trees=chosen.n_trees,
        learning_rate=chosen.learning_rate,
        patience=chosen.patience,
        backbone=backbone(table, settings.sizes.boosting, settings),
        device=settings.device,
        random_state=seed,
    )


def two_branch(dataset: str, settings: Settings, seed: int) -> TwoBranchNetworkClassifier:
    """The baseline: Table 1 with S itself as the second branch's input."""
    table, sizes = settings.networks_of(dataset), settings.sizes.networks
    return TwoBranchNetworkClassifier(
        dnn1=(table.backbone and sizes.head) or table.dnn1,
        dnn2=table.dnn2,
        dnn3=table.dnn3,
        fusion=table.fusion,
        optimizer=sizes.optimizer or table.optimizer,
        learning_rate=sizes.learning_rate or table.learning_rate,
        batch_size=sizes.batch_size or table.batch_size,
        n_epochs=sizes.epochs,
        patience=settings.networks.patience,
        device=settings.device,
        backbone=backbone(table, sizes, settings),
        random_state=seed,
    )


def boosted_features(dataset: str, settings: Settings, seed: int) -> BoostedFeatures:
    """The GBM whose leaf values are the BFV."""
    chosen = settings.features
    return BoostedFeatures(
        n_trees=settings.sizes.features.trees or settings.networks_of(dataset).bfv_trees,
        max_depth=chosen.max_depth,
        learning_rate=chosen.learning_rate,
        engine=chosen.engine,
        random_state=seed,
    )


def boosting(name: str, dataset: str, settings: Settings, seed: int) -> TwoWeakLearnerClassifier:
    """A boosting model: Table 2, the section `boosting`, and what the model itself changes of it."""
    model, table, sizes = settings.model(name), settings.boosting_of(dataset), settings.sizes.boosting
    changes = {
        key: value
        for key in type(settings.boosting).model_fields
        if (value := getattr(model, key, None)) is not None
    }
    chosen = settings.boosting.model_copy(update=changes)
    network = NetworkLearner(
        hidden=tuple(model.network.hidden or (table.backbone and sizes.head) or table.dnn),
        optimizer=sizes.optimizer or table.optimizer,
        learning_rate=model.network.learning_rate or sizes.learning_rate or table.learning_rate,
        batch_size=model.network.batch_size or sizes.batch_size or table.batch_size,
        epochs=chosen.epochs_per_round,
        start=model.start or sizes.start or chosen.start,
        device=settings.device,
        backbone=backbone(table, sizes, settings),
    )
    tree = TreeLearner(max_depth=table.tree_depth, engine=chosen.tree_engine)
    tree.set_params(**model.tree.model_dump(exclude_none=True))
    # views side by side: the first of them says whose kind of learner reads them
    kinds: dict[str, Any] = {"U": network, "U+S": network, "S": tree, "S+U": tree}
    if unknown := [view for view in model.views if view not in kinds]:
        raise UsboostError(f"models.{name}.views names {unknown[0]!r}; choose among {', '.join(kinds)}")
    learners: dict[str, Learner] = {
        view: clone(kinds[view]).set_params(reads=tuple(view.split("+"))) for view in model.views
    }
    step = sizes.step if model.step == "searched" else model.step
    step_settings = {"fixed": {"value": chosen.fixed_step}, "bayes": chosen.bayes.model_dump(), "newton": {}}
    full_length = table.rounds.second if model.order == "second" else table.rounds.first
    return TwoWeakLearnerClassifier(
        learners=learners,
        target=TARGETS[model.order],
        n_inner=table.n_inner,
        step=step,
        step_settings=step_settings[step],
        n_rounds=min(sizes.rounds or full_length, full_length),
        shrinkage=chosen.shrinkage,
        sequential=chosen.sequential,
        step_fraction=chosen.step_fraction,
        trim=chosen.trim,
        loss=model.loss,
        monitor=f"{model.monitor}_val",
        patience=chosen.patience,
        random_state=seed,
    )

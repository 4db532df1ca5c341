"""What `make results` fits: parts with a workspace each, their models and seeds, and the pairs compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

# What differs from params.yaml's `paper` profile: exact steps instead of 30 evaluations of a surrogate,
# early stopping, the baseline tuned on CI-A's validation half (docs/results/papers.md lists the settings).
CENSUS: dict[str, Any] = {
    "boosting.patience": 60,
    "profiles.paper.boosting.step": "newton",
    "networks.patience": 6,
    "profiles.paper.networks.epochs": 40,
    "profiles.paper.networks.optimizer": "rmsprop",
    "profiles.paper.networks.learning_rate": 0.001,
    "profiles.paper.networks.batch_size": 512,
    "profiles.paper.features.trees": 500,
    "table1.ci_a.dnn1": [100, 50],
    "table1.ci_a.dnn2": [100, 50],
    "table1.ci_a.dnn3": [25],
    "table1.ci_a.fusion": "concat",
}

# Images of the paper's size, all of CT's columns and MI's balance; fewer rows, and a small CNN instead of
# VGG16 and ResNet50: what two cores can do. An epoch on CT's images takes the small CNN ten times as long
# as at 32 pixels, where all fits took 1.3 hours: 10,000 rows would now take about 13, 4,000 about 5.
IMAGES: dict[str, Any] = {
    "boosting.patience": 15,
    "networks.patience": 6,
    "profiles.paper.features.trees": 200,
    "profiles.paper.data.ct": {"rows_train": 4000, "image_size": 128},
    "profiles.paper.data.mi": {"rows_train": 5000, "image_size": 64, "dog_share": 0.47},
    "profiles.paper.networks": {
        "epochs": 40,
        "optimizer": "rmsprop",
        "learning_rate": 0.001,
        "batch_size": 64,
        "backbone": "small_cnn",
        "head": [64],
    },
    "profiles.paper.boosting": {
        "rounds": 60,
        "step": "newton",
        "start": "warm",
        "optimizer": "rmsprop",
        "learning_rate": 0.001,
        "batch_size": 64,
        "backbone": "small_cnn",
        "head": [64],
    },
}

# The same images as frozen embeddings, for every model alike, of the small CNN inside a baseline.
EMBEDDED = IMAGES | {
    "images.finetune": "head",
    "images.pretrained": "backbone.safetensors",
    "boosting.patience": 60,
    "profiles.paper.boosting": IMAGES["profiles.paper.boosting"] | {"rounds": 500},
}
EMBEDDING_SEED = 100

# Another model with one change, there to measure that change alone: `models` of every part's params.yaml.
VARIANTS: dict[str, dict[str, Any]] = {
    "2wl_shrunk": {"like": "2wl", "step": "newton", "shrinkage": 0.3},
    "2wl_held_out": {"like": "2wl", "step": "newton", "step_fraction": 0.2},
    # the network is fitted to the tree's residual, so the tree is the first learner
    "2wl_tree_first": {
        "like": "1wl_s",
        "learners": {"U": {"kind": "network"}},
        "step": "newton",
        "sequential": True,
    },
    "2wl_warm": {"like": "2wl", "learners": {"U": {"start": "warm"}}, "step": "newton"},
    "2wl_bayes": {"like": "2wl", "step": "bayes"},
    "bfv_dnn_oof": {"like": "bfv_dnn", "features": "out_of_fold"},
}
TITLES = {
    "2wl_shrunk": "2WL, shrinkage 0.3",
    "2wl_held_out": "2WL, steps on held-out rows",
    "2wl_tree_first": "2WL, tree first",
    "2wl_warm": "2WL, warm networks",
    "2wl_bayes": "2WL, Bayesian steps",
    "bfv_dnn_oof": "BFV+DNN, out of fold",
}


@dataclass(frozen=True)
class Fits:
    """Datasets × models × seeds."""

    name: str
    datasets: list[str]
    models: list[str]
    seeds: int = 5


@dataclass(frozen=True)
class Part:
    """Fits that share a workspace.

    Attributes
    ----------
    suffix : of the models' names in the tables, for models that have another part's name
    embeds : the part whose baseline embeds this part's images
    """

    changes: Mapping[str, Any]
    fits: list[Fits]
    rounds: int | None = None
    suffix: str = ""
    embeds: str | None = None
    datasets: list[str] = field(init=False)

    def __post_init__(self) -> None:
        every = sorted({dataset for fits in self.fits for dataset in fits.datasets})
        object.__setattr__(self, "datasets", every)


CROSSED = ["lgbm", "2wl_shrunk", "2wl_logistic", "3wl", "crossed"]
WITH_IMAGES = [
    "lgbm_s",
    "baseline",
    "bfv_dnn",
    "leaf_dnn",
    "2wl_fix",
    "1wl_s",
    "1wl_u",
    "2wl",
    "2wl_logistic",
    "2wl2o",
]
PLAN: dict[str, Part] = {
    "census": Part(
        CENSUS,
        [
            Fits("main", ["ci_a"], ["lgbm_s", "lgbm", "baseline", "2wl", "2wl_logistic", "2wl_newton"]),
            Fits("crossed", ["ci_a"], ["3wl", "crossed"]),
            Fits("main-b", ["ci_b"], ["lgbm_s", "lgbm", "baseline", "2wl", "2wl_logistic", "3wl", "crossed"]),
            Fits("ablations", ["ci_a"], ["2wl_shrunk", "2wl_tree_first", "2wl_warm"]),
            Fits("rest", ["ci_a", "ci_b"], ["bfv_dnn", "1wl_s", "1wl_u", "2wl2o"]),
            Fits("rest", ["ci_a"], ["2wl_fix", "2wl2o_fix"]),
            Fits("rest", ["ci_b"], ["2wl_fix"], seeds=3),
        ],
        rounds=500,
    ),
    "variants": Part(
        CENSUS,
        [
            Fits("variants", ["ci_a"], ["bfv_dnn_oof"]),
            Fits("variants", ["ci_a"], ["2wl_bayes"], seeds=3),
            Fits("held-out", ["ci_a"], ["2wl_held_out"]),
            Fits("leaves", ["ci_a", "ci_b"], ["leaf_dnn"]),
        ],
        rounds=500,
    ),
    "ct": Part(IMAGES, [Fits("main", ["ct"], WITH_IMAGES)]),
    "mi": Part(IMAGES, [Fits("main", ["mi"], WITH_IMAGES)]),
    "ct-embedded": Part(EMBEDDED, [Fits("embedded", ["ct"], CROSSED)], suffix="@embedded", embeds="ct"),
    "mi-embedded": Part(EMBEDDED, [Fits("embedded", ["mi"], CROSSED)], suffix="@embedded", embeds="mi"),
}
"""By name of the part and of its workspace, the most telling first."""


@dataclass(frozen=True)
class Cell:
    """One fit of the plan.

    Attributes
    ----------
    results : folder of its model's results, as seen from the study's folder.
    place : folder of what the study keeps of it.
    """

    part: str
    experiment: str
    dataset: str
    model: str
    seed: int
    suffix: str
    results: str
    place: str


def cells() -> Iterator[Cell]:
    """Every fit of the plan."""
    for name, part in PLAN.items():
        for fits in part.fits:
            for dataset, model, seed in product(fits.datasets, fits.models, range(fits.seeds)):
                results = f"{name}/data/results/{dataset}/{model}"
                place = f"{name}/predicted/{dataset}/{model}/seed-{seed}"
                yield Cell(name, f"{name}/{fits.name}", dataset, model, seed, part.suffix, results, place)


PAIRS: dict[str, list[tuple[str, str]]] = {
    "ci_a": [
        ("2wl", "1wl_s"),
        ("2wl", "1wl_u"),
        ("2wl2o", "2wl"),
        ("2wl_fix", "2wl"),
        ("2wl2o_fix", "2wl2o"),
        ("bfv_dnn", "gbm"),
        ("2wl_shrunk", "2wl"),
        ("2wl_held_out", "2wl"),
        ("2wl_tree_first", "2wl"),
        ("2wl_warm", "2wl"),
        ("2wl_newton", "2wl2o"),
        ("2wl_newton", "2wl_shrunk"),
        ("2wl_logistic", "2wl_newton"),
        ("3wl", "2wl_shrunk"),
        ("2wl_bayes", "2wl"),
        ("bfv_dnn_oof", "bfv_dnn"),
        ("leaf_dnn", "bfv_dnn"),
        ("2wl", "baseline"),
        ("2wl_logistic", "lgbm"),
        ("crossed", "lgbm"),
        ("crossed", "baseline"),
        ("crossed", "leaf_dnn"),
    ],
    "ci_b": [
        ("2wl", "1wl_s"),
        ("2wl", "1wl_u"),
        ("2wl2o", "2wl"),
        ("2wl_fix", "2wl"),
        ("bfv_dnn", "gbm"),
        ("leaf_dnn", "bfv_dnn"),
        ("2wl_logistic", "2wl"),
        ("3wl", "2wl"),
        ("2wl", "baseline"),
        ("2wl_logistic", "lgbm"),
        ("crossed", "lgbm"),
        ("crossed", "baseline"),
        ("crossed", "leaf_dnn"),
    ],
}
PAIRS["ct"] = PAIRS["mi"] = [
    ("2wl", "1wl_s"),
    ("2wl", "1wl_u"),
    ("2wl", "baseline"),
    ("2wl2o", "2wl"),
    ("2wl_fix", "2wl"),
    ("2wl_logistic", "2wl"),
    ("bfv_dnn", "gbm"),
    ("leaf_dnn", "bfv_dnn"),
    ("leaf_dnn", "baseline"),
    ("3wl@embedded", "2wl_shrunk@embedded"),
    ("2wl_logistic@embedded", "lgbm@embedded"),
    ("crossed@embedded", "lgbm@embedded"),
    ("crossed@embedded", "baseline"),
    ("baseline", "lgbm@embedded"),
    ("2wl_logistic", "lgbm@embedded"),
    ("2wl_fix", "lgbm@embedded"),
]

_CENSUS_HEADLINES = [
    ("crossed", "lgbm"),
    ("2wl_logistic", "lgbm"),
    ("bfv_dnn", "lgbm"),
    ("bfv_dnn", "baseline"),
    ("2wl", "baseline"),
    ("2wl2o", "2wl"),
    ("crossed", "leaf_dnn"),
]
HEADLINES: dict[str, list[tuple[str, str]]] = {
    "ci_a": _CENSUS_HEADLINES,
    "ci_b": _CENSUS_HEADLINES,
    "ct": [
        ("crossed@embedded", "lgbm@embedded"),
        ("2wl_logistic", "lgbm@embedded"),
        ("2wl_fix", "lgbm@embedded"),
        ("2wl2o", "2wl"),
    ],
    "mi": [("crossed@embedded", "lgbm@embedded"), ("crossed@embedded", "baseline")],
}
"""Differences whose intervals over the test rows are computed, too."""

"""What `make results` fits: parts with a workspace each, their models and seeds, and the pairs compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

# What differs from params.yaml's `paper` profile, which has every row and Table 2's rounds: exact steps
# instead of 30 evaluations of a surrogate, networks tuned on CI-A's validation half, patience.
CENSUS: dict[str, Any] = {
    "boosting.patience": 300,
    "profiles.paper.boosting.step": "newton",
    "networks.patience": 15,
    "profiles.paper.networks.epochs": 200,
    "profiles.paper.networks.optimizer": "rmsprop",
    "profiles.paper.networks.learning_rate": 0.001,
    "profiles.paper.networks.batch_size": 512,
    "profiles.paper.features.trees": None,
    "table1.ci_a.dnn1": [100, 50],
    "table1.ci_a.dnn2": [100, 50],
    "table1.ci_a.dnn3": [25],
    "table1.ci_a.fusion": "concat",
}

_TRAINING: dict[str, Any] = {"optimizer": "rmsprop", "learning_rate": 0.001, "batch_size": 64, "head": [64]}
# Every image of the files at hand, as large as the paper's, read by a frozen EfficientNet-Lite0 with ImageNet
# weights in place of VGG16 and ResNet50 that are trained: what two cores can do. Rounds are Table 2's.
IMAGES: dict[str, Any] = {
    "images.backbone": "tf_efficientnet_lite0",
    "images.pretrained": True,
    "images.finetune": "none",
    "boosting.patience": 60,
    "networks.patience": 6,
    "external_baselines.learning_rate": 0.1,
    "profiles.paper.features.trees": 1000,
    "profiles.paper.networks": {"epochs": 40, **_TRAINING},
    "profiles.paper.boosting": {"rounds": None, "step": "newton", **_TRAINING},
}
# MI's are Tiny ImageNet's 64 pixels enlarged to 160, CT's are drawn at 128.
MI: dict[str, Any] = IMAGES | {
    "images.size": 160,
    "profiles.paper.data.mi": {"image_size": 64, "dog_share": 0.47},
}
CT: dict[str, Any] = IMAGES | {
    "profiles.paper.data.ct": {"image_size": 128},
    "profiles.paper.networks.batch_size": 128,
    "profiles.paper.boosting.batch_size": 128,
}

# The networks of Table 1, which is printed three times with the same numbers.
_TABLE_1: dict[str, dict[str, Any]] = {
    "a": {"dnn1": [32], "dnn2": [256, 32], "dnn3": [256, 32], "fusion": "product", "optimizer": "sgd"},
    "b": {"dnn1": [100, 50], "dnn2": [100, 50], "dnn3": [25], "fusion": "concat", "optimizer": "rmsprop"},
}
_TABLE_1 = {name: {**each, "learning_rate": 0.001, "batch_size": 128} for name, each in _TABLE_1.items()}


def _bfv_dnn(name: str) -> dict[str, Any]:
    nested = {f"network__{key}": value for key, value in _TABLE_1[name].items()}
    return {"like": "bfv_dnn", "features": "in_sample", "set": nested}


GRID = [(trees, depth) for trees in (500, 2000) for depth in (3, 4, 5, 6)]
"""Trees and depths of BFV+DNN's GBM; the paper chooses a depth among these, and does not say which."""


def on_grid(trees: int, depth: int) -> str:
    """Return the name of the BFV+DNN whose GBM has so many trees of that depth."""
    return f"bfv_dnn_{trees}_{depth}"


# A model with one change, there to measure that change alone, and what the pipeline's own stage makes
# otherwise: `models` of every part's params.yaml.
VARIANTS: dict[str, dict[str, Any]] = {
    "bfv_dnn": {"features": "in_sample"},
    "bfv_dnn_paper": _bfv_dnn("a"),
    "bfv_dnn_paper_b": _bfv_dnn("b"),
    "baseline_settled": {"like": "baseline", "set": _TABLE_1["a"]},
    "baseline_settled_b": {"like": "baseline", "set": _TABLE_1["b"]},
    "2wl_shrunk": {"like": "2wl", "step": "newton", "shrinkage": 0.3},
    "2wl_bayes": {"like": "2wl", "step": "bayes"},
    **{
        on_grid(trees, depth): {
            "like": "bfv_dnn",
            "features": "in_sample",
            "set": {"features__n_trees": trees, "features__max_depth": depth},
        }
        for trees, depth in GRID
    },
    "logistic_u": {"like": "logistic", "views": ["U"]},
    "lgbm_u": {"like": "lgbm", "views": ["U"]},
}
TITLES = {
    **dict.fromkeys(("bfv_dnn_paper", "bfv_dnn_paper_b"), "BFV+DNN, Table 1"),
    **dict.fromkeys(("baseline_settled", "baseline_settled_b"), "Baseline, Table 1"),
    "2wl_shrunk": "2WL, shrinkage 0.3",
    "2wl_bayes": "2WL, Bayesian steps",
    **{on_grid(trees, depth): f"BFV+DNN, {trees:,} trees of depth {depth}" for trees, depth in GRID},
    "logistic_u": "Logistic regression on U",
    "lgbm_u": "LightGBM on U",
}


@dataclass(frozen=True)
class Planned:
    """Datasets × models × seeds."""

    datasets: list[str]
    models: list[str]
    seeds: int = 5


@dataclass(frozen=True)
class Part:
    """Fits that share a workspace."""

    changes: Mapping[str, Any]
    fits: list[Planned]
    datasets: list[str] = field(init=False)

    def __post_init__(self) -> None:
        every = sorted({dataset for fits in self.fits for dataset in fits.datasets})
        object.__setattr__(self, "datasets", every)


OPPONENTS = ["prior", "logistic", "logistic_s", "logistic_u", "lgbm", "lgbm_s", "lgbm_u"]
CELLS = ["baseline", "2wl", "bfv_dnn", "2wl2o", "1wl_u", "2wl_fix", "2wl2o_fix"]
"""The papers' cells that draw random numbers; 1WL_S has none."""
ONCE = ["1wl_s", *OPPONENTS]
"""Models that draw no random numbers: one fit is all there is."""
BESIDE = ["linear_trees", "crossed", "forest"]
"""Models of today beside the papers', with the settings that they have everywhere."""

_CENSUS = ["2wl", "2wl_shrunk", "1wl_u", "2wl2o", "baseline", "bfv_dnn"]
_LONG = ["2wl_fix", "2wl2o_fix"]
"""Up to an hour of a core each."""
PLAN: dict[str, Part] = {
    "census": Part(
        CENSUS,
        [
            Planned(["ci_a"], ["prior", "logistic", "lgbm"], 1),
            Planned(["ci_a", "ci_b"], ["logistic_s", "lgbm_s", "1wl_s", *_CENSUS, *_LONG], 1),
            Planned(["ci_a"], ["bfv_dnn_paper", "baseline_settled", "crossed", "2wl_bayes"], 1),
            Planned(["ci_b"], ["bfv_dnn_paper_b", "baseline_settled_b", "2wl_bayes"], 1),
            Planned(["ci_a", "ci_b"], [*_CENSUS, *_LONG], 3),
            Planned(["ci_a"], ["bfv_dnn_paper", "baseline_settled", "crossed"], 3),
            Planned(["ci_b"], ["bfv_dnn_paper_b", "baseline_settled_b"], 3),
            Planned(["ci_a", "ci_b"], ["bfv_dnn"], 5),
        ],
    ),
    "grid": Part(CENSUS, [Planned(["ci_a"], [on_grid(*each) for each in GRID], 1)]),
    "mi": Part(
        MI, [Planned(["mi"], [*ONCE, "2wl_bayes"], 1), Planned(["mi"], ["2wl_shrunk", *CELLS, *BESIDE])]
    ),
    "ct": Part(
        CT,
        [
            Planned(["ct"], [*ONCE, "2wl_bayes"], 1),
            Planned(["ct"], ["2wl_shrunk", *CELLS, *BESIDE], 3),
            Planned(["ct"], ["bfv_dnn"], 5),
        ],
    ),
}
"""By name of the part and of its workspace."""


@dataclass(frozen=True)
class Cell:
    """One fit of the plan."""

    part: str
    dataset: str
    model: str
    seed: int


def cells() -> Iterator[Cell]:
    """Yield every fit of the plan, seed by seed."""
    seen: set[Cell] = set()
    for name, part in PLAN.items():
        for fits in part.fits:
            for seed, dataset, model in product(range(fits.seeds), fits.datasets, fits.models):
                if (cell := Cell(name, dataset, model, seed)) not in seen:
                    seen.add(cell)
                    yield cell


CHANGES = (("2wl2o", "2wl"), ("2wl_fix", "2wl"), ("2wl2o_fix", "2wl2o"), ("2wl", "1wl_u"), ("2wl", "1wl_s"))
"""Pairs of a model and the one without its change, of which the paper says what that does."""
HEADLINES = (
    ("2wl", "baseline"),
    ("bfv_dnn", "baseline"),
    ("2wl2o", "2wl"),
    ("2wl_shrunk", "2wl"),
    ("2wl_shrunk", "lgbm"),
)
"""Differences whose intervals over the test rows are computed."""

"""What can be chosen on the command line; imports next to nothing, so that help is quick."""

from __future__ import annotations

MODELS = {
    "baseline": "two-branch network",
    "bfv_dnn": "two-branch network on boosted feature vectors",
    "2wl": "two-weak-learner boosting",
    "2wl2o": "two-weak-learner boosting, second order as published",
    "2wl_newton": "two-weak-learner boosting along the exact Newton direction",
    "2wl_logistic": "two-weak-learner boosting on cross-entropy",
    "crossed": "a network and a leaf-wise tree that both see everything, boosted on cross-entropy",
    "1wl_u": "boosted networks alone",
    "1wl_s": "boosted trees alone",
    "lgbm_s": "LightGBM on the structured columns",
    "lgbm": "LightGBM on everything, pictures as frozen embeddings",
}
"""Models by name, with what they are."""

COMPARED = ("baseline", "bfv_dnn", "2wl", "2wl_logistic", "crossed", "lgbm_s", "lgbm")
"""The models compared when none are named; without pictures `lgbm_s` would be `lgbm` again."""

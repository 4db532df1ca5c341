"""The command line's tests use the table and the model of those of `usboost.multimodal`."""

from tests.multimodal.conftest import demo, model

__all__ = ["demo", "model"]

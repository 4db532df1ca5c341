"""The command line's tests use the table and the model of those of `usboost.fit`."""

from tests.fit.conftest import demo, model

__all__ = ["demo", "model"]

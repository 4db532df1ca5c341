"""``python -m usboost``: the command `usboost`."""

from usboost.cli import app

app(prog_name="usboost")

"""``python -m usboost``: the command `usboost`."""

from usboost.cli.app import app

app(prog_name="usboost")

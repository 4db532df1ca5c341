"""Options are declared once, messages name them as their reader gives them; a user's own learner."""

import ast
import re
import shutil
from dataclasses import MISSING, fields
from pathlib import Path

import pandas as pd
import pytest
import typer.main

from tasks.settings import as_key
from tests.fit.conftest import accepted, numbers, refused, run
from usboost.cli.app import app
from usboost.cli.console import as_flag
from usboost.cli.options import typed
from usboost.errors import UsboostError, rewrite_options
from usboost.fit.options import ImageOptions
from usboost.learners.base import LEARNERS
from usboost.table.spec import TableSpec

LIBRARY = Path(__file__).parents[2] / "usboost"
FLAG = re.compile(r"(^|[\s(])--[a-z]")

ALL = TableSpec(
    "kind",
    image=("front", "back"),
    drop="a b",
    categorical=("post",),
    text=("note",),
    missing=("n/a", "--"),
    images_root=Path("p"),
    task="classification",
    positive="yes",
    group="g",
    weight="w",
    size=64,
    grey=True,
    skip_unreadable=True,
)


def command(name: str) -> typer.core.TyperCommand:
    found: typer.core.TyperCommand = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return found


def test_what_is_typed_again_reads_the_same_table() -> None:
    for name in ("fit", "compare", "tune"):
        for spec in (ALL, TableSpec("kind"), TableSpec("kind", time="t"), TableSpec("kind", split="s")):
            given = (
                command(name)
                .make_context(name, ["t.csv", *typed(spec, ImageOptions(finetune="none"))])
                .params
            )
            assert TableSpec.of(given) == spec


def test_every_field_but_aspect_is_an_option_that_was_tried() -> None:
    options = {each.name for each in command("fit").params}
    for each in fields(TableSpec):
        assert (each.name in options) == (each.name != "aspect")
        if each.default is not MISSING and each.name not in ("aspect", "time", "split"):
            assert getattr(ALL, each.name) != each.default


def test_messages_name_options_as_their_reader_gives_them() -> None:
    with pytest.raises(UsboostError, match="leave out `split` or `group`") as refusal:
        TableSpec("y", split="s", group="g")
    assert "leave out --split or --group" in rewrite_options(str(refusal.value), as_flag)
    keys = "user_table.split or user_table.missing: 'x y'"
    assert rewrite_options("`split` or `missing='x y'`", as_key) == keys
    assert rewrite_options("`skip_unreadable=no`; `group`", as_flag) == "--skip-unreadable no; --group"
    assert rewrite_options("`group`; `A.b`, `f()`", as_key) == "`group`; `A.b`, `f()`"


def test_only_the_command_line_writes_flags() -> None:
    for path in LIBRARY.rglob("*.py"):
        if path.is_relative_to(LIBRARY / "cli"):
            continue
        tree = ast.parse(path.read_text())
        texts = (each.value for each in ast.walk(tree) if isinstance(each, ast.Constant))
        assert not [text for text in texts if isinstance(text, str) and FLAG.search(text)], path


USER_TABLE = Path(__file__).parents[1] / "examples/least_squares.py"


def test_it_is_chosen_saved_and_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(USER_TABLE, tmp_path / "own_least_squares.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    others = {k: v for k, v in LEARNERS._parts.items() if k != "least_squares"}
    monkeypatch.setattr(LEARNERS, "_parts", others)
    numbers(120).to_csv("table.csv", index=False)
    fit = ("fit", "table.csv", "--label", "kind", "--model", "1wl_s", "--rounds", 5)
    fit = (*fit, "--learner", "S=least_squares")
    unknown = run(*fit).stderr.splitlines()[-1]
    assert "unknown learner kind 'least_squares'; known are network, tree" in unknown
    assert "there is no module 'nowhere'" in refused(*fit, "--import", "nowhere")
    assert "write --learner S=regressor" in refused(*fit, "--learner", "S")
    accepted(*fit, "--import", "own_least_squares")
    predict = ("predict", "model", "table.csv", "--out", "out.csv")
    accepted(*predict, "--import", "own_least_squares")
    assert (pd.read_csv("out.csv")["label"] == numbers(120)["kind"]).mean() > 0.6
    del LEARNERS._parts["least_squares"]
    assert "LeastSquaresLearner" in refused(*predict)

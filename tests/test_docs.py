"""The documentation: its examples run, its links lead somewhere, its tables are the parameters."""

import importlib.util
import re
import shlex
import subprocess
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import typer
import yaml
from pydantic import BaseModel

from tasks.settings import Settings, parse
from tests.fit.conftest import run
from tests.warm import Warm
from usboost.table.demo import write_demo

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n)?```(\w+)\n(.*?)```", re.S)


def blocks(page: Path, language: str) -> list[str]:
    """The page's blocks of a language that are to be run."""
    found = BLOCK.findall(page.read_text())
    return [text for marked, name, text in found if name == language and not marked]


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda page: page.name)
def test_examples_run_as_they_stand(page: Path, tmp_path: Path, warm: Warm) -> None:
    (tmp_path / "example.py").write_text("\n".join(blocks(page, "python")))
    assert warm.printed(["example.py"], tmp_path).strip()


def usboost_commands(page: Path) -> list[str]:
    lines = (line for text in blocks(page, "sh") for line in text.splitlines())
    return [line for line in lines if line.startswith("usboost")]


@pytest.mark.slow
def test_the_readmes_commands_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = usboost_commands(ROOT / "README.md")
    assert [command.split()[1] for command in commands] == ["demo", "fit", "compare"]
    said = {}
    for command in commands:
        done = run(*command.split()[1:])
        assert done.exit_code == 0, f"{command}\n{done.output[-2000:]}"
        said[command.split()[1]] = done.stdout
    assert (tmp_path / "model/card.json").is_file()
    # what the page prints, but for the last digits
    page = (ROOT / "README.md").read_text()
    loss, prior = re.findall(r"log-loss (\S+) against (\S+) of the classes' shares", page + said["fit"])
    assert float(loss[0]) == pytest.approx(float(prior[0]), abs=0.02) and loss[1] == prior[1]
    for model in ("linear_trees", "lgbm", "lgbm_s", "prior"):
        here, there = (
            float(re.search(rf"^{model} +(\d\.\d+) ±", text, re.M)[1]) for text in (page, said["compare"])
        )
        assert here == pytest.approx(there, abs=0.03), model
    assert "Images help: linear_trees" in said["compare"]


@pytest.mark.slow
def test_the_tutorials_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_trees: Path) -> None:
    """Of a smaller size than the page has; in this process, which has imported what they need."""
    page = ROOT / "docs/tutorial.md"
    monkeypatch.chdir(tmp_path)
    write_demo(tmp_path / "parts", rows_train=60, rows_test=15, seed=0, split=False)
    drawn, *commands = usboost_commands(page)
    assert drawn == "usboost demo parts" and len(commands) == 4
    for command in commands:
        command = command.replace("--folds 3 --repeats 3", f"--folds 2 --rounds 2 --settings {few_trees}")
        fewer = f"--settings {few_trees} --rounds 2 --out model"
        done = run(*command.replace("--out model", fewer).split()[1:])
        assert done.exit_code == 0, f"{command}\n{done.output[-2000:]}"
    made = {"comparison", "model", "predictions.parquet", "report.html"}
    assert made <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_commands_exist(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", re.sub(r"`[^`]*`", "", text))
    for link in links:
        assert link.startswith("http") or (page.parent / link).exists(), link
    for path in re.findall(r"`(docs/[\w.-]+)`", text):
        assert (ROOT / path).exists(), path
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for target in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.M):
        assert target in targets, target
    for module in re.findall(r"python -m ((?:flows|benchmarks)[.\w]*\w)", text):
        assert importlib.util.find_spec(module), module


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh")], ids=lambda page: page.name)
def test_commands_are_shell_with_known_options(page: Path) -> None:
    """Those of ours, that is; what is not run elsewhere is at least read as it would be."""
    for text in blocks(page, "sh"):
        text = text.replace("<id>", "id")
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for line in text.splitlines():
            match = re.fullmatch(r"(usboost|python -m flows[.\w]*) (.+)", line)
            if match:
                known(match[1].removeprefix("python -m "), shlex.split(match[2], comments=True))


def known(program: str, arguments: list[str]) -> None:
    """That a command knows its options; it is not run."""
    module = import_module("usboost.cli.app" if program == "usboost" else program)
    app = getattr(module, "app", None) or typer.Typer()
    if not hasattr(module, "app"):
        app.command()(module.main)
    command: typing.Any = typer.main.get_command(app)
    if hasattr(command, "commands"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context(program, arguments)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "yaml")], ids=lambda page: page.name)
def test_examples_of_params_yaml_are_read(page: Path) -> None:
    for text in blocks(page, "yaml"):
        document = yaml.safe_load((ROOT / "params.yaml").read_text())
        example = yaml.safe_load(text)
        assert set(example) <= set(document)
        models = document["models"] | example["models"]
        settings = parse(document | example | {"models": models}, page)
        for name in example["models"]:
            assert settings.model(name).name == name


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted keys of a section; a mapping of sections by name is a ``*``."""
    for name, field in model.model_fields.items():
        kind, inside = field.annotation, typing.get_args(field.annotation)
        sections = [one for one in (kind, *inside) if isinstance(one, type) and issubclass(one, BaseModel)]
        named = typing.get_origin(kind) is dict and name not in ("further",)
        if sections and name != "further":
            yield from keys(sections[0], f"{prefix}{name}." + ("*." if named else ""))
        else:
            yield f"{prefix}{name}"


def test_every_parameter_has_its_row() -> None:
    page = (ROOT / "docs/parameters.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = [key for row in rows for key in re.findall(r"`([^`]+)`", row)]
    assert sorted(named) == sorted(keys(Settings))


def test_params_yaml_has_what_it_promises() -> None:
    document = yaml.safe_load((ROOT / "params.yaml").read_text())
    assert {key.split(".")[0] for key in keys(Settings)} == set(document)

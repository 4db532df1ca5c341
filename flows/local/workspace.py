"""Workspaces: folders with their own params.yaml, data and reports, run by the same code.

`make run` has one and `make paper` another, so that real results never mix with demo ones and no file of the
checkout changes. A workspace is a Git repository of its own: DVC compares runs, and keeps experiments, as
commits of it. The checkout can be a workspace too, where dvc.lock is to be committed with the code.

Its files are made once, as the checkout has them, and are then a user's own: nothing here changes them but
an option that names the change.
"""

import io
import json
import logging
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

import psutil
import typer
from ruamel.yaml import YAML

from flows.local import runtime, servers
from tasks import machine
from tasks import settings as params
from usboost.errors import UsboostError
from usboost.files import write_atomically
from usboost.files.yaml_file import parsed_yaml, read_yaml
from usboost.models import catalogue
from usboost.table.images import files_of_images
from usboost.table.spec import TableSpec
from usboost.table.user_table import label_task

ROOT = Path(__file__).resolve().parents[2]

IGNORED = "/data/\n/reports/\n/.usboost/\n/dvc_plots/\n"
COPIED = ("params.yaml", "dvc.yaml", ".dvcignore", "prefect.yaml")
OWN = "  # your own\n"  # ends the lines of dvc.yaml that name a user's table and images

CODE = ("flows", "tasks", "usboost")
"""Folders of the checkout that a workspace links: what DVC's stages and Prefect's deployments run."""

fork = multiprocessing.get_context("fork")

app = typer.Typer(help="Make a workspace, or run what is stale in it.", no_args_is_help=True)


def make(
    folder: Path,
    *,
    profile: str | None = None,
    datasets: list[str] | None = None,
    rounds: int | None = None,
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """Make a workspace of the checkout's files with these changes, or make them in one that is there.

    Raises `UsboostError` if the changes do not make valid settings, or Git is not installed.

    Parameters
    ----------
    profile : by default that of params.yaml
    rounds : at most this many boosting rounds
    changes : other values by dotted key, e.g. ``{"boosting.patience": 60}``
    """
    new, editor = not (folder / "params.yaml").exists(), YAML()
    before = (ROOT if new else folder) / "params.yaml"
    params.parse(read_yaml(before, ""), before, agreeing=False)  # whose sections are all there
    document = editor.load(before.read_text(encoding="utf-8"))
    name = document["profile"] = profile or document["profile"]
    if name not in document["profiles"]:
        raise UsboostError(f"params.yaml has no profile {name!r}; it has {', '.join(document['profiles'])}")
    run, sizes = document["run"], document["profiles"][name]
    if datasets:
        run["datasets"] = datasets
    if new and name == "paper":  # has the models, too, whose short steps take hundreds of rounds
        fixed = [each.name for each in catalogue.CATALOGUE.values() if each.changes.get("step") == "fixed"]
        run["models"] += [each for each in fixed if each not in run["models"]]
        run["models_of"].pop("user_table", None)
    if name == "paper" and "ci_a" in run["datasets"]:
        run["models_of"].setdefault("ci_a", [*run["models"], "bnn"])
    if rounds:
        (sizes if name == "user" else sizes["boosting"])["rounds"] = rounds
    if seeds:
        sizes["seeds"] = seeds
    for key, value in (changes or {}).items():
        *sections, last = key.split(".")
        node: Any = document
        for section in sections:
            node = node.get(section) if isinstance(node, dict) else None
        if not isinstance(node, dict) or last not in node:
            raise UsboostError(f"params.yaml has no key {key}; change one that it has")
        node[last] = value
    if new:  # paths of files, as seen from the checkout
        tables = [*document["table1"].values(), *document["table2"].values(), document["images"]]
        for section, key in ((document["user_table"], "table"), *((each, "pretrained") for each in tables)):
            if isinstance(section.get(key), str) and (ROOT / section[key]).is_file():
                section[key] = str(ROOT / section[key])
    params.parse(document, folder / "params.yaml")
    if new:
        _begin(folder)
    if document["user_table"]["table"] and any(key.startswith("user_table.") for key in changes or {}):
        stages = folder / "dvc.yaml"
        chosen = params.UserTableSettings.model_validate(dict(document["user_table"]))
        write_atomically(stages, depending_on(chosen, stages.read_text("utf-8"), folder).encode())
    if new or any((profile, datasets, rounds, seeds, changes)):
        text = io.StringIO()
        editor.dump(document, text)
        write_atomically(folder / "params.yaml", text.getvalue().encode())
    tops = [module.partition(".")[0] for module in (*CODE, *document["imports"])]
    links = {file: ROOT / file for top in tops for file in (f"{top}.py", top) if (ROOT / file).exists()}
    if not servers.home().is_relative_to(folder.resolve()):
        links[".usboost"] = servers.home()
    for link, target in links.items():
        if (folder / link).is_symlink():
            (folder / link).unlink()
        if not (folder / link).exists():
            (folder / link).symlink_to(target)
    if new:
        linked = [link for link in links if (folder / link).is_symlink()]
        files = ["--", ".gitignore", ".dvc/config", ".dvc/.gitignore", *COPIED, *linked]
        _call(folder, "git", "add", "--force", *files)
        _call(folder, "git", "commit", "--quiet", "--no-verify", "--message", "a workspace", *files)
    return folder


def _begin(folder: Path) -> None:
    """Make a repository of Git and DVC, with files as the checkout has them; refuse to replace others."""
    folder.mkdir(parents=True, exist_ok=True)
    ignored = folder / ".gitignore"
    begun = ignored.is_file() and ignored.read_bytes() == IGNORED.encode()
    for path in (folder / name for name in (".gitignore", ".dvc/config", *COPIED)):
        if path.exists() and not begun:
            raise UsboostError(f"{path} is there already; make the workspace in a folder of its own")
    _call(folder, "git", "init", "--quiet")
    if _call(folder, "git", "config", "user.email", check=False).returncode:  # somebody has to commit
        _call(folder, "git", "config", "user.name", "usboost")
        _call(folder, "git", "config", "user.email", "usboost@localhost")
    _call(folder, "git", "config", "commit.gpgsign", "false")
    write_atomically(ignored, IGNORED.encode())
    _call(folder, sys.executable, "-m", "dvc", "init", "--quiet", "--force")
    for copied in (".dvc/config", *COPIED[1:]):
        write_atomically(folder / copied, (ROOT / copied).read_bytes())


def depending_on(chosen: params.UserTableSettings | None, stages: str, folder: Path = Path()) -> str:
    """Return dvc.yaml with stages of data that depend on a user's table and the folder of its images.

    They depend on each image where that folder has the workspace in it, or much else.

    Parameters
    ----------
    chosen : user_table of params.yaml; None: they depend on no table.
    stages : the dvc.yaml of the workspace in the folder.
    """
    lines = [line for line in stages.splitlines(keepends=True) if not line.endswith(OWN)]
    own = [] if chosen is None else ["${user_table.table}"]
    images = list(files_of_images(Path(chosen.table or ""), chosen.spec())) if chosen else []
    if images:
        common = Path(os.path.commonpath([path.parent.resolve() for path in images]))
        many = next(islice(common.rglob("*"), 10 * len(images) + 10_000, None), None)
        as_folder = many is None and not folder.resolve().is_relative_to(common)
        if not as_folder:
            print(f"images that are new in {common} are not watched, as it holds the workspace or much else")
        own += [str(common)] if as_folder else sorted({str(path.absolute()) for path in images})
    place = next(k for k, line in enumerate(lines) if line.strip() == "deps:") + 1
    lines[place:place] = [f"        - {json.dumps(each, ensure_ascii=False)}{OWN}" for each in own]
    return "".join(lines)


def _call(folder: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, cwd=folder, check=check, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise UsboostError(
            f"the command {words[0]} is not found; a workspace is a repository of Git and DVC. Install it, "
            "or activate the environment that has it"
        ) from None


def changes_for(table: Path, spec: TableSpec, *, with_classes: bool = False) -> dict[str, Any]:
    """Return values by dotted key: the table, and the models that `usboost compare` offers for one like it.

    Raises `UsboostError` if there is no such file, or it has no such label.

    Parameters
    ----------
    spec : its label, task, images, split, categories and columns that are not used.
    with_classes : whether datasets with classes run, too, by the same models.
    """
    if not table.expanduser().exists():
        raise UsboostError(
            f"the table {table} does not exist; give --table a file, or a folder of Parquet files"
        )
    task: str | None = spec.task or ("classification" if spec.label in spec.categorical else None)
    if task is None:
        task, said = label_task(table.expanduser(), spec)
        if said:
            print(said)
    tasks = {task, "classification"} if with_classes else {task}
    offered = catalogue.compared(one_table=not spec.image, task=task)
    models = [name for name in offered if tasks <= set(catalogue.find(name).tasks)]
    if left_out := [name for name in catalogue.compared(one_table=not spec.image) if name not in models]:
        print(f"left out, since a number is predicted: {', '.join(left_out)}")
    own = {
        "table": str(table.expanduser().resolve()),
        "label": spec.label,
        "task": task,
        "image": list(spec.image) if len(spec.image) > 1 else next(iter(spec.image), None),
        "split": spec.split,
        "categorical": list(spec.categorical),
        "drop": list(spec.drop),
    }
    run = {"run.datasets": ["user_table"], "run.models": models, "run.models_of": {}}
    return {**run, **{f"user_table.{key}": value for key, value in own.items()}}


def differences(folder: Path) -> list[str]:
    """Name the files of a workspace that are not as the checkout has them."""
    texts = {name: (folder / name).read_text("utf-8") for name in COPIED if (folder / name).is_file()}
    if "dvc.yaml" in texts:
        texts["dvc.yaml"] = depending_on(None, texts["dvc.yaml"])
    return [name for name, text in texts.items() if text != (ROOT / name).read_text("utf-8")]


def _changes(given: list[str]) -> dict[str, Any]:
    """Parse ``["boosting.patience=60"]`` into a mapping; values are YAML."""
    pairs = [change.partition("=") for change in given]
    if bad := [key for key, equals, _ in pairs if not equals]:
        raise UsboostError(f"--set {bad[0]} gives no value; write --set key=value")
    return {key: parsed_yaml(value, f"--set {key}") for key, _, value in pairs}


@app.command("make")
@runtime.exit_on_error()
def make_command(
    folder: Path = typer.Argument(help="folder of the workspace"),
    profile: str | None = typer.Option(None, help="demo, user or paper; by default that of params.yaml"),
    table: Path | None = typer.Option(None, help="user: your table, a file or a folder of Parquet files"),
    label: str = typer.Option("label", help="user: column of the classes, or of the number"),
    task: Literal["classification", "regression"] | None = typer.Option(
        None, help="user: what is predicted; by default what the label looks like"
    ),
    image: list[str] = typer.Option([], help="user: a column of images; may be repeated"),
    split: str | None = typer.Option(None, help="user: column that holds train, val or test"),
    categorical: list[str] = typer.Option([], help="user: a column of numbers that are codes; repeatable"),
    drop: list[str] = typer.Option([], help="user: a column to leave out; may be repeated"),
    dataset: list[str] = typer.Option([], help="a dataset to run; may be repeated"),
    rounds: int | None = typer.Option(None, min=1, help="at most this many boosting rounds"),
    seeds: int | None = typer.Option(None, min=1, help="number of seeds"),
    change: list[str] = typer.Option([], "--set", help="key=value of params.yaml; may be repeated"),
) -> None:
    """Make a workspace from the checkout's files, or change one that is there as the options say."""
    changes, given = dict[str, Any](), _changes(change)
    if root := given.get("user_table.images_root"):
        given["user_table.images_root"] = str(Path(root).expanduser().resolve())
    if table:
        columns: dict[str, Any] = {"image": image, "drop": drop, "categorical": categorical}
        others = [name for name in dataset if name != "user_table"]
        own = {key.rpartition(".")[2]: value for key, value in given.items() if "user_table." in key}
        spec = TableSpec.of({"label": label, "task": task, "split": split, **columns, **own})
        changes = changes_for(table, spec, with_classes=bool(others))
        changes["run.datasets"] = ["user_table", *others]
    elif image or drop or categorical or split or task or label != "label":
        raise UsboostError("columns and a task are of your own table; give its path with --table")
    elif profile == "user":
        raise UsboostError("the profile user is for your own table; give its path with --table")
    changes |= given
    made = not (folder / "params.yaml").exists()
    make(folder, profile=profile, datasets=dataset, rounds=rounds, seeds=seeds, changes=changes)
    if names := [] if made else differences(folder):
        print(f"{folder} keeps its own {', '.join(names)}, other than the checkout's; `diff` shows how")


@app.command()
@runtime.exit_on_error()
def run() -> None:
    """Run what is stale here, as `dvc repro` does, commit what was run, and say what is best and where it is.

    Two DVCs run, each with half of the datasets: one uses one core, as most of a small stage is imports. The
    first failure ends both, as Ctrl-C does; the same command goes on.
    """
    from dvc.dvcfile import LOCK_FILE, Lockfile
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    from tasks.folders import best_fits

    logging.getLogger("dvc").setLevel(logging.INFO)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    settings = params.load()
    try:
        Lockfile(Repo(), LOCK_FILE).load()
    except DvcException:  # cut off while it was written; a stage skips what it has made all the same
        Path(LOCK_FILE).unlink()
    fits = [f"fit@{name}" for name in settings.run.datasets]
    halves = [fork.Process(target=_reproduce, args=(half,)) for half in (fits[::2], fits[1::2]) if half]
    for half in halves:
        half.start()
    failed: list[int] = []
    try:
        while running := [half.sentinel for half in halves if half.is_alive()]:
            if failed := failed or [half.exitcode for half in halves if half.exitcode]:
                # again until the other half ends: it may have been between two stages
                own = [half.pid for half in halves] + [each.pid for _, each in servers.ours()]
                servers.end(each for each in psutil.Process().children(recursive=True) if each.pid not in own)
            wait(running, 0.5 if failed else None)
    finally:
        for half in halves:
            half.join()
    if failed := failed or [half.exitcode for half in halves if half.exitcode]:
        raise KeyboardInterrupt if 130 in failed else SystemExit(1)
    _reproduce([])
    if _call(Path(), "git", "diff", "--quiet", "HEAD", check=False).returncode:
        _call(Path(), "git", "commit", "--all", "--quiet", "--no-verify", "--message", "what was run")
    print("", *best_fits(settings), "", sep="\n")
    print(f"report   {Path('reports/index.html').resolve()}")
    print("make ui  opens MLflow (runs, curves, models) and Prefect (flow runs) on loopback")


@runtime.exit_on_error()
def _reproduce(targets: list[str]) -> None:
    """Run these stages and those before them as far as they are stale; all where none is named."""
    from dvc.exceptions import DvcException, ReproductionError
    from dvc.repo import Repo
    from dvc.stage.exceptions import StageCmdFailedError

    if targets:
        os.environ[machine.HALF] = "1"
    try:
        # as `dvc --wait-for-lock`: the other half may be reading or writing dvc.lock
        Repo(config={"core": {"autostage": True}}, _wait_for_lock=True).reproduce(targets or None)
    except ReproductionError as error:
        cause = error.__cause__
        if str(cause).endswith(" -2"):  # SIGINT came before it could say so
            raise KeyboardInterrupt from None
        if isinstance(cause, StageCmdFailedError) and not str(cause).endswith(("-9", "-11")):  # it said why
            raise SystemExit(130 if str(cause).endswith(" 130") else 1) from None
        raise UsboostError(f"{error}: {cause}") from None
    except DvcException as error:
        raise UsboostError(str(error)) from None


if __name__ == "__main__":
    app()

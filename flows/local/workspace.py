"""Workspaces: folders with their own params.yaml, data and reports, run by the same code.

`make run` has one and `make paper` another, so that real results never mix with demo ones and no file of the
checkout changes. A workspace is a Git repository of its own: DVC compares runs, and keeps experiments, as
commits of it. The checkout can be a workspace too, where dvc.lock is to be committed with the code.

Its files are made once, as the checkout has them, and are then a user's own: nothing here changes them but
an option that names the change.
"""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml as plain_yaml

from flows.local import runtime
from tasks import settings as params
from usboost.errors import UsboostError
from usboost.files import write_atomically
from usboost.models import catalogue
from usboost.table.spec import TableSpec
from usboost.table.user_table import asked_of

ROOT = Path(__file__).resolve().parents[2]

IGNORED = "/data/\n/reports/\n/.usboost/\n/dvc_plots/\n"
COPIED = ("params.yaml", "dvc.yaml", ".dvcignore", "prefect.yaml")
CODE = ("flows", "tasks", "usboost")
"""Folders of the checkout that a workspace links: what DVC's stages and Prefect's deployments run."""

app = typer.Typer(help="Make a workspace, or say where its results are.", no_args_is_help=True)


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
    seeds : number of seeds
    changes : other values by dotted key, e.g. ``{"boosting.patience": 60}``
    """
    new = not (folder / "params.yaml").exists()
    source = ROOT / "params.yaml" if new else folder / "params.yaml"
    editor = params.editor()
    document = editor.load(source.read_text())
    _change(document, profile, datasets, rounds, seeds, changes or {})
    if new:
        _find_files(document)
    params.parse(document, folder / "params.yaml")
    if new:
        _repository(folder)
        for name in COPIED[1:]:
            write_atomically(folder / name, (ROOT / name).read_bytes())
    text = io.StringIO()
    editor.dump(document, text)
    if new or any((profile, datasets, rounds, seeds, changes)):
        write_atomically(folder / "params.yaml", text.getvalue().encode())
    links = {found.name: found for module in (*CODE, *document["imports"]) for found in _found(module)}
    if not runtime.home().is_relative_to(folder.resolve()):
        links[".usboost"] = runtime.home()
    for name, target in links.items():
        _link(folder / name, target)
    if new:
        linked = [name for name in links if (folder / name).is_symlink()]
        _git(folder, "add", "--force", "--", ".gitignore", ".dvc/config", *COPIED, *linked)
        _git(folder, "commit", "--quiet", "--no-verify", "--message", "a workspace")
    return folder


def _change(
    document: dict[str, Any],
    profile: str | None,
    datasets: list[str] | None,
    rounds: int | None,
    seeds: int | None,
    changes: Mapping[str, Any],
) -> None:
    """Change the parsed params.yaml."""
    profile = document["profile"] = profile or document["profile"]
    if profile not in document["profiles"]:
        raise UsboostError(
            f"params.yaml has no profile {profile!r}; it has {', '.join(document['profiles'])}"
        )
    run, sizes = document["run"], document["profiles"][profile]
    if datasets:
        run["datasets"] = datasets
    if profile == "paper" and "ci_a" in run["datasets"]:
        run["models_of"].setdefault("ci_a", [*run["models"], "bnn"])
    if rounds:
        (sizes if profile == "user" else sizes["boosting"])["rounds"] = rounds
    if seeds:
        sizes["seeds"] = seeds
    for key, value in changes.items():
        _set(document, key, value)


def changes_for(table: Path, spec: TableSpec, *, beside: bool = False) -> dict[str, Any]:
    """Values by dotted key: the table, and the models that `usboost compare` offers for one like it.

    Raises `UsboostError` if there is no such file, or it has no such label.

    Parameters
    ----------
    spec : its label, task, images, split, categories and columns that are not used.
    beside : whether datasets with classes run beside it, by the same models.
    """
    if not table.expanduser().exists():
        raise UsboostError(
            f"the table {table} does not exist; give --table a file, or a folder of Parquet files"
        )
    task: str | None = spec.task
    if task is None:
        is_named = spec.label in spec.categorical
        task, said = ("classification", "") if is_named else asked_of(table.expanduser(), spec)
        if said:
            print(said)
    tasks = {task, "classification"} if beside else {task}
    models = [
        entry
        for name in catalogue.compared(one_table=not spec.image, task=task)
        if tasks <= set((entry := catalogue.find(name)).tasks)
    ]
    names = {entry.name for entry in models}
    if left_out := [name for name in catalogue.compared(one_table=not spec.image) if name not in names]:
        print(f"left out, since a number is predicted: {', '.join(left_out)}")
    image = list(spec.image) if len(spec.image) > 1 else next(iter(spec.image), None)
    return {
        "run.datasets": ["user_table"],
        "run.models": [entry.name for entry in models],
        "run.models_of": {},
        "user_table.table": str(table.expanduser().resolve()),
        "user_table.label": spec.label,
        "user_table.task": task,
        "user_table.image": image,
        "user_table.split_column": spec.split,
        "user_table.categorical": list(spec.categorical),
        "user_table.drop": list(spec.drop),
    }


def differences(folder: Path) -> Iterator[str]:
    """In what a workspace's files differ from the checkout's, in a line for each."""
    editor = params.editor()
    documents = [editor.load((place / "params.yaml").read_text()) for place in (folder, ROOT)]
    here, there = (dict(_flat(document)) for document in documents)
    for key in dict.fromkeys([*here, *there]):
        if here.get(key) != there.get(key):
            yield f"params.yaml, {key}: {_shown(here, key)}; in the checkout {_shown(there, key)}"
    for name in COPIED[1:]:
        if (folder / name).is_file() and (folder / name).read_bytes() != (ROOT / name).read_bytes():
            yield f"{name} is another than the checkout's"


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(values: Mapping[str, Any], key: str) -> str:
    if key not in values:
        return "not there"
    text = "null" if values[key] is None else str(values[key])
    return text if len(text) <= 60 else f"{text[:57]}…"


def _found(module: str) -> list[Path]:
    """The file or folder of a module beside the checkout's params.yaml."""
    top = module.partition(".")[0]
    return [path for path in (ROOT / f"{top}.py", ROOT / top) if path.exists()]


def _find_files(document: dict[str, Any]) -> None:
    """Make paths of files absolute that params.yaml gives as seen from the checkout."""
    for section, key in (
        (document["user_table"], "table"),
        *((section, "pretrained") for section in (document["images"], *document["table1"].values())),
        *((section, "pretrained") for section in document["table2"].values()),
    ):
        if isinstance(section.get(key), str) and (ROOT / section[key]).is_file():
            section[key] = str(ROOT / section[key])


def _repository(folder: Path) -> None:
    """Make the folder a repository of Git and DVC, with somebody to commit."""
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet")
    if _git(folder, "config", "user.email", check=False).returncode:
        _git(folder, "config", "user.name", "usboost")
        _git(folder, "config", "user.email", "usboost@localhost")
    _git(folder, "config", "commit.gpgsign", "false")
    write_atomically(folder / ".gitignore", IGNORED.encode())
    _run(folder, "dvc", "init", "--quiet", "--force")
    write_atomically(folder / ".dvc/config", (ROOT / ".dvc/config").read_bytes())


def _git(folder: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return _run(folder, "git", *words, check=check)


def _run(folder: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, cwd=folder, check=check, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise UsboostError(
            f"the command {words[0]} is not found; a workspace is a repository of Git and DVC. Install it, "
            "or activate the environment that has it"
        ) from None


def _link(link: Path, target: Path) -> None:
    if link.is_symlink():
        link.unlink()
    if not link.exists():
        link.symlink_to(target)


def _set(document: dict[str, Any], key: str, value: Any) -> None:
    """Change the value at a dotted key that params.yaml has."""
    *sections, last = key.split(".")
    found: Any = document
    for section in sections:
        found = found.get(section) if isinstance(found, dict) else None
    if not isinstance(found, dict) or last not in found:
        raise UsboostError(f"params.yaml has no key {key}; change one that it has")
    found[last] = value


def _changes(given: list[str] | None) -> dict[str, Any]:
    """``["boosting.patience=60"]`` as a mapping; values are YAML."""
    pairs = [change.partition("=") for change in given or []]
    if bad := [key for key, equals, _ in pairs if not equals]:
        raise UsboostError(f"--set {bad[0]} gives no value; write --set key=value")
    try:
        return {key: plain_yaml.safe_load(value) for key, _, value in pairs}
    except plain_yaml.YAMLError:
        raise UsboostError("a value given with --set is not valid YAML") from None


@app.command("make")
def make_command(
    folder: Annotated[Path, typer.Argument(help="folder of the workspace")],
    profile: Annotated[
        str | None, typer.Option(help="demo, user or paper; by default that of params.yaml")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="user: your table, a file or a folder of Parquet files")
    ] = None,
    label: Annotated[str, typer.Option(help="user: column of the classes, or of the number")] = "label",
    task: Annotated[
        Literal["classification", "regression"] | None,
        typer.Option(help="user: what is predicted; by default what the label looks like"),
    ] = None,
    image: Annotated[list[str] | None, typer.Option(help="user: a column of images; may be repeated")] = None,
    split: Annotated[str | None, typer.Option(help="user: column that holds train, val or test")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(help="user: a column of numbers that are categories; may be repeated")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="user: a column to leave out; may be repeated")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="a dataset to run; may be repeated")] = None,
    rounds: Annotated[int | None, typer.Option(help="at most this many boosting rounds")] = None,
    seeds: Annotated[int | None, typer.Option(help="number of seeds")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="key=value of params.yaml; may be repeated")
    ] = None,
) -> None:
    """Make a workspace from the checkout's files, or change one that is there as the options say."""

    profile = "user" if profile == "own" else profile  # its name of before

    def work() -> None:
        changes: dict[str, Any] = {}
        if table:
            changes = changes_for(
                table,
                TableSpec(
                    label,
                    image=tuple(image or ()),
                    drop=tuple(drop or ()),
                    categorical=tuple(categorical or ()),
                    task=task,
                    split=split,
                ),
                beside=bool({*(dataset or ())} - {"user_table"}),
            )
            changes |= {
                "run.datasets": ["user_table", *(name for name in dataset or () if name != "user_table")]
            }
        elif profile == "user":
            raise UsboostError("the profile user is for your own table; give its path with --table")
        changes |= _changes(change)
        made = not (folder / "params.yaml").exists()
        make(folder, profile=profile, datasets=dataset, rounds=rounds, seeds=seeds, changes=changes)
        if lines := [] if made else list(differences(folder)):
            print(f"{folder} keeps what it has, which is not all as in the checkout:")
            print("\n".join(f"  {line}" for line in lines))

    runtime.exit_on_error(work)


@app.command()
def where() -> None:
    """Say which model is best on each dataset, where this workspace's report is, and how to open the UIs."""
    from tasks.fits import results

    def work() -> None:
        for line in results.best_fits(params.load()):
            print(line)
        print(f"report   {Path('reports/index.html').resolve()}")
        print(f"scores   {Path('reports/results.csv').resolve()}")
        print("make ui  opens MLflow (runs, curves, models) and Prefect (flow runs) on loopback")

    runtime.exit_on_error(work)


if __name__ == "__main__":
    app()

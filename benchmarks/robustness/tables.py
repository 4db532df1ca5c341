"""Random tables of awkward kinds: a fitted model, asked in every way, gives equal answers or refusals.

``python -m benchmarks.robustness.tables --tables 2000 --seed 0``

Each table is written as one kind of file and fitted by the command line. Some of its rows, changed as later
rows are, are then predicted from files of every kind, from a DataFrame, by MLflow's pyfunc and by its scoring
server. What ends in a traceback, or differs, is printed with its seed.
"""

from __future__ import annotations

import decimal
import json
import os
import re
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from typer.testing import CliRunner

from usboost.cli.app import app
from usboost.errors import UsboostError
from usboost.fit.estimator import MultimodalClassifier

FILES = ("csv", "parquet", "feather", "jsonl")
CLOSE = 1e-5

WORDS = ["big", "small", "house", "in", "the", "old", "town", "by", "a", "lake"]

Maker = Callable[[np.random.Generator, int], pd.Series]


def _texts(values: Iterable[Any]) -> pd.Series:
    return pd.Series(list(values), dtype=object)


def _words(rng: np.random.Generator, n: int, words: list[Any]) -> pd.Series:
    return _texts(words[k] for k in rng.integers(0, len(words), n))


def _marked(rng: np.random.Generator, n: int, mark: str, share: float = 0.1) -> pd.Series:
    numbers = pd.Series(rng.normal(50, 10, n).round(2)).astype(str).astype(object)
    numbers[rng.random(n) < share] = mark
    return numbers


def _dates(rng: np.random.Generator, n: int) -> pd.Series:
    minutes = rng.integers(0, 700 * 1440, n)
    return pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(minutes, unit="min"))


def _written(form: str) -> Maker:
    return lambda rng, n: _dates(rng, n).dt.strftime(form).astype(object)


COLUMNS: dict[str, Maker] = {
    "integers": lambda rng, n: pd.Series(rng.integers(-5, 50, n)),
    "floats": lambda rng, n: pd.Series(rng.normal(size=n)),
    "integers beside gaps": lambda rng, n: pd.Series(rng.integers(0, 9, n) * 1.0).mask(rng.random(n) <= 0.2),
    "Int64": lambda rng, n: pd.Series(rng.integers(0, 9, n)).astype("Int64").mask(rng.random(n) < 0.2),
    "large integers": lambda rng, n: pd.Series(rng.integers(2**53, 2**60, n)),
    "decimals": lambda rng, n: pd.Series([decimal.Decimal(int(v)) / 100 for v in rng.integers(0, 9999, n)]),
    "booleans": lambda rng, n: pd.Series(rng.random(n) < 0.5),
    "boolean": lambda rng, n: pd.Series(rng.random(n) < 0.5).astype("boolean").mask(rng.random(n) < 0.2),
    "true and false": lambda rng, n: _words(rng, n, ["true", "false"]),
    "yes and no": lambda rng, n: _words(rng, n, ["yes", "no"]),
    "zero and one": lambda rng, n: pd.Series(rng.integers(0, 2, n)),
    "categories": lambda rng, n: _words(rng, n, ["red", "green", "blue", " blue ", "Émile"]),
    "pandas categories": lambda rng, n: _words(rng, n, ["u", "v", "w"]).astype("category"),
    "codes": lambda rng, n: _words(rng, n, ["007", "012", "100", "1e5", "00"]),
    "numbers as categories": lambda rng, n: _words(rng, n, ["1", "2", "2.0", "x", "y"]),
    "categories beside gaps": lambda rng, n: _words(rng, n, ["a", "b", "NA", "nan"]).where(
        rng.random(n) > 0.15, None
    ),
    "marks \\N": lambda rng, n: _marked(rng, n, r"\N"),
    "marks -": lambda rng, n: _marked(rng, n, "-"),
    "marks #DIV/0!": lambda rng, n: _marked(rng, n, "#DIV/0!", 0.03),
    "marks -999": lambda rng, n: _marked(rng, n, "-999.0"),
    "words among numbers": lambda rng, n: _marked(rng, n, "unknown", 0.3),
    "money": lambda rng, n: _texts(f"€ {v:,.2f}" for v in rng.uniform(1, 9999, n)),
    "per cent": lambda rng, n: _texts(f"{v:.1f} %" for v in rng.uniform(0, 100, n)),
    "kilograms": lambda rng, n: _texts(f"{v} kg" for v in rng.integers(1, 99, n)),
    "decimal commas": lambda rng, n: _texts(f"{v:.2f}".replace(".", ",") for v in rng.normal(size=n)),
    "numbers as text": lambda rng, n: _texts(f"{v:.3f}" for v in rng.normal(size=n)),
    "timestamps": _dates,
    "dates": lambda rng, n: _dates(rng, n).dt.date.astype(object),
    "time zones": lambda rng, n: _dates(rng, n).dt.tz_localize("Europe/Berlin", "NaT", "NaT").ffill(),
    "dates beside gaps": lambda rng, n: _dates(rng, n).mask(rng.random(n) < 0.2),
    "BigQuery": _written("%Y-%m-%d %H:%M:%S UTC"),
    "AM and PM": _written("%m/%d/%Y %I:%M:%S %p"),
    "month names": _written("%d-%b-%Y"),
    "months": _written("%Y-%m"),
    "years": _written("%Y"),
    "texts": lambda rng, n: _texts(" ".join(_words(rng, 6, WORDS)) for _ in range(n)),
    "names": lambda rng, n: _texts(f"n{v}" for v in rng.permutation(10 * n)[:n]),
    "a counter": lambda rng, n: pd.Series(np.arange(n)),
    "one value": lambda rng, n: _texts(["same"] * n),
    "nothing": lambda rng, n: _texts([None] * n),
    "intervals": lambda rng, n: pd.cut(pd.Series(rng.normal(size=n)), 3),
    "pyarrow strings": lambda rng, n: _words(rng, n, ["p", "q"]).astype("string[pyarrow]"),
    "signs": lambda rng, n: _texts(f"{v:+d}" for v in rng.integers(-9, 9, n)),
    "blanks": lambda rng, n: _words(rng, n, ["", " ", "a", "b"]),
}
LABELS: dict[str, Callable[[np.ndarray], Any]] = {
    "words": lambda y: np.where(y, "hi", "lo"),
    "booleans": lambda y: y,
    "0 and 1": lambda y: y.astype(int),
    "1.0 and 2.0": lambda y: y + 1.0,
    "words like values": lambda y: np.where(y, "1e5", "inf"),
    "words with blanks": lambda y: np.where(y, "is so", "is not"),
}


def changed(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return rows as they come later: whole columns missing, or new values among the old ones."""
    rows = rows.copy()
    name = str(rng.choice(rows.columns))
    what = rng.integers(0, 4)
    if what == 0:
        rows[name] = _texts([None] * len(rows))
    elif what == 1:
        rows[name] = rows[name].astype(object)
        rows.loc[rows.index[0], name] = None
    elif what == 2 and rows[name].dtype == object:
        rows.loc[rows.index[0], name] = "never seen"
    return rows


@dataclass(frozen=True)
class Answer:
    """Probabilities of some rows, or why there are none."""

    values: np.ndarray | None
    refusal: str = ""

    def same(self, other: Answer) -> bool:
        if self.values is None or other.values is None:
            return (self.values is None) == (other.values is None)
        one, two = self.values, other.values
        return one.shape == two.shape and bool(np.allclose(one, two, atol=CLOSE))


class Broken(Exception):
    """A traceback, or an exit without a sentence."""


def write(frame: pd.DataFrame, path: Path) -> bool:
    """Write a table; False where the kind of file cannot have it, as pandas has it."""
    if path.suffix in (".feather", ".jsonl") and _has_intervals(frame):
        return False
    writers: dict[str, Callable[[Path], Any]] = {
        ".csv": lambda path: frame.to_csv(path, index=False),
        ".parquet": frame.to_parquet,
        ".feather": frame.to_feather,
        ".jsonl": lambda path: frame.to_json(path, orient="records", lines=True, date_format="iso"),
    }
    try:
        writers[path.suffix](path)
    except Exception:
        return False
    return True


def _has_intervals(frame: pd.DataFrame) -> bool:
    """Tell whether there are pandas' intervals, which JSON has as records and Feather not at all."""
    return bool(frame.map(lambda value: isinstance(value, pd.Interval)).any(axis=None))


def command(*words: Any) -> tuple[int, str]:
    """Run the command line here; return its exit code, and what it said. Raises `Broken` of a traceback."""
    found = CliRunner().invoke(app, [str(word) for word in words])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise Broken("".join(traceback.format_exception(found.exception)))
    return found.exit_code, found.output


def _answer(predicted: pd.DataFrame) -> Answer:
    names = [name for name in predicted if str(name).startswith("p_")]
    return Answer(predicted[names].to_numpy(dtype=float))


def in_python(predict: Callable[[pd.DataFrame], pd.DataFrame], rows: pd.DataFrame) -> Answer:
    try:
        return _answer(predict(rows))
    except UsboostError as error:
        return Answer(None, str(error))
    except Exception as error:
        if "UsboostError" in traceback.format_exc() or type(error).__name__ == "MlflowException":
            return Answer(None, str(error))
        raise Broken(traceback.format_exc()) from None


def served(bundle: Path, folder: Path) -> Any:
    """Save a bundle as MLflow serves it; return it as its pyfunc."""
    import mlflow

    from tasks import served_model
    from tasks.mlflow_log import signature
    from usboost.fit.bundle import load

    mlflow.pyfunc.save_model(
        str(folder),
        python_model=str(served_model.__file__),
        artifacts={"bundle": str(bundle)},
        signature=signature(load(bundle).card),
        pip_requirements=["numpy"],
    )
    return mlflow.pyfunc.load_model(str(folder))


def requested(model: Any, rows: pd.DataFrame) -> Answer:
    """Predict by a JSON request to the scoring server of a pyfunc."""
    from fastapi.testclient import TestClient
    from mlflow.pyfunc import scoring_server

    client = TestClient(scoring_server.init(model), raise_server_exceptions=False)
    text = rows.to_json(orient="split", index=False, date_format="iso")
    reply = client.post("/invocations", json={"dataframe_split": json.loads(text)})
    if reply.status_code >= 500 or "Traceback" in reply.text:
        raise Broken(f"the server answers {reply.status_code}: {reply.text[:2000]}")
    if reply.status_code != 200:
        return Answer(None, reply.text)
    return _answer(pd.DataFrame(reply.json()["predictions"]))


def asked(bundle: Path, rows: pd.DataFrame, folder: Path) -> Iterator[tuple[str, Answer]]:
    """Yield the answers of all ways to ask; of those that lose what a column is, as JSON, refusals too."""
    out = folder / "out.parquet"
    for kind in FILES:
        path = folder / f"rows.{kind}"
        if write(rows, path):
            code, said = command("predict", bundle, path, "--out", out)
            yield kind, Answer(None, said) if code else _answer(pd.read_parquet(out))
    yield "frame", in_python(MultimodalClassifier.load(bundle).predict_frame, rows)
    model = served(bundle, folder / "served")
    yield "pyfunc", in_python(model.predict, rows)
    if not _has_intervals(rows):
        yield "server", requested(model, rows)


def one(seed: int, folder: Path) -> tuple[str, list[str]]:
    """Try one table; return how its fit ended, and what is wrong."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(40, 160))
    kinds = rng.choice(list(COLUMNS), int(rng.integers(1, 5)), replace=False)
    frame = pd.DataFrame({f"c{k} {kind}": COLUMNS[kind](rng, n) for k, kind in enumerate(kinds)})
    frame["z"] = rng.normal(size=n)
    how = str(rng.choice(list(LABELS)))
    frame["y"] = LABELS[how](frame["z"].to_numpy() + 0.5 * rng.normal(size=n) > 0)
    kind = str(rng.choice(FILES))
    told = f"seed {seed}: {', '.join(kinds)}; label {how}; fitted to {kind}"
    path, bundle = folder / f"train.{kind}", folder / "model"
    if not write(frame, path):
        return "cannot be written", []
    code, said = command("fit", path, "--label", "y", "--model", "logistic", "--no-refit", "--out", bundle)
    if code:
        why = re.sub(r"'[^']*'|[0-9]+|/\S+", "…", said.split("error: ")[-1].strip())
        fault = f"{told}: exit {code} without a sentence: {said}"
        return f"refused: {why}", [] if "error" in said else [fault]
    rows = changed(frame.drop(columns="y").head(12), rng)
    found = dict(asked(bundle, rows, folder))
    first = found["frame"]
    faults = [
        f"{told}: {name} differs from the DataFrame: {each.refusal or each.values[:2].tolist()} "  # type: ignore[index]
        f"against {first.refusal or first.values[:2].tolist()}"  # type: ignore[index]
        for name, each in found.items()
        if not each.same(first)
    ]
    return "refused at predict" if first.values is None else "answered", faults


def trials(one: Callable[[int, Path], tuple[str, list[str]]]) -> Callable[..., None]:
    """Return a command that tries random tables, and prints what is wrong, and how they ended."""

    def main(
        tables: Annotated[int, typer.Option(help="random tables")] = 2000,
        seed: Annotated[int, typer.Option(help="of the first; each has the next")] = 0,
    ) -> None:
        os.environ["USBOOST_CACHE"] = "off"
        warnings.simplefilter("ignore")
        counts: Counter[str] = Counter()
        began, wrong = time.monotonic(), 0
        for k in range(seed, seed + tables):
            with tempfile.TemporaryDirectory() as place:
                try:
                    ended, faults = one(k, Path(place))
                except Broken as error:
                    ended, faults = "a traceback", [f"seed {k}: {error}"]
            counts[ended] += 1
            wrong += len(faults)
            for fault in faults:
                print(fault, flush=True)
        for ended, count in counts.most_common():
            print(f"{count:6,} {ended}")
        print(f"{tables} tables in {time.monotonic() - began:.0f} s; {wrong} faults")
        raise typer.Exit(int(wrong > 0))

    return main


if __name__ == "__main__":
    typer.run(trials(one))

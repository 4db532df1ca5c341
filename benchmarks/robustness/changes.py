"""Tables that change between fit and predict: equal answers, a note or a refusal, and never silence.

``python -m benchmarks.robustness.changes --tables 2000 --seed 0``

A cheap model learns a rule of one column. New rows are asked about as the training rows were, and changed: in
a file of another dialect, as a frame of other names, order, types, zones and gaps, or under settings of the
process that other packages leave. A model that has not learnt the rule is a fault, too.
"""

from __future__ import annotations

import decimal
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
import typer

from benchmarks.robustness.tables import Answer, Broken, _answer, trials
from usboost.errors import UsboostError, UsboostWarning
from usboost.fit.build import fit
from usboost.fit.estimator import MultimodalClassifier
from usboost.fit.predict import predict
from usboost.table.notes import notes_of_rows
from usboost.table.source import TableFile
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

N = 60
MODELS = {
    "forest": 20,
    "lgbm": 20,
    "logistic": None,
    "linear_trees": 2,
    "2wl": 2,
    "bfv_dnn": 2,
    "baseline": 1,
}
CHEAP = ["logistic", "forest", "lgbm"]
COLOURS = np.array(["grün", "rot", "blau", "Émile", "weiß", "n/v"], dtype=object)


def drawn(rng: np.random.Generator, scale: float, rule: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Draw rows, and the labels that one of their columns decides."""
    minutes = pd.to_timedelta(rng.integers(0, 900 * 1440, N), unit="min")
    frame = pd.DataFrame(
        {
            "größe": (scale * rng.uniform(1, 9, N)).round(3),
            "menge": rng.integers(0, 90_000, N),
            "farbe": rng.choice(COLOURS, N),
            "plz": pd.Series([f"{k:05d}" for k in 101 * rng.integers(1, 5, N)], dtype=object),
            "tag": (pd.Timestamp("2020-01-01") + minutes).normalize(),
            "zeit": pd.Timestamp("2021-01-01") + minutes,
            "neu": rng.random(N) < 0.5,
        }
    )
    rules: dict[str, Any] = {
        "größe": frame["größe"] > 5 * scale,
        "menge": frame["menge"] > 45_000,
        "farbe": frame["farbe"].isin(COLOURS[::2]),
        "plz": frame["plz"].isin(["00101", "00303"]),
        "tag": frame["tag"] > pd.Timestamp("2021-03-01"),
        "zeit": frame["zeit"].dt.hour >= 12,
        "neu": frame["neu"],
    }
    return frame, np.where(rules[rule], "ja", "nein")


DIALECTS: dict[str, list[Any]] = {
    "sep": [",", ";", "\t", "|"],
    "marks": [(".", ""), (".", ","), (",", ""), (",", "."), (",", " ")],
    "encoding": ["utf-8", "utf-8-sig", "cp1252", "utf-16"],
    "date": ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d-%b-%Y", "%Y%m%d"],
    "zone": ["", "", "Z", "+02:00"],
    "form": ["NFC", "NFC", "NFD"],
    "blanks": ["", "", " "],
    "truth": [("True", "False"), ("yes", "no"), ("1", "0"), ("TRUE", "FALSE")],
    "order": [0, 1, 2, 3],
    "newline": ["\n", "\r\n"],
    "end": ["", "", ".gz"],
}
"""Ways to write a file."""


def dialect(rng: np.random.Generator, like: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Draw how a file is written; where there is one that it is `like`, some of that is another."""
    made = {key: each[rng.integers(len(each))] for key, each in DIALECTS.items()}
    made |= {key: each for key, each in (like or {}).items() if rng.random() < 0.6}
    if made["encoding"] == "cp1252":
        made["form"] = "NFC"  # it has no combining marks
    return made


def written(frame: pd.DataFrame, how: Mapping[str, Any], path: Path) -> Path:
    """Write a file of that dialect."""
    mark, group = how["marks"]
    numbers = lambda v: f"{v:,}".translate({44: group, 46: mark})  # noqa: E731
    clock = (how["date"] if how["date"] != "%Y%m%d" else "%Y-%m-%d") + " %H:%M"
    texts = frame.assign(
        größe=frame["größe"].map(lambda v: numbers(round(v, 3))),
        menge=frame["menge"].map(numbers),
        tag=frame["tag"].dt.strftime(how["date"]),
        zeit=(frame["zeit"] + pd.Timedelta(hours=2 * (how["zone"] == "+02:00"))).dt.strftime(clock)
        + how["zone"],
        neu=np.where(frame["neu"], *how["truth"]),
    ).astype(object)
    texts = texts[[*np.random.default_rng(how["order"]).permutation(list(texts))]]
    texts = texts.rename(columns=partial(unicodedata.normalize, how["form"]))
    texts = texts.map(lambda v: how["blanks"] + unicodedata.normalize(how["form"], v) + how["blanks"])
    path = path.with_name(path.name + how["end"])
    texts.to_csv(path, index=False, sep=how["sep"], encoding=how["encoding"], lineterminator=how["newline"])
    return path


def _zone(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    return frame.assign(zeit=frame["zeit"].dt.tz_localize("UTC").dt.tz_convert(name))


def _lost(frame: pd.DataFrame, rng: np.random.Generator, share: float) -> pd.DataFrame:
    name = rng.choice(list(frame))
    return frame.assign(**{name: frame[name].astype(object).where(rng.random(len(frame)) > share, None)})


FRAMES: dict[str, Callable[[pd.DataFrame, np.random.Generator], Any]] = {
    "order": lambda frame, rng: frame[[*rng.permutation(list(frame))]],
    "one more": lambda frame, rng: frame.assign(mehr=1.5),
    "one less": lambda frame, rng: frame.drop(columns=str(rng.choice(list(frame)))),
    "names NFD": lambda frame, rng: frame.rename(columns=partial(unicodedata.normalize, "NFD")),
    "blanks in names": lambda frame, rng: frame.rename(columns="{} ".format),
    "names in capitals": lambda frame, rng: frame.rename(columns=str.title),
    "twice": lambda frame, rng: pd.concat([frame, frame[[str(rng.choice(list(frame)))]]], axis=1),
    "values NFD": lambda frame, rng: frame.assign(
        farbe=frame["farbe"].map(partial(unicodedata.normalize, "NFD"), na_action="ignore")
    ),
    "capitals": lambda frame, rng: frame.assign(farbe=frame["farbe"].str.upper()),
    "blanks": lambda frame, rng: frame.assign(farbe=" " + frame["farbe"] + " "),
    "text": lambda frame, rng: frame.astype("str").where(frame.notna(), None),
    "strings": lambda frame, rng: frame.astype({"farbe": "string[pyarrow]", "plz": "category"}),
    "decimals": lambda frame, rng: frame.assign(
        größe=[None if pd.isna(v) else decimal.Decimal(str(v)) for v in frame["größe"]]
    ),
    "numbers of codes": lambda frame, rng: frame.assign(plz=pd.to_numeric(frame["plz"])),
    "floats": lambda frame, rng: frame.assign(menge=frame["menge"].astype(float)),
    "Int64": lambda frame, rng: frame.assign(menge=pd.to_numeric(frame["menge"]).astype("Int64")),
    "big-endian": lambda frame, rng: frame.assign(menge=frame["menge"].astype(float).to_numpy(">f8")),
    "0 and 1": lambda frame, rng: frame.assign(neu=frame["neu"].astype(float)),
    "yes and no": lambda frame, rng: frame.assign(neu=frame["neu"].map({True: "yes", False: "no"})),
    "German numbers": lambda frame, rng: frame.assign(
        größe=[f"{v:,.3f}".translate({44: ".", 46: ","}) for v in frame["größe"]]
    ),
    "thousandths": lambda frame, rng: frame.assign(größe=[f"{v:.3f}" for v in frame["größe"]]),
    "UTC": lambda frame, rng: _zone(frame, "UTC"),
    "New York": lambda frame, rng: _zone(frame, "America/New_York"),
    "epoch": lambda frame, rng: frame.assign(zeit=frame["zeit"].astype("int64")),
    "dates as text": lambda frame, rng: frame.assign(tag=frame["tag"].dt.strftime("%d.%m.%Y")),
    "American dates": lambda frame, rng: frame.assign(tag=frame["tag"].dt.strftime("%m/%d/%Y")),
    "days": lambda frame, rng: frame.assign(zeit=frame["zeit"].dt.normalize()),
    "an empty column": lambda frame, rng: _lost(frame, rng, 1.0),
    "half a column": lambda frame, rng: _lost(frame, rng, 0.5),
    "an index": lambda frame, rng: frame.set_index(np.arange(len(frame)) // 2),
    "an index of columns": lambda frame, rng: frame.set_axis(pd.Index(list(frame), name="c"), axis=1),
    "an array": lambda frame, rng: frame.to_numpy(dtype=object),
    "lists": lambda frame, rng: frame.to_numpy(dtype=object).tolist(),
    "records": lambda frame, rng: frame.to_records(index=False),
    "Arrow": lambda frame, rng: pa.Table.from_pandas(frame, preserve_index=False),
    "places": lambda frame, rng: frame.set_axis(range(frame.shape[1]), axis=1),
}


@contextmanager
def dtype(kind: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "float64": partial(dtype, torch.float64),
    "float16": partial(dtype, torch.float16),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "meta": partial(torch.device, "meta"),
    "autocast": partial(torch.autocast, "cpu", dtype=torch.bfloat16),
    "seterr": partial(np.errstate, all="raise"),
    "printing": partial(np.printoptions, legacy="1.13", precision=2),
    "decimals": lambda: decimal.localcontext(decimal.Context(prec=2, traps=[decimal.Inexact])),
    "pandas": partial(pd.option_context, "mode.copy_on_write", True, "future.infer_string", False),
    "warnings": lambda: warnings.catch_warnings(action="error", category=RuntimeWarning),
}


def in_python(work: Callable[[], Any]) -> tuple[Answer, str]:
    """Return the answer of an estimator, and its notes."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UsboostWarning)
        try:
            answer = _answer(work())
        except UsboostError as error:
            answer = Answer(None, str(error))
    return answer, _of_values(str(each.message) for each in found)


def _of_values(notes: Iterable[str]) -> str:
    """Join notes; what is said of columns that are ignored says nothing of the others."""
    return " ".join(note for note in notes if not note.startswith("columns ignored"))


Rows = tuple[pd.DataFrame, np.ndarray, pd.DataFrame]
"""Training rows, their labels, and new rows."""
Tried = tuple[str, Answer, Answer, str]
"""What was changed; the answers to the new rows as they were, and changed; what was said of these."""


def by_settings(rng: np.random.Generator, rows: Rows, folder: Path) -> Tried:
    train, y, new = rows
    model = str(rng.choice(list(MODELS)))
    names = [str(name) for name in rng.choice(list(SETTINGS), 2, replace=False)]
    make = partial(MultimodalClassifier, model, rounds=MODELS[model], refit=False)
    right, _ = in_python(lambda: make().fit(train, y).predict_frame(new))
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(SETTINGS[name]())
        found, _ = in_python(lambda: make().fit(train, y).predict_frame(new))
    return f"{model}; {', '.join(names)}", right, found, ""


def by_files(rng: np.random.Generator, rows: Rows, folder: Path) -> Tried:
    train, y, new = rows
    one = dialect(rng)
    other = dialect(rng, one)
    path = written(train.assign(y=y), one, folder / "train.csv")
    try:
        model = fit(
            read_table(TableFile.open(path), TableSpec("y")), str(rng.choice(CHEAP)), rounds=20, refit=False
        )
    except UsboostError as error:
        return f"{one}", Answer(None, str(error)), Answer(None), str(error)

    def asked(how: Mapping[str, Any], name: str) -> tuple[Answer, str]:
        given = written(new, how, folder / name)
        try:
            tally = predict(model.bundle, given, folder / "p.parquet")
        except UsboostError as error:
            return Answer(None, str(error)), str(error)
        return _answer(pd.read_parquet(folder / "p.parquet")), _of_values(notes_of_rows(tally))

    right, (found, said) = asked(one, "same.csv")[0], asked(other, "other.csv")
    differs = {key: (each, other[key]) for key, each in one.items() if each != other[key] and key != "order"}
    return f"{differs}", right, found, said


def by_frames(rng: np.random.Generator, rows: Rows, folder: Path) -> Tried:
    train, y, new = rows
    model = MultimodalClassifier(str(rng.choice(CHEAP)), rounds=20, refit=False)
    chosen = [str(name) for name in rng.choice(list(FRAMES), int(rng.integers(1, 3)), replace=False)]
    made = new
    try:
        for name in chosen:
            made = FRAMES[name](made, rng)
    except (AttributeError, LookupError, TypeError, ValueError):
        return "", Answer(None), Answer(None), "changes that do not go together"
    right, _ = in_python(lambda: model.fit(train, y).predict_frame(new))
    found, said = in_python(lambda: model.predict_frame(made))
    return f"{', '.join(chosen)}", right, found, said + found.refusal


def one(seed: int, folder: Path) -> tuple[str, list[str]]:
    """Try one table; return how it ended, and what is wrong."""
    rng = np.random.default_rng(seed)
    rule = str(rng.choice(["größe", "menge", "farbe", "plz", "tag", "zeit", "neu"]))
    scale = float(rng.choice([1, 700, 1e5]))
    (train, y), (new, true) = (drawn(rng, scale, rule) for _ in range(2))
    way = (by_settings, by_files, by_frames, by_files, by_frames)[seed % 5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            changes, right, found, said = way(rng, (train, y, new), folder)
        except Exception:
            raise Broken(f"{way.__name__}, {rule}: {traceback.format_exc()}") from None
    name = way.__name__
    if right.values is None:
        return f"{name}: not tried ({right.refusal[:60]})", []
    share = ((right.values[:, 0] > right.values[:, 1]) == (true == "ja")).mean()
    share = max(share, 1 - share)  # the classes' order is that of the file
    if found.values is not None and right.same(found):
        return f"{name}: equal answers" + (" and a note" if said else ""), []
    if said:
        return f"{name}: " + ("refused" if found.values is None else "a note"), []
    told = f"seed {seed}: {name}, rule of {rule}, {share:.2f} right before; {changes}"
    return f"{name}: other answers", [told]


if __name__ == "__main__":
    typer.run(trials(one))

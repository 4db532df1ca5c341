"""Tables that change between fit and predict: equal answers, a note or a refusal, and never silence.

``python -m benchmarks.robustness.changes --tables 2000 --seed 0``

A cheap model learns a rule of one column. New rows are asked about as the training rows were, and changed: in
a file of another dialect, as a frame of other names, order, types, zones and gaps, or under settings of the
process that other packages leave.
"""

import decimal
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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

N, CHEAP = 60, ("logistic", "forest", "lgbm")
MODELS = (*CHEAP, "linear_trees", "2wl", "bfv_dnn", "baseline")
Rows = tuple[pd.DataFrame, np.ndarray, pd.DataFrame]
"""Training rows, their labels, and new rows."""
Tried = tuple[str, Answer, Answer, str]
"""The change; answers to the new rows as they were, and changed; what was said of these."""


def drawn(rng: np.random.Generator, scale: float, rule: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Draw rows, and the labels that one of their columns decides."""
    minutes = pd.to_timedelta(rng.integers(0, 900 * 1440, N), unit="min")
    size, count = (scale * rng.uniform(1, 9, N)).round(3), rng.integers(0, 90_000, N)
    new = rng.random(N) < 0.5
    colour, code = (rng.choice(np.array(each, object), N) for each in (COLOURS, CODES))
    day, time = (pd.Timestamp("2020-01-01") + minutes).normalize(), pd.Timestamp("2021-01-01") + minutes
    values = {"größe": size, "menge": count, "farbe": colour, "plz": code, "tag": day, "zeit": time}
    late = {"größe": size > 5 * scale, "menge": count > 45_000, "farbe": np.isin(colour, ["grün", "n/v"])}
    late |= {"plz": np.isin(code, CODES[:2]), "tag": day > day.mean(), "zeit": time.hour >= 12, "neu": new}
    return pd.DataFrame({**values, "neu": new}), np.where(late[rule], "ja", "nein")


COLOURS = ["grün", "rot", "Émile", "n/v"]
CODES = ["00101", "00303", "00202", "00404"]
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
    # which has no combining marks
    return made | ({"form": "NFC"} if made["encoding"] == "cp1252" else {})


def written(frame: pd.DataFrame, how: Mapping[str, Any], path: Path) -> Path:
    """Write a file of that dialect; times are in UTC, or clocks."""
    signs = str.maketrans({",": how["marks"][1], ".": how["marks"][0]})
    clock = ("%Y-%m-%d" if how["date"] == "%Y%m%d" else how["date"]) + " %H:%M"
    texts = frame.assign(
        **{name: [f"{v:,}".translate(signs) for v in frame[name]] for name in ("größe", "menge")},
        tag=frame["tag"].dt.strftime(how["date"]),
        zeit=(frame["zeit"] + pd.Timedelta(hours=2 * (how["zone"] == "+02:00"))).dt.strftime(clock)
        + how["zone"],
        neu=np.where(frame["neu"], *how["truth"]),
    ).rename(columns=partial(unicodedata.normalize, how["form"]))
    texts = texts.map(lambda v: how["blanks"] + unicodedata.normalize(how["form"], v) + how["blanks"])
    path, order = path.with_name(path.name + how["end"]), np.random.default_rng(how["order"])
    texts = texts[[*order.permutation(list(texts))]]
    texts.to_csv(path, index=False, sep=how["sep"], encoding=how["encoding"], lineterminator=how["newline"])
    return path


def one_of(f: pd.DataFrame, rng: np.random.Generator) -> str:
    return str(rng.choice(list(f)))


def lost(f: pd.DataFrame, name: str, kept: np.ndarray) -> pd.DataFrame:
    return f.assign(**{name: f[name].astype(object).where(kept, None)})


def zoned(f: pd.DataFrame, zone: str) -> pd.DataFrame:
    return f.assign(zeit=f["zeit"].dt.tz_localize("UTC").dt.tz_convert(zone))


NFD = partial(unicodedata.normalize, "NFD")
FRAMES: dict[str, Callable[[pd.DataFrame, np.random.Generator], Any]] = {
    "order": lambda f, rng: f[[*rng.permutation(list(f))]],
    "one more": lambda f, _: f.assign(mehr=1.5),
    "one less": lambda f, rng: f.drop(columns=one_of(f, rng)),
    "twice": lambda f, rng: pd.concat([f, f[[one_of(f, rng)]]], axis=1),
    "names NFD": lambda f, _: f.rename(columns=NFD),
    "names in capitals": lambda f, _: f.rename(columns=str.title),
    "names with blanks": lambda f, _: f.rename(columns="{} ".format),
    "values NFD": lambda f, _: f.assign(farbe=f["farbe"].map(NFD)),
    "values in capitals": lambda f, _: f.assign(farbe=f["farbe"].str.upper()),
    "values with blanks": lambda f, _: f.assign(farbe=" " + f["farbe"] + " "),
    "text": lambda f, _: f.astype("str").where(f.notna(), None),
    "strings": lambda f, _: f.astype({"farbe": "string[pyarrow]", "plz": "category"}),
    "decimals": lambda f, _: f.assign(größe=f["größe"].map(lambda v: decimal.Decimal(str(v)))),
    "numbers for codes": lambda f, _: f.assign(plz=pd.to_numeric(f["plz"])),
    "floats": lambda f, _: f.astype({"menge": float, "neu": float}),
    "Int64": lambda f, _: f.astype({"menge": "Int64", "neu": "boolean"}),
    "big-endian": lambda f, _: f.assign(menge=f["menge"].astype(float).to_numpy(">f8")),
    "yes and no": lambda f, _: f.assign(neu=f["neu"].map({True: "yes", False: "no"})),
    "commas": lambda f, _: f.assign(größe=[f"{v:.3f}".replace(".", ",") for v in f["größe"]]),
    "UTC": lambda f, _: zoned(f, "UTC"),
    "New York": lambda f, _: zoned(f, "America/New_York"),
    "epoch": lambda f, _: f.assign(zeit=f["zeit"].astype("int64")),
    "days": lambda f, _: f.assign(zeit=f["zeit"].dt.normalize()),
    "German dates": lambda f, _: f.assign(tag=f["tag"].dt.strftime("%d.%m.%Y")),
    "American dates": lambda f, _: f.assign(tag=f["tag"].dt.strftime("%m/%d/%Y")),
    "an empty column": lambda f, rng: lost(f, one_of(f, rng), np.zeros(len(f), bool)),
    "half a column": lambda f, rng: lost(f, one_of(f, rng), rng.random(len(f)) < 0.5),
    "a fill value": lambda f, rng: f.assign(menge=f["menge"].where(rng.random(len(f)) < 0.5, -999_999)),
    "an index": lambda f, _: f.set_index(np.arange(len(f)) // 2),
    "an array": lambda f, _: f.to_numpy(dtype=object),
    "records": lambda f, _: f.to_records(index=False),
    "Arrow": lambda f, _: pa.Table.from_pandas(f, preserve_index=False),
    "places": lambda f, _: f.set_axis(range(f.shape[1]), axis=1),
}


@contextmanager
def dtype(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        assert torch.get_default_dtype() == kind, "not given back"
        torch.set_default_dtype(before)


@contextmanager
def device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


SETTINGS: dict[str, Callable[[], Any]] = {
    "float64": partial(dtype, torch.float64),
    "float16": partial(dtype, torch.float16),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "meta": partial(device, "meta"),
    "device block": partial(torch.device, "meta"),
    "autocast": partial(torch.autocast, "cpu", dtype=torch.bfloat16),
    "seterr": partial(np.errstate, all="raise"),
    "printing": partial(np.printoptions, legacy="1.13", precision=2),
    "decimals": lambda: decimal.localcontext(decimal.Context(prec=2, traps=[decimal.Inexact])),
    "warnings": partial(warnings.catch_warnings, action="error", category=RuntimeWarning),
}


def of_values(notes: Iterable[str]) -> str:
    """Join notes; what is said of columns that are ignored says nothing of the others."""
    return " ".join(note for note in notes if not note.startswith("columns ignored"))


def said(work: Callable[[], Any]) -> tuple[Answer, str]:
    """Return the answer of an estimator, and its notes, or why it refuses."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UsboostWarning)
        try:
            return _answer(work()), of_values(str(each.message) for each in found)
        except UsboostError as error:
            return Answer(None, str(error)), str(error)


def by_settings(rng: np.random.Generator, rows: Rows, folder: Path) -> Tried:
    train, y, new = rows
    model = str(rng.choice(MODELS))
    chosen = [str(name) for name in rng.choice(list(SETTINGS), 2, replace=False)]

    def answer() -> Answer:
        made = MultimodalClassifier(model, rounds=20 if model in CHEAP[1:] else 2, refit=False)
        return said(lambda: made.fit(train, y).predict_frame(new))[0]

    right = answer()
    with ExitStack() as stack:
        for name in chosen:
            stack.enter_context(SETTINGS[name]())
        return f"{model}; {chosen}", right, answer(), ""


def by_files(rng: np.random.Generator, rows: Rows, folder: Path) -> Tried:
    train, y, new = rows
    other, model = dialect(rng, one := dialect(rng)), str(rng.choice(CHEAP))
    path, out = written(train.assign(y=y), one, folder / "train.csv"), folder / "p.parquet"
    differs = {key: (each, other[key]) for key, each in one.items() if each != other[key]}
    bundle: Any = None

    def asked(how: Mapping[str, Any], name: str) -> tuple[Answer, str]:
        try:
            tally = predict(bundle, written(new, how, folder / name), out)
        except UsboostError as error:
            return Answer(None, str(error)), str(error)
        return _answer(pd.read_parquet(out)), of_values(notes_of_rows(tally))

    try:
        table = read_table(TableFile.open(path), TableSpec("y"))
        bundle = fit(table, model, rounds=20, refit=False).bundle
    except UsboostError as error:
        return f"{one}", Answer(None, str(error)), Answer(None), ""
    return f"{differs}", asked(one, "same.csv")[0], *asked(other, "other.csv")


def by_frames(rng: np.random.Generator, rows: Rows, folder: Path) -> Tried:
    train, y, new = rows
    chosen = [str(name) for name in rng.choice(list(FRAMES), int(rng.integers(1, 3)), replace=False)]
    made = new
    try:
        for name in chosen:
            made = FRAMES[name](made, rng)
    except (ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError):
        return "", Answer(None, "changes that do not go together"), Answer(None), ""
    model = MultimodalClassifier(str(rng.choice(CHEAP)), rounds=20, refit=False)
    right = said(lambda: model.fit(train, y).predict_frame(new))[0]
    return f"{chosen}", right, *said(lambda: model.predict_frame(made))


def one(seed: int, folder: Path) -> tuple[str, list[str]]:
    """Try one table; return how it ended, and what is wrong."""
    rng = np.random.default_rng(seed)
    rule = str(rng.choice(["größe", "menge", "farbe", "plz", "tag", "zeit", "neu"]))
    scale = float(rng.choice([1, 700, 1e5]))
    way = (by_settings, by_files, by_frames, by_files, by_frames)[seed % 5]
    (train, y), (new, true) = (drawn(rng, scale, rule) for _ in range(2))
    name, told = way.__name__, f"seed {seed}, {way.__name__}, rule of {rule}"
    with warnings.catch_warnings(action="ignore"):
        try:
            changes, right, found, note = way(rng, (train, y, new), folder)
        except Exception:
            raise Broken(f"{told}: {traceback.format_exc()}") from None
    if right.values is None:
        return f"{name}: not tried, {right.refusal[:60]}", []
    share = np.equal(*(right.values.argmax(axis=1), true == "nein")).mean()
    if found.values is not None and right.same(found):
        return f"{name}: equal answers" + " and a note" * bool(note), []
    if note:
        return f"{name}: " + ("refused" if found.values is None else "a note"), []
    return f"{name}: other answers", [f"{told}, {max(share, 1 - share):.2f} right before: {changes}"]


if __name__ == "__main__":
    typer.run(trials(one))

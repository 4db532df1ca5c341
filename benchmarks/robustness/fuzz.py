"""Mutated files through every reader: it answers or raises UsboostError, in bounded time.

``python -m benchmarks.robustness.fuzz --inputs 200000 --seed 0 --keep FOLDER`` keeps what breaks it.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
import yaml
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from benchmarks.robustness import valid_inputs
from benchmarks.robustness.mutations import WILD_TEXT, Mutate, changed, damaged, edited
from tasks import settings
from tasks.fits.features import read_features, write_features
from usboost.datasets import census, covertype, imagenet, sequences, store
from usboost.datasets.image_files import load as load_image
from usboost.errors import UsboostError
from usboost.files.arrays import sha256
from usboost.models import persistence
from usboost.table import prepared as user_table
from usboost.table.prepared import read_prepared
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_columns

SECONDS = 30.0
"""The longest that one input may take."""

MEMORY = 1536
"""MiB by which all inputs together may raise the process's peak memory."""


@dataclass
class Target:
    """A reader, a valid set of files for it, and how each of them is mutated.

    Attributes
    ----------
    files : valid content by name.
    read : what is called with the folder that holds them.
    mutations : per file name, the kinds of mutation that are drawn from; `damaged` for one not named.
    after : called with the folder when a file has been written, to make digests right again.
    share : how many inputs it gets for each one of a target with share 1; fewer where one takes 0.1 s.
    """

    name: str
    files: dict[str, bytes]
    read: Callable[[Path], Any]
    mutations: dict[str, tuple[Mutate, ...]] = field(default_factory=dict)
    after: Callable[[Path], None] = lambda folder: None
    share: float = 1.0


@dataclass
class Failure:
    """An input that did something else than succeed or raise UsboostError."""

    target: str
    what: str
    where: str
    file: str
    data: bytes
    trace: str


@dataclass
class Outcome:
    inputs: int = 0
    refused: int = 0
    slowest: float = 0.0
    failures: list[Failure] = field(default_factory=list)


class TooSlow(BaseException):
    """Not an Exception, so that no reader takes it for damage."""


def json_file(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return json.dumps(changed(rng, json.loads(data))).encode()


def parquet_file(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Write valid Parquet that has what it should not: types, values, names, rows, columns."""
    table = pq.read_table(io.BytesIO(data))
    for _ in range(rng.choice((1, 1, 2))):
        table = _wrong(rng, table)
    out = io.BytesIO()
    try:
        pq.write_table(table, out, row_group_size=rng.choice((5, 1000)))
    except (pa.ArrowException, UnicodeError, ValueError, OSError):
        return damaged(rng, data, other)
    return out.getvalue()


def _wrong(rng: random.Random, table: pa.Table) -> pa.Table:
    n, names, texts = table.num_columns, table.column_names, _PRINTABLE
    at = rng.randrange(n) if n else 0
    edits: list[Callable[[], pa.Table]] = [
        lambda: table.slice(rng.randrange(3), rng.randrange(table.num_rows + 1)),
        lambda: table.append_column(rng.choice([*texts, *names]), _column(rng, table.num_rows)),
        lambda: table.select(rng.sample(range(n), n)),
        lambda: table.replace_schema_metadata({b"pandas": rng.choice(_METADATA)}),
        # the others are of a column
        lambda: table.set_column(at, names[at], _column(rng, table.num_rows)),
        lambda: table.remove_column(at),
        lambda: table.rename_columns([*names[:at], rng.choice(texts), *names[at + 1 :]]),
    ]
    return rng.choice(edits if n else edits[:4])()


_PRINTABLE = [text for text in WILD_TEXT if text.isprintable()]
_METADATA = (b"{", b"[]", b'{"columns": 3}', b'{"columns": [{"pandas_type": "x"}]}', b"\xff")


def _column(rng: random.Random, n: int) -> pa.Array:
    """Draw a column whose values are all of one awkward kind, in one of many types."""
    pools: list[tuple[Any, ...]] = [
        (1e300, -1e300, float("nan"), float("inf"), 0.0, 1.5),
        (2**62, -(2**62), 0, 1),
        tuple(_PRINTABLE),
        (None, "a", "b"),
        (b"", b"\xff\xfe", valid_inputs.image(0), None),
        (None,),
        ([1], []),
        ({"a": 1},),
        (True, False),
    ]
    pool = rng.choice(pools)
    made = pa.array([rng.choice(pool) for _ in range(n)])
    kind = rng.choice((None, None, pa.dictionary(pa.int8(), made.type), pa.float16(), pa.timestamp("ns")))
    kind = rng.choice((kind, pa.decimal128(38, 3), pa.large_string(), pa.large_binary(), pa.uint64(), None))
    try:
        return made.cast(kind) if kind is not None else made
    except pa.ArrowException:
        return made


def tensors(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Write valid safetensors whose arrays have other values, shapes, types or names."""
    arrays = dict(load_arrays(data))
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(arrays) or ["x"])
        array = arrays.get(name, np.zeros(3))
        what = rng.randrange(6)
        if what == 0:
            arrays.pop(name, None)
        elif what == 1 and array.size:
            array = arrays[name] = array.copy()
            array.reshape(-1)[rng.randrange(array.size)] = rng.choice((-1, 0, 1, 3, 2**31 - 1, -(2**31)))
        elif what == 2:
            arrays[name] = array.astype(rng.choice((np.float64, np.int64, np.uint8, np.bool_, np.float16)))
        elif what == 3:
            arrays[name] = array.reshape(rng.choice(((-1,), (1, -1), (-1, 1))))
        elif what == 4:
            arrays[name] = np.resize(array, rng.randrange(5))
        else:
            arrays[rng.choice(("", "x", "0/U", "0/U/", "9/U/x", "a/b/c", f"{name}x"))] = array
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return save_arrays({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def zip_members(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Write a valid zip with members damaged, renamed, repeated or left out."""
    members = valid_inputs.tiny_imagenet()
    name = rng.choice(list(members))
    what = rng.randrange(4)
    if what == 0:
        del members[name]
    elif what == 1:
        wild = rng.choice(("../x", "/abs/train/x", "C:/x", "train/", "a/train/b/c.JPEG", "tiny/train/n0/x"))
        members[wild] = members.pop(name)
    elif what == 2:
        note = "tiny/val/val_annotations.txt"
        members[note] = edited(rng, members[note], other)
    else:
        members[name] = damaged(rng, members[name], other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return valid_inputs.zipped(members)


def targets(work: Path) -> list[Target]:
    """Return every reader with its valid inputs; `work` is a folder for what they write."""
    packed = {"t.zip": valid_inputs.zipped(valid_inputs.tiny_imagenet())}
    params = Path(__file__).resolve().parents[2] / "params.yaml"
    document = json.dumps(yaml.safe_load(params.read_text(encoding="utf-8"))).encode()  # JSON is YAML

    def tiny_imagenet(folder: Path) -> None:
        imagenet.prepare(folder / "t.zip", seed=0, profile="demo", size=8, work=work / "mi")

    def image(folder: Path) -> None:
        load_image((folder / "f").read_bytes(), size=8, channels=3)

    def text(name: str, content: bytes, read: Callable[[Path], Any], share: float = 1.0) -> Target:
        return Target(name, {"f": content}, lambda folder: read(folder / "f"), {"f": (edited,)}, share=share)

    def gzipped(name: str, content: bytes, read: Callable[[Path], Any]) -> Target:
        def inside(rng: random.Random, data: bytes, other: bytes) -> bytes:
            return gzip.compress(edited(rng, gzip.decompress(data), other), 1, mtime=0)

        packed = {"f": gzip.compress(content, 1, mtime=0)}
        return Target(f"{name} gz", packed, lambda folder: read(folder / "f"), {"f": (damaged, inside)})

    of_yaml, of_features = {"p": (json_file, json_file, edited)}, {"train.parquet": (damaged, parquet_file)}
    numbers = [np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)]
    images = valid_inputs.images()
    features = _files(lambda place: write_features(iter(numbers), place / "train.parquet"))
    return [
        text("census", valid_inputs.census(), census.read, 1.5),
        gzipped("census", valid_inputs.census(), census.read),
        text("covertype", valid_inputs.cover(), covertype.read, 1.5),
        gzipped("covertype", valid_inputs.cover(), covertype.read),
        text("pen digits", valid_inputs.pendigits(), sequences.read_pendigits),
        text(".ts", valid_inputs.TS, sequences.read_ts, 1.5),
        *_tables(work),
        Target("Tiny ImageNet zip", packed, tiny_imagenet, {"t.zip": (damaged, zip_members)}, share=0.1),
        Target(
            "params.yaml", {"p": document}, lambda folder: settings.load(folder / "p"), of_yaml, share=0.2
        ),
        *_models(),
        *_prepared(work),
        Target("boosted features", features, lambda folder: read_features(folder, "train", 9), of_features),
        *(Target(f"{kind} image", {"f": data}, image, share=0.25) for kind, data in images.items()),
    ]


def _files(make: Callable[[Path], object]) -> dict[str, bytes]:
    """Return by name the content of the files that `make` leaves in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        paths = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _tables(work: Path) -> Iterator[Target]:
    frame, roles = valid_inputs.frame(), {"label": "kind", "categorical": ("count",)}
    spec, with_images, into = TableSpec(**roles), TableSpec(image="image", size=8, **roles), work / "images"

    def prepared(name: str, wanted: TableSpec) -> Callable[[Path], Any]:
        return lambda folder: user_table.prepare(folder / name, wanted, seed=0, work=into)

    def columns(name: str) -> Callable[[Path], Any]:
        return lambda folder: read_columns(folder / name, spec)

    csv, parquet = {"t.csv": (edited,)}, {"t.parquet": (damaged, parquet_file)}
    yield Target("CSV table", {"t.csv": valid_inputs.csv_table()}, prepared("t.csv", spec), csv, share=0.5)
    whole = {"t.parquet": valid_inputs.parquet(frame)}
    yield Target("Parquet table", whole, columns("t.parquet"), {"t.parquet": (damaged, *[parquet_file] * 2)})
    for name, written in valid_inputs.other_tables(frame).items():
        kinds = (edited, damaged) if name.endswith("l") else (damaged,)
        yield Target(f"table {name}", {name: written}, columns(name), {name: kinds}, share=0.15)
    yield Target("table with paths", _with_paths(), prepared("t.csv", with_images), csv, share=0.15)
    bytes_of = [valid_inputs.image(row % 4) for row in range(len(frame))]
    encoded = {"t.parquet": valid_inputs.parquet(frame.assign(image=bytes_of))}
    yield Target("table with bytes", encoded, prepared("t.parquet", with_images), parquet, share=0.5)


def _with_paths() -> dict[str, bytes]:
    """Return a table with paths of images, and the images, by name."""
    frame = valid_inputs.frame()
    paths = frame.assign(image=[f"p{row % 4}.png" for row in range(len(frame))])
    files = {f"p{k}.png": valid_inputs.image(k) for k in range(4)}
    return {"t.csv": paths.to_csv(index=False).encode(), **files}


def _models() -> Iterator[Target]:
    """Yield model folders as they are, and with the digests made right: then nothing but checks protects."""
    for name, (model, X) in valid_inputs.models().items():
        files = _files(lambda place, model=model: persistence.save(model, place / "m"))
        files = {file.removeprefix("m/"): data for file, data in files.items()}
        kinds: dict[str, tuple[Mutate, ...]] = {
            file: (damaged, *[json_file if file.endswith(".json") else tensors] * 2) for file in files
        }

        def read(folder: Path, X: Any = X) -> None:
            model = persistence.load(folder)
            getattr(model, "predict_proba", model.predict)(X)

        yield Target(f"model {name}", files, read, kinds, share=0.3)
        yield Target(f"model {name}, digests right", files, read, kinds, _right_digests, share=0.3)


def _right_digests(folder: Path) -> None:
    for path in folder.rglob("*.json"):
        try:
            document = json.loads(path.read_bytes())
            for name in document["files"]:
                document["files"][name] = sha256(path.parent / name)
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            continue
        path.write_text(json.dumps(document))


def _prepared(work: Path) -> Iterator[Target]:
    """Yield prepared data, and a prepared table of a user, as they are and with the digests made right."""

    def of_user(place: Path) -> None:
        for name, content in _with_paths().items():
            (place / name).write_bytes(content)
        spec = TableSpec(label="kind", image="image", size=8)
        store.write(user_table.prepare(place / "t.csv", spec, seed=0, work=place / "w"), place / "p")

    def read(folder: Path) -> None:
        store.read(folder, "train")
        store.read(folder, "train", image_budget=0)[0]["U"].decode()

    def read_table(folder: Path) -> None:
        table = read_prepared(folder)
        table.fit_encoding(np.flatnonzero(table.split == "train"))

    data = _files(lambda place: valid_inputs.write_prepared(place / "p", place / "w"))
    for name, files, reader, share in (
        ("prepared", {k: v for k, v in data.items() if "train" in k or k.endswith("card.json")}, read, 1.0),
        ("prepared table", _files(of_user), read_table, 0.3),
    ):
        own = {k.removeprefix("p/"): v for k, v in files.items() if k.startswith("p/")}
        kinds: dict[str, tuple[Mutate, ...]] = {
            file: (json_file, json_file, damaged) if file == "card.json" else (damaged, parquet_file)
            for file in own
            if "train" in file or file == "card.json"
        }
        yield Target(name, own, reader, kinds, share=share)
        yield Target(f"{name}, digests right", own, reader, kinds, _right_card, share=0.7)


def _right_card(folder: Path) -> None:
    try:
        card = json.loads((folder / "card.json").read_bytes())
        card["splits"]["train"]["sha256"] = sha256(folder / "train.parquet")
        for shard in card["images"]["splits"]["train"]["shards"]:
            path = folder / "images" / "train" / shard["file"]
            shard["sha256"], shard["bytes"] = sha256(path), path.stat().st_size
    except (ValueError, KeyError, TypeError, OSError, RecursionError, AttributeError, IndexError):
        return
    (folder / "card.json").write_text(json.dumps(card))


def run(inputs: int, seed: int, wanted: str = "") -> dict[str, Outcome]:
    """Read `inputs` mutated files in all; return the outcome of each target.

    Of failures at the same place only the first is kept. Equal arguments give equal inputs.
    """
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = Path(folder)
        chosen = [target for target in targets(work) if wanted in target.name]
        shares = max(int(sum(target.share for target in chosen)), 1)
        for k, target in enumerate(chosen):
            n = -(-int(inputs * target.share) // shares)
            outcomes[target.name] = _run_target(target, n, random.Random(f"{seed}/{k}"), work / str(k))
            shutil.rmtree(work / str(k))
    return outcomes


def _run_target(target: Target, n: int, rng: random.Random, folder: Path) -> Outcome:
    outcome, seen = Outcome(), set()
    for name, data in target.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    target.read(folder)  # what is not mutated is read
    names = sorted(target.files)
    for _ in range(n):
        name = rng.choice(names)
        mutate = rng.choice(target.mutations.get(name, (damaged,)))
        data = mutate(rng, target.files[name], target.files[rng.choice(names)])
        _write_anew(folder / name, data)
        target.after(folder)
        started = time.perf_counter()
        failure = attempt(target.read, folder)
        outcome.slowest = max(outcome.slowest, time.perf_counter() - started)
        outcome.inputs += 1
        outcome.refused += failure is not None
        if failure is not None and not isinstance(failure, UsboostError):
            where = _where(failure)
            if (type(failure), where) not in seen:
                seen.add((type(failure), where))
                trace = "".join(traceback.format_exception(failure)[-6:])
                what = f"{type(failure).__name__}: {str(failure)[:200]}"
                outcome.failures.append(Failure(target.name, what, where, name, data, trace))
        for restored in {name, "card.json", "model.json"} & target.files.keys():
            _write_anew(folder / restored, target.files[restored])
    return outcome


def _write_anew(path: Path, data: bytes) -> None:
    """Write a new file: file systems wait for the disk when one is cut to nothing and written again."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def attempt(read: Callable[[Path], Any], folder: Path) -> BaseException | None:
    """Read, and return what it raises, within `SECONDS`."""

    def ring(*_: object) -> None:
        raise TooSlow(f"took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        read(folder)
    except (Exception, TooSlow) as error:
        return error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None


def _where(error: BaseException) -> str:
    """Return the innermost line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/usboost/" in f.filename or "/tasks/" in f.filename] or list(frames)
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"


def peak_memory() -> int:
    """Return this process's peak in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(inputs: int = 200_000, seed: int = 0, only: str = "", keep: Path | None = None) -> None:
    """Read mutated files of targets whose name has `only`; `keep`: a folder for those that break a reader."""
    started = time.perf_counter()
    valid_inputs.models()
    before = peak_memory()
    outcomes = run(inputs, seed, wanted=only)
    grown = peak_memory() - before
    for name, one in outcomes.items():
        numbers = f"{one.inputs:7,} inputs, {one.refused:7,} refused, slowest {one.slowest:.2f} s"
        print(f"{name:32} {numbers}, {len(one.failures)} failures")
    failures = [failure for one in outcomes.values() for failure in one.failures]
    for k, failure in enumerate(failures):
        print(f"{failure.target}: {failure.where}: {failure.what}")
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{k:03d}-{Path(failure.file).name}").write_bytes(failure.data)
            (keep / f"{k:03d}.txt").write_text(f"{failure.target}\n{failure.trace}")
    total, places = sum(one.inputs for one in outcomes.values()), {failure.where for failure in failures}
    seconds = time.perf_counter() - started
    print(f"{total:,} inputs, {len(places)} places that failed, {seconds:.0f} s, memory grew by {grown} MiB")
    raise SystemExit(1 if failures or grown > MEMORY else 0)


if __name__ == "__main__":
    typer.run(main)

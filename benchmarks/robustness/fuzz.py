"""Mutated files through every reader: it answers or raises UsboostError, in bounded time.

``python -m benchmarks.robustness.fuzz --inputs 200000 --seed 0`` writes each file
that breaks this to a folder.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
import yaml
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from benchmarks.robustness import valid_inputs
from benchmarks.robustness.mutations import WILD_TEXT, changed, damaged, edited
from tasks import settings
from tasks.fits.features import read_features, write_features
from usboost.datasets.census import prepare as census
from usboost.datasets.covertype import raw as covertype
from usboost.datasets.files.image_sources import load as load_image
from usboost.datasets.files.sources import sha256
from usboost.datasets.imagenet import prepare as imagenet
from usboost.datasets.prepared import store
from usboost.datasets.sequences import read as sequences
from usboost.datasets.user import prepare as user_table
from usboost.datasets.user.read_prepared import read_prepared
from usboost.datasets.user.read_table import read_columns
from usboost.datasets.user.table_spec import TableSpec
from usboost.errors import UsboostError
from usboost.models import persistence

SECONDS = 30.0
"""The longest that one input may take."""

MEMORY = 1536
"""MiB by which all inputs together may raise the process's peak memory."""

Mutate = Callable[[random.Random, bytes, bytes], bytes]


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


def gzipped(inner: Mutate) -> Mutate:
    def mutate(rng: random.Random, data: bytes, other: bytes) -> bytes:
        return gzip.compress(inner(rng, gzip.decompress(data), other), 1, mtime=0)

    return mutate


def parquet_file(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Valid Parquet that holds what it should not: types, values, names, rows, columns."""
    table = pq.read_table(io.BytesIO(data))
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(table.num_columns) if table.num_columns else 0
        what = rng.randrange(7)
        if what == 0 and table.num_columns:
            table = table.set_column(at, table.schema.field(at).name, _column(rng, table.num_rows))
        elif what == 1 and table.num_columns:
            table = table.remove_column(at)
        elif what == 2:
            table = table.slice(rng.randrange(3), rng.randrange(table.num_rows + 1))
        elif what == 3:
            name = rng.choice([*(n for n in WILD_TEXT if n.isprintable()), *table.column_names])
            table = table.append_column(name, _column(rng, table.num_rows))
        elif what == 4:
            table = table.select(rng.sample(range(table.num_columns), table.num_columns))
        elif what == 5:
            wild = rng.choice(
                (b"{", b"[]", b'{"columns": 3}', b'{"columns": [{"pandas_type": "x"}]}', b"\xff")
            )
            table = table.replace_schema_metadata({b"pandas": wild})
        elif table.num_columns:
            name = rng.choice([n for n in WILD_TEXT if n.isprintable()])
            table = table.rename_columns([name if k == at else n for k, n in enumerate(table.column_names)])
    out = io.BytesIO()
    try:
        pq.write_table(table, out, row_group_size=rng.choice((5, 1000)))
    except (pa.ArrowException, UnicodeError, ValueError, OSError):
        return damaged(rng, data, other)
    return out.getvalue()


def _column(rng: random.Random, n: int) -> pa.Array:
    texts = [text for text in WILD_TEXT if text.isprintable()]
    values: list[list[Any]] = [
        [rng.choice((1e300, -1e300, float("nan"), float("inf"), 0.0, 1.5)) for _ in range(n)],
        [rng.choice((2**62, -(2**62), 0, 1)) for _ in range(n)],
        [rng.choice(texts) for _ in range(n)],
        [rng.choice((None, "a", "b")) for _ in range(n)],
        [rng.choice((b"", b"\xff\xfe", valid_inputs.image(0), None)) for _ in range(n)],
        [None] * n,
        [[1], *[[]] * (n - 1)][:n],
        [{"a": 1}] * n,
        [rng.random() < 0.5 for _ in range(n)],
    ]
    made = pa.array(rng.choice(values))
    kind = rng.choice((None, None, pa.dictionary(pa.int8(), made.type), pa.float16(), pa.timestamp("ns")))
    kind = rng.choice((kind, pa.decimal128(38, 3), pa.large_string(), pa.large_binary(), pa.uint64(), None))
    try:
        return made.cast(kind) if kind is not None else made
    except pa.ArrowException:
        return made


def tensors(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Valid safetensors whose arrays have other values, shapes, types or names."""
    arrays = dict(load_arrays(data))
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(arrays) or ["x"])
        array = arrays.get(name, np.zeros(3))
        what = rng.randrange(6)
        if what == 0:
            arrays.pop(name, None)
        elif what == 1 and array.size:
            array = array.copy()
            wild = rng.choice((-1, 0, 1, 3, 2**31 - 1, -(2**31)))
            array.reshape(-1)[rng.randrange(array.size)] = wild
            arrays[name] = array
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
    """A valid zip with members damaged, renamed, repeated or left out."""
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


def _plain_and_gzipped(name: str, content: bytes, read: Callable[[Path], object]) -> list[Target]:
    """A text file's reader, given the file as it is and compressed."""
    packed = gzip.compress(content, 1, mtime=0)
    return [
        Target(name, {"c": content}, lambda f: read(f / "c"), {"c": (edited,)}, share=1.5),
        Target(f"{name} gz", {"c": packed}, lambda f: read(f / "c"), {"c": (damaged, gzipped(edited))}),
    ]


def targets(work: Path) -> list[Target]:
    """Every reader with its valid inputs; `work` is a folder for what they write."""
    text = (edited,)
    found = [
        *_plain_and_gzipped("census", valid_inputs.census(), census.read),
        *_plain_and_gzipped("covertype", valid_inputs.cover(), covertype.read),
        Target(
            "pen digits",
            {"p": valid_inputs.pendigits()},
            lambda f: sequences.read_pendigits(f / "p"),
            {"p": text},
        ),
        Target(".ts", {"t": valid_inputs.TS}, _read_ts, {"t": text}, share=1.5),
        *_tables(work),
        Target(
            "Tiny ImageNet zip",
            {"t.zip": valid_inputs.zipped(valid_inputs.tiny_imagenet())},
            lambda f: imagenet.prepare(f / "t.zip", seed=0, profile="demo", size=8, work=work / "mi"),
            {"t.zip": (damaged, zip_members)},
            share=0.1,
        ),
        Target(
            "params.yaml", {"p": _params()}, _read_params, {"p": (json_file, json_file, edited)}, share=0.2
        ),
        *_models(),
        *_prepared(work),
        *_prepared_table(),
        _features(),
    ]
    found += [
        Target(f"{kind} image", {"i": data}, _read_image, share=0.25)
        for kind, data in valid_inputs.images().items()
    ]
    return found


def _read_ts(folder: Path) -> None:
    sequences.read_ts(folder / "t", "last")


def _read_image(folder: Path) -> None:
    load_image((folder / "i").read_bytes(), size=8, channels=3)


def _params() -> bytes:
    """The project's own params.yaml; JSON is YAML."""
    path = Path(__file__).resolve().parents[2] / "params.yaml"
    return json.dumps(yaml.safe_load(path.read_text(encoding="utf-8"))).encode()


def _read_params(folder: Path) -> None:
    settings.load(folder / "p")


def _tables(work: Path) -> Iterator[Target]:
    frame = valid_inputs.frame()
    roles = {"label": "kind", "categorical": ("count",)}
    spec = TableSpec(**roles)
    yield Target(
        "CSV table",
        {"t.csv": valid_inputs.csv_table()},
        lambda f: user_table.prepare(f / "t.csv", spec, seed=0),
        {"t.csv": (edited,)},
        share=0.5,
    )
    yield Target(
        "Parquet table",
        {"t.parquet": valid_inputs.parquet(frame)},
        lambda f: read_columns(f / "t.parquet", spec),
        {"t.parquet": (damaged, parquet_file, parquet_file)},
    )
    for name, written in valid_inputs.other_tables(frame).items():
        yield Target(
            f"table {name}",
            {name: written},
            lambda f, name=name: read_columns(f / name, spec),
            {name: (edited, damaged) if name.endswith("l") else (damaged,)},
            share=0.15,
        )
    names = [f"p{row % 4}.png" for row in range(len(frame))]
    files = {f"p{k}.png": valid_inputs.image(k) for k in range(4)}
    with_images, into = TableSpec(image="image", size=8, **roles), work / "images"
    yield Target(
        "table with paths",
        {"t.csv": frame.assign(image=names).to_csv(index=False).encode(), **files},
        lambda f: user_table.prepare(f / "t.csv", with_images, seed=0, work=into),
        {"t.csv": (edited,)},
        share=0.15,
    )
    encoded = [files[name] for name in names]
    yield Target(
        "table with bytes",
        {"t.parquet": valid_inputs.parquet(frame.assign(image=encoded))},
        lambda f: user_table.prepare(f / "t.parquet", with_images, seed=0, work=into),
        {"t.parquet": (damaged, parquet_file)},
        share=0.5,
    )


def _models() -> Iterator[Target]:
    """Model folders as they are, and with the digests made right: then nothing but checks protects."""
    for name, (model, X) in valid_inputs.models().items():
        with tempfile.TemporaryDirectory() as folder:
            persistence.save(model, Path(folder) / "m")
            files = _contents(Path(folder) / "m")
        kinds: dict[str, tuple[Mutate, ...]] = {
            file: (damaged, json_file, json_file) if file.endswith(".json") else (damaged, tensors, tensors)
            for file in files
        }

        def read(folder: Path, X: Any = X) -> None:
            model = persistence.load(folder)
            getattr(model, "predict_proba", model.predict)(X)

        yield Target(f"model {name}", files, read, kinds, share=0.3)
        yield Target(f"model {name}, digests right", files, read, kinds, _right_digests, share=0.3)


def _contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


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
    with tempfile.TemporaryDirectory() as folder:
        valid_inputs.write_prepared(Path(folder) / "p", Path(folder) / "w")
        files = _contents(Path(folder) / "p")
    kept = {name: data for name, data in files.items() if "train" in name or name == "card.json"}
    kinds: dict[str, tuple[Mutate, ...]] = {
        name: (json_file, json_file, damaged) if name == "card.json" else (damaged, parquet_file)
        for name in kept
    }

    def read(folder: Path) -> None:
        store.read(folder, "train")
        store.read(folder, "train", image_budget=0)[0]["U"].decode()

    yield Target("prepared", kept, read, kinds)
    yield Target("prepared, digests right", kept, read, kinds, _right_card, share=0.7)


def _prepared_table() -> Iterator[Target]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        frame = valid_inputs.frame().assign(
            image=[f"p{row % 4}.png" for row in range(len(valid_inputs.frame()))]
        )
        frame.to_csv(place / "t.csv", index=False)
        for k in range(4):
            (place / f"p{k}.png").write_bytes(valid_inputs.image(k))
        made = user_table.prepare(
            place / "t.csv", TableSpec(label="kind", image="image", size=8), seed=0, work=place / "w"
        )
        store.write(made, place / "p")
        files = _contents(place / "p")
    kinds: dict[str, tuple[Mutate, ...]] = {
        name: (json_file, json_file, damaged) if name == "card.json" else (damaged, parquet_file)
        for name in files
        if "train" in name or name == "card.json"
    }

    def read(folder: Path) -> None:
        table = read_prepared(folder)
        table.fit_encoding(np.flatnonzero(table.split == "train"))

    yield Target("prepared table", files, read, kinds, share=0.3)
    yield Target("prepared table, digests right", files, read, kinds, _right_card, share=0.7)


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


def _features() -> Target:
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        write_features(iter([rng.normal(size=(9, 4)).astype(np.float32)]), Path(folder) / "train.parquet")
        files = _contents(Path(folder))
    return Target(
        "boosted features",
        files,
        lambda f: read_features(f, "train", 9),
        {"train.parquet": (damaged, parquet_file)},
    )


def run(
    inputs: int, seed: int, *, wanted: str = "", progress: Callable[[str, int], None] = lambda name, n: None
) -> dict[str, Outcome]:
    """Read `inputs` mutated files in all; what came of them, by target.

    Of failures at the same place only the first is kept. Equal arguments give equal inputs.
    """
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as folder, _alarm(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = Path(folder)
        chosen = [target for target in targets(work) if wanted in target.name]
        shares = sum(target.share for target in chosen)
        for k, target in enumerate(chosen):
            n = -(-int(inputs * target.share) // int(max(shares, 1)))
            outcomes[target.name] = _run_target(target, n, random.Random(f"{seed}/{k}"), work / str(k))
            progress(target.name, n)
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
        for restored in (name, "card.json", "model.json"):
            if restored in target.files:
                _write_anew(folder / restored, target.files[restored])
    return outcome


def _write_anew(path: Path, data: bytes) -> None:
    """File systems wait for the disk when a file is cut to nothing and written again, not for a new one."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def attempt(read: Callable[[Path], Any], folder: Path) -> BaseException | None:
    """What reading raises, within `SECONDS`."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        read(folder)
    except (Exception, TooSlow) as error:
        return error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooSlow(f"took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def _where(error: BaseException) -> str:
    """The innermost line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/usboost/" in f.filename or "/tasks/" in f.filename] or list(frames)
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"


def peak_memory() -> int:
    """MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(
    inputs: Annotated[int, typer.Option(help="mutated files to read")] = 200_000,
    seed: Annotated[int, typer.Option(help="equal seeds make equal files")] = 0,
    only: Annotated[str, typer.Option(help="targets whose name holds this")] = "",
    keep: Annotated[Path | None, typer.Option(help="folder for the files that break a reader")] = None,
) -> None:
    """Read mutated files; ends with 1 when a reader does anything but succeed or raise UsboostError."""
    console, started = Console(), time.perf_counter()
    valid_inputs.models()
    before = peak_memory()
    outcomes = run(inputs, seed, wanted=only)
    grown = peak_memory() - before
    table = Table("reader", "inputs", "refused", "slowest, s", "failures")
    for name, one in outcomes.items():
        table.add_row(
            name, f"{one.inputs:,}", f"{one.refused:,}", f"{one.slowest:.2f}", str(len(one.failures))
        )
    console.print(table)
    failures = [failure for one in outcomes.values() for failure in one.failures]
    for k, failure in enumerate(failures):
        console.print(f"{failure.target}: {failure.where}: {failure.what}", markup=False)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{k:03d}-{Path(failure.file).name}").write_bytes(failure.data)
            (keep / f"{k:03d}.txt").write_text(f"{failure.target}\n{failure.trace}")
    total, places = sum(one.inputs for one in outcomes.values()), Counter(f.where for f in failures)
    console.print(
        f"{total:,} inputs, {len(places)} places that failed, "
        f"{time.perf_counter() - started:.0f} s, peak memory grew by {grown} MiB"
    )
    sys.exit(1 if failures or grown > MEMORY else 0)


if __name__ == "__main__":
    typer.run(main)

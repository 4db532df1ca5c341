"""Small seeded data in two views."""

import gc
import io
import json
import os
import signal
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from PIL import Image

from tests.flows.local.detached import end_below
from tests.warm import Warm
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.learners.networks import embeddings
from usboost.learners.networks.backbones import Backbone
from usboost.models import persistence

LIBRARY = (
    *("lightgbm", "matplotlib.figure", "pandas", "pyarrow.parquet", "scipy.stats", "torch", "torchvision"),
    *("sklearn.ensemble", "sklearn.linear_model", "sklearn.model_selection", "sklearn.neighbors"),
)
"""What the library imports, of others; a command may have another copy of the library."""

ROOT = Path(__file__).resolve().parents[1]

LIMIT = 600  # seconds after which a command is ended

# a script that runs in the background ignores Ctrl-C, and so would every command that a test interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
os.environ.pop("COLUMNS", None)  # a parallel run of pytest sets it, and tables would have that width
# a busy machine is no error
settings.register_profile("usboost", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("usboost")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Embeddings of images are kept beside the tests' other files, not in the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USBOOST_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_server_stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The Prefect server of a home goes on running after its flows; those of tests end with them."""
    yield
    end_below(tmp_path_factory.getbasetemp())


FIRST = "tests/flows/test_pipeline.py"
LAST = ("data", "datasets", "evaluation", "losses", "report", "table")
"""Folders of short tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For `make test-all`: one process makes the flows' workspace while the others have enough to do.

    Short tests come last, so that all end at about the same time.
    """

    def turn(item: pytest.Item) -> int:
        if item.nodeid.startswith(FIRST):
            return 0
        if needs[item.path]:
            return 2
        return 3 if item.nodeid.split("/")[1] in LAST else 1

    needs: dict[Any, bool] = {}
    for item in items:
        needs[item.path] = needs.get(item.path, False) or "reproduced" in getattr(item, "fixturenames", ())
    items.sort(key=turn)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # what was imported is not looked through again
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def make_views(n_classes: int = 2, n: int = 300, seed: int = 0) -> tuple[Views, np.ndarray]:
    """Two tables with numbers and categories (codes from 1), and labels that depend on both."""
    rng = np.random.default_rng(seed)

    def table(offset: float) -> tuple[Table, np.ndarray]:
        numeric = rng.normal(size=(n, 3)).astype(np.float32)
        codes = rng.integers(1, 5, size=(n, 2)).astype(np.int32)
        return Table(numeric, codes, (5, 5)), numeric[:, 0] + offset * (codes[:, 0] % 2) + np.sin(
            2 * numeric[:, 1]
        )

    (u, from_u), (s, from_s) = table(1.0), table(-1.0)
    score = from_u + from_s + 0.5 * rng.normal(size=n)
    return Views(U=u, S=s), np.digitize(score, np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1]))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@contextmanager
def rewritten(path: Path) -> Iterator[Any]:
    """A JSON document, which the file is to hold as it is after the block."""
    document = json.loads(path.read_text())
    yield document
    path.write_text(json.dumps(document))


def encoded(image: Image.Image | np.ndarray, form: str = "PNG", **options: Any) -> bytes:
    """An image, or uint8 pixels (H, W) or (H, W, 3), as a file of that form."""
    out = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(out, form, **options)
    return out.getvalue()


def png(width: int, height: int, body: bytes = b"", bits: int = 8, kind: int = 0) -> bytes:
    """A PNG that says it has so many pixels of so many bits, grey ones of kind 0; the body is compressed."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def published(source: str, *files: str) -> Path:
    """The folder of a dataset's real files; a test is skipped where they are not."""
    folder = Path(os.environ.get("USBOOST_DATA", ROOT.parent / "shared" / "data")) / source
    if not all((folder / name).is_file() for name in files):
        pytest.skip(f"the real files are not in {source}/ of USBOOST_DATA or ../shared/data")
    return folder


def refuses(words: str, work: Callable[..., object], /, *given: Any, **named: Any) -> None:
    """Assert that the work is refused in words in which this pattern is found."""
    with pytest.raises(UsboostError, match=words):
        work(*given, **named)


def reloaded(model: Any, folder: Path) -> Any:
    """The model as it is read from the files that it is saved to."""
    persistence.save(model, folder)
    return persistence.load(folder)


def forget() -> None:
    """Clear what this process has in memory of embeddings."""
    for each in (embeddings._recent._cached, embeddings._shards._cached, embeddings._keys):
        each.clear()


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Processes of their own for a test, that need not import what the library imports."""
    made = Warm(LIBRARY, LIMIT)
    yield made
    made.end()


@pytest.fixture(scope="session")
def few_trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings of forests, alone and in an average, of 20 trees: most of the time of fits to few rows."""
    path = tmp_path_factory.mktemp("settings") / "few.yaml"
    forests = {"forest": "n_trees", "average": "members__forest__n_trees"}
    path.write_text(json.dumps({"models": {each: {"set": {name: 20}} for each, name in forests.items()}}))
    return path


@pytest.fixture
def untrained() -> Backbone:
    """Quick to embed with: what it makes of images is their own, if of little use."""
    return Backbone("small_cnn", pretrained=False, random=True)


@pytest.fixture
def two_views():
    return make_views

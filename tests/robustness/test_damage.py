"""Faults on disk, a full disk and faults on the way: each is named, and what was there stays."""

import errno
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import SafetensorError

from benchmarks.robustness import valid_inputs
from tasks.catalog import _raw
from tasks.fits.features import read_features, write_features
from tests.conftest import contents, refuses, rewritten
from tests.report import write_cell
from tests.serving import Server, serving
from usboost.datasets import sources, store
from usboost.datasets.sources import RemoteFile, find_source
from usboost.errors import UsboostError
from usboost.files import replacing
from usboost.fit.estimator import MultimodalClassifier
from usboost.learners.networks.architectures import read_weights
from usboost.models import persistence
from usboost.report.pages import write_pages


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    valid_inputs.write_prepared(tmp_path / "toy", tmp_path / "work")
    return tmp_path / "toy"


def cut(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.unlink()  # it may be a link to a cache
    path.write_bytes(data[: int(len(data) * share)])


@pytest.mark.parametrize("share", [0, 0.2, 0.9, 0.999])
@pytest.mark.parametrize("file", ["train.parquet", "images/train/images-00000.parquet", "card.json"])
def test_a_prepared_file_cut_short(toy: Path, file: str, share: float) -> None:
    cut(toy / file, share)
    before = contents(toy)
    with pytest.raises(UsboostError) as error:
        store.read(toy, "train")
    assert str(toy / file) in str(error.value)
    assert contents(toy) == before


@pytest.mark.parametrize("share", [0, 0.2, 0.9, 0.999])
def test_a_file_of_a_model_cut_short(tmp_path: Path, share: float) -> None:
    for name in ("2wl", "bfv_dnn", "earlyboost"):
        folder = tmp_path / name
        persistence.save(valid_inputs.models()[name][0], folder)
        for file in sorted(contents(folder)):
            persistence.save(valid_inputs.models()[name][0], folder)
            cut(folder / file, share)
            before = contents(folder)
            with pytest.raises(UsboostError) as error:
                persistence.load(folder)
            assert str(folder / file) in str(error.value)
            assert contents(folder) == before


@pytest.mark.parametrize("file", ["arrays-00000.safetensors", "network.safetensors", "trees.safetensors"])
def test_one_changed_bit_of_a_model_is_seen(tmp_path: Path, file: str) -> None:
    name = {"arrays-00000.safetensors": "2wl", "network.safetensors": "two_branch"}.get(file, "lightgbm")
    persistence.save(valid_inputs.models()[name][0], tmp_path / "model")
    path = next((tmp_path / "model").rglob(file))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    refuses(rf"{file} is not the file that was saved", persistence.load, tmp_path / "model")


CARDS: dict[str, Callable[[dict], object]] = {
    "no rows": lambda card: card["splits"]["train"].pop("rows"),
    "rows are text": lambda card: card["splits"]["train"].update(rows="twelve"),
    "a split is a list": lambda card: card["splits"].update(train=[1]),
    "no digest": lambda card: card["splits"]["train"].pop("sha256"),
    "a view is a number": lambda card: card["views"].update(S=3),
    "a view's column is a number": lambda card: card["views"].update(S=[3]),
    "an encoder is null": lambda card: card["encoders"].update(S=None),
    "an encoder lacks a key": lambda card: card["encoders"]["S"]["numeric"][0].pop("mean"),
    "a mean is NaN": lambda card: card["encoders"]["S"]["numeric"][0].update(mean=float("nan")),
    "a category is a list": lambda card: card["encoders"]["S"]["categorical"][0].update(values=[[1]]),
    "the images are a number": lambda card: card.update(images=3),
    "no size": lambda card: card["images"].pop("size"),
    "size of text": lambda card: card["images"].update(size=["a", "b"]),
    "a gigantic size": lambda card: card["images"].update(size=[10**9, 10**9]),
    "channels of 7": lambda card: card["images"].update(channels=7),
    "no shards": lambda card: card["images"]["splits"]["train"].pop("shards"),
    "a shard without digest": lambda card: card["images"]["splits"]["train"]["shards"][0].pop("sha256"),
    "a view without an encoder": lambda card: card["encoders"].pop("S"),
    "no class": lambda card: card.update(classes=["only"]),
    "format 99": lambda card: card.update(format=99),
}


@pytest.mark.parametrize("change", CARDS)
def test_a_wrong_card(toy: Path, change: str) -> None:
    with rewritten(toy / "card.json") as card:
        CARDS[change](card)
    before = contents(toy)
    refuses(str(toy), store.read, toy, "train")
    assert contents(toy) == before


not_a_document = pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b'{"format": 1}']
)


@not_a_document
def test_a_card_that_is_none(toy: Path, data: bytes) -> None:
    (toy / "card.json").write_bytes(data)
    refuses(r"card\.json", store.read, toy, "train")
    (toy / "card.json").unlink()
    refuses(r"card\.json is missing; prepare the dataset", store.read, toy, "train")
    (toy / "card.json").mkdir()
    refuses(r"card\.json cannot be read", store.read_card, toy)


@not_a_document
def test_a_model_json_that_is_none(tmp_path: Path, data: bytes) -> None:
    persistence.save(valid_inputs.models()["2wl"][0], tmp_path / "model")
    (tmp_path / "model" / "model.json").write_bytes(data)
    refuses(r"model\.json", persistence.load, tmp_path / "model")
    (tmp_path / "model" / "model.json").unlink()
    refuses(r"model\.json", persistence.load, tmp_path / "model")


def test_boosted_features_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    write_features(iter([np.ones((50, 3), dtype=np.float32)]), path)
    assert len(read_features(tmp_path, "train", 50)) == 50
    cut(path, 0.7)
    refuses(str(path), read_features, tmp_path, "train", 50)


def test_weights_cut_short(tmp_path: Path) -> None:
    import torch

    torch.save({"features.0.weight": torch.zeros(64, 3, 3, 3)}, tmp_path / "w.pth")
    cut(tmp_path / "w.pth", 0.6)
    refuses(str(tmp_path / "w.pth"), read_weights, "vgg16", str(tmp_path / "w.pth"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"digest": 1}', '{"path": 3}'])
def test_a_damaged_pointer_to_raw_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "source.json").write_text(text)
    refuses(r"source\.json is damaged", _raw, tmp_path)


# Downloads.

CONTENT = b"18, Not in universe\n" * 20_000


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(monkeypatch) as server:
        server.answers = [(200, CONTENT, None)]
        yield server


def remote(server: Server, digest: str | None) -> list[RemoteFile]:
    return [RemoteFile("raw.data", server.url, digest)]


@pytest.mark.parametrize("sent", [0, 1, 1000, len(CONTENT) - 1])
def test_a_download_that_breaks_off(server: Server, tmp_path: Path, sent: int) -> None:
    server.answers = [(200, CONTENT, sent)]
    (tmp_path / "census").mkdir()
    (tmp_path / "census" / "other.data").write_bytes(b"there before")
    with pytest.raises(UsboostError, match=r"raw\.data is missing and could not be downloaded") as error:
        find_source("census", remote(server, None), folder=None, cache=tmp_path)
    assert isinstance(error.value.__cause__, OSError)  # so that a task tries again later
    assert server.asked == sources.ATTEMPTS and "put raw.data into $USBOOST_DATA/census/" in str(error.value)
    assert contents(tmp_path) == {"census/other.data": b"there before"}
    server.answers = [(200, CONTENT, None)]
    find_source("census", remote(server, None), folder=None, cache=tmp_path)
    assert (tmp_path / "census" / "raw.data").read_bytes() == CONTENT


def test_a_download_that_breaks_off_unnoticed_has_the_wrong_digest(server: Server, tmp_path: Path) -> None:
    server.answers, server.says_length = [(200, CONTENT, 1000)], False
    with pytest.raises(UsboostError, match=r"raw\.data .* was not kept, its SHA-256 should be"):
        find_source("census", remote(server, "0" * 64), folder=None, cache=tmp_path)
    assert contents(tmp_path) == {}


# Folders that cannot be written.


@contextmanager
def read_only() -> Iterator[Path]:
    """A folder that holds a file and cannot be written by the user whom the test then is."""
    folder = Path(tempfile.mkdtemp())
    (folder / "kept" / "a").parent.mkdir()
    (folder / "kept" / "a").write_bytes(b"before")
    root = os.geteuid() == 0
    for path in (folder, folder / "kept"):
        path.chmod(0o555)
    try:
        if root:  # whom no permission stops
            os.seteuid(65534)
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in (folder, folder / "kept"):
            path.chmod(0o755)
        (folder / "kept" / "a").unlink()
        (folder / "kept").rmdir()
        folder.rmdir()


def test_a_folder_that_cannot_be_written(server: Server) -> None:
    model = valid_inputs.models()["2wl"][0]
    with read_only() as folder:
        refuses(f"{folder / 'kept'} cannot be written", persistence.save, model, folder / "kept")
        with pytest.raises(UsboostError, match="cannot be written"), replacing(folder / "new" / "deep"):
            raise AssertionError("nothing can be written here")
        refuses("cannot be written", find_source, "kept", remote(server, None), folder=None, cache=folder)
        assert contents(folder) == {"kept/a": b"before"}


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    scores = {"val": {"f1": 0.5}, "test": {"f1": 0.5}}
    write_cell(tmp_path, "ct", "2wl", [{"seed": 0, "scores": scores}], "demo")
    (tmp_path / "out").write_text("a file")
    refuses("out", write_pages, tmp_path, tmp_path, tmp_path / "out", datasets=["ct"], models=["2wl"])
    assert (tmp_path / "out").read_text() == "a file"


def test_something_that_fails_while_a_folder_is_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a").write_bytes(b"before")
    with pytest.raises(OSError, match="disk"), replacing(tmp_path / "kept") as fresh:
        (fresh / "a").write_bytes(b"half")
        raise OSError("disk full")
    assert contents(tmp_path) == {"kept/a": b"before"}


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_others_may_read_what_the_umask_lets_them(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with replacing(tmp_path / "made") as fresh:
            for name in ("own", "everybody's"):
                (fresh / name).write_text("x")
            (fresh / "own").chmod(0o600)
            (fresh / "again").hardlink_to(fresh / "own")
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "made").iterdir()} == {mode}


@contextmanager
def no_larger_file(size: int) -> Iterator[None]:
    """As a full disk: no file of this process may have more bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", sorted(valid_inputs.models()))
def test_every_kind_of_model(tmp_path: Path, name: str) -> None:
    model, folder = valid_inputs.models()[name][0], tmp_path / "model"
    persistence.save(model, folder)
    before = contents(tmp_path)
    # each limit is just below the size of a file, so that each writer meets it
    for size in sorted({1, *(len(each) - 1 for each in before.values())}):
        with no_larger_file(size), pytest.raises(UsboostError) as told:
            persistence.save(model, folder)
        assert str(told.value) == f"{folder} cannot be written: File too large"
        assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["logistic", "lgbm", "forest", "2wl"])
def test_a_saved_estimator(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "z": rng.normal(size=60)})
    model = MultimodalClassifier(name, rounds=2, refit=False).fit(frame, frame.x > 0)
    model.save(tmp_path / "m")
    before = contents(tmp_path)
    for size in sorted({1, *(len(each) - 1 for each in before.values())}):
        with no_larger_file(size), pytest.raises(UsboostError, match=r"/m cannot be written: File too large"):
            model.save(tmp_path / "m")
        assert contents(tmp_path) == before


def test_whatever_a_writer_raises(tmp_path: Path) -> None:
    full = os.strerror(errno.ENOSPC)
    errors = [
        OSError(errno.ENOSPC, full, "a"),
        SafetensorError(f"Error while serializing: I/O error: {full} (os error 28)"),
        RuntimeError(f"catboost/file.cpp: (Error 28: {full}) can't write"),
        UsboostError(f"{tmp_path}/.a.tmp cannot be written: {full}"),
    ]
    for error in errors:
        with pytest.raises(UsboostError) as told, replacing(tmp_path / "new"):
            raise error
        assert str(told.value) == f"{tmp_path / 'new'} cannot be written: {full}"
        assert isinstance(told.value.__cause__, OSError)
        assert not list(tmp_path.iterdir())
    # others are passed on as they are
    with pytest.raises(KeyError), replacing(tmp_path / "new"):
        raise KeyError("a")
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "new"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "b")

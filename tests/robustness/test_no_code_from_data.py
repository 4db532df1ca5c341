"""A pickle that would run code, planted wherever a file is read: refused, and nothing runs."""

import ast
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from benchmarks.robustness import valid_inputs
from tasks import settings as settings_file
from tasks.fits.features import read_features
from tasks.served_model import ServedModel
from tests.conftest import forget, refuses, rewritten
from tests.report import write_cell
from usboost.data.images import Images
from usboost.datasets import census, covertype, imagenet, sequences, store
from usboost.files.arrays import sha256
from usboost.fit.bundle import bundle_of
from usboost.learners.networks.architectures import read_weights
from usboost.learners.networks.backbones import Backbone
from usboost.models import persistence
from usboost.models.methods import boosted_features
from usboost.report.pages import write_pages
from usboost.report.results import read_cell, read_trace
from usboost.table import prepared as user_table
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_columns

ROOT = Path(__file__).resolve().parents[2]


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.marker,)


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[Path]:
    """What a bomb would make; the test fails when it is there at the end."""
    path = tmp_path / "code-was-run"
    yield path
    assert not path.exists(), "code from a file was run"


@pytest.fixture
def bombs(marker: Path) -> list[bytes]:
    """Pickles of several protocols, one as torch writes it, one as numpy does."""
    bomb = Bomb(marker)
    as_torch, as_numpy = io.BytesIO(), io.BytesIO()
    torch.save({"embeddings": bomb}, as_torch)
    np.save(as_numpy, np.array([bomb], dtype=object), allow_pickle=True)
    made = [pickle.dumps(bomb, protocol) for protocol in (0, 2, 4)]
    return [*made, as_torch.getvalue(), as_numpy.getvalue()]


def refused(read: Callable[[], object], path: Path, bombs: list[bytes]) -> None:
    kept = path.read_bytes()
    for bomb in bombs:
        path.write_bytes(bomb)
        refuses(".", read)
        assert path.read_bytes() == bomb
    path.write_bytes(kept)


def test_the_bombs_would_go_off(marker: Path, bombs: list[bytes]) -> None:
    for bomb in bombs[:3]:
        pickle.loads(bomb)  # noqa: S301
        assert marker.exists()
        marker.unlink()
    torch.load(io.BytesIO(bombs[3]), weights_only=False)
    assert marker.exists()
    marker.unlink()
    np.load(io.BytesIO(bombs[4]), allow_pickle=True)
    assert marker.exists()
    marker.unlink()


@pytest.mark.parametrize("name", list(valid_inputs.models()))
def test_every_file_of_a_saved_model(name: str, tmp_path: Path, bombs: list[bytes]) -> None:
    folder = tmp_path / "model"
    persistence.save(valid_inputs.models()[name][0], folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= 2
    for path in files:
        refused(lambda: persistence.load(folder), path, bombs)
    persistence.load(folder)


def test_a_file_beside_those_of_a_model_is_never_read(tmp_path: Path, bombs: list[bytes]) -> None:
    persistence.save(valid_inputs.models()["2wl"][0], tmp_path / "model")
    for name in ("model.pkl", "python_model.pkl", "arrays-00001.safetensors", "model.joblib"):
        (tmp_path / "model" / name).write_bytes(bombs[1])
    assert len(persistence.load(tmp_path / "model").stages_) == 2


@pytest.mark.parametrize("name", ["Bomb", "Path", "eval", "os.system", "Pipeline", ["TreeLearner"], {}])
def test_a_model_cannot_name_any_class(name: Any, tmp_path: Path) -> None:
    persistence.save(valid_inputs.models()["2wl"][0], tmp_path / "model")
    with rewritten(tmp_path / "model" / "model.json") as document:
        document["settings"]["parameters"]["learners"]["U"]["class"] = name
    refuses(".", persistence.load, tmp_path / "model")


def test_a_gbm(tmp_path: Path, bombs: list[bytes]) -> None:
    boosted_features.save_gbm(valid_inputs.models()["lightgbm"][0].gbm_, tmp_path / "gbm")
    for name in ("gbm.json", "trees.safetensors"):
        refused(lambda: boosted_features.load_gbm(tmp_path / "gbm"), tmp_path / "gbm" / name, bombs)
    again = boosted_features.load_gbm(tmp_path / "gbm")
    assert len(again.trees) == len(valid_inputs.models()["lightgbm"][0].gbm_.trees)


def test_boosted_features(tmp_path: Path, bombs: list[bytes]) -> None:
    path = tmp_path / "train.parquet"
    pd.DataFrame({"bfv_0": [0.5, -0.5, 1.0]}).to_parquet(path)
    refused(lambda: read_features(tmp_path, "train", 3), path, bombs)
    assert read_features(tmp_path, "train", 3).numbers(slice(1)).ravel().tolist() == [0.5, -0.5, 1.0]


def test_a_prepared_dataset(tmp_path: Path, bombs: list[bytes]) -> None:
    folder = tmp_path / "toy"
    valid_inputs.write_prepared(folder, tmp_path / "work")
    shards = sorted((folder / "images" / "train").iterdir())
    for path in (folder / "card.json", folder / "train.parquet", *shards):
        refused(lambda: store.read(folder, "train"), path, bombs)
    assert len(store.read(folder, "train")[1]) == 12


def test_a_prepared_dataset_whose_card_vouches_for_the_bomb(tmp_path: Path, bombs: list[bytes]) -> None:
    folder = tmp_path / "toy"
    valid_inputs.write_prepared(folder, tmp_path / "work")
    card = json.loads((folder / "card.json").read_text())
    shard = folder / "images" / "train" / "images-00000.parquet"
    for path in (folder / "train.parquet", shard):
        kept = path.read_bytes()
        path.unlink()  # a hard link of the work folder's
        for bomb in bombs:
            path.write_bytes(bomb)
            card["splits"]["train"]["sha256"] = sha256(folder / "train.parquet")
            entry = card["images"]["splits"]["train"]["shards"][0]
            entry["sha256"], entry["bytes"] = sha256(shard), shard.stat().st_size
            (folder / "card.json").write_text(json.dumps(card))
            refuses(".", store.read, folder, "train")
        path.write_bytes(kept)


def test_a_image_that_is_a_bomb(tmp_path: Path, bombs: list[bytes]) -> None:
    table = pd.DataFrame({"x": range(12), "y": ["a", "b"] * 6, "image": [bombs[1]] * 12})
    (tmp_path / "t.parquet").write_bytes(valid_inputs.parquet(table))
    given = tmp_path / "t.parquet", TableSpec(label="y", image="image", size=8)
    refuses("no image in a known format", user_table.prepare, *given, seed=0, work=tmp_path / "w")


def test_cached_embeddings(tmp_path: Path, marker: Path, bombs: list[bytes]) -> None:
    view = Images(np.arange(20 * 12 * 12, dtype=np.uint16).astype(np.uint8).reshape(20, 1, 12, 12))
    backbone = Backbone("small_cnn", False, "none", cache=str(tmp_path / "cache"), random=True)
    device = torch.device("cpu")
    expected = backbone.embed(view, device)
    (file,) = (tmp_path / "cache").glob("*/*")
    for bomb in bombs:
        file.write_bytes(bomb)
        forget()
        assert np.array_equal(backbone.embed(view, device), expected)  # made again
        assert not marker.exists() and file.read_bytes() != bomb


@pytest.mark.parametrize("ending", ["pth", "safetensors", "pt"])
def test_backbone_weights(tmp_path: Path, bombs: list[bytes], ending: str) -> None:
    path = tmp_path / f"weights.{ending}"
    for bomb in bombs:
        path.write_bytes(bomb)
        refuses("is not a state dict of tensors", read_weights, "resnet50", str(path))


def test_torchvisions_cache(tmp_path: Path, bombs: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoints" / "vgg16-397923af.pth"
    path.parent.mkdir()
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    for bomb in bombs:
        path.write_bytes(bomb)
        refuses("is not a state dict of tensors", read_weights, "vgg16", True)


@pytest.mark.parametrize("weights", [[1, 2], {"a": 1}, {1: torch.zeros(1)}, torch.zeros(2), {"a": {"b": 1}}])
def test_backbone_weights_are_tensors_by_name(tmp_path: Path, weights: object) -> None:
    torch.save(weights, tmp_path / "w.pth")
    refuses("is not a state dict of tensors", read_weights, "vgg16", str(tmp_path / "w.pth"))


@pytest.mark.parametrize("ending", ["parquet", "csv", "pq", "feather", "jsonl", "xlsx", "csv.gz", "zip"])
def test_a_pickle_called_a_table(tmp_path: Path, bombs: list[bytes], ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    for bomb in bombs:
        path.write_bytes(bomb)
        refuses(".", read_columns, path, TableSpec(label="y"))
    path = tmp_path / "table.pkl"
    path.write_bytes(bombs[1])
    refuses(r"is no table of a known kind; write it as \.parquet", read_columns, path, TableSpec(label="y"))


def test_a_table_with_a_column_of_pickles(tmp_path: Path, bombs: list[bytes]) -> None:
    table = pd.DataFrame({"x": [bombs[1]] * 4, "y": ["a", "b"] * 2})
    (tmp_path / "t.parquet").write_bytes(valid_inputs.parquet(table))
    refuses("'x' is of type binary", read_columns, tmp_path / "t.parquet", TableSpec(label="y"))


def test_arrow_types_that_carry_a_pickle(tmp_path: Path, marker: Path, bombs: list[bytes]) -> None:
    """Arrow once unpickled the type of such a column when it opened the file (CVE-2023-47248)."""
    for bomb in bombs[:3]:
        notes = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": bomb}
        schema = pa.schema([pa.field("x", pa.int64(), metadata=notes), pa.field("y", pa.string())])
        table = pa.table([pa.array([1, 2, 3, 4]), pa.array(["a", "b"] * 2)], schema)
        pq.write_table(table, tmp_path / "t.parquet")
        # a plain column with a note that nobody reads
        read_columns(tmp_path / "t.parquet", TableSpec(label="y"))
        assert not marker.exists()


def test_pandas_notes_in_parquet_are_not_run(tmp_path: Path, marker: Path) -> None:
    code = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    notes = {
        "columns": [
            {"name": "x", "field_name": "x", "pandas_type": code, "numpy_type": code, "metadata": {"a": code}}
        ],
        "index_columns": [code],
        "column_indexes": [{"name": code, "pandas_type": code, "numpy_type": code}],
    }
    table = pa.table({"x": [1, 2, 3, 4], "y": ["a", "b", "a", "b"]})
    table = table.replace_schema_metadata({"pandas": json.dumps(notes)})
    pq.write_table(table, tmp_path / "t.parquet")
    assert len(read_columns(tmp_path / "t.parquet", TableSpec(label="y")).labels) == 4


def test_raw_files(tmp_path: Path, bombs: list[bytes]) -> None:
    path = tmp_path / "raw"
    for bomb in bombs:
        path.write_bytes(bomb)
        for read in (census.read, covertype.read, sequences.read_pendigits, sequences.read_ts):
            refuses(".", read, path)


def test_tiny_imagenet_of_bombs(tmp_path: Path, bombs: list[bytes]) -> None:
    path = tmp_path / "t.zip"
    for bomb in bombs:
        path.write_bytes(bomb)
        refuses(".", imagenet.prepare, path, seed=0, profile="demo", size=8, work=tmp_path / "w")
    members = dict.fromkeys(valid_inputs.tiny_imagenet(), bombs[1])
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (members | {"tiny/val/val_annotations.txt": bombs[0]}).items():
            archive.writestr(name, data)
    refuses(".", imagenet.prepare, path, seed=0, profile="demo", size=8, work=tmp_path / "w")


def test_params_yaml_builds_no_objects(tmp_path: Path, marker: Path, bombs: list[bytes]) -> None:
    path = tmp_path / "params.yaml"
    for tag in ("apply:os.system", "new:pathlib.Path", "name:os.system", "apply:subprocess.check_call"):
        path.write_text(f"profile: !!python/object/{tag} ['touch {marker}']\n")
        refuses("is not valid YAML", settings_file.load, path)
    for bomb in bombs:
        path.write_bytes(bomb)
        refuses(".", settings_file.load, path)


def test_results(tmp_path: Path, bombs: list[bytes]) -> None:
    cell = tmp_path / "results/ct/2wl/seed-0"
    cell.mkdir(parents=True)
    for bomb in bombs:
        (cell / "record.json").write_bytes(bomb)
        (cell / "trace.parquet").write_bytes(bomb)
        for read in (read_cell, read_trace):
            refuses(".", read, tmp_path / "results", "ct", "2wl")


def test_a_report_about_a_card_that_is_a_bomb(tmp_path: Path, bombs: list[bytes]) -> None:
    scores = {"val": {"f1": 0.5}, "test": {"f1": 0.5}}
    write_cell(tmp_path / "results", "ct", "2wl", [{"seed": 0, "scores": scores}], "demo")
    (tmp_path / "prepared" / "ct").mkdir(parents=True)
    for bomb in bombs:
        (tmp_path / "prepared" / "ct" / "card.json").write_bytes(bomb)
        places = tmp_path / "results", tmp_path / "prepared", tmp_path / "out"
        refuses(".", write_pages, *places, datasets=["ct"], models=["2wl"])


def test_the_artifacts_of_a_served_model(tmp_path: Path, bombs: list[bytes]) -> None:
    """MLflow hands their paths to `ServedModel`; its own file of the logged model is code, not a pickle."""
    valid_inputs.write_prepared(tmp_path / "toy", tmp_path / "work")
    model = valid_inputs.models()["2wl"][0]
    card = store.read_card(tmp_path / "toy") | {"classes": ["a", "b", "c"]}
    folder = tmp_path / "bundle"
    bundle_of(model, card, name="2wl", seed=0, scores={"f1": 0.5}).save(folder)

    class Context:
        artifacts: ClassVar = {"bundle": str(folder)}

    served = ServedModel()
    served.load_context(Context())
    for path in (folder / "card.json", *(folder / "model").iterdir()):
        refused(lambda: ServedModel().load_context(Context()), path, bombs)
    again = ServedModel()
    again.load_context(Context())
    assert again.bundle.card == served.bundle.card
    assert len(again.bundle.model.stages_) == 2


def _calls() -> Iterator[tuple[Path, ast.AST]]:
    files = [path for folder in ("usboost", "tasks", "flows") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 50
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path, node


FORBIDDEN = ("pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve")


def test_no_module_imports_what_unpickles() -> None:
    for path, node in _calls():
        names = [a.name for a in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        wrong = [name for name in names if set(name.split(".")) & set(FORBIDDEN)]
        assert not wrong, f"{path}:{getattr(node, 'lineno', 0)} imports {wrong}"


def test_no_call_runs_what_a_file_holds() -> None:
    seen = 0
    for path, node in _calls():
        if not isinstance(node, ast.Call):
            continue
        name, where = ast.unparse(node.func), f"{path}:{node.lineno}"
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        assert name not in ("eval", "exec", "compile", "__import__", "input"), f"{where} calls {name}"
        forbidden = "read_pickle", "to_pickle", "yaml.load", "yaml.unsafe_load", "yaml.full_load"
        assert not name.endswith(forbidden), where
        assert given.get("allow_pickle", "False") == "False", f"{where} allows pickles"
        assert given.get("trust_remote_code", "False") == "False", where
        assert given.get("shell", "False") == "False", f"{where} starts a shell"
        if name == "torch.load":
            seen += 1
            assert given.get("weights_only") == "True", f"{where}: torch.load without weights_only=True"
        if name.endswith("pd.eval") or (name.endswith(".query") and "frame" in name):
            raise AssertionError(f"{where} evaluates text")
    assert seen == 1

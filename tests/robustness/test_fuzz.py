"""Thousands of mutated files through every reader, and those that once broke one."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from benchmarks.robustness import changes, fuzz, mutations, valid_inputs
from tasks import settings
from tasks.fits.features import read_features
from tests.conftest import refuses, rewritten
from usboost.data.encoding import TableEncoder
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.datasets import image_files, imagenet, sequences, store
from usboost.errors import UsboostError
from usboost.learners.networks.train import pick_device
from usboost.models import persistence
from usboost.models.baselines.trees import LightGBMBaseline
from usboost.models.methods import boosted_features
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_columns


@pytest.mark.parametrize(
    ("inputs", "seed"),
    [pytest.param(2_000, 0, marks=pytest.mark.slow), pytest.param(20_000, 1, marks=pytest.mark.long)],
)
def test_no_mutated_file_does_anything_but_succeed_or_raise_our_error(inputs: int, seed: int) -> None:
    valid_inputs.models()
    before = fuzz.peak_memory()
    outcomes = fuzz.run(inputs, seed=seed)
    failures = [failure for one in outcomes.values() for failure in one.failures]
    assert not failures, "\n\n".join(f"{f.target}, {f.file}\n{f.trace}" for f in failures[:3])
    assert sum(one.inputs for one in outcomes.values()) >= inputs
    assert max(one.slowest for one in outcomes.values()) < fuzz.SECONDS
    assert fuzz.peak_memory() - before < fuzz.MEMORY
    # neither so mild that nothing is refused nor so wild that nothing is read
    assert all(one.refused > 0 for one in outcomes.values())
    assert sum(one.refused < one.inputs for one in outcomes.values()) > len(outcomes) - 8


def test_the_driver_sees_what_it_should(tmp_path: Path) -> None:
    def read(folder: Path) -> None:
        text = (folder / "f").read_bytes()
        if b"," not in text:
            raise KeyError("a wrong error")
        if not text.startswith(b"a"):
            raise UsboostError("the right one")

    target = fuzz.Target("toy", {"f": b"a,b\nc,d\n"}, read, {"f": (mutations.edited,)})
    outcome = fuzz._run_target(target, 300, random.Random(0), tmp_path)
    assert [type(f).__name__ for f in outcome.failures] == ["Failure"]
    assert "KeyError" in outcome.failures[0].what and b"," not in outcome.failures[0].data
    assert 0 < outcome.refused < outcome.inputs == 300


def test_an_endless_reader_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0.05)

    def endless(folder: Path) -> None:
        while True:
            pass

    assert isinstance(fuzz.attempt(endless, tmp_path), fuzz.TooSlow)


def test_equal_seeds_make_equal_files(tmp_path: Path) -> None:
    one, two = (fuzz.targets(tmp_path) for _ in range(2))
    archives = ("zip", "gz", "CSV", "Parquet")
    for first, second in zip(one, two, strict=True):
        assert first.files == second.files or not first.name.endswith(archives)
    data = valid_inputs.csv_table()
    for mutate in (mutations.damaged, mutations.edited):
        one, two = ([mutate(random.Random(k), data, data) for k in range(50)] for _ in range(2))
        assert one == two and len(set(one)) > 40


# What was found, each by the smallest file that shows it.


def saved(folder: Path, name: str, change: Callable[[dict], None] = lambda document: None) -> None:
    """A model folder without digests, as a stranger would make it, with another document."""
    persistence.save(valid_inputs.models()[name][0], folder)
    with rewritten(folder / "model.json") as document:
        del document["files"]
        change(document)


def _set(*keys: Any, value: Any) -> Callable[[dict], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


LEARNER, LEARNERS = ("stages", 0, "learners", "U"), ("settings", "parameters", "learners")
INPUT = (*LEARNER, "meta", "spec", "input")
MODELS: dict[str, tuple[str, Callable[[dict], None]]] = {
    "step of text": ("2wl", _set(*LEARNER, "step", value="x")),
    "step of NaN": ("2wl", _set(*LEARNER, "step", value=float("nan"))),
    "no stages": ("2wl", _set("stages", value=[])),
    "stages of numbers": ("2wl", _set("stages", value=[1])),
    "a learner of no kind": ("2wl", _set(*LEARNER, "kind", value="pickle")),
    "a class of any module": ("2wl", _set("settings", "class", value="subprocess.Popen")),
    "specification of text": ("2wl", _set(*LEARNER, "meta", "spec", value="x")),
    "no widths": ("2wl", _set(*LEARNER, "meta", "spec", "widths", value=[])),
    "negative width": ("2wl", _set(*LEARNER, "meta", "spec", "widths", value=[-1, 2])),
    "cardinalities are a number": ("2wl", _set(*INPUT, "cardinalities", value=1)),
    "unknown view": ("2wl", _set(*INPUT, "view", value="sound")),
    "backbone of another shape": ("2wl_images", _set(*INPUT, "backbone", value="resnet50")),
    "images of one pixel": ("2wl_images", _set(*INPUT, "size", value=1)),
    "a regressor that does not say its shape": ("bnn_regressor", lambda each: each["fitted"].pop("flat_")),
    "learners are text": ("2wl", _set(*LEARNERS, value="x")),
    "a learner is null": ("2wl", _set(*LEARNERS, "U", value=None)),
    "device is a list": ("2wl", _set(*LEARNERS, "U", "parameters", "device", value=[])),
    "a weak learner as the model": (
        "2wl",
        _set("settings", value={"class": "TreeLearner", "parameters": {}}),
    ),
    "ragged classes": ("2wl", _set("fitted", "classes_", value=[[1, 2], [3]])),
    "one class": ("2wl", _set("fitted", "classes_", value=[1])),
    "classes twice": ("2wl", _set("fitted", "classes_", value=[0, 1, 1])),
    "rounds of infinity": ("2wl", _set("best_round", value=float("inf"))),
    "dnn1 of text": ("two_branch", _set("network", "dnn1", value="x")),
    "three views": ("two_branch", _set("settings", "parameters", "views", value=["U", "S", "T"])),
    "another number of classes": ("two_branch", _set("network", "n_classes", value=7)),
    "a stage twice": ("earlyboost", lambda document: document["stages"].insert(0, document["stages"][0])),
    "columns it was not trained on": ("earlyboost_linear", _set("n_features_in", value=9)),
    "a GBM of other classes": ("lightgbm", _set("fitted", "classes_", value=[0, 1])),
}


@pytest.mark.parametrize("case", MODELS)
def test_model_documents(tmp_path: Path, case: str) -> None:
    saved(tmp_path / "m", *MODELS[case])
    refuses(str(tmp_path / "m") + "|a model file", persistence.load, tmp_path / "m")


def _value(index: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array.reshape(-1)[index] = value
        return array

    return change


ARRAYS: dict[str, tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = {
    "a name without a view": ("2wl", "rename", lambda array: array),
    "a column below 0": ("2wl", "0/S/0.feature", _value(0, -1)),
    "a child out of range": ("2wl", "0/S/0.left", _value(0, 2**31 - 1)),
    "a node that is its own child": ("2wl", "0/S/0.left", _value(0, 0)),
    "leaf values in one dimension": ("2wl", "0/S/0.value", np.ravel),
    "a leaf too few": ("2wl", "0/S/0.value", lambda array: array[1:]),
    "an infinite leaf": ("2wl", "0/S/0.value", _value(0, np.inf)),
    "thresholds of whole numbers": ("2wl", "0/S/0.threshold", lambda array: array.astype(np.int64)),
    "a category far too high": ("earlyboost", "0/frame_001/0.categories", lambda _: np.array([2**31 - 1])),
    "categories that start nowhere": ("2wl", "0/S/0.category_start", _value(-1, 10**6)),
    "weights of another shape": ("2wl", "0/U/0.weight", np.ravel),
    "weights of another type": ("2wl", "0/U/0.weight", lambda array: array.astype(np.float64)),
    "a weight of NaN": ("2wl", "0/U/0.weight", _value(0, np.nan)),
    "a hyperplane of another length": ("earlyboost_linear", "0/frame_001/0.weights", lambda array: array[:1]),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_model_arrays(tmp_path: Path, case: str) -> None:
    name, key, change = ARRAYS[case]
    saved(tmp_path / "m", name)
    path = tmp_path / "m" / "arrays-00000.safetensors"
    arrays = load_file(path)
    if key == "rename":
        arrays["x"] = arrays.pop(next(iter(arrays)))
    else:
        arrays[key] = np.ascontiguousarray(change(arrays[key]))
    save_file(arrays, path)
    refuses(str(tmp_path / "m"), persistence.load, tmp_path / "m")


def test_a_gbm_whose_trees_start_nowhere(tmp_path: Path) -> None:
    boosted_features.save_gbm(valid_inputs.models()["lightgbm"][0].gbm_, tmp_path / "gbm")
    with rewritten(tmp_path / "gbm" / "gbm.json") as document:
        del document["files"]
    path = tmp_path / "gbm" / "trees.safetensors"
    arrays = load_file(path)
    for name, starts in (("feature.start", [5, 3]), ("value.start", [0]), ("left.start", [[0]])):
        save_file({**arrays, name: np.array(starts)}, path)
        refuses(str(tmp_path / "gbm"), boosted_features.load_gbm, tmp_path / "gbm")
    save_file(arrays, path)
    wrong = ("initial", 3), ("n_classes", 99), ("learning_rate", "x"), ("initial", [float("inf")] * 3)
    for key, value in wrong:
        (tmp_path / "gbm" / "gbm.json").write_text(json.dumps({**document, key: value}))
        refuses(str(tmp_path / "gbm"), boosted_features.load_gbm, tmp_path / "gbm")


def test_numbers_of_5000_digits(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text(",".join(["1"] * 16 + ["9" * 5000]))
    refuses("line 1", sequences.read_pendigits, path)
    path.write_text("@dimensions " + "9" * 5000 + "\n@classLabel true a\n@data\n1,2:a\n")
    refuses("@dimensions", sequences.read_ts, path)
    path.write_text("seed: " + "9" * 5000)
    refuses("is not valid YAML", settings.load, path)


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"a: 2001-99-99", b"[" * 50_000, b"a: !!binary x\n", b"? [a]\n: b"]
)
def test_params_yaml(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "p").write_bytes(data)
    refuses(str(tmp_path / "p"), settings.load, tmp_path / "p")
    (tmp_path / "folder").mkdir()
    refuses("cannot be read", settings.load, tmp_path / "folder")


@pytest.mark.parametrize("notes", [b"{", b'{"columns": 3}', b'{"columns": [3]}', b"\xff", b"[]", b"[" * 9999])
def test_notes_of_pandas_in_a_parquet_table(tmp_path: Path, notes: bytes) -> None:
    table = pa.table({"x": [1, 2, 3, 4], "y": list("abab")}).replace_schema_metadata({"pandas": notes})
    pq.write_table(table, tmp_path / "t.parquet")
    assert len(read_columns(tmp_path / "t.parquet", TableSpec(label="y")).labels) == 4


def test_text_in_parquet_that_is_not_utf8(tmp_path: Path) -> None:
    values = pa.array([b"\xff\xfe", b"b", b"c", b"d"]).view(pa.string())
    pq.write_table(pa.table({"x": values, "y": ["a", "b"] * 2}), tmp_path / "t.parquet")
    refuses(r"t\.parquet is damaged", read_columns, tmp_path / "t.parquet", TableSpec(label="y"))


def test_a_zip_member_that_does_not_inflate(tmp_path: Path) -> None:
    name = "tiny/val/val_annotations.txt"
    members = valid_inputs.tiny_imagenet()
    data = valid_inputs.zipped(members)
    at = data.index(name.encode()) + len(name)
    for damage in (b"\xff" * 8, b"\x07" * 8):
        (tmp_path / "t.zip").write_bytes(data[:at] + damage + data[at + 8 :])
        with pytest.raises(UsboostError, match="cannot be unzipped"):
            imagenet.prepare(tmp_path / "t.zip", seed=0, profile="demo", size=8, work=tmp_path / "w")
        refuses("cannot be unzipped", image_files.read, (tmp_path / "t.zip", name))


@pytest.mark.parametrize("column", [["a", "b"], [{"a": 1}] * 2, [b"x", None], [1.0, 1e999], [[1], [2]]])
def test_boosted_features_that_are_no_numbers(tmp_path: Path, column: list[Any]) -> None:
    pq.write_table(pa.table({"0": pa.array(column)}), tmp_path / "train.parquet")
    refuses(str(tmp_path), read_features, tmp_path, "train", 2)


PREPARED: dict[str, Callable[[pa.Table], pa.Table]] = {
    "notes of pandas": lambda t: t.replace_schema_metadata({"pandas": b"{"}),
    "notes that are no text": lambda t: t.replace_schema_metadata({"pandas": b"\xff"}),
    "labels of text": lambda t: t.set_column(3, "label", pa.array(["a", "b"] * 6)),
    "labels that are missing": lambda t: t.set_column(3, "label", pa.array([None, 1] * 6)),
    "labels of no class": lambda t: t.set_column(3, "label", pa.array([0, 7] * 6)),
    "labels below 0": lambda t: t.set_column(3, "label", pa.array([0, -1] * 6)),
    "numbers of text": lambda t: t.set_column(0, "weight", pa.array(["x"] * 12)),
    "numbers that are missing": lambda t: t.set_column(0, "weight", pa.array([None, 1.0] * 6)),
    "numbers of structs": lambda t: t.set_column(0, "weight", pa.array([{"a": 1}] * 12)),
}


@pytest.mark.parametrize("case", PREPARED)
def test_prepared_splits(tmp_path: Path, case: str) -> None:
    valid_inputs.write_prepared(tmp_path / "toy", tmp_path / "work")
    path = tmp_path / "toy" / "train.parquet"
    pq.write_table(PREPARED[case](pq.read_table(path)), path)
    fuzz._right_card(tmp_path / "toy")
    refuses(".", store.read, tmp_path / "toy", "train")


@pytest.mark.parametrize(
    "table",
    [
        {"row": list(range(8)), "image": [True] * 8},
        {"row": ["a"] * 8, "image": [b"x"] * 8},
        {"row": [[0]] * 8, "image": [b"x"] * 8},
        {"row": list(range(8)), "image": [None] * 8},
        {"row": list(range(8))},
        {"image": [b"x"] * 8},
    ],
)
def test_prepared_shards(tmp_path: Path, table: dict[str, Any]) -> None:
    valid_inputs.write_prepared(tmp_path / "toy", tmp_path / "work")
    path = tmp_path / "toy" / "images" / "train" / "images-00000.parquet"
    path.unlink()
    pq.write_table(pa.table(table), path)
    fuzz._right_card(tmp_path / "toy")
    refuses(".", store.read, tmp_path / "toy", "train")


def test_a_device_a_list_of_views_and_a_category_that_are_none() -> None:
    with pytest.raises(UsboostError, match="unknown device None"):
        pick_device(None)  # type: ignore[arg-type]
    views = Views(S=Table.from_numeric(np.zeros((4, 1))))
    refuses("names no view", LightGBMBaseline(views=(), validation_fraction=0).fit, views, [0, 1, 0, 1])
    refuses("'c' holds lists or records", TableEncoder.fit, pd.DataFrame({"c": [{"a": 1}, {"b": 2}]}), ["c"])


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5, 6])
def test_tables_that_change_are_answered_alike_or_told(seed: int, tmp_path: Path) -> None:
    ended, wrong = changes.one(seed, tmp_path)
    assert wrong == [], ended

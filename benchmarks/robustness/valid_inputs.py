"""Small valid files of every kind that usboost reads, and a fitted model of every class."""

from __future__ import annotations

import gzip
import io
import random
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from usboost.data.images import Images
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.datasets import census as census_income
from usboost.datasets import covertype, image_store, store
from usboost.datasets.image_encoding import encode_files
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.tree_learner import TreeLearner
from usboost.models.baselines.trees import LightGBMBaseline
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.methods.boosted_features import BoostedFeatures
from usboost.models.methods.boosted_network import BoostedNetworkClassifier, BoostedNetworkRegressor
from usboost.models.methods.earlyboost import EarlyBoostClassifier
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier

ROWS = 40


def table(seed: int = 0, n: int = ROWS) -> Table:
    rng = np.random.default_rng(seed)
    codes = rng.integers(1, 4, size=(n, 1)).astype(np.int32)
    return Table(rng.normal(size=(n, 3)).astype(np.float32), codes, (4,))


@cache
def models() -> dict[str, tuple[Any, Any]]:
    """Fit a model of every class that has a file form, and one on images; each with what it predicts on."""
    views, y, rng = Views(U=table(0), S=table(1)), np.arange(ROWS) % 3, np.random.default_rng(2)
    with_images = Views(U=Images(rng.integers(0, 255, (ROWS, 1, 12, 12), dtype=np.uint8)), S=table(1))
    network = NetworkLearner(hidden=(4,), device="cpu", batch_size=16)
    tree = TreeLearner(min_samples_leaf=3)
    matrix = rng.normal(size=(ROWS, 3))
    two = {"n_epochs": 1, "device": "cpu", "dnn1": (4,), "dnn2": (4,), "dnn3": (3,), "validation_fraction": 0}
    few: dict[str, Any] = {"n_rounds": 2, "validation_fraction": 0}
    boosted, branches = {"learners": {"U": network, "S": tree}, **few}, TwoBranchNetworkClassifier(**two)
    gbm = BoostedFeatures(n_trees=2, min_samples_leaf=3, num_threads=1)
    by_name: dict[str, tuple[Any, Any, Any]] = {
        "2wl": (TwoWeakLearnerClassifier(**boosted), views, y),
        "2wl_images": (TwoWeakLearnerClassifier(**boosted), with_images, y),
        "two_branch": (branches, views, y),
        "bfv_dnn": (BoostedFeatureNetworkClassifier(gbm, branches, validation_fraction=0), views, y),
        "bnn": (BoostedNetworkClassifier("squared", network, **few), matrix, y),
        "bnn_regressor": (BoostedNetworkRegressor(learner=network, **few), matrix, matrix[:, 0]),
        "earlyboost": (EarlyBoostClassifier(), rng.normal(size=(ROWS, 3, 2)), y),
        "earlyboost_linear": (EarlyBoostClassifier(LogisticRegression()), rng.normal(size=(ROWS, 3, 2)), y),
        "lightgbm": (LightGBMBaseline(n_trees=3, min_samples_leaf=3, validation_fraction=0), views, y),
    }
    return {name: (clone(model).fit(X, y), X) for name, (model, X, y) in by_name.items()}


def census() -> bytes:
    """Return six lines of each class."""
    with tempfile.TemporaryDirectory() as folder:
        census_income.write_demo(Path(folder), rows_train=200, rows_test=100, seed=0)
        lines = gzip.decompress((Path(folder) / "census-income.data.gz").read_bytes()).splitlines()
    rich = [line for line in lines if b"50000+" in line]
    return b"\n".join([*rich[:6], *[line for line in lines if line not in rich][:6]]) + b"\n"


def cover() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return covertype.write_demo(folder, rows_train=50, rows_test=0, seed=0).read_bytes()


def pendigits(rows: int = 20) -> bytes:
    rng = random.Random(0)
    lines = [[*(str(rng.randrange(101)) for _ in range(16)), str(rng.randrange(10))] for _ in range(rows)]
    return "\n".join(",".join(line) for line in lines).encode() + b"\n"


TS = b"""# a comment
@problemName Toy
@timeStamps false
@missing true
@univariate false
@dimensions 2
@equalLength false
@classLabel true a b
@data
1.0,2.0,3.0:4,5,6:a
1.5,2.5,1,?:4,5,2,NaN:b
-1e3,0,1:0.5,0.25,0.125:a
"""


def image(seed: int, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (12, 12, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def images() -> dict[str, bytes]:
    """Return one image of every format that is read."""
    return {kind: image(1, kind=kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")}


def frame(rows: int = 24) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "weight": rng.normal(10, 3, rows).round(2),
            "count": rng.integers(0, 9, rows),
            "colour": rng.choice(["red", "green", "blue"], rows),
            "ok": rng.random(rows) < 0.5,
            "kind": np.array(["a", "b"])[np.arange(rows) % 2],
        }
    )


def csv_table() -> bytes:
    return frame().to_csv(index=False, lineterminator="\n").encode()


def parquet(data: pd.DataFrame) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(data, preserve_index=False), out, compression="none")
    return out.getvalue()


def other_tables(data: pd.DataFrame) -> dict[str, bytes]:
    """Return the frame with a date and written numbers, by the name of a file of its kind."""
    out, book = io.BytesIO(), io.BytesIO()
    full = data.assign(price="$1,234.50", day="24/12/2020")
    full.to_feather(out, compression="uncompressed")
    full.to_excel(book, index=False)
    text = full.to_csv(index=False, sep=";", lineterminator="\n").encode()
    return {
        "t.feather": out.getvalue(),
        "t.jsonl": full.to_json(orient="records", lines=True).encode(),
        "t.zip": zipped({"t.csv": text}),
        "t.xlsx": book.getvalue(),
    }


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)  # dated 1980, so that equal members give equal bytes
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()


def tiny_imagenet() -> dict[str, bytes]:
    """Return the members of a small zip laid out like Tiny ImageNet-200: a dog and a bird."""
    synsets = ("n02085620", "n01855672")
    members, annotations = {}, []
    for k, wnid in enumerate(synsets):
        for i in range(3):
            members[f"tiny/train/{wnid}/images/{wnid}_{i}.JPEG"] = image(10 * k + i, kind="JPEG")
    for i in range(8):
        members[f"tiny/val/images/val_{i}.JPEG"] = image(90 + i, kind="JPEG")
        annotations.append(f"val_{i}.JPEG\t{synsets[i % 2]}\t0\t0\t1\t1")
    members["tiny/val/val_annotations.txt"] = "\n".join(annotations).encode()
    return members


def write_prepared(folder: Path, work: Path) -> None:
    """Write a prepared dataset with images to `folder`."""
    splits = {}
    for k, split in enumerate(("train", "val", "test")):
        data = frame(12).drop(columns="ok")
        data["weight"] = data["weight"].astype(np.float32) + k
        data["colour"], data["label"] = pd.Categorical(data["colour"]), np.arange(12, dtype=np.int8) % 2
        splits[split] = data.drop(columns="kind")
    views = {"S": ["weight", "count", "colour"]}
    encode_files(
        {split: [image(i) for i in range(12)] for split in splits}, work, size=12, channels=3, shard_rows=8
    )
    card = store.describe(
        splits,
        views,
        ["no", "yes"],
        dataset="toy",
        profile="demo",
        seed=0,
        columns={name: {"view": "S", "kind": "continuous", "why": "a test"} for name in views["S"]},
        sources={},
        images=image_store.entry(12, 3, encoding="PNG", how="as is"),
    )
    store.write(store.Prepared(splits, views, ["no", "yes"], card, images=work), folder)

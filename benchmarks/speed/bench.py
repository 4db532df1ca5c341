"""`make bench`: everything in comparison, as ratios; reports/benchmarks.json and docs/performance.md.

Run it from the repository's root, with USBOOST_DATA naming the folder of the real census files:
``USBOOST_DATA=... python -m benchmarks.speed.bench [--rows N] [--section NAME ...]``. Sections run one after
the other, each in a separate process; things that are compared run in the same one, on the same rows.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from skimage import data
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.tree import DecisionTreeRegressor

from benchmarks.pages import between_marks, table_of
from benchmarks.speed.literal import LiteralBoosting, dense, gp_search, leaf_values
from tasks import settings as params
from tasks.catalog import DATASETS
from usboost.boosting.loop import StagewiseLoop, advance
from usboost.boosting.rounds import Stage
from usboost.boosting.steps import Newton
from usboost.boosting.targets import Gradient
from usboost.data.images import Images
from usboost.data.views import Views
from usboost.datasets import store
from usboost.learners.base import Target
from usboost.learners.networks import embeddings
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.image_network import FrozenNetwork, ImageNetwork
from usboost.learners.networks.learner import FittedNetwork, NetworkLearner
from usboost.learners.tree_learner import TreeLearner, quiet_lightgbm
from usboost.losses.base import Line
from usboost.losses.exponential import CodewordExponential
from usboost.models.methods.boosted_features import BoostedFeatures
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier

SIZES, CLASSES = (25_000, 50_000, 100_000, None), (2, 3, 7)
ROWS_TRAIN, ROWS_TEST = 199_523, 99_762  # of the census, where it is generated

Compared = list[tuple[str, float, str, float]]
"""A row of the comparison: its name, our seconds, the name of what is compared with, and its seconds."""


def prepared(folder: Path) -> Path:
    """Return the prepared form of CI-A below `folder`, made if it is not there."""
    real = os.environ.get("USBOOST_DATA")
    place = folder / ("ci_a" if real else "ci_a-generated")
    if place.exists():
        return place
    settings, source = params.load().model_copy(update={"profile": "paper"}), DATASETS["ci_a"]
    with tempfile.TemporaryDirectory() as work:
        raw = Path(work) / "raw"
        raw.mkdir(parents=True)
        if real:
            source.obtain(raw, settings, folder)
        else:
            source.write_demo(raw, rows_train=ROWS_TRAIN, rows_test=ROWS_TEST, seed=0)
        place.parent.mkdir(parents=True, exist_ok=True)
        store.write(source.prepare(raw, settings, Path(work), None), place)
    return place


@cache
def split(folder: Path, name: str, rows: int | None = None) -> tuple[Views, np.ndarray]:
    """Return the first rows of a split, as views U and S and labels."""
    views, y = store.read(prepared(folder), name)
    return views[: rows or len(y)], y[: rows or len(y)]


def fitted(views: Any, y: np.ndarray, **settings: Any) -> TwoWeakLearnerClassifier:
    return TwoWeakLearnerClassifier(patience=None, validation_fraction=0, **settings).fit(views, y)


def round_seconds(model: TwoWeakLearnerClassifier) -> float:
    """Return the median over the rounds after the first two, which also warm caches and pools."""
    return float(np.median([row["seconds_total"] for row in model.history_[2:]]))


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """Return the median of several calls."""
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return float(np.median(spent))


def rounds(folder: Path, rows: int | None) -> Compared:
    """Compare a round of 2WL and of 2WL2O with the literal one."""
    views, y = split(folder, "train", rows)
    U, S = dense(views["U"]), {"one-hot": dense(views["S"]), "ordinal": views["S"].matrix()}
    compared: Compared = []
    for name, order in (("2WL", "gradient"), ("2WL2O", "second_order")):
        ours = round_seconds(fitted(views, y, target=order, n_rounds=17))
        for coding, matrix in S.items():
            literal = LiteralBoosting(2, second_order=order == "second_order")
            literal.fit(U, matrix, y, 1)
            spent = seconds(partial(literal.fit, U, matrix, y, 1), 5)
            compared.append((f"{name} round", ours, f"literal, S {coding}", spent))
    return compared


def search(folder: Path, rows: int | None, n_rounds: int = 200) -> Compared:
    """Compare the exact search with `gp_minimize` along the same lines, in each round."""
    views, y = split(folder, "train", rows)
    spent: list[tuple[float, float]] = []

    class Both:
        def search(self, line: Line, n_steps: int, seed: int) -> np.ndarray:
            start = time.perf_counter()
            exact = Newton().search(line, n_steps, seed)
            middle = time.perf_counter()
            guided = np.asarray(gp_search(lambda steps: line.risk(np.asarray(steps)), seed, n_steps))
            spent.append((middle - start, time.perf_counter() - middle))
            assert line.risk(exact) <= line.risk(guided) + 1e-12
            return exact

    loss, learners = CodewordExponential.simplex(2), {"U": NetworkLearner(), "S": TreeLearner()}
    loop = StagewiseLoop(loss=loss, learners=learners, target=Gradient(), step=Both(), n_rounds=n_rounds)
    loop.run(views, y)
    exact, guided = np.median(spent, axis=0)
    return [("ε/δ search", float(exact), "gp_minimize, 30 evaluations", float(guided))]


def tree(folder: Path, rows: int | None) -> Compared:
    """Compare one regression tree on a round's target with scikit-learn's."""
    views, y = split(folder, "train", rows)
    target = CodewordExponential.simplex(2).w(0.5 * np.random.default_rng(0).normal(size=(len(y), 1)), y)
    ours = {}
    for threads in (1, 2):
        learner = TreeLearner(num_threads=threads)
        trainer = learner.trainer(learner.prepare(views["S"]), 1)
        trainer.fit(Target(target), seed=0)
        ours[f"tree, {threads} thread{'s' * (threads - 1)}"] = seconds(
            partial(trainer.fit, Target(target), seed=0), 30
        )
    both = np.column_stack([target, -target])  # the two outputs of unit codewords
    theirs = {
        coding: seconds(partial(DecisionTreeRegressor(max_depth=3, min_samples_leaf=20).fit, matrix, both), 5)
        for coding, matrix in (("one-hot", dense(views["S"])), ("ordinal", views["S"].matrix()))
    }
    return [
        (name, one, f"scikit-learn, S {coding}", other)
        for name, one in ours.items()
        for coding, other in theirs.items()
    ]


def gbm(folder: Path, rows: int | None, n_trees: int = 500) -> Compared:
    """Compare a GBM and its boosted feature vectors, on ordinal codes, which suit scikit-learn best."""
    views, y = split(folder, "train", rows)
    table, S, ours = views["S"], views["S"].matrix(), BoostedFeatures(n_trees=n_trees)
    fit, bfv = seconds(lambda: ours.fit(table, y), 3), seconds(lambda: ours.transform(table), 5)
    lightgbm = quiet_lightgbm()
    parameters = {"objective": "binary", "max_depth": 3, "num_leaves": 8, "learning_rate": 0.1, "verbose": -1}
    matrix, codes = table.matrix(), list(table.categorical)
    data = lightgbm.Dataset(matrix, label=y, params=parameters, categorical_feature=codes)
    booster = lightgbm.train(parameters, data, num_boost_round=n_trees)
    values = np.zeros((n_trees, 8), dtype=np.float32)
    for t, grown in enumerate(booster.dump_model()["tree_info"]):
        for leaf in range(grown["num_leaves"]):
            values[t, leaf] = booster.get_leaf_output(t, leaf)
    looked_up = seconds(lambda: values[np.arange(n_trees), booster.predict(matrix, pred_leaf=True)], 5)
    paper = GradientBoostingClassifier(n_estimators=n_trees, max_depth=3)
    their_fit, their_bfv = seconds(lambda: paper.fit(S, y), 1), seconds(lambda: leaf_values(paper, S), 1)
    return [
        (f"GBM fit + BFV, {n_trees} trees", fit + bfv, "scikit-learn, estimators_", their_fit + their_bfv),
        ("BFV alone", bfv, "LightGBM pred_leaf and look-up", looked_up),
        ("BFV alone", bfv, "loop over estimators_", their_bfv),
    ]


def predict(folder: Path, rows: int | None, n_rounds: int = 500, n_rows: int = 100_000) -> Compared:
    """Compare `predict_proba` of many rounds with learners that are called one by one."""
    views, y = split(folder, "train", rows)
    model = fitted(views, y, n_rounds=20)
    model.stages_ = [_copied(model.stages_[i % 20]) for i in range(n_rounds)]
    some = views[:n_rows]
    together = seconds(lambda: model.predict_proba(some), 3)

    def one_by_one() -> None:
        read, f = model._prepare(some), np.zeros((len(some), 1))
        for stage in model.stages_:
            advance(f, stage, read)

    U, S = dense(views["U"]), dense(views["S"])
    literal = LiteralBoosting(2, search=lambda risk, index: [1.0, 1.0])
    literal.fit(U[:20_000], S[:20_000], y[:20_000], 20)
    literal.stages_ = [literal.stages_[i % 20] for i in range(n_rounds)]
    what = f"predict_proba, {n_rounds} rounds, {len(some):,} rows"
    theirs = seconds(lambda: literal.decision_function(U[:n_rows], S[:n_rows]), 1)
    return [
        (what, together, "literal learners one by one", theirs),
        (what, together, "our learners one by one", seconds(one_by_one, 2)),
    ]


def _copied(stage: Stage) -> Stage:
    """Copy a stage with arrays of its own, so that memory is read as of separate learners."""
    learners = dict(stage.learners)
    for name, learner in learners.items():
        if isinstance(learner, FittedNetwork):
            weights = {key: value.copy() for key, value in learner.weights.items()}
            learners[name] = FittedNetwork(learner.spec, weights)
    return Stage(learners, stage.steps)


def scaling(folder: Path, rows: int | None, n_classes: int = 2, n_rounds: int = 8) -> dict[str, float]:
    """Measure seconds and memory of a round; labels cut from a noisy sum of the numbers into equal parts."""
    views, _ = split(folder, "train", rows)
    score = sum(views[name].numeric.sum(axis=1) for name in ("U", "S"))
    score = score + score.std() * np.random.default_rng(0).normal(size=len(score))
    y = np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)
    before = resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    model = fitted(views, y, n_rounds=n_rounds)
    peak = resident_bytes("VmHWM") - before
    return {"rows": len(y), "classes": n_classes, "round": round_seconds(model), "peak": peak}


def resident_bytes(what: str) -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(what)) * 1024


def crops(n: int, side: int) -> Images:
    """Cut n random squares of scikit-image's photographs."""
    rng = np.random.default_rng(0)
    photographs = [data.chelsea(), data.coffee(), data.astronaut()]
    pixels = np.empty((n, 3, side, side), dtype=np.uint8)
    for k in range(n):
        image = photographs[k % len(photographs)]
        top, left = (rng.integers(0, length - side + 1) for length in image.shape[:2])
        pixels[k] = image[top : top + side, left : left + side].transpose(2, 0, 1)
    return Images(pixels)


def embedding(folder: Path, rows: int | None, n_images: int = 384, side: int = 128) -> Compared:
    """Compare EfficientNet-Lite0 by a plain loop over batches of 32, as usboost runs it, and from the disk.

    Seconds on all cores, the best of three turns.
    """
    view, cpu = crops(n_images, side), torch.device("cpu")
    backbone = Backbone(cache=False)
    networks = [ImageNetwork(backbone.spec(view), []).eval() for _ in range(2)]
    for network in networks:
        backbone.load_weights(network)
    embed = partial(FrozenNetwork(networks[0], cpu), view, np.arange(n_images))

    @torch.no_grad()
    def plain() -> np.ndarray:
        parts = torch.from_numpy(view.pixels).split(32)
        return torch.cat([networks[1]((part,)) for part in parts]).numpy()

    np.testing.assert_allclose(plain(), found := embed(), atol=1e-3 * np.abs(found).max())
    turns = [(seconds(plain, 1), seconds(embed, 1)) for _ in range(3)]
    theirs, ours = np.min(turns, axis=0).tolist()
    with tempfile.TemporaryDirectory() as cache:
        cached = Backbone(cache=cache)
        cached.embed(view, cpu)
        embeddings.forget()
        again = seconds(lambda: cached.embed(view, cpu), 1)
    what = f"embedding {n_images} images of {side} pixels"
    return [
        (what, ours, "plain loop, batches of 32", theirs),
        (f"{what} again", again, "the first time", ours),
    ]


SECTIONS: dict[str, Callable[..., Any]] = {
    section.__name__: section for section in (rounds, search, tree, gbm, predict, scaling, embedding)
}


def measure(name: str, folder: Path, rows: int | None) -> Any:
    """Run a section in a separate process; `scaling` once for each number of rows and classes."""
    calls: list[dict[str, Any]] = [{"rows": rows}]
    if name == "scaling":
        calls = [{"rows": size or rows, "n_classes": m} for m in CLASSES for size in SIZES]
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        results = [pool.submit(SECTIONS[name], folder, **call).result() for call in calls]
    return results if name == "scaling" else results[0]


def markdown(figures: dict[str, Any]) -> str:
    """Return the figures as docs/performance.md shows them."""
    lines = [
        [what, _time(ours), f"{against} {_time(theirs)}", f"{theirs / ours:.1f}×"]
        for name in SECTIONS
        if name != "scaling"
        for what, ours, against, theirs in figures.get(name, [])
    ]
    text = f"{figures['machine']}\n\n{table_of(['what', 'ours', 'against', 'ratio'], lines)}"
    if runs := figures.get("scaling"):
        heads = ["classes", "rows", "ms a round", "µs a row", "peak MB", "bytes a row"]
        rows = []
        for run in runs:
            each = 1e6 * run["round"] / run["rows"], run["peak"] / 1e6, run["peak"] / run["rows"]
            numbers = f"{1e3 * run['round']:.0f} {each[0]:.2f} {each[1]:.0f} {each[2]:.0f}"
            rows.append([str(run["classes"]), f"{run['rows']:,}", *numbers.split()])
        text += f"\n{table_of(heads, rows)}"
    return text


def _time(spent: float) -> str:
    return f"{spent:.2f} s" if spent >= 1 else f"{1000 * spent:.1f} ms"


def main(
    rows: int | None = None,
    section: list[str] | None = None,
    data: Path = Path(".usboost/bench"),
    report: Path = Path("reports/benchmarks.json"),
    page: Path = Path("docs/performance.md"),
) -> None:
    """Measure some sections, with at most so many training rows; `data` is a folder of prepared rows."""
    prepared(data)
    figures = json.loads(report.read_text()) if report.exists() else {}
    for name in section or SECTIONS:
        print(f"measuring {name} …", flush=True)
        figures[name] = measure(name, data, rows)
    figures["machine"] = (
        f"Measured {time.strftime('%Y-%m-%d')} on {os.cpu_count()} cores ({platform.machine()}), "
        f"Python {platform.python_version()}, torch {version('torch').split('+')[0]}, LightGBM "
        f"{version('lightgbm')}, scikit-learn {version('scikit-learn')}."
        f"{'' if os.environ.get('USBOOST_DATA') else ' Generated rows.'}"
    )
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps(figures, indent=1) + "\n")
    if page.exists():
        page.write_text(between_marks(page.read_text(), "figures", markdown(figures)))
    print(markdown(figures))


if __name__ == "__main__":
    typer.run(main)

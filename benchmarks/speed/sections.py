"""What `benchmarks.speed.bench` measures, one function a section; each gives figures as JSON.

Everything compared runs in one process, one after the other, on the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.tree import DecisionTreeRegressor

from benchmarks.speed.census import dense, ordinal, split
from benchmarks.speed.images import embedding
from benchmarks.speed.literal import LiteralBoosting, gp_search, leaf_values
from usboost.boosting.callbacks import Callback
from usboost.boosting.loop import StagewiseLoop, advance
from usboost.boosting.rounds import Round, Stage
from usboost.boosting.steps import Newton
from usboost.boosting.targets import Gradient
from usboost.evaluation.metrics import f1
from usboost.learners.base import Target
from usboost.learners.networks.learner import FittedNetwork, NetworkLearner
from usboost.learners.trees.engines import quiet_lightgbm
from usboost.learners.trees.learner import TreeLearner
from usboost.losses.base import Line
from usboost.losses.codeword import CodewordExponential
from usboost.models.boosted.two_weak_learner import TwoWeakLearnerClassifier
from usboost.models.networks.boosted_features import BoostedFeatures

Figures = dict[str, Any]


class RoundSeconds(Callback):
    """Every round's parts in seconds, without the scoring of validation data."""

    def __init__(self) -> None:
        self.parts: list[dict[str, float]] = []

    def on_round(self, round_: Round) -> bool:
        self.parts.append(dict(round_.seconds))
        return False

    def median(self, skip: int = 2) -> dict[str, float]:
        """Medians over the rounds after the first ones, which also warm caches and pools."""
        kept = self.parts[skip:]
        return {name: float(np.median([part.get(name, 0.0) for part in kept])) for name in kept[0]}


def seconds(work: Callable[..., Any], repeats: int, *arguments: Any) -> list[float]:
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        work(*arguments)
        spent.append(time.perf_counter() - start)
    return spent


def rounds(folder: Path, rows: int | None) -> Figures:
    """A round of 2WL and of 2WL2O against the literal one."""
    views, y = split(folder, "train", rows)
    U, S = dense(views["U"]), {"one-hot": dense(views["S"]), "ordinal": ordinal(views["S"])}
    out: Figures = {"rows": len(y), "U": U.shape[1], "S": {name: x.shape[1] for name, x in S.items()}}
    for name, order in (("2wl", "gradient"), ("2wl2o", "second_order")):
        watch = RoundSeconds()
        model = TwoWeakLearnerClassifier(
            target=order, n_rounds=17, patience=None, validation_fraction=0, callbacks=[watch]
        ).fit(views, y)
        out[name] = {"fast": watch.median(), "rounds": model.n_rounds_run_}
        for coding, matrix in S.items():
            literal = LiteralBoosting(2, second_order=order == "second_order")
            spent = seconds(literal.fit, 6, U, matrix, y, 1)[1:]
            parts = {part: total / 6 for part, total in literal.seconds_.items()}
            out[name][f"literal, S {coding}"] = {"total": float(np.median(spent)), **parts}
    return out


def search(folder: Path, rows: int | None, n_rounds: int = 200) -> Figures:
    """The exact search against `gp_minimize` along the same lines, in every one of 200 rounds."""
    views, y = split(folder, "train", rows)
    compared: list[tuple[float, float, float, float]] = []

    class Both:
        def search(self, line: Line, n_steps: int, seed: int) -> np.ndarray:
            start = time.perf_counter()
            exact = Newton().search(line, n_steps, seed)
            middle = time.perf_counter()
            guided = gp_search(lambda steps: line.risk(np.asarray(steps)), seed, n_steps)
            spent = middle - start, time.perf_counter() - middle
            compared.append((*spent, line.risk(exact), line.risk(np.asarray(guided))))
            return exact

    StagewiseLoop(
        loss=CodewordExponential.simplex(2),
        learners={"U": NetworkLearner(), "S": TreeLearner()},
        target=Gradient(),
        step=Both(),
        n_rounds=n_rounds,
    ).run(views, y)
    exact, guided, risk_exact, risk_guided = np.array(compared).T
    return {
        "rounds": len(compared),
        "exact": float(np.median(exact)),
        "gp_minimize": float(np.median(guided)),
        "risk_no_higher": int((risk_exact <= risk_guided + 1e-12).sum()),
        "largest_gain": float((risk_guided - risk_exact).max()),
        "median_gain": float(np.median(risk_guided - risk_exact)),
    }


def tree(folder: Path, rows: int | None) -> Figures:
    """One regression tree on a round's target."""
    views, y = split(folder, "train", rows)
    rng = np.random.default_rng(0)
    loss = CodewordExponential.simplex(2)
    target = loss.w(0.5 * rng.normal(size=(len(y), 1)), y)
    out: Figures = {}
    for threads in (1, 2):
        learner = TreeLearner(num_threads=threads)
        prepared = learner.prepare(views["S"])
        trainer = learner.trainer(prepared, 1)
        spent = seconds(partial(trainer.fit, Target(target), seed=0), 30)
        out[f"fast, {threads} thread{'s' * (threads - 1)}"] = float(np.median(spent[3:]))
    both = np.column_stack([target, -target])  # the two outputs of unit codewords
    for coding, matrix in (("one-hot", dense(views["S"])), ("ordinal", ordinal(views["S"]))):
        spent = seconds(DecisionTreeRegressor(max_depth=3, min_samples_leaf=20).fit, 5, matrix, both)
        out[f"scikit-learn, S {coding}"] = float(np.median(spent))
    return out


def gbm(folder: Path, rows: int | None, n_trees: int = 500) -> Figures:
    """A GBM and its boosted feature vectors, on ordinal codes, which suit scikit-learn best."""
    views, y = split(folder, "train", rows)
    table, S = views["S"], ordinal(views["S"])
    ours = BoostedFeatures(n_trees=n_trees)
    out: Figures = {"trees": n_trees}
    out["fast fit"] = float(np.median(seconds(lambda: ours.fit(table, y), 3)))
    out["fast BFV"] = float(np.median(seconds(lambda: ours.transform(table), 5)))
    lightgbm = quiet_lightgbm()
    parameters = {"objective": "binary", "max_depth": 3, "num_leaves": 8, "learning_rate": 0.1, "verbose": -1}
    data = lightgbm.Dataset(
        table.matrix(), label=y, params=parameters, categorical_feature=list(table.categorical)
    )
    booster = lightgbm.train(parameters, data, num_boost_round=n_trees)
    values = np.zeros((n_trees, 8), dtype=np.float32)
    for t, grown in enumerate(booster.dump_model()["tree_info"]):
        for leaf in range(grown["num_leaves"]):
            values[t, leaf] = booster.get_leaf_output(t, leaf)
    matrix = table.matrix()

    def looked_up() -> np.ndarray:
        return values[np.arange(n_trees), booster.predict(matrix, pred_leaf=True)]

    out["LightGBM pred_leaf and look-up"] = float(np.median(seconds(looked_up, 5)))
    paper = GradientBoostingClassifier(n_estimators=n_trees, max_depth=3)
    out["scikit-learn fit"] = seconds(lambda: paper.fit(S, y), 1)[0]
    out["scikit-learn BFV"] = seconds(lambda: leaf_values(paper, S), 1)[0]
    return out


def predict(folder: Path, rows: int | None, n_rounds: int = 500, n_rows: int = 100_000) -> Figures:
    """`predict_proba` of 500 rounds on 100,000 rows."""
    views, y = split(folder, "train", rows)
    model = TwoWeakLearnerClassifier(n_rounds=20, patience=None, validation_fraction=0).fit(views, y)
    model.stages_ = [_copied(model.stages_[i % 20]) for i in range(n_rounds)]
    some = views[:n_rows]
    out: Figures = {"rounds": n_rounds, "rows": len(some)}
    out["together"] = float(np.median(seconds(lambda: model.predict_proba(some), 3)))

    def one_by_one() -> None:
        prepared = model._prepare(some)
        f = np.zeros((len(some), 1))
        for stage in model.stages_:
            advance(f, stage, prepared)

    out["ours one by one"] = float(np.median(seconds(one_by_one, 2)))
    U, S = dense(views["U"]), dense(views["S"])
    literal = LiteralBoosting(2, search=lambda risk, index: [1.0, 1.0])
    kept = min(len(y), 20_000)
    literal.fit(U[:kept], S[:kept], y[:kept], 20)
    literal.stages_ = [literal.stages_[i % 20] for i in range(n_rounds)]
    out["literal one by one"] = seconds(lambda: literal.decision_function(U[:n_rows], S[:n_rows]), 1)[0]
    return out


def _copied(stage: Stage) -> Stage:
    """The same learners in memory of their own: nothing is in the cache because it was just read."""
    learners = {}
    for name, learner in stage.learners.items():
        if isinstance(learner, FittedNetwork):
            weights = {key: value.copy() for key, value in learner.weights.items()}
            learner = FittedNetwork(learner.spec, weights)
        learners[name] = learner
    return Stage(learners, stage.steps)


def memory(folder: Path, rows: int | None, n_rounds: int = 10) -> Figures:
    """Peak memory that a fit adds, against the two float32 design matrices."""
    views, y = split(folder, "train", rows)
    held = resident_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    TwoWeakLearnerClassifier(n_rounds=n_rounds, patience=None, validation_fraction=0).fit(views, y)
    size = len(y) * 4
    one_hot = {name: views[name].n_numeric + sum(views[name].cardinalities) for name in ("U", "S")}
    tables = sum(views[name].numeric.nbytes + views[name].codes.nbytes for name in ("U", "S"))
    return {
        "peak": resident_bytes("VmHWM") - held + tables,
        "matrices, both one-hot": size * (one_hot["U"] + one_hot["S"]),
        "matrices, S ordinal": size * (one_hot["U"] + views["S"].n_columns),
    }


def resident_bytes(what: str = "VmRSS") -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {what}")


def scaling(folder: Path, rows: int | None, n_classes: int = 2, n_rounds: int = 8) -> Figures:
    """Seconds and memory of a round; labels cut from a noisy sum of the numbers into M equal parts."""
    views, _ = split(folder, "train", rows)
    rng = np.random.default_rng(0)
    score = sum(views[name].numeric.sum(axis=1) for name in ("U", "S"))
    score = score + score.std() * rng.normal(size=len(score))
    y = np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)
    held, watch = resident_bytes(), RoundSeconds()
    Path("/proc/self/clear_refs").write_text("5")
    TwoWeakLearnerClassifier(n_rounds=n_rounds, patience=None, validation_fraction=0, callbacks=[watch]).fit(
        views, y
    )
    peak = resident_bytes("VmHWM") - held
    return {"rows": len(y), "classes": n_classes, "round": watch.median()["total"], "peak": peak}


def quality(folder: Path, rows: int | None, n_rounds: int = 25, n_seeds: int = 3) -> Figures:
    """F1 on validation rows after the same rounds, over seeds."""
    (views, y), (held, held_y) = split(folder, "train", rows), split(folder, "val", rows)
    U, S = dense(views["U"]), ordinal(views["S"])
    held_U, held_S = dense(held["U"]), ordinal(held["S"])
    fast, literal = [], []
    for seed in range(n_seeds):
        model = TwoWeakLearnerClassifier(
            n_rounds=n_rounds, patience=None, validation_fraction=0, random_state=seed
        ).fit(views, y)
        fast.append(f1(held_y, model.predict(held), 2))
        paper = LiteralBoosting(2, seed=seed).fit(U, S, y, n_rounds)
        literal.append(f1(held_y, paper.decision_function(held_U, held_S).argmax(axis=1), 2))
    return {"rounds": n_rounds, "fast": fast, "literal": literal}


def trimming(folder: Path, rows: int | None, n_rounds: int = 40) -> Figures:
    """What leaving out the lightest samples does to the risk and the time of 2WL-Newton."""
    train, held = split(folder, "train", rows), split(folder, "val", rows)
    out: Figures = {"rounds": n_rounds}
    for trim in (0.0, 0.01, 0.05, 0.1, 0.2):
        watch = RoundSeconds()
        model = TwoWeakLearnerClassifier(
            target="newton", trim=trim, n_rounds=n_rounds, shrinkage=0.3, patience=None, callbacks=[watch]
        ).fit(*train, validation=held)
        last = model.history_[-1]
        out[str(trim)] = {
            "round": watch.median()["total"] - watch.median()["validation"],
            **{name: last[name] for name in ("risk_train", "risk_val", "f1_val")},
        }
    return out


SECTIONS: dict[str, Callable[..., Figures]] = {
    section.__name__: section
    for section in (rounds, search, tree, gbm, predict, memory, scaling, quality, trimming, embedding)
}

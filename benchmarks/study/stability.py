"""Why rounds of 2WL jump: the largest rise of the validation risk, and what the rounds that jump have.

``USBOOST_DATA=... python -m benchmarks.study.stability run FOLDER``: draws of CI-A's rows and of CT's with
images, prepared as `benchmarks.study.results` does it in FOLDER; what is there is not fitted again.
``python -m benchmarks.study.stability write FOLDER`` takes the scores into the repository, and ``write``
alone makes the tables of docs/results/stability.md of them. Minutes on a core.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from benchmarks.speed.bench import between_marks
from benchmarks.study.cells import Samples, make
from benchmarks.study.rows import interval
from flows.local import runtime
from tasks import machine, settings
from tasks.fits import models
from usboost.boosting.callbacks import Callback
from usboost.boosting.loop import advance
from usboost.boosting.rounds import Round, Stage
from usboost.datasets.files.sampling import stratified_sample
from usboost.datasets.prepared import store
from usboost.evaluation import metrics
from usboost.learners.missing_views import predict, prepare
from usboost.losses.codeword import CodewordExponential

PAGE, KEPT = Path("docs/results/stability.md"), Path("benchmarks/study/papers/stability.csv")
SEEDS, ROUNDS = 5, {"ci_a": 60, "ct": 40}
PARTS = {"ci_a": "census", "ct": "ct"}
ROWS: dict[str, dict[str, int | None]] = {"ci_a": {"train": 20_000, "val": 20_000, "test": None}, "ct": {"train": 8_000}}
"""Of each split; all where none is named."""
TARGETS = {"2WL": "gradient", "2WL2O": "second_order", "2WL-Newton": "newton"}
SHRINKAGE, HELD = (1.0, 0.3), (0.0, 0.2)
JUMP = 0.01
"""A round jumps where the validation risk rises by more than this share."""
FEW = 10


@dataclass(frozen=True)
class Fit:
    """One fit: a target, a shrinkage, the share of the rows that steps are searched on, a draw of rows."""

    table: str
    model: str
    shrinkage: float
    held: float
    seed: int


class Kept(Callback):
    """Keeps every round's learners and steps."""

    def on_fit_begin(self, fit: Any) -> None:
        self.stages: list[Stage] = []

    def on_round(self, round_: Round) -> bool:
        self.stages.append(round_.stage)
        return False


@dataclass
class Scored:
    """Rows with their scores so far: `rows` as each learner has prepared them, and f, float64 (n, D)."""

    rows: dict[str, Any]
    y: np.ndarray
    f: np.ndarray

    @classmethod
    def of(cls, model: Any, samples: Samples, n_outputs: int) -> Scored:
        views, y = samples
        read = model.reading_(views)
        rows = {name: prepare(learner, read[name]) for name, learner in model.learners.items()}
        return cls(rows, y, np.zeros((len(y), n_outputs)))


def fits(table: str) -> Iterator[Fit]:
    for seed, model, shrinkage, held in product(range(SEEDS), TARGETS, SHRINKAGE, HELD):
        yield Fit(table, model, shrinkage, held, seed)


def drawn(prepared: Path, table: str, seed: int) -> dict[str, Samples]:
    """A draw of each split's rows."""
    found = {}
    for split in ("train", "val", "test"):
        views, y = store.read(prepared, split)
        rows = stratified_sample(y, ROWS[table].get(split), seed)
        found[split] = views[rows], y[rows]
    return found


def fitted(fit: Fit, chosen: settings.Settings, splits: dict[str, Samples]) -> tuple[Any, list[Stage]]:
    """A fit of as many rounds as are looked at, whatever they do, and all its stages."""
    kept = Kept()
    model = models.build("2wl", fit.table, chosen, fit.seed)
    model.set_params(
        target=TARGETS[fit.model],
        step="newton",
        step_settings={},
        shrinkage=fit.shrinkage,
        step_fraction=fit.held,
        monitor="risk_val",
        patience=None,
        n_rounds=ROUNDS[fit.table],
        callbacks=[kept],
    )
    return model.fit(*splits["train"], validation=splits["val"]), kept.stages


def rounds_of(model: Any, stages: list[Stage], splits: dict[str, Samples]) -> Iterator[dict[str, float]]:
    """What each round had and did.

    heavy : share of the training rows' weight, Σ_k e_ik, that the heaviest hundredth of the rows holds
    cosine : between the directions of the two learners on the training rows
    risk, rise : on the validation rows, and by which share it rose
    few : share of the risk's change that the `FEW` rows whose loss rose most make up
    longest : the largest change of a validation row's margin
    """
    n_classes = len(model.classes_)
    loss = CodewordExponential.of_classes(n_classes, per_class=n_classes > 2)
    train, val, test = (Scored.of(model, splits[name], loss.n_outputs) for name in ("train", "val", "test"))
    before = loss.weights(val.f, val.y).sum(axis=1)
    for stage in stages:
        weights = np.sort(loss.weights(train.f, train.y).sum(axis=1))[::-1]
        one, other = (
            predict(learner, train.rows[name], loss.n_outputs).ravel().astype(float)
            for name, learner in stage.learners.items()
        )
        moved = [each.f.copy() for each in (train, val)]
        for each in (train, val, test):
            advance(each.f, stage, each.rows)
        after = loss.weights(val.f, val.y).sum(axis=1)
        change = after - before
        probabilities = softmax(loss.scores(test.f), axis=1)
        scored = metrics.score(test.y, probabilities)
        yield {
            "heavy": weights[: len(weights) // 100].sum() / weights.sum(),
            "cosine": one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-300),
            "risk": 1 + after.mean(),
            "rise": (1 + after.mean()) / (1 + before.mean()) - 1,
            "few": np.sort(change)[-FEW:].sum() / change.sum(),
            "longest": np.abs(loss.margins(val.f - moved[1], val.y)).max(),
            "longest_train": np.abs(loss.margins(train.f - moved[0], train.y)).max(),
            "step_U": stage.steps["U"],
            "step_S": stage.steps["S"],
            "f1": scored["f1"],
            "log_loss": scored["log_loss"],
        }
        before = after


def summary(rounds: pd.DataFrame) -> dict[str, float]:
    """A fit in one line: its largest rise, its best round's scores, and its rounds that jump and others."""
    best = rounds["risk"].idxmin()
    jumps = rounds["rise"] > JUMP
    worst = rounds.loc[rounds["rise"].idxmax()]
    found = {
        "rise": rounds["rise"].max(),
        "jumps": int(jumps.sum()),
        "risk": rounds["risk"].min(),
        "best_round": int(best) + 1,
        "f1": rounds["f1"][best],
        "log_loss": rounds["log_loss"][best],
        "last_log_loss": rounds["log_loss"].iloc[-1],
        "negative": float((rounds[["step_U", "step_S"]] < 0).any(axis=1).mean()),
    }
    for name in ("heavy", "cosine", "longest", "longest_train"):
        found |= {f"{name}_jump": rounds[name][jumps].mean(), f"{name}_else": rounds[name][~jumps].mean()}
    return found | {"few_of_largest": worst["few"] if worst["rise"] > JUMP else float("nan")}


def run(folder: Path, tables: list[str]) -> None:
    """Every fit that FOLDER/stability.jsonl does not have."""
    out = folder / "stability.jsonl"
    there = {tuple(row[key] for key in Fit.__dataclass_fields__) for row in kept(out)}
    machine.limit_threads(1)
    for table in tables:
        place = make(folder, PARTS[table])
        with chdir(place):
            chosen, splits, of = settings.load(), {}, None
            for fit in fits(table):
                if tuple(vars(fit).values()) in there:
                    continue
                if of != fit.seed:
                    splits, of = drawn(place / "data/prepared" / table, table, fit.seed), fit.seed
                rounds = pd.DataFrame(rounds_of(*fitted(fit, chosen, splits), splits))
                row = vars(fit) | summary(rounds)
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)


def kept(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def pm(values: pd.Series, digits: int, percent: bool = False) -> str:
    """Mean ± half the 95 % interval over the draws."""
    mean, half = interval(values.dropna() * (100 if percent else 1))
    if np.isnan(mean):
        return "–"
    return f"{mean:.{digits}f}" if np.isnan(half) else f"{mean:.{digits}f} ± {half:.{digits}f}"


def outcome(frame: pd.DataFrame, table: str) -> str:
    """A line for each model, shrinkage and kind of step: how it rose, and its scores."""
    heads = ["model", "shrinkage", "steps on", "largest rise, % (worst)", "rounds that jump"]
    heads += ["lowest risk", "F1 there", "log-loss there", "log-loss at the end"]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads))]
    groups = frame[frame["table"] == table].groupby(["model", "shrinkage", "held"], sort=False)
    for (model, shrinkage, held), of in groups:
        worst = 100 * of["rise"].max()
        row = [model, f"{shrinkage:g}", f"{held:.0%} held out" if held else "all rows"]
        row += [f"{pm(of['rise'], 1, percent=True)} ({worst:.1f})", f"{of['jumps'].mean():.1f}"]
        row += [pm(of["risk"], 4), pm(of["f1"], 4), pm(of["log_loss"], 4), pm(of["last_log_loss"], 3)]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def causes(frame: pd.DataFrame, table: str) -> str:
    """What the rounds that jump have, and the others, of fits with a jump."""
    own = frame[(frame["table"] == table) & (frame["jumps"] > 0)]
    heads = ["model", "shrinkage", "steps on", "fits", "heaviest 1 % of rows, % of the weight"]
    heads += ["cosine", "longest move, training rows", "longest move, validation rows", "few rows' share"]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads))]
    for (model, shrinkage, held), of in own.groupby(["model", "shrinkage", "held"], sort=False):
        row = [model, f"{shrinkage:g}", f"{held:.0%} held out" if held else "all rows", str(len(of))]
        row.append(f"{100 * of['heavy_jump'].mean():.0f}, else {100 * of['heavy_else'].mean():.0f}")
        row.append(f"{of['cosine_jump'].mean():.2f}, else {of['cosine_else'].mean():.2f}")
        for name in ("longest_train", "longest"):
            row.append(f"{of[f'{name}_jump'].mean():.1f}, else {of[f'{name}_else'].mean():.1f}")
        row.append(f"{of['few_of_largest'].median():.2f}")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def write(folder: Path | None) -> None:
    """Take the folder's scores into the repository; make the page's tables of those that are there."""
    if folder is not None:
        frame = pd.DataFrame(kept(folder / "stability.jsonl"))
        order = {name: k for k, name in enumerate(TARGETS)}
        frame = frame.assign(order=frame["model"].map(order)).sort_values(
            ["table", "order", "shrinkage", "held", "seed"], ascending=[True, True, False, True, True]
        )
        frame.drop(columns="order").to_csv(KEPT, index=False, float_format="%.6g")
    frame, text = pd.read_csv(KEPT), PAGE.read_text()
    for table in frame["table"].unique():
        text = between_marks(text, f"{table} outcome", outcome(frame, table))
        text = between_marks(text, f"{table} causes", causes(frame, table))
    PAGE.write_text(text)


if __name__ == "__main__":
    runtime.configure()
    place = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    if sys.argv[1] == "run":
        assert place is not None, "run needs a folder"
        run(place, sys.argv[3:] or list(PARTS))
    else:
        write(place)

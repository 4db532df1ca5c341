"""Why rounds of 2WL jump: the largest rise of the validation risk, and what the rounds that jump have.

``USBOOST_DATA=... python -m benchmarks.study.stability run FOLDER``: draws of CI-A's rows and of CT's with
images, prepared as `benchmarks.study.results` does it in FOLDER; what is there is not fitted again.
``python -m benchmarks.study.stability write FOLDER`` takes the scores into the repository, and ``write``
alone makes the tables of docs/results/stability.md of them. Minutes on a core.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
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

PAGES = Path("docs/results/stability.md"), Path("docs/results/stability-tables.md")
KEPT = Path("benchmarks/study/papers/stability.csv")
SEEDS, ROUNDS = 5, {"ci_a": 60, "ci_a_few": 60, "ct": 30}
PLACES = {"ci_a": ("census", "ci_a"), "ci_a_few": ("census", "ci_a"), "ct": ("ct", "ct")}
"""Part and dataset of each table."""
ROWS = {
    "ci_a": {"train": 20_000, "val": 20_000},
    "ci_a_few": {"train": 3_000, "val": 10_000, "test": 10_000},
    "ct": {"train": 8_000},
}
"""Of each split; all where none is named."""
TARGETS = {"2WL": "gradient", "2WL2O": "second_order", "2WL-Newton": "newton"}
SHRINKAGE, HELD = (1.0, 0.3), (0.0, 0.2)
MARKS = {"ci_a": (1.22, 1.2, 1.18), "ci_a_few": (1.2, 1.15, 1.1), "ct": (1.8, 1.6, 1.4)}
"""Risks of the training rows at which fits are compared."""
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
    for model, seed, shrinkage, held in product(TARGETS, range(SEEDS), SHRINKAGE, HELD):
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
    model = models.build("2wl", PLACES[fit.table][1], chosen, fit.seed)
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


def rounds_of(model: Any, stages: list[Stage], splits: dict[str, Samples]) -> tuple[pd.DataFrame, float]:
    """What each round had and did; and the largest rise without the few rows that end heaviest.

    heavy, heavy_val : share of the training and of the validation rows' weight, Σ_k e_ik, that their
        heaviest hundredth holds before the round
    cosine : between the directions of the two learners on the training rows
    risk, rise : on the validation rows, and by which share it rose; risk_train, rise_train of the training
        rows
    few : share of the risk's change that the `FEW` rows whose loss rose most make up
    largest, largest_train : the largest weight of a validation and of a training row after it
    """
    n_classes = len(model.classes_)
    loss = CodewordExponential.of_classes(n_classes, per_class=n_classes > 2)
    train, val, test = (Scored.of(model, splits[name], loss.n_outputs) for name in ("train", "val", "test"))

    def weights(rows: Scored) -> np.ndarray:
        return loss.weights(rows.f, rows.y).sum(axis=1)

    found, each_val, each_train = [], [weights(val)], [weights(train)]
    for stage in stages:
        one, other = (
            predict(learner, train.rows[name], loss.n_outputs).ravel().astype(float)
            for name, learner in stage.learners.items()
        )
        for rows in (train, val, test):
            advance(rows.f, stage, rows.rows)
        each_val.append(weights(val))
        each_train.append(weights(train))
        change = each_val[-1] - each_val[-2]
        scored = metrics.score(test.y, softmax(loss.scores(test.f), axis=1))
        found.append(
            {
                "heavy": share_of_heaviest(each_train[-2]),
                "heavy_val": share_of_heaviest(each_val[-2]),
                "cosine": one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-300),
                "risk": 1 + each_val[-1].mean(),
                "rise": rise(each_val[-2:])[0],
                "risk_train": 1 + each_train[-1].mean(),
                "rise_train": rise(each_train[-2:])[0],
                "few": np.sort(change)[-FEW:].sum() / change.sum(),
                "largest": each_val[-1].max(),
                "largest_train": each_train[-1].max(),
                "negative": min(stage.steps.values()) < 0,
                "f1": scored["f1"],
                "log_loss": scored["log_loss"],
            }
        )
    rest = np.argsort(each_val[-1])[:-FEW]
    return pd.DataFrame(found), float(rise([row[rest] for row in each_val]).max())


def share_of_heaviest(weights: np.ndarray) -> float:
    """The share of the weight that the heaviest hundredth of the rows holds."""
    return float(np.sort(weights)[-max(1, len(weights) // 100) :].sum() / weights.sum())


def rise(weights: Sequence[np.ndarray]) -> np.ndarray:
    """By which share the risk of some rows rises from round to round, from their weights after each."""
    risks = np.array([1 + each.mean() for each in weights])
    return np.asarray(risks[1:] / risks[:-1] - 1)


def summary(rounds: pd.DataFrame, without: float, marks: Sequence[float]) -> dict[str, float]:
    """A fit in one line: its largest rise, its best round's scores, and its rounds that jump and others.

    For each mark the validation risk and the largest weight in the first round whose training risk is there.
    """
    best, jumps = int(rounds["risk"].to_numpy().argmin()), rounds["rise"] > JUMP
    worst = rounds.loc[rounds["rise"].idxmax()]
    found = {
        "rise": worst["rise"],
        "rise_without": without,
        "rise_train": rounds["rise_train"].max(),
        "jumps": int(jumps.sum()),
        "first_jump": int(jumps.to_numpy().argmax()) + 1 if jumps.any() else float("nan"),
        "few": worst["few"] if jumps.any() else float("nan"),
        "risk": rounds["risk"][best],
        "best_round": best + 1,
        "f1": rounds["f1"][best],
        "log_loss": rounds["log_loss"][best],
        "last_risk": rounds["risk"].iloc[-1],
        "last_log_loss": rounds["log_loss"].iloc[-1],
        "negative": float(rounds["negative"].mean()),
        "largest": rounds["largest"].iloc[-1],
        "largest_train": rounds["largest_train"].iloc[-1],
    }
    for name in ("heavy", "heavy_val", "cosine"):
        found |= {f"{name}_jump": rounds[name][jumps].mean(), f"{name}_else": rounds[name][~jumps].mean()}
    for mark in marks:
        there = rounds[rounds["risk_train"] <= mark].head(1)
        for name in ("risk", "largest"):
            found[f"{name}_at_{mark}"] = there[name].iloc[0] if len(there) else float("nan")
    return {name: float(value) for name, value in found.items()}


def run(folder: Path, tables: list[str]) -> None:
    """Every fit that FOLDER/stability.jsonl does not have."""
    out = folder / "stability.jsonl"
    there = {tuple(row[key] for key in Fit.__dataclass_fields__) for row in kept(out)}
    machine.limit_threads(1)
    for table in tables:
        part, dataset = PLACES[table]
        place = make(folder, part)
        with chdir(place):
            chosen, splits, of = settings.load(), {}, None
            for fit in fits(table):
                if tuple(vars(fit).values()) in there:
                    continue
                if of != fit.seed:
                    splits, of = drawn(place / "data/prepared" / dataset, table, fit.seed), fit.seed
                rounds = rounds_of(*fitted(fit, chosen, splits), splits)
                row = vars(fit) | summary(*rounds, MARKS[table])
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)


def kept(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def pm(values: pd.Series, digits: int, factor: float = 1) -> str:
    """Mean ± half the 95 % interval over the draws."""
    mean, half = interval(values * factor)
    return f"{mean:.{digits}f}" if np.isnan(half) else f"{mean:.{digits}f} ± {half:.{digits}f}"


def table_of(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *lines)) + "\n"


def each_kind(frame: pd.DataFrame, table: str) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """The first cells of a line, and the fits that it is of."""
    own = frame[frame["table"] == table]
    for (model, shrinkage, held), of in own.groupby(["model", "shrinkage", "held"], sort=False):
        yield [model, f"{shrinkage:g}", "held-out rows" if held else "all rows"], of


KIND = ("model", "shrinkage", "steps on")


def outcome(frame: pd.DataFrame, table: str) -> str:
    """How each kind of fit rose, and its scores."""
    heads = ["largest rise, %", "without ten rows", "rounds that jump", "lowest risk", "its round"]
    heads += ["F1 there", "log-loss there", "at the end"]
    lines = []
    for kind, of in each_kind(frame, table):
        row = [f"{pm(of['rise'], 1, 100)}", pm(of["rise_without"], 1, 100), f"{of['jumps'].mean():.1f}"]
        row += [pm(of["risk"], 4), f"{of['best_round'].mean():.0f}"]
        lines.append([*kind, *row, pm(of["f1"], 4), pm(of["log_loss"], 4), pm(of["last_log_loss"], 3)])
    return table_of([*KIND, *heads], lines)


def causes(frame: pd.DataFrame, table: str) -> str:
    """What the rounds that jump have and the others, of the fits with such rounds; and the rows' weights."""
    heads = ["fits that jump", "first at round", "ten rows' share of the rise", "training rows' heaviest 1 %"]
    heads += ["validation rows' heaviest 1 %", "cosine", "largest weight, training", "validation"]
    heads += ["largest rise of training risk, %", "rounds with a step below 0, %"]
    lines = []
    for kind, of in each_kind(frame, table):
        some = of[of["jumps"] > 0]
        row = [f"{len(some)} of {len(of)}"]
        row.append(f"{some['first_jump'].median():.0f}" if len(some) else "–")
        row.append(f"{some['few'].median():.2f}" if len(some) else "–")
        row += [both(of, some, "heavy"), both(of, some, "heavy_val"), both(of, some, "cosine")]
        row += [f"{of['largest_train'].median():.0f}", f"{of['largest'].median():.0f}"]
        row += [f"{max(100 * of['rise_train'].max(), 0):.1f}", f"{100 * of['negative'].mean():.0f}"]
        lines.append([*kind, *row])
    return table_of([*KIND, *heads], lines)


def progress(frame: pd.DataFrame, table: str) -> str:
    """What 2WL's validation rows have where the training risk is the same, by shrinkage; exact steps."""
    own = frame[(frame["table"] == table) & (frame["model"] == "2WL") & (frame["held"] == 0)]
    heads = ["training risk"]
    for name in ("validation risk", "largest weight"):
        heads += [f"{name}, shrinkage {shrinkage:g}" for shrinkage in SHRINKAGE]
    lines = []
    for mark in MARKS[table]:
        each = [own[own["shrinkage"] == shrinkage] for shrinkage in SHRINKAGE]
        row = [pm(of[f"risk_at_{mark}"].dropna(), 3) for of in each]
        row += [f"{of[f'largest_at_{mark}'].median():.0f}" for of in each]
        lines.append([f"{mark:g}", *row])
    return table_of(heads, lines)


def both(of: pd.DataFrame, some: pd.DataFrame, name: str) -> str:
    """A mean over the rounds that jump, and over the others of the same fits."""
    if not len(some):
        return f"–, {of[f'{name}_else'].mean():.2f}"
    return f"{some[f'{name}_jump'].mean():.2f}, {some[f'{name}_else'].mean():.2f}"


def with_tables(text: str, frame: pd.DataFrame) -> str:
    """The page with each table that it has marks for."""
    for table, made in product(frame["table"].unique(), (outcome, causes, progress)):
        name = f"{table} {made.__name__}"
        if f"<!-- {name} -->" in text:
            text = between_marks(text, name, made(frame, table))
    return text


def write(folder: Path | None) -> None:
    """Take the folder's scores into the repository; make the pages' tables of those that are there."""
    if folder is not None:
        KEPT.parent.mkdir(exist_ok=True)
        frame = pd.DataFrame(kept(folder / "stability.jsonl"))
        order = {name: k for k, name in enumerate(TARGETS)}
        frame = frame.assign(order=frame["model"].map(order)).sort_values(
            ["table", "order", "shrinkage", "held", "seed"], ascending=[True, True, False, True, True]
        )
        frame.drop(columns="order").to_csv(KEPT, index=False, float_format="%.6g")
    for page in PAGES:
        page.write_text(with_tables(page.read_text(), pd.read_csv(KEPT)))


if __name__ == "__main__":
    runtime.configure()
    place = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    if sys.argv[1] == "run":
        assert place is not None, "run needs a folder"
        run(place, sys.argv[3:] or list(PLACES))
    else:
        write(place)

"""Models with equal trials: chosen on validation, the test rows scored once; docs/results/.

``python -m benchmarks.study.equals DATA OUT [CASE …] [--trials 20]``, where DATA holds the lesions, the
products and the census. Each case is a table with its own test rows; every model gets as many trials on the
same validation rows, and then is fitted with five seeds (``--seeds``). Killed, it goes on. Hours on a core.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.study.equal_tables import DRAWS_NOTHING, kept, kind_of, losses_file, table_of_results
from usboost.boosting.callbacks import TimeLimit
from usboost.boosting.checkpoint import Checkpoint
from usboost.datasets import census
from usboost.evaluation.metrics import best_threshold, f1, row_losses
from usboost.evaluation.task import TASKS
from usboost.fit.build import by_name
from usboost.fit.options import ImageOptions
from usboost.fit.tune import Plan, search_folds, settings_of, tune
from usboost.models.settings import with_settings
from usboost.models.tuned_images import fit_weighted
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table

SPLIT = "split"
NOT_TUNED = (*DRAWS_NOTHING, "ensemble")
"""Kinds that have nothing to choose, or that fit 25 others."""

SOURCES = {
    "lesions": ("ham10000_lesions/lesions.parquet", "dx", ("lesion_id", "image_id")),
    "products": ("fashion_products/products.parquet", "gender", ("id",)),
}
CASES = (*SOURCES, "census", *(f"{name}-{size}" for name, size in product(SOURCES, (300, 1000, 3000))))
"""By name; a number says how many rows there are to fit to and to choose on."""
MODELS = ("linear_trees", "crossed", "2wl_ridge", "lgbm", "forest", "logistic", "prior")
MODELS_OF = {"census": ("linear_trees", "crossed", "lgbm", "forest", "logistic", "prior")}
"""Others are named by ``--models``; xgboost and catboost are to be installed."""


def table_of(case: str, data: Path, out: Path) -> UserTable:
    """Read the case's table, written with a column that divides it for training, validation and test."""
    source, _, size = case.partition("-")
    path = out / case / "table.parquet"
    if source == "census":
        if not path.exists():  # CI-A's rows, all 40 features: halves of the test file are for val and test
            files = (data / census.SOURCE / file.name for file in census.FILES)
            made = census.prepare(*files, split="ci_a", seed=0, profile="paper").splits
            frames = [frame.assign(**{SPLIT: name}) for name, frame in made.items()]
            pd.concat(frames, ignore_index=True).to_parquet(path)
        return read_table(path, TableSpec(label="label", split=SPLIT))
    file, label, drop = SOURCES[source]
    if not path.exists():
        frame = pd.read_parquet(data / file).drop(columns=list(drop))
        divided(frame, label, int(size) if size else None).to_parquet(path)
    return read_table(path, TableSpec(label=label, image="image", split=SPLIT, size=160))


def divided(frame: pd.DataFrame, label: str, size: int | None) -> pd.DataFrame:
    """Take of each class every fifth row for the test, of the others 15 % for validation; of these `size`.

    Classes with fewer than 20 rows in the whole table are left out, and so are those of which a small sample
    has fewer than two rows to fit to.
    """
    frame = frame[frame.groupby(label)[label].transform("size") >= 20]
    rng = np.random.default_rng(0)
    draw = pd.Series(rng.random(len(frame)), frame.index)
    place = draw.groupby(frame[label]).rank(method="first") - 1
    count = frame.groupby(label)[label].transform("size")
    split = pd.Series(np.where(place < count * 0.2, "test", "train"), frame.index)
    rest = split == "train"
    if size is not None:
        share = size / rest.sum()
        rest &= place < count * (0.2 + 0.8 * share)
    first = place < count * 0.2 + (0.15 if size is None else 0.15 * size / (len(frame) * 0.8)) * count * 0.8
    split[rest & first] = "val"
    kept = frame.assign(**{SPLIT: split})[rest | (split == "test")]
    fitted = kept[kept[SPLIT] == "train"][label].value_counts()
    return kept[kept[label].isin(fitted.index[fitted >= 2])].reset_index(drop=True)


Scored = tuple[dict[str, float], np.ndarray]
"""Test scores, and each test row's loss."""


class Case:
    """A table, of which each fit is scored on the test rows."""

    def __init__(self, table: UserTable) -> None:
        self.table, self.task = table, TASKS[table.task]
        (fold,) = search_folds(table, 0, 0)
        self.train, self.val = fold.train, fold.val
        self.seen = np.sort(np.concatenate([self.train, self.val]))
        self.test = np.setdiff1d(np.arange(len(table)), self.seen)

    def single(self, model: Any, *, refit: bool) -> Iterator[tuple[str, Scored]]:
        """Score a fit that stops on the validation rows; and another as long, to these rows, too."""
        labels, encoding = self.table.labels, self.table.fit_encoding(self.train)
        views, started = self.table.views(encoding, self.val), time.perf_counter()
        given = self.table.views(encoding, self.train), labels[self.train], None
        fit_weighted(model, given, (views, labels[self.val], None))
        seconds = time.perf_counter() - started
        cut = self._cut(labels[self.val], self.task.predict(model, views))
        yield "", self._scored(model, encoding, seconds, cut)
        if refit:
            encoding, started = self.table.fit_encoding(self.seen), time.perf_counter()
            model = model.for_all_rows()
            model.fit(self.table.views(encoding, self.seen), labels[self.seen])
            yield "all", self._scored(model, encoding, time.perf_counter() - started, cut)

    def ensemble(self, model: Any) -> Scored:
        """Score one that holds out its own folds of all rows but the test's, and has a threshold by them."""
        labels, encoding = self.table.labels[self.seen], self.table.fit_encoding(self.seen)
        started = time.perf_counter()
        model.fit(self.table.views(encoding, self.seen), labels)
        seconds = time.perf_counter() - started
        known = ~np.isnan(model.out_of_fold_[:, 0])
        cut = self._cut(labels[known], model.out_of_fold_[known])
        return self._scored(model, encoding, seconds, cut)

    def _cut(self, labels: np.ndarray, predicted: np.ndarray) -> float | None:
        return best_threshold(labels, predicted[:, 1]) if len(self.table.classes) == 2 else None

    def _scored(self, model: Any, encoding: Any, seconds: float, cut: float | None) -> Scored:
        began, unseen = time.perf_counter(), self.table.views(encoding, self.test)
        predicted = self.task.predict(model, unseen)
        ended, y = time.perf_counter(), self.table.labels[self.test]
        scores = {name: float(value) for name, value in self.task.score(y, predicted).items()}
        if cut is not None:
            scores["f1_tuned"] = f1(y, (predicted[:, 1] >= cut).astype(int), 2)
        scores |= {"seconds": seconds, "milliseconds_a_row": 1e3 * (ended - began) / len(y)}
        return scores, row_losses(y, predicted)


def run(case: str, given: argparse.Namespace) -> None:
    """Search, then fit and score; what is in the case's folder is not made again."""
    folder, names = given.out / case, MODELS_OF.get(case, MODELS)
    folder.mkdir(parents=True, exist_ok=True)
    table = table_of(case, given.data, given.out)
    read = ImageOptions(finetune=given.finetune) if table.images else None
    names = tuple(given.models.split(",")) if given.models else names
    models = by_name(names, images=read, image_views=tuple(table.images) or ("U",))
    scoring, results = Case(table), Results(folder)
    searched = tune(
        table,
        {name: make for name, make in models.items() if kind_of(name) not in NOT_TUNED},
        out=folder,
        fixed={"backbone__finetune": given.finetune} if table.images else None,
        folds=given.folds,
        plan=Plan(trials=given.trials),
        on_trial_end=lambda trial, ended, total: print(
            case, f"{ended}/{total}", trial.model, trial.state, trial.score, trial.seconds, flush=True
        ),
    )
    settings = settings_of(searched.models, {})
    firsts = {name: each.trials[0].settings for name, each in searched.models.items() if each.trials}
    for seed, (name, make) in product(range(given.seeds), models.items()):
        if seed and kind_of(name) in DRAWS_NOTHING:
            continue
        if kind_of(name) == "ensemble":
            if results.missing(name, "own", seed):
                rounds = Checkpoint(folder / "fits" / f"{name}-{seed}", {})
                model = make(seed).set_params(checkpoint=rounds, callbacks=[TimeLimit(given.limit)])
                results.add(name, "own", seed, scoring.ensemble(model))
                print(case, model.weights_, model.losses_, model.blend_loss_, flush=True)
            continue
        chosen = settings.get(name, {})
        tuned = bool(chosen) and chosen != firsts.get(name)
        for kind in ("tuned", "own") if tuned else ("own",):
            again = given.refit and kind == ("tuned" if tuned else "own")  # what validation chose
            if results.missing(name, kind, seed) or (again and results.missing(name, kind + "all", seed)):
                model = with_settings(make(seed), chosen if kind == "tuned" else {}, name)
                for rows, scores in scoring.single(model, refit=again):
                    if results.missing(name, kind + rows, seed):
                        results.add(name, kind + rows, seed, scores)


class Results:
    """The record of a case's folder: scores by model, settings and seed, and each test row's loss."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "results.jsonl"
        (folder / "losses").mkdir(exist_ok=True)

    def missing(self, *fit: Any) -> bool:
        rows = kept(self.path) if self.path.exists() else []
        return fit not in {(row["model"], row["kind"], row["seed"]) for row in rows}

    def add(self, name: str, kind: str, seed: int, scored: Scored) -> None:
        scores, losses = scored
        np.save(losses_file(self.folder, name, kind, seed), losses.astype("f4"))
        row = {"model": name, "kind": kind, "seed": seed, **scores}
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(self.folder.name, row, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models")
    parser.add_argument("--folds", type=int, default=0, help="to choose by, instead of the validation rows")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds of an ensemble's fits")
    parser.add_argument("--refit", action="store_true", help="score fits to the validation rows, too")
    parser.add_argument("--finetune", default="none", help="of images, the same for all models: none or last")
    given = parser.parse_args()
    for case in given.cases or CASES:
        run(case, given)
        print(f"{case}\n\n{table_of_results(given.out / case)}\n", flush=True)

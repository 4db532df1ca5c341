"""The headline table: what `usboost fit` gives a person, beside others' models with equal trials.

``python -m benchmarks.study.headline run DATA OUT [--cases …] [--models …]`` fits, scores the test rows once,
and adds the scores to ``benchmarks/study/headline.jsonl``; killed, it goes on. ``… write`` makes README's
table of them, and that of docs/results.md. ``make headline`` is both. Hours on a core.

A case is a table and its test rows, drawn once. Every model gets the other rows, as a file of a person's, and
is fitted as `usboost fit` does it: validation rows, images tuned where the default tunes them, a second fit
to all rows. The default and the preset ``best`` have their own settings; the others the best of `TRIALS` by
`usboost tune`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.pages import between_marks, number, table_of
from benchmarks.study.equals import divided
from usboost.boosting.code import PACKAGE, closure, digest
from usboost.datasets import census
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.task import TASKS
from usboost.fit.build import by_name, fit
from usboost.fit.options import ImageOptions
from usboost.fit.tune import Plan, settings_of, tune
from usboost.models import catalogue
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

KEPT = Path(__file__).parent / "headline.jsonl"
PAGES = Path("README.md"), Path("docs/results.md")
DECIDING = ("usboost.fit.build", "usboost.fit.tune", "usboost.fit.bundle", "usboost.models.catalogue")
"""Modules whose code, with all that they import, decides a cell."""
OTHERS = ("logistic", "forest", "lgbm", "xgboost", "catboost")
MODELS = ("default", "best", *OTHERS, "prior")
TRIALS = 8
SEEDS = {"1000": 3, "": 1}
"""By a case's size: with all rows one fit takes up to hours."""
TABLES = {
    "lesions": ("ham10000_lesions/lesions.parquet", "dx", ("lesion_id", "image_id"), "skin lesions, images"),
    "gender": ("fashion_products/products.parquet", "gender", ("id",), "products: gender, images"),
    "season": ("fashion_products/products.parquet", "season", ("id",), "products: season, images"),
    "census": (census.SOURCE, "label", (), "census, no images"),
    "cover": ("covertype/covtype.data.gz", "54", (), "forest cover, no images"),
}
CASES = [f"{name}{size}" for size in ("-1000", "") for name in TABLES]


def rows_of(case: str, data: Path) -> tuple[pd.DataFrame, pd.DataFrame, TableSpec]:
    """Return a person's rows, the test rows, and how the table is read."""
    name, _, size = case.partition("-")
    place, label, drop, _ = TABLES[name]
    if name == "census":
        files = (data / place / file.name for file in census.FILES)
        made = census.prepare(*files, split="ci_a", seed=0, profile="paper").splits
        train, test = made["train"], pd.concat([made["val"], made["test"]], ignore_index=True)
        train = train.sample(int(size), random_state=0) if size else train
    else:
        path = data / place
        frame = pd.read_csv(path, header=None) if path.suffix == ".gz" else pd.read_parquet(path)
        frame = frame.rename(columns=str).drop(columns=list(drop))
        frame = divided(frame, label, int(size) if size else None)
        is_test = frame.pop("split") == "test"
        train, test = frame[~is_test], frame[is_test]
    image = "image" if "image" in train else None
    return train.reset_index(drop=True), test.reset_index(drop=True), TableSpec(label=label, image=image)


def cells(case: str, data: Path, out: Path, models: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the scores of each fit of a case that is not in `KEPT` by the present code."""
    code = digest(closure(set(DECIDING), [PACKAGE]))
    done = {(row["case"], row["model"], row["seed"]) for row in kept() if row["code"] == code}
    seeds = range(SEEDS[case.partition("-")[2]])
    wanted = [(name, seed) for name in models for seed in seeds if (case, name, seed) not in done]
    if not wanted:
        return
    folder = out / code[:8] / case
    (folder / "losses").mkdir(parents=True, exist_ok=True)
    train, test, spec = rows_of(case, data)
    train.to_parquet(folder / "table.parquet")
    table = read_table(folder / "table.parquet", spec)
    images = ImageOptions() if table.images else None
    commit = subprocess.check_output(["git", "rev-parse", "--short=8", "HEAD"], text=True).strip()
    for name, seed in wanted:
        named, preset = {"default": (None, None), "best": (None, "best")}.get(name, (name, None))
        chosen = catalogue.resolve_model(named, preset, False, images=bool(table.images), task=table.task)
        started, spent, settings = time.perf_counter(), time.process_time(), {}
        if name in OTHERS:
            build = by_name((name,), images=images, image_views=tuple(table.images) or ("U",))
            searched = tune(table, build, out=folder / name, plan=Plan(trials=TRIALS))
            settings = settings_of(searched.models, {}).get(name, {})
        fitted = fit(table, chosen, images=images, settings=settings, seed=seed)
        seconds, spent = time.perf_counter() - started, time.process_time() - spent
        answers = fitted.bundle.predict(FrameRows(test, None, mixed=True))
        probabilities = answers.filter(regex="^p_").to_numpy()
        y = pd.Categorical(test[spec.label].astype(str), table.classes).codes
        losses, scores = row_losses(y, probabilities), TASKS[table.task].score(y, probabilities)
        np.save(folder / "losses" / f"{name}-{seed}.npy", losses)
        behind = losses - np.load(folder / "losses" / f"default-{seed}.npy")
        yield {
            **{"case": case, "model": name, "fits": chosen, "seed": seed},
            **{"rows": len(train), "test_rows": len(test)},
            **{key: round(float(scores[key]), 6) for key in ("log_loss", "auc", "accuracy")},
            # by how much its log-loss is above the default's on the same rows, and half the 95 % interval
            "behind": [float(behind.mean()), 1.96 * float(behind.std()) / len(behind) ** 0.5],
            **{"seconds": round(seconds, 1), "cpu_seconds": round(spent, 1)},
            "settings": {key: repr(value) for key, value in settings.items()},
            **{"commit": commit, "code": code},
        }


def kept() -> list[dict[str, Any]]:
    """Return the scores of every fit, in the order in which they were made."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def lines() -> list[list[str]]:
    """Return a line a case: log-losses of ours, of the best other model and of the prior, and seconds."""
    scores, table = pd.DataFrame(kept()), []
    for case in [each for each in CASES if each in set(scores["case"])]:
        of_case = scores[scores["case"] == case]
        own = of_case.groupby("model")
        means, seconds = own["log_loss"].mean(), own["seconds"].first()
        rival = means[[name for name in OTHERS if name in means]].idxmin()
        gap, half = map(float, np.mean(own.get_group(rival)["behind"].tolist(), axis=0))
        interval = f"{number(-gap, 3, '+')} ± {number(half, 3)}"
        shown = [number(means[name], 3) for name in MODELS[:2] if name in means]
        last = [f"{number(means[rival], 3)}, {rival}", f"**{interval}**" if abs(gap) > half else interval]
        last += [number(means["prior"], 3), *(number(seconds[name], 0) for name in ("default", rival))]
        table.append([TABLES[case.partition("-")[0]][3], f"{of_case['rows'].iloc[0]:,}", *shown, *last])
    return table


def write() -> None:
    """Write the table in README and docs/results.md. Raises ValueError if cells are of several versions."""
    if len(codes := {row["code"] for row in kept()}) != 1:
        raise ValueError(f"{KEPT} has cells of {len(codes)} versions of the code; run the headline again")
    heads = ["table", "rows", "default", "`best`", "best other", "default − other", "prior", "s", "other, s"]
    for page in PAGES:
        page.write_text(between_marks(page.read_text(), "headline", table_of(heads, lines())))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "write"))
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--models", default=",".join(MODELS))
    given = parser.parse_args()
    if given.what == "write":
        write()
    else:
        for case in given.cases.split(","):
            for cell in cells(case, given.data, given.out, tuple(given.models.split(","))):
                with KEPT.open("a") as file:
                    file.write(json.dumps(cell) + "\n")
                print(cell, flush=True)

"""The headline table: what `usboost fit` gives a person, beside others' models with equal trials.

``python -m benchmarks.study.headline run DATA OUT [--cases …] [--models …]`` fits, scores the test rows once,
and adds the scores to ``benchmarks/study/headline.jsonl``; killed, it goes on. ``… write`` makes README's
table of them, and that of docs/results.md. ``make headline`` is both. Hours on a core.

A case is a table and its test rows, drawn once. Every model gets the other rows, as a file of a person's, and
is fitted as `usboost fit` does it: validation rows, images tuned where the default tunes them, a second fit
to all rows. The default and the preset ``best`` have their own settings; the others the best of `TRIALS` by
`usboost tune`. The table is of one version of the code: the newest one that has fitted every case.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from benchmarks.pages import between_marks, number, table_of
from usboost.boosting.code import PACKAGE, closure, digest
from usboost.datasets import census
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.statistics import holm
from usboost.evaluation.task import TASKS
from usboost.fit.build import by_name, fit
from usboost.fit.options import ImageOptions
from usboost.fit.table_fit import TableFit
from usboost.fit.tune import Plan, settings_of, tune
from usboost.models import catalogue
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

KEPT = Path(__file__).parent / "headline.jsonl"
PAGES = Path("README.md"), Path("docs/results.md"), Path("docs/results/protocol.md")
FIGURE = Path("docs/figures/log-loss.png")
DECIDING, LISTED = ("usboost.fit.build", "usboost.fit.tune", "usboost.fit.bundle"), "usboost.models.catalogue"
"""Modules whose code, with all that they import, decides a cell; the last one has the settings of each model,
which a cell has, too, with its members', so that another model's do not void it."""
OTHERS = ("logistic", "forest", "lgbm", "xgboost", "catboost")
MODELS = ("default", "best", *OTHERS, "prior")
TITLES = {"default": "`usboost fit`", "logistic": "logistic regression", "forest": "random forest"}
TITLES |= {"lgbm": "LightGBM", "xgboost": "XGBoost", "best": "`best`"}
TITLES |= {"catboost": "CatBoost"}
DRAWN = {"default": ("*", "#0b5fa5"), "best": ("D", "#cc8a00"), "logistic": ("x", "#7a828e")}
DRAWN |= {
    "forest": ("v", "#3a7d44"),
    "lgbm": ("o", "#b23a48"),
    "xgboost": ("s", "#7b4fa3"),
    "catboost": ("^", "#8a6d1f"),
}
TRIALS = 8
SEEDS = {"1000": 3, "": 1}
"""By a case's size: with all rows one fit takes up to hours."""
SLOW = ("best",)
"""Models with one seed in every case."""
MAY_LACK = {("census", "catboost"), ("cover", "catboost")}
"""What the table may lack: a case's search of a model that would take many hours."""
TABLES = {
    "lesions": ("ham10000_lesions/lesions.parquet", "dx", ("lesion_id", "image_id"), "skin lesions, images"),
    "gender": ("fashion_products/products.parquet", "gender", ("id",), "products: gender, images"),
    "season": ("fashion_products/products.parquet", "season", ("id",), "products: season, images"),
    "census": (census.SOURCE, "label", (), "census, no images"),
    "cover": ("covertype/covtype.data.gz", "54", (), "forest cover, no images"),
}
LEFT_OUT = "census"
WIDEST = 1.5  # the largest ratio that the figure has room for
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
        train, test = divided(frame, label, int(size) if size else None)
    image = "image" if "image" in train else None
    return train.reset_index(drop=True), test.reset_index(drop=True), TableSpec(label=label, image=image)


def divided(frame: pd.DataFrame, label: str, size: int | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return rows to learn from, some `size` of them, and test rows: a fifth of each class, drawn first.

    Classes with fewer than 20 rows are left out, and those of which a small sample has fewer than three.
    """
    frame = frame[frame.groupby(label)[label].transform("size") >= 20]
    draw = pd.Series(np.random.default_rng(0).random(len(frame)), frame.index)
    place = draw.groupby(frame[label]).rank(method="first") - 1
    count = frame.groupby(label)[label].transform("size")
    is_test = place < count * 0.2
    share = 1.0 if size is None else size / (~is_test).sum()
    chosen = ~is_test & (place < count * (0.2 + 0.8 * share))
    known = frame[label].isin(frame[chosen][label].value_counts().loc[lambda n: n >= 3].index)
    return frame[chosen & known], frame[is_test & known]


def fits_of(case: str, models: tuple[str, ...] = MODELS) -> list[tuple[str, int]]:
    """Return the models and seeds of a case."""
    seeds = SEEDS[case.partition("-")[2]]
    return [(name, seed) for name in models for seed in range(1 if name in SLOW else seeds)]


def cells(case: str, data: Path, out: Path, models: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the scores of each fit of a case that is not in `KEPT` by the present code."""
    deciding = closure(set(DECIDING), [PACKAGE])
    ours = {name: file for name, file in deciding.items() if name.startswith("usboost")}  # no other package
    code = digest({name: file for name, file in ours.items() if name != LISTED})
    done = {(row["case"], row["model"], row["seed"]) for row in kept() if row["code"] == code}
    wanted = [(name, seed) for name, seed in fits_of(case, models) if (case, name, seed) not in done]
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
        chosen = catalogue.resolve_model(named, preset, images=bool(table.images), task=table.task)
        started, spent, settings = time.perf_counter(), time.process_time(), settings_given(chosen)
        if name in OTHERS:
            build = partial(by_name, (name,), images=images, image_views=tuple(table.images) or ("U",))
            searched = tune(table, build(task=table.task), out=folder / name, plan=Plan(trials=TRIALS))
            settings = settings_of(searched.models, {}).get(name, {})
            model = build(task=table.task, settings={name: settings})[name](seed)
            fitted = TableFit(table=table, model=model, name=name, seed=seed).run()
        else:
            fitted = fit(table, chosen, images=images, seed=seed)
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


def settings_given(name: str) -> dict[str, Any]:
    """Return what makes one of our models what it is, with its members; nothing of another package's."""
    entry = catalogue.find(name) if name not in OTHERS else None
    members = entry.changes.get("members", ()) if entry else ()
    entries = [entry, *map(catalogue.find, members)] if entry else []
    return {each.name: (each.learners, each.changes, each.settings) for each in entries}


def kept() -> list[dict[str, Any]]:
    """Return the scores of every fit, in the order in which they were made."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def newest() -> pd.DataFrame:
    """Return the fits by the newest version of the code that has all; raises ValueError if none has."""
    wanted = {(case, *each) for case in CASES for each in fits_of(case) if (case, each[0]) not in MAY_LACK}
    for _, fits in reversed([*pd.DataFrame(kept()).groupby("code", sort=False)]):
        if wanted <= {*zip(fits["case"], fits["model"], fits["seed"])}:
            return fits
    raise ValueError(f"no version of the code has every model's fit of every case in {KEPT}; fit the others")


def table() -> pd.DataFrame:
    """Return a line a case, made of the fits that `newest` returns.

    Log-losses are means over the seeds. `rival` is the other package's model with the lowest, which favours
    it; `gap` is the default's log-loss less the rival's, `half` half its 95 % interval over the test rows,
    and `clear` whether that excludes zero by Holm's method over the cases.
    """
    scores, found = newest(), []
    for case in CASES:
        own = scores[scores["case"] == case].groupby("model")
        means = own["log_loss"].mean()
        rival = means[[name for name in OTHERS if name in means]].idxmin()
        gap, half = np.mean(own.get_group(rival)["behind"].tolist(), axis=0)
        line = {"case": case, "rival": rival, "gap": -gap, "half": half, "losses": means}
        line |= {"spread": own["log_loss"].std(), "aucs": own["auc"].mean()}
        line |= {"cpu": own["cpu_seconds"].first(), "rows": own["rows"].first().iloc[0]}
        found.append(line | {"p": 2 * norm.sf(gap / half * norm.isf(0.025))})
    lines = pd.DataFrame(found).set_index("case")
    return lines.assign(clear=holm(np.minimum(lines["p"], 2 - lines["p"])) < 0.05)


def headline(lines: pd.DataFrame) -> str:
    """Return README's table."""
    heads = ["table", "rows", "`usboost fit`", "preset `best`", "best of the others", "difference", "prior"]
    shown = []
    for case, line in lines.iterrows():
        digits = 3 if line["half"] >= 0.0015 else 4
        own, best, prior = (
            number(line["losses"].get(name, np.nan), digits) for name in (*MODELS[:2], MODELS[-1])
        )
        rival = f"{number(line['losses'][line['rival']], digits)}, {TITLES[line['rival']]}"
        gap = f"{number(line['gap'], digits, '+')} ± {number(line['half'], digits)}"
        gap = f"**{gap}**" if line["clear"] else gap
        name = TABLES[str(case).partition("-")[0]][3]
        shown.append([name, f"{line['rows']:,}", own, best.replace("nan", ""), rival, gap, prior])
    return table_of(heads, shown)


def whole(lines: pd.DataFrame) -> str:
    """Return every model's log-loss, AUC and seconds of a core in each case."""
    heads, shown = ["table, rows", *(f"`{name}`" for name in MODELS)], []
    for case, line in lines.iterrows():
        cells = [f"{TABLES[str(case).partition('-')[0]][3].split(',')[0]}, {line['rows']:,}"]
        for name in MODELS:
            loss, spread = line["losses"].get(name), line["spread"].get(name)
            if loss is None:
                cells.append("")
                continue
            spread = "" if spread is None or np.isnan(spread) or not spread else f" ± {number(spread, 3)}"
            cost = f"<br>{number(line['aucs'][name], 3)}, {number(line['cpu'][name], 0)} s"
            cells.append(f"{number(loss, 3)}{spread}{cost if name != MODELS[-1] else ''}")
        shown.append(cells)
    return table_of(heads, shown)


def draw(lines: pd.DataFrame, path: Path) -> None:
    """Draw every model's log-loss of each case, divided by the best other model's."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, ax = plt.subplots(figsize=(6.6, 5.6), layout="constrained")
    for order, (model, (marker, colour)) in enumerate(DRAWN.items()):
        ratios = [
            line["losses"].get(model, np.nan) / line["losses"][line["rival"]] for _, line in lines.iterrows()
        ]
        look: dict[str, Any] = {
            "color": colour,
            "mew": 1.6,
            "zorder": 20 - order,
            "label": TITLES.get(model, model).strip("`"),
        }
        look |= {} if marker in "x+" else {"mfc": colour if model in MODELS[:2] else "white"}
        ax.plot(ratios, range(len(lines))[::-1], marker, ls="", ms=12 if marker == "*" else 8, **look)
        for y, ratio in zip(range(len(lines))[::-1], ratios):
            if ratio > WIDEST:
                ax.text(WIDEST, y, f"{marker} {ratio:.1f} →", ha="right", va="center", color=colour)
    ax.set_xlim(right=WIDEST)
    ax.axvline(1, color="#777777", linewidth=1, zorder=0)
    names = [TABLES[case.partition("-")[0]][3].split(",")[0] for case in lines.index]
    ax.set_yticks(range(len(lines))[::-1], [f"{name}, {n:,}" for name, n in zip(names, lines["rows"])])
    ax.set_xlabel("log-loss ÷ that of the best other model (less is better)")
    ax.grid(axis="x", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    fig.legend(loc="outside upper center", ncols=4, frameon=False)
    fig.savefig(path, dpi=110)
    plt.close(fig)


def written(page: Path, lines: pd.DataFrame) -> str:
    """Return the text of a page with its table; README has eight lines of it, those without `LEFT_OUT`."""
    if page.name == "README.md":
        lines = lines[~lines.index.str.startswith(LEFT_OUT)]
    name, make = ("whole", whole) if page.name == "protocol.md" else ("headline", headline)
    return between_marks(page.read_text(), name, make(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "write"))
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--models", default=",".join(MODELS))
    given = parser.parse_args()
    if given.what == "write":
        for page in PAGES:
            page.write_text(written(page, table()))
        draw(table(), FIGURE)
    else:
        for case in given.cases.split(","):
            for cell in cells(case, given.data, given.out, tuple(given.models.split(","))):
                with KEPT.open("a") as file:
                    file.write(json.dumps(cell) + "\n")
                print(cell, flush=True)

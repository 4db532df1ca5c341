"""Two checkouts fit the same models to the same data; are their predictions the same, bit for bit?

``python -m benchmarks.robustness.checkouts OLD [--rounds N]``, from the root of the newer one; OLD is the
older one's root, ``git worktree add ../old COMMIT`` say. Every model is fitted and saved by both. Its
predictions are compared, and so are those that the newer code makes with the older one's saved model.
Exits with 1 if any differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from math import isnan
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

ROOT = Path(__file__).parent.parent.parent
CLASSES = ("linear_trees", "crossed", "2wl", "2wl_fix", "2wl2o", "2wl2o_fix", "1wl_s", "1wl_u", "2wl_newton")
CLASSES += ("2wl_logistic", "3wl", "2wl_ridge", "baseline", "bfv_dnn", "leaf_dnn")
CLASSES += ("lgbm", "lgbm_s", "logistic", "forest", "prior", "best")
NUMBERS = ("linear_trees", "crossed", "2wl", "bfv_dnn", "lgbm", "ridge", "forest", "prior", "best")
TEXTS = ("linear_trees", "lgbm", "logistic")
WITH_IMAGES = ("linear_trees", "crossed", "2wl", "2wl2o", "bfv_dnn", "lgbm", "lgbm_s", "logistic")

MODELS = {"classes": CLASSES, "numbers": NUMBERS, "images": WITH_IMAGES, "texts": TEXTS}
EXTRA = {
    "classes": ("--weight", "weight"),
    "images": ("--image", "photo", "--size", "32"),
    "numbers": (),
    "texts": (),
}
"""How each table is read, beside its label."""

# run by a checkout with its own usboost: commands from standard input, then what has no command
COMMANDS = """
import json, sys
from usboost.cli.app import app

for command in json.load(sys.stdin):
    if app(command, standalone_mode=False):
        print("failed:", *command, file=sys.stderr)
"""
PLAIN = """
import sys
from pathlib import Path
import numpy as np
from sklearn.datasets import load_digits, load_iris
from usboost import BoostedNetworkClassifier, BoostedNetworkRegressor, EarlyBoostClassifier, load, save

out, older = Path(sys.argv[1]), sys.argv[2:]
rows = np.random.default_rng(0).permutation(1797)[:600]
x, y = load_iris(return_X_y=True)
frames, digit = load_digits(return_X_y=True)
frames, digit = frames[rows].reshape(-1, 8, 8), digit[rows]
models = {
    "bnn": (BoostedNetworkClassifier(n_rounds=6, random_state=0), x, y),
    "bnn-numbers": (BoostedNetworkRegressor(n_rounds=6, random_state=0), x[:, :3], x[:, 3]),
    "earlyboost": (EarlyBoostClassifier(random_state=0), frames, digit),
}
for name, (model, x, y) in models.items():
    if older:
        model = load(Path(older[0]) / name)
    else:
        save(model.fit(x, y), out / name)
    answers = model.predict_proba(x) if hasattr(model, "predict_proba") else model.predict(x)
    np.save(out / f"{name}.npy", answers)
"""


def write_tables(folder: Path) -> None:
    """Tables of the same rows: of classes with weights, of numbers, of classes with text, and with images."""
    rng = np.random.default_rng(0)
    n = 500
    y = rng.integers(0, 3, n)
    frame = pd.DataFrame({f"x{k}": rng.normal(size=n) + 0.5 * y * (k < 2) for k in range(5)})
    frame["colour"] = np.array(["red", "green", "blue", "grey"])[(y + rng.integers(0, 3, n)) % 4]
    remark = [
        f"a {['short', 'longer', 'wide'][k]} note on part {rng.integers(0, 40)}, seen by {name} on the floor"
        for k, name in zip(y, rng.choice(["Ada", "Bo", "Cy"], n), strict=True)
    ]
    frame.loc[rng.random(n) < 0.1, "x2"] = np.nan
    weights, label = rng.uniform(0.5, 2, n).round(3), np.array(["one", "two", "three"])[y]
    frame.assign(weight=weights, label=label).to_csv(folder / "classes.csv", index=False)
    frame.assign(remark=remark, label=label).to_csv(folder / "texts.csv", index=False)
    frame.assign(label=frame.x0 + y + rng.normal(size=n) / 4).to_csv(folder / "numbers.csv", index=False)
    names = []
    for k, value in enumerate(y[:160]):
        pixels = rng.integers(0, 120, (32, 32, 3), dtype=np.uint8)
        pixels[:, :, value] += 100
        names.append(f"{k}.png")
        Image.fromarray(pixels).save(folder / names[-1])
    with_images = frame[["x0", "x3", "colour"]].head(160).assign(photo=names, label=label[:160])
    with_images.to_csv(folder / "images.csv", index=False)


def run(checkout: Path, code: str, *arguments: str, given: str = "") -> None:
    """Python code with the usboost of a checkout, on one thread.

    Raises
    ------
    SystemExit
        With its last lines, if it fails.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=given,
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
    )
    print(done.stderr, end="", file=sys.stderr)
    if done.returncode:
        raise SystemExit("\n".join([f"{checkout}:", *(done.stdout + done.stderr).strip().splitlines()[-8:]]))


def difference(one: Path, other: Path) -> float:
    """The largest difference of two files of predictions; 0 where they are the same, bit for bit."""
    if not (one.exists() and other.exists()):
        return float("nan")
    if one.read_bytes() == other.read_bytes():
        return 0.0
    read = np.load if one.suffix == ".npy" else pd.read_parquet
    first, second = (np.asarray(pd.DataFrame(read(path)).select_dtypes("number")) for path in (one, other))
    return float(np.abs(first - second).max()) if first.shape == second.shape else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", nargs="*", help="models by name")
    options = parser.parse_args()
    cases = [
        (table, model)
        for table, models in MODELS.items()
        for model in models
        if not options.only or model in options.only
    ]
    names = [f"{table}-{model}" for table, model in cases]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        old, new, read = (here / name for name in ("old", "new", "read"))
        for each in (old, new, read):
            each.mkdir()
        write_tables(here)
        for checkout, side in ((options.old.resolve(), old), (ROOT, new)):
            commands = []
            for (table, model), name in zip(cases, names, strict=True):
                path, saved = str(here / f"{table}.csv"), str(side / name)
                fit = ["fit", path, "--label", "label", "--model", model, "--rounds", str(options.rounds)]
                commands.append([*fit, "--device", "cpu", *EXTRA[table], "--out", saved])
                commands.append(["predict", saved, path, "--out", f"{saved}.parquet"])
            run(checkout, COMMANDS, given=json.dumps(commands))
            run(checkout, PLAIN, str(side))
        run(
            ROOT,
            COMMANDS,
            given=json.dumps(
                [
                    [
                        "predict",
                        str(old / name),
                        str(here / f"{table}.csv"),
                        "--out",
                        f"{read / name}.parquet",
                    ]
                    for (table, _), name in zip(cases, names, strict=True)
                ]
            ),
        )
        run(ROOT, PLAIN, str(read), str(old))
        files = sorted(path.name for path in old.iterdir() if path.suffix in (".parquet", ".npy"))
        found = [say(old / name, new / name, read / name) for name in files]
    sys.exit(any(found))


def in_words(found: float) -> str:
    return "failed" if isnan(found) else f"differs by {found:.2g}" if found else "the same"


def say(old: Path, new: Path, read: Path) -> float:
    """Print how a model's predictions compare; 1 if they do not."""
    both = difference(old, new), difference(old, read)
    fitted, loaded = map(in_words, both)
    print(f"{old.stem:24} fitted: {fitted:20} the old one read: {loaded}", flush=True)
    return float(any(both))


if __name__ == "__main__":
    main()

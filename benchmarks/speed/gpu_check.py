"""`make gpu-check`: what needs a GPU, in at most ten minutes; "no GPU here" on a machine without.

From the repository's root: ``python -m benchmarks.speed.gpu_check [--on-cpu]``. Each part runs in a process
of its own, and is ended at its limit. The printed table, with the card's name, is for docs/performance.md.
`--on-cpu` runs all parts on the CPU, to try this script.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import typer
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.pages import table_of
from usboost import Backbone, Images, MultimodalClassifier, NetworkLearner, Table, TreeLearner, Views
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier
from usboost.process import own_settings
from usboost.table.demo import write_demo

LIMIT, ROUNDS = 600, 10
"""Seconds of all parts together, and rounds of the fit that is killed."""

NETWORKS = ("baseline", "bfv_dnn", "2wl", "2wl2o", "2wl_newton", "3wl", "crossed", "linear_trees")
CLOSE = 1e-3
MODULE = "benchmarks.speed.gpu_check"
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def say(what: str, figure: str, well: bool = True) -> None:
    """Print a line of the table; tabs divide it."""
    print(what, figure, "yes" if well else "NO", sep="\t", flush=True)


def fitted(folder: Path, rows: int, name: str, **settings: Any) -> MultimodalClassifier:
    """Return a model of a table of machine parts with images, which is made in the folder at first."""
    if not (folder / "table.csv").exists():
        write_demo(folder, rows_train=rows, rows_test=3, seed=0)
    frame = pd.read_csv(folder / "table.csv").drop(columns="split")
    given = {"image": "image", "images_root": folder, "size": 64, "finetune": "none", **settings}
    return MultimodalClassifier(name, **given).fit(frame.drop(columns="batch"), frame["batch"])


def write_predicted(folder: Path) -> None:
    """Write all models' predictions beside the cache of embeddings."""
    frame = pd.read_csv(folder / "table.csv").drop(columns=["split", "batch"])
    for model in folder.glob("model-*"):
        found = MultimodalClassifier.load(model, images_root=folder).predict_proba(frame)
        Path(os.environ["USBOOST_CACHE"]).mkdir(exist_ok=True)
        np.save(Path(os.environ["USBOOST_CACHE"]) / f"{model.name}.npy", found)


def predictions(folder: Path) -> None:
    """Compare each network model's predictions on the GPU and on the CPU."""
    for name in NETWORKS:
        fitted(folder, 150, name, rounds=3).save(folder / f"model-{name}")
    fitted(folder, 150, "linear_trees", rounds=3, finetune="all").save(folder / "model-tuned")
    # two caches, since the embeddings of one device would be found on the other
    for kind, hidden in (("here", {}), ("cpu", {"CUDA_VISIBLE_DEVICES": ""})):
        environment = {**os.environ, **hidden, "USBOOST_CACHE": str(folder / kind)}
        command = [sys.executable, "-m", MODULE, "--part", "predicted", "--folder", str(folder)]
        subprocess.run(command, env=environment, check=True)
    for model in sorted(folder.glob("model-*")):
        here, cpu = (np.load(folder / kind / f"{model.name}.npy") for kind in ("here", "cpu"))
        far = float(np.abs(here - cpu).max())
        say(f"{model.name}: largest difference of a probability from the CPU's", f"{far:.1e}", far < CLOSE)


def fits(folder: Path) -> None:
    """Time a first fit, and one that tunes, with their memory on the card."""
    for what, finetune in (("a first fit of 600 rows, images embedded", "none"), ("with tuning", "all")):
        torch.cuda.reset_peak_memory_stats() if CUDA else None
        began = time.monotonic()
        fitted(folder, 600, "linear_trees", size=160, finetune=finetune)
        spent, peak = time.monotonic() - began, torch.cuda.max_memory_allocated() if CUDA else 0
        say(what, f"{spent:.1f} s, {peak / 2**30:.2f} GiB of the card")


def images(_: Path) -> None:
    """Compare images a second, and their operations, with what the card multiplies matrices at."""
    here, backbone, n = torch.device(DEVICE), Backbone(cache=False), 4096 if CUDA else 64
    pixels = np.random.default_rng(0).integers(0, 256, (n, 3, 160, 160), dtype=np.uint8)
    with own_settings():
        with FlopCounterMode(display=False) as counter:
            backbone.embed(Images(pixels[:8]), here)
        for some in (n // 4, n):  # the first is warm-up
            began = time.monotonic()
            backbone.embed(Images(pixels[:some]), here)
            speed = some / (time.monotonic() - began)
    a = torch.randn(*[8192 if CUDA else 1024] * 2, device=here)
    for repeats in (2, 20):
        began = time.monotonic()
        last = [a @ a for _ in range(repeats)][-1]
        last.sum().item()  # waits for the card
        peak = repeats * 2 * len(a) ** 3 / (time.monotonic() - began)
    share = speed * counter.get_total_flops() / 8 / peak
    say("images of 160 pixels embedded a second", f"{speed:,.0f}")
    say("their operations, of a matrix product's in float32", f"{share:.1%} of {peak / 1e12:.2f} TFLOP/s")


def fit_kept(folder: Path | None) -> tuple[Any, Any]:
    """Fit networks to images, with a checkpoint in the folder if there is one; return model and views."""
    rng = np.random.default_rng(0)
    pixels, y = rng.integers(0, 120, (400, 3, 32, 32)).astype(np.uint8), rng.integers(0, 2, 400)
    pixels[y == 1, :, :16] += 60
    views = Views(U=Images(pixels), S=Table.from_numeric(rng.normal(size=(400, 3))))
    cnn = Backbone("small_cnn", pretrained=False, finetune="all")
    learners = {"U": NetworkLearner((16,), epochs=2, backbone=cnn, device=DEVICE), "S": TreeLearner()}
    settings: dict[str, Any] = {"n_rounds": ROUNDS, "patience": None, "validation_fraction": 0}
    return TwoWeakLearnerClassifier(learners, checkpoint=folder, **settings).fit(views, y), views


def killed(folder: Path) -> None:
    """Kill a fit in the middle, resume it, and compare it with one that was not interrupted."""
    kept = folder / "kept"
    running = subprocess.Popen([sys.executable, "-m", MODULE, "--part", "kept", "--folder", str(kept)])
    while running.poll() is None and len(list(kept.glob("round-*"))) < 3:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    cut, left = running.wait() == -signal.SIGKILL, len(list(kept.glob("round-*")))
    (resumed, views), (whole, _) = fit_kept(kept), fit_kept(None)
    far = float(np.abs(resumed.predict_proba(views) - whole.predict_proba(views)).max())
    what = f"killed after {left} of {ROUNDS} rounds and resumed: difference"
    say(what, f"{far:.1e}", cut and far < 10 * CLOSE)


def pool(folder: Path) -> None:
    """Have a worker of the pool `gpu` make two fits at a time, which share the card's two slots."""
    place = folder / "workspace"
    found = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "USBOOST_HOME": str(folder / "home"), "PYTHONPATH": found}
    environment |= {"USBOOST_PREFECT_PORT": "0", "USBOOST_MLFLOW_PORT": "0"}
    os.environ.update(environment)
    workspace = import_module("flows.local.workspace")  # which reads the environment
    changes = {"fits.runner": "deployments", "fits.gpu_slots": 2}
    workspace.make(place, profile="demo", datasets=["ci_b"], rounds=30, seeds=2, changes=changes)

    def run(*words: str) -> int:
        return subprocess.run([sys.executable, "-m", *words], cwd=place, stdout=subprocess.DEVNULL).returncode

    try:
        well = not run("flows.local.services", "start") and not run("flows.data", "ci_b")
        began = time.monotonic()
        well = well and not run("flows.fit", "ci_b", "--model=2wl", "--seeds=2")
        spent = time.monotonic() - began
    finally:
        run("flows.local.services", "stop")
    made = len(list((place / "data/results/ci_b/2wl").glob("seed-*/record.json")))
    say("two fits by a worker of the pool gpu, two slots", f"{spent:.0f} s", well and made == 2)


PARTS: dict[str, tuple[Callable[[Path], None], int]] = {
    "predictions": (predictions, 240),
    "fits": (fits, 150),
    "images": (images, 60),
    "killed": (killed, 90),
    "pool": (pool, 240),
}
"""Parts by name, and the seconds that each may take."""


def run_part(name: str, place: str, limit: float) -> list[list[str]]:
    """Run a part in a process of its own; return its lines, and one of why it did not end well."""
    command = [sys.executable, "-m", MODULE, "--part", name, "--folder", place]
    environment, pipe = {**os.environ, "USBOOST_CACHE": f"{place}/cache"}, subprocess.PIPE
    with subprocess.Popen(command, env=environment, text=True, stdout=pipe, start_new_session=True) as part:
        try:
            output, _ = part.communicate(timeout=max(1.0, limit))
            why = f"ended with {part.returncode}" if part.returncode else ""
        except subprocess.TimeoutExpired:
            os.killpg(part.pid, signal.SIGKILL)
            output, why = part.communicate()[0], "did not end in time"
    found = [line.split("\t") for line in output.splitlines() if line.count("\t") == 2]
    return found + ([[name, why, "NO"]] if why else [])


def main(on_cpu: bool = False, part: str = "", folder: Path = Path()) -> None:
    """Run all parts; `part`: one alone, without a limit, with an empty folder for its files."""
    if part in PARTS:
        PARTS[part][0](folder)
    elif part:
        (fit_kept if part == "kept" else write_predicted)(folder)
    elif not (on_cpu or CUDA):
        print("no GPU here")
    else:
        lines, end = list[list[str]](), time.monotonic() + LIMIT
        for name, (_, limit) in PARTS.items():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
                lines += run_part(name, place, min(limit, end - time.monotonic()))
        print(table_of([torch.cuda.get_device_name() if CUDA else "the CPU", "", "well"], lines))
        raise SystemExit(any(line[-1] == "NO" for line in lines))


if __name__ == "__main__":
    typer.run(main)

"""How long MLflow's server takes for a row, with an image and without: what docs/team.md says.

``python -m benchmarks.speed.serving MODEL ROWS``: MODEL is a folder that `usboost fit` saved, ROWS a Parquet
file whose images are bytes. The server listens on loopback and ends with the script.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.robustness.tables import served
from flows.local.servers import answers, free_port
from usboost.fit.bundle import load
from usboost.fit.card import Card

WARM, ASKED = 20, 200
"""Requests before those that are measured, and these: one after the other, a row each."""


def requests_of(card: Card, rows: pd.DataFrame, images: bool) -> list[bytes]:
    """Return a request for each of the first rows, images as base64 or null."""
    columns = card.images.columns if card.images else []
    rows = rows[[*card.columns, *columns]].head(WARM + ASKED)
    for name in columns:
        rows[name] = [base64.b64encode(each).decode() if images and each else None for each in rows[name]]
    records = json.loads(rows.to_json(orient="records"))
    return [json.dumps({"dataframe_records": [each]}).encode() for each in records]


def milliseconds(port: int, bodies: list[bytes]) -> np.ndarray:
    """Measure from each request to its answer, float64, without those that warm the server."""
    address, kind = f"http://127.0.0.1:{port}/invocations", {"Content-Type": "application/json"}
    spent = []
    for body in bodies:
        began = time.perf_counter()
        with urllib.request.urlopen(urllib.request.Request(address, body, kind)) as answer:
            json.load(answer)
        spent.append(1e3 * (time.perf_counter() - began))
    return np.array(spent[WARM:])


def run(model: Path, rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return medians and 99th percentiles, with images and without."""
    card, port = load(model).card, free_port()
    with tempfile.TemporaryDirectory() as folder:
        served(model, Path(folder) / "served")
        words = ["mlflow", "models", "serve", "--model-uri", f"{folder}/served", "--port", str(port)]
        new = {**os.environ, "USBOOST_CACHE": f"{folder}/cache"}  # images that were never embedded
        server = subprocess.Popen([*words, "--env-manager", "local"], env=new, start_new_session=True)
        try:
            while not answers(f"http://127.0.0.1:{port}"):
                if server.poll() is not None:
                    raise SystemExit("MLflow's server has ended by itself")
                time.sleep(0.2)
            found = []
            for images in (True, False):
                spent = milliseconds(port, requests_of(card, rows, images))
                p50, p99 = np.percentile(spent, [50, 99])
                found.append({"image": images, "requests": len(spent), "p50": p50, "p99": p99})
            return found
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", type=pd.read_parquet)
    table = pd.DataFrame(run(**vars(parser.parse_args())))
    print(table.round(1).to_markdown(index=False))

"""An experiment's end: its scores gathered, compared and shown, and what is missing named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tasks import links, page, tracking
from tasks.experiment import Cell, record_of
from tasks.folders import experiment_folder
from tasks.identity import task_of
from usboost.evaluation.names import metric_name, number
from usboost.files import write_atomically
from usboost.models import zoo
from usboost.reporting import results

SPLIT = "test"
METRICS = {"classification": ("f1", "f1_tuned", "accuracy"), "regression": ("rmse", "mae", "r2")}
"""What is compared, by task; of the first the improvement over the baseline is told."""


def compare(name: str, cells: Sequence[Cell], reasons: Mapping[Cell, str]) -> pd.DataFrame:
    """Write and show the comparison of an experiment.

    Leaves ``comparison.csv``, ``comparison.md`` and each model's ``scores.json`` in the experiment's
    folder, and a table and a text on the page of the flow run.

    Parameters
    ----------
    reasons : why a cell is missing, in a sentence

    Returns
    -------
    DataFrame
        One row per dataset and model: ``<metric>_mean``, ``<metric>_std`` over the seeds (NaN for one),
        ``improvement_mean`` (of the task's first metric over the baseline's, in %), ``seeds``,
        ``fit_seconds_mean`` and ``missing``, the seeds without a result.
    """
    folder = experiment_folder(name)
    records = {cell: record for cell in cells if (record := record_of(name, cell))}
    gather(folder, cells, records)
    missing = [cell for cell in cells if cell not in records]
    frame = table(folder, cells, missing)
    write_atomically(folder / "comparison.csv", frame.to_csv(index=False, float_format="%.6g").encode())
    text = markdown(name, frame, records, {cell: reasons.get(cell, "it was not run") for cell in missing})
    write_atomically(folder / "comparison.md", text.encode())
    rows = json.loads(frame.to_json(orient="records"))
    page.show_table(page.key("comparison", name), rows, f"Experiment {name}, {SPLIT} split")
    page.show_text(page.key("summary", name), text, "The table, what is missing, MLflow runs")
    return frame


def gather(folder: Path, cells: Sequence[Cell], records: Mapping[Cell, dict[str, Any]]) -> None:
    """Write each model's ``scores.json`` as the training flow does, from the cells that are there."""
    for dataset, model in dict.fromkeys((cell.dataset, cell.model) for cell in cells):
        seeds = [r for cell, r in records.items() if (cell.dataset, cell.model) == (dataset, model)]
        file = folder / dataset / model / "scores.json"
        if not seeds:
            file.unlink(missing_ok=True)
            continue
        document = {"dataset": dataset, "model": model, "profile": seeds[0]["profile"], "seeds": seeds}
        write_atomically(file, (json.dumps(document, indent=1) + "\n").encode())


def table(folder: Path, cells: Sequence[Cell], missing: Sequence[Cell]) -> pd.DataFrame:
    """Mean and spread over the seeds, a row for each dataset and model of the grid."""
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    models = list(dict.fromkeys(cell.model for cell in cells))
    pairs = [
        (dataset, model)
        for dataset in datasets
        for model in zoo.ordered(cell.model for cell in cells if cell.dataset == dataset)
    ]
    out = pd.DataFrame(pairs, columns=["dataset", "model"])
    asked = {dataset: METRICS[task_of(dataset).name] for dataset in datasets}
    compared = list(dict.fromkeys(metric for metrics in asked.values() for metric in metrics))
    empty = [f"{metric}_{part}" for metric in compared for part in ("mean", "std")]
    empty += ["improvement_mean", "fit_seconds_mean"]
    if len(missing) < len(cells):
        frame = results.collect(folder, datasets, models)
        for metric in compared:
            cut = results.table3(frame, SPLIT, metric)
            names = {"value_mean": f"{metric}_mean", "value_std": f"{metric}_std"}
            cut = cut[["dataset", "model", *names]].rename(columns=names)
            out = out.merge(cut, on=["dataset", "model"], how="left")
        firsts = [
            results.table3(frame[frame["dataset"] == dataset], SPLIT, metrics[0])
            for dataset, metrics in asked.items()
        ]
        gains = pd.concat(firsts)[["dataset", "model", "improvement_mean"]]
        out = out.merge(gains, on=["dataset", "model"], how="left")
        fits = frame.drop_duplicates(["dataset", "model", "seed"]).groupby(["dataset", "model"])
        seconds = fits["fit_seconds"].mean().rename("fit_seconds_mean").reset_index()
        out = out.merge(seconds, on=["dataset", "model"], how="left")
    out = out.reindex(columns=["dataset", "model", *empty])
    absent = {
        pair: [cell.seed for cell in missing if (cell.dataset, cell.model) == pair]
        for pair in zip(out["dataset"], out["model"], strict=True)
    }
    total = len({cell.seed for cell in cells})
    out["seeds"] = [total - len(seeds) for seeds in absent.values()]
    out["missing"] = [" ".join(str(seed) for seed in seeds) for seeds in absent.values()]
    return out


def spread(mean: float, std: float) -> str:
    """``mean ± std`` as a table prints it; a dash where there is nothing."""
    if pd.isna(mean):
        return "–"
    return number(mean) if pd.isna(std) else f"{number(mean)} ± {number(std)}"


def compared_in(frame: pd.DataFrame) -> list[str]:
    """The metrics of a comparison."""
    known = dict.fromkeys(metric for metrics in METRICS.values() for metric in metrics)
    return [metric for metric in known if f"{metric}_mean" in frame]


def headings(frame: pd.DataFrame) -> list[str]:
    """Of the columns of `printed`."""
    shown = map(metric_name, compared_in(frame))
    return ["dataset", "model", *shown, "% over baseline", "fit, s", "seeds"]


def printed(frame: pd.DataFrame) -> list[list[str]]:
    """The comparison's rows as text, under `headings`."""
    rows, metrics = [], compared_in(frame)
    for row in frame.to_dict("records"):
        gain, seconds = row["improvement_mean"], row["fit_seconds_mean"]
        rows.append(
            [
                results.dataset_name(row["dataset"]),
                zoo.title(row["model"]),
                *(spread(row[f"{metric}_mean"], row[f"{metric}_std"]) for metric in metrics),
                "–" if pd.isna(gain) else f"{gain:+.2f}",
                "–" if pd.isna(seconds) else f"{seconds:.1f}",
                str(row["seeds"]) + (f" (without {row['missing']})" if row["missing"] else ""),
            ]
        )
    return rows


def markdown(
    name: str, frame: pd.DataFrame, records: Mapping[Cell, dict[str, Any]], missing: Mapping[Cell, str]
) -> str:
    """The comparison as a page: the table, what is missing and why, the cells' MLflow runs."""
    lines = [f"# Experiment {name}", "", f"Scores on the {SPLIT} split, mean ± spread over the seeds.", ""]
    heads = headings(frame)
    lines += ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *printed(frame))]
    lines += ["", "## Missing", ""] if missing else []
    lines += [f"- {cell.name}: {reason}" for cell, reason in missing.items()]
    lines += ["", "## MLflow runs", ""] if records else []
    tasks = {task_of(cell.dataset).name for cell in records}
    for profile in dict.fromkeys(record["profile"] for record in records.values()):
        found, wanted = tracking.experiment_id(f"usboost-{profile}"), f"tags.experiment = '{name}'"
        finished = f"{wanted} and attributes.status = 'FINISHED'"
        if address := tracking.view_address(found, name, finished, tasks):
            lines += [f"[Their curves side by side]({address})", ""]
    for cell, record in records.items():
        run_id = record["mlflow_run_id"]
        address = links.run_address(run_id)
        lines.append(f"- {cell.name}: " + (f"[{run_id}]({address})" if address else f"`{run_id}`"))
    return "\n".join(lines) + "\n"

"""Read the training flow's records: scores, traces and test rows; rank the fits by validation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ValidationError

from usboost.errors import UsboostError
from usboost.evaluation import ranking
from usboost.evaluation.intervals import Interval, intervals
from usboost.evaluation.ranking import LOWER_IS_BETTER
from usboost.evaluation.statistics import LEVEL, holm, paired_interval, randomization_test
from usboost.evaluation.task import TASKS, Task
from usboost.files import write_atomically
from usboost.fit.card import PlainMargin
from usboost.models import catalogue

COLUMNS = (
    *("dataset", "model", "seed", "split", "metric", "value"),
    *("relative_improvement_pct", "best_round", "rounds", "fit_seconds"),
)
DATASET_NAMES = {"ci_a": "CI-A", "ci_b": "CI-B", "ct": "CT", "mi": "MI", "rw": "RW"}
DATASET_NAMES |= {"digits": "digit images", "digits_rows": "digits by rows", "user_table": "your table"}
DATASET_NAMES |= {"iris": "Iris", "pendigits": "pen digits", "gunpoint": "GunPoint"}
TRACE_COLUMNS = "seconds", "risk_train", "risk_val", "f1_val", "accuracy_val", "rmse_val", "epsilon", "delta"

STEPS = {"step_U": "epsilon", "step_S": "delta"}  # the papers' letters for the steps along their two views

CURVES = {"score": ("f1_val", "rmse_val"), "epsilon": ("epsilon",), "delta": ("delta",)}
"""The columns of a trace that are a curve, of which a fit has one at most."""

_SPLITS = ("train", "val", "test")
_METRICS = ("f1", "f1_tuned", "accuracy", "auc", "log_loss", "rmse", "mae", "r2")
_KEY = ["dataset", "seed", "split", "metric"]

DATASET_ABOUT = {
    "ci_a": "census income (KDD), a table; its columns are divided into U and S at random",
    "ci_b": "the same rows as CI-A; backward elimination divides the columns",
    "ct": "forest cover types, each row with an image of drawn shapes (U) and its columns (S)",
    "mi": "dogs against other animals: ImageNet images (U) with generated numbers (S)",
    "digits": "scikit-learn’s handwritten digits, 0 to 4 against 5 to 9: images (U) with generated numbers "
    "(S); in place of MI, whose images may not be copied",
    "rw": "the paper’s private dataset",
}
"""The paper's datasets in a few words."""

Scores = dict[str, dict[str, float | None]]


class CellRecord(BaseModel):
    """One `record.json`: a fit, its cost, its scores, {split: {metric: value}}, and what made it.

    ``margin`` and ``floor`` are those of a predicted number's interval.
    """

    dataset: str
    model: str
    profile: Literal["demo", "user", "paper"]
    seed: int
    rounds: int | None = None
    best_round: int | None = None
    fit_seconds: float | None = None
    scores: Scores
    margin: PlainMargin | None = None
    floor: float | None = None
    gbm: Scores | None = None
    made: dict[str, Any] | None = None


def dataset_name(dataset: str) -> str:
    """Return the name that a table prints; an unknown dataset's is its own."""
    return DATASET_NAMES.get(dataset, dataset)


def read_cell(results: Path, dataset: str, model: str) -> list[CellRecord]:
    """Read the records of one model on one dataset, by seed; none if the training flow has not written them.

    A part that is scored with a model, as the GBM inside BFV+DNN, has that model's records unless it has a
    folder of its own. Raises `UsboostError` if a record is not what the flow writes, or is another cell's.
    """
    records: dict[Path, CellRecord] = {}
    for path in Path(results, dataset, model).glob("seed-*/record.json"):
        try:
            records[path] = CellRecord.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            raise UsboostError(f"{path}: {where}: {first['msg']}; train this model again") from error
    if not records and (entry := catalogue.model_with_part(model)):
        # rounds and seconds belong to the network trained on the GBM's leaf values, so they stay empty
        return [
            CellRecord(dataset=dataset, model=model, profile=fit.profile, seed=fit.seed, scores=fit.gbm)
            for fit in read_cell(results, dataset, entry.name)
            if fit.gbm
        ]
    for path, record in records.items():
        if (record.dataset, record.model, f"seed-{record.seed}") != (dataset, model, path.parent.name):
            raise UsboostError(
                f"{path} is the record of {record.model} on {record.dataset} with seed {record.seed}; "
                "move it there or train again"
            )
    return sorted(records.values(), key=lambda record: record.seed)


def missing(results: Path, datasets: Sequence[str], models: Sequence[str]) -> list[tuple[str, str]]:
    """Return the (dataset, model) cells without scores, in table order."""
    cells = [(dataset, model) for dataset in dict.fromkeys(datasets) for model in catalogue.ordered(models)]
    return [(dataset, model) for dataset, model in cells if not read_cell(results, dataset, model)]


def profiles(results: Path, datasets: Sequence[str], models: Sequence[str]) -> set[str]:
    """Return the profiles, "demo", "user" or "paper", of the cells and of the baselines."""
    cells = ((d, m) for d in datasets for m in (catalogue.BASELINE, *models))
    return {fit.profile for cell in cells for fit in read_cell(results, *cell)}


def collect(results: Path, datasets: Sequence[str], models: Sequence[str]) -> pd.DataFrame:
    """Read every score into a row, with its relative improvement over the baseline.

    Cells that are not there are skipped (`missing` lists them). With a model come its parts that were scored,
    ``gbm`` with ``bfv_dnn``. Raises `UsboostError` if no cell has scores, or a file of scores cannot be read.

    Returns a DataFrame with the columns `COLUMNS`, sorted by dataset (as given), model (`catalogue.ordered`),
    seed, split and metric. ``relative_improvement_pct`` is 100 · (value − baseline) / |baseline| for the same
    dataset, seed, split and metric, with the sign turned for metrics that are better when lower; NaN where
    there is no baseline or it is 0. `results` holds ``<dataset>/<model>/seed-<seed>/record.json``.
    """
    datasets = list(dict.fromkeys(datasets))
    models = catalogue.ordered(catalogue.with_parts(models))
    frame = _rows(read_cell(results, d, m) for d in datasets for m in models)
    if frame.empty:
        raise UsboostError(
            f"no record.json found under {results} for the datasets {', '.join(datasets) or '(none)'} "
            f"and the models {', '.join(models) or '(none)'}; run the training flow first"
        )
    baselines = _rows(read_cell(results, dataset, catalogue.BASELINE) for dataset in datasets)
    baselines = baselines[[*_KEY, "value"]].rename(columns={"value": "baseline"})
    frame = frame.merge(baselines, on=_KEY, how="left", validate="many_to_one")
    sign = np.where(frame["metric"].isin(LOWER_IS_BETTER), -1.0, 1.0)
    base = frame["baseline"].where(frame["baseline"] != 0)
    # + 0.0: a turned sign makes no −0 of the baseline's own zero
    frame["relative_improvement_pct"] = 100.0 * sign * (frame["value"] - base) / base.abs() + 0.0
    orders: dict[Any, Sequence[str]] = {
        "dataset": datasets,
        "model": models,
        "split": [*_SPLITS, *sorted(set(frame["split"]) - set(_SPLITS))],
        "metric": [*_METRICS, *sorted(set(frame["metric"]) - set(_METRICS))],
    }
    frame = frame.sort_values(
        ["dataset", "model", "seed", "split", "metric"],
        key=lambda column: column.map(orders[column.name].index) if column.name in orders else column,
    )
    return frame[list(COLUMNS)].reset_index(drop=True)


def _rows(cells: Iterable[Sequence[CellRecord]]) -> pd.DataFrame:
    columns = [name for name in COLUMNS if name != "relative_improvement_pct"]
    rows = [
        [fit.dataset, fit.model, fit.seed, split, metric, value, *(getattr(fit, k) for k in columns[-3:])]
        for cell in cells
        for fit in cell
        for split, scores in fit.scores.items()
        for metric, value in scores.items()
    ]
    return pd.DataFrame(rows, columns=columns).astype(
        {"seed": "int64", "best_round": "Int64", "rounds": "Int64"}
        | {"value": "float64", "fit_seconds": "float64"}
        | dict.fromkeys(("dataset", "model", "split", "metric"), "str")
    )


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write what `collect` returns as CSV: floats with 6 significant digits, NaN empty, atomically."""
    write_atomically(path, frame.to_csv(index=False, float_format="%.6g", lineterminator="\n").encode())


def table3(frame: pd.DataFrame, split: str, metric: str) -> pd.DataFrame:
    """Return mean and standard deviation over seeds, per dataset and model, of one metric on one split.

    The columns, in the order of `frame`, are dataset, model, and for each of ``value`` and ``improvement``
    (in %): ``_mean``, ``_std`` (over n − 1; NaN for one seed) and ``_seeds``, how many seeds have one.
    """
    cut = frame[(frame["split"] == split) & (frame["metric"] == metric)]
    cells = cut.groupby(["dataset", "model"], sort=False)
    summary: dict[str, pd.Series] = {}
    for name, column in (("value", "value"), ("improvement", "relative_improvement_pct")):
        summary |= {f"{name}_mean": cells[column].mean(), f"{name}_std": cells[column].std(ddof=1)}
        summary[f"{name}_seeds"] = cells[column].count()
    return pd.DataFrame(summary).reset_index()


def chosen(frame: pd.DataFrame, dataset: str, metric: str) -> tuple[str, int] | None:
    """Return model and seed of the dataset's best fit by its validation score, which `promote` takes, too.

    A part that is scored with a model is no fit of its own. None where nothing has a validation score.
    """
    return ranking.best(_fits(frame, dataset), metric)


def tied(frame: pd.DataFrame, dataset: str, metric: str) -> list[str]:
    """Return the models with a fit that is level with `chosen`'s before the log-loss decides."""
    return list(dict.fromkeys(model for model, _ in ranking.tied(_fits(frame, dataset), metric)))


def _fits(frame: pd.DataFrame, dataset: str) -> list[tuple[tuple[str, int], dict[str, float]]]:
    """Return each (model, seed) with its validation scores by metric."""
    rows = frame[(frame["dataset"] == dataset) & (frame["split"] == "val")]
    return [
        ((str(model), int(seed)), dict(zip(fit["metric"], fit["value"], strict=True)))
        for (model, seed), fit in rows.groupby(["model", "seed"], sort=False)
        if catalogue.model_with_part(str(model)) is None
    ]


def behind_prior(frame: pd.DataFrame, card: Mapping[str, Any]) -> dict[str, str]:
    """Say of each model of a dataset whose mean test log-loss is above the prior's why that is."""
    losses = frame[(frame["metric"] == "log_loss") & (frame["model"] != catalogue.PRIOR)]
    means = losses.pivot_table("value", "model", "split", "mean", sort=False)
    fits = frame.groupby("model", sort=False)[["best_round", "rounds"]].mean().astype("float64")
    prior = {split: ranking.prior_log_loss(card, split) for split in ("val", "test")}
    reasons = {}
    for model, loss in means.get("test", pd.Series(dtype=float)).items():
        if prior["test"] is None or not ranking.worse_than_prior(loss, prior["test"]):
            continue
        best, made = fits.loc[model]
        val = means.at[model, "val"] if "val" in means else np.nan
        if best == made:
            why = f"the last of {made:,.0f} rounds was the best, so it had not settled"
        elif prior["val"] is not None and val < prior["val"]:
            why = "the validation rows, which choose the round, have it below the prior’s"
        else:
            why = "at no round it was below the prior’s on the validation rows"
        reasons[str(model)] = why
    return reasons


def history_frame(history: list[dict[str, float]], seed: int) -> pd.DataFrame:
    """Return a fit's rounds as the report reads them: a row each, the papers' letters for the steps."""
    frame = pd.DataFrame(history).rename(columns=STEPS)
    always = ("risk_train", "risk_val", "f1_val", "accuracy_val", "epsilon", "delta")
    frame[[name for name in always if name not in frame]] = float("nan")
    frame.insert(0, "seed", seed)
    return frame.astype({"round": "int64"})


def curve(trace: pd.DataFrame, name: str) -> str | None:
    """Write a row per round as CSV, ``round`` and the curve's name; None where the fit does not have it."""
    for column in CURVES[name]:
        if column in trace and trace[column].notna().any():
            means = trace.groupby("round")[column].mean().dropna().rename(name)
            return means.to_csv(float_format="%.6g", lineterminator="\n")
    return None


def read_trace(results: Path, dataset: str, model: str) -> pd.DataFrame | None:
    """Read every seed's ``trace.parquet`` of one model, long over rounds; None if it has none of its own.

    Every column of `TRACE_COLUMNS` is there (NaN where the file has none), sorted by seed and round, and the
    boolean ``best`` marks the round each seed's scores come from: ``best_round`` of its record. Raises
    `UsboostError` if the file cannot be read or has no seed and round.
    """
    paths = sorted(Path(results, dataset, model).glob("seed-*/trace.parquet"))
    if not paths:
        return None
    traces = []
    for path in paths:
        try:
            traces.append(pd.read_parquet(path))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsboostError(f"{path} is not a Parquet file; train this model again") from error
        if "member" in traces[-1]:
            return None
        if absent := [name for name in ("seed", "round") if name not in traces[-1]]:
            raise UsboostError(f"{path} has no column {absent[0]!r}; train this model again")
        for name in TRACE_COLUMNS:
            try:
                traces[-1][name] = traces[-1][name].astype("float64") if name in traces[-1] else np.nan
            except (ValueError, TypeError):
                raise UsboostError(f"{path}: {name!r} is not a number; train this model again") from None
    trace = pd.concat(traces, ignore_index=True).sort_values(["seed", "round"], ignore_index=True)
    rounds = {fit.seed: fit.best_round for fit in read_cell(results, dataset, model)}
    return trace.assign(best=trace["round"] == trace["seed"].map(rounds))


TestRows = tuple[np.ndarray, np.ndarray]  # labels (n,), and probabilities (n, M) or predicted numbers (n,)


def read_rows(results: Path, dataset: str, model: str, seed: int) -> TestRows | None:
    """Read a fit's test rows: labels (n,) and probabilities (n, M), or numbers (n,); None if there are none.

    Raises `UsboostError` if the file cannot be read.
    """
    path = Path(results) / dataset / model / f"seed-{seed}" / "rows.parquet"
    if not path.is_file():
        return None
    try:
        frame = pd.read_parquet(path)
        rows = frame[frame["seed"] == seed]
        if "prediction" in frame:
            numbers = rows["label"].to_numpy(np.float64), rows["prediction"].to_numpy(np.float64)
            return numbers if len(rows) and all(np.isfinite(each).all() for each in numbers) else None
        names = [f"p_{k}" for k in range(len(frame.columns) - 2)]
        labels, probabilities = rows["label"].to_numpy(np.int64), rows[names].to_numpy(np.float64)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsboostError(f"{path} is not what training writes; train this model again") from error
    if not len(labels) or labels.min() < 0 or labels.max() >= len(names):
        return None
    return labels, probabilities


@dataclass(frozen=True)
class RankedFit:
    """A model's best fit, the one that validation chooses among its seeds; NaN is what is not known."""

    model: str
    seed: int
    val: dict[str, float]  # scores by metric
    test: dict[str, Interval]
    best_round: float  # the round that is used, of so many
    rounds: float
    seconds: float
    difference: Interval | None = None  # the chosen model's lead in the test score, of which more is better
    # of the difference, by the randomization test: as it is, for a question that is asked of this model
    # alone, and adjusted for all models but the chosen one
    p: float | None = None
    p_holm: float | None = None

    @property
    def within_noise(self) -> bool:
        return self.p_holm is not None and not self.p_holm < LEVEL


def ranked_fits(
    frame: pd.DataFrame, results: Path, dataset: str, metric: str, task: Task = TASKS["classification"]
) -> list[RankedFit]:
    """Rank the models of a dataset by their validation scores, the chosen one first.

    `frame` is what `collect` returns; `metric` chooses, and differences are of it: f1 or accuracy, or one of
    a regression's.
    """
    part = frame[frame["dataset"] == dataset]
    rows: dict[tuple[str, int], TestRows | None] = {}
    ranked: list[RankedFit] = []
    for model in catalogue.ordered(part["model"]):
        fit = chosen(part[part["model"] == model], dataset, metric)
        if fit is None:
            continue
        rows[fit] = tested = read_rows(results, dataset, *fit)
        own = part[(part["model"] == model) & (part["seed"] == fit[1])]
        scores = {split: dict(zip(of["metric"], of["value"])) for split, of in own.groupby("split")}
        test: dict[str, Interval] = {k: (v, np.nan, np.nan) for k, v in scores.get("test", {}).items()}
        if tested is not None:
            test |= intervals(*tested)
        best_round, made, seconds = own[["best_round", "rounds", "fit_seconds"]].astype("float64").iloc[0]
        ranked.append(RankedFit(*fit, scores["val"], test, best_round, made, seconds))
    # a stable sort, so that of fits that are level the first comes first, as in `ranking.best`
    ranked.sort(key=lambda each: ranking.rank(each.val, metric), reverse=True)
    if not ranked:
        return []
    leads = leads_of(rows, (ranked[0].model, ranked[0].seed), metric, task)
    return [replace(each, **leads.get((each.model, each.seed), {})) for each in ranked]


def leads_of(
    rows: Mapping[tuple[str, int], TestRows | None],
    best: tuple[str, int],
    metric: str,
    task: Task = TASKS["classification"],
) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the best fit's lead over each other one: difference, p and p_holm of `RankedFit`.

    `rows` are what `read_rows` returns of each (model, seed); one without, or with other test rows, is left
    out.
    """
    if (own := rows[best]) is None:
        return {}
    labels, mine = own[0], task.answers(own[1])
    gain = task.gain(metric, own[1])
    others = {
        fit: task.answers(one[1])
        for fit, one in rows.items()
        if fit != best and one is not None and np.array_equal(one[0], labels)
    }
    p = [randomization_test(labels, mine, other, gain) for other in others.values()]
    return {
        fit: {
            "difference": (
                gain(labels, mine) - gain(labels, other),
                *paired_interval(labels, mine, other, gain),
            ),
            "p": float(alone),
            "p_holm": float(adjusted),
        }
        for (fit, other), alone, adjusted in zip(others.items(), p, holm(p), strict=True)
    }

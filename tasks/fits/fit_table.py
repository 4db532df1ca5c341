"""A fit of the pipeline to a user's table: that of `usboost fit`, watched, and scored on the test rows."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tasks import tracking
from tasks.fits import scores as scores_of
from tasks.fits.identity import Planned
from tasks.fits.results import RECORD, ROWS, TRACE
from tasks.folders import prepared_folder
from tasks.pages import flow_page as page
from tasks.pages.origin import made_by
from usboost.boosting.checkpoint import Checkpoint
from usboost.datasets.prepared import store
from usboost.datasets.user.read_prepared import SPLITS, read_prepared
from usboost.multimodal.fit.prepared import example_of
from usboost.multimodal.fit.table_fit import TableFit


def fit_table(planned: Planned, out: Path, run_id: str, kept: Checkpoint) -> dict[str, Any]:
    """Fit and score inside the MLflow run `run_id`; its record. `out` gets what `tasks.fits.results` reads.

    What is logged as the model, and scored on the test rows, is the bundle that `usboost fit` saves, fitted
    to training and validation rows. Its rounds, the validation scores and the inspection are of the fit
    before, which saw no validation row. Rounds of both are written to the checkpoint `kept` and resumed from
    it.
    """
    dataset, model, seed, folder = (
        planned.dataset,
        planned.model,
        planned.seed,
        prepared_folder(planned.dataset),
    )
    table = read_prepared(folder)
    test = np.flatnonzero(table.split == "test")
    tracking.log_estimator(run_id, planned.estimator, dataset=dataset, model=model, seed=seed)
    rows = ", ".join(f"{np.count_nonzero(table.split == split):,} {split}" for split in SPLITS)
    page.say(f"{planned.entry.title} on {dataset}, seed {seed}; rows: {rows}")
    logger = tracking.MLflowCallback(run_id)
    fitted = TableFit(
        table,
        planned.estimator,
        model,
        seed=seed,
        callbacks=[page.ShowProgress(planned.name), logger],
        callbacks_of_all=(),
        keep=_Kept(kept),
    ).run()
    first, card = fitted.first, fitted.bundle.card
    fit_seconds = fitted.seconds - logger.seconds + logger.earlier
    predicted = {
        "val": (first.labels, first.predicted),
        "test": (table.labels[test], fitted.bundle.predicted_of(table, test)),
    }
    scores = scores_of.score(planned.task, predicted)
    page.say(f"best round {fitted.best_round} of {len(first.model.history_)}, {fit_seconds:.1f} s")
    page.say(page.scores_in_words(scores))
    with tempfile.TemporaryDirectory() as place, tracking.once(run_id, "model_logged") as once:
        if once:
            fitted.bundle.save(Path(place) / "bundle")
            of = {"dataset": dataset, "model": model, "seed": str(seed)}
            example = example_of(card, folder)
            tracking.log_model(run_id, Path(place) / "bundle", card, example, planned.name, of)
    with tracking.once(run_id, "scored") as once:
        if once:
            tracking.log_scores(
                run_id,
                scores,
                tracking.datasets(store.read_card(folder)),
                best_round=fitted.best_round,
                rounds=len(first.model.history_),
                fit_seconds=fit_seconds,
                logging_seconds=logger.seconds,
            )
    if seed == 0:
        from tasks.pages import inspection  # here, because matplotlib takes long to import

        inspection.keep(first.model, dataset, (first.views, first.labels), first.predicted, out)
    record = {
        "seed": seed,
        "fingerprint": planned.fingerprint,
        "rounds": len(first.model.history_),
        "best_round": fitted.best_round,
        "fit_seconds": fit_seconds,
        "scores": scores,
        "made": made_by(run_id),
        **({"margin": card.margin} if card.margin else {}),
    }
    scores_of.test_rows(predicted, seed).to_parquet(out / ROWS, index=False)
    (out / RECORD).write_text(json.dumps(record))
    tracking.history_frame(first.model.history_, seed).to_parquet(out / TRACE, index=False)
    return record


class _Kept:
    """The rounds of the first fit in a checkpoint, those of the fit to all rows in a folder in it."""

    def __init__(self, kept: Checkpoint) -> None:
        self._places = [kept, Checkpoint(kept.folder / "all-rows", kept.identity)]

    def keep(self, model: Any, *samples: tuple[Any, ...]) -> None:
        """See `usboost.multimodal.fit.unfinished.Keep`."""
        place = self._places.pop(0)
        if "checkpoint" in model.get_params(deep=False):
            model.set_params(checkpoint=place)

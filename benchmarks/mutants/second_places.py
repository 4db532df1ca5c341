"""Breaks of what is said in a second place, and easily forgotten there: weights, folds, seeds, margins.

Those that an outside review made and no test saw; `forgotten` has more of their kind.
"""

from __future__ import annotations

from benchmarks.mutants.entry import Break

MODELS, FIT = "usboost/models/", "usboost/multimodal/fit/"
SELECTION, FOLD_FITS = f"{MODELS}ensembles/selection.py", f"{MODELS}ensembles/fold_fits.py"
ENSEMBLE, ALL_ROWS = f"{MODELS}ensembles/base.py", f"{MODELS}base.py"
PACKAGE, LINEAR = f"{MODELS}baselines/package.py", f"{MODELS}baselines/linear.py"
TWO_BRANCHES, BFV = f"{MODELS}networks/two_branch.py", f"{MODELS}networks/bfv_network.py"
CLASS_WEIGHTS, STARTS = f"{MODELS}class_weights.py", f"{MODELS}boosted/weak_learners.py"
TABLE_FIT, REFIT = f"{FIT}table_fit.py", f"{FIT}refit.py"
TUNE, IDENTITY = "usboost/multimodal/tune.py", "tasks/fits/identity.py"

IN_ENSEMBLES = ("tests/models/test_weights_in_ensembles.py",)
OF_HELD = ("tests/models/test_weights_of_held_rows.py",)
OF_STARTS = ("tests/models/test_weights_of_starts.py",)
OF_FEATURES = ("tests/models/test_weights_of_features.py",)
OF_ALL_ROWS = ("tests/models/test_all_rows.py",)
OF_ANSWERS = ("tests/multimodal/test_weights_of_answers.py",)
OF_IDENTITY = ("tests/tasks/test_identity.py",)

SECOND_PLACES = [
    Break(
        "rows that some member has not predicted choose the weights",
        FOLD_FITS,
        "for _, held in splits[:depth]]",
        "for _, held in splits]",
        IN_ENSEMBLES,
    ),
    Break(
        "greedy weights forget what rows count for",
        SELECTION,
        "rows = Unseen(codes, self.weights)",
        "rows = Unseen(codes)",
        IN_ENSEMBLES,
    ),
    Break(
        "the last mix is kept, not the best",
        SELECTION,
        "if risks[k] < best:",
        "if True:",
        IN_ENSEMBLES,
    ),
    Break(
        "a blend may be better for light rows only",
        SELECTION,
        "mean(gains, self.weights) > errors * error_of_mean(gains, self.weights)",
        "mean(gains) > errors * error_of_mean(gains)",
        IN_ENSEMBLES,
    ),
    Break(
        "the one model for fast predictions forgets the weights",
        ENSEMBLE,
        "fit_weighted(model, samples.weighted, None, samples.related)",
        "fit_weighted(model, (*samples.weighted[:2], None), None, samples.related)",
        IN_ENSEMBLES,
    ),
    Break(
        "a fold's fit stops on rows that count once each",
        FOLD_FITS,
        "None if stop is None else stop.weighted",
        "None if stop is None else (*stop.weighted[:2], None)",
        IN_ENSEMBLES,
    ),
    Break(
        "every fit inside a fit stops on rows that count once each",
        CLASS_WEIGHTS,
        "(held[:2] if held[2] is None else held,)",
        "(held[:2],)",
        IN_ENSEMBLES,
    ),
    Break(
        "a penalty is chosen by rows that count once each",
        LINEAR,
        "+ 1e-12), rows.held_weights)",
        "+ 1e-12))",
        OF_HELD,
    ),
    Break(
        "a two-branch network is stopped by rows that count once each",
        TWO_BRANCHES,
        "validation[1], context.held_weights)",
        "validation[1], None)",
        OF_HELD,
    ),
    Break(
        "a margin is by the number of rows, not by what they are worth",
        "usboost/evaluation/intervals.py",
        "n, order = effective_sample_size(weights), ",
        "n, order = float(len(scores)), ",
        OF_ANSWERS,
    ),
    Break(
        "the temperature is by class weights",
        TABLE_FIT,
        "calibrated(first.predicted, first.labels, held.weights,",
        "calibrated(first.predicted, first.labels, held.in_fit,",
        OF_ANSWERS,
    ),
    Break(
        "a ridge regression's rows count once each where they are left out",
        LINEAR,
        "            spectrum = Spectrum(x, counts=weights)\n",
        "            spectrum = Spectrum(x)\n",
        OF_STARTS,
    ),
    Break(
        "the start's penalty is chosen anew on all rows",
        ALL_ROWS,
        "copy.start.set_params(penalties=(float(model.start_.penalty_),))",
        "copy.start.set_params()",
        OF_ALL_ROWS,
    ),
    Break(
        "the end of a pruned trial counts at later rungs",
        "usboost/tuning/run.py",
        'each.end if each.state == "finished" else None',
        "each.end",
        ("tests/tuning/test_rungs.py",),
    ),
    Break(
        "every seed has the features of seed 0",
        IDENTITY,
        'found["features"] = features_fingerprint(dataset, seed, settings)',
        'found["features"] = features_fingerprint(dataset, 0, settings)',
        OF_IDENTITY,
    ),
    Break(
        "a group is on both sides where a class is in no other",
        "usboost/data/row_groups.py",
        "held &= self.groups != self.groups[np.argmax(y == label)]",
        "held &= y != label",
        ("tests/data/test_related.py::test_a_class_that_is_in_one_mixed_group_takes_the_group_with_it",),
    ),
]

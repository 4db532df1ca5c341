"""The breaks of `benchmarks.mutants.run`: what a test must notice.

First those that an outside review made and no test saw, leaks and published statistics nearly all; then
signs, factors, bounds and terms of losses, targets, steps, the loop, splits and statistics; at last weights,
folds and seeds that a second place forgets.
"""

from __future__ import annotations

from benchmarks.mutants.entry import Break
from benchmarks.mutants.forgotten import FORGOTTEN
from benchmarks.mutants.second_places import SECOND_PLACES

BASE, BNN = "usboost/models/estimator.py", "usboost/models/boosted/boosted_network.py"
LIGHTGBM = "usboost/models/baselines/packages.py"
FIT, COMPARE = "usboost/multimodal/fit/table_fit.py", "usboost/multimodal/compare/compare.py"
STUDY, ROWS = "benchmarks/study/results.py", "benchmarks/study/rows.py"
CELLS = "benchmarks/study/cells.py"
STATISTICS, METRICS = "usboost/evaluation/statistics.py", "usboost/evaluation/metrics.py"
LOOP, WORK, STEPS = "usboost/boosting/loop.py", "usboost/boosting/work.py", "usboost/boosting/steps.py"
CALLBACKS, TARGETS = "usboost/boosting/callbacks.py", "usboost/boosting/targets.py"
SAMPLING = "usboost/datasets/files/sampling.py"
SIGNS, SQUARED = "usboost/losses/signs.py", "usboost/losses/squared.py"
CODEWORD, ENTROPY = "usboost/losses/codeword.py", "usboost/losses/cross_entropy.py"
LINEAR, HUBER = "usboost/losses/piecewise_linear.py", "usboost/losses/regression.py"
REGRESSOR, LIMITS = "usboost/models/base.py", "usboost/evaluation/intervals.py"


def leaks(name: str) -> tuple[str, ...]:
    return (f"tests/leaks/test_{name}.py",)


def boosting(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/boosting/test_{name}.py" for name in names)


def study(name: str = "intervals") -> tuple[str, ...]:
    return (f"tests/study/test_{name}.py",)


REVIEWED = [
    # 1 rows that tell when to stop are fitted to as well
    Break(
        "1 rows set aside stay in training",
        BASE,
        "return samples[fit_rows], samples[held_rows]",
        "return samples, samples[held_rows]",
        leaks("training"),
    ),
    Break(
        "1 a regressor's rows set aside stay in training",
        BNN,
        "train, held = train[fit_rows], train[held_rows]",
        "held = train[held_rows]",
        leaks("training"),
    ),
    Break(
        "1 the other rows are fitted to",
        BASE,
        "return samples[fit_rows], samples[held_rows]",
        "return samples[held_rows], samples[fit_rows]",
        leaks("training"),
    ),
    # 2, 3, 4, 5 rows that nobody may see
    Break(
        "2 `fit` on all rows",
        FIT,
        "fitted_to = table.views(encoding, train.rows), table.labels[train.rows], train.in_fit",
        "fitted_to = table.views(encoding, slice(None)), table.labels, table.weights",
        leaks("fit"),
    ),
    Break(
        "3 test rows stop the fits of `compare`",
        COMPARE,
        "(val, table.labels[fold.val], held)",
        "(test, table.labels[fold.test], unseen)",
        leaks("compare"),
    ),
    Break(
        "3 the folds' test rows are their stopping rows",
        "usboost/multimodal/fit/splits.py",
        "rest[train], rest[val], test)",
        "rest[train], test, test)",
        ("tests/multimodal/test_compare.py",),
    ),
    Break(
        "4 test rows stop the study's networks and boosting models",
        CELLS,
        'yield rule, model.fit(*splits["train"], validation=splits["val"])',
        'yield rule, model.fit(*splits["train"], validation=splits["test"])',
        leaks("pipeline"),
    ),
    Break(
        "4 test rows stop the study's other models",
        CELLS,
        'yield "log_loss", model.fit(*splits["train"], validation=splits["val"])',
        'yield "log_loss", model.fit(*splits["train"], validation=splits["test"])',
        leaks("pipeline"),
    ),
    Break(
        "5 test rows stop the pipeline's fits",
        "tasks/fits/fit_cell.py",
        'validation=splits["val"])',
        'validation=splits["test"])',
        leaks("pipeline"),
    ),
    # 6 encoders of all rows
    Break(
        "6 the encoder of `fit` knows all rows",
        FIT,
        "table.fit_encoding(train.rows)",
        "table.fit_encoding(slice(None))",
        leaks("fit"),
    ),
    Break(
        "6 the encoder of `compare` knows all rows",
        COMPARE,
        "table.fit_encoding(parts[k].train)",
        "table.fit_encoding(slice(None))",
        leaks("compare"),
    ),
    Break(
        "6 the encoder of `compare` knows the test rows",
        COMPARE,
        "table.fit_encoding(parts[k].train)",
        "table.fit_encoding(np.append(parts[k].train, parts[k].test))",
        leaks("compare"),
    ),
    Break(
        "6 prepared datasets' encoders know all splits",
        "usboost/datasets/prepared/store.py",
        'TableEncoder.fit(splits["train"], names)',
        "TableEncoder.fit(pd.concat(list(splits.values())), names)",
        leaks("encoders"),
    ),
    Break(
        "6 medians of all rows",
        "usboost/datasets/user/user_table.py",
        "self.features.iloc[rows], views",
        "self.features, views",
        leaks("encoders"),
    ),
    Break(
        "6 a fold's encoder knows its test rows",
        "tasks/fits/cross_validation.py",
        "TableEncoder.fit(fitted, names)",
        "TableEncoder.fit(frame, names)",
        leaks("pipeline"),
    ),
    # 7 thresholds
    Break(
        "7 the threshold is chosen on the test split",
        "tasks/fits/scores.py",
        'y, probabilities = predicted["val"]',
        'y, probabilities = predicted["test"]',
        leaks("thresholds"),
    ),
    Break(
        "7 the study's threshold is chosen on the test split",
        CELLS,
        'y, probabilities = said["val"]',
        'y, probabilities = said["test"]',
        leaks("thresholds"),
    ),
    # 8, 9 LightGBM
    Break(
        "8 LightGBM stops on training rows",
        LIGHTGBM,
        "held = [dataset(*rows.held, rows.held_weights, train)]",
        "held = [dataset(rows.x, rows.y, rows.weights, train)]",
        leaks("lightgbm"),
    ),
    Break(
        "9 LightGBM's best round is ignored",
        LIGHTGBM,
        "best = 1 + int(np.argmin(stages.losses)) if stages.losses else booster.current_iteration()",
        "best = len(stages.losses) if stages.losses else booster.current_iteration()",
        leaks("lightgbm"),
    ),
    # 10, 11 intervals
    Break(
        "10 the study's interval has n degrees of freedom",
        ROWS,
        "stats.t.ppf(0.975, len(found) - 1)",
        "stats.t.ppf(0.975, len(found))",
        study(),
    ),
    Break(
        "10 the corrected t-test has J degrees of freedom",
        STATISTICS,
        "stats.t.sf(abs(t), len(d) - 1)",
        "stats.t.sf(abs(t), len(d))",
        ("tests/evaluation/test_statistics.py",),
    ),
    Break(
        "11 the study's interval is a normal one",
        ROWS,
        "stats.t.ppf(0.975, len(found) - 1)",
        "stats.norm.ppf(0.975)",
        study(),
    ),
    Break(
        "11 the corrected test is a normal one",
        STATISTICS,
        "stats.t.sf(abs(t), len(d) - 1)",
        "stats.norm.sf(abs(t))",
        ("tests/evaluation/test_statistics.py",),
    ),
    # 12 pairs
    Break(
        "12 the study's pairs are a seed apart",
        STUDY,
        "(values[model] - values[against]).dropna()",
        "(values[model] - values[against].shift(1)).dropna()",
        study(),
    ),
    Break(
        "12 the headlines' pairs are a seed apart",
        STUDY,
        "two = ([fits[model][seed] for seed in seeds] for model in (one, other))",
        "two = [[fits[one][s] for s in seeds], [fits[other][s] for s in [*seeds[1:], seeds[0]]]]",
        study(),
    ),
    Break(
        "12 the headlines' pairs are those of the same place",
        STUDY,
        "two = ([fits[model][seed] for seed in seeds] for model in (one, other))",
        "two = (list(fits[model].values()) for model in (one, other))",
        study(),
    ),
    # 13 BNN
    Break(
        "13 BNN's curvature weights are ignored",
        TARGETS,
        "weights = loss.curvature(values, f, y) if self.weighted else None",
        "weights = None",
        boosting("targets"),
    ),
    Break(
        "13 BNN does not pass on that it is weighted",
        BNN,
        "target=NewtonTarget(self.weighted)",
        "target=NewtonTarget(False)",
        ("tests/models/test_boosted_network.py",),
    ),
]

SPLITS = [
    Break(
        "the census test split is its validation split",
        "usboost/datasets/census/prepare.py",
        "held.iloc[np.sort(order[half:])]",
        "held.iloc[np.sort(order[:half])]",
        ("tests/datasets/census/test_prepare.py",),
    ),
    Break(
        "parts of a table share a row",
        SAMPLING,
        "return [np.sort(part) for part in np.split(order, cuts)]",
        "return [np.sort(order[max(a - 1, 0) : b]) for a, b in zip([0, *cuts], [*cuts, None])]",
        ("tests/datasets/files/test_sampling.py",),
    ),
    Break(
        "some switched labels stay",
        SAMPLING,
        "(clean[rows] + rng.integers(1, n_classes",
        "(clean[rows] + rng.integers(0, n_classes",
        ("tests/datasets/files/test_sampling.py", "tests/datasets/covertype/test_prepare.py"),
    ),
    Break(
        "out-of-fold features come from all rows",
        "usboost/models/networks/boosted_features.py",
        ".fit(table[seen], y[seen], own)",
        ".fit(table, y, weights)",
        ("tests/models/test_gbm.py",),
    ),
    Break(
        "every repeat of `compare` has the same folds",
        "usboost/multimodal/fit/splits.py",
        "_parts(rows, folds, stream(seed, repeat) % 2**32)",
        "_parts(rows, folds, stream(seed, 0) % 2**32)",
        ("tests/multimodal/test_compare.py",),
    ),
    Break(
        "rows drawn for the steps are those fitted to",
        LOOP,
        "count = max(1, round(self.step_fraction * n))",
        "count = max(1, round((1 - self.step_fraction) * n))",
        boosting("rounds", "loop"),
    ),
]

STATISTICAL = [
    Break(
        "the corrected test forgets the overlap",
        STATISTICS,
        "(1 / len(d) + ratio)",
        "(1 / len(d))",
        ("tests/evaluation/test_statistics.py",),
    ),
    Break(
        "Holm's p-values may fall",
        STATISTICS,
        "np.maximum.accumulate(scaled)",
        "scaled",
        ("tests/evaluation/test_statistics.py",),
    ),
    Break(
        "test and training rows change places",
        COMPARE,
        'ranked["rows_test"] / ranked["rows_train"]',
        'ranked["rows_train"] / ranked["rows_test"]',
        ("tests/multimodal/test_compare.py",),
    ),
    Break(
        "the lower score ranks first",
        COMPARE,
        "sign = -1.0 if self.by in LOWER_IS_BETTER else 1.0",
        "sign = 1.0",
        ("tests/multimodal/test_compare.py",),
    ),
    Break(
        "a standard deviation over n",
        ROWS,
        "found.std(ddof=1)",
        "found.std(ddof=0)",
        study(),
    ),
    Break(
        "a percentile interval of 90 %",
        ROWS,
        "np.quantile(model - against, [0.025, 0.975])",
        "np.quantile(model - against, [0.05, 0.95])",
        study(),
    ),
    Break(
        "bold without the test rows' luck",
        ROWS,
        "abs(mean) > np.hypot(seeds, rows)",
        "abs(mean) > seeds",
        study("rows"),
    ),
    Break(
        "Table 3's spread over n",
        "usboost/reporting/results.py",
        "cells[column].std(ddof=1)",
        "cells[column].std(ddof=0)",
        ("tests/reporting/test_results.py",),
    ),
    Break(
        "a lower log-loss counts as a loss",
        "usboost/reporting/results.py",
        ".isin(LOWER_IS_BETTER), -1.0, 1.0)",
        ".isin(LOWER_IS_BETTER), 1.0, 1.0)",
        ("tests/reporting/test_results.py",),
    ),
    Break(
        "a threshold between equal probabilities",
        METRICS,
        "np.flatnonzero(ranked[1:] < ranked[:-1]), len(y) - 1)",
        "np.flatnonzero(ranked[1:] <= ranked[:-1]), len(y) - 1)",
        ("tests/evaluation/test_metrics.py",),
    ),
    Break(
        "F1 of two classes is the mean over both",
        METRICS,
        "per_class[1] if n_classes == 2 else per_class.mean()",
        "per_class.mean()",
        ("tests/evaluation/test_metrics.py", *leaks("thresholds")),
    ),
    Break(
        "bootstrap rows without replacement",
        "usboost/evaluation/intervals.py",
        "(rng.integers(0, n, n) for _ in range(draws))",
        "(rng.permutation(n) for _ in range(draws))",
        ("tests/multimodal/test_report.py::test_intervals_are_those_of_a_share",),
    ),
]

LOOPS = [
    Break(
        "a round too few",
        LOOP,
        "range(len(stages) + 1, self.n_rounds + 1)",
        "range(len(stages) + 1, self.n_rounds)",
        boosting("rounds", "loop"),
    ),
    Break(
        "every round draws the same",
        LOOP,
        "np.random.SeedSequence((self.seed, index))",
        "np.random.SeedSequence((self.seed, 1))",
        boosting("rounds", "loop"),
    ),
    Break(
        "warm starts begin from the first round",
        LOOP,
        "trainers, stages[-1:], pool)",
        "trainers, stages[:1], pool)",
        boosting("rounds", "loop"),
    ),
    Break(
        "together is one after another",
        LOOP,
        "for group in [[name] for name in names] if self.sequential else [names]:",
        "for group in [[name] for name in names]:",
        boosting("rounds", "loop"),
    ),
    Break(
        "a fit's error depends on the weights' scale",
        LOOP,
        "error, held = error * (weights / weights.mean()), float(weights.sum())",
        "error, held = error * weights, float(weights.sum())",
        boosting("rounds", "loop"),
    ),
    Break(
        "validation scores miss the steps",
        LOOP,
        "f += np.float64(stage.steps[name]) * predict(learner, prepared[name], f.shape[1])",
        "f += predict(learner, prepared[name], f.shape[1])",
        boosting("rounds", "loop"),
    ),
    Break(
        "training scores miss the steps",
        WORK,
        "self.train.f += step * output",
        "self.train.f += output",
        boosting("rounds", "loop"),
    ),
    Break(
        "no shrinkage",
        WORK,
        "self.method.shrinkage * found.steps, found.line",
        "found.steps, found.line",
        boosting("rounds", "loop"),
    ),
    Break(
        "the risk is that of the steps before shrinkage",
        WORK,
        "            risk = line.risk(steps)\n",
        "            risk = line.risk(found.steps)\n",
        boosting("rounds", "loop"),
    ),
    Break(
        "the worst inner iteration counts",
        WORK,
        "found.risk < best.risk",
        "found.risk > best.risk",
        boosting("rounds", "loop"),
    ),
    Break(
        "inner iterations forget the steps found",
        WORK,
        "            steps = found.steps\n",
        "",
        boosting("rounds", "loop"),
    ),
    Break(
        "learners see the rows of the steps",
        WORK,
        "[target.without(self.draws.held_out) for target in targets]",
        "list(targets)",
        boosting("rounds", "loop"),
    ),
    Break(
        "steps are searched on all rows",
        WORK,
        "line = self._line(fits.unseen, self.draws.held_out)",
        "line = self._line(fits.outputs, None)",
        boosting("rounds", "loop"),
    ),
    Break(
        "the risk of all rows may double",
        WORK,
        "MOST_RISE = 1.1",
        "MOST_RISE = 2.0",
        boosting("rounds", "loop"),
    ),
    Break(
        "nothing starts warm",
        WORK,
        "self.before[0].learners.get(name) if self.before else None",
        "None",
        boosting("rounds", "loop"),
    ),
    Break(
        "a network diverges unseen",
        WORK,
        "if not (np.isfinite(output).all() and np.isfinite(unseen).all()):",
        "if np.isnan(output).all():",
        ("tests/models/test_boosted_network.py",),
    ),
    Break(
        "one round more of patience",
        CALLBACKS,
        "return round_.index - self._moved >= max(",
        "return round_.index - self._moved > max(",
        boosting("rounds", "loop"),
    ),
    Break(
        "patience does not grow",
        CALLBACKS,
        "max(fewest, share * self._moved)",
        "max(fewest, share)",
        boosting("rounds", "loop"),
    ),
    Break(
        "the last of equal rounds is the best",
        CALLBACKS,
        'metrics.get("risk_val", math.inf) < best.get("risk_val", math.inf)',
        'metrics.get("risk_val", math.inf) <= best.get("risk_val", math.inf)',
        boosting("rounds", "loop"),
    ),
    Break(
        "a higher risk is better",
        CALLBACKS,
        'sign = -1.0 if monitor.startswith(("risk", *LOWER_IS_BETTER)) else 1.0',
        "sign = 1.0",
        boosting("rounds", "loop"),
    ),
]

SEARCHES = [
    Break(
        "Newton takes every step",
        STEPS,
        "if line.risk(candidate) <= risk - 1e-4 * scale * decrease:",
        "if True:",
        boosting("rounds", "steps"),
    ),
    Break(
        "Newton has no limit",
        STEPS,
        "np.clip(steps + scale * direction, -self.limit, self.limit)",
        "steps + scale * direction",
        boosting("rounds", "steps"),
    ),
    Break(
        "Newton stops after one iteration",
        STEPS,
        "max_iterations: int = 50",
        "max_iterations: int = 1",
        boosting("rounds", "steps"),
    ),
    Break(
        "Bayes may make it worse",
        STEPS,
        "return found if line.risk(found) <= line.risk(still) else still",
        "return found",
        boosting("rounds", "steps"),
    ),
    Break(
        "Bayes has a random point too few",
        STEPS,
        "n_calls=self.n_random + self.n_guided",
        "n_calls=self.n_random + self.n_guided - 1",
        boosting("rounds", "steps"),
    ),
    Break(
        "a frame worse than chance votes",
        STEPS,
        "np.clip(cast(ClosedFormLine, line).minimiser(), self.lowest, self.highest)",
        "np.minimum(cast(ClosedFormLine, line).minimiser(), self.highest)",
        ("tests/models/test_earlyboost.py",),
    ),
]

LOSSES = [
    Break(
        "Earlyboost's alpha without its half",
        SIGNS,
        "0.5 * (np.log([right]) - np.log([wrong]))",
        "(np.log([right]) - np.log([wrong]))",
        ("tests/losses/test_signs.py",),
    ),
    Break(
        "Earlyboost's weights sum to one in each class",
        SIGNS,
        "return weights / weights.sum()",
        "return weights / weights.sum(axis=0)",
        ("tests/losses/test_signs.py",),
    ),
    Break(
        "the squared line's gradient without its 2",
        SQUARED,
        "gradient = 2 * (self._quadratic @ steps - self._linear)",
        "gradient = self._quadratic @ steps - self._linear",
        ("tests/boosting/test_steps.py", "tests/losses/test_codeword.py"),
    ),
    Break(
        "a quantile's step does not turn the loss round",
        LINEAR,
        "np.where(slopes[rows] > 0, self._loss.above, self._loss.below)",
        "np.full(len(rows), self._loss.above)",
        ("tests/losses/test_regression.py",),
    ),
    Break(
        "the descent ends at the first vertex",
        LINEAR,
        "flat = flat + 1 if row == zeros[k] else 0",
        "flat = flat + 1",
        ("tests/losses/test_regression.py",),
    ),
    Break(
        "Huber's search ends after one step",
        HUBER,
        "            risk, steps = found\n",
        "            risk, steps = found\n            break\n",
        ("tests/losses/test_regression.py",),
    ),
    Break(
        "leaves hold the quantile of all rows",
        "usboost/learners/trees/fitted.py",
        "leaves.best(leaves.residual[seen], own, count, counts)",
        "leaves.best(leaves.residual[: len(own)], own, count, counts)",
        ("tests/learners/trees/test_leaves.py",),
    ),
    Break(
        "targets are scaled by the validation rows, too",
        REGRESSOR,
        "self.target_centre_ = self._centre(train.y, train.weights)",
        "self.target_centre_ = self._centre(targets, None)",
        ("tests/models/test_regressors.py",),
    ),
    Break(
        "intervals forget the new row",
        LIMITS,
        "np.ceil((n + 1) * level - 1e-9)",
        "np.ceil(n * level - 1e-9)",
        ("tests/models/test_prediction_intervals.py",),
    ),
    Break(
        "the nearest probabilities sum to zero",
        SQUARED,
        "(np.cumsum(falling, axis=1) - 1)",
        "np.cumsum(falling, axis=1)",
        ("tests/models/test_boosted_network.py",),
    ),
    Break(
        "w without its half",
        CODEWORD,
        "self._combine(0.5 * self.weights(f, y), y)",
        "self._combine(self.weights(f, y), y)",
        ("tests/losses/test_codeword.py",),
    ),
    Break(
        "w̃ without its root",
        CODEWORD,
        "self._combine(np.sqrt(self.weights(f, y)), y)",
        "self._combine(self.weights(f, y), y)",
        ("tests/losses/test_codeword.py",),
    ),
    Break(
        "the curvature of a target without its mean",
        ENTROPY,
        "np.square(d - mean)",
        "np.square(d)",
        ("tests/losses/test_cross_entropy.py",),
    ),
    Break(
        "2WL2O's term of second order twice",
        TARGETS,
        "0.25 * s**2 * w_tilde",
        "0.5 * s**2 * w_tilde",
        boosting("targets"),
    ),
    Break(
        "2WL2O's mixed term turned round",
        TARGETS,
        "(s - 0.5 * s * other) * w",
        "(s + 0.5 * s * other) * w",
        boosting("targets"),
    ),
    Break(
        "trimming leaves out the heaviest",
        TARGETS,
        "order = np.argsort(column)",
        "order = np.argsort(-column)",
        boosting("targets"),
    ),
]

BREAKS = [*REVIEWED, *SPLITS, *STATISTICAL, *LOOPS, *SEARCHES, *LOSSES, *SECOND_PLACES, *FORGOTTEN]

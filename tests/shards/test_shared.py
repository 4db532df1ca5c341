"""What shards ask of each other, against the same asked of all rows at once."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from tests.conftest import refuses
from tests.shards import of_shards
from tests.shards.cases import CUTS, MODELS, Digests, boosted, data, fitted, parts
from usboost import Callback, Checkpoint, RidgeLearner, Table, TreeLearner, UsboostError, fit_sharded
from usboost.boosting.loop import fit_error
from usboost.boosting.rounds import Round
from usboost.boosting.steps import shared_line, shared_risk
from usboost.data.encoding import TableEncoder
from usboost.evaluation.metrics import accuracy, f1
from usboost.evaluation.statistics import column_moments, deviation, error_of_mean, mean, median, quantile
from usboost.learners.base import Target
from usboost.learners.histogram import Bins
from usboost.learners.spectrum import Solution, Spectrum
from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.losses.exponential import CodewordExponential
from usboost.losses.quantile import PiecewiseLinear
from usboost.losses.regression import Huber, Squared
from usboost.models.baselines.linear import LinearBaseline
from usboost.models.baselines.trees import LightGBMBaseline
from usboost.models.inputs import Projection
from usboost.models.methods.average import AverageClassifier
from usboost.models.methods.boosted_network import BoostedNetworkClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor
from usboost.shards import collective as here_module
from usboost.shards.collective import grouped_quantiles, world
from usboost.shards.threads import Link, ShardStopped, run

N = CUTS[-1]
RNG = np.random.default_rng(7)
Counts = np.ndarray | None
weighted = pytest.mark.parametrize("counts", [None, RNG.integers(1, 4, N) / 2], ids=["plain", "weighted"])


def of(counts: Counts, rows: slice) -> Counts:
    return None if counts is None else counts[rows]


def each(work: Callable[[slice], Any]) -> list[Any]:
    """What the shards get."""
    return of_shards(lambda shard: work(slice(CUTS[shard], CUTS[shard + 1])), len(CUTS) - 1)


def test_weights_of_a_mean_are_by_the_validation_rows_of_all_shards() -> None:
    y = np.arange(N) % 2
    model = AverageClassifier({"good": LinearBaseline(), "blind": LinearBaseline()})
    model.classes_ = np.arange(2)
    said = {"good": np.where(np.eye(2)[y] > 0, 0.8, 0.2), "blind": np.full((N, 2), 0.5)}
    found = each(lambda at: model.choose_weights({name: p[at] for name, p in said.items()}, y[at], None))
    assert found == [{"good": 1.0}] * len(found)  # of which some have fewer than the least


@weighted
@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (CodewordExponential.simplex(3), RNG.integers(0, 3, N)),
        (SoftmaxCrossEntropy.of_classes(3), np.eye(3)[RNG.integers(0, 3, N)]),
        (Squared(2, zero_steps=True), RNG.normal(size=(N, 2))),
        (Huber(0.7), RNG.normal(size=(N, 1))),
    ],
)
def test_risks_and_lines_are_those_of_all_rows(loss: Any, y: np.ndarray, counts: Counts) -> None:
    d = loss.n_outputs
    f, directions = RNG.normal(size=(N, d)), [RNG.normal(size=(N, d)) for _ in range(2)]
    steps = np.array([0.3, -0.1])

    def work(rows: slice) -> tuple[Any, ...]:
        own = of(counts, rows)
        line = shared_line(loss, f[rows], y[rows], [each[rows] for each in directions], own)
        return (
            shared_risk(loss, f[rows], y[rows], own),
            line.risk(steps),
            *line.expand(steps),
            line.minimiser() if hasattr(line, "minimiser") else None,
        )

    line = loss.line(f, y, directions, counts)
    wanted = loss.risk(f, y, counts), line.risk(steps), *line.expand(steps)
    for found in each(work):
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one, other, rtol=1e-10)
        if hasattr(line, "minimiser"):
            np.testing.assert_allclose(found[-1], line.minimiser(), atol=1e-5)


@weighted
@pytest.mark.parametrize("loss", [PiecewiseLinear.absolute(), PiecewiseLinear.quantile(0.8)])
def test_quantiles_of_leaves_and_steps_are_those_of_all_rows(loss: PiecewiseLinear, counts: Counts) -> None:
    residual, groups = RNG.normal(size=N).round(1), RNG.choice([0, 1, 3], N)
    f, directions = np.zeros((N, 1)), [RNG.normal(size=(N, 1)) for _ in range(2)]
    y = residual[:, None]

    def work(rows: slice) -> tuple[Any, ...]:
        own = of(counts, rows)
        line = shared_line(loss, f[rows], y[rows], [each[rows] for each in directions], own)
        steps = line.minimiser()  # type: ignore[attr-defined]
        return loss.constants(residual[rows], groups[rows], 4, own), steps, line.risk(steps)

    line = loss.line(f, y, directions, counts)
    steps = line.minimiser()
    for constants, found, risk in each(work):
        assert np.array_equal(constants, loss.constants(residual, groups, 4, counts))
        assert np.array_equal(found, steps)
        np.testing.assert_allclose(risk, line.risk(steps), rtol=1e-12)


def test_steps_of_many_rows_are_those_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usboost.shards.threads.SAMPLE_ROWS", 400)
    loss, y, direction = PiecewiseLinear.absolute(), RNG.normal(size=(N, 1)), RNG.normal(size=(N, 1))
    y += 2 * direction

    def work(rows: slice) -> tuple[np.ndarray, float]:
        line = shared_line(loss, np.zeros_like(y[rows]), y[rows], [direction[rows]])
        steps = line.minimiser()  # type: ignore[attr-defined]
        return steps, line.risk(steps)

    line = loss.line(np.zeros_like(y), y, [direction])
    steps, lowest = line.minimiser(), line.risk(line.minimiser())
    for found, risk in each(work):
        assert not np.array_equal(found, steps)
        assert lowest < risk < 1.01 * lowest


def test_sums_in_the_order_of_a_number_reach_an_amount_at_the_same_row() -> None:
    values = np.where(RNG.random(N) < 0.1, 0.0, RNG.normal(size=N) * 10.0 ** RNG.integers(-300, 300, N))
    values[:5] = -0.0
    held = RNG.integers(0, 3, N).astype(float)
    groups = RNG.integers(0, 3, N)
    wanted = np.array([9.0, 0, 1e9, 1])

    def smallest(group: int) -> float:
        rows = sorted(zip(values[groups == group].tolist(), held[groups == group].tolist()))
        ends = np.cumsum([amount for _, amount in rows])
        enough = np.flatnonzero(ends >= wanted[group])
        return rows[enough[0] if len(enough) else -1][0]

    for found in each(lambda rows: grouped_quantiles(values[rows], held[rows], wanted, groups[rows])):
        assert found.tolist() == [smallest(0), smallest(1), smallest(2), 0.0]


@weighted
def test_scores_and_statistics_are_those_of_all_rows(counts: Counts) -> None:
    y, predicted = RNG.integers(0, 3, (2, N))
    values, outputs = RNG.normal(size=(N, 3)), RNG.normal(size=(N, 3)).astype(np.float32)
    metric = np.einsum("nij,nkj->nik", *[RNG.normal(size=(N, 3, 3))] * 2)

    def all_of(rows: slice) -> list[Any]:
        own = of(counts, rows)
        v = values[rows, 0]
        targets = [
            Target(values[rows], counts=own),
            Target(values[rows], metric=metric[rows], counts=own),
            Target(values[rows], values[rows, :1] ** 2, counts=own),
        ]
        return [
            f1(y[rows], predicted[rows], 3, own),
            accuracy(y[rows], predicted[rows], own),
            mean(v, own),
            deviation(v, own),
            median(v, own),
            quantile(v, 0.9, own),
            *np.concatenate(column_moments(values[rows], own)),
            *(fit_error(target, outputs[rows]) for target in targets),
        ]

    wanted = all_of(slice(None))
    for found in each(all_of):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    # by n instead of n − 1 as with weights
    errors = each(lambda rows: error_of_mean(values[rows, 0], of(counts, rows)))
    np.testing.assert_allclose(errors, error_of_mean(values[:, 0], counts), rtol=1e-2)


@weighted
@pytest.mark.parametrize(("width", "sparse"), [(7, False), (7, True), (N + 3, False)])
def test_ridge_regressions_are_those_of_all_rows(width: int, sparse: bool, counts: Counts) -> None:
    x = RNG.normal(size=(N, width)).astype(np.float32)
    if sparse:
        x[:, 2:] = x[:, 2:] > 1
    y = x[:, :1] + RNG.normal(size=(N, 1))
    alphas = np.array([np.inf, 100.0, 1.0])

    def work(rows: slice) -> tuple[Solution, np.ndarray]:
        own = csr_array(x[rows]) if sparse else x[rows]
        spectrum = Spectrum(own, counts=of(counts, rows))
        return spectrum.solve(y[rows], alphas), spectrum.path(y[rows, 0], alphas)[0]

    whole, path = work(slice(None))
    found = each(work)
    for solution, own_path in found:
        assert solution.alpha == whole.alpha
        np.testing.assert_allclose(solution.coefficients, whole.coefficients, atol=1e-6)
        np.testing.assert_allclose(own_path, path, atol=1e-6)
    left_out = np.concatenate([solution.left_out for solution, _ in found])
    np.testing.assert_allclose(left_out, whole.left_out, atol=1e-5)


@weighted
def test_principal_components_are_those_of_all_rows(counts: Counts) -> None:
    x = (RNG.normal(size=(N, 6)) @ RNG.normal(size=(6, 9))).astype(np.float32)
    table = replace(Table.from_numeric(x), absent=np.isin(np.arange(N), [5, *range(400, 600)]))
    whole = Projection.fit(table, 4, counts)
    for found in each(lambda rows: Projection.fit(table[rows], 4, of(counts, rows))):
        np.testing.assert_allclose(found.mean, whole.mean, atol=1e-5)
        np.testing.assert_allclose(found.axes, whole.axes, atol=1e-5)
    lacking = replace(table, absent=np.ones(N, dtype=bool))
    assert all(found.axes.size == 0 for found in each(lambda rows: Projection.fit(lacking[rows], 4)))


def test_bins_are_those_of_all_rows_and_of_a_sample_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.asfortranarray(np.column_stack([RNG.normal(size=N), RNG.integers(0, 9, N)]), np.float32)
    whole = Bins.of(matrix, (1,), 16)

    def work(rows: slice) -> Bins:
        return Bins.of(matrix[rows], (1,), 16)

    for found in each(work):
        assert np.array_equal(found.highest, whole.highest)
        assert np.array_equal(found.lowest, whole.lowest)
    monkeypatch.setattr(here_module, "SAMPLE_ROWS", 200)
    monkeypatch.setattr("usboost.shards.threads.SAMPLE_ROWS", 200)
    found = each(work)
    codes = np.concatenate([bins.codes for bins in found])
    for k in range(16):  # whatever the sample, a bin's ends are those of all its rows
        inside = matrix[codes[:, 0] == k, 0]
        assert (found[0].lowest[k], found[0].highest[k]) == (inside.min(), inside.max())
    chosen = np.concatenate(each(lambda rows: rows.start + world().sample(rows.stop - rows.start)))
    assert 150 < len(chosen) < 250
    halves: dict[int, np.ndarray] = {}

    def half(k: int) -> None:
        halves[k] = k * (N // 2) + world().sample(N // 2 if k == 0 else N - N // 2)

    run(half, Link(2))
    assert np.array_equal(np.concatenate([halves[0], halves[1]]), chosen)


def test_an_encoder_is_that_of_all_rows() -> None:
    frame = pd.DataFrame(
        {
            "size": RNG.normal(size=N),
            "price": np.exp(4 * RNG.normal(size=N)),
            "same": np.ones(N),
            "kind": np.where(np.arange(N) < 140, "only here", RNG.choice(["a", "b", "c"], N)),
        }
    ).sort_values("price")
    frame.loc[3, "kind"] = None
    whole = TableEncoder.fit(frame, list(frame))
    for found in each(lambda rows: TableEncoder.fit(frame[rows], list(frame))):
        assert found.categorical == whole.categorical
        for one, other in zip(found.numeric, whole.numeric):
            assert (one.name, one.log) == (other.name, other.log)
            np.testing.assert_allclose((one.mean, one.std), (other.mean, other.std), rtol=1e-10)


@pytest.mark.parametrize("name", ["2wl", "2wl_newton", "linear_trees"])
def test_one_shard_is_the_ordinary_fit_bit_for_bit(name: str) -> None:
    watched, (views, y) = Digests(), data(2)
    more = {}
    if name != "2wl":
        more["sample_weight"] = np.random.default_rng(0).integers(1, 4, len(y)) / 2
    MODELS[name]().set_params(callbacks=[watched]).fit(views, y, **more)
    assert fitted(name, 2, (0, len(y))) == watched.found


@pytest.mark.parametrize(("n_classes", "lacking"), [(2, False), (3, False), (3, True)])
def test_trees_alone_are_those_of_all_rows(n_classes: int, lacking: bool) -> None:
    views, y = data(n_classes)
    if lacking:  # a whole shard, and some rows of others
        absent = np.isin(np.arange(N), [*range(CUTS[4], CUTS[5]), 9, 700])
        views = views.with_view("S", replace(views["S"], absent=absent))
    tree = {"S": TreeLearner(engine="histogram", min_samples_leaf=5, max_bin=32)}
    settings = {"learners": tree, "n_rounds": 5, "target": "newton", "validation_fraction": 0.0}
    plain = boosted(**settings).fit(views, y)
    shared = fit_sharded(boosted(**settings), parts(views, y))
    np.testing.assert_allclose(shared.predict_proba(views), plain.predict_proba(views), rtol=1e-6)


def test_rounds_tell_the_rows_and_the_seconds_of_exchanges() -> None:
    told: list[Round] = []

    class Keep(Callback):
        def on_round(self, round_: Round) -> bool:
            told.append(round_)
            return False

    model = boosted(callbacks=[Keep()], validation_fraction=0.0)
    fit_sharded(model, parts(*data(2)))
    model.fit(*data(2))
    for round_ in told[:2]:
        spent = round_.seconds
        assert round_.rows == (N,)
        assert spent["total"] == pytest.approx(spent["fit"] + spent["wait"] + spent["sum"])
        assert spent["wait"] == 0 < spent["sum"] < spent["fit"]
    assert [round_.rows for round_ in told[2:]] == [(), ()]
    assert not {"fit", "wait", "sum"} & set(told[2].seconds)


def test_a_fit_that_stops_early_resumes_and_is_saved_like_any_other(tmp_path: Any) -> None:
    views, y = data(2)
    first = fit_sharded(boosted(n_rounds=3, checkpoint=tmp_path / "rounds"), parts(views, y))
    again = fit_sharded(boosted(n_rounds=3, checkpoint=tmp_path / "rounds"), parts(views, y))
    assert len(list((tmp_path / "rounds").iterdir())) == 4
    assert np.array_equal(first.predict_proba(views), again.predict_proba(views))
    refuses("checkpoint of another fit", boosted(n_rounds=3, checkpoint=tmp_path / "rounds").fit, views, y)


def test_a_round_is_on_disk_before_any_shard_goes_on(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path, {"fit": "this"})
    found = {}

    def one(shard: int) -> None:
        kept.keep(Round(1, None, {"risk_train": 0.5}, {"total": 1.0}))
        found[shard] = kept.began()

    run(one, Link(3))
    assert found == {0: True, 1: True, 2: True}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (LightGBMBaseline(), "a LightGBMBaseline cannot"),
        (boosted(learners={"S": RidgeLearner()}), r"learner 'S' \(ridge\) cannot"),
        (boosted(learners={"S": TreeLearner(engine="sklearn")}), r"\(tree of engine 'sklearn'\) cannot"),
        (TwoWeakLearnerRegressor({"S": RidgeLearner()}), r"learner 'S' \(ridge\) cannot"),
    ],
)
def test_what_cannot_be_shared_is_refused_before_rows_are_read(model: Any, words: str) -> None:
    refuses(words, fit_sharded, model, lambda shard: pytest.fail("read"))


def test_the_first_mistake_is_told_and_ends_all_shards() -> None:
    views, y = data(2)

    def rows(shard: int) -> dict[str, Any]:
        if shard == 5:
            raise UsboostError("part-5.parquet cannot be read")
        return parts(views, y)(shard)

    refuses(r"part-5\.parquet cannot be read", fit_sharded, TwoWeakLearnerClassifier(n_rounds=2), rows)
    other = views.with_view("S", views["U"])
    with pytest.raises(UsboostError, match="shard 4 is not that of shard 0"):
        fit_sharded(boosted(), lambda shard: parts(other if shard == 4 else views, y)(shard))
    refuses("one class; two classes are needed", fit_sharded, boosted(), parts(views, np.full(len(y), "a")))
    refuses(r"rows\(\d\) gives 'groups'", fit_sharded, boosted(), parts(views, y, groups=y))


def test_shards_end_though_other_processes_cannot_be_told() -> None:
    class Deaf(Link):
        def failed(self, message: str) -> None:
            raise MemoryError

    def work(shard: int) -> None:
        if shard == 0:
            raise UsboostError("a mistake")
        world().sum(1.0)

    before = set(threading.enumerate())
    refuses("not enough memory", run, work, Deaf(2))
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_an_interrupted_shard_does_not_give_up_the_turn_of_another() -> None:
    passed, ended = [0, 0], list[type]()

    def work(shard: int) -> None:
        while shard == 0 or passed[0] >= passed[1]:
            world().sum(1.0)
            time.sleep(0.001 * (shard == 0))  # so that it is the later one
            passed[shard] += 1
        time.sleep(0.2)  # until the main thread, shard 0, waits for its turn
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.2)
        try:
            world().sum(1.0)
        except BaseException as error:
            ended.append(type(error))
            raise

    with pytest.raises(KeyboardInterrupt):
        run(work, Link(2))
    assert ended == [ShardStopped]


def test_a_matrix_is_taken_as_by_fit() -> None:
    model = BoostedNetworkClassifier(n_rounds=1)
    fit_sharded(model, lambda k: {"X": np.eye(8)[k::2], "y": np.arange(8)[k::2] // 4}, shards=2)
    assert model.n_features_in_ == 8

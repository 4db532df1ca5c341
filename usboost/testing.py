"""Checks that every learner, loss or view has to pass; usboost's own parts are tested by them, too.

Each function raises `AssertionError` with what is wrong, or returns nothing::

    from usboost.testing import check_learner

    def test_my_learner():
        check_learner(RidgeLearner())
"""

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.loop import ensemble_to_onnx
from usboost.boosting.rounds import Round, Stage
from usboost.data.table import Table
from usboost.data.views import View, Views
from usboost.errors import UsboostError
from usboost.files.arrays import read_arrays, write_arrays
from usboost.files.onnx_graph import Graph, TableNodes
from usboost.learners import base
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier
from usboost.models.persistence import load, save

__all__ = ["check_learner", "check_loss", "check_view", "example_table"]

ROWS = 240


def example_table(rows: int = ROWS, seed: int = 0) -> Table:
    """Make a table of three numbers and a category of four codes."""
    rng = np.random.default_rng(seed)
    numeric = rng.normal(size=(rows, 3)).astype(np.float32)
    codes = rng.integers(1, 5, size=(rows, 1)).astype(np.int32)
    return Table(numeric, codes, (5,), ("a", "b", "c", "kind"))


def check_learner(learner: Any, view: View | None = None, *, weighted: bool = True) -> None:
    """Check that a learner can be fitted, resumed, saved and loaded by the stagewise loop.

    Parameters
    ----------
    learner : registered in `usboost.learners.base.LEARNERS`, unfitted
    view : n rows of the kind that it reads; by default `example_table`
    weighted : whether its fit takes samples' weights, as Newton targets need them

    Raises
    ------
    AssertionError
        Naming the first promise that the learner breaks.
    """
    view = example_table() if view is None else view
    kind = base.LEARNERS.kind_of(type(learner))
    assert kind is not None, f"register {type(learner).__name__} with LEARNERS.register"
    assert base.LEARNERS[kind] is type(learner)
    assert isinstance(getattr(type(learner), "fitted", None), type), "the class needs an attribute `fitted`"
    assert clone(learner).get_params().keys() == learner.get_params().keys()
    json.dumps({key: str(value) for key, value in learner.get_params(deep=False).items()})
    _check_trainer(learner, view, weighted)
    _check_files(learner, view)
    _check_fits(learner, view)
    if isinstance(view, Table) and find_spec("onnxruntime") is not None:
        _check_onnx(learner, view)


def _targets(n: int, n_outputs: int, weighted: bool) -> list[base.Target]:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(n, n_outputs))
    left_out = rng.random(n) < 0.2
    targets = [base.Target(values), base.Target(values, None, left_out)]
    if weighted:
        targets += [base.Target(values, rng.random(n)), base.Target(values, rng.random((n, n_outputs)))]
    return targets


def _check_trainer(learner: Any, view: View, weighted: bool) -> None:
    prepared = learner.prepare(view)
    for n_outputs in (1, 3):
        for target in _targets(len(view), n_outputs, weighted):
            trainer = learner.trainer(prepared, n_outputs)
            fitted = trainer.fit(target, seed=3, start=None)
            output = fitted.predict(prepared)
            shape = len(view), n_outputs
            assert output.shape == shape and output.dtype == np.float32, (
                f"outputs must be float32 of shape {shape}, not {output.dtype} of shape {output.shape}"
            )
            assert np.isfinite(output).all(), "outputs must be finite"
            if getattr(learner, "leave_one_out", False):
                outputs = trainer.outputs(fitted)
                assert (
                    outputs.shape == shape and outputs.dtype == np.float32 and np.isfinite(outputs).all()
                ), f"a leave-one-out learner's outputs must be finite float32 of shape {shape}"
            again = learner.trainer(prepared, n_outputs).fit(target, seed=3, start=None).predict(prepared)
            assert np.array_equal(again, output), "equal seeds must give equal learners"
            part = fitted.predict(learner.prepare(view[np.arange(5)]))
            assert np.allclose(part, output[:5], atol=1e-4), "a row's output must not depend on other rows"
            summed = base.weighted_sum([fitted, fitted], [0.5, -2.0], prepared)
            assert summed.dtype == np.float64 and np.allclose(summed, -1.5 * output, atol=1e-4)


def _check_files(learner: Any, view: View) -> None:
    prepared = learner.prepare(view)
    fitted = learner.trainer(prepared, 2).fit(_targets(len(view), 2, False)[0], seed=0, start=None)
    (arrays, meta), read = fitted.to_arrays(), partial(base.read_learner, base.kind_of(fitted))
    meta = json.loads(json.dumps(meta))
    with tempfile.TemporaryDirectory() as folder:
        write_arrays(arrays, Path(folder) / "learner.safetensors")
        back = read(read_arrays(Path(folder) / "learner.safetensors"), meta)
    assert np.array_equal(back.predict(prepared), fitted.predict(prepared)), "files must keep the outputs"
    fitted.check(2)
    for n_outputs in (1, 3):
        _assert_refuses(partial(fitted.check, n_outputs), "a learner of another number of outputs")
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.size:
            spoilt = {**arrays, name: np.full_like(array, np.nan)}
            _assert_refuses(partial(read, spoilt, meta), f"NaN in its {name!r}")


def _check_onnx(learner: Any, table: Table) -> None:
    """Check that the nodes of a fitted learner give what it predicts, if it has such."""
    from onnxruntime import InferenceSession

    prepared = learner.prepare(table)
    fitted = [learner.trainer(prepared, 2).fit(t, seed=0, start=None) for t in _targets(len(table), 2, False)]
    if not (hasattr(fitted[0], "to_onnx") or hasattr(fitted[0], "sum_to_onnx")):
        return
    graph, given = Graph(), {"numeric": table.numeric, "codes": table.codes.astype(np.int64)}
    numeric, codes = (graph.input(name, each.dtype, [each.shape[1]]) for name, each in given.items())
    nodes = TableNodes(numeric, codes, table.n_numeric, table.cardinalities)
    stages = [Stage({"x": each}, {"x": step}) for each, step in zip(fitted, (0.5, -2.0))]
    graph.output("out", ensemble_to_onnx(stages, {"x": learner}, {"x": nodes}), [2])
    output = InferenceSession(graph.model({}).SerializeToString()).run(None, given)[0]
    expected = base.weighted_sum(fitted, [0.5, -2.0], prepared)
    assert np.abs(output - expected).max() < 1e-4, "its nodes in ONNX must give what it predicts"


def _assert_refuses(work: Callable[[], Any], what: str) -> None:
    try:
        work()
    except UsboostError:
        return
    raise AssertionError(f"check() must refuse {what} with a UsboostError")


class _Killed(Exception):
    pass


class _KillAfter(Callback):
    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def on_round(self, round_: Round) -> bool:
        if round_.index == self._rounds:
            raise _Killed
        return False


def _check_fits(learner: Any, view: View) -> None:
    """Fit, save, load, kill and resume a whole model."""
    rng = np.random.default_rng(2)
    first = learner.trainer(learner.prepare(view), 1).fit(
        _targets(len(view), 1, False)[0], seed=0, start=None
    )
    signal = first.predict(learner.prepare(view))[:, 0] + 0.01 * rng.normal(size=len(view))
    views, y = Views(x=view), np.where(signal > np.median(signal), "yes", "no")

    def model(**changes: Any) -> TwoWeakLearnerClassifier:
        settings = {"n_rounds": 5, "patience": None, "validation_fraction": 0, **changes}
        return TwoWeakLearnerClassifier({"x": clone(learner)}, **settings)

    whole = model().fit(views, y)
    expected = whole.predict_proba(views)
    with tempfile.TemporaryDirectory() as folder:
        save(whole, Path(folder) / "model")
        assert np.array_equal(load(Path(folder) / "model").predict_proba(views), expected)
        checkpoint = Checkpoint(Path(folder) / "kept")
        with suppress(_Killed):
            model(checkpoint=checkpoint, callbacks=[_KillAfter(3)]).fit(views, y)
        assert len(checkpoint.rounds()) >= 2, "its rounds must be kept as they are done"
        resumed = model(checkpoint=Checkpoint(Path(folder) / "kept")).fit(views, y)
        assert np.array_equal(resumed.predict_proba(views), expected), "a resumed fit must end as a whole one"


def check_loss(loss: Any, labels: np.ndarray, *, seed: int = 0, tolerance: float = 1e-5) -> None:
    """Check that a loss, its line and its derivatives agree with finite differences; its risk is convex.

    Parameters
    ----------
    loss : with ``n_outputs``, ``risk(f, y)`` and ``line(f, y, directions)``. What else it has is checked too:
        ``w(f, y)``, the negative gradient per sample; ``hessian(f, y)``; ``newton_direction(f, y)``; and that
        with ``counts`` a row counts as so many.
    labels : n labels as ``risk`` takes them
    tolerance : of the differences, relative

    Raises
    ------
    AssertionError
        Naming what does not agree.
    """
    rng = np.random.default_rng(seed)
    n, d = len(labels), loss.n_outputs
    for spread in (0.3, 2.0):
        f = spread * rng.normal(size=(n, d))
        directions = [rng.normal(size=(n, d)) for _ in range(2)]
        _check_line(loss, f, labels, directions, tolerance)
        _check_derivatives(loss, f, labels, directions[0])
    if "counts" in signature(loss.risk).parameters:
        counts = rng.integers(1, 4, n)
        each = np.repeat(np.arange(n), counts)
        counted, line = counts.astype(float), loss.line(f, labels, directions, counts.astype(float))
        whole = float(loss.risk(f[each], labels[each]))
        assert np.isclose(loss.risk(f, labels, counted), whole), "a row must count as often as `counts` says"
        assert np.isclose(line.risk(np.zeros(2)), whole), "in the line, too, a row must count as often"


def _check_line(
    loss: Any, f: np.ndarray, labels: np.ndarray, directions: list[np.ndarray], tolerance: float
) -> None:
    line = loss.line(f, labels, directions)
    steps = np.array([0.3, -0.2])

    def risk(at: np.ndarray) -> float:
        return float(loss.risk(f + sum(s * each for s, each in zip(at, directions)), labels))

    assert np.isclose(line.risk(steps), risk(steps), rtol=1e-9), "line.risk must be the risk along the line"
    value, gradient, hessian = line.expand(steps)
    assert np.isclose(value, risk(steps), rtol=1e-9), "line.expand must give the risk first"
    h = 1e-5
    for v in range(2):
        unit = np.eye(2)[v] * h
        slope = (risk(steps + unit) - risk(steps - unit)) / (2 * h)
        assert np.isclose(gradient[v], slope, rtol=tolerance, atol=1e-7), "the line's gradient is wrong"
        bend = (line.expand(steps + unit)[1] - line.expand(steps - unit)[1]) / (2 * h)
        assert np.allclose(hessian[v], bend, rtol=100 * tolerance, atol=1e-6), "the line's Hessian is wrong"
    assert np.allclose(hessian, hessian.T) and np.linalg.eigvalsh(hessian).min() > -1e-9, "not convex"
    for end in (steps, 10 * steps, -10 * steps):
        most = 0.5 * (risk(end) + risk(np.zeros(2)))
        assert risk(0.5 * end) <= most + 1e-12 * abs(most), "the risk must be convex along a line"


def _check_derivatives(loss: Any, f: np.ndarray, labels: np.ndarray, direction: np.ndarray) -> None:
    h, n = 1e-5, len(f)
    if not hasattr(loss, "w"):
        return
    w = loss.w(f, labels)
    slope = (loss.risk(f + h * direction, labels) - loss.risk(f - h * direction, labels)) / (2 * h)
    expected = -float((w * direction).sum()) / n
    assert np.isclose(slope, expected, rtol=1e-4, atol=1e-7), "w must be the negative gradient per sample"
    if not hasattr(loss, "hessian"):
        return
    bend = (loss.w(f - h * direction, labels) - loss.w(f + h * direction, labels)) / (2 * h)
    hessian = np.asarray(loss.hessian(f, labels)).reshape(n, loss.n_outputs, loss.n_outputs)
    product = np.einsum("nij,nj->ni", hessian, direction)
    near = 1e-3 * max(1.0, float(np.abs(bend).max()))  # it may be kept from being singular
    assert np.abs(product - bend).max() < near, "hessian must be the derivative of −w per sample"
    if hasattr(loss, "hessian_diagonal"):
        off = np.abs(loss.hessian_diagonal(f, labels) - np.einsum("nii->ni", hessian)).max()
        assert off < near, "hessian_diagonal must be the diagonal of hessian"
    if loss.n_outputs > 1 and hasattr(loss, "newton_direction"):
        solved = np.einsum("nij,nj->ni", hessian, loss.newton_direction(f, labels))
        assert np.abs(solved - w).max() < near, "newton_direction must solve H d = w"


def check_view(view: Any) -> None:
    """Check that a view has a length, a kind, and rows by slice, mask and positions, in order.

    Raises
    ------
    AssertionError
        Naming what does not hold.
    """
    n = len(view)
    assert n >= 4, "give a view of four rows or more"
    assert isinstance(getattr(type(view), "kind", None), str), "the class needs an attribute `kind`"
    mask = np.arange(n) % 2 == 0
    for rows, expected in ((slice(1, 3), 2), (mask, int(mask.sum())), (np.array([3, 0]), 2), ([2, 2], 2)):
        part = view[rows]
        assert type(part) is type(view) and len(part) == expected, f"{len(part)} rows for {rows!r}"
    views = Views(x=view)
    assert len(views[mask]) == int(mask.sum()) and views.names == ("x",)

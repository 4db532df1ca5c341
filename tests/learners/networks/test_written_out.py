"""The written-out table network against autograd: outputs, gradients, whole epochs, predictions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from usboost import NetworkLearner, Table
from usboost.learners.networks import written_out as by_hand
from usboost.learners.networks.inputs import TableRows, initialise, table_network
from usboost.learners.networks.train import make_optimizer, run, run_epoch


def problem(n, n_numeric, cardinalities, widths, seed):
    rng = np.random.default_rng(seed)
    starts = torch.from_numpy(np.cumsum([0, *cardinalities], dtype=np.int32)[:-1])
    codes = [rng.integers(0, c, n) for c in cardinalities]
    numeric = torch.from_numpy(rng.normal(size=(n, n_numeric)).astype(np.float32))
    narrow = (np.uint8, np.int16, np.int32)[seed % 3]
    codes = torch.from_numpy(np.asarray(codes, dtype=narrow).reshape(len(cardinalities), n).T.copy())
    values = torch.from_numpy(rng.normal(size=(n, widths[-1])).astype(np.float32))
    weights = torch.from_numpy(rng.uniform(0.1, 3, size=(n, widths[-1])).astype(np.float32))
    spec = {"n_numeric": n_numeric, "cardinalities": list(cardinalities)}
    network = table_network(spec, list(widths))
    initialise(network, seed)
    return network, TableRows(numeric, codes, starts), values, weights


def weighted_error(outputs, targets):
    error = (outputs - targets[0]).square()
    return (error * targets[1]).mean() if len(targets) > 1 else error.mean()


@settings(max_examples=40)
@given(
    n=st.integers(1, 60),
    n_numeric=st.integers(0, 4),
    cardinalities=st.lists(st.integers(1, 6), max_size=4),
    widths=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    weighted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_outputs_and_gradients_are_autograds(n, n_numeric, cardinalities, widths, weighted, seed):
    if n_numeric + len(cardinalities) == 0:
        n_numeric = 1
    network, rows, values, weights = problem(n, n_numeric, cardinalities, widths, seed)
    outputs = network(rows.batch(slice(None)))
    weighted_error(outputs, (values, weights) if weighted else (values,)).backward()
    expected = {name: p.grad.clone() for name, p in network.named_parameters() if p.numel()}
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    written = by_hand.TableNetwork(network)
    numeric, codes = (tensor.numpy() for tensor in rows.batch(slice(None)))
    layers = written.forward(numeric, codes)
    np.testing.assert_allclose(layers[-1], outputs.detach().numpy(), rtol=1e-4, atol=1e-5)
    gradient = 2 * (layers[-1] - values.numpy()) / values.numel()
    written.backward(numeric, codes, layers, gradient * weights.numpy() if weighted else gradient)
    for name, value in expected.items():
        got = network.get_parameter(name).grad
        torch.testing.assert_close(got, value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop", "adam"])
@pytest.mark.parametrize("weighted", [False, True])
def test_epochs_are_autograds(optimizer, weighted):
    ours, rows, values, weights = problem(230, 2, [4, 3], [9, 5, 2], 0)
    theirs, *_ = problem(230, 2, [4, 3], [9, 5, 2], 0)
    targets = (values, weights) if weighted else (values,)
    steps = [make_optimizer(optimizer, network, 1e-3) for network in (ours, theirs)]
    for seed in range(3):
        order = torch.randperm(230, generator=torch.Generator().manual_seed(seed))
        by_hand.train_epoch(ours, rows, targets, steps[0], order.split(32))
        run_epoch(theirs, [rows], weighted_error, targets, steps[1], order.split(32))
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-3, atol=2e-5)
    np.testing.assert_allclose(by_hand.predict(ours, rows), run(theirs, [rows]), rtol=1e-3, atol=1e-4)


def test_prediction_in_blocks_is_prediction_at_once(monkeypatch):
    network, rows, *_ = problem(101, 2, [4, 3], [9, 2], 1)
    whole = by_hand.predict(network, rows)
    monkeypatch.setattr(by_hand, "PREDICTION_ROWS", 10)
    np.testing.assert_allclose(by_hand.predict(network, rows), whole, rtol=1e-5, atol=1e-6)


def test_it_is_for_tables_on_the_cpu():
    network, rows, *_ = problem(10, 2, [3], [4, 1], 2)
    assert by_hand.written_out(network, rows) == (network, rows)
    assert by_hand.written_out(torch.nn.Linear(2, 1), rows) is None
    prepared = NetworkLearner(device="cpu").prepare(Table.from_numeric(np.zeros((3, 2))))
    assert by_hand.written_out(network, prepared.rows)


def test_the_look_ups_gradient_is_that_of_dense_one_hot_inputs():
    network, rows, *_ = problem(50, 2, [4, 3], [6, 2], 3)
    numeric, codes = rows.batch(slice(None))
    one_hot = torch.zeros(50, 7).scatter_(1, codes.long(), 1.0)
    layer = network[0]
    dense = numeric @ layer.weight.T + one_hot @ layer.lookup + layer.bias
    (expected,) = torch.autograd.grad(dense.square().sum(), layer.lookup)
    (got,) = torch.autograd.grad(layer(rows.batch(slice(None))).square().sum(), layer.lookup)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)

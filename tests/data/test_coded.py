"""A table of few numbers a column, held as codes: what it stands for, and its types."""

import numpy as np
import pytest
import torch

from usboost.data.table import COLUMNS, CodedTable, Table, code_type
from usboost.learners.networks.inputs import prepare_view


@pytest.mark.parametrize(
    ("n_codes", "dtype"),
    [(0, np.uint8), (256, np.uint8), (257, np.int16), (32_768, np.int16), (32_769, np.int32)],
)
def test_codes_have_the_smallest_type_that_holds_them(n_codes, dtype):
    assert code_type(n_codes) is dtype
    assert np.iinfo(dtype).max >= n_codes - 1


@pytest.mark.parametrize("levels", [3, 300, 40_000])
@pytest.mark.parametrize("width", [1, 2, COLUMNS + 1, 3 * COLUMNS])
def test_it_stands_for_the_numbers_that_it_was_made_of(levels, width):
    rng = np.random.default_rng(levels)
    pool = rng.normal(size=(width, levels)).astype(np.float32)
    numbers = np.stack([each[rng.integers(0, levels, 200)] for each in pool], axis=1)
    coded = CodedTable.of(numbers.T)
    assert coded.codes.itemsize == (1 if min(levels, 200) <= 256 else 2)
    np.testing.assert_array_equal(np.concatenate(list(coded.blocks()), axis=1), numbers)
    rows = rng.permutation(200)[:50]
    np.testing.assert_array_equal(coded[rows].numbers(slice(None)), numbers[rows])
    changed = coded.changed(lambda values, column: values * np.arange(width, dtype=np.float32)[column])
    np.testing.assert_array_equal(changed.numbers(slice(None)), numbers * np.arange(width, dtype=np.float32))


def test_no_block_is_a_single_column_of_several():
    for width in range(2, 4 * COLUMNS):
        blocks = CodedTable.of(np.zeros((width, 1))).blocks()
        assert min(block.shape[1] for block in blocks) > 1


@pytest.mark.parametrize("rows", [slice(3, 300), torch.tensor([5, 2, 2, 399])])
def test_networks_read_it_as_the_table_of_its_numbers(rows):
    numbers = np.random.default_rng(0).integers(0, 9, size=(400, 5)).astype(np.float32) / 7
    device = torch.device("cpu")
    spec, coded = prepare_view(CodedTable.of(numbers.T), device)
    expected_spec, plain = prepare_view(Table.from_numeric(numbers), device)
    assert spec == expected_spec and len(coded) == len(plain) and coded.rows_at_once == plain.rows_at_once
    for got, expected in zip(coded.batch(rows), plain.batch(rows), strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected, rtol=0, atol=0)

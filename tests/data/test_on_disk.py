"""Tables on disk, and tables of codes: what is made of them is what it would be in memory."""

import errno
import hashlib
import os

import numpy as np
import pytest
import torch

from tests.conftest import refuses
from tests.shards import cases
from usboost.boosting.checkpoint import _digest, identity_of
from usboost.data.table import COLUMNS, CodedTable, Table, code_type
from usboost.data.views import Views
from usboost.files import arrays
from usboost.learners.histogram import Bins
from usboost.learners.networks.inputs import prepare_view
from usboost.models.sharded import fit_sharded

RNG = np.random.default_rng(0)


def table(n, cardinalities=(4, 300), numbers=3, absent=False):
    codes = np.array([RNG.integers(0, each, n) for each in cardinalities], dtype=np.int32)
    codes = codes.reshape(len(cardinalities), n).T.copy()
    numeric = RNG.normal(size=(n, numbers)).astype(np.float32)
    return Table(numeric, codes, cardinalities, absent=RNG.random(n) < 0.5 if absent else None)


def cut(whole, size=37):
    return (whole[start : start + size] for start in range(0, len(whole), size))


def on_disk(views):
    return Views({name: Table.on_disk(cut(views[name])) for name in views.names})


def equal(found, expected):
    assert (found.names, found.cardinalities) == (expected.names, expected.cardinalities)
    np.testing.assert_array_equal(found.numeric, expected.numeric)
    np.testing.assert_array_equal(found.codes, expected.codes)
    assert (found.absent is None) == (expected.absent is None)
    assert found.absent is None or (found.absent == expected.absent).all()


@pytest.fixture
def small(monkeypatch):
    """Small arrays go to disk, too, in small parts."""
    monkeypatch.setattr(arrays, "LEAST", 0)
    monkeypatch.setattr(arrays, "PART_ROWS", 17)


@pytest.mark.parametrize("absent", [False, True])
def test_it_has_the_rows_of_its_parts_and_files_have_no_name(tmp_path, absent):
    whole = table(200, absent=absent)
    found = Table.on_disk(cut(whole), tmp_path)
    equal(found, whole)
    assert arrays.is_mapped(found.numeric) and arrays.is_mapped(found.codes)
    assert (found.numeric.dtype, found.codes.dtype) == (np.float32, np.int16)
    assert Table.on_disk(cut(table(50, (4, 5)))).codes.dtype == np.uint8
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("made", [table(30, numbers=0), Table.from_numeric(np.zeros((30, 2))), table(5)[:0]])
def test_columns_of_one_kind_or_no_rows_are_a_table_too(made):
    found = Table.on_disk([made])
    equal(found, made)
    assert (len(found), found.n_columns) == (len(made), made.n_columns)


def test_parts_have_the_same_columns_and_there_is_one():
    refuses("not all the same columns", Table.on_disk, [table(5), table(5, (4, 301))])
    refuses("one part at least", Table.on_disk, [])


def test_what_is_made_of_it_is_on_disk_and_as_in_memory(small):
    whole = table(200)
    found, rows = Table.on_disk(cut(whole)), RNG.permutation(200)[:150]
    for chosen in (rows, RNG.random(200) < 0.6, slice(3, 90)):
        equal(found[chosen], whole[chosen])
        assert arrays.is_mapped(found[chosen].numeric) and arrays.is_mapped(found[chosen].codes)
    equal(found.beside(whole), whole.beside(whole))
    matrix = found.matrix()
    assert matrix.flags.f_contiguous and matrix.dtype == np.float32
    assert all(arrays.is_mapped(each) for each in (matrix, matrix[:, 1], found.beside(whole).numeric))
    np.testing.assert_array_equal(matrix, whole.matrix())


def test_little_of_it_is_in_memory():
    found = Table.on_disk(cut(table(200)))
    assert not arrays.is_mapped(found.matrix()) and not arrays.is_mapped(found[np.arange(100)].numeric)


@pytest.mark.parametrize(("levels", "dtype"), [(9, np.uint8), (300, np.int16)])
def test_bins_are_a_byte_or_two_each_and_the_same_on_disk(small, levels, dtype):
    whole = table(500, (4, levels))
    wanted = Bins.of(whole.matrix(), whole.categorical, 16)
    found = Bins.of(Table.on_disk(cut(whole)).matrix(), whole.categorical, 16)
    assert found.codes.dtype == wanted.codes.dtype == dtype
    np.testing.assert_array_equal(found.codes, wanted.codes)
    for j in range(3):  # a number is in the bin whose ends are around it
        low, high = (each[wanted.start[j] :][wanted.codes[:, j]] for each in (found.lowest, found.highest))
        assert ((low <= whole.numeric[:, j]) & (whole.numeric[:, j] <= high)).all()


@pytest.mark.parametrize("name", ["2wl_newton", "one tree for all outputs", "crossed"])
def test_a_fit_to_it_is_that_to_the_same_table_in_memory(small, name):
    views, y = cases.data(2)
    models = [cases.MODELS[name]().fit(given, y) for given in (views, on_disk(views))]
    probabilities = [model.predict_proba(views) for model in models]
    np.testing.assert_array_equal(*probabilities)
    np.testing.assert_array_equal(models[0].predict_proba(on_disk(views)), probabilities[0])


def test_a_fit_on_shards_of_it_is_that_on_shards_in_memory(small):
    views, y = cases.data(2)
    found = []
    for given in (views, on_disk(views)):
        watched = cases.Digests()
        fit_sharded(cases.boosted(target="newton", callbacks=[watched]), cases.parts(given, y), 8)
        found.append(watched.found)
    assert found[0] == found[1] and len(found[0]) == 2


@pytest.mark.parametrize("made", [table(60, (4, 5)), table(60, ()), table(60, (), absent=True)])
def test_a_checkpoint_knows_the_rows_wherever_they_are(made):
    narrow = Table(made.numeric, made.codes.astype(np.uint8), made.cardinalities, absent=made.absent)
    model, y = cases.boosted(), np.arange(60)
    disk, memory = (identity_of(model, [(Views(S=each), y)]) for each in (Table.on_disk(cut(made)), narrow))
    assert disk == memory
    plain = hashlib.sha256()
    for array in (narrow.numeric, narrow.codes):
        plain.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    found = hashlib.sha256()
    for array in (Table.on_disk(cut(made)).numeric, narrow.codes):
        _digest(array, found)
    assert found.digest() == plain.digest()


def test_a_full_disk_and_no_folder_are_told_in_a_sentence(small, tmp_path, monkeypatch):
    refuses(r"rows cannot be kept in .*nowhere.*TMPDIR", Table.on_disk, cut(table(5)), tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):  # of what parts are read from
        Table.on_disk((Table.from_numeric(np.load(tmp_path / "x.npy")) for _ in range(2)), tmp_path)
    found = Table.on_disk(cut(table(50)), tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    refuses(f"rows cannot be kept in {tmp_path} .No space left", found.matrix)


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

"""Views stay row-aligned, however they are cut."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

from tests.conftest import make_views, refuses
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError


def test_rows_that_do_not_match_are_refused():
    views, _ = make_views(n=20)
    refuses(r"rows do not match: U has 20, S has 19", Views, U=views["U"], S=views["S"][:19])
    refuses("3 rows .* 2", Table, np.zeros((3, 1), np.float32), np.zeros((2, 1), np.int32), (2,))
    with pytest.raises(UsboostError, match="unknown view 'V'"):
        views["V"]
    refuses("at least one view", Views)


def test_slices_masks_and_folds_cut_every_view_alike():
    views, _ = make_views(n=30)
    rows = np.array([3, 1, 20])
    mask = np.zeros(30, dtype=bool)
    mask[rows] = True
    np.testing.assert_array_equal(views[rows]["U"].numeric, views["U"].numeric[rows])
    np.testing.assert_array_equal(views[mask]["S"].codes, views["S"].codes[np.sort(rows)])
    assert len(views[5:9]) == 4 and len(views[7]) == 1
    assert sum(len(views[held]) for _, held in KFold(3).split(views)) == 30


def test_tables_side_by_side_keep_numbers_first():
    views, _ = make_views(n=10)
    joined = views["U"].beside(views["S"])
    assert joined.n_numeric == 6 and joined.categorical == (6, 7, 8, 9)
    matrix = joined.matrix()
    assert matrix.flags["F_CONTIGUOUS"] and matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix[:, 3:6], views["S"].numeric)
    np.testing.assert_array_equal(matrix[:, 8:], views["S"].codes)

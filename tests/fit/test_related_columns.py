"""Groups and times of a user's table reach every split; nothing is on two sides."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import refuses
from tests.fit.conftest import accepted, labelled, numbers, run
from tests.models.test_related_rows import NotingClassifier, leaking, noted  # noqa: F401
from usboost import MultimodalClassifier, MultimodalRegressor, UsboostError
from usboost.boosting.checkpoint import identity_of
from usboost.evaluation.calibration import calibrated
from usboost.evaluation.folds import Divisible
from usboost.fit import bundle
from usboost.fit.build import fit
from usboost.fit.compare import compare
from usboost.fit.evaluate import divisible, related_of
from usboost.fit.record import table_digest
from usboost.fit.table_fit import calibration_folds
from usboost.fit.tune import Plan, tune
from usboost.models.methods.ensemble import EnsembleClassifier
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

N = 120


def table(seed: int = 0) -> pd.DataFrame:
    """Columns row (its number), group and day, which is not the order of the rows."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.permutation(N) // 2, unit="D")
    kind = rng.choice(["a", "b"], N)
    return pd.DataFrame(
        {"row": np.arange(N) * 1.5, "group": rng.integers(0, 30, N), "day": days, "kind": kind}
    )


def blend(seed: int) -> EnsembleClassifier:
    return EnsembleClassifier({"one": NotingClassifier()}, folds=3, random_state=seed, refit_full=False)


@pytest.mark.parametrize("key", ["group", "time"])
def test_a_comparison_and_a_search(noted, key, tmp_path):  # noqa: F811
    frame = table()
    column = {"group": "group", "time": "day"}[key]
    own = read_table(
        FrameRows(frame), TableSpec(label="kind", drop=["group" if key == "time" else "day"], **{key: column})
    )
    found = compare(own, {"blend": blend}, folds=2, keep=tmp_path / "kept")
    assert not found.failures and len(noted) == 6
    tune(own, {"blend": blend}, out=tmp_path / "tuned", plan=Plan(trials=1))
    assert len(noted) >= 7
    for train, held, related in noted:
        (values,) = related.values()
        assert len(values) == len(train) and len(np.unique(values)) > 1 and len(held)
    assert compare(own, {"blend": blend}, folds=2, keep=tmp_path / "kept").cached == 2
    other = read_table(FrameRows(frame), TableSpec(label="kind", drop=["group", "day"]))
    assert table_digest(other) != table_digest(own)


@pytest.mark.slow
def test_a_blend_that_is_fitted_by_the_command(tmp_path):
    views, y, groups = leaking(24, 8)
    frame = pd.DataFrame(views["S"].numeric[:, :12]).rename(columns=lambda k: f"x{k}")
    frame = frame.assign(patient=groups, kind=np.where(y, "yes", "no"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    roles = (tmp_path / "t.csv", "--label", "kind", "--preset", "best", "--rounds", 5, "--no-refit")
    roles = (*roles, "--set", "folds=4", "--set", "repeats=1", "--set", "members__forest__n_trees=20")
    losses = []
    for more in (("--drop", "patient"), ("--group", "patient")):
        accepted("fit", *roles, *more, "--out", tmp_path / more[0])
        losses.append(bundle.load(tmp_path / more[0]).model.blend_loss_)
    assert losses[0] < 0.2 and losses[1] > 0.5
    one = frame.assign(patient=np.where(frame["patient"] < 20, "old", "new"))
    one.to_csv(tmp_path / "t.csv", index=False)
    found = run("fit", *roles, "--group", "patient", "--out", tmp_path / "m")
    assert found.exit_code == 1 and "rows cannot be divided by group" in found.stderr


def test_the_estimators_take_a_column_or_values():
    x, y = labelled(120)
    patient, day = np.arange(120) // 3, np.arange(120) * 1.5
    values = MultimodalClassifier("lgbm", rounds=3).fit(x, y, groups=patient)
    column = MultimodalClassifier("lgbm", rounds=3, group="group").fit(x.assign(group=patient), y)
    assert column.bundle_.card.dropped == ["group"]
    np.testing.assert_array_equal(values.predict_proba(x), column.predict_proba(x))  # without the column
    times = MultimodalRegressor("lgbm", rounds=3).fit(x, x["width"] + 0.5, times=day)
    by_name = MultimodalRegressor("lgbm", rounds=3, time="day").fit(x.assign(day=day), x["width"] + 0.5)
    np.testing.assert_array_equal(times.predict(x), by_name.predict(x))
    part = np.repeat(["train", "val", "test"], [80, 30, 10])
    split = MultimodalClassifier("lgbm", rounds=3, split="part").fit(x.assign(part=part), y)
    assert split.bundle_.card.rows == {"train": 110, "val": 0}
    given = x.assign(group=patient), y
    by_group = MultimodalClassifier(group="group")
    refuses("groups are given, and the column 'group'", by_group.fit, *given, patient)
    refuses("rows are divided in one way", by_group.fit, *given, times=day)
    refuses("`group` is one column, not", MultimodalClassifier(group=["group"]).fit, *given)
    by_number = MultimodalClassifier("prior", group=4).fit(x.assign(**{"4": patient}), y)
    assert by_number.bundle_.card.dropped == ["4"]


def test_calibration_is_judged_by_other_groups_and_later_rows():
    frame = table()
    held = np.arange(0, N, 2)
    of = {"group": ("day", frame["group"].to_numpy()), "time": ("group", frame["day"].to_numpy())}
    for key, (other, values) in of.items():
        column = {"group": "group", "time": "day"}[key]
        own = read_table(FrameRows(frame), TableSpec(label="kind", drop=[other], **{key: column}))
        folds = calibration_folds(own, held, 0)
        assert folds is not None and 2 <= len(folds) <= 5
        for others, rows in folds:
            first, second = values[held[others]], values[held[rows]]
            assert first.max() < second.min() if key == "time" else not set(first) & set(second)
    assert calibration_folds(read_table(FrameRows(frame), TableSpec(label="kind")), held, 0) is None
    # probabilities that are too sure in one half and right in the other: it depends on who judges
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    p = np.where(y, 0.9, 0.1)
    p[:200] = np.where(rng.random(200) < 0.4, 1 - p[:200], p[:200])
    p = np.column_stack([1 - p, p])
    first, second = np.arange(200), np.arange(200, 400)
    assert calibrated(p, y) > 1 and calibrated(p, y, folds=[(first, second)]) == 1.0


def test_one_large_group_does_not_temper_the_others():
    rng = np.random.default_rng(0)
    group, kind, noise = np.maximum(np.arange(600) // 15 - 3, 0), np.arange(600) % 2, rng.random(600) < 0.05
    frame = pd.DataFrame({"group": group, "kind": np.where(kind, "yes", "no")})
    own = read_table(FrameRows(frame.assign(x=0.5)), TableSpec(label="kind", group="group"))
    seed = next(seed for seed in range(99) if 0 in group[divisible(own).hold_out(seed)[1]])
    x = np.where(kind ^ noise ^ (group == 0), 1.5, -1.5)  # of the group that is held out the other way round
    own = read_table(FrameRows(frame.assign(x=x)), TableSpec(label="kind", group="group"))
    found = fit(own, "logistic", seed=seed, settings={"penalties": (1e-3,)}).bundle
    (_, held) = divisible(own).hold_out(seed)
    p = found.model.predict_proba(own.views(found.encoding, held))
    assert calibrated(p, own.labels[held], seed=seed) > 1 and found.card.temperature == 1.0


def test_a_killed_fit_of_other_groups_is_another_fit():
    frame = table()
    found = set()
    for roles in ({}, {"group": "group"}, {"time": "day"}):
        drop = [name for name in ("group", "day") if name not in roles.values()]
        own = read_table(FrameRows(frame), TableSpec(label="kind", drop=drop, **roles))
        rows = np.arange(len(own))
        views, related = own.views(own.fit_encoding(rows), rows), related_of(own, rows)
        arrays = () if related is None else related.arrays
        found.add(identity_of(blend(0), [(views, own.labels, None, *arrays)])["data"])
    assert len(found) == 3


@st.composite
def some_rows(draw) -> Divisible:
    n = draw(st.integers(40, 120))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    codes = np.arange(n) % 3 if draw(st.booleans()) else None
    known = draw(st.sampled_from(["nothing", "groups", "times", "splits"]))
    given = {
        "nothing": {},
        "groups": {"groups": np.arange(n) // 2},
        "times": {"times": rng.integers(0, draw(st.integers(8, 60)), n)},
        "splits": {"splits": np.array(["train", "val", "test"])[np.arange(n) % 3]},
    }[known]
    order = rng.permutation(n)
    return Divisible(n, codes, **given)[order]


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(some_rows(), st.integers(2, 4), st.integers(0, 5))
def test_folds_keep_their_promises(rows, folds, seed):
    if rows.times is not None and len(np.unique(rows.times)) < folds + 2:
        refuses("different times", list, rows.folds(folds, 1, seed))
        return
    repeats = 1 if rows.times is not None or rows.splits is not None else 2
    found = list(rows.folds(folds, repeats, seed))
    assert len(found) == (1 if rows.splits is not None else repeats * folds)
    for each in found:
        parts = (each.train, each.val, each.test)
        assert all(len(part) for part in parts)
        together = np.concatenate(parts)
        assert len(np.unique(together)) == len(together)
        if rows.times is None:
            assert len(together) == rows.n
        else:
            times = [rows.times[part] for part in parts]
            assert times[0].max() < times[1].min() and times[1].max() < times[2].min()
        if rows.groups is not None:
            groups = [set(rows.groups[part]) for part in parts]
            assert not (groups[0] & groups[1] or groups[0] & groups[2] or groups[1] & groups[2])
        if rows.splits is not None:
            assert [set(rows.splits[part]) for part in parts] == [{"train"}, {"val"}, {"test"}]
    if rows.splits is None:
        tested = np.concatenate([each.test for each in found if each.repeat == 1])
        assert len(np.unique(tested)) == len(tested)
        assert len(tested) == rows.n or rows.times is not None
    again = list(rows.folds(folds, repeats, seed))
    assert all(np.array_equal(a.train, b.train) for a, b in zip(found, again, strict=True))


def test_by_time_the_folds_are_about_as_long():
    rows = Divisible(600, times=np.arange(600))
    sizes = [(len(f.train) + len(f.val), len(f.test)) for f in rows.folds(5, 1, 0)]
    assert sizes == [(100 * k, 100) for k in range(1, 6)]


@pytest.mark.parametrize("known", [{}, {"groups": np.arange(400) // 4}, {"times": np.arange(400)}])
@pytest.mark.parametrize("codes", [None, np.arange(400) % 2])
def test_the_share_that_is_held_out(known, codes):
    train, held = Divisible(400, codes, **known).hold_out(3)
    assert len(held) == pytest.approx(60, abs=8)
    if codes is not None:
        assert codes[held].mean() == pytest.approx(0.5, abs=0.05)
    assert sorted([*train, *held]) == list(range(400))


@pytest.mark.parametrize(
    ("known", "message"),
    [({"groups": np.zeros(40, int)}, "there is one group"), ({"times": np.zeros(40)}, "the same time")],
)
def test_one_group_or_time_is_refused(known, message):
    refuses(message, Divisible(40, **known).hold_out, 0)


def test_fewer_parts_than_folds_are_refused():
    """Three groups of one row each and one that holds the rest: the parts that are left have no row."""
    groups = np.array([0] * 9 + [1, 2, 3])
    for codes, folds in ((np.array([0, 1, 0] * 3 + [1, 1, 0]), 4), (np.repeat([0, 1, 2], [9, 2, 1]), 4)):
        try:
            found = list(Divisible(12, codes, groups)._parts(folds, 0))
        except UsboostError as error:
            assert "ask for" in str(error) and "folds, or leave `group` out" in str(error)
        else:
            assert all(len(train) and len(test) for train, test in found) and len(found) == folds


def test_a_comparison_needs_test_rows_and_a_fit_does_not():
    rows = Divisible(40, splits=np.array(["train", "val"])[np.arange(40) % 2])
    train, held = rows.hold_out(0)
    assert train.tolist() == list(range(0, 40, 2)) and held.tolist() == list(range(1, 40, 2))
    refuses("needs rows whose `split` is test", list, rows.folds(5, 1, 0))


def test_an_auc_without_rows_of_a_class_is_explained(tmp_path):
    frame = numbers(120)
    held = (frame["kind"] == "no") & (np.arange(120) % 3 == 0)
    frame.assign(part=np.where(held, "val", "train")).to_csv(tmp_path / "t.csv", index=False)
    words = ("fit", tmp_path / "t.csv", "--label", "kind", "--split", "part", "--model", "logistic")
    result = accepted(*words, "--out", tmp_path / "m")
    assert "AUC nan" in result.stdout
    assert "note: AUC is nan, since the validation rows lack a class\n" in result.stderr


def test_a_rare_class_that_is_never_the_answer_is_told(tmp_path):
    kinds = np.where(np.arange(200) % 20 == 0, "rare", "often")
    numbers(200).assign(kind=kinds).to_csv(tmp_path / "t.csv", index=False)
    words = ("fit", tmp_path / "t.csv", "--label", "kind", "--model", "prior", "--no-refit")
    result = accepted(*words, "--out", tmp_path / "m")
    assert "F1 0.0000" in result.stdout
    said = "note: no validation row gets the answer 'rare' rightly; --threshold f1 answers it more often\n"
    assert said in result.stderr
    assert "gets the answer" not in run(*words, "--threshold", "f1", "--out", tmp_path / "n").stderr

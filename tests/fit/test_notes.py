"""What the command line notes is a warning in Python and an entry of a served model's log."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.model_selection import cross_val_score

from tests.conftest import encoded, refuses
from tests.fit.conftest import accepted, run
from usboost import MultimodalClassifier, MultimodalRegressor, UsboostWarning
from usboost.fit import bundle

RNG = np.random.default_rng(0)
N = 60


def png(value: int) -> bytes:
    return encoded(Image.new("RGB", (16, 16), (int(value),) * 3))


@pytest.fixture(scope="module")
def table() -> tuple[pd.DataFrame, np.ndarray]:
    y = np.arange(N) % 2
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D")
    frame = pd.DataFrame(
        {
            "a": RNG.normal(size=N) + y,
            "day": days,
            "town": RNG.choice(["Rome", "Oslo"], N),
            "photo": [png(60 + 40 * each + 3 * k) for k, each in enumerate(y % 2)],
        }
    )
    return frame, y


@pytest.fixture(scope="module")
def model(table) -> MultimodalClassifier:
    frame, y = table
    return MultimodalClassifier("logistic", image="photo", size=16, refit=False).fit(frame, y)


def told(call) -> list[str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UsboostWarning)
        call()
    assert all(each.filename == __file__ for each in said if each.category is UsboostWarning)
    return [str(each.message) for each in said if each.category is UsboostWarning]


def test_notes_of_a_fit_are_warnings_and_the_same_as_the_commands(tmp_path):
    frame = pd.DataFrame(
        {
            "code": [f"x{k}" for k in range(N)],
            "same": 1.5,
            "a": RNG.normal(size=N),
            "twice": 0.0,
            "y": RNG.choice(["u", "v"], N),
        }
    )
    frame["twice"] = frame["a"]
    frame.to_parquet(tmp_path / "t.parquet")
    expected = [
        "column 'code' is left out: each row has its own value",
        "column 'same' has the same value in all rows, so it says nothing",
        "column 'twice' holds the same as 'a'; one of them can be dropped",
    ]
    fit = MultimodalClassifier("linear_trees", rounds=2, refit=True).fit
    assert told(lambda: fit(frame.drop(columns="y"), frame["y"])) == expected  # once, of many fits
    out = run("fit", tmp_path / "t.parquet", "--label", "y", "--model", "logistic", "--out", tmp_path / "m")
    assert [line.removeprefix("note: ") for line in out.stderr.splitlines() if "note: " in line] == expected


def test_what_cannot_be_read_is_missing_counted_and_said(table, model, tmp_path, caplog):
    frame, y = table
    rows = frame.astype({"a": object, "day": object, "town": object})
    rows.loc[[6, 9], "a"] = "n.d."
    rows["a"] = rows["a"].astype(str)
    rows["day"] = rows["day"].astype(str)
    rows.loc[3, "day"] = "soon"
    rows.loc[[7, 8], "town"] = "Bonn"
    rows.at[2, "photo"] = b"<html>404</html>"
    expected = [
        "column 'a': 2 of 60 values are no numbers and count as missing, the first in row 7, 'n.d.'",
        "column 'day': 1 of 60 values is no date and counts as missing, in row 4, 'soon'",
        "column 'town': 2 of 60 rows have a category that was not in the training rows, the first in row 8, "
        "'Bonn'",
    ]
    rows.drop(columns="photo").assign(photo="").to_csv(tmp_path / "t.csv", index=False)
    model.save(tmp_path / "m")
    done = run("predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv", "--batch", 7)
    notes = [re.sub(r"note: | \(line [589]\)", "", each) for each in done.stderr.splitlines()]
    assert notes[0] == "60 of 60 rows have no image"
    assert "column 'photo': 60 of 60 values are missing" in notes[1]
    assert notes[2:] == expected
    missing = frame.copy()
    missing.loc[[6, 9], "a"], missing.loc[3, "day"], missing.loc[[7, 8], "town"] = np.nan, pd.NaT, None
    missing["photo"] = None
    found = pd.read_csv(tmp_path / "p.csv")
    plain = model.predict_frame(missing)
    kept = [k for k in range(N) if k not in (7, 8)]  # where unknown is not missing
    np.testing.assert_allclose(found.iloc[kept, 1:], plain.iloc[kept, 1:], rtol=1e-6, atol=1e-9)
    strict = run("predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "q.csv", "--strict")
    assert strict.exit_code == 1 and "row 7 (line 8), 'n.d.': column 'a' held numbers" in strict.stderr
    assert not (tmp_path / "q.csv").exists()
    label = rows.drop(columns="photo").assign(photo="", y=y)
    label.to_csv(tmp_path / "l.csv", index=False)
    report = ("report", tmp_path / "m", tmp_path / "l.csv", "--label", "y", "--out", tmp_path / "r.html")
    assert "2 of 60 values are no numbers" in run(*report).stderr
    assert "2 of 60 values are no numbers" in (tmp_path / "r.html").read_text()
    assert run(*report, "--strict").exit_code == 1


def test_images_that_cannot_be_read_count_as_missing(table, model):
    frame, y = table
    rows = frame.copy()
    rows.at[2, "photo"], rows.at[5, "photo"] = b"<html>404</html>", b"\x89PNG\r\n\x1a\nshort"
    (said,) = told(lambda: model.predict(rows))
    assert said.startswith("column 'photo': 2 of 60 images") and "row 3, column 'photo' is no image" in said
    without = frame.copy()
    without.loc[[2, 5], "photo"] = None
    np.testing.assert_array_equal(model.predict_proba(rows), model.predict_proba(without))
    assert model.score(rows, y) == model.score(without, y)
    refuses("row 3, column 'photo' is no image", model.predict_frame, rows, strict=True)
    kept = MultimodalClassifier("logistic", image="photo", size=16, skip_unreadable=True, refit=False)
    assert np.isfinite(cross_val_score(kept, rows, y, cv=3)).all()
    refuses("row 1, column 'photo' is no image", model.predict, rows.iloc[[2]])  # nothing of it can be read
    mixed = frame.copy().head(4)
    mixed["photo"] = [mixed["photo"][0], None, "http://example.org/a.png", b""]
    mixed["photo"] = mixed["photo"].map(
        lambda each: __import__("base64").b64encode(each).decode() if isinstance(each, bytes) else each
    )
    (said,) = told(lambda: model.predict(mixed))
    assert "column 'photo': 1 of 2 images cannot be read" in said and "is an address" in said


@pytest.mark.parametrize("column", ["a", "day", "photo", "town"])
@pytest.mark.parametrize(
    "nothing",
    [np.nan, None, pd.NA, pd.NaT, pd.array([None] * 2, dtype="string"), pd.array([None] * 2, "Int64")],
)
def test_rows_of_which_none_has_a_value(table, model, tmp_path, column, nothing):
    frame, _ = table
    rows = frame.head(2).copy()
    rows[column] = nothing
    others = frame.head(3).copy()
    others[column] = others[column].where([False, False, True], None)
    expected = model.predict_frame(others).head(2)
    assert told(lambda: model.predict_frame(rows)) == []
    pd.testing.assert_frame_equal(model.predict_frame(rows), expected)
    if not (nothing is pd.NaT and column == "photo"):
        rows.to_parquet(tmp_path / "t.parquet")
        model.save(tmp_path / "m")
        accepted("predict", tmp_path / "m", tmp_path / "t.parquet", "--out", tmp_path / "p.parquet")
        pd.testing.assert_frame_equal(
            pd.read_parquet(tmp_path / "p.parquet"), expected, check_dtype=False, atol=1e-9
        )


def test_a_column_of_which_nothing_can_be_read_is_another(table, model, tmp_path):
    frame, _ = table
    for column, values, message in (
        ("a", "tall", r"column 'a' held numbers .* \(none of its 60 values can be read\)"),
        ("a", pd.Timestamp("2020-01-01"), "column 'a' held numbers"),
        ("a", ["", "tall"] * 30, r"column 'a' held numbers .* \(none of its 30 values can be read\)"),
        ("a", np.inf, r"row 1: column 'a' holds infinity .* \(none of its 60 values can be read\)"),
        ("day", "soon", r"column 'day' held dates .* \(none of its 60 values can be read\)"),
        (
            "photo",
            "no base64!",
            r"row 1: column 'photo' is not base64: .* \(none of its 60 values can be read\)",
        ),
        ("photo", 7.5, "the image column 'photo' must hold paths or bytes, not double"),
    ):
        refuses(message, model.predict, frame.assign(**{column: values}))
    refuses("lacks column 'day'", model.predict, frame.drop(columns="day"))
    (said,) = told(lambda: model.predict(frame.assign(a=[np.inf, *frame["a"][1:]])))
    assert said == "column 'a': 1 of 60 values is no number and counts as missing, in row 1, inf"


def test_values_are_found_among_many_as_one_by_one(tmp_path):
    frame = pd.DataFrame({"x": RNG.normal(size=3000).round(3), "y": RNG.normal(size=3000)})
    model = MultimodalRegressor("ridge", rounds=1).fit(frame[["x"]], frame["y"])
    model.save(tmp_path / "m")
    texts = frame["x"].astype(str)
    wrong = RNG.choice(3000, 300, replace=False)
    texts.iloc[wrong] = [f"bad {k % 40}" for k in range(300)]
    pd.DataFrame({"x": texts}).to_csv(tmp_path / "t.csv", index=False)
    for size in (3000, 64):
        words = ("--out", tmp_path / "p.csv", "--batch", size)
        done = run("predict", tmp_path / "m", tmp_path / "t.csv", *words)
        first = int(wrong.min())
        place = f"row {first + 1} (line {first + 2}), {texts.iloc[first]!r}\n"
        assert "'x': 300 of 3,000 values" in done.stderr and done.stderr.endswith(place)
        expected = model.predict(frame[["x"]].mask(np.isin(np.arange(3000), wrong)[:, None]))
        np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["prediction"], expected, atol=1e-9)
    pd.DataFrame({"x": [f"bad {k}" for k in range(11_000)] + ["1"]}).to_csv(tmp_path / "n.csv", index=False)
    for size in (4096, 500):
        words = ("--out", tmp_path / "q.csv", "--batch", size)
        done = run("predict", tmp_path / "m", tmp_path / "n.csv", *words)
        assert done.exit_code == 1 and "(none of the first 10,000 values can be read)" in done.stderr


@pytest.mark.parametrize("given", ["sample_weight", "groups", "times", "none"])
@pytest.mark.parametrize("array", [True, False])
def test_a_loaded_model_wants_the_columns_that_it_was_fitted_to(tmp_path, given, array):
    x = RNG.normal(size=(120, 3))
    y = x[:, 0] + RNG.normal(size=120) > 0
    more = {"sample_weight": np.ones(120), "groups": np.arange(120) // 4, "times": np.arange(120)}
    X = x if array else pd.DataFrame(x, columns=["label", "weight", "group"])
    drop = None if array else "label"
    fitted = MultimodalClassifier("logistic", drop=drop).fit(
        X, y, **({given: more[given]} if given in more else {})
    )
    fitted.save(tmp_path / "m")
    loaded = MultimodalClassifier.load(tmp_path / "m")
    assert loaded.n_features_in_ == fitted.n_features_in_ == 3
    assert list(loaded.feature_names_in_) == list(fitted.feature_names_in_)
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert bundle.load(tmp_path / "m").card.label not in fitted.feature_names_in_


def test_filters_of_warnings_are_as_before_a_fit_and_a_prediction(table):
    frame, y = table
    for name, limit in (("linear_trees", None), ("best", 1.0)):
        with warnings.catch_warnings():
            warnings.resetwarnings()
            warnings.simplefilter("ignore")
            before = list(warnings.filters)
            settings = {"image": "photo", "size": 16, "rounds": 2, "time_limit": limit}
            model = MultimodalClassifier(name, **settings).fit(frame, y)
            model.predict(frame)
            assert warnings.filters == before


def test_blocks_of_silence_that_overlap_leave_the_filters_alone():
    from usboost.errors import silenced

    with warnings.catch_warnings():
        before = list(warnings.filters)
        first, second = silenced("a"), silenced("b")
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert warnings.filters != before
        second.__exit__(None, None, None)
        assert warnings.filters == before

"""A fitted model on raw rows: a batch as all at once, whole or not at all, and why it answers so."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import refuses
from tests.fit.conftest import ROLES, accepted, numbers, refused, run
from usboost import MultimodalClassifier, MultimodalRegressor
from usboost.evaluation.calibration import tempered
from usboost.evaluation.folds import stratified_parts
from usboost.fit import bundle
from usboost.fit.build import fit
from usboost.fit.explain import names_of
from usboost.fit.predict import score_table
from usboost.models import catalogue
from usboost.report.rows import three_rows
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model of 150 rows without images, and their table."""
    folder = tmp_path_factory.mktemp("plain")
    table = folder / "table.parquet"
    numbers(150, classes=3).to_parquet(table)
    options = ("--label", "kind", "--categorical", "width", "--model", "crossed", "--rounds", 5)
    accepted("fit", table, *options, "--out", folder / "model")
    return folder / "model", table


def predicted(model, table, out, *more):
    accepted("predict", model, table, "--out", out, *more)
    return pd.read_parquet(out) if out.suffix == ".parquet" else pd.read_csv(out)


def test_columns_and_labels(model, demo, tmp_path):
    found = predicted(model, demo, tmp_path / "p.parquet", "--keep", "batch", "--keep", "weight")
    assert list(found) == ["label", "p_mixed", "p_plates", "p_wedges", "batch", "weight"]
    p = found[["p_mixed", "p_plates", "p_wedges"]].to_numpy()
    assert np.allclose(p.sum(axis=1), 1) and (p >= 0).all()
    assert (np.array(["mixed", "plates", "wedges"])[p.argmax(axis=1)] == found["label"]).all()
    given = pd.read_csv(demo, dtype=str, keep_default_na=False)
    assert (found["batch"] == given["batch"]).all() and (found["weight"] == given["weight"]).all()
    assert (found["label"] == found["batch"]).mean() > 0.5


@pytest.mark.parametrize("batch", [1, 50])
def test_a_batch_at_a_time_as_all_at_once(model, demo, tmp_path, batch):
    at_once = predicted(model, demo, tmp_path / "once.parquet", "--batch", 100_000)
    batched = predicted(model, demo, tmp_path / "batched.parquet", "--batch", batch)
    assert (at_once["label"] == batched["label"]).all()
    assert np.allclose(at_once.iloc[:, 1:], batched.iloc[:, 1:], rtol=0, atol=1e-6)


def test_csv_and_parquet_say_the_same(plain, tmp_path):
    model, table = plain
    frame = pd.read_parquet(table)
    frame.to_csv(tmp_path / "table.csv", index=False)
    frame["colour"] = frame["colour"].astype("category")
    frame["width"] = frame["width"].astype(float)
    frame.to_parquet(tmp_path / "coded.parquet", row_group_size=40)
    first = predicted(model, table, tmp_path / "a.parquet")
    for name, batch in (("table.csv", 13), ("coded.parquet", 25)):
        again = predicted(model, tmp_path / name, tmp_path / "b.parquet", "--batch", batch)
        assert np.allclose(first.iloc[:, 1:], again.iloc[:, 1:], rtol=0, atol=1e-6)
    as_csv = predicted(model, table, tmp_path / "c.csv", "--keep", "height")
    assert np.allclose(first.iloc[:, 1:], as_csv.iloc[:, 1:4], rtol=0, atol=1e-6)
    assert np.allclose(as_csv["height"], frame["height"], equal_nan=True)


@pytest.mark.slow
def test_images_as_bytes_are_the_images_as_paths(model, demo, tmp_path):
    frame = pd.read_csv(demo)
    frame["image"] = [(demo.parent / path).read_bytes() for path in frame["image"]]
    frame.to_parquet(tmp_path / "bytes.parquet", row_group_size=50)
    paths = predicted(model, demo, tmp_path / "a.parquet")
    in_table = predicted(model, tmp_path / "bytes.parquet", tmp_path / "b.parquet", "--batch", 33)
    assert np.allclose(paths.iloc[:, 1:], in_table.iloc[:, 1:], rtol=0, atol=1e-6)
    # and a model can be fitted to them: equal arguments, equal model
    given = (*ROLES, "--preset", "fast", "--rounds", 4, "--out", tmp_path / "model")
    run("fit", tmp_path / "bytes.parquet", *given)
    again = predicted(tmp_path / "model", demo, tmp_path / "c.parquet")
    assert np.allclose(paths.iloc[:, 1:], again.iloc[:, 1:], rtol=0, atol=1e-6)


def test_a_model_of_images_alone_answers_each_row(demo, tmp_path):
    frame = pd.read_csv(demo)
    images = [(demo.parent / path).read_bytes() for path in frame["image"]]
    pd.DataFrame({"image": images, "batch": frame["batch"]}).to_parquet(
        tmp_path / "t.parquet", row_group_size=50
    )
    run("fit", tmp_path / "t.parquet", *ROLES[:4], "--model", "logistic", "--out", tmp_path / "model")
    assert len(predicted(tmp_path / "model", tmp_path / "t.parquet", tmp_path / "p.parquet")) == len(frame)


def test_the_library_says_the_same(plain, tmp_path):
    model, table = plain
    loaded = bundle.load(model)
    frame = pd.read_parquet(table).drop(columns="kind")
    expected = loaded.model.predict_proba(loaded.encoding.views(frame))
    found = predicted(model, table, tmp_path / "p.parquet", "--batch", 31)
    expected = tempered(expected, loaded.card.temperature)
    assert np.allclose(found.iloc[:, 1:], expected, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.OFFERED)
def test_every_model_comes_back_as_it_was_saved(name, demo, tmp_path):
    table = read_table(demo, TableSpec(label="batch", image="image", drop=["split"], size=32))
    few = {"members__forest__n_trees": 20}
    settings = {"best": few | {"folds": 3, "repeats": 1}, "average": few, "forest": {"n_trees": 20}}.get(name)
    fitted = fit(table, name, rounds=2, seed=3, calibrate=False, refit=False, settings=settings)
    fitted.bundle.save(tmp_path / "model")
    found = predicted(tmp_path / "model", demo, tmp_path / "p.parquet", "--batch", 50)
    views = table.views(fitted.bundle.encoding, np.arange(len(table)))
    expected = fitted.bundle.model.predict_proba(views)
    assert np.allclose(found.iloc[:, 1:], expected, rtol=0, atol=1e-6)
    held = stratified_parts(table.labels, (0.85, 0.15), 3)[1]
    assert (np.bincount(table.labels[held]) == 6).all() and fitted.rows == (102, 18)
    assert bundle.load(tmp_path / "model").card.scores["accuracy"] == pytest.approx(
        (expected[held].argmax(axis=1) == table.labels[held]).mean()
    )


def test_columns_it_does_not_know_are_named(plain, tmp_path):
    model, table = plain
    frame = pd.read_parquet(table).assign(extra=1, more="x")
    frame.to_parquet(tmp_path / "more.parquet")
    result = run("predict", model, tmp_path / "more.parquet", "--out", tmp_path / "p.parquet")
    assert result.stderr == "note: columns ignored, since the model does not know them: extra, more\n"


def test_a_column_of_which_training_had_no_category_is_named(plain, tmp_path):
    model, table = plain
    frame = pd.read_parquet(table)
    changed = frame.assign(colour=frame["colour"].str.upper())
    none = "no row has a category that was in the training rows"
    most = "150 of 151 rows have a category that was not in the training rows, the first in row 1, 'RED'"
    for rows, expected in ((changed, none), (pd.concat([changed, frame.tail(1)]), most)):
        rows.to_parquet(tmp_path / "t.parquet")
        done = accepted("predict", model, tmp_path / "t.parquet", "--out", tmp_path / "p.csv", "--batch", 40)
        assert done.stderr == f"note: column 'colour': {expected}\n"


def test_a_row_without_image(model, demo, tmp_path):
    frame = pd.read_csv(demo).head(6)
    frame.loc[2, "image"] = None
    frame.loc[4, "image"] = "images/gone.png"
    (tmp_path / "images").symlink_to(demo.parent / "images")
    table = tmp_path / "table.csv"
    frame.to_csv(table, index=False)
    accepted("predict", model, table, "--out", tmp_path / "linked.csv")
    (tmp_path / "images").unlink()
    (tmp_path / "images").mkdir()
    for k in range(6):
        (tmp_path / f"images/{k:05d}.png").write_bytes((demo.parent / f"images/{k:05d}.png").read_bytes())
    gone = f"'image', {tmp_path / 'images/gone.png'}"
    for options in ((), ("--batch", 4), ("--batch", 1)):
        told = run("predict", model, table, "--out", tmp_path / "p.parquet", *options).stderr
        assert "2 of 6 rows have no image\n" in told and gone in told and told.count("\n") == 2
        found = pd.read_parquet(tmp_path / "p.parquet")
        assert found.notna().all(axis=None)
        whole = predicted(model, demo, tmp_path / "q.parquet").head(6)
        kept = [0, 1, 3, 5]
        assert np.allclose(found.iloc[kept, 1:], whole.iloc[kept, 1:], rtol=0, atol=1e-6)
    (tmp_path / "images/00001.png").write_bytes(b"no image")
    said = refused("predict", model, table, "--out", tmp_path / "p.parquet", "--strict")
    assert said.startswith(f"{table}, row 2, '00001.png' is no image")
    for options in ((), ("--batch", 1)):
        told = run("predict", model, table, "--out", tmp_path / "p.parquet", *options).stderr
        assert "3 of 6 rows" in told and gone in told and "'image': 1 of 4 images" in told and said in told
    assert pd.read_parquet(tmp_path / "p.parquet").notna().all(axis=None)


def test_paths_that_all_lead_nowhere_are_refused_and_the_earlier_file_stays(model, demo, tmp_path):
    frame = pd.read_csv(demo).head(6)
    frame.loc[2, "image"] = None
    table, out = tmp_path / "table.csv", tmp_path / "p.parquet"
    frame.to_csv(table, index=False)
    predicted(model, demo, out)
    before = out.read_bytes()
    for batch in (6, 2):
        said = refused("predict", model, table, "--out", out, "--batch", batch)
        assert said.startswith(f"{table}: ") and "'image'" in said and "--images-root" in said
        assert str(tmp_path / "images/00000.png") in said
    assert out.read_bytes() == before
    assert "column 'image'" in refused("report", model, table, "--out", tmp_path / "r.html")
    accepted("predict", model, table, "--out", out, "--images-root", demo.parent)
    refuses(r"no path in column 'image' .*0\.png", bundle.load(model).predict, FrameRows(frame, tmp_path))


def test_an_output_is_replaced_whole_or_not_at_all(plain, tmp_path):
    model, table = plain
    out = tmp_path / "p.csv"
    out.write_text("earlier\n")
    frame = pd.read_parquet(table).astype({"height": object})
    frame.loc[140, "height"] = "tall"
    frame.to_csv(tmp_path / "bad.csv", index=False)
    said = refused("predict", model, tmp_path / "bad.csv", "--out", out, "--batch", 50, "--strict")
    assert said.startswith(f"{tmp_path / 'bad.csv'}, row 141 (line 142), 'tall': column 'height'")
    assert out.read_text() == "earlier\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "p.csv"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
def test_memory_does_not_grow_with_the_table(tmp_path, warm):
    """Four times the rows, in one row group, in the same memory, but not when all rows are one batch."""
    rng = np.random.default_rng(0)
    values = pd.DataFrame(rng.normal(size=(400_000, 20)), columns=[f"x{j}" for j in range(20)])
    values["y"] = np.where(values["x0"] > 0, "plus", "minus")
    for name, n in (("train", 200), ("small", 100_000), ("large", 400_000)):
        values.head(n).to_parquet(tmp_path / f"{name}.parquet")
    options = ("--label", "y", "--model", "lgbm", "--rounds", 5, "--out", tmp_path / "model")
    accepted("fit", tmp_path / "train.parquet", *options)
    # getrusage's peak would be at least that of this process, which a child inherits
    code = (
        "import sys; from usboost.cli.app import app; app(sys.argv[1:], standalone_mode=False); "
        "print(*[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])"
    )

    def peak(table: str, batch: int) -> float:
        out = tmp_path / f"{table}-{batch}.parquet"
        command = ["predict", tmp_path / "model", tmp_path / f"{table}.parquet", "--out", out]
        words = ["-c", code, *map(str, command), "--batch", str(batch)]
        return int(warm.printed(words, tmp_path).split()[-1]) / 1024  # MiB

    small, large, at_once = peak("small", 4096), peak("large", 4096), peak("small", 100_000)
    assert large < small + 25
    assert at_once > small + 40
    found = [pd.read_parquet(tmp_path / f"small-{batch}.parquet") for batch in (4096, 100_000)]
    pd.testing.assert_frame_equal(*found)


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """A model of 200 rows without images, with a column of dates, and their table."""
    folder = tmp_path_factory.mktemp("explained")
    frame = numbers(200).assign(day=pd.date_range("2020-01-01", periods=200))
    frame.to_csv(folder / "table.csv", index=False)
    given = ("--label", "kind", "--model", "linear_trees", "--rounds", 10, "--out", folder / "model")
    accepted("fit", folder / "table.csv", *given)
    return folder / "model", folder / "table.csv"


def test_the_columns_sum_to_the_log_odds_of_the_answer(explained):
    model = MultimodalClassifier.load(explained[0])
    frame = pd.read_csv(explained[1]).drop(columns="kind")
    found = model.explain(frame.head(20), against=frame)
    assert list(found) == ["height", "width", "colour", "day", "mean"]
    p = model.predict_proba(frame.head(20))
    margin = np.log(p.max(axis=1) / p.min(axis=1))
    np.testing.assert_allclose(found.sum(axis=1), margin, atol=1e-4)
    # the label depends on height most, and on width not at all
    assert found["height"].abs().mean() > 5 * found["width"].abs().mean()


def test_a_number():
    frame = numbers(150).drop(columns="kind").dropna()
    model = MultimodalRegressor("crossed", rounds=10).fit(frame.drop(columns="height"), 10 * frame["height"])
    found = model.explain(frame)
    np.testing.assert_allclose(found.sum(axis=1), model.predict(frame), atol=1e-3)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_command_names_the_columns_that_say_most(explained, tmp_path, form):
    model, table = explained
    out = tmp_path / f"p.{form}"
    accepted("predict", model, table, "--explain", "--keep", "height", "--out", out)
    found = pd.read_parquet(out) if form == "parquet" else pd.read_csv(out)
    assert list(found) == ["label", "p_no", "p_yes", "why", "height"]
    assert all(re.fullmatch(r"(\w+ [+-]\d+\.\d\d(; |$))+", each) for each in found["why"])
    sure = found.loc[found["height"].idxmax()]
    assert sure["label"] == "yes" and sure["why"].startswith("height +")


def test_one_row_is_compared_with_others(explained, tmp_path):
    model, table = explained
    pd.read_csv(table).head(1).to_csv(tmp_path / "one.csv", index=False)
    said = refused("predict", model, tmp_path / "one.csv", "--explain", "--out", tmp_path / "p.csv")
    assert "one.csv has 1 row, too few" in said and "--against" in said
    given = ("predict", model, tmp_path / "one.csv", "--explain", "--against", table)
    accepted(*given, "--out", tmp_path / "p.csv")
    assert "height" in pd.read_csv(tmp_path / "p.csv")["why"][0]


def test_a_model_that_cannot_be_explained(explained, tmp_path):
    table = explained[1]
    given = ("--label", "kind", "--model", "logistic", "--out", tmp_path / "m")
    accepted("fit", table, *given)
    said = refused("predict", tmp_path / "m", table, "--explain", "--out", tmp_path / "p.csv")
    assert said.startswith("single rows of logistic cannot be explained")
    accepted("report", tmp_path / "m", table, "--out", tmp_path / "r.html")
    assert "Single rows explained" not in (tmp_path / "r.html").read_text()
    refuses("logistic", MultimodalClassifier.load(tmp_path / "m").explain, pd.read_csv(table))


def test_the_report_explains_a_right_a_wrong_and_an_uncertain_row(explained, tmp_path):
    model, table = explained
    accepted("report", model, table, "--out", tmp_path / "r.html")
    loaded, text = bundle.load(model), (tmp_path / "r.html").read_text()
    scored = score_table(loaded, table, "kind")
    kinds = dict(three_rows(loaded, scored))
    answers = scored.predicted.argmax(axis=1)
    assert list(kinds) == ["right", "wrong", "uncertain"]
    assert answers[kinds["right"]] == scored.labels[kinds["right"]]
    assert answers[kinds["wrong"]] != scored.labels[kinds["wrong"]]
    assert scored.predicted[kinds["uncertain"]].max() == scored.predicted.max(axis=1).min()
    for kind, row in kinds.items():
        shown = text[text.index(f"{kind}, row {row + 1}") :]
        margin = np.log(scored.predicted[row].max() / scored.predicted[row].min())
        assert re.search(r"margin</th><td></td><td>(.*?)<", shown)[1] == f"{margin:.2f}"


@pytest.mark.slow
def test_images_are_one_of_the_columns(demo, tmp_path):
    given = (*ROLES, "--model", "2wl_ridge", "--finetune", "none", "--rounds", 4, "--out", tmp_path / "m")
    accepted("fit", demo, *given)
    assert names_of(bundle.load(tmp_path / "m"))[-1] == "images (image)"
    found = MultimodalClassifier.load(tmp_path / "m", images_root=demo.parent)
    frame = pd.read_csv(demo)
    explained = found.explain(frame)
    p = np.log(found.predict_proba(frame))
    margin = 1.5 * (p.max(axis=1) - p.mean(axis=1))  # of three classes
    np.testing.assert_allclose(explained.sum(axis=1), margin, atol=1e-3)
    columns = explained.drop(columns="mean").abs().mean()
    assert columns.idxmax() == "images (image)"  # the batch shows in the image
    # one whose images do not help does not read them
    frame["image"] = frame["image"].sample(frac=1.0, random_state=0).to_numpy()
    frame.to_csv(demo.parent / "shuffled.csv", index=False)
    given = (*ROLES, "--preset", "fast", "--finetune", "none", "--rounds", 4, "--out", tmp_path / "shuffled")
    accepted("fit", demo.parent / "shuffled.csv", *given)
    left_out = bundle.load(tmp_path / "shuffled")
    assert left_out.model.left_out_ and names_of(left_out) == tuple(left_out.card.columns)

"""The page about a model on labelled rows."""

import base64
import io
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.fit.conftest import ROLES, accepted, numbers, refused, run
from tests.report import Page
from usboost.evaluation.intervals import intervals
from usboost.evaluation.metrics import score
from usboost.evaluation.ranking import metric_name, number
from usboost.fit import bundle
from usboost.fit.predict import score_table
from usboost.models.inspection.inspect import calibration, expected_calibration_error
from usboost.report.importance import permutation
from usboost.report.rows import worst
from usboost.table.demo import write_demo


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """60 rows that the model has not seen."""
    folder = tmp_path_factory.mktemp("fresh")
    write_demo(folder, rows_train=40, rows_test=10, seed=7)
    return folder / "table.csv"


@pytest.mark.slow
def test_fit_predict_report_agree(model, fresh, tmp_path):
    accepted("report", model, fresh, "--label", "batch", "--out", tmp_path / "r.html")
    accepted("predict", model, fresh, "--out", tmp_path / "p.parquet", "--keep", "batch")
    found = pd.read_parquet(tmp_path / "p.parquet")
    page = Page((tmp_path / "r.html").read_text())
    expected = score(
        found["batch"].map({"mixed": 0, "plates": 1, "wedges": 2}).to_numpy(),
        found[["p_mixed", "p_plates", "p_wedges"]].to_numpy(),
    )
    for value in expected.values():
        assert f"{value:.4f}" in page.text
    counts = pd.crosstab(found["batch"], found["label"])
    cells = re.findall(r'--share: [\d.]+"(?: class="right")?>(\d+)<small>', (tmp_path / "r.html").read_text())
    assert [int(cell) for cell in cells] == counts.reindex(columns=counts.index).to_numpy().ravel().tolist()
    assert "the table that the model was trained on" not in page.text


def large(html: str) -> dict[str, str]:
    """The large scores of a page by their name."""
    return dict(re.findall(r"<li>([^<]+)<b>([^<]+)</b>", html.partition("</ul>")[0]))


@pytest.mark.slow
def test_large_are_the_scores_of_rows_that_the_model_has_not_seen(model, demo, fresh, tmp_path):
    run("report", model, demo, "--out", tmp_path / "own.html")
    run("report", model, fresh, "--out", tmp_path / "fresh.html")
    loaded = bundle.load(model)
    own, other = ((tmp_path / f"{name}.html").read_text() for name in ("own", "fresh"))
    held = {metric_name(name): number(value) for name, value in loaded.card.scores.items()}
    seen = score_table(loaded, demo, "batch")
    scores = score(seen.labels, seen.predicted)
    shown = large(own)
    assert shown == {name: held[name] for name in shown} and len(shown) == 4
    for name, value in scores.items():
        assert f"{number(value)} on all of these" in own
        assert f"{metric_name(name)} {number(value)} (prior" in Page(own).text
    assert "Large are the validation scores" in Page(own).text
    new = score_table(loaded, fresh, "batch")
    assert large(other) == {metric_name(k): number(v) for k, v in score(new.labels, new.predicted).items()}


@pytest.mark.slow
def test_the_worst_rows_are_shown_with_their_images(model, fresh, tmp_path):
    run("report", model, fresh, "--out", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    scored = score_table(bundle.load(model), fresh, "batch")
    truth = scored.predicted[np.arange(60), scored.labels]
    wrong = scored.predicted.argmax(axis=1) != scored.labels
    worst = min(np.flatnonzero(wrong), key=lambda k: truth[k])
    first = re.search(r"<dt>row</dt><dd>(\d+)</dd><dt>weight</dt><dd>(.*?)</dd>", text)
    table = pd.read_csv(fresh, dtype=str, keep_default_na=False)
    assert first.groups() == (str(worst + 1), table["weight"][worst])
    shown = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="image of row (\d+) in image', text)
    assert [int(row) for _, row in shown[:2]] == [worst + 1] * 2
    brought, read = (Image.open(io.BytesIO(base64.b64decode(encoded))) for encoded, _ in shown[:2])
    original = Image.open(fresh.parent / table["image"][worst])
    assert np.array_equal(np.asarray(brought), np.asarray(original.convert(brought.mode)))
    assert np.array_equal(np.asarray(read).transpose(2, 0, 1), scored.views["U"].pixels[worst])
    assert f'<p class="column">{table["image"][worst]}</p>' in text
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    width, height = original.size
    assert captions[:2] == [f"as brought, {width} × {height}", "as read, 32 × 32"]
    assert "where the model looks" not in text  # nobody asked


def test_self_contained_and_escaped(tmp_path):
    frame = numbers(80)
    frame["kind"] = frame["kind"].map({"no": "<script>alert(1)</script>", "yes": "a&b"})
    frame = frame.rename(columns={"height": '<img src="http://x/">'})
    frame.to_parquet(tmp_path / "t.parquet")
    options = ("--label", "kind", "--model", "lgbm", "--rounds", 1, "--out", tmp_path / "m")
    accepted("fit", tmp_path / "t.parquet", *options)
    accepted("report", tmp_path / "m", tmp_path / "t.parquet", "--out", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    page = Page(text)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "iframe", "object"})
    sources = [attributes["src"] for _, attributes in page.tags if "src" in attributes]
    assert all(source.startswith("data:") for source in sources)
    assert "http" not in "".join(
        value or "" for _, attrs in page.tags for k, value in attrs.items() if k != "http-equiv"
    )
    assert "<script>alert(1)</script>" in page.text and "a&b" in page.text
    assert "the table that the model was trained on" in page.text


def test_unknown_labels_are_refused(model, fresh, tmp_path):
    frame = pd.read_csv(fresh)
    frame["batch"] = frame["batch"].where(frame.index != 50, "cubes")
    path = fresh.parent / "cubes.csv"
    frame.to_csv(path, index=False)
    out = ("--out", tmp_path / "r.html")
    said = refused("report", model, path, *out)
    assert said.startswith(f"{path}, row 51 (line 52): 'batch' is 'cubes'") and "mixed, plates" in said
    frame["batch"] = None
    frame.to_csv(path, index=False)
    assert "column 'batch' is empty; name the column of labels" in refused("report", model, path, *out)
    assert "lacks column 'sort'" in refused("report", model, path, *out, "--label", "sort")
    assert "must be an .html file" in refused("report", model, fresh, "--out", tmp_path / "r.pdf")
    assert not (tmp_path / "r.html").exists()


def test_rows_without_a_label_are_left_out(model, fresh, tmp_path):
    frame = pd.read_csv(fresh)
    gaps = [0, 17, 50]
    unlabelled = fresh.parent / "unlabelled.csv"
    frame.assign(batch=frame["batch"].where(~frame.index.isin(gaps))).to_csv(unlabelled, index=False)
    result = run("report", model, unlabelled, "--out", tmp_path / "a.html")
    assert result.stderr == "note: 3 rows have no 'batch' and are not scored\n"
    assert result.stdout.endswith(": 57 rows\n")
    without = fresh.parent / "without.csv"
    frame.drop(index=gaps).to_csv(without, index=False)
    expected = score_table(bundle.load(model), without, "batch")
    found = score_table(bundle.load(model), unlabelled, "batch")
    assert found.unlabelled == 3 and found.rows.tolist() == sorted(set(range(60)) - set(gaps))
    assert found.without == expected.without
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_allclose(found.predicted, expected.predicted, rtol=0, atol=1e-6)
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    assert "3 rows have no batch and are not scored" in Page((tmp_path / "a.html").read_text()).text
    # the worst rows are those of the file, with their own images
    loaded = bundle.load(model)
    for one, other in zip(worst(loaded, found), worst(loaded, expected), strict=True):
        assert one["number"] == found.rows[other["number"] - 1] + 1
        assert one["images"] == other["images"] and one["columns"] == other["columns"]


def test_a_score_that_rows_do_not_define_is_said_to_be_so(model, fresh, tmp_path):
    frame = pd.read_csv(fresh)
    some = fresh.parent / "some.csv"
    frame[frame["batch"] != frame["batch"].iloc[0]].to_csv(some, index=False)
    accepted("report", model, some, "--out", tmp_path / "s.html")
    text = Page((tmp_path / "s.html").read_text()).text
    assert "AUC–not defined on these rows" in text and "– to –" not in text


def test_rows_without_a_image_are_counted(model, fresh, tmp_path):
    frame = pd.read_csv(fresh)
    frame.loc[[2, 9], "image"] = None
    path = fresh.parent / "gaps.csv"
    frame.to_csv(path, index=False)
    result = run("report", model, path, "--out", tmp_path / "r.html")
    assert "written" in result.stdout and "60 rows" in result.stdout
    assert result.stderr == "note: 2 of 60 rows have no image\n"
    assert "2 of 60 rows have no image in image" in Page((tmp_path / "r.html").read_text()).text
    scored = score_table(bundle.load(model), path, "batch")
    assert scored.without == {"image": 2}
    assert np.flatnonzero(scored.views["U"].absent).tolist() == [2, 9]
    whole = score_table(bundle.load(model), fresh, "batch")
    assert whole.views["U"].absent is None
    kept = ~scored.views["U"].absent
    assert np.allclose(scored.predicted[kept], whole.predicted[kept], rtol=0, atol=1e-6)


def test_intervals_are_those_of_a_share():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    right = rng.random(400) < 0.8
    p = np.where(right == (labels == 1), 0.9, 0.1)
    found = intervals(labels, np.column_stack([1 - p, p]), draws=400)
    value, low, high = found["accuracy"]
    assert value == right.mean()
    half = 1.96 * np.sqrt(value * (1 - value) / 400)
    assert (value - low, high - value) == pytest.approx((half, half), rel=0.2)
    for value, low, high in found.values():
        assert low < value < high
    assert found == intervals(labels, np.column_stack([1 - p, p]), draws=400)


def test_intervals_without_a_class():
    found = intervals(np.zeros(20, int), np.full((20, 2), 0.5), draws=50)
    assert np.isnan(found["auc"]).all()
    assert found["log_loss"] == pytest.approx((np.log(2),) * 3)


def test_importance_and_calibration(model, fresh, tmp_path):
    run("report", model, fresh, "--out", tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text())
    loaded = bundle.load(model)
    scored = score_table(loaded, fresh, "batch")
    found = permutation(loaded, scored.views, scored.labels)
    assert [row["name"] for row in found["rows"][:2]] == ["images (image)", "all 4 columns"]
    assert {row["name"] for row in found["rows"][2:]} == set(loaded.card.columns)
    for row in found["rows"]:
        assert "".join(change + spread for change, spread in row["cells"].values()) in page.text
    shares = dict(zip(loaded.model.feature_names_, loaded.model.feature_importances_, strict=True))
    for name, share in shares.items():
        shown = f"{name}{share:.1%}" in page.text
        assert shown or f"{share:.1%}" == "0.0%"  # such parts are named in one line
    error = expected_calibration_error(calibration(scored.labels, scored.predicted))
    assert f"Expected calibration error: {error:.3f}" in page.text
    drawings = [a["src"] for tag, a in page.tags if tag == "img" and a["src"].startswith("data:image/svg")]
    assert len(drawings) == 2 + bool(loaded.model.stages_)  # contributions are of rounds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "images", "expected"),
    [
        ("lgbm", True, ["images (embeddings)", "all 4 columns", "Split gain"]),
        ("1wl_u", True, ["images (image)"]),
        ("bfv_dnn", False, ["Each column’s share", "height_missing"]),
        ("2wl", False, ["Each column’s share"]),
        ("baseline", False, []),
    ],
)
def test_every_kind_of_model(name, images, expected, demo, tmp_path):
    if images:
        table, roles = demo, ROLES
    else:
        table, roles = tmp_path / "t.parquet", ("--label", "kind")
        numbers(80).to_parquet(table)
    out = ("--out", tmp_path / "m")
    accepted("fit", table, *roles, "--model", name, "--rounds", 2, *out)
    accepted("report", tmp_path / "m", table, "--out", tmp_path / "r.html")
    text = Page((tmp_path / "r.html").read_text()).text
    for words in expected:
        assert words in text
    assert "Permutation importance" in text

"""What is kept of a model, written, read again and drawn; what the figures draw."""

import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from tests.conftest import make_views, refuses, rewritten
from tests.report import MODELS, write_cell, write_results
from tests.small_models import boosting, lgbm
from usboost.evaluation.ranking import number
from usboost.learners.tree_learner import TreeLearner
from usboost.models import catalogue
from usboost.models.methods.two_weak_learner import TwoWeakLearnerRegressor
from usboost.report import figures
from usboost.report import model_figures as drawn
from usboost.report.inspection import FILE, FOLDER, inspect, read, write
from usboost.report.pages import write_pages
from usboost.report.results import read_trace

HOSTILE = ["<script>alert(1)</script>", "$x^2$ & co"]
# one pixel
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    views, y = make_views(n=200)
    fitted = boosting(validation_fraction=0, patience=None).fit(views, y)
    rows = pd.DataFrame({"<b>age</b>": np.arange(200.0), "note": ["x" * 500] * 200})
    found = inspect(fitted, views, y, HOSTILE)
    folder = tmp_path_factory.mktemp("inspection") / "kept"
    write(found, folder, rows, {int(found.tables["worst"]["row"][0]): PNG})
    return folder


@pytest.fixture
def kept(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(written, tmp_path / "kept"))


def test_what_is_written_is_what_is_shown(kept: Path) -> None:
    page = read(kept)
    assert len(page["figures"]) == 4
    assert all(svg.startswith("<svg") for _, svg in page["figures"])
    assert {path.name for path in kept.glob("*.[ps][nv]g")} == {
        *("contributions.svg", "importance.svg", "calibration.svg", "confusion.svg", "worst-00.png")
    }
    first, *others = page["worst"]
    assert first["image"].startswith("data:image/png;base64,")
    assert all(other["image"] is None for other in others)
    assert {first["true"], first["predicted"]} == set(HOSTILE)
    assert max(len(text) for _, text in first["values"]) == 60
    counts = pd.read_csv(kept / "confusion.csv")
    assert counts.iloc[:, 1:].to_numpy().sum() == 200


def test_a_model_without_rounds_has_what_it_can(tmp_path: Path) -> None:
    views, y = make_views(n_classes=3, n=200)
    assert read(tmp_path) is None  # nothing is kept yet
    found = inspect(lgbm().fit(views, y), views, y, ["a", "b", "c"])
    write(found, tmp_path)
    page = read(tmp_path)
    assert len(page["figures"]) == 3
    assert len(found.tables["contributions"]) == 0 and set(found.tables["importance"]["view"]) == {"U", "S"}


def test_of_a_number_what_is_written_is_what_is_shown(tmp_path: Path) -> None:
    views, _ = make_views(n=200)
    y = 100.0 + 9 * views["S"].numeric[:, 0]
    fitted = TwoWeakLearnerRegressor({"S": TreeLearner()}, n_rounds=3).fit(views, y)
    predicted = fitted.predict(views)
    predicted[7] += 500
    found = inspect(fitted, views, y, [], label="$price$", predicted=predicted, sample=np.arange(50))
    write(found, tmp_path, pd.DataFrame({"age": np.arange(200)}), {7: PNG})
    page = read(tmp_path)
    assert [name for name, _ in page["figures"]] == [
        *("Contribution of each view", "Permutation importance of each view"),
        *("Predicted against true", "Residuals"),
    ]
    assert {path.stem for path in tmp_path.glob("*.svg")} == {
        *("contributions", "importance", "predicted", "residuals")
    }
    first = page["worst"][0]
    assert (first["values"], first["true"], first["p_true"]) == ([("age", "7")], number(y[7]), "")
    assert first["p_predicted"] == f"+{number(predicted[7] - y[7])}" and first["image"]
    errors = np.abs(pd.read_csv(tmp_path / "worst.csv").eval("predicted - true"))
    np.testing.assert_allclose(errors, np.sort(np.abs(predicted - y))[::-1][:12], rtol=1e-3)


@pytest.mark.parametrize("name", [FILE, "calibration.svg", "worst-00.png"])
@pytest.mark.parametrize(
    "content", [b"\xff\x00", b"{", b"[]", b'{"figures": {}}', b'{"figures": {}, "worst": [{}]}', None]
)
def test_a_damaged_file_gets_one_sentence(kept: Path, name: str, content: bytes | None) -> None:
    path = kept / name
    if content is None:
        path.unlink()
        if name == FILE:
            assert read(kept) is None
            return
    else:
        path.write_bytes(content)
    # a browser shows what it can of a picture
    if name == FILE or content is None or (name.endswith("svg") and content == b"\xff\x00"):
        refuses("train this model again", read, kept)
    else:
        assert len(read(kept)["figures"]) == 4


def test_a_path_cannot_leave_the_folder(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    with rewritten(kept / FILE) as document:
        document["worst"][0]["image"] = "../secret.png"
    refuses("is damaged", read, kept)


def test_a_page_escapes_what_comes_from_the_data(kept: Path, tmp_path: Path) -> None:
    scores = {split: {"f1": 0.5} for split in ("val", "test")}
    write_cell(tmp_path / "results", "ct", "2wl", [{"seed": 0, "scores": scores}], "demo")
    kept.rename(tmp_path / "results/ct/2wl/seed-0" / FOLDER)
    places = tmp_path / "results", tmp_path / "prepared", tmp_path / "out"
    page = write_pages(*places, datasets=["ct"], models=["2wl"]).read_text()
    assert "Inspection of the models" in page and page.count('<details class="model">') == 1
    assert "<script>alert" not in page
    assert "&lt;b&gt;age&lt;/b&gt;" in page


def _lines(figure) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_xydata() for line in figure.axes[0].get_lines()}


def test_one_round_is_a_point_that_can_be_seen() -> None:
    frame = pd.DataFrame({"round": [1, 1], "view": ["U", "S"], "contribution": [0.5, 2.0]})
    figure = drawn.contributions(frame, "one")
    assert {name: xy.tolist() for name, xy in _lines(figure).items()} == {"U": [[1, 0.5]], "S": [[1, 2.0]]}
    assert all(line.get_marker() == "o" for line in figure.axes[0].get_lines())
    figure = drawn.contributions(pd.DataFrame({"round": [0], "view": "start", "contribution": 2.0}), "alone")
    assert {name: xy.tolist() for name, xy in _lines(figure).items()} == {"start": [[0, 2.0]]}


@pytest.mark.parametrize("rounds", [150, 151, 2100])
def test_many_rounds_are_drawn_as_means_of_neighbours(rounds: int) -> None:
    values = np.random.default_rng(0).random(rounds)
    frame = pd.DataFrame({"round": np.arange(1, rounds + 1), "view": "U", "contribution": values})
    line = _lines(drawn.contributions(frame, "many"))["U"]
    together = -(-rounds // 150)
    blocks = [values[k : k + together].mean() for k in range(0, rounds, together)]
    assert len(line) <= 150
    np.testing.assert_allclose(line[:, 1], blocks)


def test_a_view_that_is_not_read_costs_nothing() -> None:
    rows = [(view, metric, 0.1 * (view == "S"), 0.0) for view in "US" for metric in ("f1", "log_loss")]
    figure = drawn.importance(pd.DataFrame(rows, columns=["view", "metric", "mean", "std"]), "cost")
    assert [[text.get_text() for text in ax.texts] for ax in figure.axes] == [["nothing"], ["nothing"]]
    assert all(ax.yaxis_inverted() for ax in figure.axes)


def test_given_probabilities_are_not_computed_again() -> None:
    views, y = make_views(n=200)
    fitted = lgbm().fit(views, y)
    given = np.tile([0.9, 0.1], (200, 1))
    found = inspect(fitted, views, y, ["a", "b"], predicted=given, sample=np.arange(50), n_repeats=2)
    assert found.confusion[:, 0].sum() == 200
    assert found.tables["calibration"]["count"].tolist() == [200]
    assert set(found.tables["worst"]["p_true"]) == {0.1} and (y[found.tables["worst"]["row"]] == 1).all()
    alone = inspect(fitted, views[:50], y[:50], ["a", "b"], n_repeats=2)
    pd.testing.assert_frame_equal(found.tables["importance"], alone.tables["importance"])


def test_the_other_papers_cells_are_shown_too(kept: Path, tmp_path: Path) -> None:
    for dataset, model in (("ct", "2wl"), ("digits_rows", "earlyboost")):
        record = {"seed": 0, "scores": {split: {"f1": 0.5, "accuracy": 0.5} for split in ("val", "test")}}
        write_cell(tmp_path / "results", dataset, model, [record], "demo")
    kept.rename(tmp_path / "results/digits_rows/earlyboost/seed-0" / FOLDER)
    places = tmp_path / "results", tmp_path / "prepared", tmp_path / "out"
    cells = [("digits_rows", "earlyboost")]
    page = write_pages(*places, datasets=["ct"], models=["2wl"], cells=cells).read_text()
    shown = page[page.index('<h2 id="models">') : page.index('<h2 id="others">')]
    assert shown.count('<details class="model">') == 1


@pytest.mark.parametrize(("start", "scale"), [(1.5, "linear"), (20.0, "log")])
def test_the_start_is_a_point_at_round_0_that_leaves_the_rounds_room(start: float, scale: str) -> None:
    rounds = np.arange(1, 41)
    frame = pd.DataFrame(
        {"round": [0, *rounds], "view": ["start", *["S"] * 40], "contribution": [start, *(1 / rounds)]}
    )
    figure = drawn.contributions(frame, "start")
    lines, ax = _lines(figure), figure.axes[0]
    assert lines["start"].tolist() == [[0, start]]
    np.testing.assert_allclose(lines["S"], np.column_stack([rounds, 1 / rounds]))
    assert ax.get_yscale() == scale and ("logarithmic" in ax.get_ylabel()) == (scale == "log")
    assert [text.get_text() for text in ax.texts] == [f"{start:g}"]
    low, high = ax.get_ylim()
    assert low <= 1 / 40 and high > start


def _trace(seed: int, rounds: int, **columns: float) -> pd.DataFrame:
    t = np.arange(1, rounds + 1)
    frame = pd.DataFrame({"seed": seed, "round": t, "seconds": 60.0 * t, "f1_val": 0.5 + 0.01 * t})
    return frame.assign(best=t == rounds - 1, epsilon=np.nan, delta=np.nan, risk_train=np.nan, **columns)


def _legend(figure: figures.Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    folder = tmp_path_factory.mktemp("results")
    write_results(folder, datasets=["mi"], models=(*MODELS, "lgbm"))
    return {model: read_trace(folder, "mi", model) for model in (*MODELS, "lgbm")}


def test_every_figure_shows_its_models(traces: dict[str, pd.DataFrame]) -> None:
    drawn = figures.draw(traces, "MI", baseline=0.78, ceiling=0.91)
    lines = ["Baseline, best round", "1 − label noise"]
    assert {name: _legend(figure) for name, figure in drawn.items()} == {
        "order": ["2WL", "2WL2O", *lines],
        "learners": ["2WL", "2WL2O", "1WL_S", "1WL_U", *lines],
        "steps": ["2WL", "2WL_Fix", "2WL2O", "2WL2O_Fix", *lines],
        "others": ["Baseline", "BFV+DNN", "LightGBM on all", *lines],
        "epsilon_delta": ["2WL", "2WL_Fix", "2WL2O", "2WL2O_Fix", "1WL_S", "1WL_U", "LightGBM on all"],
        "risk_boosting": ["2WL", "2WL_Fix", "2WL2O", "2WL2O_Fix", "1WL_S", "1WL_U"],
        "risk_others": ["Baseline", "BFV+DNN", "LightGBM on all"],
    }


def test_runtime_is_in_minutes_and_the_best_round_is_marked() -> None:
    figure = figures.performance({"2wl": _trace(0, 10)}, "CT")
    line, marker = figure.axes[0].get_lines()
    assert np.asarray(line.get_xdata()).tolist() == list(range(1, 11))
    assert np.asarray(marker.get_xdata()).tolist() == [9]
    assert np.asarray(marker.get_ydata()).tolist() == pytest.approx([0.59])


def test_the_median_joins_the_rounds_all_seeds_reached() -> None:
    seeds = [_trace(0, 10), _trace(1, 6).assign(f1_val=0.7, seconds=30.0), _trace(2, 8)]
    figure = figures.performance({"2wl": pd.concat(seeds, ignore_index=True)}, "CT")
    lines = figure.axes[0].get_lines()
    thick = max(lines, key=lambda line: line.get_linewidth() * (line.get_marker() == "None"))
    assert np.asarray(thick.get_xdata()).tolist() == [1, 2, 3, 4, 5, 6]
    assert np.asarray(thick.get_ydata()).tolist() == pytest.approx(0.5 + 0.01 * np.arange(1, 7))


def test_what_is_finite_is_drawn() -> None:
    traces = {"2wl": _trace(0, 5), "2wl2o": _trace(0, 5).assign(seconds=np.nan)}
    drawn = figures.draw(traces, "CT")
    assert set(drawn) == {"order", "learners", "steps"} and _legend(drawn["order"]) == ["2WL"]
    refuses("2wl, 2wl2o has finite values of epsilon or delta", figures.steps, traces, "CT")
    figure = figures.steps({"1wl_u": _trace(0, 5).assign(epsilon=0.3)}, "CT")
    upper, lower = (len(ax.get_lines()) for ax in figure.axes)
    assert upper > lower == len(figure.axes[1].lines)
    assert _legend(figure) == ["1WL_U"]


def test_no_two_models_of_a_figure_have_the_same_colour() -> None:
    models = [*catalogue.CATALOGUE, *(f"mine_{k}" for k in range(12))]
    figure = figures.performance({model: _trace(0, 3) for model in models}, "CT")
    colours = [line.get_color() for line in figure.axes[0].get_lines()[::2]]
    assert len(colours) == len(models) == len(set(colours))


def test_a_long_model_does_not_rule_the_axes() -> None:
    traces = {"baseline": _trace(0, 10), "lgbm": _trace(0, 300)}
    traces = {model: trace.assign(risk_val=0.5) for model, trace in traces.items()}
    for figure in (figures.performance(traces, "CT"), figures.risk(traces, "CT")):
        assert figure.axes[-1].get_xscale() == "log" and "logarithmic" in figure.axes[-1].get_xlabel()
    del traces["lgbm"]
    assert figures.performance(traces, "CT").axes[0].get_xscale() == "linear"


@pytest.mark.parametrize(("model", "bound"), [("2wl2o", -100.0), ("2wl", 10.0), ("crossed", 0.1 * 2.0)])
def test_a_step_at_the_bound_of_its_search_is_marked(model: str, bound: float) -> None:
    trace = _trace(0, 5).assign(epsilon=[0.3, 0.4, bound, 0.25, 0.2001], delta=0.3)
    figure = figures.steps({model: trace}, "CT")
    assert _legend(figure)[-1] == "step at search bound"
    rings = [line for line in figure.axes[0].get_lines() if line.get_markerfacecolor() == "none"]
    assert [np.asarray(ring.get_xydata()).tolist() for ring in rings] == [[[3.0, bound]]]
    assert len(_legend(figures.steps({model: trace.assign(epsilon=0.3)}, "CT"))) == 1


def test_long_traces_are_thinned_to_their_ends() -> None:
    figure = figures.performance({"2wl": _trace(0, 5000)}, "CT")
    x = np.asarray(figure.axes[0].get_lines()[0].get_xdata())
    assert len(x) == 300 and (x[0], x[-1]) == (1, 5000)


def test_svg_is_one_element_and_repeats_itself(traces: dict[str, pd.DataFrame]) -> None:
    first, second = (figures.to_svg(figures.steps(traces, "MI")) for _ in range(2))
    assert first == second
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert "prefers-color-scheme: dark" in first and "matplotlib.org" not in first


def test_names_that_look_like_formulas() -> None:
    assert "<svg" in figures.to_svg(figures.performance({"$x_{": _trace(0, 5)}, "a $\\broken{ title"))

"""What the figures draw, read back from the figures."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from tests.conftest import refuses
from tests.report import MODELS, write_results
from usboost.models import catalogue
from usboost.report import figures
from usboost.report.results import read_trace


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
    thick = max(
        figure.axes[0].get_lines(), key=lambda line: line.get_linewidth() * (line.get_marker() == "None")
    )
    assert np.asarray(thick.get_xdata()).tolist() == [1, 2, 3, 4, 5, 6]
    assert np.asarray(thick.get_ydata()).tolist() == pytest.approx(0.5 + 0.01 * np.arange(1, 7))


def test_models_without_finite_values_are_left_out() -> None:
    traces = {"2wl": _trace(0, 5), "2wl2o": _trace(0, 5).assign(seconds=np.nan)}
    drawn = figures.draw(traces, "CT")
    assert set(drawn) == {"order", "learners", "steps"} and _legend(drawn["order"]) == ["2WL"]
    refuses("2wl, 2wl2o has finite values of epsilon or delta", figures.steps, traces, "CT")


def test_one_step_is_enough_for_the_step_figure() -> None:
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


def test_png_and_names_that_look_like_formulas() -> None:
    png = figures.to_png(figures.performance({"$x_{": _trace(0, 5)}, "a $\\broken{ title"))
    assert png.startswith(b"\x89PNG\r\n\x1a\n")

"""The examples run as scripts and leave nothing; the method in one page is the library's."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.tables import two
from tests.warm import Warm
from usboost import NetworkLearner, TreeLearner, TwoWeakLearnerClassifier
from usboost.boosting.steps import Newton
from usboost.losses.exponential import CodewordExponential

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"read_a_run"}  # needs a run of the pipeline: tests/flows/test_read_a_run.py

NUMBER = r"(\d+\.\d+)"
SAME = r"read back, it predicts the same: True"


def printed(name: str, folder: Path, warm: Warm) -> str:
    text = warm.printed([str(ROOT / f"examples/{name}.py")], folder)
    assert list(folder.iterdir()) == []
    return text


def numbers(pattern: str, text: str) -> list[float]:
    return [float(each) for each in re.findall(pattern.replace("#", NUMBER), text)]


@pytest.mark.slow
def test_nano(tmp_path: Path, warm: Warm) -> None:
    text = printed("nano", tmp_path, warm)
    risks = numbers("risk #", text)
    assert len(risks) == 20 and risks == sorted(risks, reverse=True)  # an exact step never lets it rise
    assert numbers("accuracy #", text)[-1] > 0.85
    assert max(numbers("says alone: #", text)) < 0.6


@pytest.mark.slow
def test_table_with_images(tmp_path: Path, warm: Warm) -> None:
    text = printed("table_with_images", tmp_path, warm)
    assert numbers("with images: #", text)[0] > numbers("without: #", text)[0] + 0.1
    assert re.search(SAME, text)


@pytest.mark.slow
def test_own_views(tmp_path: Path, warm: Warm) -> None:
    text = printed("own_views", tmp_path, warm)
    assert numbers("on other samples: #", text)[0] > 0.8
    assert re.search("steps: sound .*, settings .*, all ", text) and re.search(SAME, text)


def test_own_learner(tmp_path: Path, warm: Warm) -> None:
    text = printed("own_learner", tmp_path, warm)
    assert text.startswith("it does what usboost asks of a learner\n")
    (trees,), (cells,) = numbers("trees of places: #", text), numbers("cells of places: #", text)
    assert cells > trees > 0.8


def test_early_classification(tmp_path: Path, warm: Warm) -> None:
    text = printed("early_classification", tmp_path, warm)
    after = numbers(r"(?m)^ +\d  #$", text)
    assert len(after) == 8 and after[0] < 0.4 < 0.8 < after[7]
    read = numbers(r"(?m)^ +0\.\d +\d\.\d+ +#$", text)
    assert read == sorted(read) and 1 < read[0] < read[2] < 8
    assert re.search(r"a (\d), row by row: \[-1, .*\1\]", text)


def test_each_example_has_its_test_and_its_place_in_the_documentation() -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.py")}
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert names <= tests | ELSEWHERE
    pages = (ROOT / "mkdocs.yml").read_text()
    assert {name for name in names if f"examples/{name}.md" not in pages} == set()


PAGE = Path(__file__).parents[2] / "examples/nano.py"
nano = SimpleNamespace(**runpy.run_path(str(PAGE)))
ROUNDS, SEED = 12, 5


def test_it_is_one_page_and_stands_alone() -> None:
    lines = PAGE.read_text().splitlines()
    assert len(lines) <= 150
    assert not [line for line in lines if "import" in line and "usboost" in line]


def test_the_librarys_rounds_are_the_pages() -> None:
    """Risk, steps and scores of every round; the network's arithmetic is float32, hence the tolerance."""
    (U, S, c), (U_new, S_new, _) = nano.make_data(600, seed=0), nano.make_data(300, seed=1)
    network = NetworkLearner((32,), "sgd", learning_rate=0.2, batch_size=32, epochs=4, device="cpu")
    tree = TreeLearner(max_depth=3, min_samples_leaf=20, engine="sklearn")
    model = TwoWeakLearnerClassifier(
        {"U": network, "S": tree}, n_rounds=ROUNDS, validation_fraction=0, random_state=SEED
    ).fit(two(U, S), c)
    assert len(model.history_) == model.best_round_ == ROUNDS
    f = np.zeros((len(U_new), 4))
    staged = model.staged_predict(two(U_new, S_new))
    for row, answers, (g, h, epsilon, delta, risk) in zip(
        model.history_, staged, nano.boost(U, S, c, ROUNDS, seed=SEED)
    ):
        assert row["risk_train"] == pytest.approx(risk, rel=1e-6)
        assert (row["step_U"], row["step_S"]) == pytest.approx((epsilon, delta), rel=1e-4)
        f += epsilon * g(U_new) + delta * h(S_new)
        np.testing.assert_array_equal(answers, f.argmax(axis=1))
    np.testing.assert_allclose(model.decision_function(two(U_new, S_new)), f, atol=1e-4)


def test_its_formulas_are_the_losses() -> None:
    rng = np.random.default_rng(0)
    f, g, h = rng.normal(size=(3, 50, 4))
    c, loss = rng.integers(0, 4, 50), CodewordExponential.unit(4)
    assert nano.risk(f, c) == pytest.approx(loss.risk(f, c), rel=1e-12)
    np.testing.assert_allclose(nano.negative_gradient(f, c), loss.w(f, c), atol=1e-12)
    steps = nano.best_steps(f, g, h, c)
    np.testing.assert_allclose(steps, Newton().search(loss.line(f, c, [g, h]), 2, 0), atol=1e-6)
    for away in ([1e-3, 0], [-1e-3, 0], [0, 1e-3], [0, -1e-3]):
        epsilon, delta = steps + away
        assert nano.risk(f + epsilon * g + delta * h, c) > nano.risk(f + steps[0] * g + steps[1] * h, c)

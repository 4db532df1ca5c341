"""BNN and Earlyboost beside their peers: answers by hand, and the page against the kept scores."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from benchmarks.study import two_papers
from tests.conftest import refuses

ROOT = Path(__file__).parents[2]


def test_answers_at_a_threshold_by_hand() -> None:
    """Three frames, two sequences: one is sure, and wrong, at the first; the other never is."""
    said = np.array([[[0.9, 0.1], [0.6, 0.4]], [[0.2, 0.8], [0.5, 0.5]], [[0.1, 0.9], [0.3, 0.7]]])
    mean, right, early = two_papers.answered(said, np.array([1, 1]), 0.8, 3)
    assert right == 0.5 and early == pytest.approx((1 / 3 + 1) / 2)
    assert mean == pytest.approx(2 * 0.5 * (1 / 3) / (0.5 + 1 / 3))
    assert two_papers.answered(said, np.array([1, 1]), 0.0, 3)[2] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("frames", "asked"), [(8, 8), (150, 25), (26, 13)])
def test_all_models_may_answer_at_the_same_frames(frames: int, asked: int) -> None:
    found = two_papers._asked(frames)
    assert len(found) == asked and found[-1] == frames and found == sorted(set(found))


def test_the_setting_is_chosen_without_the_test_rows() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    x[:, 0] += 3 * y
    found = two_papers.chosen([DummyClassifier(strategy="prior"), LogisticRegression()], (x, y))
    assert isinstance(found[-1], LogisticRegression)


def test_every_model_has_four_settings_but_the_prior() -> None:
    for models in (two_papers.NETWORKS, two_papers.SEQUENCES):
        assert {name: len(make(0)) for name, make in models.items()} == dict.fromkeys(models, 4) | {
            "prior": 1
        }


def test_the_page_says_what_was_scored() -> None:
    text, kept = (ROOT / two_papers.PAGE).read_text(), pd.read_csv(ROOT / two_papers.SCORES)
    assert two_papers.with_tables(text, kept) == text
    assert two_papers.with_tables(text, kept.assign(accuracy=0.5)) != text


def test_the_share_of_adaboosts_time_is_that_of_the_scores() -> None:
    kept = pd.read_csv(ROOT / two_papers.SCORES)
    spent = kept[kept["frame"] == 0].groupby(["data", "model"])["seconds"].mean()
    data = [name for name, (models, *_) in two_papers.PARTS.items() if models is two_papers.SEQUENCES]
    shares = [f"{spent[name, 'earlyboost'] / spent[name, 'adaboost']:.2f}"[1:] for name in data]
    assert "It takes {}, {} and {} of AdaBoost's time".format(*shares) in (ROOT / two_papers.PAGE).read_text()


def test_run_fits_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores in the repository are not taken for the folder's; a second run has nothing to do."""
    x, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80) % 2
    fits = []

    def settings(seed: int) -> list[DummyClassifier]:
        fits.append(seed)
        return [DummyClassifier(strategy="prior")]

    monkeypatch.setitem(two_papers.NETWORKS, "prior", settings)
    part = ({"prior": settings}, lambda name: iter([((x, y), (x, y))]), two_papers.networks)
    monkeypatch.setitem(two_papers.PARTS, "iris", part)
    for _ in range(2):
        two_papers.run(tmp_path, ["iris"])
    assert fits == [0] and len(pd.read_csv(tmp_path / two_papers.SCORES.name)) == 1
    refuses("iriss", two_papers.run, tmp_path, ["iriss"])

"""The pages of equal trials and of the two papers: by hand, and against the scores that are kept."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from benchmarks.pages import number
from benchmarks.study import two_papers
from benchmarks.study.equal_tables import (
    KEPT,
    PAGES,
    lines,
    log_losses,
    rows_of,
    table_of_results,
    with_tables,
)
from tests.conftest import refuses

ROOT = Path(__file__).parents[2]


def scored(model: str, kind: str, seed: int, log_loss: float, **others: float) -> dict[str, Any]:
    scores = {"auc": 0.9, "accuracy": 0.8, "f1": 0.5, "seconds": 2.0, "milliseconds_a_row": 0.1}
    return {"model": model, "kind": kind, "seed": seed, "log_loss": log_loss, **scores, **others}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ours is better by .1 on each row but every fourth, where it is worse by as much; forty rows."""
    (tmp_path / "losses").mkdir()
    rows = [
        scored("prior", "own", 0, 1.0),
        *(scored("lgbm", "tuned", seed, 0.6) for seed in range(5)),
        *(scored("lgbm", "tunedall", seed, 0.55) for seed in range(5)),
        *(scored("lgbm", "own", seed, 0.7, seconds=12.4) for seed in range(5)),
        *(scored("crossed", "own", seed, 0.52 + 0.01 * seed, seconds=[3, 100, 4][seed]) for seed in range(3)),
        scored("crossed", "ownall", 0, 0.51),
        *(scored("best", "own", seed, [0.49, 0.51][seed], auc=[0.94, 0.96][seed]) for seed in range(2)),
    ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    signs = np.where(np.arange(40) % 4, -1.0, 1.0)
    for row in rows:
        loss = row["log_loss"] + 0.1 * signs * (row["model"] == "crossed")
        np.save(tmp_path / "losses" / f"{row['model']}-{row['kind']}-{row['seed']}.npy", loss * np.ones(40))
    return tmp_path


def test_a_table_by_hand(folder: Path) -> None:
    head, _, *found = table_of_results(folder).splitlines()
    assert head.endswith("| seconds | ms a row | against `lgbm`, tuned |")
    cells = {line.split("|")[1].strip(): [each.strip() for each in line.split("|")[2:-1]] for line in found}
    assert list(cells) == [
        "`best` (two seeds)",
        "`crossed` (three seeds)",
        "`lgbm`, tuned",
        "`lgbm`",
        "`prior`",
    ]
    # an ensemble's fits are to all rows; where a column is of these alone, its first fits are empty
    best = cells["`best` (two seeds)"]
    assert best[:3] == ["", ".500 ± .014", ".950 ± .014"] and best[-1] == "−.050 (−.050 to −.050)"
    # one of three seeds was fitted to all rows; seconds are the median
    crossed = cells["`crossed` (three seeds)"]
    assert crossed[:2] == [".530 ± .010", ".510 (one)"] and crossed[5] == "4.0"
    middle, low, high = (
        float(text.replace("−", "-")) for text in crossed[-1].strip(")").replace(" to ", " (").split(" (")
    )
    assert middle == pytest.approx(0.53 - 0.05 - 0.6, abs=6e-4) and low < middle < high
    assert high - low == pytest.approx(2 * 1.96 * 0.2 * np.sqrt(3 / 16 / 40), rel=0.2)
    # what does not vary has no spread, and one seed of a model that draws nothing is enough
    assert cells["`lgbm`, tuned"][:2] == [".600", ".550"] and cells["`lgbm`, tuned"][-1] == ""
    assert cells["`prior`"][0] == "1.000" and cells["`lgbm`"][5] == "12"


def test_a_seed_that_was_scored_again_counts_once(folder: Path) -> None:
    with (folder / "results.jsonl").open("a") as file:
        file.write(json.dumps(scored("crossed", "own", 2, 0.55)) + "\n")
    table = lines(rows_of(folder / "results.jsonl"), {("lgbm", "tuned"): ""})
    assert (
        table["`crossed` (three seeds)"]["log-loss"]
        == f".533 ± {number(np.std([0.52, 0.53, 0.55], ddof=1), 3)}"
    )


@pytest.mark.parametrize(
    ("value", "digits", "sign", "text"),
    [(0.1234, 3, "", ".123"), (-0.0121, 3, "+", "−.012"), (10.03, 2, "", "10.03"), (0.5, 1, "+", "+.5")],
)
def test_numbers_as_on_the_page(value: float, digits: int, sign: str, text: str) -> None:
    assert number(value, digits, sign) == text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_says_what_was_scored(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert with_tables(page, text) == text


def test_every_case_has_the_mean_of_its_kept_scores() -> None:
    """By hand: the default's fits to all rows of the lesions, and its only fits of 3,000 products."""
    rows = [json.loads(line) for line in (KEPT / "lesions.jsonl").read_text().splitlines()]
    own = [row["log_loss"] for row in rows if (row["model"], row["kind"]) == ("linear_trees", "ownall")]
    assert len(own) == 5
    assert log_losses("lesions")["`linear_trees`"] == (pytest.approx(np.mean(own)), "all")
    assert log_losses("products-3000")["`linear_trees`"][1] == "first"
    # others' models have the better of their own settings and those found
    means = {
        kind: np.mean([row["log_loss"] for row in rows if (row["model"], row["kind"]) == ("xgboost", kind)])
        for kind in ("own", "tuned", "tunedall")
    }
    assert means["tuned"] < means["own"]
    assert log_losses("lesions")["`xgboost`"] == (pytest.approx(means["tunedall"]), "all")


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


def test_the_page_of_the_papers_says_what_was_scored() -> None:
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

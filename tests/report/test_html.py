"""The page: what it says, what it must not say, and that it stands alone."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import refuses
from tests.report import DATASETS, MODELS, Page, fit, write_card, write_cell, write_results, write_rows
from usboost.report import paper
from usboost.report.blocks import ReportData
from usboost.report.pages import write_pages
from usboost.report.paper import render
from usboost.report.results import collect, dataset_name

NUMBERS = {f"{v:+.2f}".replace("-", "−") for row in paper.IMPROVEMENT.values() for v in row.values()}


def _published(text: str) -> set[str]:
    """The paper's numbers that stand in a text, signed as the page prints them."""
    return {number for number in NUMBERS if re.search(rf"(?<!\d){re.escape(number)}(?!\d)", text)}


def _page(results: Path, datasets: list[str], models: list[str], **more: Any) -> str:
    return render(ReportData(collect(results, datasets, models), results, datasets, models, **more))


def _flat(results: Path, profile: str) -> None:
    """Every model 50 % above the baseline on every dataset, so that no gain equals a published one."""
    for dataset in paper.DATASETS:
        write_cell(results, dataset, "baseline", [fit(0, 0.5), fit(1, 0.52)], profile)
        for model in MODELS[1:]:
            write_cell(results, dataset, model, [fit(0, 0.75), fit(1, 0.78)], profile)


def test_real_data_print_the_papers_numbers(tmp_path: Path) -> None:
    _flat(tmp_path, "paper")
    page = Page(_page(tmp_path, list(paper.DATASETS), list(MODELS)))
    assert _published(page.words) == NUMBERS
    assert "single runs" in page.words and "mean of 5" in page.words
    assert "demo" not in page.words.lower()


@pytest.mark.parametrize("where", ["every cell", "one cell", "a card"])
def test_demo_data_are_named_and_never_beside_the_papers_numbers(tmp_path: Path, where: str) -> None:
    results, prepared = tmp_path / "results", tmp_path / "prepared"
    _flat(results, "demo" if where == "every cell" else "paper")
    if where == "one cell":
        write_cell(results, "mi", "1wl_u", [fit(0, 0.75), fit(1, 0.78)], "demo")
    write_card(prepared, "mi", "demo" if where == "a card" else "paper")
    out = write_pages(results, prepared, tmp_path / "out", datasets=paper.DATASETS, models=MODELS)
    page = Page(out.read_text(encoding="utf-8"))
    assert "demo data" in page.heads["title"] and "demo data" in page.heads["h1"]
    assert _published(page.words) == set()
    assert "paper reports" not in page.words and "single runs" not in page.words


def _words(results: Path, datasets: list[str], models: dict[str, list[float]]) -> str:
    """The page of these models' scores on CT, one a seed."""
    for model, scores in models.items():
        if scores:
            write_cell(results, "ct", model, [fit(seed, f1) for seed, f1 in enumerate(scores)], "demo")
    return Page(_page(results, datasets, list(models))).words


def test_numbers_of_both_splits(tmp_path: Path) -> None:
    text = _words(tmp_path, ["ct"], {"baseline": [0.5, 0.5], "2wl": [0.6, 0.7]})
    test, validation = text.split("Validation split")
    assert re.search(r"2WL 0\.6500 ± 0\.0707 \+30\.00 ± 14\.14", test)
    assert re.search(r"2WL 0\.6600 ± 0\.0707 \+29\.41 ± 13\.86", validation)
    assert "over 2 seeds" in test and "F1" in test


def test_seeds_are_said(tmp_path: Path) -> None:
    text = _words(tmp_path, ["ct"], {"baseline": [0.5], "2wl": [0.6]})
    assert re.search(r"2WL 0\.6000 \+20\.00", text)
    assert text.count("1 seed") == 1 and "1 seed, so no spread" in text and "±" not in text
    text = _words(tmp_path, ["ct"], {"baseline": [0.5] * 3, "2wl": [0.6] * 2, "1wl_s": [0.6] * 3})
    assert re.search(r"2WL 0\.6000 ± 0\.0000 2 seeds", text) and "over 3 seeds" in text


def test_missing_cells_are_named(tmp_path: Path) -> None:
    text = _words(tmp_path, ["ct", "ci_a"], {"baseline": [0.5], "2wl": []})
    assert "3 cells have no scores yet" in text
    assert "2WL on CT" in text and "Baseline on CI-A" in text and "2WL on CI-A" in text


def test_data_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    write_cell(tmp_path, "ct", "baseline", [fit(0, 0.5)], "demo")
    write_cell(tmp_path, "ct", "<b>lgbm", [fit(0, 0.6)], "demo")
    card = {
        "profile": "demo",
        evil: evil,
        "columns": {evil: {"view": evil, "why": f"\" onload='{evil}'"}},
        "class_counts": {evil: 3},
        "elimination": [{"removed": evil, evil: [evil, {evil: evil}]}],
    }
    html = _page(tmp_path, ["ct"], ["baseline", "<b>lgbm"], cards={"ct": card})
    tags = Page(html).tags
    assert "<script" not in html and "<b>lgbm" not in html
    assert html.count("&lt;script&gt;") > 8
    assert not [attrs for _, attrs in tags if any(name.startswith("on") for name in attrs)]


def test_any_card_is_shown(tmp_path: Path) -> None:
    write_cell(tmp_path, "ct", "baseline", [fit(0, 0.5)], "demo")
    digest = "ab" * 32
    card = {
        "rows": {"train": 196294},
        "class_counts": {"train": {"cat": 3, "dog": 1}},
        "columns": [{"name": "age", "view": "S", "reason": "random half"}, {"name": "sex", "view": "U"}],
        "sources": {"raw.gz": digest},
        "odd": [1, 2.5, None, True],
        "empty": {},
        "nothing": [],
        "encoders": {"U": {"secret": 1}},
    }
    html = _page(tmp_path, ["ct"], ["baseline"], cards={"ct": card})
    text = Page(html).words
    for piece in ("train: 196,294", "3 (75.0%)", "S: 1 · U: 1", "random half", "1, 2.5, –, yes", "abababab"):
        assert piece in text
    assert "secret" not in text and f'title="{digest}"' in html


def test_report_on_disk_stands_alone_and_repeats_itself(tmp_path: Path) -> None:
    results, prepared = tmp_path / "results", tmp_path / "prepared"
    write_results(results, datasets=["ci_b"], models=("baseline", "bfv_dnn", "2wl", "1wl_u"))
    write_card(prepared, "ci_b")
    pages = [
        write_pages(
            results, prepared, tmp_path / name, datasets=["ci_b", "mi"], models=("baseline", "2wl", "1wl_u")
        )
        for name in ("one", "two")
    ]
    for path in sorted(tmp_path.glob("one/**/*.*")):
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()
    html = pages[0].read_text(encoding="utf-8")
    assert not re.search(r"https?:|url\(|@import|//", re.sub(r"base64,[\w+/=]+", "", html))
    tags = Page(html).tags
    assert {tag for tag, _ in tags}.isdisjoint({"script", "link", "iframe", "object"})
    links = [attrs.get("src") or attrs.get("href") or "" for tag, attrs in tags if tag in ("img", "a")]
    assert all(link.startswith(("data:image/svg+xml;base64,", "#")) for link in links)
    anchors = {attrs["id"] for _, attrs in tags if "id" in attrs}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    images = [attrs for tag, attrs in tags if tag == "img"]
    assert len(images) == 7 and all(attrs["alt"] for attrs in images)
    csv = pd.read_csv(tmp_path / "one" / "results.csv")
    assert set(csv["model"]) == {"baseline", "2wl", "1wl_u"} and set(csv["dataset"]) == {"ci_b"}
    assert not list(tmp_path.glob("**/*.tmp"))


class _Tables(HTMLParser):
    """The tables of a page by label: {label: [{column: text}]}, a cell's text without what is small.

    Where the columns are grouped, a column has the group's name before its own.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, list[dict[str, str]]] = {}
        self._label, self._rows, self._cell, self._small = "", list[list[str]](), False, False
        self._spans = list[int]()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._label = dict(attrs).get("aria-label") or self._label
        if tag == "table":
            self._rows, self._spans = [], []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
            if len(self._rows) == 1:
                self._spans.append(int(dict(attrs).get("colspan") or 0))
        self._cell, self._small = self._cell or tag in ("td", "th"), tag == "small"

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            head, *rows = self._rows
            if any(self._spans):
                groups = [name for name, span in zip(head, self._spans, strict=True) for _ in range(span)]
                below = zip(groups, rows.pop(0), strict=True)
                head = [head[0], *(f"{group} {name}" for group, name in below)]
            self.found[self._label] = [dict(zip(head, row, strict=True)) for row in rows]
        self._cell, self._small = self._cell and tag not in ("td", "th"), False

    def handle_data(self, data: str) -> None:
        if self._cell and not self._small:
            self._rows[-1][-1] += data.strip()


def test_every_number_stands_under_the_name_of_its_score(tmp_path: Path) -> None:
    """Two classes have a tuned F1 and three have none; a part of a model lacks it, too."""
    names = {"accuracy": "accuracy", "auc": "AUC", "log_loss": "log-loss"}
    names_of = {
        "ci_a": names | {"f1": "F1 at threshold 0.5", "f1_tuned": "F1 at tuned threshold"},
        "ct": names | {"f1": "macro F1"},
    }
    scores = {"f1": 0.61, "f1_tuned": 0.62, "accuracy": 0.71, "auc": 0.81, "log_loss": 0.41}
    for dataset, of_metric in names_of.items():
        mine = {metric: scores[metric] for metric in of_metric}
        gbm = {"test": {"accuracy": 0.55}}
        for model, more in (("2wl", {}), ("bfv_dnn", {"gbm": gbm})):
            found = {"seed": 0, "rounds": 7, "best_round": 4, "fit_seconds": 3.25}
            found |= {"scores": {"val": mine, "test": mine}}
            write_cell(tmp_path, dataset, model, [found | more], "demo")
    cards = {"ci_a": {"classes": ["a", "b"]}, "ct": {"classes": ["a", "b", "c"]}}
    page = _page(tmp_path, list(names_of), ["2wl", "bfv_dnn"], cards=cards)
    tables = _Tables(page).found
    for split in ("test", "validation"):
        for row in tables[f"Results on the {split} split"]:
            there = row["Model"] != "GBM alone"
            assert [row["CI-A F1"], row["CT F1"]] == ["0.6100" if there else "–"] * 2, row
    for dataset, of_metric in names_of.items():
        rows = {row.pop("Model"): row for row in tables[f"All metrics and cost, {dataset_name(dataset)}"]}
        whole = {name: f"{scores[metric]:.4f}" for metric, name in of_metric.items()}
        assert rows["2WL"] == rows["BFV+DNN"] == {**whole, "best round": "4", "fit, s": "3.2"}
        assert rows["GBM alone"] == {**dict.fromkeys(rows["2WL"], "–"), "accuracy": "0.5500"}


def test_the_other_papers_scores_stand_under_their_names(tmp_path: Path) -> None:
    write_cell(tmp_path, "ct", "baseline", [fit(0, 0.5)], "demo")
    early = {"accuracy": 0.85, "early_accuracy": 0.75, "earliness": 0.35}
    for model, test in (("bnn", {"accuracy": 0.95, "f1": 0.94}), ("earlyboost", early)):
        write_cell(tmp_path, "iris", model, [{"seed": 0, "scores": {"test": test}}], "demo")
    html = write_pages(
        *(tmp_path, tmp_path, tmp_path / "out"),
        datasets=["ct"],
        models=["baseline"],
        cells=[("iris", "bnn"), ("iris", "earlyboost")],
    ).read_text()
    bnn, earlyboost = _Tables(html).found["The other two papers"]
    assert (bnn["accuracy"], bnn["F1"], bnn["earliness"], bnn["seeds"]) == ("0.9500", "0.9400", "–", "1")
    assert (earlyboost["F1"], earlyboost["accuracy when decided"], earlyboost["earliness"]) == (
        *("–", "0.7500", "0.3500"),
    )


def _scored(val: dict[str, float], test: dict[str, float]) -> dict[str, object]:
    return fit(0, 0.5) | {"scores": {"val": val, "test": test}}


def test_ties_are_said_and_so_is_a_model_worse_than_the_prior(tmp_path: Path) -> None:
    for model, loss in (("baseline", 0.3), ("2wl", 0.1), ("lgbm", 0.2)):
        scores = {"f1": 1.0, "log_loss": loss}
        write_cell(tmp_path, "ct", model, [_scored(scores, {"f1": 0.9, "log_loss": 1.85})], "demo")
    other = _scored({"f1": 0.9, "log_loss": 0.01}, {"f1": 0.99, "log_loss": 0.1})
    write_cell(tmp_path, "ct", "1wl_s", [other], "demo")
    prior = {"f1": 0.5, "log_loss": 1.85}
    write_cell(tmp_path, "ct", "prior", [_scored(prior, prior)], "demo")
    splits = {name: {"classes": {"a": 10, "b": 10, "c": 10}} for name in ("train", "val", "test")}
    models = ["baseline", "2wl", "lgbm", "1wl_s", "prior"]
    card = {"classes": ["a", "b", "c"], "splits": splits}
    text = Page(_page(tmp_path, ["ct"], models, cards={"ct": card})).words
    assert "Best by validation score: 2WL on CT" in text
    assert "3 models tie at validation F1 1.0000; the lowest validation log-loss breaks the tie." in text
    assert "worse than the prior’s: log-loss 1.8500 against 1.0986 on the test split." in text
    assert "† Probabilities worse than the prior’s, test log-loss above 1.0986: Baseline (" in text
    assert text.count("1.8500†") == 3 and "Prior (" not in text  # it is not worse than itself
    text = Page(_page(tmp_path, ["ct"], ["1wl_s"], cards={"ct": card})).words
    assert "tie at" not in text and "worse than the prior" not in text


def test_the_verdict_compares_with_the_baseline_and_names_noise(tmp_path: Path) -> None:
    for model, wrong in (("baseline", range(25)), ("2wl", range(6)), ("lgbm", range(3, 10))):
        write_cell(tmp_path, "ci_a", model, [fit(0, 1 - len(wrong) / 60)], "paper")
        write_rows(tmp_path, "ci_a", model, wrong)
    models = ["baseline", "2wl", "lgbm"]
    text = Page(_page(tmp_path, ["ci_a"], models)).words
    first = text.split("Results on the test split")[0]
    assert "Selected on CI-A (validation F1 0.9100) 2WL test F1 0.9000" in first
    assert "Baseline 0.5833, significant" in first
    assert "LightGBM on all 0.8833, not separated" in first
    for name in ("Baseline two-branch network", "2WL two-weak-learner boosting", "CI-A census income"):
        assert name in first


def test_equal_numbers_on_both_cuts_of_the_census_are_said_once(tmp_path: Path) -> None:
    for dataset, f1 in (("ci_a", 0.5), ("ci_b", 0.6)):
        write_cell(tmp_path, dataset, "baseline", [fit(0, f1)], "paper")
        write_cell(tmp_path, dataset, "lgbm", [fit(0, 0.7)], "paper")
    text = Page(_page(tmp_path, ["ci_a", "ci_b"], ["baseline", "lgbm"])).words
    assert text.count("CI-A and CI-B have the same rows. LightGBM on all reads all columns") == 1


def test_the_short_step_of_2wl2o_fix_is_explained(tmp_path: Path) -> None:
    write_cell(tmp_path, "ct", "2wl2o_fix", [fit(0, 0.5)], "demo")
    write_cell(tmp_path, "ct", "2wl", [fit(0, 0.5)], "demo")
    assert "about ten times less" in _page(tmp_path, ["ct"], ["2wl2o_fix"])
    assert "about ten times less" not in _page(tmp_path, ["ct"], ["2wl"])


def test_what_cannot_be_reported_is_refused(tmp_path: Path) -> None:
    places = tmp_path, tmp_path, tmp_path / "out"
    refuses("training flow", write_pages, *places, datasets=DATASETS, models=MODELS)
    assert not (tmp_path / "out").exists()
    write_cell(tmp_path / "results", "ct", "2wl", [fit(0, 0.5)], "demo")
    (tmp_path / "ct").mkdir()
    for text, message in (("{", "cannot be read"), (json.dumps([1]), "does not hold a JSON object")):
        (tmp_path / "ct" / "card.json").write_text(text)
        places = tmp_path / "results", tmp_path, tmp_path / "out"
        refuses(message, write_pages, *places, datasets=["ct"], models=["2wl"])

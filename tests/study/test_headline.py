"""README's table and that of the results: of the scores that are kept, and of one version of the code."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.study import headline
from benchmarks.study.headline import divided, kept, newest, table, written

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", headline.PAGES, ids=lambda page: page.name)
def test_the_pages_say_what_was_scored(page: Path) -> None:
    assert written(ROOT / page, table()) == (ROOT / page).read_text()


def test_the_table_is_of_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not newest().duplicated(["case", "model", "seed"]).any()
    lines = newest().to_dict("records")
    monkeypatch.setattr(headline, "KEPT", file := tmp_path / "headline.jsonl")
    later = [line | {"code": "another"} for line in lines]
    for add, code in ((later[1:], lines[0]["code"]), (later, "another")):  # the first lacks a seed
        file.write_text("\n".join(map(json.dumps, [*lines, *add])))
        assert {*newest()["code"]} == {code}
    file.write_text("\n".join(map(json.dumps, [later[0], *lines[1:]])))
    with pytest.raises(ValueError, match="no version"):
        table()


def test_cells_of_our_models_have_the_settings_that_the_catalogue_gives_now() -> None:
    for row in kept():
        now = {key: repr(value) for key, value in headline.settings_given(row["fits"]).items()}
        assert row["model"] in headline.OTHERS or row["settings"] == now


def test_a_fifth_of_each_class_is_for_the_test() -> None:
    frame = pd.DataFrame({"x": range(1000), "y": np.repeat(["a", "b", "c", "rare"], [600, 300, 90, 10])})
    train, test = divided(frame, "y", None)
    assert test["y"].value_counts().to_dict() == {"a": 120, "b": 60, "c": 18}
    assert len(train) == 792 and not set(train["x"]) & set(test["x"])
    few, same = divided(frame, "y", 99)
    assert same["x"].tolist() == test["x"].tolist() and set(few["x"]) < set(train["x"])
    assert len(few) == pytest.approx(99, abs=3)


def test_no_number_of_the_readme_is_elsewhere() -> None:
    found = re.search(r"^## Does it work\?\n(.*?)^## ", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found
    outside = re.sub(
        r"<!-- headline -->.*<!-- end of headline -->|\]\([^)]*\)|`[^`]*`", "", found[1], flags=re.S
    )
    assert not re.findall(r"(?<![\w.])\d*\.\d+", outside)


def test_the_pages_are_short() -> None:
    pages = [ROOT / "docs/results.md", *(ROOT / "docs" / "results").glob("*.md")]
    words = {page.name: len(page.read_text().split()) for page in pages}
    assert sum(words.values()) <= 9000 and words["results.md"] <= 1000

"""The examples: each runs as a script in a folder of its own, prints what it says and leaves nothing."""

import os
import re
from pathlib import Path

import pytest

from tests.warm import Warm

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"read_a_run"}  # needs a run of the pipeline: tests/flows/test_read_a_run.py

NUMBER = r"(\d+\.\d+)"
SAME = r"read back, it predicts the same: True"


def printed(name: str, folder: Path, warm: Warm) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = warm.run([str(ROOT / f"examples/{name}.py")], folder, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(folder.iterdir()) == []
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    return [float(each) for each in re.findall(pattern.replace("#", NUMBER), text)]


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

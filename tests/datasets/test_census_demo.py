"""The demo files: the format, the same bytes for the same seed, and a label worth two views."""

from __future__ import annotations

import gzip
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.metrics import f1_score

from usboost.datasets import census, store
from usboost.datasets.census_demo import DUPLICATES, draw, positive_probability, write_demo
from usboost.errors import UsboostError

TRAIN, TEST = (file.name for file in census.FILES)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_demo(folder, rows_train=4000, rows_test=4000, seed=0)
    return folder


def test_equal_seeds_give_equal_bytes(demo: Path, tmp_path: Path) -> None:
    write_demo(tmp_path / "same", rows_train=4000, rows_test=4000, seed=0)
    write_demo(tmp_path / "other", rows_train=4000, rows_test=4000, seed=1)
    for name in (TRAIN, TEST):
        assert (tmp_path / "same" / name).read_bytes() == (demo / name).read_bytes()
        assert (tmp_path / "other" / name).read_bytes() != (demo / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "same").iterdir()) == [TRAIN, TEST]


def test_the_files_have_the_raw_format(demo: Path) -> None:
    for name in (TRAIN, TEST):
        text = gzip.decompress((demo / name).read_bytes()).decode()
        lines = text.splitlines()
        assert len(lines) == 4000 and text.endswith("\n")
        assert {len(line.split(", ")) for line in lines} == {42}
        assert {line.split(", ")[-1] for line in lines} == set(census.CLASSES)
        assert sum("?" in line for line in lines) > 1000
        frame = census.read(demo / name)
        assert 0.12 < frame["label"].mean() < 0.18
    train = gzip.decompress((demo / TRAIN).read_bytes()).splitlines()
    assert len(train) - len(set(train)) == round(DUPLICATES * 4000)


def test_some_categories_are_in_both_test_halves_only(demo: Path) -> None:
    prepared = census.prepare(demo / TRAIN, demo / TEST, split="ci_a", seed=0)
    train = prepared.splits["train"]
    for split in ("val", "test"):
        unseen = {
            name: set(prepared.splits[split][name].dropna()) - set(train[name].dropna())
            for name in census.FEATURES
            if name not in census.CONTINUOUS
        }
        assert "Panama" in unseen["country_of_birth_father"]
        assert sum(map(bool, unseen.values())) >= 3


def test_the_bayes_rule_has_the_promised_score() -> None:
    p = positive_probability(draw(50_000, np.random.default_rng(0)))
    assert p.mean() == pytest.approx(0.15, abs=0.01)
    y = np.random.default_rng(1).random(len(p)) < p
    assert f1_score(y, p > 0.5) == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("seed", [0, 1])
def test_two_views_tell_more_than_either(demo: Path, tmp_path: Path, seed: int) -> None:
    store.write(census.prepare(demo / TRAIN, demo / TEST, split="ci_a", seed=seed), tmp_path / "ci_a")
    (train, y), (test, truth) = (store.read(tmp_path / "ci_a", split) for split in ("train", "test"))

    def score(*views: str) -> float:
        x, z = (np.hstack([part[view].matrix() for view in views]) for part in (train, test))
        parameters = {"objective": "binary", "num_leaves": 7, "verbosity": -1, "num_threads": 1, "seed": 0}
        model = lgb.train(parameters, lgb.Dataset(x, y), 100)
        return float(f1_score(truth, np.asarray(model.predict(z)) > 0.35))

    both, u, s = score("U", "S"), score("U"), score("S")
    assert min(u, s) > 0.2
    assert both > max(u, s) + 0.1


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsboostError, match="at least 100, not 99 and 100"):
        write_demo(tmp_path, rows_train=99, rows_test=100, seed=0)
    assert list(tmp_path.iterdir()) == []

"""params.yaml: what it says is what runs, mistakes in it are named, and what a search found goes in."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from tasks import settings, tuning
from tasks.fits import models
from tests.conftest import refuses
from usboost.models.entry import settings_text

PARAMS = Path(__file__).parents[2] / "params.yaml"


def document():
    return yaml.safe_load(PARAMS.read_text())


def test_tables_1_and_2_as_the_paper_prints_them():
    loaded = settings.load(PARAMS)
    ci_a, ci_b = loaded.networks_of("ci_a"), loaded.networks_of("ci_b")
    assert (ci_a.fusion, ci_a.optimizer) == ("product", "sgd")
    assert (ci_a.learning_rate, ci_a.batch_size) == (0.001, 128)
    assert (ci_a.bfv_trees, ci_b.bfv_trees) == (2000, 1500)
    assert (ci_b.dnn1, ci_b.dnn2, ci_b.dnn3, ci_b.fusion) == ([100, 50], [100, 50], [25], "concat")
    ci_a, ci_b = loaded.boosting_of("ci_a"), loaded.boosting_of("ci_b")
    assert (ci_a.rounds.first, ci_a.rounds.second) == (2000, 2100)
    assert (ci_b.rounds.first, ci_b.rounds.second) == (3500, 750)
    assert (ci_a.batch_size, ci_b.batch_size, ci_a.tree_depth, ci_a.n_inner) == (512, 128, 3, 1)
    assert loaded.profile == "demo"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: p.update(profile="test"), "profile"),
        (lambda p: p.pop("boosting"), "boosting"),
        (lambda p: p["table2"]["ci_a"].update(tree_depth=0), "table2.ci_a.tree_depth"),
        (lambda p: p["models"]["2wl"].update(speed=3), "models.2wl.speed"),
        (lambda p: p["models"].update(crossed="fast"), "models.crossed"),
        (lambda p: p["models"].update({"../x": {"like": "2wl"}}), r"models.'../x': name a model by"),
        (lambda p: p["profiles"]["demo"].update(seeds="many"), "profiles.demo.seeds"),
        (lambda p: p["user_table"].update(table="parts.csv"), "user_table.table names your own table, but"),
        (
            lambda p: p.update(profile="user", run={**p["run"], "datasets": ["user_table"]}),
            "user_table.table is empty, but profile is user",
        ),
    ],
)
def test_a_mistake_names_the_key(tmp_path, change, said):
    changed = document()
    change(changed)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(changed))
    refuses(f"params.yaml: {said}", settings.load, tmp_path / "params.yaml")


def test_a_missing_or_broken_file(tmp_path):
    refuses("is missing", settings.load, tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("a: [1")
    refuses("not valid YAML", settings.load, tmp_path / "params.yaml")


def test_unknown_names():
    loaded = settings.load(PARAMS)
    refuses(r"no models\.9wl", loaded.model, "9wl")
    refuses(r"no table1\.ci_z", loaded.networks_of, "ci_z")
    assert settings.Settings._aliases({"_2wl": {"a": 1}, "2wl": {"b": 2}}) == {"2wl": {"a": 1, "b": 2}}


@pytest.mark.parametrize("place", ["models", "models_of"])
def test_a_run_names_models_that_are_known(place):
    changed = document()
    changed["run"][place] = ["9wl"] if place == "models" else {"iris": ["9wl"]}
    refuses(r"^params.yaml: params.yaml has no models\.9wl, nor has the cat", settings.parse, changed)


def test_a_dataset_may_have_models_of_its_own():
    loaded = settings.load(PARAMS)
    assert loaded.models_of("iris") == ["bnn"]
    assert loaded.models_of("ct") == loaded.run.models


def test_forms_offer_the_models_of_params_yaml_too(tmp_path):
    changed = document()
    changed["models"]["mine"] = {"like": "2wl"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(changed))
    assert settings.model_names(tmp_path / "params.yaml")[-1] == "mine"
    assert "2wl" in settings.model_names(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("boosting.patiens", "boosting.patiens: no such key; .*did you mean 'patience'"),
        ("profiles.demo.boosting.round", "boosting.round: no such key; .*did you mean 'rounds'"),
        ("sead", "yaml: sead: no such key; did you mean 'seed'"),  # and not that seed is missing
        ("models.2wl.shrinkag", "models.2wl.shrinkag: no such key; did you mean 'shrinkage'"),
    ],
)
def test_a_misspelt_key_is_told_what_is_meant(key, said):
    changed = section = document()
    *sections, last = key.split(".")
    for name in sections:
        section = section[name]
    section[last] = 1
    del changed["seed"]
    refuses(said, settings.parse, changed)


CHOSEN: dict[str, dict[str, object]] = {
    "2wl": {"shrinkage": 0.3},
    "crossed": {"shrinkage": 5e-05, "learners__S__max_leaves": None, "learners__U__hidden": (64, 32)},
    "lgbm": {"learning_rate": 0.0123},
}


def test_it_is_applied_and_comments_stay(tmp_path: Path) -> None:
    params, chosen = tmp_path / "params.yaml", tmp_path / "settings.yaml"
    shutil.copy(PARAMS, params)
    chosen.write_text(settings_text(CHOSEN, "of a\ntest"))
    tuning.apply(chosen, params)
    before, after = PARAMS.read_text(), params.read_text()
    comments = [re.findall(r"#([^#\n]*)", text) for text in (before, after)]
    assert comments[0] == comments[1]
    built = models.build("crossed", "ci_a", settings.load(params), 0)
    assert (built.shrinkage, built.learners["S"].max_leaves) == (5e-05, None)
    assert built.learners["U"].hidden == (64, 32)
    assert models.build("lgbm", "ci_a", settings.load(params), 0).learning_rate == 0.0123
    assert models.build("lgbm_s", "ci_a", settings.load(params), 0).learning_rate == 0.05
    tuning.apply(chosen, params)
    assert params.read_text() == after
    chosen.write_text(settings_text({"lgbm": {"patience": 7}}, "a test"))
    tuning.apply(chosen, params)  # what was not searched stays
    assert models.build("lgbm", "ci_a", settings.load(params), 0).learning_rate == 0.0123


def test_dvc_takes_it_as_overrides(tmp_path: Path) -> None:
    params, applied, chosen = (tmp_path / name for name in ("params.yaml", "applied.yaml", "settings.yaml"))
    chosen.write_text(settings_text(CHOSEN, "of a\ntest"))
    for path in (params, applied):
        shutil.copy(PARAMS, path)
    apply_overrides(params, tuning.overrides(chosen))
    tuning.apply(chosen, applied)
    assert settings.load(params) == settings.load(applied) != settings.load(PARAMS)


def test_a_setting_that_a_model_does_not_have(tmp_path: Path) -> None:
    changed = document()
    changed["models"]["mine"] = {"like": "crossed", "set": {"learners__S__depth": 3}}
    said = r"^mine has no setting 'learners__S__depth'; did you mean .*max_depth"
    refuses(said, models.build, "mine", "ci_a", settings.parse(changed), 0)

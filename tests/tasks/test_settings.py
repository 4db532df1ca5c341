"""params.yaml: what it says is what runs, and mistakes in it are named."""

from pathlib import Path

import pytest
import yaml

from tasks import settings
from tests.conftest import refuses

PARAMS = Path(__file__).parents[2] / "params.yaml"


def document():
    return yaml.safe_load(PARAMS.read_text())


def test_tables_1_and_2_as_the_paper_prints_them():
    loaded = settings.load(PARAMS)
    ci_a, ci_b = loaded.networks_of("ci_a"), loaded.networks_of("ci_b")
    assert (ci_a.fusion, ci_a.optimizer, ci_a.learning_rate, ci_a.batch_size) == (
        "product",
        "sgd",
        0.001,
        128,
    )
    assert (ci_a.bfv_trees, ci_b.bfv_trees) == (2000, 1500)
    assert (ci_b.dnn1, ci_b.dnn2, ci_b.dnn3, ci_b.fusion) == ([100, 50], [100, 50], [25], "concat")
    ci_a, ci_b = loaded.boosting_of("ci_a"), loaded.boosting_of("ci_b")
    assert (ci_a.rounds.first, ci_a.rounds.second, ci_b.rounds.first, ci_b.rounds.second) == (
        2000,
        2100,
        3500,
        750,
    )
    assert (ci_a.batch_size, ci_b.batch_size, ci_a.tree_depth, ci_a.n_inner) == (512, 128, 3, 1)
    assert loaded.profile == "demo"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: p.update(profile="test"), "profile"),
        (lambda p: p.pop("boosting"), "boosting"),
        (lambda p: p["table2"]["ci_a"].update(tree_depth=0), "table2.ci_a.tree_depth"),
        (lambda p: p["models"]["2wl"].update(speed=3), "models.2wl.speed"),
        (lambda p: p["profiles"]["demo"].update(seeds="many"), "profiles.demo.seeds"),
        (
            lambda p: p["user_table"].update(table="parts.csv"),
            "user_table.table names your own table, but",
        ),
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
        ("models.2wl.shrinkag", "models.2wl.shrinkag: no such key; did you mean 'shrinkage'"),
    ],
)
def test_a_misspelt_key_is_told_what_is_meant(key, said):
    document = yaml.safe_load(PARAMS.read_text())
    *sections, last = key.split(".")
    section = document
    for name in sections:
        section = section[name]
    section[last] = 1
    refuses(said, settings.parse, document)

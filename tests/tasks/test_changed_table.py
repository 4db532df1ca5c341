"""A person's table that has changed since it was prepared is noticed, and so is an image of it."""

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from flows.local import workspace
from tasks import catalog, data, settings
from tasks.folders import prepared_folder, raw_folder
from tests.conftest import encoded, refuses
from usboost.datasets import store

PARAMS = yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text(encoding="utf-8"))


def of_table(folder: Path, **roles: Any) -> settings.Settings:
    document = {**PARAMS, "profile": "user"}
    document["user_table"] = {**PARAMS["user_table"], "label": "y", **roles}
    return settings.parse(document, folder / "params.yaml")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table of three images, and a workspace beside it, which is where we are."""
    (tmp_path / "own/photos").mkdir(parents=True)
    for k in range(3):
        (tmp_path / f"own/photos/{k}.png").write_bytes(encoded(pd.DataFrame([[k]]).to_numpy("uint8")))
    rows = {"photo": [f"photos/{k}.png" for k in range(3)], "y": [1, 2, 3]}
    pd.DataFrame(rows).to_csv(tmp_path / "own/t.csv", index=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "own"


def obtain(chosen: Any, own: Path) -> None:
    raw_folder("user_table").mkdir(parents=True)
    catalog.DATASETS["user_table"].obtain(raw_folder("user_table"), chosen, own)
    assert not data.has_changed("user_table", chosen)


def other_labels(own: Path) -> None:
    text = (own / "t.csv").read_text().replace(",3", ",4")
    before = (own / "t.csv").stat()
    (own / "t.csv").write_text(text)
    os.utime(own / "t.csv", ns=(before.st_atime_ns, before.st_mtime_ns))  # of the same size and time


def other_image(own: Path) -> None:
    (own / "photos/1.png").write_bytes(encoded(pd.DataFrame([[1, 2], [3, 4]]).to_numpy("uint8")))


def image_gone(own: Path) -> None:
    (own / "photos/2.png").unlink()


def image_behind_a_link(own: Path) -> None:
    (own / "photos/2.png").rename(own / "blob")
    (own / "photos/2.png").symlink_to(own / "photos/1.png")


@pytest.mark.parametrize("change", [other_labels, other_image, image_gone, image_behind_a_link])
def test_a_change_of_the_table_or_of_an_image_is_noticed(own: Path, change: Any) -> None:
    chosen = of_table(own, table=str(own / "t.csv"), image="photo")
    assert not data.has_changed("user_table", chosen)  # nothing was prepared
    obtain(chosen, own)
    change(own)
    assert data.has_changed("user_table", chosen)
    (own / "t.csv").unlink()
    assert not data.has_changed("user_table", chosen)  # what was prepared of it stays


def test_other_settings_are_noticed_and_so_is_a_table_that_could_not_be_prepared(own: Path) -> None:
    pd.DataFrame({"a": range(40), "y": [0, 1] * 20}).to_csv(own / "t.csv", index=False)
    chosen = of_table(own, table=str(own / "t.csv"))
    obtain(chosen, own)
    data.prepare_dataset.fn("user_table", chosen)
    assert not data.has_changed("user_table", chosen)
    assert data.has_changed("user_table", of_table(own, table=str(own / "t.csv"), categorical=["a"]))
    (own / "t.csv").write_text("a\n1\n")
    catalog.DATASETS["user_table"].obtain(raw_folder("user_table"), chosen, own)
    assert data.has_changed("user_table", chosen)


def test_another_seed_is_noticed_of_any_dataset_and_rows_that_are_not_cut_are_refused(own: Path) -> None:
    chosen = of_table(own, table=str(own / "t.csv"))
    raw_folder("iris").mkdir(parents=True)
    data.prepare_dataset.fn("iris", chosen)
    assert not data.has_changed("iris", chosen)
    (prepared_folder("iris") / "train.parquet").write_bytes(b"")
    data.prepare_dataset.fn("iris", chosen)  # a damaged split is made again
    assert len(store.read(prepared_folder("iris"), "train")[1])
    assert data.has_changed("iris", chosen.model_copy(update={"seed": chosen.seed + 1}))
    object.__setattr__(chosen.sizes.data["user_table"], "rows_train", 9)
    refuses("rows_train: user_table is read whole", data.obtain_raw.fn, "user_table", chosen, own)


def test_a_part_of_a_folder_of_parquet_files_is_noticed_too(own: Path) -> None:
    (own / "rows").mkdir()
    for k in range(2):
        pd.DataFrame({"a": [k], "y": [k]}).to_parquet(own / f"rows/{k}.parquet")
    chosen = of_table(own, table=str(own / "rows"))
    obtain(chosen, own)
    pd.DataFrame({"a": [1], "y": [0]}).to_parquet(own / "rows/1.parquet")
    assert data.has_changed("user_table", chosen)


def test_dvcs_stage_of_the_data_depends_on_the_table_and_the_folder_of_its_images(own: Path) -> None:
    ours = (workspace.ROOT / "dvc.yaml").read_text(encoding="utf-8")

    def deps(**roles: Any) -> list[str]:
        made = workspace.depending_on(of_table(own, table=str(own / "t.csv"), **roles).user_table, ours)
        assert workspace.depending_on(None, made) == ours
        listed = yaml.safe_load(made)["stages"]["data"]["do"]["deps"]
        return [each for each in listed if "/" in each[:2] or "$" in each]

    assert deps() == ["${user_table.table}"]
    assert deps(image="photo") == ["${user_table.table}", str(own / "photos")]
    (own / "photos/2.png").rename(own / "2.png")
    text = (own / "t.csv").read_text().replace("photos/2.png", "2.png")
    (own / "t.csv").write_text(text)
    assert deps(image="photo")[1:] == [str(own)]
    for k in range(10_040):
        (own / f"{k}.txt").touch()
    each = [str(own / name) for name in sorted(pd.read_csv(own / "t.csv")["photo"].unique())]
    assert deps(image="photo")[1:] == each  # much else is in the table's folder
    (own / "t.csv").write_text(text.replace("photos/1.png", "photos\\1.png"))  # as Windows writes it
    assert deps(image="photo")[1:] == each

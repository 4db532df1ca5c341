"""The prepared form: round trip, replacement as a whole, and every way a folder can be wrong."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import contents, refuses
from usboost.data.encoding import TableEncoder
from usboost.datasets import store
from usboost.datasets.store import Prepared, describe, read, read_card, read_frame, write
from usboost.files.arrays import sha256

VIEWS = {"U": ["age", "colour"], "S": ["shape"]}
CLASSES = ["no", "yes"]


def prepared(seed: int = 0, rows: int = 40) -> Prepared:
    rng = np.random.default_rng(seed)
    splits = {}
    for split in ("train", "val", "test"):
        colours = pd.Categorical.from_codes(
            rng.integers(-1, 3, rows), categories=pd.Index(["red", "green", "blue"], dtype="str")
        )
        splits[split] = pd.DataFrame(
            {
                "age": rng.normal(40, 10, rows).astype(np.float32),
                "colour": colours,
                "shape": pd.Categorical(rng.choice(["disc", "box"], rows)),
                "label": (np.arange(rows) % 2).astype(np.int8),
            }
        )
    columns = {name: {"view": view, "why": "test"} for view, names in VIEWS.items() for name in names}
    card = describe(
        splits,
        VIEWS,
        CLASSES,
        dataset="toy",
        profile="demo",
        seed=seed,
        columns=columns,
        sources={"toy.csv": "0" * 64},
        note="Zoë",
    )
    return Prepared(splits, VIEWS, CLASSES, card)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(prepared(), tmp_path / "toy")
    return tmp_path / "toy"


def test_what_is_written_is_read(folder: Path) -> None:
    made = prepared()
    assert sorted(contents(folder)) == ["card.json", "test.parquet", "train.parquet", "val.parquet"]
    card = read_card(folder)
    assert card["note"] == "Zoë" and card["dataset"] == "toy" and card["views"] == VIEWS
    for split, frame in made.splits.items():
        pd.testing.assert_frame_equal(read_frame(folder, split), frame)
        assert card["splits"][split]["sha256"] == sha256(folder / f"{split}.parquet")
        views, y = read(folder, split)
        assert views.names == ("U", "S") and len(views) == len(frame)
        assert y.dtype == np.int64 and y.tolist() == frame["label"].tolist()
        for view, names in VIEWS.items():
            expected = TableEncoder.fit(made.splits["train"], names).transform(frame)
            np.testing.assert_array_equal(views[view].numeric, expected.numeric)
            np.testing.assert_array_equal(views[view].codes, expected.codes)
            assert views[view].names == expected.names


def test_strings_are_dictionaries_and_compressed_in_the_file(folder: Path) -> None:
    file = pq.ParquetFile(folder / "train.parquet")
    assert pa.types.is_dictionary(file.schema_arrow.field("colour").type)
    assert file.schema_arrow.field("age").type == pa.float32()
    column = file.metadata.row_group(0).column(1)
    assert column.compression == "ZSTD" and "RLE_DICTIONARY" in column.encodings


def test_equal_datasets_are_equal_files(folder: Path, tmp_path: Path) -> None:
    write(prepared(), tmp_path / "again")
    assert contents(tmp_path / "again") == contents(folder)


def test_an_earlier_folder_is_replaced_as_a_whole(folder: Path) -> None:
    (folder / "stale.txt").write_text("of the earlier dataset")
    (folder / "train.parquet").chmod(0o444)
    write(prepared(seed=1), folder)
    assert "stale.txt" not in contents(folder)
    assert read_card(folder)["seed"] == 1
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def failing(monkeypatch: pytest.MonkeyPatch, where: str) -> Prepared:
    """A dataset whose writing fails: in a split's values, in the card, or when it takes its place."""
    made = prepared(seed=1)
    if where == "values":
        made.splits["test"]["age"] = pd.Series([1.0, "old"] * 20, dtype=object)
    elif where == "card":
        made.card["note"] = {1, 2}
    else:
        replace = Path.replace

        def refuse(self: Path, target: Path) -> Path:
            if self.name == "new":
                raise OSError("no space left")
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", refuse)
    return made


@pytest.mark.parametrize("where", ["values", "card", "place"])
def test_a_failure_leaves_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    before, made = contents(folder), failing(monkeypatch, where)
    for place in (folder, folder.parent / "new"):
        with pytest.raises((pa.ArrowException, TypeError, OSError)):
            write(made, place)
    assert contents(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert len(read(folder, "train")[1]) == 40


def test_a_folder_that_comes_not_in_nor_back_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, replace = contents(folder), Path.replace

    def once(self: Path, target: Path) -> Path:
        if self.name != folder.name:
            raise OSError("the disk is gone")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", once)
    with pytest.raises(OSError, match="the disk is gone"):
        write(prepared(seed=1), folder)
    (old,) = folder.parent.glob(".toy.*.tmp/old")
    assert contents(old) == before


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("precious")
    refuses("toy is a file", write, prepared(), tmp_path / "toy")
    assert (tmp_path / "toy").read_text() == "precious"


def rewrite(folder: Path, split: str, frame: pd.DataFrame) -> None:
    """Another file in the place of a split, which the card's digest matches."""
    path = folder / f"{split}.parquet"
    frame.to_parquet(path, index=False)
    card = read_card(folder)
    card["splits"][split]["sha256"] = sha256(path)
    (folder / "card.json").write_text(json.dumps(card))


def test_a_missing_file_or_split_is_named(folder: Path) -> None:
    (folder / "val.parquet").unlink()
    refuses(r"val\.parquet is missing", read, folder, "val")
    refuses("no split 'dev'; its splits are train, val, test", read, folder, "dev")


def test_rows_and_values_are_those_of_the_card(folder: Path) -> None:
    frame = read_frame(folder, "train")
    rewrite(folder, "train", frame.iloc[:-1])
    refuses(r"train\.parquet has 39 rows but the card says 40", read, folder, "train")
    frame.iloc[::-1].to_parquet(folder / "train.parquet", index=False)
    refuses(r"train\.parquet is not the file the card describes", read, folder, "train")


@pytest.mark.parametrize("column", ["age", "shape", "label"])
def test_a_missing_column_is_named(folder: Path, column: str) -> None:
    rewrite(folder, "train", read_frame(folder, "train").drop(columns=column))
    refuses(rf"train\.parquet lacks .*'{column}'", read, folder, "train")


def test_no_dataset_is_written_with_a_number_json_cannot_hold(tmp_path: Path) -> None:
    made = prepared()
    made.card["note"] = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        write(made, tmp_path / "toy")
    assert store.FORMAT == 1 and list(tmp_path.iterdir()) == []

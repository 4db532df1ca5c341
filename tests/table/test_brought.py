"""Values in forms that people have them in: other digits, number types, images in memory and behind links."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tasks.serving.logged_model import register
from tests.conftest import encoded, refuses
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table

Y = ["p", "n"] * 10
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 255, (20, 8, 8, 3)).astype(np.uint8)


def read(frame: pd.DataFrame, **options: Any) -> UserTable:
    return read_table(FrameRows(frame.assign(y=Y)), TableSpec("y", size=8, **options))


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["١٢", "٣٤٫٥"], [12, 34.5]),
        (["१२", "-३"], [12, -3]),
        (["１２．５", "－３"], [12.5, -3]),
        (["۱٬۲۳۴٬۵۶۷", "۱٬۰۰۰"], [1234567, 1000]),
        (["12", "٣"], [12, 3]),
    ],
)
def test_numbers_in_digits_of_other_scripts(texts: list[str], numbers: list[float], tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": texts * 10})
    assert read(frame).features["a"].tolist() == numbers * 10
    frame.assign(y=Y).to_csv(tmp_path / "t.csv", index=False)
    assert read_table(tmp_path / "t.csv", TableSpec("y")).features["a"].tolist() == numbers * 10


def test_dates_in_the_digits_of_other_scripts_and_text_as_it_is() -> None:
    found = read(pd.DataFrame({"d": ["٢٠٢٠-٠١-٠٥", "2020-02-05"] * 10, "c": ["日本１", "x"] * 10}))
    assert found.features["d"].tolist()[:2] == [pd.Timestamp("2020-01-05"), pd.Timestamp("2020-02-05")]
    assert found.features["c"].tolist()[:2] == ["日本１", "x"]


@pytest.mark.parametrize("kind", [">f8", ">f4", ">i4", ">u2", np.longdouble, np.float16])
def test_numbers_of_other_types(kind: Any) -> None:
    values = np.arange(20).astype(kind)
    assert read(pd.DataFrame({"a": values})).features["a"].tolist() == list(range(20))
    labels = FrameRows(pd.DataFrame({"a": range(20), "y": values}))
    assert read_table(labels, TableSpec("y", task="regression")).labels.tolist() == list(range(20))


IN_MEMORY: dict[str, Any] = {
    "bytes": encoded,
    "array": lambda each: each,
    "four channels": lambda each: np.dstack([each, np.full((8, 8), 255, np.uint8)]),
    "Pillow": Image.fromarray,
    "palette": lambda each: Image.fromarray(each).convert("P"),
    "CMYK": lambda each: Image.fromarray(255 - each).convert("CMYK"),
}


@pytest.mark.parametrize("form", IN_MEMORY)
def test_images_in_memory_are_what_their_files_are(form: str) -> None:
    images = [IN_MEMORY[form](each) for each in PIXELS]
    plain = [Image.fromarray(each) if isinstance(each, np.ndarray) else each for each in images]
    files = [each if isinstance(each, bytes) else encoded(each.convert("RGB")) for each in plain]
    found, expected = (
        read(pd.DataFrame({"z": range(20), "i": pd.Series([*each[:19], None], dtype=object)}), image=("i",))
        for each in (images, files)
    )
    np.testing.assert_array_equal(found.images["U"][:].pixels, expected.images["U"][:].pixels)
    assert found.without == expected.without == {"i": 1}


def test_other_arrays_and_a_table_of_images_alone_are_refused() -> None:
    for array in (PIXELS[0] / 255, PIXELS[0].transpose(2, 0, 1)):
        frame = pd.DataFrame({"z": range(20), "i": pd.Series([array] * 20, dtype=object)})
        refuses(r"column 'i' holds an array of .* give uint8", read, frame, image=("i",))
    frame = pd.DataFrame({"z": range(20), "i": pd.Series([PIXELS[0], "a.png"] * 10, dtype=object)})
    refuses("column 'i' holds images beside a str", read, frame, image=("i",))
    alone = pd.DataFrame({"i": pd.Series([*PIXELS], dtype=object)})
    refuses("no column to learn from .* one more column", read, alone, image=("i",))
    assert read(alone.assign(zero=0), image=("i",)).features["zero"].eq(0).all()


def test_images_behind_links(tmp_path: Path) -> None:
    for part in ("cache", "own/linked", "real"):
        (tmp_path / part).mkdir(parents=True)
    for k, each in enumerate(PIXELS):
        (tmp_path / f"cache/{k}").write_bytes(encoded(each))
        (tmp_path / f"own/linked/{k}.png").symlink_to(tmp_path / f"cache/{k}")
        (tmp_path / f"real/{k}.png").write_bytes(encoded(each))
    (tmp_path / "own/folder").symlink_to(tmp_path / "real")
    for folder in ("linked", "folder"):
        paths = [f"{folder}/{k}.png" for k in range(20)]
        table = pd.DataFrame({"i": paths, "z": range(20), "y": Y})
        table.to_csv(tmp_path / "own/t.csv", index=False)
        found = read_table(tmp_path / "own/t.csv", TableSpec("y", image=("i",), size=8)).images["U"][:]
        np.testing.assert_array_equal(found.pixels, PIXELS.transpose(0, 3, 1, 2))


def test_an_overlong_name_is_no_name_for_a_model(tmp_path: Path) -> None:
    refuses("has 300 characters; give at most 200", register, tmp_path, "a" * 300)

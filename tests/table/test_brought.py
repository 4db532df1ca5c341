"""Values in forms that people have them in: other digits, number types, images in memory and behind links."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tasks.registered_models import register
from tests.conftest import encoded, refuses
from tests.tables import bright
from usboost import MultimodalClassifier, SplitColumns, Table, TwoWeakLearnerClassifier
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


def test_16_bits_in_memory_are_scaled_and_an_image_cut_short_is_damaged() -> None:
    deep = [Image.frombytes("I;16B", (8, 8), (257 * each[..., 0].astype(">u2")).tobytes()) for each in PIXELS]
    frame = pd.DataFrame({"z": range(20), "i": pd.Series([*deep], dtype=object)})
    np.testing.assert_array_equal(read(frame, image=("i",)).images["U"][:].pixels[:, 0], PIXELS[..., 0])
    refuses("32-bit", read, frame.assign(i=[Image.fromarray(PIXELS[0, ..., 0] / np.float32(255))] * 20))
    cut = Image.open(io.BytesIO(encoded(PIXELS[0])[:-60]))
    refuses("row 1, column 'i' is no image", read, frame.assign(i=[cut, *deep[1:]]), image=("i",))


def test_other_arrays_are_refused() -> None:
    for array in (PIXELS[0] / 255, PIXELS[0].transpose(2, 0, 1)):
        frame = pd.DataFrame({"z": range(20), "i": pd.Series([array] * 20, dtype=object)})
        refuses(r"column 'i' holds an array of .* give uint8", read, frame, image=("i",))
    frame = pd.DataFrame({"z": range(20), "i": pd.Series([PIXELS[0], "a.png"] * 10, dtype=object)})
    refuses("column 'i' holds images beside a str", read, frame, image=("i",))


def test_images_alone_are_learnt_from(tmp_path: Path) -> None:
    views, y = bright(20, side=32, channels=3)
    pixels = np.moveaxis(views["U"].decode(), 1, -1)
    alone = pd.DataFrame({"i": pd.Series([*pixels], dtype=object)})
    images: dict[str, Any] = {"image": "i", "size": 32, "finetune": "none"}
    model = MultimodalClassifier("logistic", refit=False, **images).fit(alone, y)
    model.save(tmp_path / "m")
    assert MultimodalClassifier.load(tmp_path / "m").score(alone, y) == 1


def test_lines_above_the_header_are_refused_and_a_header_may_begin_with_their_sign(tmp_path: Path) -> None:
    for above in ("sep=;", "# exported", "# by me; today\n# b"):
        (tmp_path / "t.csv").write_text(f"{above}\nx;y\n" + "1;a\n2;b\n" * 9)
        refuses(f"t.csv begins .*'{above.splitlines()[0]}'", read_table, tmp_path / "t.csv", TableSpec("y"))
    (tmp_path / "t.csv").write_text("#x;y\n" + "1;a\n2;b\n" * 9)
    assert list(read_table(tmp_path / "t.csv", TableSpec("y")).features) == ["#x"]


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


def test_neighbouring_whole_numbers_that_a_float_would_make_one_are_codes(tmp_path: Path) -> None:
    keys = 2**60 + np.arange(20) % 4
    for table in (pd.DataFrame({"k": keys}), pd.DataFrame({"k": keys.astype(object)})):
        found = read(table)
        assert found.kinds == {"k": "category"} and found.features["k"].nunique() == 4
        assert "column 'k' holds codes such as 1152921504606846976" in found.notes[0]
    assert read(pd.DataFrame({"k": keys - 2**60 + 2**52})).kinds == {"k": "number"}


@pytest.mark.parametrize("form", ["table", "matrix"])
def test_numbers_that_float32_makes_one_are_said(form: str) -> None:
    values = np.column_stack([RNG.normal(size=20), 1e8 + RNG.normal(size=20)])
    for given, said in ((values, 1), (values - [0, 1e8], 0), (values[:, :1] * 1e8, 0), (values[:1], 0)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            if form == "table":
                Table.from_numeric(given)
            elif len(given) > 1:
                SplitColumns(TwoWeakLearnerClassifier(n_rounds=1)).fit(given, Y)
        assert [str(each.message)[:11] for each in found if "float32" in str(each.message)] == [
            "column 'x1'"
        ] * said

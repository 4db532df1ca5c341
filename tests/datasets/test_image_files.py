"""Every kind of image people have becomes the square that is meant, or is refused by name."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image

from tests.conftest import encoded, refuses
from usboost.datasets import image_files
from usboost.datasets.image_files import Cursor, identity, inside, is_contained, load, read, thumbnail

RNG = np.random.default_rng(1)
GREY = RNG.integers(0, 256, (20, 20), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (20, 20, 3), dtype=np.uint8)


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM"])
def test_a_square_of_the_right_size_keeps_its_pixels(form: str) -> None:
    np.testing.assert_array_equal(load(encoded(COLOUR, form), size=20, channels=3), COLOUR.transpose(2, 0, 1))
    np.testing.assert_array_equal(load(encoded(GREY, form), size=20, channels=1)[0], GREY)


def test_grey_and_colour_become_each_other() -> None:
    grey = load(encoded(GREY), size=20, channels=3)
    np.testing.assert_array_equal(grey, np.stack([GREY] * 3))
    luma = COLOUR.astype(float) @ [0.299, 0.587, 0.114]
    assert np.abs(load(encoded(COLOUR), size=20, channels=1)[0] - luma).max() <= 1


def test_modes_become_what_they_show() -> None:
    palette = Image.fromarray(COLOUR).quantize(16)
    cmyk = 255 - np.concatenate([COLOUR, np.full((20, 20, 1), 255, np.uint8)], axis=2)
    bits = Image.fromarray(np.where(GREY > 127, 255, 0).astype(np.uint8)).convert("1")
    for image, form, expected in (
        (palette, "PNG", np.asarray(palette.convert("RGB"))),
        (palette, "GIF", np.asarray(palette.convert("RGB"))),
        (bits, "PNG", np.stack([np.asarray(bits) * 255] * 3, axis=2)),
        (Image.fromarray(cmyk, "CMYK"), "TIFF", COLOUR),
    ):
        found = load(encoded(image, form), size=20, channels=3)
        np.testing.assert_array_equal(found, expected.transpose(2, 0, 1))
    smooth = np.linspace(0, 255, 400).reshape(20, 20).astype(np.uint8)
    ink = Image.fromarray(np.stack([255 - smooth] * 3 + [0 * smooth], axis=2), "CMYK")
    assert np.abs(load(encoded(ink, "JPEG"), size=20, channels=1)[0].astype(int) - smooth).max() < 12


def test_transparency_is_laid_on_white() -> None:
    alpha = RNG.integers(0, 256, (20, 20, 1), dtype=np.uint8)
    expected = COLOUR * (alpha / 255) + 255 * (1 - alpha / 255)
    found = load(encoded(np.concatenate([COLOUR, alpha], axis=2)), size=20, channels=3)
    assert np.abs(found.transpose(1, 2, 0) - expected).max() <= 1
    grey = Image.merge("LA", (Image.fromarray(GREY), Image.fromarray(alpha[..., 0])))
    expected = GREY * (alpha[..., 0] / 255) + 255 * (1 - alpha[..., 0] / 255)
    assert np.abs(load(encoded(grey), size=20, channels=1)[0] - expected).max() <= 2
    palette = Image.fromarray((GREY % 4).astype(np.uint8), "P")
    palette.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    found = load(encoded(palette, transparency=0), size=20, channels=3).transpose(1, 2, 0)
    table = np.array([[255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255]])
    np.testing.assert_array_equal(found, table[GREY % 4])
    keyed = load(encoded(Image.fromarray(GREY), transparency=7), size=20, channels=1)[0]
    np.testing.assert_array_equal(keyed, np.where(GREY == 7, 255, GREY))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_stand_upright(orientation: int) -> None:
    turns = {1: 0, 2: 0, 3: 2, 4: 2, 5: 1, 6: 3, 7: 3, 8: 1}
    expected = np.rot90(GREY[:, ::-1] if orientation in (2, 4, 5, 7) else GREY, turns[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    np.testing.assert_array_equal(load(encoded(GREY, exif=exif), size=20, channels=1)[0], expected)


@settings(max_examples=60)
@given(
    side=st.integers(1, 40),
    longer=st.sampled_from([1, 3, 5]),
    wide=st.booleans(),
    size=st.integers(1, 40),
    channels=st.sampled_from([1, 3]),
)
def test_the_shorter_side_is_scaled(side: int, longer: int, wide: bool, size: int, channels: int) -> None:
    shape = (side, side * longer) if wide else (side * longer, side)
    pixels = np.random.default_rng(side).integers(0, 256, (*shape, 3), dtype=np.uint8)
    scaled = np.asarray(
        Image.fromarray(pixels)
        .resize((size * longer, size) if wide else (size, size * longer), Image.Resampling.BILINEAR)
        .convert("L" if channels == 1 else "RGB")
    ).reshape(size * (1 if wide else longer), -1, channels)
    before = size * (longer - 1) // 2
    middle = slice(before, before + size)
    expected = scaled[:, middle] if wide else scaled[middle]
    found = load(encoded(pixels), size=size, channels=channels)
    assert found.shape == (channels, size, size) and found.dtype == np.uint8
    assert np.abs(found.transpose(1, 2, 0).astype(int) - expected).max() <= 1


def test_a_thin_strip_is_not_scaled_whole() -> None:
    strip = np.full((1, 100_000), 90, dtype=np.uint8)
    assert (load(encoded(strip), size=64, channels=1) == 90).all()


def test_a_large_jpeg_is_what_pillow_makes_of_it() -> None:
    rows, columns = np.mgrid[:800, :1000] / 100
    smooth = (127 + 60 * np.sin(rows) + 60 * np.cos(columns)).astype(np.uint8)
    found = load(encoded(smooth, "JPEG", quality=95), size=50, channels=1)[0].astype(int)
    expected = Image.fromarray(smooth[:, 100:900]).resize((50, 50), Image.Resampling.BILINEAR)
    assert np.abs(found - np.asarray(expected)).max() <= 3


def test_an_animation_gives_its_first_frame() -> None:
    frames = [Image.fromarray(np.full((8, 8), value, np.uint8)) for value in (10, 200)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (load(data, size=8, channels=1) == 10).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "bad is empty"),
        (b"just text", "bad is no image in a known format"),
        (encoded(COLOUR, "JPEG")[:300], "bad cannot be read as an image"),
        (encoded(COLOUR)[:600], "bad cannot be read as an image"),
        (encoded(COLOUR)[:20], "bad"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "bad is no image in a known format"),
    ],
)
def test_what_is_no_image_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad").write_bytes(content)
    refuses(message, load, tmp_path / "bad", size=20, channels=3)


def test_files_that_lack_or_are_too_large_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuses(r"absent\.png cannot be read", read, tmp_path / "absent.png")
    refuses("is not a file", read, tmp_path)
    (tmp_path / "large.png").write_bytes(bytes(101))
    monkeypatch.setattr(image_files, "LARGEST_FILE", 100)
    refuses(r"large\.png has 101 bytes, more than the 100", read, tmp_path / "large.png")
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("large.png", bytes(10_000))
    refuses(r"large\.png in .*bomb\.zip has 10,000 bytes", read, (tmp_path / "bomb.zip", "large.png"))


def test_members_of_archives_are_read_and_the_damaged_named(tmp_path: Path) -> None:
    path, data = tmp_path / "images.zip", encoded(GREY)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/b.png", data)
    np.testing.assert_array_equal(load((path, "a/b.png"), size=20, channels=1)[0], GREY)
    refuses(r"images\.zip holds no file c\.png", read, (path, "c.png"))
    content = bytearray(path.read_bytes())
    content[content.index(data) + 60] ^= 0xFF
    path.write_bytes(content)
    refuses(r"a/b\.png in .*images\.zip cannot be unzipped", read, (path, "a/b.png"))
    path.write_bytes(content[:100])
    refuses(r"images\.zip cannot be opened as a zip archive", read, (path, "a/b.png"))


def test_identity_changes_with_the_image(tmp_path: Path) -> None:
    file, archive = tmp_path / "a.png", tmp_path / "a.zip"

    def write(content: bytes) -> list[str]:
        file.write_bytes(content)
        with zipfile.ZipFile(archive, "w") as target:
            target.writestr("a.png", content)
        return [identity(source) for source in (file, (archive, "a.png"), content)]

    first, again, other = write(b"one"), write(b"one"), write(b"other")
    assert first[1:] == again[1:]
    assert all(a != b for a, b in zip(first, other))
    assert len(set(first)) == 3


OUTSIDE = (
    *("/etc/passwd", "../a.png", "b/../../a.png", "b/../a.png", "", " ", "a\0"),
    *("C:\\a.png", "\\a.png", "..\\a.png"),
)


@pytest.mark.parametrize("relative", OUTSIDE)
def test_paths_out_of_the_folder_are_refused(tmp_path: Path, relative: str) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.png").write_bytes(b"secret")
    assert not is_contained(relative)
    refuses(r"row 3: .* is not a path inside", inside, tmp_path / "inner", relative, "row 3")


def test_links_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(b"secret")
    (folder / "sub" / "a.png").write_bytes(b"fine")
    (folder / "out.png").symlink_to(tmp_path / "secret.png")
    (folder / "up").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "within.png").symlink_to(folder / "sub" / "a.png")
    (tmp_path / "same").symlink_to(folder)
    assert inside(folder, "sub/a.png", "row 1").read_bytes() == b"fine"
    assert inside(folder, "within.png", "row 1").read_bytes() == b"fine"
    assert inside(tmp_path / "same", "sub/a.png", "row 1").read_bytes() == b"fine"
    assert inside(folder, "out.png", "row 1").read_bytes() == b"secret"  # as in a folder that DVC links
    assert inside(folder, "up/secret.png", "row 1").read_bytes() == b"secret"
    for relative, message in (
        ("up/../secret.png", "is not a path inside"),
        ("loop", "file not found:"),
        ("absent.png", r"row 2: file not found: .*absent\.png"),
    ):
        refuses(message, inside, folder, relative, "row 2")
    refuses("sub is not a file", read, inside(folder, "sub", "row 2"))


def test_rows_of_a_table_are_read_in_one_pass_and_again() -> None:
    passes: list[int] = []

    def begin() -> Iterator[list[int]]:
        passes.append(0)
        yield from (list(range(first, min(first + 32, 300))) for first in range(0, 300, 32))

    reader = Cursor("t.parquet", begin)
    for rows in (range(300), [0, 1, 7, 64, 65, 299], [299], [3], [290, 5, 200]):
        assert [reader(row) for row in rows] == list(rows)
    assert len(passes) == 4  # the first, and one for each row before those at hand
    refuses(r"t\.parquet has no row 301", reader, 300)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_thumbnail_is_upright_and_whole_and_says_the_files_size(kind: str, orientation: int) -> None:
    exif, out = Image.Exif(), io.BytesIO()
    exif[ExifTags.Base.Orientation] = orientation
    image = Image.new("RGB", (300, 120), "white")
    image.paste("black", (0, 0, 60, 120))  # its left fifth, which turning moves
    image.save(out, kind, exif=exif)
    small, size = thumbnail(out.getvalue(), "it", 64)
    upright = orientation in (1, 3)
    assert size == ((300, 120) if upright else (120, 300))
    assert max(small.size) == 64 and abs(min(small.size) - 64 * 120 / 300) <= 1
    grey = np.asarray(small.convert("L"), dtype=float)
    dark = {1: grey[:, :8], 3: grey[:, -8:], 6: grey[:8], 8: grey[-8:]}[orientation]
    light = {1: grey[:, 20:], 3: grey[:, :-20], 6: grey[20:], 8: grey[:-20]}[orientation]
    assert dark.mean() < 20 and light.mean() > 235


def test_a_small_thumbnail_keeps_its_pixels_and_a_damaged_one_is_named() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    data = encoded(pixels)
    small, size = thumbnail(data, "it", 64)
    assert size == (30, 20) and np.array_equal(np.asarray(small), pixels)
    for damaged in (data[:200], b"no image"):
        refuses("row 7", thumbnail, damaged, "row 7", 64)

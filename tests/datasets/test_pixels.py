"""Bits, photometric kinds and broken EXIF: the pixels that are meant, written out."""

import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.conftest import encoded, png, refuses
from usboost.datasets.image_files import load, thumbnail

GREY = np.linspace(0, 255, 64).reshape(8, 8).astype(np.uint8)
LAST_ROW = [0, 36, 73, 109, 146, 182, 219, 255]  # of eight steps from black to white


def tiff(
    values: np.ndarray,
    *,
    bits: int = 16,
    zero_is_white: bool = False,
    order: str = "<",
    packed: bool = False,
    more: tuple[tuple[int, int, int, int], ...] = (),
) -> bytes:
    """A grey TIFF of one strip; `more`: further tags as (tag, type, count, value)."""
    if bits == 12:
        flat = values.reshape(-1, 2).astype(np.uint32)
        pairs = (flat[:, 0] << 12) | flat[:, 1]
        data = b"".join(int(pair).to_bytes(3, "big") for pair in pairs)
    else:
        data = values.astype(np.dtype(f"u{bits // 8}").newbyteorder(order)).tobytes()
    data = zlib.compress(data) if packed else data
    height, width = values.shape
    tags = [
        (256, 3, 1, width),
        (257, 3, 1, height),
        (258, 3, 1, bits),
        (259, 3, 1, 8 if packed else 1),
        (262, 3, 1, 0 if zero_is_white else 1),
        (273, 4, 1, 8),
        (277, 3, 1, 1),
        (278, 3, 1, height),
        (279, 4, 1, len(data)),
        *more,
    ]
    data += b"\0" * (len(data) % 2)
    entries = b"".join(
        struct.pack(f"{order}HHI", tag, kind, count)
        + (struct.pack(f"{order}HH", value, 0) if kind == 3 else struct.pack(f"{order}I", value))
        for tag, kind, count, value in sorted(tags)
    )
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8 + len(data))
    directory = struct.pack(f"{order}H", len(tags)) + entries + struct.pack(f"{order}I", 0)
    return head + data + directory


STEPS = np.array([[0, 9362, 18724, 28086, 37449, 46811, 56173, 65535]] * 8, dtype=np.uint16)


@pytest.mark.parametrize(
    ("data", "row"),
    [
        (tiff(STEPS), LAST_ROW),
        (encoded(STEPS, "TIFF"), LAST_ROW),
        (tiff(STEPS, order=">"), LAST_ROW),
        (tiff(STEPS, packed=True), LAST_ROW),
        (tiff(STEPS, zero_is_white=True), LAST_ROW[::-1]),
        (tiff(STEPS, zero_is_white=True, packed=True), LAST_ROW[::-1]),
        (tiff(STEPS >> 4, bits=12), LAST_ROW),
        (tiff(STEPS >> 8, bits=8), LAST_ROW),
        (tiff(STEPS >> 8, bits=8, zero_is_white=True), LAST_ROW[::-1]),
        (encoded(STEPS), LAST_ROW),
        (encoded(STEPS, "PPM"), LAST_ROW),
        (encoded(STEPS, transparency=0), [255, *LAST_ROW[1:]]),
        (encoded(Image.fromarray((STEPS >> 8).astype(np.uint8)), transparency=0), [255, *LAST_ROW[1:]]),
        (b"P5 8 8 1023\n" + (STEPS >> 6).astype(">u2").tobytes(), LAST_ROW),
    ],
)
def test_grey_of_any_depth(data: bytes, row: list[int]) -> None:
    found = load(data, size=8, channels=1)[0].astype(int)
    assert np.abs(found - np.array([row] * 8)).max() <= 1
    assert found[0, 0] == row[0] and found[0, -1] == row[-1]
    np.testing.assert_array_equal(load(data, size=8, channels=3), np.stack([found] * 3))
    np.testing.assert_array_equal(np.asarray(thumbnail(data, "x", 8)[0].convert("L")), found)


def test_sixteen_bit_colours_and_alpha_in_a_png() -> None:
    """Pillow writes no such files: half red, and a quarter of black on white."""
    for kind, pixel, expected in ((2, (32768, 0, 65535), (128, 0, 255)), (4, (0, 16384), (191, 191, 191))):
        row = b"\0" + struct.pack(f">{len(pixel)}H", *pixel) * 8
        found = load(png(8, 8, zlib.compress(row * 8), 16, kind), size=8, channels=3)
        assert np.abs(found[:, 0, 0].astype(int) - expected).max() <= 1


def test_palettes_and_single_bits_with_something_transparent() -> None:
    palette = Image.fromarray((GREY // 64).astype(np.uint8))
    palette = Image.fromarray(np.asarray(palette), "P")
    palette.putpalette([9, 9, 9, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    shown = np.array([[132, 132, 132], [255, 0, 0], [255, 255, 255], [0, 0, 255]])
    found = load(encoded(palette, transparency=bytes([128, 255, 0, 255])), size=8, channels=3)
    assert np.abs(found.transpose(1, 2, 0).astype(int) - shown[GREY // 64]).max() <= 1
    bits = Image.fromarray(GREY > 127)
    white = load(encoded(bits, transparency=0), size=8, channels=1)[0]
    assert (white == 255).all()
    both = Image.merge("LA", (Image.fromarray(GREY), Image.new("L", (8, 8), 0)))
    for form in ("PNG", "TIFF", "WEBP"):
        assert (load(encoded(both, form), size=8, channels=1) >= 254).all()


@pytest.mark.parametrize(
    "data",
    [
        tiff(STEPS, more=((339, 3, 1, 2),)),  # with signs
        encoded(GREY.astype(np.float32), "TIFF"),
        encoded(GREY.astype(np.int32), "TIFF"),
    ],
)
def test_pixels_whose_white_is_unknown_are_refused(data: bytes) -> None:
    said = "x has 32-bit or signed pixels, of unknown white"
    refuses(said, load, data, "x", size=8, channels=1)


RATIONAL = struct.pack("<ii", -1, 0)


def exif(orientation: int, *, kind: int = 3, broken: str = "rational") -> bytes:
    """EXIF of two entries, of which the second is broken."""
    tag, form, count, offset = {
        "rational": (0x11A, 10, 1, 38),
        "offset": (0x11A, 5, 1, 100_000),
        "pointer": (0x8769, 4, 1, 100_000),
        "count": (0x10F, 2, 1 << 30, 38),
    }[broken]
    head = b"II*\0\x08\0\0\0" + struct.pack("<H", 2) + struct.pack("<HHII", 0x112, kind, 1, orientation)
    return head + struct.pack("<HHII", tag, form, count, offset) + struct.pack("<I", 0) + RATIONAL


def with_exif(form: str, data: bytes) -> bytes:
    if form != "JPEG":
        return encoded(WIDE, form, exif=data, **({"lossless": True} if form == "WEBP" else {}))
    jpeg, app1 = encoded(WIDE, "JPEG", quality=100), b"Exif\0\0" + data
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(app1) + 2) + app1 + jpeg[2:]


WIDE = np.repeat(np.repeat(np.array([[10, 90], [170, 250]], dtype=np.uint8), 16, axis=0), 16, axis=1)
TURNED = {  # where the four corners of WIDE come to lie
    1: [[10, 90], [170, 250]],
    2: [[90, 10], [250, 170]],
    3: [[250, 170], [90, 10]],
    4: [[170, 250], [10, 90]],
    5: [[10, 170], [90, 250]],
    6: [[170, 10], [250, 90]],
    7: [[250, 90], [170, 10]],
    8: [[90, 250], [10, 170]],
}


def corners(data: bytes) -> np.ndarray:
    return load(data, size=32, channels=1)[0][4::24, 4::24].astype(int)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("broken", ["rational", "offset", "pointer", "count"])
def test_intact_pixels_behind_broken_exif_are_turned(form: str, broken: str) -> None:
    for orientation, expected in TURNED.items():
        data = with_exif(form, exif(orientation, broken=broken))
        assert np.abs(corners(data) - expected).max() <= 2
        whole, size = thumbnail(data, "x", 32)
        corner = np.asarray(whole.convert("L")).astype(int)[4, 4]
        assert size == (32, 32) and abs(corner - expected[0][0]) <= 2


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "data",
    [
        b"\0\x08\0\x02\x01\x12\0\x03",
        b"II*\0\xff\xff\xff\xff",
        b"II*\0",
        exif(9),
        exif(0),
        exif(6, kind=2),
        exif(6, kind=99),
        exif(6)[:14],
    ],
)
def test_pixels_lie_as_they_do_where_no_orientation_can_be_read(form: str, data: bytes) -> None:
    assert np.abs(corners(with_exif(form, data)) - TURNED[1]).max() <= 2


@pytest.mark.parametrize("packed", [False, True])
def test_a_tiff_with_a_broken_tag_is_turned(packed: bool) -> None:
    turned = tiff(WIDE.astype(np.uint16) * 257, packed=packed, more=((274, 3, 1, 6), (282, 10, 1, 100_000)))
    np.testing.assert_array_equal(corners(turned), TURNED[6])


def test_filters_of_warnings_stay_while_images_are_read_in_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    data = [with_exif("JPEG", exif(6)), encoded(WIDE), with_exif("PNG", b"II*\0")] * 60
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        before = list(warnings.filters)
        with ThreadPoolExecutor(8) as pool:
            assert len(list(pool.map(lambda each: load(each, size=8, channels=1), data))) == 180
        assert warnings.filters == before

"""Images as a view: rows as numpy cuts them, decoded bytes equal to the pixels that were encoded."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from tests.conftest import encoded, refuses
from usboost.data.images import EncodedImages, Images
from usboost.errors import UsboostError

RNG = np.random.default_rng(0)
PIXELS = {channels: RNG.integers(0, 256, (50, channels, 6, 9), dtype=np.uint8) for channels in (1, 3)}


def encode(pixels: np.ndarray, form: str = "PNG") -> bytes:
    return encoded(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0), form)


def column(pixels: np.ndarray, chunks: int = 3) -> pa.ChunkedArray:
    parts = np.array_split(np.arange(len(pixels)), chunks)
    return pa.chunked_array([pa.array([encode(pixels[k]) for k in part], pa.binary()) for part in parts])


ENCODED = {
    channels: EncodedImages(column(pixels), channels=channels, height=6, width=9)
    for channels, pixels in PIXELS.items()
}

ROWS = st.one_of(
    st.slices(50),
    st.lists(st.integers(-50, 49), max_size=20).map(lambda rows: np.array(rows, dtype=np.int64)),
    hnp.arrays(np.bool_, 50),
)


@given(rows=ROWS, channels=st.sampled_from([1, 3]))
def test_rows_are_cut_as_numpy_cuts_them(rows: Any, channels: int) -> None:
    pixels, expected = PIXELS[channels], PIXELS[channels][rows]
    for view in (Images(pixels), ENCODED[channels]):
        cut = view[rows]
        assert len(cut) == len(expected) and (cut.channels, cut.height, cut.width) == (channels, 6, 9)
        np.testing.assert_array_equal(cut.decode(), expected)
        np.testing.assert_array_equal(view.decode(rows), expected)


@given(data=st.data())
def test_a_cut_of_a_cut_is_numpys(data: st.DataObject) -> None:
    first = data.draw(st.lists(st.integers(0, 49), min_size=1, max_size=30))
    second = data.draw(st.lists(st.integers(0, len(first) - 1), max_size=30).map(lambda r: np.array(r, int)))
    expected = PIXELS[3][first][second]
    np.testing.assert_array_equal(ENCODED[3][first][second].decode(), expected)
    np.testing.assert_array_equal(ENCODED[3][first].decode(second), expected)
    np.testing.assert_array_equal(Images(PIXELS[3])[first][second].pixels, expected)


@pytest.mark.parametrize("row", [0, 49, -1, -50, np.int64(7)])
def test_one_row_stays_a_view(row: int) -> None:
    for view in (Images(PIXELS[1]), ENCODED[1]):
        assert len(view[row]) == 1
        np.testing.assert_array_equal(view[row].decode()[0], PIXELS[1][row])
    assert Image.open(io.BytesIO(ENCODED[1].encoded(row))).size == (9, 6)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_change_what_is_decoded(threads: int) -> None:
    np.testing.assert_array_equal(ENCODED[3].decode(threads=threads), PIXELS[3])
    np.testing.assert_array_equal(ENCODED[3].decode(slice(3, 40), threads=threads), PIXELS[3][3:40])


def test_jpeg_is_decoded_as_pillow_does() -> None:
    data = encode(PIXELS[3][0], "JPEG")
    images = EncodedImages(pa.array([data], pa.large_binary()), channels=3, height=6, width=9)
    expected = np.asarray(Image.open(io.BytesIO(data))).transpose(2, 0, 1)
    np.testing.assert_array_equal(images.decode()[0], expected)


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((2, 3, 4, 4), dtype=np.float32),
        np.zeros((2, 4, 4), dtype=np.uint8),
        np.zeros((2, 4, 4, 3), dtype=np.uint8),
    ],
)
def test_other_arrays_are_refused(pixels: np.ndarray) -> None:
    refuses(r"uint8 of shape \(n, 1 or 3, height, width\)", Images, pixels)


def test_other_columns_are_refused() -> None:
    shape = {"channels": 1, "height": 6, "width": 9}
    refuses("binary column, not string", EncodedImages, pa.array(["a"]), **shape)
    refuses("channels, not 4", EncodedImages, pa.array([b"a"], pa.binary()), channels=4, height=6, width=9)


def test_rows_without_a_image_are_told_and_decode_to_zeros() -> None:
    whole = ENCODED[1]
    data = [None if k in (1, 4) else whole.encoded(k) for k in range(6)]
    images = EncodedImages(pa.array(data, pa.binary()), channels=1, height=6, width=9)
    assert whole.absent is None and np.flatnonzero(images.absent).tolist() == [1, 4]
    expected = PIXELS[1][:6].copy()
    expected[[1, 4]] = 0
    for threads in (1, 3):
        np.testing.assert_array_equal(images.decode(threads=threads), expected)
    cut = images[[4, 0, 1]]
    assert cut.absent.tolist() == [True, False, True] and cut.encoded(0) == b""
    np.testing.assert_array_equal(cut.decode(), expected[[4, 0, 1]])
    assert (cut.digests()[0] == cut.digests()[2]).all() and (cut.digests()[0] != cut.digests()[1]).any()
    with pytest.raises(UsboostError, match="image 1 cannot be decoded"):
        EncodedImages(pa.array([data[0], b""], pa.binary()), channels=1, height=6, width=9).decode()


def test_damaged_and_odd_images_are_named() -> None:
    good = encode(PIXELS[1][0])
    for bad, message in (
        (good[: len(good) // 2], "image 1 cannot be decoded"),
        (b"no image", "image 1 cannot be decoded"),
        (encode(PIXELS[3][0]), "image 1 is RGB of 9 x 6 pixels, not L of 9 x 6"),
        (encode(PIXELS[1][0][:, :5]), "image 1 is L of 9 x 5 pixels, not L of 9 x 6"),
    ):
        images = EncodedImages(pa.array([good, bad], pa.binary()), channels=1, height=6, width=9)
        np.testing.assert_array_equal(images.decode([0])[0], PIXELS[1][0])
        refuses(message, images.decode)


def test_rows_of_images_share_their_pixels_and_digests(tmp_path: Path) -> None:
    on_disk = np.memmap(tmp_path / "pixels", np.uint8, "w+", shape=PIXELS[3].shape)
    on_disk[:] = PIXELS[3]
    whole = Images(on_disk)
    assert whole.pixels is on_disk and whole.decode() is on_disk
    cut = whole[10:40][np.arange(30) % 3 == 0]
    assert cut._pixels is on_disk and len(cut) == 10
    read = []

    class Watched(np.ndarray):
        def __getitem__(self, rows: Any) -> Any:
            read.append(rows)
            return super().__getitem__(rows)

    watched = Images(PIXELS[3].view(Watched))
    some = watched[[4, 4, 7]]
    assert read == []
    first = some.digests()
    assert sorted(read) == [4, 7]
    watched[4:9].digests()
    assert sorted(read) == [4, 5, 6, 7, 8]
    np.testing.assert_array_equal(first, whole[[4, 4, 7]].digests())


def test_a_digest_says_what_a_image_is() -> None:
    pixels = np.concatenate([PIXELS[1], PIXELS[1][::-1]])
    found = Images(pixels).digests()
    assert found.shape == (100, 16) and found.dtype == np.uint8
    assert len(np.unique(found, axis=0)) == 50
    np.testing.assert_array_equal(found[:50], found[:49:-1])
    np.testing.assert_array_equal(Images(np.asfortranarray(pixels)).digests(), found)
    turned = Images(np.ascontiguousarray(pixels.reshape(100, 1, 9, 6))).digests()
    assert (turned != found).any(axis=1).all()
    expected = hashlib.blake2b(b"(1, 6, 9)" + PIXELS[1][3].tobytes(), digest_size=16).digest()
    assert found[3].tobytes() == expected
    encoded = ENCODED[1][[5, 6, 5]]
    assert encoded.digests()[1].tobytes() == hashlib.blake2b(encoded.encoded(1), digest_size=16).digest()
    assert (encoded.digests()[0] == encoded.digests()[2]).all()
    assert ENCODED[1][:0].digests().shape == Images(pixels)[:0].digests().shape == (0, 16)


@given(rows=ROWS)
def test_who_has_no_image_is_cut_along(rows: Any) -> None:
    absent = np.arange(50) % 3 == 0
    np.testing.assert_array_equal(Images(PIXELS[1], absent=absent)[rows].absent, absent[rows])
    assert Images(PIXELS[1])[rows].absent is None and ENCODED[1][rows].absent is None


def test_a_mask_of_other_rows_is_refused() -> None:
    for absent in (np.zeros(49, dtype=bool), np.zeros(50, dtype=np.uint8)):
        refuses(r"absent must be bool of shape \(50,\)", Images, PIXELS[1], absent=absent)

"""Images as people have them: read from a file, a zip, a table or memory, and made uniform.

Every image becomes an 8-bit square, grey or red-green-blue:

- turned upright as its EXIF orientation says, if that can be read; of an animation the first frame;
- transparency is laid on white; CMYK and the like become RGB; 16-bit values are divided by 257, 12-bit ones
  likewise, and where a TIFF says that 0 is white, they are inverted;
- it is scaled (bilinear, antialiased) to the size asked for: "crop" takes the largest square in its centre,
  "pad" lays all of it on a grey square, "stretch" changes its proportions; a square image that has the
  size already keeps its pixels.
"""

import hashlib
import io
import math
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from os import stat_result
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal

import numpy as np
from PIL import ExifTags, Image

from usboost.data.images import MODES
from usboost.errors import UsboostError

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
"""Formats that are read; Pillow knows more formats, some of which start other programs."""

LARGEST_FILE = 1 << 28
"""Bytes of an image's file above which it is refused, before it is read or unzipped."""


Aspect = Literal["crop", "pad", "stretch"]
"""The way that an image of any proportions becomes a square."""

PADDING = 127
"""The grey around a padded image."""


Source = Path | tuple[Path, str] | bytes
"""An image: a file, a member of a zip archive, or its bytes."""


def name_of(source: Source) -> str:
    """Name the image as a user knows it."""
    if isinstance(source, Path):
        return str(source)
    return "an image" if isinstance(source, bytes) else f"{source[1]} in {source[0]}"


def identity(source: Source) -> str:
    """Return a text that changes when the image does: name, size and time of a file, checksum in a zip.

    Raises UsboostError if the file, archive or member is missing.
    """
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    if isinstance(source, tuple):
        _, info = _member(*source)
        return f"{source[0]}|{source[1]}|{info.CRC}|{info.file_size}"
    status = _status(source)
    return f"{source}|{status.st_size}|{status.st_mtime_ns}"


def read(source: Source, name: str | None = None) -> bytes:
    """Read the bytes of an image, called `name` in errors.

    Raises UsboostError if it is missing, empty, larger than `LARGEST_FILE`, or in a damaged archive.
    """
    name = name or name_of(source)
    if isinstance(source, bytes):
        data, size = source, len(source)
    elif isinstance(source, tuple):
        archive, info = _member(*source)
        size = info.file_size
        try:
            data = unpack(archive, info) if size <= LARGEST_FILE else b""
        # zlib, bz2 and lzma each have errors of their own
        except Exception as error:
            raise UsboostError(f"{name} cannot be unzipped ({error}); replace the archive") from error
    else:
        status = _status(source)
        if not stat.S_ISREG(status.st_mode):
            raise UsboostError(f"{name} is not a file; correct the path, or leave it out")
        size = status.st_size
        try:
            data = source.read_bytes() if size <= LARGEST_FILE else b""
        except OSError as error:
            raise UsboostError(f"{name} cannot be read: {error.strerror}") from None
    if size > LARGEST_FILE:
        raise UsboostError(f"{name} has {size:,} bytes, more than the {LARGEST_FILE:,} an image may have")
    if not data:
        raise UsboostError(f"{name} is empty; replace or leave out this image")
    return data


def load(
    source: Source, name: str | None = None, *, size: int, channels: int, aspect: Aspect = "crop"
) -> np.ndarray:
    """Load an image, called `name` in errors, as the networks see it: uint8 of shape (channels, size, size).

    Raises UsboostError if it cannot be read (see `read`), is damaged or cut short, is of no format in
    `FORMATS`, has 32-bit or floating-point pixels, or has more pixels than ``PIL.Image.MAX_IMAGE_PIXELS``.
    """
    name = name or name_of(source)
    image = square(read(source, name), name, size=size, channels=channels, aspect=aspect)
    pixels = np.asarray(image)
    return pixels[None].copy() if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def square(data: bytes, name: str, *, size: int, channels: int, aspect: Aspect = "crop") -> Image.Image:
    """Make the image in `data` a square 8-bit image; errors as `load`, naming it `name`."""
    with _opened(data, name) as image:
        # A JPEG much larger than needed is decoded at a half, quarter or eighth of its size.
        image.draft(None, (2 * size, 2 * size))
        return sized(uniform(upright(image), image, name), size, aspect).convert(MODES[channels])


def thumbnail(data: bytes, name: str, most: int) -> tuple[Image.Image, tuple[int, int]]:
    """Make the whole image in `data` a small one, upright, in mode L or RGB; errors as `load`.

    `most`: pixels of its longer side, to which a larger one is scaled.

    Returns the image, and the width and height that it has in the file.
    """
    with _opened(data, name) as image:
        whole = image.size
        image.draft(None, (2 * most, 2 * most))
        lying = image.size
        made = uniform(upright(image), image, name)
        width, height = whole if made.size == lying else whole[::-1]
        made.thumbnail((most, most), Image.Resampling.BILINEAR)
        return made, (width, height)


@contextmanager
def _opened(data: bytes, name: str) -> Iterator[Image.Image]:
    """Open the image in `data`, called `name`; what Pillow raises within becomes errors that say what to do.

    Filters of warnings are left alone: they belong to the process, and images are read in threads.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if Image.MAX_IMAGE_PIXELS is not None and math.prod(image.size) > Image.MAX_IMAGE_PIXELS:
                raise Image.DecompressionBombError
            yield image
    except UsboostError:
        raise
    # the first where somebody's filters make warnings errors
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise UsboostError(f"{name} has over {Image.MAX_IMAGE_PIXELS:,} pixels; make it smaller") from None
    except Image.UnidentifiedImageError:
        raise UsboostError(f"{name} is no image in a known format ({', '.join(FORMATS)})") from None
    # A damaged file can make Pillow's decoders raise nearly anything.
    except Exception as error:
        raise UsboostError(f"{name} cannot be read as an image ({error}); replace or leave it out") from error


def inside(folder: Path, relative: str, name: str) -> Path:
    """Find what is at a path `relative` to a folder, which it may not leave but through a link in the folder.

    Raises UsboostError if the path is absolute, contains ``..``, or there is nothing. `name`: where the path
    was found, for the error message.
    """
    folder = Path(folder)
    shown = folder.absolute() if folder == Path() else folder
    if not is_contained(relative):
        raise UsboostError(f"{name}: {relative!r} is not a path inside {shown}, as paths must be")
    path = folder / relative
    try:
        path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise UsboostError(f"{name}: file not found: {path}") from None
    return path


def is_contained(relative: str) -> bool:
    """Tell whether a path is relative, without ``..``, on any system."""
    posix, windows = PurePosixPath(relative), PureWindowsPath(relative)
    return not (
        not relative.strip()
        or "\0" in relative
        or posix.is_absolute()
        or windows.drive
        or windows.root
        or ".." in windows.parts
    )


class Cursor:
    """Values by the position of their row: asked for in rising order, they take one pass, a few in memory.

    Parameters
    ----------
    what : has the values, for messages.
    begin : begins a pass over them; a row before those at hand needs a new one.
    """

    def __init__(self, what: object, begin: Callable[[], Iterator[list[Any]]]) -> None:
        self._what, self._begin = what, begin
        self._first, self._values, self._pass = 0, list[Any](), begin()

    def __call__(self, row: int) -> Any:
        if row < self._first:
            self._first, self._values, self._pass = 0, [], self._begin()
        while row >= self._first + len(self._values):
            self._first += len(self._values)
            try:
                self._values = next(self._pass)
            except StopIteration:
                raise UsboostError(f"{self._what} has no row {row + 1}; it is damaged") from None
        return self._values[row - self._first]


def unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Unpack a member's bytes, no more than the directory says, as `ZipFile.read` would."""
    with archive.open(info) as member:
        return member.read(info.file_size)


def _status(path: Path) -> stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise UsboostError(f"{path} cannot be read: {error.strerror}") from None


def _member(archive: Path, member: str) -> tuple[zipfile.ZipFile, zipfile.ZipInfo]:
    status = _status(archive)
    opened = _open_archive(archive, status.st_size, status.st_mtime_ns)
    try:
        return opened, opened.getinfo(member)
    except KeyError:
        raise UsboostError(f"{archive} holds no file {member}") from None


@lru_cache(maxsize=4)
def _open_archive(path: Path, _size: int, _time: int) -> zipfile.ZipFile:
    """Open an archive, cached while its file stays the same; a long list of members is slow to read."""
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # zipfile raises nearly anything for a damaged directory
        raise UsboostError(f"{path} cannot be opened as a zip archive: {error}") from None


_TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Turns that put an image upright, by its EXIF orientation."""


def upright(image: Image.Image) -> Image.Image:
    """Turn the image as its EXIF says; leave it as it lies where that cannot be read.

    Not `PIL.ImageOps.exif_transpose`, which writes all of the EXIF again, and fails where a part is broken.
    """
    image.load()
    try:
        turned = _TURNED.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # broken EXIF can make Pillow raise nearly anything; the pixels are intact
        turned = None
    return image if turned is None else image.transpose(turned)


def _eight_bits(image: Image.Image, opened: Image.Image) -> Image.Image:
    """Make grey of 16 bits, or of 12 in a TIFF, mode L; one value may be transparent, which is white."""
    tags = getattr(opened, "tag_v2", {})
    (bits, *_), zero_is_white = tags.get(258, (16,)), tags.get(262) == 0  # BitsPerSample, photometric
    values = np.asarray(image).astype(np.int64)
    most = 4095 if bits == 12 else 65535
    grey = (values * 255 + most // 2) // most
    grey = 255 - grey if zero_is_white else grey
    if isinstance(clear := opened.info.get("transparency"), int):
        grey[values == clear] = 255
    return Image.fromarray(grey.clip(0, 255).astype(np.uint8))


def uniform(image: Image.Image, opened: Image.Image, name: str) -> Image.Image:
    """Make the image mode L or RGB; `opened`: as it is in the file."""
    if image.mode.startswith("I;16") or (image.mode == "I" and opened.format in ("PNG", "PPM")):
        image = _eight_bits(image, opened)
    elif image.mode in ("I", "F"):
        raise UsboostError(f"{name} has 32-bit or signed pixels, of unknown white; convert it to 8 bits")
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    elif image.mode not in ("L", "RGB"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    return image


def sized(image: Image.Image, size: int, aspect: Aspect) -> Image.Image:
    """Make an image in mode L or RGB a square of a side."""
    if aspect == "stretch":
        return image.resize((size, size), Image.Resampling.BILINEAR)
    if aspect == "pad":
        most = max(image.size)
        width, height = (max(1, round(side * size / most)) for side in image.size)
        out = Image.new(image.mode, (size, size), (PADDING,) * len(image.getbands()))
        scaled = image.resize((width, height), Image.Resampling.BILINEAR)
        out.paste(scaled, ((size - width) // 2, (size - height) // 2))
        return out
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    # Cropping and scaling at once: a thin strip scaled whole would be enormous.
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))

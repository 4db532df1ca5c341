"""The pixels of an image of any kind that Pillow opens, made upright, of 8 bits, and square."""

from __future__ import annotations

from typing import Literal

import numpy as np
from PIL import ExifTags, Image

from usboost.errors import UsboostError

Aspect = Literal["crop", "pad", "stretch"]
"""How an image of any proportions becomes a square."""

PADDING = 127
"""The grey beside a padded image."""

_BITS, _PHOTOMETRIC = 258, 262  # tags of a TIFF

_TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns an image upright, by its EXIF orientation."""


def upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF says; as it lies where that cannot be read.

    Not `PIL.ImageOps.exif_transpose`, which writes all of the EXIF again, and fails where a part is broken.
    """
    image.load()
    try:
        turned = _TURNED.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # broken EXIF can make Pillow raise nearly anything; the pixels are intact
        turned = None
    return image if turned is None else image.transpose(turned)


def _eight_bits(image: Image.Image, opened: Image.Image) -> Image.Image:
    """Grey of 16 bits, or of 12 in a TIFF, in mode L; one value may be transparent, which is white."""
    tags = getattr(opened, "tag_v2", {})
    (bits, *_), zero_is_white = tags.get(_BITS, (16,)), tags.get(_PHOTOMETRIC) == 0
    values = np.asarray(image).astype(np.int64)
    most = 4095 if bits == 12 else 65535
    grey = (values * 255 + most // 2) // most
    grey = 255 - grey if zero_is_white else grey
    if isinstance(clear := opened.info.get("transparency"), int):
        grey[values == clear] = 255
    return Image.fromarray(grey.clip(0, 255).astype(np.uint8))


def uniform(image: Image.Image, opened: Image.Image, name: str) -> Image.Image:
    """The image in mode L or RGB; `opened`: as it is in the file."""
    if image.mode.startswith("I;16") or (image.mode == "I" and opened.format in ("PNG", "PPM")):
        image = _eight_bits(image, opened)
    elif image.mode in ("I", "F"):
        raise UsboostError(
            f"{name} has 32-bit pixels, or such with a sign, whose white is unknown; convert it to 8 bits"
        )
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    elif image.mode not in ("L", "RGB"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    return image


def sized(image: Image.Image, size: int, aspect: Aspect) -> Image.Image:
    """A square image of a side in mode L or RGB."""
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
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)

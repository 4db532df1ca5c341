"""A map of heat over an image."""

from __future__ import annotations

import numpy as np
from PIL import Image

FALLS, RISES = (213, 94, 0), (0, 114, 178)
"""Colours of heat above and below 0; they differ for those who see few colours, too."""

LEAST = 0.02
"""The heat that has the full colour at least, so that next to nothing stays pale."""

_MOST = 0.8  # of the full colour, the rest being the image


def full(heat: np.ndarray) -> float:
    """The heat, of either sign, that has the full colour."""
    return max(LEAST, float(np.abs(heat).max()))


def overlay(pixels: np.ndarray, heat: np.ndarray) -> Image.Image:
    """The image in grey under its heat.

    Parameters
    ----------
    pixels : uint8 (C, H, W), C being 1 or 3.
    heat : float (H, W).
    """
    grey = pixels.mean(axis=0)[..., None]
    pale = 64 + grey * (191 / 255)  # colours would not be told apart on black
    share = np.minimum(np.abs(heat) / full(heat), 1)[..., None] * _MOST
    colour = np.where(heat[..., None] > 0, FALLS, RISES)
    return Image.fromarray(np.rint(pale * (1 - share) + colour * share).astype(np.uint8))

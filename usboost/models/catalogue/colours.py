"""A colour for each model, of its own: that of its line in the report's figures, or a shade of it."""

from __future__ import annotations

from usboost.models.catalogue import catalogue

OTHERS = (
    *("#882255", "#44aa99", "#999933", "#6a3fb5", "#cc6677", "#117733", "#a0522d", "#332288"),
    *("#444444", "#e6007e", "#5aa700", "#00a5c4", "#b8a100", "#c0392b", "#8b6fd8", "#3f6f7f"),
    *("#b51ec5", "#7f5539", "#2f4f9f", "#6b6b00", "#ff7f7f", "#00695c", "#9e9e9e", "#b71c5c"),
)
"""Of models that the catalogue gives no look; its looks are Okabe and Ito's colours, too."""

_SHADES = ((255, 0.0), (255, 0.5), (0, 0.5))
"""What is mixed, and how much of it, into the colour of the first, second and third model that has it."""


def model_colour(name: str) -> str | None:
    """A colour that no other model of the catalogue has; None of a model that is not in it.

    In figures a model may have another one's colour and be dashed, or have another marker. Where neither is
    shown, it has a lighter or darker shade.
    """
    given: dict[str, int] = {}
    looks = {entry.name: entry.line.colour for entry in catalogue.CATALOGUE.values() if entry.line}
    others = [entry.name for entry in catalogue.CATALOGUE.values() if not entry.line]
    looks |= {each: OTHERS[place % len(OTHERS)] for place, each in enumerate(others)}
    for each in catalogue.CATALOGUE:
        colour = looks[each]
        if each == name:
            return _mixed(colour, *_SHADES[given.get(colour, 0)])
        given[colour] = given.get(colour, 0) + 1
    return None


def _mixed(colour: str, other: int, share: float) -> str:
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(part * (1 - share) + other * share):02x}" for part in parts)

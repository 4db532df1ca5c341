"""The members of an ensemble in print: weights, losses, what each adds, times, sizes."""

from typing import Any

import numpy as np

from usboost.evaluation.ranking import number
from usboost.models.methods.average import Average
from usboost.models.methods.fold_fits import ROWS, Member

NAME, BLEND = "member", "blend"
"""The first column, and the last row."""


def members_table(model: Any, rmse: float | None) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the titles of columns, and a row for each member, those of weight first, and the blend.

    Both are empty without members; a column that says nothing of any is left out.

    Parameters
    ----------
    rmse : the score of an average of numbers on the rows that chose its weights, where no floor changed it.
    """
    members: dict[str, Member] = getattr(model, "members_", {})
    if not members:
        return {}, []
    titles = {NAME: NAME, "weight": "weight", "loss": "log-loss" if model.n_outputs > 1 else "RMSE"}
    titles |= {"without": "without it", "fits": "fits", "seconds": "seconds"}
    titles |= {"predicting": f"{ROWS:,} rows", "size": "size"}
    ranked = sorted(members.items(), key=lambda item: (-item[1].weight, item[1].loss or np.inf))
    weighted = [each for each in members.values() if each.weight]
    blend = Member(
        sum(each.weight for each in weighted),
        model.blend_loss_,
        fits=sum(each.fits + each.full_refits for each in weighted),
        seconds=sum(each.seconds for each in members.values()),
        predicting=sum(each.predicting for each in weighted),
    )
    # losses are of standardised numbers: an average's by the scale of the fit that they judged, no refit's
    unit = getattr(model, "target_scale_", None)
    if rmse and model.blend_loss_ and isinstance(model, Average):
        unit = rmse / np.sqrt(model.blend_loss_)
    sizes = {**model.bytes_, BLEND: sum(model.bytes_.values())}
    rows = [
        {
            NAME: name,
            "weight": f"{each.weight:.2f}" if each.weight else "–",
            "loss": _loss(unit, each.loss),
            "without": _loss(unit, each.without),
            "fits": _fits(each),
            "seconds": f"{each.seconds:,.1f}" if each.seconds else "–",
            "predicting": _seconds(each.predicting) if each.predicting else "–",
            "size": f"{sizes[name] / 1e6:,.1f} MB" if sizes.get(name) else "–",
        }
        for name, each in [*ranked, (BLEND, blend)]
    ]
    return {key: title for key, title in titles.items() if any(row[key] != "–" for row in rows)}, rows


def notes(model: Any) -> list[str]:
    """Return sentences on how the table is to be read, and on what is left out."""
    if not getattr(model, "members_", {}):
        return []
    lines = ["Losses are of rows that a member was not fitted to; the blend's chose its weights."]
    if any(each.seconds for each in model.members_.values()):
        lines[0] += (
            " Seconds are those of the fits on this computer, and of 1,000 rows through all fits of a "
            "member; new images take theirs besides, once for all."
        )
    if any(each.full_refits for each in model.members_.values()):
        of_folds = "those to folds together have the weight of one of these"
        if not any(model.fits_.values()):
            of_folds = "that to a single fold is dropped"
        lines.append(f"After + are fits to all rows; {of_folds}.")
    lines += [f"{name} is left out: {m.left_out}." for name, m in model.members_.items() if m.left_out]
    weights = [each.weight for each in model.members_.values() if each.weight]
    if len(weights) == 1:
        lines.append("No other member made the scores better beyond noise, so one is all there is.")
    return lines


def _fits(member: Member) -> str:
    if not member.fits:
        return "left out" if member.left_out else "no time"
    whole = f" + {member.full_refits:d}" if member.full_refits else ""
    return f"{member.fits}{whole}{', cut short' if member.cut else ''}"


def _loss(unit: float | None, loss: float | None) -> str:
    """Write a log-loss, or in `unit` the root of a mean square."""
    if loss is None:
        return "–"
    return number(loss if unit is None else unit * float(np.sqrt(loss)))


def _seconds(value: float) -> str:
    return f"{value:.2g} s" if value < 10 else f"{value:,.0f} s"

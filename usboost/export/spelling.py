"""The spellings of values, as pairs of a pattern and what stands for it: how ``predict.py`` reads them.

In a card they are put in place one after another, and what they leave is read as it is.
"""

import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from itertools import product
from typing import Any

from usboost.data.value import TRUTH
from usboost.table.columns.formats import LIMIT, PARTS, SHORTENED, DateFormat, NumberFormat

Pairs = list[list[str]]

SIGNS = [["[٫．]", "."], ["[٬，]", ","], ["[\u2212－]", "-"], ["＋", "+"]]
"""The marks of other scripts."""


def of_categories(values: Sequence[str], missing: Collection[str]) -> Pairs:
    """Return what makes one of `values` of another spelling: 3.0 is 3; a missing one is ""."""

    def but(others: Collection[str]) -> str:
        return f"^(?!(?:{'|'.join(map(re.escape, others))})$)" if others else "^"

    decimals = [value for value in values if re.fullmatch(r"-?(0|[1-9]\d*)\.\d+", value) and len(value) < 18]
    short = {str(float(value)).removesuffix(".0"): value for value in decimals[::-1]}
    short |= {str(float(v)): v for v in values if re.fullmatch(r"-?\d{17,}", v) and str(int(float(v))) == v}
    short |= {f"{Decimal(v):f}": v for v in values if re.fullmatch(r"-?\d(\.\d+)?e-\d+", v)}
    pairs = [
        [r"^(\d{4}-\d\d-\d\d)[ T]00:00:00(?:\.0+)?(?:Z|\+00:?00)?$", r"\1"],
        [but(decimals) + r"(-?(?:0|[1-9]\d{0,14}))\.0+$", r"\1"],
        [but(decimals) + r"(?!.{18})(-?(?:0|[1-9]\d*)\.\d*[1-9])0+$", r"\1"],
        ["^-0$", "0"],
        *([f"^{re.escape(other)}$", value] for other, value in short.items() if other not in values),
        *([f"^{re.escape(each)}$", ""] for each in sorted(missing)),
    ]
    if all(value.lower() in TRUTH for value in values):
        pairs += [
            [f"{but(values)}(?i:{word})$", value]
            for value, (word, truth) in product(values, TRUTH.items())
            if truth == TRUTH[value.lower()]
        ]
    return pairs


def of_numbers(form: NumberFormat | None) -> Pairs:
    """Return what makes a number one that Python reads, and "" of what is none."""
    own, sign = form or NumberFormat(), "[+-]? ?"
    unit, body = re.escape(own.unit), own.body.pattern
    ways = [f"{sign}{body} ?{unit}"]
    ways += [f"{unit} ?{sign}{body}", f"{sign}{unit} ?{body}", f"{sign}{body}"] if own.is_money else []
    return [
        *SIGNS,
        ["[\u00a0\u202f\u2009]", " "],
        ["[\u2019\u02bc]", "'"],
        [LIMIT, r"\1"],
        *([pattern, number] for number, pattern in SHORTENED.items()),
        *([] if own.unit else [["^(?i:true)$", "1"], ["^(?i:false)$", "0"]]),
        [f"^(?!(?:{'|'.join(ways)})$)[\\s\\S]*$", ""],
        [f"[ {re.escape(own.thousands)}]|{unit}", ""],
        [re.escape(own.decimal), "."],
    ]


def of_dates(form: DateFormat) -> dict[str, Any]:
    """Return what puts the parts of a date in one order, and the forms in which these may then be."""
    zone = {None: "Z", "UTC": "Z"}.get(form.zone) or form.zone or ""
    is_named = zone[:1].isalpha() and zone != "Z"
    pairs = [*SIGNS]
    for pattern in (each.pattern for each in form.patterns):
        none = "".join(f"(?P<{part}>)" for part in PARTS if f"<{part}>" not in pattern)
        year, month, day, *clock, half, own = (rf"\g<{part}>" for part in PARTS)
        pairs.append([f"^(?ai:{pattern}{none})$", f"{year}-{month}-{day} {':'.join(clock)}.0 {half} {own}"])
    pairs += [
        ["-(?=[- ])", "-1"],  # no month or day
        ["^-", "1970-"],
        [" ::.*$", " 0:0:0.0 Z"],  # no clock, and then no zone
        [r":(?=\.0)", ":0"],
        [r"[.,](\d{1,6})\d*\.0 ", r".\1 "],
        ["-([A-Za-z]{3})[A-Za-z]*-", r"-\1-"],
        [r" ([apAP])\.?[mM]\.? ", r" \1m "],
        # of a column without zones the clock counts as it is written
        *([[r" \S*$", " Z"]] if zone == "" else []),
        ["(?i) (?:UTC|GMT)(?=[+-])", " "],
        ["(?i) (?:UTC|GMT|Z)$", " Z"],
        [r"( [+-]\d\d)$", r"\1:00"],
        [" +$", "" if is_named else f" {zone}"],
    ]
    years, zones = ("Y", "y")[: 1 + form.short_years], (" %z", "")[: 1 + is_named]
    ways = product(years, "mb", ("%H:%M:%S.%f", "%I:%M:%S.%f %p"), zones)
    forms = [f"%{y}-%{m}-%d {clock}{z}" for y, m, clock, z in ways]
    return {"rewrite": pairs, "forms": forms, "zone": zone, "clock": form.order == "clock"}

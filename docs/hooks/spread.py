"""A mean and its spread, and the ends of an interval, stay on one line, in tables above all."""

from __future__ import annotations

import re
from typing import Any

ENDS = re.compile(r"(?<=\d) to (?=[+−]\.?\d)")


def on_page_content(html: str, **_: Any) -> str:
    return ENDS.sub("&nbsp;to&nbsp;", html.replace(" ± ", "&nbsp;±&nbsp;"))

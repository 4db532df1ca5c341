"""A mean and its spread stay on one line, in tables above all."""

from __future__ import annotations

from typing import Any


def on_page_content(html: str, **_: Any) -> str:
    return html.replace(" ± ", "&nbsp;±&nbsp;")

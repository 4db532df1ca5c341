"""Tables of numbers as the pages have them, and their places in a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def between_marks(page: str, name: str, text: str) -> str:
    """Return a page with `text` between its marks ``<!-- name -->`` and ``<!-- end of name -->``."""
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, after = page.index(first) + len(first), page.index(last)
    return f"{page[:before]}\n\n{text}\n{page[after:]}"


def table_of(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    rows = [f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|" for line in (heads, *lines)]
    return "\n".join([rows[0], "|---" * len(heads) + "|", *rows[1:]]) + "\n"


def number(value: float, digits: int, sign: str = "") -> str:
    """Return a number as the pages have it: .123, −.012, 1.234."""
    text = f"{value:{sign}.{digits}f}".replace("-", "−")
    return text.replace("0.", ".", 1) if text.lstrip("+−").startswith("0.") else text

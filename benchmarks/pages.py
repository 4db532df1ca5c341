"""Tables of numbers as the pages have them, their places in a page, and the commands that write them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from usboost.errors import UsboostError


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


def run_or_write(
    about: str, run: Callable[..., None], write: Callable[[Path | None], None], **options: dict[str, Any]
) -> None:
    """Answer a study's command: ``run FOLDER`` with the options given, or ``write`` with a folder or none.

    `options` are those of `run`, by name, as `ArgumentParser.add_argument` takes them; those of several words
    come after the folder.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("folder", type=Path, nargs="?")
    for name, settings in options.items():
        parser.add_argument(name if settings.get("nargs") else f"--{name}", **settings)
    given = vars(parser.parse_args())
    what, folder = given.pop("what"), given.pop("folder")
    if what == "write":
        write(folder and folder.resolve())
    elif folder is None:
        parser.error("run needs a folder for its scores")
    else:
        try:
            run(folder.resolve(), **given)
        except UsboostError as error:
            parser.error(str(error))

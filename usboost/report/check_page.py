"""Write what was found in a table as a page: each finding with examples, their images side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from usboost.check import KINDS, Finding
from usboost.check.groups import texts_of
from usboost.files import write_atomically
from usboost.report.blocks import Section, html, page
from usboost.report.rows import image_uri, value_of
from usboost.table.user_table import UserTable

_COLUMNS = 6  # shown of an example


def write_check(table: UserTable, findings: Sequence[Finding], out: Path) -> None:
    """Write the page; `out` as of `check_out`."""
    texts, sections = {name: values.to_numpy() for name, values in texts_of(table).items()}, []
    for kind, title in KINDS.items():
        of = [each for each in findings if each.kind == kind]
        shown = [(each, [_example(table, texts, each, rows) for rows in each.examples]) for each in of]
        sections.append(Section(kind, title, html("check", findings=shown) if shown else "", title))
    about = {"table": str(table.file), "n": len(table), "label": table.spec.label, "findings": findings}
    made = page(f"Check of {table.spec.label}", html("check_intro", **about), sections, html("check_footer"))
    write_atomically(out, made.encode())


def _example(table: UserTable, texts: dict[str, Any], of: Finding, rows: tuple[int, ...]) -> dict[str, Any]:
    """Return rows that belong together: their images and labels, and columns, those that differ first."""
    names = [name for name in texts if name not in table.spec.image]
    names.sort(key=lambda name: (name not in of.columns, len(set(map(str, texts[name][[*rows]]))) == 1))
    columns = [(name, [value_of(texts[name][row]) for row in rows]) for name in names[:_COLUMNS]]
    shown = []
    for row in rows:
        label = table.classes[table.labels[row]] if table.classes else f"{table.labels[row]:g}"
        pictures = filter(None, (view.picture(row) for view in table.images.values()))
        uris = [image_uri(each, is_photo=True) for each in pictures]
        shown.append({"number": int(table.rows[row]) + 1, "label": label, "images": uris})
    return {"rows": shown, "columns": columns}

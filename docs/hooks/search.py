"""What the site's search puts first: the page that explains a word, before those that only have it."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

BOOST = {
    "questions.md": 16.0,
    "glossary.md": 8.0,
    "tutorial.md": 4.0,
    "tuning.md": 3.0,
    "parameters.md": 3.0,
    "methods.md": 3.0,
    "team.md": 3.0,
    "results.md": 0.5,
    "performance.md": 0.5,
}
"""By page; others have 1."""

BELOW = {"results/": 0.1, "reference/": 0.3}
"""By folder: what is looked up by name, or a detail."""

UNSEARCHED = ("changelog.md",)
"""It has every word, and explains none."""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Tell the search plugin, which reads it from a page's head."""
    name = page.file.src_uri
    folder = f"{name.partition('/')[0]}/"
    boost = BELOW.get(folder, BOOST.get(name))
    if name in UNSEARCHED:
        page.meta["search"] = {"exclude": True}
    elif boost is not None:
        page.meta["search"] = {"boost": boost}
    return markdown

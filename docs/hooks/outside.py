"""Files that lie outside docs/ as pages of the site, and the links between both."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

EXAMPLES = Path(__file__).parents[2].joinpath("examples").glob("*.py")
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "licence.md",
    "params.yaml": "params-yaml.md",
    **{f"examples/{path.name}": f"examples/{path.stem}.md" for path in EXAMPLES},
}
"""The page of each file that is shown and lies outside docs/."""

UNSEARCHED = "---\nsearch: {exclude: true}\n---\n"
SOURCE = {page: f"../{name}" for name, page in OUTSIDE.items()}
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.docs_dir).parent
    for name, page in OUTSIDE.items():
        text = (root / name).read_text()
        if not name.endswith(".md"):
            language = Path(name).suffix[1:] or "text"
            text = f"{UNSEARCHED}# {name}\n\n```{language}\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are in the repository, to where their files are on the site."""
    if page.parent is None:  # alone under its tab: no list of pages beside it
        page.meta["hide"] = ["navigation"]
    here = page.file.src_uri
    folder = posixpath.dirname(SOURCE.get(here, here))

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        target = OUTSIDE.get(target.removeprefix("../"), target.removeprefix("../docs/"))
        return posixpath.relpath(target, posixpath.dirname(here) or ".")

    return LINK.sub(lambda link: link[0] if ":" in link[0] else moved(link), markdown)

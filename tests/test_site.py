"""The documentation site: links and anchors lead somewhere, and it needs nobody else's server."""

import json
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer

import usboost
from usboost.cli.app import app

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}


@dataclass
class Html(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=lambda: {""})

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADS.get(tag) in given:
            self.loads.append(given[LOADS[tag]])


@dataclass
class Site:
    folder: Path

    @cached_property
    def pages(self) -> dict[Path, Html]:
        found = {}
        for path in self.folder.rglob("*.html"):
            found[path] = Html()
            found[path].feed(path.read_text())
        return found

    def text(self, page: str) -> str:
        return (self.folder / page).read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return Site(folder)


def test_links_and_anchors_lead_somewhere(site: Site) -> None:
    broken, followed = [], 0
    for path, page in site.pages.items():
        if path.name == "404.html":  # its links are those of the server's root
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = site.pages[target].anchors if target in site.pages else {""} if target.is_file() else ()
            followed += 1
            if unquote(parts.fragment) not in there:
                broken.append((path.name, link))
    assert broken == []
    assert followed > 1000


def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    for path, page in site.pages.items():
        elsewhere = [name for name in page.loads if urlsplit(name).scheme or urlsplit(name).netloc]
        assert page.loads and elsewhere == [], path.name
    for path in site.folder.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text()), path.name


def test_every_public_name_is_in_the_reference(site: Site) -> None:
    anchors = set().union(*(page.anchors for page in site.pages.values()))
    assert {f"usboost.{name}" for name in usboost.__all__ if name != "__version__"} <= anchors
    for path in site.folder.glob("reference/*.html"):
        there = re.findall(r'id="usboost[^"]*"', path.read_text())
        assert sorted(there) == sorted(set(there)), f"{path.name} says something twice"


def test_every_option_of_the_command_is_in_the_reference(site: Site) -> None:
    text = site.text("reference/command-line.html")
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(commands) == {"fit", "compare", "tune", "predict", "report", "export", "demo", "check"}
    for name, command in commands.items():
        assert f'id="usboost-{name}"' in text
        options = [o for each in command.params if not each.hidden for o in each.opts if o.startswith("--")]
        assert [option for option in options if f"<code>{option}" not in text] == []


def test_the_search_knows_the_pages(site: Site) -> None:
    docs = json.loads(site.text("search/search_index.json"))["docs"]
    known = {doc["location"].split("#")[0] for doc in docs}
    pages = {str(path.relative_to(site.folder)) for path in site.pages} - {"404.html"}
    shown = {f"examples/{path.stem}.html" for path in (ROOT / "examples").glob("*.py")}
    assert pages - known == {"params-yaml.html", "licence.html", "changelog.html"} | shown
    assert any("Nadeau" in doc["text"] for doc in docs)
    boost = {doc["location"].split("#")[0]: doc.get("boost", 1.0) for doc in docs}
    order = [boost[f"{name}.html"] for name in ("questions", "glossary", "tutorial", "index", "results")]
    assert order == sorted(set(order), reverse=True)
    for folder in ("results/", "reference/"):
        below = {boost[name] for name in boost if name.startswith(folder)}
        assert len(below) == 1 and 0 < min(below) < boost["results.html"]
    heads = " ".join(doc["title"] for doc in docs if doc["location"].startswith("questions.html#")).lower()
    for words in ("how long does it take", "time limit", "gpu", "export", "missing images"):
        assert words in heads


def test_lists_and_tables_are_read_as_such(site: Site) -> None:
    """What a Git host shows as a list needs an empty line before it here."""
    for path in site.pages:
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", path.read_text(), flags=re.S)
        assert not re.search(r"<p>[^<]*\n([-*]|\d+\.) ", text), path.name
        assert not re.search(r"<p>\s*\|", text), path.name
        assert "```" not in text, path.name


def test_docstrings_are_read_in_the_projects_own_style() -> None:
    read = runpy.run_path(str(ROOT / "docs/hooks/docstrings.py"))["read"]
    docstring = """\
Fit.

Parameters
----------
rows : int
    How many.
x, y : arrays of shape (n,) that hold
    numbers
name : of the model; seed : int

Attributes
----------
As of `Model`; more_ : of these

Returns
-------
DataFrame of n rows
and two columns."""
    assert (
        "\n".join(read(docstring.splitlines()))
        == """\
Fit.

Parameters
----------
rows : int
    How many.
x
    arrays of shape (n,) that hold
    numbers
y
    arrays of shape (n,) that hold
    numbers
name
    of the model
seed : int

Attributes: as of `Model`:

Attributes
----------
more_
    of these

Returns
-------
:
    DataFrame of n rows
    and two columns."""
    )

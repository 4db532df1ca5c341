"""`make size`: how large the project is, beside the budget in pyproject.toml and the last commit on main."""

import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
Read = Callable[[str], str]

PYTHON = {"usboost": ("usboost/",), "pipeline": ("tasks/", "flows/", "dvc.yaml")} | {
    name: (f"{name}/",) for name in ("benchmarks", "tests")
}
PROSE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/")


def measured(names: list[str], read: Read) -> dict[str, int]:
    """Count lines of Python by part, files of the library and words of prose, of tracked files."""
    found = {
        part: sum(
            read(name).count("\n")
            for name in names
            if name.startswith(places) and name.endswith((".py", "dvc.yaml"))
        )
        for part, places in PYTHON.items()
    }
    found["usboost_files"] = sum(name.startswith("usboost/") and name.endswith(".py") for name in names)
    prose = [name for name in names if name.startswith(PROSE) and name.endswith(".md")]
    return found | {"words": sum(len(read(name).split()) for name in prose)}


def now() -> dict[str, int]:
    """Measure the working tree."""
    names = [name for name in _git("ls-files", "-co", "--exclude-standard") if (ROOT / name).is_file()]
    return measured(names, lambda name: (ROOT / name).read_text(errors="replace"))


def before(revision: str = "main") -> dict[str, int]:
    """Measure a commit; empty where Git does not know it, as in a shallow clone."""
    try:
        names = _git("ls-tree", "-r", "--name-only", revision)
    except subprocess.CalledProcessError:
        return {}
    return measured(names, lambda name: _show(f"{revision}:{name}"))


def budget() -> dict[str, int]:
    """Read the limits of `[tool.usboost.size]`."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["usboost"]["size"])


def _git(*words: str) -> list[str]:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def _show(name: str) -> str:
    shown = subprocess.run(["git", "show", name], cwd=ROOT, check=True, capture_output=True)
    return shown.stdout.decode(errors="replace")


def table() -> str:
    """Return what `make size` prints: each part's size, its limit and its change since main."""
    sizes, limits, old = now(), budget(), before()
    lines = [f"{'':14} {'now':>8} {'at most':>8} {'since main':>11}"]
    for part, size in sizes.items():
        change = f"{size - old[part]:+,}" if part in old else "–"
        over = f"   {size - limits[part]:,} too many" if size > limits[part] else ""
        lines.append(f"{part:14} {size:8,} {limits[part]:8,} {change:>11}{over}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())

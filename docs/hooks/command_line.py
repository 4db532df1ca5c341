"""The page of the command `usboost`, made by typer from the command itself."""

from __future__ import annotations

import re
import subprocess
import sys

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

PAGE = "reference/command-line.md"
SHORTENED = re.compile(r"\*\*Commands\*\*:.*?(?=\n## )", re.S)
"""typer's list of the commands, which cuts their descriptions short."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    command = [sys.executable, "-m", "typer", "usboost.cli.app", "utils", "docs", "--name", "usboost"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PluginError(f"typer could not describe the command usboost: {done.stderr[-2000:]}")
    files.append(File.generated(config, PAGE, content=SHORTENED.sub("", done.stdout)))
    return files

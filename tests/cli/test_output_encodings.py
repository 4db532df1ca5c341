"""Output whose encoding lacks a sign is printed as near as it can be, and never ends in an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ENVIRONMENTS = {
    "cp1252": ({"PYTHONIOENCODING": "cp1252"}, ["größe", "±"]),
    "ascii": ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, [r"gr\xf6\xdfe", "+/-"]),
}


def run(tmp_path: Path, environment: dict[str, str], *words: str) -> tuple[int, bytes]:
    code = "from usboost.errors import print_readably; import sys\nprint_readably()\nprint(sys.argv[1])"
    command = ["-c", code] if len(words) == 1 else ["-m", "usboost"]
    done = subprocess.run(
        [sys.executable, *command, *words],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("encoding", ENVIRONMENTS)
def test_a_comparison_is_printed(encoding: str, tmp_path: Path) -> None:
    n = 40
    table = pd.DataFrame({"größe": range(n), "farbe": ["日本", "blå"] * (n // 2)})
    table["y"] = ["groß" if k % 3 else "klein ≤ 3" for k in range(n)]
    table.to_csv(tmp_path / "t.csv", index=False)
    environment, wanted = ENVIRONMENTS[encoding]
    options = ("--label", "y", "--models", "prior,logistic", "--folds", "2", "--by", "accuracy")
    code, output = run(tmp_path, environment, "compare", "t.csv", *options)
    assert code == 0, output
    assert [word for word in wanted if word.encode(encoding) not in output] == [], output


@pytest.mark.parametrize(
    ("text", "ascii_", "cp1252"),
    [("−3 ≤ ε", r"-3 <= \u03b5", r"-3 <= \u03b5"), ("½ × 日…", r"\xbd x \u65e5...", "½ × \\u65e5…")],
)
def test_signs_are_written_as_near_as_the_encoding_can(
    text: str, ascii_: str, cp1252: str, tmp_path: Path
) -> None:
    chosen = {
        "ascii": ascii_,
        "cp1252": cp1252,
        "utf-8": text,
        "ascii:replace": text.encode("ascii", "replace").decode(),
    }
    for encoding, expected in chosen.items():
        _, output = run(tmp_path, {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}, text)
        assert output.decode(encoding.partition(":")[0]).strip() == expected

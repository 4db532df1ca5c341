"""The library without its pipeline: `tests/test_wheel.py` in small, with what is installed here."""

from pathlib import Path

import pytest

from tests.warm import Warm
from usboost import __version__

ROOT = Path(__file__).parent.parent

REFUSING = """
import runpy, sys
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"prefect", "mlflow", "dvc", "tasks", "flows"}:
            raise ModuleNotFoundError(f"the library asks for {name}", name=name)
sys.meta_path.insert(0, Refuses())
for name in ("prefect", "tasks.settings"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{name} is not refused")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
def test_it_works_where_the_pipelines_packages_are_refused(tmp_path: Path, warm: Warm) -> None:
    words = ["-c", REFUSING, str(ROOT / "tests/alone.py"), str(tmp_path)]
    assert warm.printed(words, tmp_path).split()[0] == __version__

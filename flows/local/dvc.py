"""DVC's command for many short stages: it writes dvc.lock with libyaml, and looks for a free lock more often.

DVC reads and writes the whole of dvc.lock at each stage, by a parser that keeps comments; for the stages of a
demo run this takes most of DVC's own time, while the datasets beside it wait for its lock.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dvc.dvcfile
import dvc.lock
from dvc.cli import main
from dvc.utils.serialize import load_yaml, modify_yaml
from ruamel.yaml import YAML

from usboost.files import write_atomically

LOCK = "dvc.lock"
WAIT = 0.3  # s; DVC looks six times in this for whether the repository is free


@contextmanager
def modify(path: str, fs: Any = None) -> Iterator[dict[str, Any]]:
    """What is in a YAML file, to be changed; it is then written, a file other than dvc.lock as DVC does.

    A comment in dvc.lock is lost; DVC writes none.
    """
    if Path(path).name != LOCK:
        with modify_yaml(path, fs=fs) as data:
            yield data
        return
    data = load_yaml(path) if Path(path).exists() else {}
    yield data
    text = io.StringIO()
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(json.loads(json.dumps(data)), text)  # plain types only: DVC's own are not written by libyaml
    write_atomically(Path(path), text.getvalue().encode())


if __name__ == "__main__":
    dvc.dvcfile.modify_yaml = modify
    dvc.lock.DEFAULT_TIMEOUT = WAIT
    sys.exit(main(sys.argv[1:]))

"""dvc.lock as this command writes it: what DVC writes, read by DVC."""

from __future__ import annotations

import sys
from collections import OrderedDict

import pytest
from dvc.utils.serialize import load_yaml, modify_yaml

from flows.local import dvc
from tests.flows.conftest import Workspace

STAGES = OrderedDict(
    fit=OrderedDict(
        cmd="python fit.py",
        deps=[OrderedDict(path="data/é.csv", md5="1234567890123456789012345678e901", size=3)],
        params={
            "params.yaml": {
                "rate": 1e-05,
                "seed": 7,
                "name": None,
                "on": True,
                "text": "1e3",
                "octal": "0o17",
            }
        },
    ),
    a=OrderedDict(cmd="echo 'no' > a", outs=[OrderedDict(path="a", md5="0123", nfiles=2)]),
)


@pytest.mark.parametrize("before", [{}, {"schema": "2.0", "stages": {"z": {"cmd": "yes", "size": 0.5}}}])
def test_the_lock_holds_what_dvc_would_write(tmp_path, before):
    read = []
    for name, modify in ("quick", dvc.modify), ("dvc", modify_yaml):
        (tmp_path / name).mkdir()
        path = str(tmp_path / name / dvc.LOCK)
        for content in (before, {"schema": "2.0", "stages": STAGES}):
            with modify(path) as data:
                data.update({"schema": "2.0", **content})
                data.setdefault("stages", {}).update(content.get("stages", {}))
        read.append(load_yaml(path))
    assert read[0] == read[1]
    assert list(read[0]["stages"]) == list(read[1]["stages"])


def test_a_failure_leaves_the_lock_as_it_was(tmp_path):
    path = tmp_path / dvc.LOCK
    path.write_text("schema: '2.0'\n")
    with pytest.raises(KeyboardInterrupt), dvc.modify(str(path)) as data:
        data["stages"] = {}
        raise KeyboardInterrupt
    assert path.read_text() == "schema: '2.0'\n"


def test_other_files_keep_their_comments(tmp_path):
    path = tmp_path / "dvc.yaml"
    path.write_text("# why\nstages: {}\n")
    with dvc.modify(str(path)) as data:
        data["vars"] = ["params.yaml"]
    assert path.read_text().startswith("# why")


def test_dvc_finds_nothing_to_do_after_it(tmp_path):
    workspace = Workspace(tmp_path, tmp_path / "home")
    (tmp_path / "dvc.yaml").write_text("stages: {made: {cmd: echo 1 > made, outs: [made]}}\n")
    workspace.run("dvc", "init", "--quiet", "--no-scm")
    workspace.run(sys.executable, "-m", "flows.local.dvc", "repro", "--single-item", "made")
    assert (tmp_path / "made").read_text() == "1\n"
    assert "up to date" in workspace.run("dvc", "status").stdout

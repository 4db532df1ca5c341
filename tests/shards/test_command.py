"""The command in shards: the same model from any number of ranks; a hostile start is one sentence."""

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from tests.fit.conftest import refused, run
from tests.table.test_shards import frame, written
from tests.warm import Warm
from usboost.cli import ranks
from usboost.fit.bundle import load

ROOT = Path(__file__).parents[2]
OPTIONS = ("--label", "y", "--missing", "-9", "--categorical", "code", "--weight", "weight", "--rounds", "2")
QUICK = (*OPTIONS, "--model", "2wl_newton")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def rank(
    number: int, port: int, *words: object, cwd: Path, warm: Warm | None = None
) -> subprocess.Popen[str]:
    """One of two processes that torchrun would start, which imports nothing anew where `warm` is given."""
    place = {"RANK": number, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    place |= {"LOCAL_WORLD_SIZE": 2, "OMP_NUM_THREADS": 1, "PYTHONPATH": ROOT}
    environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
    return subprocess.Popen(
        ["python" if warm else sys.executable, "-m", "usboost", *map(str, words)],
        cwd=cwd,
        env=warm.shim(environment) if warm else environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(started: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code and output of each, once all have ended."""
    found = [each.communicate(timeout=200) for each in started]
    return [(each.returncode, *output) for each, output in zip(started, found)]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_two_ranks_make_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: Warm) -> None:
    monkeypatch.chdir(tmp_path)
    rows = written(tmp_path / "rows", frame())
    done = run("fit", "rows/*.parquet", *QUICK, "--shards", 8, "--out", "alone")
    assert done.exit_code == 0, done.output
    port = free_port()
    words = ("fit", "rows/*.parquet", *QUICK, "--out", "m")
    started = [rank(k, port, *words, cwd=tmp_path, warm=warm) for k in (0, 1)]
    (code, out, err), (code_1, out_1, err_1) = said(started)
    assert (code, code_1, out_1, err_1) == (0, 0, "", ""), err + err_1
    assert files(tmp_path / "m") == files(tmp_path / "alone")
    assert err == done.stderr
    lines = zip(out.splitlines(), done.stdout.splitlines(), strict=True)
    assert [k for k, (one, other) in enumerate(lines) if one != other.replace("alone", "m")] in ([0], [])
    assert not list(tmp_path.glob("*.part"))
    predicted = run("predict", "m", rows, "--out", "p.parquet")
    assert predicted.exit_code == 0, predicted.output
    assert len(pd.read_parquet("p.parquet")) == len(frame())
    assert run("report", "m", rows, "--out", "r.html").exit_code == 0
    assert "This is the table that the model was trained on." in (tmp_path / "r.html").read_text()


def test_scores_are_of_all_shards_held_out_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = frame().drop(columns="weight")
    written(tmp_path / "rows", table)
    held = table[table["split"] == "val"]
    held.to_parquet("held.parquet")
    words = ("fit", "rows", "--label", "y", "--split", "split", "--model", "2wl", "--rounds", 2)
    assert run(*words, "--shards", 5, "--no-refit", "--no-calibrate", "--out", "m").exit_code == 0
    bundle = load(Path("m"))
    assert bundle.card.rows == {"train": int((table["split"] == "train").sum()), "val": len(held)}
    answers = bundle.predict(held)
    right = float((answers["label"] == held["y"].to_numpy()).mean())
    assert bundle.card.scores["accuracy"] == pytest.approx(right, abs=1e-12)
    assert bundle.card.prior == pytest.approx(
        [float((table["y"][table["split"] == "train"] == each).mean()) for each in bundle.card.classes]
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--group", "kind"), "--group needs all rows in one place"),
        (("--preset", "best"), "best cannot be fitted on several shards"),
        (("--model", "lgbm"), "lgbm cannot be fitted on several shards"),
        (("--model", "2wl", "--learner", "U=ridge"), "learner 'U' (ridge) cannot"),
        (("--drop", "sort"), "has no column 'sort'"),
    ],
)
def test_what_shards_cannot_do_is_refused(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    # all but what only the table can tell is told before it is read
    rows = written(tmp_path / "rows", frame()) if "column" in sentence else tmp_path / "none"
    assert sentence in refused("fit", rows, "--label", "y", *words, "--shards", 4, "--out", tmp_path / "m")


def test_other_commands_do_not_run_as_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    said = {"2": "usboost predict runs in one; start it without torchrun", "two": "WORLD_SIZE is 'two'"}
    for size, sentence in (said | dict.fromkeys(("1", ""), "table not found: t.csv")).items():
        monkeypatch.setenv("WORLD_SIZE", size)
        assert sentence in refused("predict", "m", "t.csv", "--out", "p.csv")


@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [("--model", "crossed"), ("--model", "average"), ("--class-weight", "balanced", "--split", "split")],
)
def test_the_pages_command_under_torchrun(more: tuple[str, ...], tmp_path: Path) -> None:
    page = (ROOT / "docs/team.md").read_text()
    command = re.search(r"^torchrun (--nproc-per-node) 4 -m usboost (fit .*?) +#", page, re.M)
    words = [w for w in shlex.split(command[2].replace("--label kind", "")) if w not in ("--out", "model")]
    table = frame() if "--split" in more else frame().drop(columns="split")
    written(tmp_path / "rows", table)
    place = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for size in (1, 2, 4):
        start = [sys.executable, "-m", "torch.distributed.run", command[1], str(size), "-m", "usboost"]
        own = [*start, *words, *OPTIONS, *more, "--out", f"m{size}"]
        subprocess.run(own, cwd=tmp_path, env=place, check=True, timeout=300)
    alone = [sys.executable, "-m", "usboost", *words, *OPTIONS, *more, "--shards", "8", "--out", "alone"]
    subprocess.run(alone, cwd=tmp_path, env=place, check=True, timeout=300)
    for size in (1, 2, 4):
        assert files(tmp_path / f"m{size}") == files(tmp_path / "alone")


@pytest.mark.long
def test_a_rank_that_never_comes_and_a_port_in_use(tmp_path: Path) -> None:
    written(tmp_path / "rows", frame())
    ports = [free_port() for _ in range(3)]
    fit = ("fit", "rows", *QUICK, "--out", "m")
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        found = said(
            [
                rank(0, ports[0], *fit, cwd=tmp_path),
                rank(1, ports[1], *fit, cwd=tmp_path),
                rank(0, port, *fit, cwd=tmp_path),
                rank(1, port, *fit, cwd=tmp_path),
            ]
        )
    assert time.monotonic() - began < ranks.COME + 60  # they start slowly on a busy machine
    late = f"have met at 127.0.0.1:{{}} within {ranks.COME} seconds; start all of them at the same time"
    sentences = (late.format(ports[0]), late.format(ports[1]), f"127.0.0.1:{port}, where", late.format(port))
    for (code, out, err), sentence in zip(found, sentences, strict=True):
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert err.startswith("error: ") and sentence in err


@pytest.mark.long
@pytest.mark.parametrize("differ", ["files", "columns", "options", "shards"])
def test_ranks_that_disagree_are_told_at_once(differ: str, tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "other"]
    for k, place in enumerate(places):
        place.mkdir()
        changed = frame().assign(size=1.0) if k and differ == "files" else frame()
        written(
            place / "rows", changed.rename(columns={"flag": "flags"} if k and differ == "columns" else {})
        )
    port, more = free_port(), {"options": ("--drop", "size"), "shards": ("--shards", 9)}.get(differ, ())
    started = [
        rank(k, port, "fit", "rows", *QUICK, *(more if k else ()), "--out", "m", cwd=place)
        for k, place in enumerate(places)
    ]
    sentence = {
        "options": "what is said of the table of shard 4 is not that of shard 0",
        "shards": "the processes of this fit were given different numbers of shards",
    }.get(differ, "the list of the files of rows of shard 4 is not that of shard 0")
    for code, out, err in said(started):
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert sentence in err
    assert not (places[0] / "m").exists()

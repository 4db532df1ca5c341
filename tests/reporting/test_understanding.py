"""What is kept of a model, written and read again, and on a page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import make_views
from tests.small_models import boosting, outsider
from usboost.errors import UsboostError
from usboost.reporting.html import write_report
from usboost.reporting.understanding import FILE, TABLES, read, understand, write

HOSTILE = ["<script>alert(1)</script>", "$x^2$ & co"]
# one pixel
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    views, y = make_views(n=200)
    fitted = boosting(validation_fraction=0, patience=None).fit(views, y)
    rows = pd.DataFrame({"<b>age</b>": np.arange(200.0), "note": ["x" * 500] * 200})
    found = understand(fitted, views, y, HOSTILE)
    write(found, tmp_path / "kept", rows, {int(found.worst["row"][0]): PNG})
    return tmp_path / "kept"


def test_what_is_written_is_what_is_shown(kept: Path) -> None:
    page = read(kept)
    assert page is not None
    assert len(page["figures"]) == 4
    assert all(svg.startswith("<svg") for _, svg in page["figures"])
    assert {path.name for path in kept.glob("*.png")} == {
        *("contributions.png", "importance.png", "calibration.png", "confusion.png", "worst-00.png")
    }
    first, *others = page["worst"]
    assert first["picture"].startswith("data:image/png;base64,")
    assert all(other["picture"] is None for other in others)
    assert {first["true"], first["predicted"]} == set(HOSTILE)
    assert max(len(text) for _, text in first["values"]) == 60
    counts = pd.read_csv(kept / "confusion.csv")
    assert counts.iloc[:, 1:].to_numpy().sum() == 200


def test_a_model_without_rounds_has_what_it_can(tmp_path: Path) -> None:
    views, y = make_views(n_classes=3, n=200)
    found = understand(outsider().fit(views, y), views, y, ["a", "b", "c"])
    write(found, tmp_path)
    page = read(tmp_path)
    assert page is not None
    assert len(page["figures"]) == 3
    assert len(found.contributions) == 0 and set(found.importance["view"]) == {"U", "S"}


def test_nothing_kept_is_nothing_shown(tmp_path: Path) -> None:
    assert read(tmp_path) is None


@pytest.mark.parametrize("name", [FILE, "confusion.csv", *(f"{table}.csv" for table in TABLES)])
@pytest.mark.parametrize("content", [b"", b"{", b"\x00\xff", b"a,b\n1\n", None])
def test_a_damaged_file_gets_one_sentence(kept: Path, name: str, content: bytes | None) -> None:
    path = kept / name
    if content is None:
        path.unlink()
        if name == FILE:
            assert read(kept) is None
            return
    else:
        path.write_bytes(content)
    try:
        page = read(kept)
    except UsboostError as error:
        assert "train this model again" in str(error)
    else:  # an empty table of what a model may lack is no damage
        assert content == b"" and name in ("contributions.csv", "importance.csv")
        assert page is not None and len(page["figures"]) == 3


def test_a_path_cannot_leave_the_folder(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    document = json.loads((kept / FILE).read_text())
    document["shown"][0]["picture"] = "../secret.png"
    (kept / FILE).write_text(json.dumps(document))
    with pytest.raises(UsboostError, match="is damaged"):
        read(kept)


def test_a_page_escapes_what_comes_from_the_data(kept: Path, tmp_path: Path) -> None:
    cell = tmp_path / "results" / "ct" / "2wl"
    cell.mkdir(parents=True)
    scores = {split: {"f1": 0.5} for split in ("val", "test")}
    document = {"dataset": "ct", "model": "2wl", "profile": "demo", "seeds": [{"seed": 0, "scores": scores}]}
    (cell / "scores.json").write_text(json.dumps(document))
    kept.rename(cell / "understanding")
    page = write_report(
        tmp_path / "results", tmp_path / "prepared", tmp_path / "out", datasets=["ct"], models=["2wl"]
    ).read_text()
    assert "What the models have learnt" in page
    assert "<script>alert" not in page
    assert "&lt;b&gt;age&lt;/b&gt;" in page

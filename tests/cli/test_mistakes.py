"""Every mistake is one sentence on stderr, exit code 1, in any encoding, and nothing is lost."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import refuses
from tests.fit.conftest import ROLES, accepted, numbers, refused, run
from usboost.cli.fit import _Fit
from usboost.errors import choices
from usboost.evaluation.ranking import RANKING
from usboost.fit.options import FitOptions, ImageOptions
from usboost.table.spec import TableSpec


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    numbers(40).to_csv(path, index=False)
    return path


def written(path, frame):
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_what_the_table_may_not_be(command, tmp_path):
    path, frame = tmp_path / "t.csv", numbers(40)
    out = ("--out", tmp_path / "out")

    def said(changed, *more, label="kind"):
        return refused(command, written(path, changed), "--label", label, *more, *out)

    assert f"{path} has no column 'sort'; its columns are height, width" in said(frame, label="sort")
    assert "has no column 'fotos'" in said(frame, "--image", "fotos")
    assert "column 'kind' cannot have two roles" in said(frame, "--image", "kind")
    missing = frame.assign(kind=frame["kind"].where(frame.index != 6))
    assert said(missing.assign(kind=None)) == f"{path}: the label column 'kind' is empty; name another"
    assert "holds one class only, 'a'" in said(frame.assign(kind="a"))
    assert said(frame.groupby("kind").head(1)) == (f"{path} has 2 rows to learn from; 10 or more are needed")
    rare = frame.assign(kind=np.where(frame.index == 3, "rare", frame["kind"]))
    assert "class 'rare' of 'kind' has 1 row" in said(rare)
    assert "has no column to learn from" in said(frame[["kind", "width"]], "--drop", "width")
    assert f"{path} has no rows" in said(frame.head(0))
    assert "holds infinity" in said(frame.assign(width=np.inf))
    assert "table not found" in refused(command, tmp_path / "none.csv", "--label", "kind", *out)
    assert "- is a stream" in refused(command, "-", "--label", "kind", *out)
    assert "s3://a/b is an address" in refused(command, "s3://a/b", "--label", "kind", *out)
    assert "s3://a/b is an address" in refused(command, path, "--label", "kind", "--out", "s3://a/b")
    assert not (tmp_path / "out").exists()


def test_unknown_models_and_scores(table):
    assert "unknown model 'x'" in refused("compare", table, "--label", "kind", "--models", "lgbm,x")
    assert "names no model" in refused("compare", table, "--label", "kind", "--models", " , ")
    assert "'--label': given twice" in run("fit", table, "--label", "kind", "--label", "x").stderr
    of_numbers = run("compare", table, "--label", "kind", "--by", "rmse")
    assert of_numbers.exit_code == 1 and "unknown score 'rmse'" in of_numbers.stderr.splitlines()[-1]
    few = run("compare", table, "--label", "kind", "--models", "lgbm", "--folds", 30)
    assert few.exit_code == 1 and "too few for 30 folds" in few.stderr.splitlines()[-1]


def test_all_models_failing_is_a_failure(tmp_path):
    frame = numbers(40).assign(height_missing=1)
    frame.loc[[1, 2, 3, 4, 5, 6], "height"] = np.nan
    result = run("compare", written(tmp_path / "t.csv", frame), "--label", "kind", "--models", "lgbm,2wl")
    assert result.exit_code == 1
    assert result.stdout.count("failed: the column 'height_missing' has the name of an indicator") == 2
    assert result.stderr.endswith("\nerror: every model failed; the lines below the table give the reasons\n")


def test_images_that_are_not_there(demo, tmp_path):
    frame = pd.read_csv(demo)
    shutil.copytree(demo.parent / "images", tmp_path / "images")
    (tmp_path / "images/00003.png").unlink()
    frame.loc[8, "image"] = None
    path = written(tmp_path / "t.csv", frame)
    fit = ("fit", path, *ROLES, "--model", "2wl_ridge", "--rounds", 2, "--no-refit")
    told = accepted(*fit, "--out", tmp_path / "m").stderr
    assert "2 of 120 rows have no image" in told and f"'image', {tmp_path / 'images/00003.png'}" in told
    assert sum(json.loads((tmp_path / "m/card.json").read_text())["rows"].values()) == 120
    (tmp_path / "images/00005.png").write_bytes(b"no image")
    said = refused(*fit, "--out", tmp_path / "m2")
    assert said.startswith(f"{path}, row 6, '00005.png'") and "--skip-unreadable" in said
    told = accepted(*fit, "--skip-unreadable", "--out", tmp_path / "m2").stderr
    for piece in ("3 of 120 rows", "images/00003.png", "'image': 1 of 118 images", "row 6, '00005.png'"):
        assert piece in told
    frame.loc[0, "image"] = "../elsewhere.png"
    written(path, frame)
    assert "is not a path inside" in refused(*fit, "--skip-unreadable", "--out", tmp_path / "m3")


def test_only_a_model_is_replaced(table, tmp_path):
    fit = ("fit", table, "--label", "kind", "--model", "lgbm", "--rounds", 3, "--out")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    assert refused(*fit, folder).startswith(f"{folder} exists and is not only a model")
    assert "is a file" in refused(*fit, folder / "thesis.txt")
    model = tmp_path / "model"
    accepted(*fit, model)
    before = (model / "card.json").read_text()
    assert "holds a model; replace it with --force" in refused(*fit, model)
    late = _Fit(table, TableSpec("kind"), ImageOptions(), FitOptions(), model, False, lambda **_: "prior",
                None, {}, None, ())  # fmt: skip
    refuses("holds a model", late.run)  # one that was saved while this ran
    # a fit that fails leaves the earlier model
    assert "no column 'gone'" in refused(*fit, model, "--drop", "gone", "--force")
    assert (model / "card.json").read_text() == before
    accepted(*fit, model, "--seed", 1, "--force")
    assert json.loads((model / "card.json").read_text())["seed"] == 1
    # and what a user put beside it is not lost
    (model / "notes.txt").write_text("the good one")
    assert "not only a model" in refused(*fit, model, "--force")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "model", "table.csv"]


@pytest.mark.slow
def test_what_predict_cannot_read(model, demo, tmp_path):
    out = ("--out", tmp_path / "p.parquet")
    frame = pd.read_csv(demo)
    lacking = written(tmp_path / "lacking.csv", frame.drop(columns=["weight", "line"]))
    said = refused("predict", model, lacking, *out)
    assert said.startswith(f"{lacking} lacks columns 'weight', 'line'") and "image, hardness" in said
    assert "lacks column 'price'" in refused("predict", model, demo, *out, "--keep", "price")
    assert "must be a .parquet or .csv file" in refused("predict", model, demo, "--out", tmp_path / "p.txt")
    assert "part of the table" in refused("predict", model, demo, "--out", demo)
    frame.to_parquet(others := tmp_path / "part-0.parquet")
    for rows, name in ((tmp_path, "part-0.parquet"), (tmp_path / "part-*.parquet", "part-1.parquet")):
        assert "part of the table" in refused("predict", model, rows, "--out", tmp_path / name)
    assert "part of the table" in refused("predict", model, demo, "--against", others, "--out", others)
    assert "is the folder that this runs in" in refused("fit", demo, "--label", "batch", "--out", ".")
    for command, name in (("compare", "comparison.csv"), ("tune", "trials.csv")):
        own = written(tmp_path / name, frame)
        assert f"{own} is no result" in refused(command, own, "--label", "batch", "--out", tmp_path)
    (tmp_path / "d.csv").mkdir()
    assert "is a folder" in refused("predict", model, demo, "--out", tmp_path / "d.csv")
    assert "is no model that usboost fit saved" in refused("predict", tmp_path, demo, *out)
    empty = written(tmp_path / "empty.csv", frame.head(0))
    assert f"{empty} has no rows" in refused("predict", model, empty, *out)
    clash = written(tmp_path / "clash.csv", frame.assign(label=1))
    assert "column 'label' cannot be kept" in refused("predict", model, clash, *out, "--keep", "label")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and no more")
    assert "is damaged" in refused("predict", model, broken, *out)
    assert not (tmp_path / "p.parquet").exists()


@pytest.mark.slow
def test_a_model_that_was_tampered_with(model, demo, tmp_path):
    copied = tmp_path / "model"

    def said(**changes):
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(model, copied)
        card = json.loads((copied / "card.json").read_text())
        (copied / "card.json").write_text(json.dumps(card | changes))
        return refused("predict", copied, demo, "--out", tmp_path / "p.parquet")

    card = json.loads((model / "card.json").read_text())
    assert "format: Input should be 1" in said(format=2)
    assert "classes are not those of the model" in said(classes=["a", "b"], least_by_class=[])
    assert "two classes have the same name" in said(classes=["a", "b", "b"])
    assert "imputation is not one of the numeric columns" in said(imputation={})
    assert "invalid literal for int" in said(label_kind="int")
    assert "images.size.0" in said(images=card["images"] | {"size": [10**6, 10**6]})
    assert "encoder is not one of the columns" in said(encoders={})
    (copied / "card.json").write_text("{")
    assert "is not valid JSON" in refused("predict", copied, demo, "--out", tmp_path / "p.parquet")


def test_fit_ends_with_what_to_do_next_and_that_runs(table, tmp_path):
    folder = tmp_path / "a model"
    done = accepted("fit", table, "--label", "kind", "--model", "lgbm", "--rounds", 2, "--out", folder)
    lines = done.stdout.splitlines()
    saved = lines.index(f"saved {folder}")
    words, predict, question, report = lines[saved + 1 :]
    assert "predict" in words and "score" in question
    for line, verb in ((predict, "predict"), (report, "report")):
        command = shlex.split(line)
        assert command[:3] == ["usboost", verb, str(folder)] and command[3] == f"more{table.suffix}"
        at = command.index("--out") + 1
        given = [*command[1:3], table, *command[4:at], tmp_path / command[at]]
        accepted(*given)
        assert (tmp_path / command[at]).is_file()


def test_a_model_that_is_there_hides_no_misspelt_name(table, tmp_path):
    model = tmp_path / "model"
    done = accepted("fit", table, "--label", "kind", "--model", "prior", "--out", model)
    assert "best round" not in done.stdout
    fit = ("--model", "prior", "--out", model)
    assert "lacks column 'kin'" in refused("fit", table, "--label", "kin", *fit)
    assert "lacks column 'heigt'" in refused("fit", table, "--label", "kind", "--drop", "heigt", *fit)
    assert "did you mean t" in refused("fit", tmp_path / f"{table.stem}s.csv", "--label", "kind", *fit)
    assert "is of images" in refused("fit", table, "--label", "kind", *fit, "--size", 64)
    assert "has no setting 'alhpa'" in refused("fit", table, "--label", "kind", *fit, "--set", "alhpa=1")
    assert "holds a model" in refused("fit", table, "--label", "kind", *fit)


@pytest.mark.slow
def test_places_that_cannot_be_written_are_told_at_once(model, table, tmp_path):
    for command, file in (("predict", "p.csv"), ("report", "r.html")):
        out = tmp_path / "nowhere" / file
        assert f"there is no folder {out.parent}" in refused(command, model, table, "--out", out)
        assert not out.parent.exists()
    for command in ("fit", "compare", "tune"):
        said = refused(command, table, "--label", "kind", "--out", table / "below")
        assert said.startswith(f"{table / 'below'} cannot be written: {table} is a file")


def test_what_is_begun_is_meant_first():
    assert choices("acc", RANKING["classification"]) == "did you mean 'accuracy'?"


def test_a_table_to_try_is_drawn_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = accepted("demo").stdout
    frame = pd.read_csv("parts/table.csv")
    assert len(frame) == 300 and "split" not in frame
    assert all((Path("parts") / image).is_file() for image in frame["image"])
    assert said.splitlines()[-1].strip() == "usboost fit parts/table.csv --label batch --image image"
    assert "parts/table.csv is there already" in refused("demo", "parts")
    Path("parts/table.csv").rename("file")
    assert "parts/images is there already" in refused("demo", "parts")
    assert "cannot be written" in refused("demo", "file")


def test_settings_of_a_model_that_there_is_not(tmp_path):
    (tmp_path / "s.yaml").write_text("models: {logistik: {set: {C: 1}}, lgbm: {set: {num_leaves: 3}}}")
    for command in ("compare", "tune"):
        said = refused(command, "t.csv", "--label", "y", "--settings", tmp_path / "s.yaml")
        assert "no model 'logistik'; did you mean 'logistic'" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model crossed --set n_rounds=-3", "n_rounds cannot be -3"),
        ("--model crossed --set learners__U__hidden=[0]", "hidden cannot be [0]"),
        ("--model lgbm --set num_leaves=-1", "lightgbm refuses to fit: "),
        ("--model forest --set max_features=zzz", "sklearn refuses to fit: "),
        ("--finetune all", "--finetune is of images"),
    ],
)
def test_settings_that_cannot_be(table, tmp_path, words, said):
    done = run("fit", table, "--label", "kind", "--out", tmp_path / "m", *words.split())
    assert done.exit_code == 1 and "error: " in done.stderr and said in done.stderr


ENVIRONMENTS = {
    "cp1252": ({"PYTHONIOENCODING": "cp1252"}, ["größe", "±"]),
    "ascii": ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, [r"gr\xf6\xdfe", "+/-"]),
}


def printed(tmp_path: Path, environment: dict[str, str], *words: str) -> tuple[int, bytes]:
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


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENVIRONMENTS)
def test_a_comparison_is_printed(encoding: str, tmp_path: Path) -> None:
    n = 40
    table = pd.DataFrame({"größe": range(n), "farbe": ["日本", "blå"] * (n // 2)})
    table["y"] = ["groß" if k % 3 else "klein ≤ 3" for k in range(n)]
    table.to_csv(tmp_path / "t.csv", index=False)
    environment, wanted = ENVIRONMENTS[encoding]
    options = ("--label", "y", "--models", "prior,logistic", "--folds", "2", "--by", "accuracy")
    code, output = printed(tmp_path, environment, "compare", "t.csv", *options)
    assert code == 0, output
    assert [word for word in wanted if word.encode(encoding) not in output] == [], output


@pytest.mark.parametrize(
    ("text", "ascii_", "cp1252"),
    [("−3 ≤ ε", r"-3 <= \u03b5", r"-3 <= \u03b5"), ("½ × 日…", r"\xbd x \u65e5...", "½ × \\u65e5…")],
)
def test_signs_are_written_as_near_as_can_be(text: str, ascii_: str, cp1252: str, tmp_path: Path) -> None:
    chosen = {
        "ascii": ascii_,
        "cp1252": cp1252,
        "utf-8": text,
        "ascii:replace": text.encode("ascii", "replace").decode(),
    }
    for encoding, expected in chosen.items():
        _, output = printed(tmp_path, {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}, text)
        assert output.decode(encoding.partition(":")[0]).strip() == expected

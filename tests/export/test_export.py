"""An exported folder answers as `usboost predict` does, and holds nothing of the training rows."""

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.conftest import encoded, refuses
from tests.datasets.test_pixels import STEPS, exif, tiff, with_exif
from tests.fit.conftest import accepted, refused
from usboost.datasets.image_files import FORMATS, load, sized
from usboost.export.folder import FILES, export
from usboost.fit import build, bundle
from usboost.fit.build import ImageOptions
from usboost.fit.predict import predict
from usboost.fit.table_fit import TableFit
from usboost.models.base import MODELS
from usboost.models.catalogue import OFFERED_FOR, find
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table

ALL = ("yes", "no", "maybe")
HERE = Path(export.__code__.co_filename).parent


def rows(n: int, seed: int, task: str) -> pd.DataFrame:
    """Numbers, with a unit too, categories, dates, some missing, some called as answers; a label by them."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.normal(50, 12, n).round(2),
            "in come": np.exp(rng.normal(3, 2, n)).round(3),
            "code": rng.choice(["1", "2", "3", "x"], n),
            "probabilities": rng.choice(["Bern", "Chur", "Ulm", "Öl"], n),
            "low": rng.choice(["yes", "no"], n),
            "day": pd.Series(pd.Timestamp("2019-02-25") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")),
            "low (answer)": [f"{x:,.2f} EUR" for x in rng.uniform(1, 5000, n)],
            "at": [f"{k // 60}:{k % 60:02}" for k in rng.integers(0, 1440, n)],
        }
    )
    score = 0.06 * (table["age"] - 50) + (table["code"] == "3") * 1.5 + 0.4 * np.log(table["in come"])
    score += table["day"].dt.month.isin([6, 7, 8]) + rng.normal(0, 0.5, n)
    cuts = {"two": [1.3], "three": [0.8, 1.8]}.get(task)
    table["day"] = table["day"].dt.strftime("%Y-%m-%d")
    table = table.astype(object).mask(rng.random(table.shape) < 0.05)
    return table.assign(y=score.round(4) if cuts is None else np.array(ALL)[np.digitize(score, cuts)])


OFFERED = [
    (model, task)
    for of, models in OFFERED_FOR.items()
    for model in models
    for task in (("two", "three") if of == "classification" else ("number",))
]
"""Each model that the command line offers, with what it may predict."""

DIRTY = {
    "code": ("3.0", " 2 "),
    "probabilities": ("Mars", "  Bern "),
    "age": ("NA", "1e3", "x", "1,234", "٣٫٥", "\u22123", "1.2K", "(3)"),
    "in come": ("inf", "-0.0"),
    "low": ("TRUE", "1", "1.0", "No"),
    "day": ("2020-01-05 13:45:00", "2020", "5 March 2020, 3:05 p.m.", "Thu Mar  5 10:11:12 2020", "soon", ""),
    "at": ("9:05 pm", "06:30:10.5", "24:01", "2020-01-05", "noon"),
    "low (answer)": ("12 EUR", "1,2 EUR", "7", "3 kg", "-1,234.5 EUR", "(9 EUR)"),
}
"""What rows of others hold: other spellings, and what is none of the column's kind."""


def dirty(table: pd.DataFrame) -> pd.DataFrame:
    table = table.drop(columns="y")
    for row, (column, value) in enumerate((name, each) for name in DIRTY for each in DIRTY[name]):
        table.loc[row, column] = value
    return table


def script(folder: Path) -> ModuleType:
    """The exported ``predict.py``."""
    spec = importlib.util.spec_from_file_location("exported", folder / "predict.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def differences(fitted: bundle.Bundle, table: Path, work: Path) -> np.ndarray:
    """The largest difference of each row's answers by the exported script and by `usboost predict`."""
    fitted.save(work / "model")
    saved = bundle.load(work / "model")
    predict(saved, table, work / "usboost.csv")
    export(saved, work / "export", work / "model")
    script(work / "export").main(table, work / "script.csv")
    ours, theirs = (pd.read_csv(work / f"{name}.csv") for name in ("usboost", "script"))
    assert list(ours) == list(theirs) and len(ours) == len(theirs)
    numbers = list(ours.select_dtypes("number"))
    assert ours.drop(columns=numbers).equals(theirs.drop(columns=numbers))
    return (ours[numbers] - theirs[numbers]).abs().to_numpy().max(axis=1)  # type: ignore[no-any-return]


def fitted_to(table: UserTable, model: str, images: ImageOptions | None = None) -> bundle.Bundle:
    """A model of the catalogue, or of another package, fitted to a table in a few rounds."""
    if model == "xgboost":
        package = MODELS["package" if table.classes else "package_regressor"]
        return TableFit(table, package(model, ("S",), n_trees=30), model).run().bundle
    settings = {"forest": {"n_trees": 20}, "best": {"repeats": 1}}.get(model)
    rounds = 12 if find(model).kind == "lightgbm" else 3
    options = {"settings": settings, "threshold": 0.9 if len(table.classes) == 2 else None}
    return build.fit(table, model, images=images, rounds=rounds, **options).bundle


@pytest.mark.parametrize(
    ("model", "task"),
    [
        *(("logistic", "two"), ("ridge", "number"), ("lgbm", "three"), ("lgbm", "number"), ("forest", "two")),
        pytest.param("average", "three", marks=pytest.mark.slow),
        *(("linear_trees", "three"), ("crossed", "two"), ("2wl", "number"), ("2wl2o", "three")),
        *(("bfv_dnn", "three"), ("baseline", "number"), ("prior", "three")),
        *(("xgboost", task) for task in ("two", "three", "number")),
    ],
)
def test_answers_are_those_of_predict(model: str, task: str, tmp_path: Path) -> None:
    if model == "xgboost":
        pytest.importorskip("xgboost")
    rows(300, 0, task).to_csv(tmp_path / "train.csv", index=False)
    dirty(rows(60, 1, task)).to_csv(tmp_path / "rows.csv", index=False)
    fitted = fitted_to(read_table(tmp_path / "train.csv", TableSpec("y")), model)
    assert differences(fitted, tmp_path / "rows.csv", tmp_path).max() < 1e-5


def pictures(folder: Path, n: int, seed: int, bright: pd.Series) -> list[str]:
    """Pictures, some brighter: grey, clear, wide and tall ones, and none."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    names = []
    for row in range(n):
        size = [(40, 40), (90, 30), (31, 77), (70, 100), (17, 17)][row % 5]
        small = Image.fromarray(rng.integers(0, 150, (6, 6, 3)).astype(np.uint8)).resize(size)
        image = small.point(lambda value, more=100 * bool(bright[row]): value + more)
        kind = row % 8
        name = f"{folder.name}/{row}.{'jpg' if row % 8 in (3, 4) else 'png'}"
        if kind == 0:
            (folder / "broken.png").write_bytes(b"no image")
            others = ["", "none.png", f"{folder.name}/broken.png"]
            names.append(others[row // 8 % 3 * folder.name.startswith("rows")])
            continue
        if kind == 5:
            image.putalpha(120)
        image = {1: image.convert("L"), 2: image.convert("P")}.get(kind, image)
        image.save(folder.parent / name)
        names.append(name)
    return names


def with_pictures(
    folder: Path, task: str, columns: Sequence[str], n: int = 64, **options
) -> tuple[UserTable, Path]:
    """A table with columns of images, and a file of dirty rows of the same."""
    for name, many, seed in (("train", n, 0), ("rows", 24, 1)):
        table = rows(many, seed, task)
        bright = table["y"] > table["y"].median() if task == "number" else table["y"] == "yes"
        for column in columns:
            table[column] = pictures(folder / f"{name} {column}", many, seed, bright)
        table = dirty(table) if name == "rows" else table
        table.to_csv(folder / f"{name}.csv", index=False)
    spec = TableSpec("y", image=tuple(columns), **options)
    return read_table(folder / "train.csv", spec), folder / "rows.csv"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "backbone", "columns", "size", "drop"),
    [
        ("linear_trees", "tf_efficientnet_lite0", ("front", "side"), 32, ()),
        ("linear_trees", "tf_efficientnet_lite0", ("front",), 32, tuple(DIRTY)),  # alone: no tree splits
        ("baseline", "small_cnn", ("front", "side"), 24, ()),
        ("2wl", "small_cnn", ("front",), 24, ()),
    ],
)
def test_answers_of_images(model, backbone, columns: tuple[str, ...], size: int, drop, tmp_path) -> None:
    aspect = "pad" if backbone == "small_cnn" else "crop"
    table, others = with_pictures(tmp_path, "two", columns, size=size, aspect=aspect, drop=drop)
    images = ImageOptions(backbone, finetune="all" if backbone == "small_cnn" else "none")
    assert differences(fitted_to(table, model, images), others, tmp_path).max() < 1e-4
    card = json.loads((tmp_path / "export" / "card.json").read_text())
    assert card["backbones"] == [{"name": backbone, "licence": "apache-2.0" * (backbone != "small_cnn")}]
    assert len(card["sha256"]) == 64


@pytest.mark.parametrize("gone", ["9999-12-31", "-999,00", "-1 kg"])
def test_what_stands_for_a_missing_value_does_in_the_export(gone: str, tmp_path: Path) -> None:
    values = {"9": [f"2024-0{k}-11" for k in range(1, 9)], "-": [f"{k}{gone[2:]}" for k in range(1, 9)]}[
        gone[0]
    ]
    x = np.random.default_rng(0).choice([gone, *values], 240)
    pd.DataFrame({"x": x, "y": np.where((x == gone) | (x == values[0]), "a", "b")}).to_csv(tmp_path / "t.csv")
    table = read_table(tmp_path / "t.csv", TableSpec("y", missing=(gone,)))
    assert differences(fitted_to(table, "linear_trees"), tmp_path / "t.csv", tmp_path).max() < 1e-5


def test_pixels_are_those_of_predict(tmp_path: Path) -> None:
    module, about = script(HERE), {"kind": "image", "size": 32, "formats": FORMATS}
    assert module.csv.field_size_limit() > 1 << 30  # an image in a cell is long
    (tmp_path / "x").mkdir()
    turned = [with_exif(form, exif(turn)) for form in ("JPEG", "PNG") for turn in range(1, 10)]
    grey = [tiff(STEPS >> 4, bits=12), tiff(STEPS, zero_is_white=True), encoded(STEPS, transparency=0)]
    for data in turned + grey:
        (tmp_path / "x/a").write_bytes(data)
        for text in ("x/a", "x\\a", f"data:image/png;base64,{b64encode(data).decode()}"):
            found = sized(Image.fromarray(module.value(text, about, tmp_path / "rows.csv")), 32, "crop")
            assert np.array_equal(found, load(data, size=32, channels=3).transpose(1, 2, 0))
    for out in ("../x/a", "x/../x/a", str(tmp_path / "x/a"), "C:x"):
        assert module.value(out, about, tmp_path / "x/rows.csv").size == 0
    Image.new("1", (11_000, 9_500)).save(tmp_path / "x/a", "PNG")
    assert module.value("a", about, tmp_path / "x/rows.csv").size == 0


@pytest.mark.long
@pytest.mark.parametrize("columns", [(), ("front",), ("front", "side")], ids=["none", "one", "two"])
@pytest.mark.parametrize(("model", "task"), OFFERED)
def test_every_model_that_is_offered(
    model: str, task: str, columns: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # packages that have no form are members of an ensemble where they are installed
    monkeypatch.setattr("usboost.models.baselines.packages.installed", list)
    table, others = with_pictures(tmp_path, task, columns, n=120, size=32)
    images = ImageOptions(finetune="none")
    fitted = fitted_to(table, model, images)
    # images' features are rounded to 16 bits: a last digit that turns counts by its weight
    limit = 1e-5 if not columns else 5e-4 if task == "number" else 1e-4
    assert differences(fitted, others, tmp_path).max() < limit


def test_no_training_value_is_in_the_files(tmp_path: Path) -> None:
    n, rng = 240, np.random.default_rng(0)
    secret = rng.uniform(1e5, 9e5, (n, 3)).round(6)
    values = [(str(v).encode(), v.tobytes(), v.astype(np.float32).tobytes()) for v in secret.ravel()]
    table = pd.DataFrame(secret, columns=["a", "b", "c"])
    table["id"] = [f"person-{rng.integers(1 << 60)}" for _ in range(n)]
    table["face"] = [f"{row}.png" for row in range(n)]
    for row in range(n):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)).save(tmp_path / f"{row}.png")
    table["y"] = np.where(secret[:, 0] + secret[:, 1] > 1e6, "yes", "no")
    table.to_csv(tmp_path / "train.csv", index=False)
    spec = TableSpec("y", image=("face",), size=8)
    images = ImageOptions("small_cnn", finetune="all")
    for model in ("2wl", "lgbm_s"):
        fitted = build.fit(read_table(tmp_path / "train.csv", spec), model, images=images, rounds=3).bundle
        fitted.save(tmp_path / "model")
        export(fitted, tmp_path / "export")
        found = [each for name in ("model", "export") for each in (tmp_path / name).rglob("*")]
        data = b"\n".join(each.read_bytes() for each in found if each.is_file())
        assert not any(form in data for forms in values for form in forms)
        assert not any(name.encode() in data for name in table["id"])
        pixels = [np.asarray(Image.open(tmp_path / f"{row}.png")) for row in range(n)]
        assert not any(each[0].tobytes() in data or each[..., 0].tobytes() in data for each in pixels)


def test_the_command_and_its_refusals(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    table = rows(80, 0, "two")
    table["words"] = [f"a long note of many words number {row}, which nobody reads" for row in range(80)]
    table.to_csv(tmp_path / "train.csv", index=False)
    fit = ("fit", tmp_path / "train.csv", "--label", "y", "--model", "logistic", "--out")
    accepted(*fit, tmp_path / "texts", "--text", "words")
    assert "'words' is text" in refused("export", tmp_path / "texts", "--out", tmp_path / "none")
    accepted(*fit, tmp_path / "model", "--drop", "words")
    said = accepted("export", tmp_path / "model", "--out", tmp_path / "export").output
    assert "model.onnx" in said and {each.name for each in (tmp_path / "export").iterdir()} == set(FILES)
    accepted("export", tmp_path / "model", "--out", tmp_path / "export")
    assert "not only, an export" in refused("export", tmp_path / "model", "--out", tmp_path / "model")
    (tmp_path / "export" / "notes.txt").touch()
    assert "not only, an export" in refused("export", tmp_path / "model", "--out", tmp_path / "export")
    text = table.head(3).to_csv(index=False)
    for rows_of, message in (("age\n1\n", "'in come' is missing"), (text + "1,2\n", "too few")):
        (tmp_path / "wrong.csv").write_text(rows_of)
        with pytest.raises(SystemExit, match=message):
            script(tmp_path / "export").main(tmp_path / "wrong.csv", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    table[:3].assign(age=["2.125", "1,304", "x"], code=["1", "5", ""]).to_csv(
        tmp_path / "odd.csv", index=False
    )
    script(tmp_path / "export").main(tmp_path / "odd.csv", tmp_path / "out.csv")
    said = capsys.readouterr().err
    assert "'1,304' is read as 1304.0" in said and "'5' is read as nothing that the model knows" in said
    assert "'NA'" not in said and "'2.125'" not in said
    with pytest.raises(SystemExit, match="holds the rows"):
        script(tmp_path / "export").main(tmp_path / "wrong.csv", tmp_path / "wrong.csv")
    table.to_csv(tmp_path / "utf16.csv", encoding="utf-16")
    words = [sys.executable, tmp_path / "export/predict.py", tmp_path / "utf16.csv", tmp_path / "out.csv"]
    assert "utf16.csv is no CSV in UTF-8" in subprocess.run(words, capture_output=True, text=True).stderr
    monkeypatch.setitem(sys.modules, "onnx", None)
    refuses(r"usboost\[onnx\]", export, bundle.load(tmp_path / "model"), tmp_path / "other")


def test_the_script_needs_three_packages_and_the_page_reads_as_much_of_a_card() -> None:
    source, page = ((HERE / name).read_text() for name in ("predict.py", "index.html"))
    read = set(re.findall(r'about(?:\.get\(|\[)"(\w+)"', source))
    assert {name for name in read if f"about.{name}" not in page} == {"formats", "forms", "rewrite"}
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [getattr(node, "module", None) or node.names[0].name for node in imports]
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"numpy", "onnxruntime", "PIL"}


PAGE = """
const part = () => ({ rows: [], files: [1], append() {}, replaceChildren(...rows) { this.rows = rows },
  insertRow: part, insertCell() { return this.cell = part() } });
const parts = {}, getElementById = (id) => parts[id] ??= part(), location = { href: "http://x/" };
const document = { getElementById, createElement: part, querySelector: part };
const createImageBitmap = async () => { throw 0 }, outputNames = ["low (answer)", "high"];
const card = { classes: [], answers: ["low", "high"], columns: { photo: { kind: "image" } } };
const run = () => ({ high: { data: [3e6] }, "low (answer)": { data: [245678.4] } });
const fetch = async () => ({ json: () => card }), session = { run, outputNames }, create = () => session;
const fake = { env: { wasm: {} }, InferenceSession: { create }, Tensor: class { size = 0 } };
CODE
for (session.run of [run, null]) {
  await parts.form.onsubmit({ preventDefault() {} }).catch(() => 0);
  console.log(parts.about.textContent, ...parts.answer.rows.map((row) => row.cell.textContent));
}"""


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_the_page_says_that_an_image_cannot_be_read_and_keeps_no_answer() -> None:
    code = (HERE / "index.html").read_text().split('<script type="module">')[1].split("</script>")[0]
    code = PAGE.replace("CODE", code.replace('import(HERE + "ort.wasm.min.mjs")', "fake"))
    said = subprocess.check_output(["node", "--input-type=module", "-e", code], text=True).splitlines()
    assert "photo is no image that can be read" in said[0] and said[0].endswith("ms. 245678.4 3000000")
    assert said[1].endswith("page.")


def test_fill_values_and_times_of_zones_are_read_as_by_predict(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    small = rng.normal(size=200)
    hours = pd.Timestamp("2020-03-01 00:30") + pd.Series(pd.to_timedelta(rng.integers(0, 5000, 200), "h"))
    given = pd.DataFrame({"y": np.where(small > 0, "a", "b")})
    given["x, in mm, say"] = np.where(rng.random(200) < 0.3, 1e10, small)
    for name, zone in (("none", ""), ("ahead", "+05:30")):
        given[name] = hours.dt.strftime("%Y-%m-%dT%H:%M:%S") + zone
    given.to_csv(tmp_path / "train.csv", index=False)
    fitted = build.fit(read_table(tmp_path / "train.csv", TableSpec("y")), "lgbm", rounds=4).bundle
    assert any(each.knots for encoder in fitted.encoding.encoders.values() for each in encoder.numeric)
    others = given.drop(columns="y").head(40).assign(**{"x, in mm, say": np.linspace(-5, 5, 40)})
    others.loc[:20, "none"] += "-08:00"
    others.loc[10:30, "ahead"] = others.loc[10:30, "ahead"].str.removesuffix("+05:30")
    others.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    assert differences(fitted, tmp_path / "rows.csv", tmp_path).max() < 1e-5

"""What `usboost check` says: seeded faults are found, clean tables are left alone."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn import datasets
from sklearn.neighbors import NearestNeighbors
from typer.testing import CliRunner

from tests.conftest import refuses
from usboost import MultimodalClassifier
from usboost.check import Finding, beside_fit, check_table, groups
from usboost.check.groups import beyond_chance, shared, stems
from usboost.check.scores import flattery, tells, wrong_labels
from usboost.cli.app import app
from usboost.errors import UsboostWarning
from usboost.report.blocks import check_out
from usboost.table.prepared import prepare
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table


def table_of(frame: pd.DataFrame, shuffled: bool = True, **options) -> UserTable:
    frame = frame.sample(frac=1, random_state=0).reset_index(drop=True) if shuffled else frame
    return read_table(FrameRows(frame), TableSpec("y", **options))


def things(size: int, n: int = 300) -> pd.DataFrame:
    """Rows of things, `size` of each, which share the label and nearly all numbers."""
    rng = np.random.default_rng(size)
    count = n // size
    thing = np.repeat(np.arange(count), size)
    numbers = rng.normal(size=(count, 4))[thing] + 0.1 * rng.normal(size=(n, 4))
    y = np.where(rng.permutation(np.arange(count) % 2), "yes", "no")[thing]
    return pd.DataFrame(numbers, columns=list("abcd")).assign(thing=thing, y=y)


def fruits() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    weight = np.repeat(rng.normal(150, 25, 150).round(2), 2)
    colour = np.repeat(rng.normal(size=150), 2) + 0.3 * rng.normal(size=300)
    return pd.DataFrame({"weight": weight, "colour": colour, "y": np.repeat(rng.normal(10, 1, 150), 2)})


def noise(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    effect, town = rng.normal(size=12), rng.integers(0, 12, n)
    y = np.where(effect[town] + frame["a"] + rng.normal(size=n) > 0, "yes", "no")
    return frame.assign(town=[f"town {k}" for k in town], age=rng.integers(20, 60, n), y=y)


def kinds(found: list[Finding]) -> set[str]:
    return {each.kind for each in found}


def gene() -> pd.DataFrame:
    frame = noise(30).assign(gene=np.arange(30.0))
    frame.loc[frame.index[frame["y"] == "no"][:9], "gene"] = -1.0  # one of thousands is so by chance
    return frame


DAYS = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.random.default_rng(14).integers(0, 3, 120), "D")


@pytest.mark.parametrize("name", ["iris", "diabetes", noise, gene, lambda: noise(120).assign(day=DAYS)])
def test_a_clean_table_is_left_alone(name) -> None:
    frame = name() if callable(name) else getattr(datasets, f"load_{name}")(as_frame=True).frame
    found = check_table(table_of(frame.rename(columns={"target": "y"}), shuffled=False))
    assert kinds(found) == set(), list(map(str, found))


@pytest.mark.parametrize(("size", "where"), [(2, "column"), (5, "stem"), (30, "column")])
def test_groups_that_nobody_named_are_found(size: int, where: str) -> None:
    frame = things(size)
    if where == "stem":
        frame["file"] = [f"shots/thing_{thing}_{k % size}.png" for k, thing in enumerate(frame["thing"])]
        frame = frame.drop(columns="thing")
    else:
        frame["thing"] = "t" + frame["thing"].astype(str)
    table = table_of(frame, drop=("file",) if where == "stem" else ())
    found = [each for each in check_table(table) if each.kind in ("groups", "decides")]
    assert found, size
    assert found[0].columns == (("file",) if where == "stem" else ("thing",))
    assert found[0].flattery is not None
    assert found[0].flattery.random > found[0].flattery.together + 0.1
    y = table.labels
    assert all(len(rows) > 1 and len(set(y[list(rows)])) == 1 for rows in found[0].examples)


def test_two_rows_of_a_fruit_are_known_by_its_weight() -> None:
    found = check_table(table_of(fruits()))
    assert [each.columns for each in found] == [("weight",)]
    assert "'weight'" in found[0].advice


@pytest.mark.parametrize("as_number", [False, True])
def test_places_that_decide_the_label(as_number: bool) -> None:
    rng = np.random.default_rng(0)
    place = rng.integers(0, 19, 400)
    names = place if as_number else [f"p{k}" for k in place]
    frame = pd.DataFrame({"place": names, "x": rng.normal(size=400), "y": [f"c{k % 4}" for k in place]})
    found = check_table(table_of(frame))
    assert [(each.kind, each.columns) for each in found] == [("decides", ("place",))]


def test_places_that_share_a_number() -> None:
    """Some of ten places are far from all others, which does not hide that trees know none of them."""
    rng = np.random.default_rng(1)
    place, x = rng.integers(0, 10, 400), rng.normal(size=(400, 3))
    y = x[:, 0] + 2 * rng.normal(size=10)[place] + 0.5 * rng.normal(size=400)
    frame = pd.DataFrame(x).assign(place=[f"p{k}" for k in place], y=y)
    assert [each.columns for each in check_table(table_of(frame))] == [("place",)]


def test_numbers_of_patients_are_groups() -> None:
    rng = np.random.default_rng(0)
    patient, age, sick = rng.integers(0, 30, 150), rng.normal(50, 9, 30).round(1), rng.integers(0, 2, 30)
    frame = pd.DataFrame({"patient": patient, "age": age[patient], "visit": rng.normal(size=150)})
    (found,) = check_table(table_of(frame.assign(y=np.where(sick[patient] == 1, "yes", "no"))))[:1]
    assert found.columns == ("patient",) and "group='patient'" in found.advice


def test_rows_near_in_the_file_are_alike() -> None:
    frame = things(25, 500).drop(columns="thing")
    assert "groups" in kinds(check_table(table_of(frame, shuffled=False)))
    assert kinds(check_table(table_of(frame))) == {"twins"}  # by their numbers alone


def test_a_random_walk_is_a_time_series() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=400), "x": rng.normal(size=400)})
    (found,) = check_table(table_of(frame.assign(y=rng.normal(size=400).cumsum())))
    assert "time='day'" in found.advice and found.flattery and 0 < found.flattery.low < found.flattery.high


def test_a_missing_value_that_tells_the_label() -> None:
    frame = noise()
    frame.loc[frame["y"] == "yes", "b"] = np.nan
    found = check_table(table_of(frame))
    assert [(each.kind, each.columns) for each in found] == [("leak", ("b",))]


@pytest.mark.parametrize(
    ("label", "of"),
    [
        (lambda f: 2 * f["a"] - f["b"], ("a", "b")),
        (lambda f: f["a"] * f["c"] ** 2 / f["b"], ("a", "b", "c")),
        (lambda f: (f["to"] - f["from"]).dt.days, ("from", "to")),
        (lambda f: (f["a"] + f["b"]) * f["c"], None),
        (lambda f: f["a"] + f["b"] + 0.05 * f["d"] ** 2, None),
    ],
)
def test_a_label_that_follows_from_columns(label, of) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(1, 9, (200, 4)), columns=list("abcd")).assign(same=1.0)
    days = pd.to_timedelta(rng.integers(0, 900, (2, 200)).ravel(), "D").to_numpy().reshape(2, 200)
    frame["from"], frame["to"] = pd.Timestamp("2020-01-01") + days[0], pd.Timestamp("2023-01-01") + days[1]
    frame.loc[:4, "a"] = frame.loc[7, "d"] = np.nan
    found = check_table(table_of(frame.assign(y=label(frame.fillna(3.0)))), quick=True)
    assert [each.columns for each in found if each.kind == "leak"] == [of] * (of is not None)


@pytest.mark.slow
def test_a_few_copies_of_rows_and_a_number_that_leaks() -> None:
    found = check_table(table_of(pd.concat([noise(), noise()[:30]])))
    assert [(each.kind, each.columns) for each in found] == [("groups", ())]
    assert not check_table(table_of(pd.concat([noise().assign(w=1), noise()[:30].assign(w=0)]), weight="w"))
    frame = noise(200).assign(y=lambda each: each["a"], z=lambda each: 9 * each["a"]).drop(columns="a")
    assert [each.columns for each in check_table(table_of(frame))] == [("z",)]
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"age": rng.normal(50, 10, 200).round(1), "bmi": rng.normal(25, 4, 200).round(2)})
    frame["y"] = np.where(rng.random(200) < 1 / (1 + np.exp(-(frame["age"] - 50) / 8)), "ill", "well")
    [found] = check_table(table_of(pd.concat([frame, frame.sample(60, random_state=0)])))
    assert "rows that are equal" in str(found)  # and not those of equal ages
    assert not check_table(table_of(things(7, 420), shuffled=False, group="thing"))


@pytest.mark.parametrize("answers", [["good", "bad"], ["red", "green", "blue"]])
@pytest.mark.parametrize("share", [1.0, 0.8])
def test_a_text_that_holds_the_answer(answers: list[str], share: float) -> None:
    y = pd.Series((rng := np.random.default_rng(0)).choice(answers, 400))
    said = y.where(rng.random(400) < share, rng.permutation(y))
    note = [f"{' '.join(map(str, rng.integers(10, 30, 5)))}, so it is {each}" for each in said]
    found = check_table(table_of(pd.DataFrame({"note": note, "a": rng.normal(size=400), "y": y})))
    assert [each.columns for each in found if each.kind == "leak"] == [("note",)] * (share == 1)


@pytest.mark.slow
def test_copies_of_all_rows_are_found_without_numbers_too() -> None:
    letters = np.random.default_rng(0).choice(list("abcdefgh"), (150, 6))
    frame = pd.DataFrame(letters, columns=list("pqrstu")).assign(y=["n", "p"] * 75)
    found = check_table(table_of(pd.concat([frame] * 3)))
    assert [(each.kind, each.columns, each.rows) for each in found] == [("groups", (), 450)]
    assert "keep one of each" in str(found[0]) and not check_table(table_of(frame[["p", "q", "y"]]))


def test_near_equal_rows_and_those_between_two_others() -> None:
    frame, rng = things(1, 600).drop(columns="thing"), np.random.default_rng(9)
    numbers, names = frame[list("abcd")].to_numpy(), list("abcd")
    for noise, said in ((0.02, "near-equal numbers"), (0.0, "rows that are equal"), (1.0, None)):
        copies = frame[:60].copy()
        copies[names] += noise * rng.normal(size=(60, 4))
        found = check_table(both := table_of(pd.concat([frame, copies])), quick=True)
        assert ("twins" in kinds(found)) == (noise == 0.02), noise
        assert said is None or said in str(check_table(both)[0]), noise
    nearest = NearestNeighbors(n_neighbors=4).fit(numbers).kneighbors(numbers[:60], return_distance=False)
    made, (start, end) = frame[:60].copy(), numbers[nearest[:, [0, 3]]].swapaxes(0, 1)
    made[names] = start + rng.random((60, 1)) * (end - start)
    [found] = check_table(table_of(pd.concat([frame, made])), quick=True)
    assert "60 rows lie between two others" in str(found)
    line, (a, b) = rng.random(600), rng.random((2, 600))  # and in a plane
    for each in ((line, line**2, np.exp(line), np.sin(line)), (a, b, (a + b) / 2, (b - a) / 3)):
        assert not check_table(table_of(frame.assign(**dict(zip("abcd", each)))), quick=True)


def test_exchanged_labels_are_found() -> None:
    x, y = datasets.load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    wrong = rng.permutation(900)[:27]
    y = y[:900].copy()
    y[wrong] = (y[wrong] + rng.integers(1, 10, 27)) % 10
    frame = pd.DataFrame(x[:900]).add_prefix("x").assign(y=[f"digit {k}" for k in y])
    [found] = [each for each in check_table(table_of(frame, shuffled=False)) if each.kind == "labels"]
    said = {row for rows in found.examples for row in rows}
    assert len(said & set(wrong.tolist())) >= max(0.5 * 27, 0.8 * len(said))


def with_images(n: int = 90) -> pd.DataFrame:
    """Images whose files are larger for one class, and twelve that are mirrored copies of others."""
    rng = np.random.default_rng(0)
    y, cells = np.arange(n) % 2, []
    pixels = rng.integers(0, 255, (n, 4, 4, 3)).astype(np.uint8)
    pixels[-12:] = pixels[:12, :, ::-1]
    for each, code in zip(pixels, y):
        image = Image.fromarray(each).resize((48, 48), Image.Resampling.BICUBIC)
        out = io.BytesIO()
        image.save(out, "JPEG", quality=95 if code else 40)
        cells.append(out.getvalue())
    return pd.DataFrame({"photo": cells, "x": rng.normal(size=n), "y": np.where(y, "yes", "no")})


def test_the_command_writes_a_page_of_images(tmp_path: Path) -> None:
    with_images().to_parquet(tmp_path / "rows.parquet")
    arguments = ["check", str(tmp_path / "rows.parquet"), "--label", "y", "--image", "photo", "--size", "48"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "page.html")])
    assert result.exit_code == 0, result.output
    assert "number of bytes" in result.output and "near-equal" in result.output
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/jpeg") >= 12
    assert "<script" not in page
    refuses("html", check_out, tmp_path / "page.txt")


def test_a_fit_and_a_prepared_table_say_it(tmp_path: Path) -> None:
    frame = things(5).assign(thing=lambda each: "t" + each["thing"].astype(str))
    assert [each for each in beside_fit(table_of(frame)) if "'thing'" in each]
    with pytest.warns(UsboostWarning, match="'thing'"):
        MultimodalClassifier("prior").fit(frame.drop(columns="y"), frame["y"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    prepared = prepare(tmp_path / "rows.csv", TableSpec("y"), seed=0)
    assert beside_fit(prepared.table) == beside_fit(table_of(frame, shuffled=False))


@pytest.mark.parametrize("is_number", [False, True])
def test_agreement_is_that_of_brute_force(is_number: bool) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 15, 40)
    y = rng.normal(size=40) if is_number else rng.integers(0, 3, 40)
    for row, found in enumerate(shared(y, codes)):
        others = [k for k in range(40) if k != row and codes[k] == codes[row]]
        each = [1 - (y[row] - y[k]) ** 2 / 2 if is_number else float(y[row] == y[k]) for k in others]
        assert np.isnan(found) if not others else found == pytest.approx(np.mean(each))


def test_chance_is_no_agreement() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 500)
    assert beyond_chance(y, rng.integers(0, 100, 500)) == 0
    assert beyond_chance(y, y * 50 + rng.integers(0, 50, 500)) == pytest.approx(1)
    assert groups.codes_of(pd.Series(["a", None, "a", None])).tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("values", "what", "count"),
    [
        ([f"{k}{side}.jpg" for k in range(20) for side in "ab"], "the number", 20),
        ([f"patient_{k}_{side}.png" for k in range(20) for side in ("left", "right")], "the beginning", 20),
        ([f"day{k}/shot{j}.jpg" for k in range(8) for j in range(5)], "the folder", 8),
    ],
)
def test_stems(values: list[str], what: str, count: int) -> None:
    found = dict(stems(pd.Series(values)))
    assert len(np.unique(found[what])) == count


def test_quick_scores() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    assert tells(y + 0.1 * rng.normal(size=400), y) > 0.95
    assert tells(rng.normal(size=400), y) < 0.3
    assert max(tells(rng.random(40), np.arange(40) < 3) for _ in range(30)) == 0  # three rows tell nothing
    assert flattery(rng.normal(size=(400, 2)), y, np.zeros(400, dtype=np.int64), {}) is None  # one group
    (of, x), rng = np.divmod(np.arange(180), 10), np.random.default_rng(1)  # slopes of 18 subjects
    y = x * (rng.normal(size=18) + 1)[of] + rng.normal(size=180)
    assert flattery(x[:, None], y, of, {}).worse == 0 < flattery(x[:, None], y, of, {}, None, 2.0).worse


@pytest.mark.parametrize(
    ("apart", "rare", "share", "named"),
    [(4, 0.5, 0.03, 30), (3, 0.5, 0.0, 0), (1, 0.5, 0.0, 0), (0, 0.5, 0.0, 0), (0.5, 0.04, 0.0, 0)],
    ids=["exchanged", "told", "overlapping", "unknown", "rare"],
)
def test_exchanged_labels_look_wrong(apart: float, rare: float, share: float, named: int) -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(1000) < rare).astype(np.int64)
    odds = rare / (1 - rare) * np.exp(apart * (rng.normal(size=1000) + apart * (y - 0.5)))
    wrong = rng.permutation(1000)[: int(share * 1000)]
    y[wrong] = 1 - y[wrong]
    found = wrong_labels(np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1), y)
    assert 0.8 * named <= len(set(found.tolist()) & set(wrong.tolist())) <= len(found) <= 1.5 * named


def test_folds_of_a_few_large_groups_are_fair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usboost.check.scores.ROWS", 600)
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 1000)
    groups_of_a_class = np.arange(3000) // 200
    found = flattery(rng.normal(size=(3000, 2)) + 3 * y[:, None], y, groups_of_a_class, {})
    assert found is not None and found.worse == 0

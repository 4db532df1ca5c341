"""Census-Income: files of the demo, broken in every way, the real ones, and backward elimination."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

from tests.conftest import published, refuses
from usboost.data.encoding import TableEncoder
from usboost.data.table import Table
from usboost.datasets import census
from usboost.datasets.census import PARAMETERS, ROUNDS, backward_elimination, write_demo
from usboost.datasets.sources import content_sha256
from usboost.datasets.store import Prepared
from usboost.errors import UsboostError
from usboost.files.arrays import sha256

TRAIN, TEST = (file.name for file in census.FILES)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_demo(folder, rows_train=990, rows_test=401, seed=7)
    lines = gzip.decompress((folder / TRAIN).read_bytes()).splitlines(keepends=True)
    (folder / TRAIN).write_bytes(gzip.compress(b"".join([*lines, *lines[:10]])))
    return folder


@pytest.fixture(scope="module")
def lines(demo: Path) -> list[bytes]:
    return gzip.decompress((demo / TRAIN).read_bytes()).splitlines()


@pytest.fixture(scope="module")
def ci_a(demo: Path) -> Prepared:
    return census.prepare(demo / TRAIN, demo / TEST, split="ci_a", seed=0, profile="demo")


@pytest.fixture(scope="module")
def ci_b(demo: Path) -> Prepared:
    return census.prepare(demo / TRAIN, demo / TEST, split="ci_b", seed=0, profile="demo", candidates=2)


@pytest.fixture(scope="module")
def real() -> Path:
    """The folder of the published files."""
    folder = published(census.SOURCE, TRAIN, TEST)
    if (folder / TRAIN).stat().st_size < 1 << 20:
        pytest.skip(f"the census files of {folder} are a demo's")
    return folder


def test_fields_are_read_as_a_literal_reader_does(demo: Path, lines: list[bytes]) -> None:
    frame = census.read(demo / TRAIN)
    assert list(frame.columns) == list(census.COLUMNS)
    fields = [[field.strip() for field in line.decode().split(",")] for line in lines]
    for j, name in enumerate(census.COLUMNS):
        column = [row[j] for row in fields]
        if name == "label":
            assert frame[name].tolist() == [int(value == "50000+.") for value in column]
        elif name in (*census.CONTINUOUS, "weight"):
            assert frame[name].dtype == np.float32
            np.testing.assert_array_equal(frame[name], np.array(column, dtype=np.float32))
        else:
            assert isinstance(frame[name].dtype, pd.CategoricalDtype)
            found = frame[name].astype(object)
            assert [None if pd.isna(value) else value for value in found] == [
                None if value == "?" else value for value in column
            ]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\n\n\n"])
@pytest.mark.parametrize("zipped", [True, False])
def test_all_read_alike(demo: Path, lines: list[bytes], tmp_path: Path, ending: bytes, zipped: bool) -> None:
    between = b"\r\n" if ending == b"\r\n" else b"\n"
    text = between.join(lines) + ending
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(text) if zipped else text)
    pd.testing.assert_frame_equal(census.read(path), census.read(demo / TRAIN))


@pytest.mark.parametrize("label", [b"-50000", b"- 50000", b" -50000. ", b"- 50000."])
def test_labels_may_have_spaces_and_a_dot_or_not(lines: list[bytes], tmp_path: Path, label: bytes) -> None:
    path = tmp_path / "file"
    few = [b",".join([*row.split(b",")[:-1], b" 50000+" if k else label]) for k, row in enumerate(lines[:3])]
    path.write_bytes(b"\n".join(few))
    assert census.read(path)["label"].tolist() == [0, 1, 1]


def fields(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[list[bytes]], list[bytes]]:
    """A change of the fields of line 5."""

    def apply(lines: list[bytes]) -> list[bytes]:
        return [*lines[:4], b",".join(change(lines[4].split(b","))), *lines[5:]]

    return apply


BROKEN: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "a column too few": (fields(lambda f: f[1:]), "line 5: 41 fields instead of 42"),
    "a column too many": (fields(lambda f: [*f, b" 1"]), "line 5: 43 fields instead of 42"),
    "a column missing everywhere": (
        lambda lines: [line.partition(b",")[2] for line in lines],
        "line 1: 41 fields instead of 42",
    ),
    "a blank line": (lambda lines: [*lines[:4], b"", *lines[4:]], "line 5: 1 fields instead of 42"),
    "an unknown label": (
        fields(lambda f: [*f[:-1], b" 70000."]),
        "line 5: the label must be .* not '70000.'",
    ),
    "a missing label": (fields(lambda f: [*f[:-1], b" ?"]), "line 5: the label must be .* not '\\?'"),
    "a word for a number": (fields(lambda f: [b"old", *f[1:]]), "line 5: age must be a number, not 'old'"),
    "no number": (fields(lambda f: [b" ", *f[1:]]), "line 5: age must be a number, not ''"),
    "a missing number": (fields(lambda f: [b"?", *f[1:]]), "line 5: age must be a number, not '\\?'"),
    "NaN": (
        fields(lambda f: [*f[:16], b" NaN", *f[17:]]),
        "line 5: capital_gains must be a number, not 'NaN'",
    ),
    "infinity": (fields(lambda f: [*f[:24], b" inf", *f[25:]]), "line 5: weight must be a number, not 'inf'"),
    "a number beyond float32": (
        fields(lambda f: [b"1e39", *f[1:]]),
        "age holds NaN, infinity or a number too",
    ),
    "bytes that are not text": (fields(lambda f: [f[0], b"\xff", *f[2:]]), "cannot be read as a census file"),
    "one class": (
        lambda lines: [line for line in lines if line.endswith(b"- 50000.")],
        "holds only the class '- 50000.'",
    ),
    "a last line cut short": (lambda lines: [*lines[:4], lines[4][:-5]], "line 5: the label must be"),
    "nothing": (lambda lines: [], "is empty"),
    "blank lines only": (lambda lines: [b"", b" "], "is empty"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("prepared", [False, True])
def test_lines_are_named(demo: Path, lines: list[bytes], tmp_path: Path, name: str, prepared: bool) -> None:
    change, message = BROKEN[name]
    # A repeated line before the wrong one: the line named is that of the file, not of the distinct ones.
    text = b"\n".join(change([lines[0], lines[0], *lines[1:]]))
    path = tmp_path / "broken.gz"
    path.write_bytes(gzip.compress(text) if text else b"")
    with pytest.raises(UsboostError, match=message) as caught:
        if prepared:
            census.prepare(path, demo / TEST, split="ci_a", seed=0)
        else:
            census.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_or_missing_file_is_named(demo: Path, tmp_path: Path) -> None:
    whole = (demo / TRAIN).read_bytes()
    path = tmp_path / "cut.gz"
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for damaged in (whole[: len(whole) // 2], whole[:-4], bytes(flipped)):
        path.write_bytes(damaged)
        refuses(r"cut\.gz is a damaged or truncated gzip file", census.read, path)
    refuses(r"none\.gz cannot be read: No such file", census.read, tmp_path / "none.gz")
    with pytest.raises(UsboostError, match="split must be ci_a or ci_b, not 'ci_c'"):
        census.prepare(demo / TRAIN, demo / TEST, split="ci_c", seed=0)  # type: ignore[arg-type]


def test_duplicates_go_and_the_test_file_is_halved(demo: Path, lines: list[bytes], ci_a: Prepared) -> None:
    distinct = list(dict.fromkeys(lines))
    assert len(distinct) < len(lines) == 1000
    assert ci_a.card["lines"] == {"read": 1000, "distinct": len(distinct)}
    ages = [int(line.split(b",")[0]) for line in distinct]
    assert ci_a.splits["train"]["age"].tolist() == ages
    assert [len(ci_a.splits[name]) for name in ("val", "test")] == [200, 201]

    def rows(*frames: pd.DataFrame) -> Counter:
        return Counter(
            row for frame in frames for row in frame.astype(object).fillna("?").itertuples(index=False)
        )

    held = census.read(demo / TEST).drop(columns="weight")
    assert rows(ci_a.splits["val"], ci_a.splits["test"]) == rows(held)


def test_ci_a_halves_the_features_by_the_seed(demo: Path, ci_a: Prepared) -> None:
    def views(seed: int) -> dict[str, list[str]]:
        return census.prepare(demo / TRAIN, demo / TEST, split="ci_a", seed=seed).views

    assert [len(ci_a.views[view]) for view in ("U", "S")] == [20, 20]
    assert sorted(ci_a.views["U"] + ci_a.views["S"]) == sorted(census.FEATURES)
    assert views(0) == ci_a.views
    assert views(1) != ci_a.views


def test_ci_b_keeps_what_the_elimination_keeps(ci_a: Prepared, ci_b: Prepared) -> None:
    path = ci_b.card["elimination"]
    assert [step["remaining"] for step in path] == list(range(40, 0, -1))
    removed = {step["removed"] for step in path if step["remaining"] >= len(ci_b.views["S"])}
    kept = set(census.FEATURES) - removed
    assert set(ci_b.views["S"]) == kept
    assert sorted(ci_b.views["U"] + ci_b.views["S"]) == sorted(census.FEATURES)
    assert ci_b.views["U"]
    for name in ci_a.splits:
        pd.testing.assert_frame_equal(ci_a.splits[name], ci_b.splits[name])


@pytest.mark.parametrize("name", ["ci_a", "ci_b"])
def test_the_card_says_what_was_made_of_what(demo: Path, name: str, request: pytest.FixtureRequest) -> None:
    prepared: Prepared = request.getfixturevalue(name)
    card = json.loads(json.dumps(prepared.card, allow_nan=False))
    assert card == prepared.card
    assert (card["dataset"], card["profile"], card["seed"]) == (name, "demo", 0)
    files = (TRAIN, TEST)  # made of the checkout's small file
    assert card["sources"] == {f"{file}, rows of {census.DEMO.name}": sha256(demo / file) for file in files}
    assert card["classes"] == prepared.classes == list(census.CLASSES)
    assert list(card["columns"]) and set(card["columns"]) == set(census.COLUMNS)
    for column, entry in card["columns"].items():
        expected = next((view for view, names in prepared.views.items() if column in names), None)
        assert entry["view"] == expected and entry["why"]
    for split, frame in prepared.splits.items():
        assert card["splits"][split]["rows"] == len(frame)
        assert list(card["splits"][split]["classes"].values()) == np.bincount(frame["label"]).tolist()
    for view, names in prepared.views.items():
        encoder = TableEncoder.from_dict(card["encoders"][view])
        assert sorted(encoder.names) == sorted(names)
        assert encoder == TableEncoder.fit(prepared.splits["train"], names)


def test_the_published_columns_are_these(real: Path) -> None:
    listed = real / "columns.txt"
    if not listed.is_file():
        pytest.skip("columns.txt is not beside the real census files")
    assert tuple(listed.read_text().splitlines()) == census.PUBLISHED


def test_the_real_files_have_the_known_content(real: Path) -> None:
    for file in census.FILES:
        assert content_sha256(real / file.name) == file.sha256


def test_the_real_training_file_is_read_whole(real: Path) -> None:
    frame = census.read(real / TRAIN)
    assert len(frame) == 199_523
    assert np.bincount(frame["label"]).tolist() == [187_141, 12_382]
    missing = frame.isna().sum()
    assert missing["migration_code_change_in_msa"] == 99_696
    assert missing["country_of_birth_father"] == 6_713
    assert missing["state_of_previous_residence"] == 708
    assert (missing > 0).sum() == 8
    # NA is an answer, and codes are names, not amounts.
    assert (frame["hispanic_origin"] == "NA").sum() == 874
    assert len(frame["detailed_industry_recode"].cat.categories) == 52
    assert frame["age"].max() == 90 and frame["capital_gains"].max() == 99_999


def test_ci_a_of_the_real_files_has_the_papers_sizes(real: Path) -> None:
    prepared = census.prepare(real / TRAIN, real / TEST, split="ci_a", seed=0)
    assert {name: len(frame) for name, frame in prepared.splits.items()} == {
        "train": 196_294,
        "val": 49_881,
        "test": 49_881,
    }
    held = pd.concat([prepared.splits["val"], prepared.splits["test"]])
    assert np.bincount(held["label"]).tolist() == [93_576, 6_186]
    assert {name: len(names) for name, names in prepared.views.items()} == {"U": 20, "S": 20}


def table(n: int, seed: int, noise: int = 2) -> tuple[Table, np.ndarray]:
    """Two informative numbers, one informative category, and columns of noise; labels 0 and 1."""
    rng = np.random.default_rng(seed)
    numeric = rng.normal(size=(n, 2 + noise)).astype(np.float32)
    codes = rng.integers(1, 5, size=(n, 2)).astype(np.int32)
    names = ("good", "better", *(f"noise{j}" for j in range(noise)), "kind", "mark")
    score = 1.5 * numeric[:, 0] + 2.5 * numeric[:, 1] + 2.0 * (codes[:, 0] % 2) - 1
    y = (score + rng.logistic(size=n) > 0).astype(np.int64)
    return Table(numeric, codes, (5, 5), names), y


def literal(data: Table, y: np.ndarray, seed: int, tolerance: float) -> tuple[list[tuple], list[str]]:
    """Try every column at every step, by name, with a loss written out."""
    m = len(np.unique(y))
    x = {name: data.matrix()[:, j] for j, name in enumerate(data.names)}
    nominal = {data.names[j] for j in data.categorical}
    half = len(y) // 2
    fit, rest = train_test_split(
        np.arange(len(y)), train_size=half, test_size=half, stratify=y, random_state=seed
    )
    objective = {"objective": "binary"} if m == 2 else {"objective": "multiclass", "num_class": m}

    def loss(names: list[str]) -> float:
        matrix = np.column_stack([x[name] for name in names])
        positions = [j for j, name in enumerate(names) if name in nominal]
        booster = lgb.train(
            {**PARAMETERS, **objective},
            lgb.Dataset(matrix[fit], y[fit], categorical_feature=positions),
            ROUNDS,
        )
        p = np.asarray(booster.predict(matrix[rest]))
        p = np.column_stack([1 - p, p]) if m == 2 else p
        return float(-np.log(p[np.arange(len(rest)), y[rest]]).mean())

    names = list(data.names)
    path: list[tuple] = [(None, loss(names), list(names))]
    while len(names) > 1:
        scored = {name: loss([other for other in names if other != name]) for name in names}
        worst = min(scored, key=scored.__getitem__)
        names = [name for name in names if name != worst]
        path.append((worst, scored[worst], list(names)))
    best = min(entry[1] for entry in path)
    kept = min((entry[2] for entry in path if entry[1] <= best * (1 + tolerance)), key=len)
    return path, kept


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("m", [2, 3])
def test_the_path_is_that_of_a_literal_elimination(seed: int, m: int) -> None:
    data, y = table(300, seed)
    if m == 3:
        y = y + (data.numeric[:, 1] > 1)
    found = backward_elimination(data, y, seed=seed, candidates=data.n_columns, tolerance=0.02)
    path, kept = literal(data, y, seed, 0.02)
    assert [step.removed for step in found.path] == [entry[0] for entry in path]
    assert [step.remaining for step in found.path] == [len(entry[2]) for entry in path]
    np.testing.assert_allclose([step.loss for step in found.path], [entry[1] for entry in path], rtol=1e-9)
    assert list(found.kept) == kept


def test_what_is_kept_follows_the_tolerance_and_the_limit() -> None:
    data, y = table(600, seed=7)
    strict = backward_elimination(data, y, seed=0, candidates=6, tolerance=0.0)
    lowest = min(strict.path, key=lambda step: step.loss)
    assert len(strict.kept) <= lowest.remaining
    loose = backward_elimination(data, y, seed=0, candidates=6, tolerance=100.0)
    assert loose.path == strict.path
    assert len(loose.kept) == 1
    removed = [step.removed for step in strict.path]
    assert set(loose.kept) == set(data.names) - set(removed)
    limited = backward_elimination(data, y, seed=0, candidates=6, tolerance=0.0, at_most=2)
    assert len(limited.kept) <= 2


def test_what_cannot_be_eliminated_is_refused() -> None:
    data, y = table(100, seed=0)
    refuses("100 rows but there are 99 labels", backward_elimination, data, y[:-1], seed=0)
    refuses("two classes", backward_elimination, data, np.zeros(100, dtype=int), seed=0)
    refuses("all classes", backward_elimination, data, np.eye(100, dtype=int)[0], seed=0)
    refuses("at least one column", backward_elimination, Table.from_numeric(np.empty((100, 0))), y, seed=0)
    for wrong in ({"rows": 3}, {"candidates": 0}, {"tolerance": -0.1}, {"at_most": 0}):
        refuses("needs rows >= 4", backward_elimination, data, y, seed=0, **wrong)

"""Text as numbers: against scikit-learn, learnt from training rows, whatever a cell holds, and in files."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from tests.conftest import refuses
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.fit import bundle
from usboost.fit.build import fit
from usboost.fit.bundle import raw_rows
from usboost.table import prepared as user_table
from usboost.table.columns import texts
from usboost.table.columns.encoding import Encoding
from usboost.table.columns.texts import TextParts, ngrams, words
from usboost.table.prepared import read_prepared
from usboost.table.schema import describe
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

N = 120
KINDS = {"tool": ["hammer", "wrench", "pliers", "drill"], "fruit": ["apple", "pear", "plum", "cherry"]}
MORE = ["new", "old", "small", "large", "cheap", "heavy", "round", "good"]


def table(n: int = N, seed: int = 0) -> pd.DataFrame:
    """Rows whose class is in a word and, for one half, in a number."""
    rng = np.random.default_rng(seed)
    label = rng.choice(list(KINDS), n)
    said = [
        f"a {rng.choice(MORE)} {rng.choice(KINDS[k])}, {rng.choice(MORE)}, number {j}"
        for j, k in enumerate(label)
    ]
    note = pd.Series(said, dtype="str").mask(rng.random(n) < 0.1)
    return pd.DataFrame({"size": (label == "tool") + rng.normal(size=n), "note": note, "kind": label})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the table, as `bundle.load` reads it."""
    folder = tmp_path_factory.mktemp("text")
    table().to_csv(folder / "t.csv", index=False)
    fit(read_table(folder / "t.csv", TableSpec(label="kind")), "linear_trees", rounds=4).bundle.save(
        folder / "model"
    )
    return folder / "model"


def test_equal_to_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "COMPONENTS", 7)
    train, new = (table(seed=seed)["note"].fillna("Äpfel & 好き 😀") for seed in (1, 2))
    vectorizer = TfidfVectorizer(
        analyzer=lambda text: [piece for word in words(text) for piece in ngrams(word)],
        sublinear_tf=True,
        min_df=2,
    )
    weights = vectorizer.fit_transform(train)
    svd = TruncatedSVD(7, n_iter=5, random_state=0).fit(weights)
    parts = TextParts.fit(train)
    assert sorted(parts.ngrams) == list(vectorizer.get_feature_names_out())
    for each in (train, new):
        expected, found = svd.transform(vectorizer.transform(each)), parts.scores(each)
        signs = np.sign((expected * found).sum(axis=0))
        np.testing.assert_allclose(found * signs, expected, atol=2e-4)


def test_of_latin_words_it_is_scikit_learns_own_cut() -> None:
    """Not of others: Chinese and Japanese words of one and two letters would be lost."""
    cut = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), sublinear_tf=True, min_df=2)
    said = table(seed=1)["note"].dropna().str.replace(",", "")
    expected, parts = cut.fit_transform(said), TextParts.fit(said)
    assert set(cut.get_feature_names_out()) == set(parts.ngrams)
    places = [cut.vocabulary_[each] for each in parts.ngrams]
    np.testing.assert_allclose(
        parts._weights.transform(said).toarray(), expected[:, places].toarray(), atol=3e-7
    )
    assert "北" not in cut.build_analyzer()("北京。") and ngrams("北京") == ["北", "京", "北京"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Red-Hat's  CAFÉ, №5!", ["red", "hat", "s", "café", "no5"]),
        ("cafe\u0301 ＡＢ", ["café", "ab"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("我爱北京。天安门", ["我爱北京", "天安门"]),
        ("好👍🏽👍 ok", ["好", "👍", "🏽", "👍", "ok"]),
        ("x" * 70, ["x" * 64, "x" * 6]),
        (" \u200b\x00?!", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_ngrams_of_words() -> None:
    assert ngrams("ab") == [" ab", "ab ", " ab "]
    assert ngrams("👍") == [" 👍 "]
    assert ngrams("北京人") == ["北", "京", "人", "北京", "京人"]


def test_the_most_frequent_ngrams_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "NGRAMS", 3)
    parts = TextParts.fit(pd.Series(["ab", "ab", "ab cd", "cd"], dtype="str"))
    assert parts.ngrams == (" ab", " ab ", "ab ") and parts.components.shape == (3, 1)
    np.testing.assert_allclose(parts.idf, 1 + np.log(5 / 4), rtol=1e-6)


def test_many_rows_are_learnt_from_some(monkeypatch: pytest.MonkeyPatch) -> None:
    note = table(300)["note"]
    whole = TextParts.fit(note)
    monkeypatch.setattr(texts, "LEARNT_FROM", 50)
    monkeypatch.setattr(texts, "_BATCH", 7)
    parts, again = TextParts.fit(note), TextParts.fit(note)
    assert len(parts.ngrams) < len(whole.ngrams)
    assert texts.texts_to_bytes({"n": parts}) == texts.texts_to_bytes({"n": again})
    np.testing.assert_array_equal(parts.scores(note.fillna("")), again.scores(note.fillna("")))


@pytest.mark.parametrize("cell", ["", " ", "?!", "zzzz qqqq", "\x00", "𝔘𝔫𝔦", "क्ष", "٤٥"])
def test_unknown_words_are_zeros(cell: str) -> None:
    parts = TextParts.fit(pd.Series(["good apple", "bad apple"] * 4, dtype="str"))
    assert not parts.scores(pd.Series([cell], dtype="str")).any()


@pytest.mark.slow
def test_a_megabyte_in_a_cell() -> None:
    rng = np.random.default_rng(0)
    long = " ".join(rng.choice(["apple", "pear", "x" * 500], 20_000))[:1_000_000]
    unspaced = "".join(rng.choice(list("abcdefgh"), 1_000_000))
    parts = TextParts.fit(pd.Series([long, unspaced, long, "apple", unspaced], dtype="str"))
    assert max(map(len, parts.ngrams)) <= 4
    found = parts.scores(pd.Series([long, unspaced], dtype="str"))
    assert np.isfinite(found).all() and found.any(axis=1).all()


@pytest.mark.parametrize("values", [["a b", "c d"], ["", ""], [None, None], ["one two"]])
def test_nothing_in_common(values: list[str | None]) -> None:
    features = pd.DataFrame({"t": pd.Series(values, dtype="str")})
    encoding = Encoding.fit(features, ["S"])
    found = encoding.views(features)["S"].numeric
    assert encoding.texts["t"].ngrams == () and not found[:, 0].any()


def test_scores_are_ridge_regressions_that_left_the_rows_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the normal equations; a row's own label has no part in its score."""
    frame, part = table(seed=3), np.arange(N) % 5
    note, y = frame["note"], np.eye(2)[(frame["kind"] == "tool").astype(int)]
    parts, present = TextParts.fit(note), frame["note"].notna().to_numpy()
    both, own = parts.with_scores(note, y, part)
    w = parts._weights.transform(note[present]).toarray().astype(float)

    def coefficients(rows: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        centre, mean = w[rows].mean(axis=0), y[present][rows].mean(axis=0)
        x = w[rows] - centre
        b = np.linalg.solve(x.T @ x + penalty * np.eye(w.shape[1]), x.T @ (y[present][rows] - mean))
        return b, mean - centre @ b

    scores, errors = {}, {}
    for penalty in texts.PENALTIES:
        fits = [coefficients(part[present] != k, penalty) for k in range(5)]
        scores[penalty] = np.array([w[j] @ fits[k][0] for j, k in enumerate(part[present])])
        intercepts = np.array([fits[k][1] for k in part[present]])
        errors[penalty] = np.square(scores[penalty] + intercepts - y[present]).sum()
    best = min(errors, key=errors.__getitem__)
    np.testing.assert_allclose(own[present], scores[best], atol=2e-3)
    whole = w @ coefficients(np.arange(len(w)), best)[0]
    np.testing.assert_allclose(both.scores(note[present])[:, parts.width :], whole, atol=2e-3)
    assert np.isnan(own[~present]).all() and both.width == parts.width + 2
    monkeypatch.setattr(texts, "PENALTIES", (best,))
    flipped = np.where(part[:, None] == 0, y[:, ::-1], y)
    again = parts.with_scores(note, flipped, part)[1]
    np.testing.assert_array_equal(again[part == 0], own[part == 0])
    assert (again != own)[present & (part != 0)].any(axis=1).all()


def test_rows_that_a_text_learnt_from_have_the_scores_of_rows_left_out(tmp_path: Path) -> None:
    shop = np.random.default_rng(0).integers(0, 12, N)
    table().assign(shop=shop).to_parquet(tmp_path / "t.parquet")
    own = read_table(tmp_path / "t.parquet", TableSpec(label="kind", group="shop"))
    encoding = own.fit_encoding(rows := np.arange(80))
    targets, part = own.text_targets(rows)
    assert all(len({*part[own.groups[rows] == each]}) <= 1 for each in range(12)) and len({*part}) == 5
    np.testing.assert_array_equal(targets[:, 0], own.labels[rows])
    raw = encoding.complete(own.features).filter(regex="note__text_\\d+$")
    plain = encoding.texts["note"].scores(own.features["note"].fillna("?"))
    differs = (raw.to_numpy() != plain).any(axis=1)
    assert differs[:80][own.features["note"].notna()[:80]].mean() > 0.9 and not differs[80:].any()


def test_missing_text_is_zeros_and_said() -> None:
    features = table()[["note"]]
    encoding = Encoding.fit(features, ["S"])
    missing = features["note"].isna()
    assert encoding.imputation["note__text_0"] == {"value": 0.0, "indicator": True}
    assert encoding.imputation["note__text_1"] == {"value": 0.0, "indicator": False}
    assert len([name for name in encoding.names if name.endswith("_missing")]) == 1
    said = encoding.views(features)["S"].numeric[:, encoding.names.index("note__text_0_missing")] > 0
    np.testing.assert_array_equal(said, missing)
    as_empty = encoding.views(features.fillna({"note": "?"}))["S"].numeric[missing]
    np.testing.assert_array_equal(
        np.delete(as_empty, 1, axis=1), np.delete(encoding.views(features)["S"].numeric[missing], 1, axis=1)
    )


def test_only_training_rows_are_learnt_from(tmp_path: Path) -> None:
    frame = table().assign(part=np.repeat(["train", "val", "test"], N // 3))
    own = {}
    for name, rows in {"clean": [], "held": range(40, N), "train": range(5)}.items():
        given = frame.copy()
        given.loc[list(rows), "note"] = [f"zebra {k} walks beside zebra {k + 1}" for k in rows]
        given.to_parquet(tmp_path / f"{name}.parquet")
        read = read_table(tmp_path / f"{name}.parquet", TableSpec(label="kind", split="part"))
        encoding = read.fit_encoding(np.flatnonzero(read.split == "train"))
        own[name] = encoding.encoders, encoding.imputation, texts.texts_to_bytes(encoding.texts)
    assert own["held"] == own["clean"] != own["train"]
    assert b"zeb" in own["train"][2] and b"zeb" not in own["held"][2]


def test_a_model_is_served_raw_text(saved: Path, tmp_path: Path) -> None:
    loaded = bundle.load(saved)
    assert loaded.card.columns["note"] == "text"
    rows = table(60, seed=5)
    found = loaded.predict(rows)
    assert (found["label"] == rows["kind"]).mean() > 0.85
    one = pd.concat([loaded.predict(rows.iloc[[k]]) for k in range(3)], ignore_index=True)
    pd.testing.assert_frame_equal(one, found.head(3), rtol=1e-5)
    assert loaded.predict(rows.assign(note=None)).notna().all(axis=None)
    loaded.save(tmp_path / "again")
    assert bundle.load(tmp_path / "again").card == loaded.card
    pd.testing.assert_frame_equal(bundle.load(tmp_path / "again").predict(rows), found)
    loaded.save(tmp_path / "again")  # in place of the earlier one
    assert {path.name for path in saved.iterdir()} == {"card.json", "model", "texts.safetensors"}


def test_equal_seeds(tmp_path: Path, saved: Path) -> None:
    table().to_csv(tmp_path / "t.csv", index=False)
    fit(read_table(tmp_path / "t.csv", TableSpec(label="kind")), "linear_trees", rounds=4).bundle.save(
        tmp_path / "model"
    )
    assert (tmp_path / "model/texts.safetensors").read_bytes() == (saved / "texts.safetensors").read_bytes()
    assert (tmp_path / "model/card.json").read_bytes() == (saved / "card.json").read_bytes()


def test_a_prepared_table_has_text_too(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "t.parquet")
    store.write(
        user_table.prepare(tmp_path / "t.parquet", TableSpec(label="kind"), seed=0), tmp_path / "prepared"
    )
    fitted = fit(own := read_prepared(tmp_path / "prepared"), "2wl", rounds=2)
    fitted.bundle.save(tmp_path / "bundle")
    loaded, val = bundle.load(tmp_path / "bundle"), np.flatnonzero(own.split == "val")
    said = fitted.bundle.predicted_of(own, val)
    rows = raw_rows(loaded.card, store.read_frame(tmp_path / "prepared", "val"))
    assert set(rows) == {"size", "note"}
    np.testing.assert_array_equal(loaded.predict(rows).iloc[:, 1:], said)
    # as MLflow's server takes them: a text may be null, in one row or in all
    given = rows["note"].notna().to_numpy()
    for note in (rows["note"].where(np.arange(len(rows)) > 2, None), None):
        gaps = rows.assign(note=note)
        found = loaded.predict(gaps)
        changed = (found.iloc[:, 1:].to_numpy() != said).any(axis=1)
        assert changed[given & gaps["note"].isna().to_numpy()].any() and found.notna().all(axis=None)


def test_a_column_has_the_name_of_a_component(tmp_path: Path) -> None:
    table().assign(note__text_0=1.5).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(UsboostError, match="name of a component of the text 'note' to be added; rename it"):
        fit(read_table(tmp_path / "t.parquet", TableSpec(label="kind")), "lgbm", rounds=2)


def test_what_is_said(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "t.parquet")
    schema = describe(read_table(tmp_path / "t.parquet", TableSpec(label="kind")))
    (found,) = [each for each in schema.columns if each.name == "note"]
    assert (found.kind, found.use) == ("text", "text: scores and at most 64 components of character n-grams")


Arrays = dict[str, np.ndarray]
DAMAGED: dict[str, Callable[[Arrays], Any]] = {
    "an array is missing": lambda each: each.pop("idf:note"),
    "another column": lambda each: each.update({"idf:x": each["idf:note"]}),
    "not finite": lambda each: each["components:note"].__setitem__((0, 0), np.nan),
    "of another type": lambda each: each.update({"idf:note": each["idf:note"].astype(np.float64)}),
    "too short": lambda each: each.update({"idf:note": each["idf:note"][1:]}),
    "of no components": lambda each: each.update({"components:note": each["components:note"][:, :0]}),
    "flat": lambda each: each.update({"components:note": each["components:note"].ravel()}),
    "no letters": lambda each: each["ngrams:note"].__setitem__(0, 255),
    "letters of another type": lambda each: each.update(
        {"ngrams:note": each["ngrams:note"].astype(np.int64)}
    ),
    "twice the same": lambda each: each["ngrams:note"].__setitem__(slice(None), 10),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused(damage: Callable[[Arrays], Any], saved: Path, tmp_path: Path) -> None:
    arrays = load_file(saved / "texts.safetensors")
    damage(arrays)
    save_file(arrays, tmp_path / texts.FILE)
    digest = hashlib.sha256((tmp_path / texts.FILE).read_bytes()).hexdigest()
    refuses("fit the model again", texts.read_texts, tmp_path, ["note"], digest)


def test_a_card_of_another_file_is_refused(saved: Path, tmp_path: Path) -> None:
    card = json.loads((saved / "card.json").read_text())
    digest = card["texts_sha256"]
    assert list(texts.read_texts(saved, ["note"], digest)) == ["note"]
    refuses("is not the file that its card is of", texts.read_texts, saved, ["note"], "0" * 64)
    refuses("columns of text of its card", texts.read_texts, saved, ["note", "more"], digest)
    refuses("cannot be read", texts.read_texts, tmp_path, ["note"], digest)
    (tmp_path / texts.FILE).write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(UsboostError, match="is no safetensors file"):
        texts.read_texts(tmp_path, ["note"], hashlib.sha256(b"\x80\x04K\x01.").hexdigest())

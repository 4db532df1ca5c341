"""Texts read by a model of sentence-transformers, of which a module of our own stands in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.numpy import load_file, save_file
from sklearn.base import clone

from tasks import settings
from tasks.catalog import DATASETS
from tests.multimodal.conftest import accepted, run
from usboost import MultimodalClassifier, MultimodalRegressor
from usboost.datasets import store
from usboost.datasets.user.columns import text_models
from usboost.datasets.user.read_prepared import read_prepared
from usboost.datasets.user.read_table import read_table
from usboost.datasets.user.reading import text_file
from usboost.datasets.user.reading.source import FrameRows
from usboost.datasets.user.table_spec import TableSpec
from usboost.errors import UsboostError
from usboost.multimodal.compare.compare import compare
from usboost.multimodal.fit import bundle
from usboost.multimodal.fit.fit import build, fit

PACKAGE = """
import numpy as np

ASKED, LOADED = [], []

class SentenceTransformer:
    def __init__(self, name, **settings):
        if name == "gone":
            raise OSError("gone is not a local folder and is not a valid model identifier\\nand more")
        assert settings == {"trust_remote_code": False, "model_kwargs": {"use_safetensors": True}}
        LOADED.append(name)

    def encode(self, texts, show_progress_bar):
        ASKED.extend(texts)
        return np.array([[("tool" in t), len(t), t.count("a"), 1] for t in texts], dtype=np.float32)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package, in a folder of its own, and nothing known of any model."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/sentence_transformers.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    monkeypatch.delenv(text_models.VARIABLE, raising=False)
    forget()
    yield
    sys.modules.pop("sentence_transformers", None)
    forget()


def forget() -> None:
    """As in a new process."""
    text_models._allowed.clear()
    text_models._known.clear()
    text_models._encoder.cache_clear()


def table(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.choice(["fruit", "tool"], n)
    said: list[str | None] = [f"a {each} of sort {rng.integers(20)}" for each in kind]
    said[3] = said[7] = None
    return pd.DataFrame({"said": said, "width": rng.normal(size=n), "kind": kind})


def test_the_commands(package: None, tmp_path: Path) -> None:
    path, model, out = tmp_path / "t.csv", tmp_path / "model", tmp_path / "p.csv"
    table().to_csv(path, index=False)
    named = ("--text-model", "a/model")
    fitted = accepted("fit", path, "--label", "kind", "--text", "said", *named, "--rounds", 3, "--out", model)
    assert "text: at most 64 components of embeddings by a/model" in fitted.stderr
    import sentence_transformers as package_now  # type: ignore[import-not-found]

    asked = package_now.ASKED
    assert len(asked) == len(set(asked)) == table()["said"].nunique() and package_now.LOADED == ["a/model"]
    forget()
    refused = run("predict", model, path, "--out", out)
    assert refused.exit_code == 1 and "name it, if you trust it, with --text-model a/model" in refused.stderr
    accepted("predict", model, path, *named, "--out", out)
    answers = pd.read_csv(out)
    whole = table()["said"].notna().to_numpy()
    assert (answers["label"] == table()["kind"])[whole].all()
    forget()
    accepted("report", model, path, "--out", tmp_path / "r.html", *named)


def test_a_served_model_is_permitted_by_the_environment(
    package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = tmp_path / "t.csv", tmp_path / "model"
    table().to_csv(path, index=False)
    roles = ("--label", "kind", "--text", "said", "--text-model", "m")
    accepted("fit", path, *roles, "--model", "logistic", "--out", model)
    forget()
    loaded = bundle.load(model)
    rows = pd.DataFrame({"said": ["a tool of sort 3", None], "width": [0.0, 1.0]})
    with pytest.raises(UsboostError, match="texts are read by the model 'm' of sentence-transformers"):
        loaded.predict(rows)
    monkeypatch.setenv(text_models.VARIABLE, "m")
    assert loaded.predict(rows)["label"].tolist()[0] == "tool"


def test_without_the_package_or_the_model(package: None, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    table().to_csv(path, index=False)
    plain = ("fit", path, "--label", "kind", "--out", tmp_path / "m", "--text-model", "m")
    assert "has no column of text for --text-model m; name one with --text, or" in run(*plain).stderr
    roles = ("fit", path, "--label", "kind", "--text", "said", "--out", tmp_path / "m", "--text-model")
    assert "error: the text model 'gone' cannot be loaded: gone is not a local" in run(*roles, "gone").stderr
    assert "and more" not in run(*roles, "gone").stderr
    (tmp_path / "lib/sentence_transformers.py").write_text("raise ImportError('no')")
    sys.modules.pop("sentence_transformers", None)
    found = run(*roles, "m")
    assert found.exit_code == 1
    assert "install it with `pip install sentence-transformers`, or leave --text-model out" in found.stderr


def test_missing_texts_only_and_damaged_files(package: None, tmp_path: Path) -> None:
    frame = table().assign(said=pd.Series([None] * 60, dtype="str"))
    empty = text_models.EmbeddedText.fit(frame["said"], "m")
    assert empty.width == 1 and empty.expand("said", frame["said"])["said__text_0"].isna().all()
    parts = {"said": text_models.EmbeddedText.fit(table()["said"].astype("str"), "m")}
    path = tmp_path / text_file.FILE
    path.write_bytes(text_file.to_bytes(parts))
    again = text_file.read(tmp_path, ["said"], text_file.digest_of(parts))["said"]
    texts = pd.Series(["a tool", "x"])
    np.testing.assert_array_equal(again.scores(texts), parts["said"].scores(texts))
    arrays = load_file(path)
    for name, bad in {
        "model:said": np.zeros(0, np.uint8),
        "mean:said": np.zeros(3, np.float32),
        "axes:said": np.full_like(arrays["axes:said"], np.nan),
    }.items():
        save_file({**arrays, name: bad}, path)
        with pytest.raises(UsboostError, match="what it holds of column 'said' does not fit"):
            text_file.read(tmp_path, ["said"], text_file.sha256(path.read_bytes()))


def test_kept_fits_are_of_one_text_model(package: None, tmp_path: Path) -> None:
    import sentence_transformers  # noqa: F401  # ours, so its code counts once it is imported

    def kept(text_model: str | None) -> int:
        own = read_table(FrameRows(table()), TableSpec(label="kind", text=["said"], text_model=text_model))
        models = {"logistic": lambda seed: build("logistic", images=False, seed=seed)}
        found = compare(own, models, folds=2, keep=tmp_path / "kept")
        assert not found.failures
        return found.kept

    assert [kept(each) for each in (None, "m", "n", "m", None)] == [0, 0, 0, 2, 2]


def test_the_estimators(package: None, tmp_path: Path) -> None:
    frame = table()
    x, y = frame.drop(columns="kind"), frame["kind"]
    model = MultimodalClassifier("logistic", text="said", text_model="m").fit(x, y)
    assert clone(model).text_model == "m" and model.score(x, y) > 0.9
    texts = model.bundle_.texts["said"]
    assert isinstance(texts, text_models.EmbeddedText) and texts.model == "m"
    model.save(tmp_path / "model")
    forget()
    for loaded in (
        MultimodalClassifier.load(tmp_path / "model"),
        MultimodalClassifier.load(tmp_path / "model", "n"),
    ):
        with pytest.raises(UsboostError, match=r"load\(…, text_model=…\)"):
            loaded.predict(x)
    permitted = MultimodalClassifier.load(tmp_path / "model", text_model="m")
    np.testing.assert_allclose(permitted.predict_proba(x), model.predict_proba(x), atol=1e-6)
    number = MultimodalRegressor("ridge", text="said", text_model="m").fit(
        x, (y == "tool") * 2.5 + x["width"]
    )
    assert isinstance(number.bundle_.texts["said"], text_models.EmbeddedText)
    with pytest.raises(UsboostError, match="has no column of text for `text_model` m"):
        MultimodalClassifier(text_model="m").fit(x[["width"]], y)


def test_the_pipeline(package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """params.yaml names the model, to prepare the table permits it, and what is served knows which it was."""
    frame = table(80).assign(height=np.arange(80) * 1.5)
    frame.to_csv(tmp_path / "t.csv", index=False)
    document = yaml.safe_load((Path(__file__).parents[3] / "params.yaml").read_text())
    assert document["user_table"]["text_model"] is None
    document |= {"profile": "user"}
    document["user_table"] |= {"table": str(tmp_path / "t.csv"), "label": "kind", "text": ["said"]}
    stage = yaml.safe_load((Path(__file__).parents[3] / "dvc.yaml").read_text())["stages"]["data"]["do"]
    assert "user_table" in stage["params"]  # so a changed text model makes what is prepared stale
    digests = []
    for name in ("m", "n", None):
        document["user_table"]["text_model"] = name
        (tmp_path / "raw").mkdir(exist_ok=True)
        dataset, chosen = DATASETS["user_table"], settings.parse(document)
        dataset.obtain(tmp_path / "raw", chosen, tmp_path)
        store.write(dataset.prepare(tmp_path / "raw", chosen, tmp_path, None), tmp_path / str(name))
        card = store.read_card(tmp_path / str(name))
        assert card["text_model"] == name
        digests.append((tmp_path / str(name) / "card.json").read_bytes())
    assert len(set(digests)) == 3  # so that a fit with another model is another fit
    forget()
    own = read_prepared(tmp_path / "m")
    fit(own, "logistic").bundle.save(tmp_path / "bundle")
    forget()
    served = bundle.load(tmp_path / "bundle")
    rows = frame.drop(columns="kind")
    with pytest.raises(UsboostError, match="texts are read by the model 'm' of sentence-transformers"):
        served.predict(rows)
    monkeypatch.setenv(text_models.VARIABLE, "m")
    assert (served.predict(rows)["label"] == frame["kind"]).mean() > 0.9
    document["user_table"] |= {"text": [], "drop": ["said"], "text_model": "m"}
    with pytest.raises(UsboostError, match="has no column of text for `text_model` m"):
        DATASETS["user_table"].prepare(tmp_path / "raw", settings.parse(document), tmp_path, None)

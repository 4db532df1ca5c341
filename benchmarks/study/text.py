"""What columns of text are worth: with and without them, against a logistic regression on TF-IDF.

    python -m benchmarks.study.text

Five folds, nothing tuned. Made rows, whose class is in words and numbers; and the docstrings of eight
installed packages: which one is each from, by its first paragraph and by what its function looks like? Prints
lines for docs/results/text-and-numbers.md, and the time and memory of many rows.
"""

from __future__ import annotations

import ast
import resource
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from usboost.datasets.user.columns.texts import COMPONENTS, TextParts
from usboost.datasets.user.read_table import read_table
from usboost.datasets.user.reading.source import FrameRows
from usboost.datasets.user.table_spec import TableSpec
from usboost.multimodal.compare.compare import compare, folds_of
from usboost.multimodal.fit.fit import build

PACKAGES = ("numpy", "scipy", "pandas", "sklearn", "torch", "pyarrow", "rich", "pydantic")
MODELS = ("linear_trees", "logistic", "lgbm")
MOST = 600  # docstrings of a package
WORDS = {"analyzer": "word", "ngram_range": (1, 2)}
PIECES = {"analyzer": "char_wb", "ngram_range": (3, 4)}


def vocabulary(size: int, rng: np.random.Generator) -> np.ndarray:
    """Made words of 3 to 10 letters."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return np.array(["".join(rng.choice(letters, rng.integers(3, 11))) for _ in range(size)])


def texts(n: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """n texts of 20 words, and the positions of these; the k-th word is 1/k as frequent as the first."""
    shares = 1 / np.arange(1, size + 1)
    chosen = rng.choice(size, (n, 20), p=shares / shares.sum())
    words = vocabulary(size, rng)
    return np.array([" ".join(words[row]) for row in chosen], dtype=object), chosen


def made(n: int = 4000, seed: int = 0) -> pd.DataFrame:
    """Three classes by a number, its square and the effects of 2,000 words, half of the variance each."""
    rng = np.random.default_rng(seed)
    said, chosen = texts(n, 2000, rng)
    of_words = rng.normal(size=2000)[chosen].sum(axis=1)
    x, z = rng.normal(size=(2, n))
    of_numbers = x + np.square(z)
    score = sum((each - each.mean()) / each.std() for each in (of_words, of_numbers))
    label = np.digitize(score, np.quantile(score, [1 / 3, 2 / 3]))
    return pd.DataFrame({"x": x, "z": z, "text": said, "label": np.array(list("abc"))[label]})


def docstrings() -> pd.DataFrame:
    """First paragraphs of docstrings; the lines of code and arguments of what they are of; the package."""
    rows: list[tuple[str, str, int, int]] = []
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None
        found: dict[str, tuple[int, int]] = {}
        for file in sorted(Path(spec.origin).parent.rglob("*.py")):
            if "tests" not in file.parts:
                found.update(_documented(file))
        names = sorted(found)
        chosen = np.random.default_rng(0).permutation(len(names))[:MOST]
        rows += [(package, names[k], *found[names[k]]) for k in chosen]
    return pd.DataFrame(rows, columns=["label", "text", "lines", "arguments"])


def _documented(file: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        tree = ast.parse(file.read_text())
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (said := ast.get_docstring(node)):
            arguments = len(node.args.args) if isinstance(node, ast.FunctionDef) else -1
            lines = (node.end_lineno or node.lineno) - node.lineno
            yield " ".join(said.split("\n\n")[0].split()), (lines, arguments)


def rival(
    frame: pd.DataFrame, numbers: list[str], *, components: int | None = None, **analyzer: Any
) -> list[float]:
    """Accuracy by fold of a logistic regression on TF-IDF, or some components of it, and the numbers."""
    table = read_table(FrameRows(frame), TableSpec(label="label", text=["text"]))
    scores = []
    for fold in folds_of(table, 5, 1, 0):
        train, test = frame.iloc[np.r_[fold.train, fold.val]], frame.iloc[fold.test]
        steps: list[Any] = [TfidfVectorizer(sublinear_tf=True, min_df=2, **analyzer)]
        if components:
            steps += [TruncatedSVD(components, random_state=0), StandardScaler()]
        read = make_column_transformer((make_pipeline(*steps), "text"), (StandardScaler(), numbers))
        model = make_pipeline(read, LogisticRegression(C=1 if components else 10, max_iter=500))
        scores.append(model.fit(train, train["label"]).score(test, test["label"]))
    return scores


def show(title: str, frame: pd.DataFrame) -> None:
    print(f"\n{title}: {len(frame):,} rows, {frame['label'].nunique()} classes")
    numbers = [name for name in frame if name not in ("text", "label")]
    models: dict[str, Any] = {
        name: lambda seed, name=name: build(name, images=False, seed=seed) for name in MODELS
    }
    for what, drop in (("without text", ["text"]), ("with text", [])):
        text = [] if drop else ["text"]
        table = read_table(FrameRows(frame), TableSpec(label="label", drop=drop, text=text))
        found = compare(table, models).scores.groupby("model")["accuracy"]
        for name in MODELS:
            scores = found.get_group(name)
            print(f"| `{name}` {what} | {scores.mean():.3f} ± {scores.std():.3f} |", flush=True)
    for what, analyzer in (("words and pairs", WORDS), ("pieces of 3 and 4 letters", PIECES)):
        for components in (None, COMPONENTS):
            scores = np.array(rival(frame, numbers, components=components, **analyzer))
            kept = f", {components} components" if components else ""
            shown = f"{scores.mean():.3f} ± {scores.std(ddof=1):.3f}"
            print(f"| TF-IDF of {what}{kept}, logistic | {shown} |", flush=True)


def cost(n: int = 100_000) -> None:
    """Seconds and memory of n rows of 20 words."""
    said = pd.Series(texts(n, 20_000, np.random.default_rng(0))[0], dtype="str")
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    parts = TextParts.fit(said)
    learnt = time.perf_counter()
    parts.expand("text", said)
    done, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = sum(map(len, parts.ngrams)) + parts.components.nbytes
    print(
        f"\n{n:,} rows of 20 words: {learnt - began:.1f} s to learn, {done - learnt:.1f} s to apply, "
        f"{(after - before) / 1024:.0f} MB more memory, {size / 1e6:.1f} MB kept"
    )


def main() -> None:
    cost()
    show("made rows", made())
    show("docstrings", docstrings())


if __name__ == "__main__":
    main()

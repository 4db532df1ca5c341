"""Settings of the process that other packages change neither change a fit nor are changed by it."""

import io
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image, ImageFile

from benchmarks.robustness.changes import SETTINGS, dtype
from usboost import (
    BoostedNetworkClassifier,
    MultimodalClassifier,
    SplitColumns,
    TwoBranchNetworkClassifier,
    TwoWeakLearnerClassifier,
    load,
    save,
)
from usboost.process import own_settings


@contextmanager
def truncated_images() -> Iterator[None]:
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        yield
    finally:
        assert ImageFile.LOAD_TRUNCATED_IMAGES, "not given back"
        ImageFile.LOAD_TRUNCATED_IMAGES = False


RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=120), "b": RNG.normal(size=120) * 1e-30})
X["c"] = pd.Categorical(RNG.choice([0.12345678901234, 0.12345678901235], 120))
Y = np.where(X.a * (X.c == X.c[0]) + RNG.normal(size=120) * 0.3 > 0, "p", "n")
MODELS = {"2wl": 2, "baseline": 2, "bfv_dnn": 2, "linear_trees": 5, "logistic": 5}


def fitted(model: str, missing: str = "0.1234") -> MultimodalClassifier:
    return MultimodalClassifier(model, missing=missing, rounds=MODELS[model], refit=False).fit(X, Y)


@pytest.fixture(scope="module")
def usual() -> dict[str, MultimodalClassifier]:
    return {model: fitted(model) for model in MODELS}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::usboost.UsboostWarning")
@pytest.mark.parametrize("name", SETTINGS)
def test_fits_are_the_usual_ones(name: str, usual: dict[str, MultimodalClassifier], tmp_path: Path) -> None:
    numbers = pd.Series(["1", *(np.float64(each) for each in X.c[1:])], dtype=object)
    mixed = X.assign(c=numbers, b=X.b.astype(object).where(X.index > 0, "?"))
    for model, found in usual.items():
        expected, usually = found.predict_proba(X), found.predict_proba(mixed)
        with SETTINGS[name]():
            predicted = found.predict_proba(mixed)
            again = fitted(
                model, missing=f"0.1234{sorted(SETTINGS).index(name)}"
            )  # how it is read is not remembered
            again.save(tmp_path / model)
        np.testing.assert_array_equal(predicted, usually, err_msg=model)
        np.testing.assert_array_equal(again.classes_, found.classes_)
        # in the usual process, what the other one wrote
        loaded = MultimodalClassifier.load(tmp_path / model)
        np.testing.assert_array_equal(loaded.predict_proba(X), expected, err_msg=model)


@pytest.mark.parametrize("name", ["float64", "inference_mode", "meta", "seterr"])
def test_estimators_on_views_too_step_by_step(name: str, tmp_path: Path) -> None:
    numbers, codes = X[["a", "b"]].to_numpy(), Y
    of_views = TwoBranchNetworkClassifier(n_epochs=1, dnn1=(4,), dnn2=(4,), dnn3=(4,))
    for model in (
        BoostedNetworkClassifier(n_rounds=2),
        SplitColumns(TwoWeakLearnerClassifier(n_rounds=2)),
        SplitColumns(of_views),
    ):
        model.fit(numbers, codes)
        expected = list(model.staged_predict(numbers)) if hasattr(model, "staged_predict") else []
        before = model.predict_proba(numbers)
        inner = getattr(model, "classifier_", model)
        with SETTINGS[name]():
            stages = iter(model.staged_predict(numbers)) if expected else iter(())
            for k, stage in enumerate(stages):
                assert torch.is_inference_mode_enabled() == (
                    name == "inference_mode"
                )  # the caller's, meanwhile
                np.testing.assert_array_equal(stage, expected[k])
            save(inner, tmp_path / "model")
            load(tmp_path / "model")
            again = model.fit(numbers, codes).predict_proba(numbers)
        np.testing.assert_array_equal(again, before)


def test_images_cut_short_are_refused_whatever_pillow_would_take() -> None:
    pixels = RNG.integers(0, 255, (12, 32, 32, 3)).astype(np.uint8)
    files = []
    for each in pixels:
        file = io.BytesIO()
        Image.fromarray(each).save(file, "PNG")
        files.append(file.getvalue())
    files[3] = files[3][:700]
    frame = pd.DataFrame({"photo": pd.Series(files, dtype=object), "z": range(12)})
    model = MultimodalClassifier("logistic", image="photo", backbone="small_cnn", size=16)
    with truncated_images(), pytest.raises(ValueError, match=r"row 4.*photo"):
        model.fit(frame, ["a", "b"] * 6)


def test_nothing_is_changed_for_the_caller() -> None:
    np.random.seed(1)  # noqa: NPY002 - the generator of the process
    torch.manual_seed(1)
    random.seed(1)
    with torch.no_grad(), np.errstate(over="ignore"):
        before = np.random.get_state()[1].copy(), torch.get_rng_state(), random.getstate()  # noqa: NPY002
        for model in ("2wl", "lgbm", "forest", "bfv_dnn"):
            MultimodalClassifier(model, rounds=2).fit(X, Y).predict(X)
        np.testing.assert_array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), before[1])
        assert random.getstate() == before[2]
        assert not torch.is_grad_enabled()
        assert np.geterr()["over"] == "ignore"
    assert torch.is_grad_enabled()


def test_a_gpu_multiplies_float32_with_all_its_bits() -> None:
    parts = torch.backends.cudnn.conv, torch.backends.cuda.matmul
    before = [each.fp32_precision for each in parts]
    with own_settings():
        assert [each.fp32_precision for each in parts] == ["ieee", "ieee"]
    assert [each.fp32_precision for each in parts] == before


def test_overlapping_blocks_of_threads_give_back_once_the_last_has_ended() -> None:
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        with own_settings():
            entered.set()
            leave.wait(30)

    with dtype(torch.float64):
        thread = threading.Thread(target=first)
        thread.start()
        assert entered.wait(30)
        with own_settings():
            leave.set()
            thread.join()
            assert torch.get_default_dtype() == torch.float32
        assert torch.get_default_dtype() == torch.float64
    with dtype(torch.float64), pytest.raises(ZeroDivisionError), own_settings():
        raise ZeroDivisionError


def test_torch_is_not_loaded_for_it() -> None:
    code = "from usboost.process import own_settings\nwith own_settings(): import sys"
    subprocess.run([sys.executable, "-c", f"{code}\nassert 'torch' not in sys.modules"], check=True)

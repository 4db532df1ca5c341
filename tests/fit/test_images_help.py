"""Whether images help is said by rows as they count."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.conftest import encoded
from usboost.fit.table_fit import TableFit
from usboost.models.baselines.packages import PriorBaseline
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

N = 240


class ByBrightness(PriorBaseline):
    """Says yes of bright images, with a probability of .8."""

    def predict_proba(self, X: Any) -> np.ndarray:
        bright = X["U"].decode().mean(axis=(1, 2, 3)) > 127
        yes = np.where(bright, 0.8, 0.2)
        return np.column_stack([1 - yes, yes])


def image(bright: bool) -> bytes:
    return encoded(Image.new("L", (16, 16), 220 if bright else 30))


@pytest.mark.parametrize(("right", "wrong", "helps"), [(1, 1, False), (50, 1, True), (1, 50, False)])
def test_by_what_rows_count_for(right: int, wrong: int, helps: bool) -> None:
    """Of a third of the rows the image says the label, of the others the opposite."""
    rng = np.random.default_rng(0)
    label, told = rng.random(N) < 0.5, rng.random(N) < 1 / 3
    frame = pd.DataFrame({"x": rng.normal(size=N), "w": np.where(told, float(right), float(wrong))})
    frame["label"] = np.where(label, "yes", "no")
    frame["photo"] = [image(each) for each in label == told]
    own = read_table(FrameRows(frame), TableSpec(label="label", weight="w", image=["photo"], size=16))
    fitted = TableFit(own, ByBrightness(), "brightness", refit=False, calibrate=False).run()
    assert fitted.images_help is helps

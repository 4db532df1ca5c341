"""A table with images: a DataFrame in, classes and probabilities out.

The table is a generated one, of machine parts photographed on white. Its columns are numbers and categories
with gaps, and paths of images, which a network trained on ImageNet reads.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from usboost import MultimodalClassifier
from usboost.table.demo import write_demo

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    write_demo(folder, rows_train=120, rows_test=30, seed=0)
    table = pd.read_csv(folder / "table.csv")
    print(table.head(3).to_string(index=False))

    train, test = table[table["split"] != "test"], table[table["split"] == "test"]
    X, X_test = (part.drop(columns=["batch", "split"]) for part in (train, test))

    # the default, without a preset, is a blend of three models, and takes longer
    model = MultimodalClassifier(preset="fast", image="image", images_root=folder, size=64)
    without = MultimodalClassifier(preset="fast", drop="image")
    for what, each in (("with images", model), ("without", without)):
        each.fit(X, train["batch"])
        print(f"accuracy {what}: {np.mean(each.predict(X_test) == test['batch']):.2f}")

    incomplete = X_test.head(2).assign(image=None, colour="never seen")  # no error: as a gap in training
    print(model.predict_frame(incomplete).round(2).to_string(index=False))

    model.save(folder / "model")  # what `usboost predict` reads, too
    again = MultimodalClassifier.load(folder / "model", images_root=folder)
    print("read back, it predicts the same:", again.predict_frame(X_test).equals(model.predict_frame(X_test)))

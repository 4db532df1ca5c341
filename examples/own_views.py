"""Views of your own: three arrays of the same samples, and which learner reads which.

A machine is recorded by a microphone (a spectrum of 40 bands) and a camera (a thermal image, here as 5 x 5
numbers), and its settings are known. It fails by what the three say together.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.base import clone

from usboost import NetworkLearner, Table, TreeLearner, TwoWeakLearnerClassifier, Views, load, save

rng = np.random.default_rng(0)
n = 1200
spectrum, heat, settings = rng.normal(size=(n, 40)), rng.normal(size=(n, 25)), rng.normal(size=(n, 3))
rattle = np.tanh(spectrum[:, 10:14].sum(axis=1))
strain = rattle + np.where(settings[:, 0] > 0.5, 1.0, -0.4) + 0.3 * heat.mean(axis=1)
state = np.select([strain > 0.8, strain > -0.4], ["fails", "worn"], "sound")

views = Views(
    sound=Table.from_numeric(spectrum),
    heat=Table.from_numeric(heat),
    settings=Table.from_numeric(settings, names=("speed", "load", "age")),
)
train, test = views[:800], views[800:]

# A learner reads the view of its name, or those in `reads`. Each round fits all, and steps jointly.
network = NetworkLearner(hidden=(16,), learning_rate=0.01, batch_size=64, device="cpu")
learners = {
    "sound": network,
    "settings": TreeLearner(max_depth=3),
    "all": clone(network).set_params(reads=("sound", "heat", "settings")),
}
model = TwoWeakLearnerClassifier(learners, target="newton", n_rounds=60, shrinkage=0.5, monitor="risk_val")
model.fit(train, state[:800])

for row in model.history_[:3]:
    steps = ", ".join(f"{name} {row[f'step_{name}']:.2f}" for name in learners)
    print(f"risk {row['risk_train']:.3f}, steps: {steps}")
print(f"best of {len(model.history_)} rounds: {model.best_round_}")
print(f"accuracy on other samples: {model.score(test, state[800:]):.3f}")

with tempfile.TemporaryDirectory() as folder:
    save(model, Path(folder) / "model")  # JSON and arrays, no pickle
    again = load(Path(folder) / "model")
print(
    "read back, it predicts the same:", np.array_equal(again.predict_proba(test), model.predict_proba(test))
)

"""Early classification: a sequence is answered as soon as the model is sure enough.

A handwritten digit arrives row by row, eight rows of eight pixels. Earlyboost fits one round to each row, so
that it has an answer after every one of them; a trigger says when an answer is good enough.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from usboost import EarlyBoostClassifier, EarlyTrigger

digits = load_digits()
rows = digits.images  # (digits, frames, features of a frame) = (1797, 8, 8)
X, X_test, y, y_test = train_test_split(
    rows, digits.target, test_size=0.5, random_state=0, stratify=digits.target
)

model = EarlyBoostClassifier().fit(X, y)
print("rows seen  accuracy")
for t, answers in enumerate(model.staged_predict(X_test), start=1):
    print(f"{t:9}  {np.mean(answers == y_test):.3f}")

print("sure from  accuracy  rows read")
for threshold in (0.3, 0.5, 0.7):
    trigger = EarlyTrigger(threshold=threshold).use(model)
    answers, times = trigger.decision_times(X_test)
    print(f"{threshold:9}  {np.mean(answers == y_test):8.3f}  {times.mean():9.2f}")

# One digit, row by row as it comes; -1 is no answer yet.
stream = EarlyTrigger(threshold=0.5).use(model).stream(1)
said = [int(stream.feed(row[None])[0][0]) for row in X_test[0]]
print(f"a {y_test[0]}, row by row: {said}")

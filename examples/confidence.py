"""
How sure is it? A queue for review
==================================

Margins tell how much a labelling leads; calibrated on held-out notes they become probabilities.
Whoever checks predictions by hand begins with the least sure ones.
"""

# %%
# Train on some notes, calibrate on others.

import matplotlib.pyplot as plt
import numpy as np

from hingeline import ChainSSVM
from hingeline.data import load_notes
from hingeline.evaluation.calibration import CalibratedChain

notes = load_notes(n_train=400, n_test=1000)
tagger = ChainSSVM(random_state=0).fit(notes.X_train, notes.y_train)
calibrated = CalibratedChain(tagger).fit(notes.X_test[:400], notes.y_test[:400])
X, y = notes.X_test[400:], notes.y_test[400:]

# %%
# Does 0.9 mean nine of ten? Tokens in bins of equal size.

probability = np.concatenate(calibrated.predict_proba_tokens(X))
right = np.concatenate(tagger.predict(X)) == np.concatenate(y)
order = np.argsort(probability, kind="stable")
bins = np.array_split(order, 12)
figure, axes = plt.subplots(figsize=(4.2, 4), layout="constrained")
axes.plot([0.4, 1], [0.4, 1], color="0.7", linewidth=1)
axes.plot(
    [probability[b].mean() for b in bins], [right[b].mean() for b in bins], "o", color="#0a5fa5"
)
axes.set(xlabel="probability said", ylabel="share right", xlim=(0.4, 1.02), ylim=(0.4, 1.02))
print("calibration error:", calibrated.calibration_error(X, y))

# %%
# The queue: notes by their least sure token.

predicted = tagger.predict(X)
least = np.array([p.min() for p in calibrated.predict_proba_tokens(X)])
for i in np.argsort(least)[:4]:
    print(
        f"{least[i]:.2f}  " + " ".join(f"{w}/{t}" for w, t in zip(X[i], predicted[i], strict=True))
    )

# %%
# How many mistakes does a reader find who checks only part of the notes?

wrong = np.array([(np.array(t) != p).any() for t, p in zip(y, predicted, strict=True)])
queue = np.argsort(least)
share = np.arange(1, len(queue) + 1) / len(queue)
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(share, wrong[queue].cumsum() / wrong.sum(), label="least sure first")
axes.plot([0, 1], [0, 1], color="0.7", label="in any order")
axes.set(xlabel="share of notes checked", ylabel="share of wrong notes found")
axes.legend()
axes.grid(alpha=0.3)

"""
How sure is it? A queue for review
==================================

Margins say by how much a labelling leads. Calibrated on held-out rows, they become probabilities.
If you check predictions by hand, start with the least sure ones.
"""

# %%
# The data are noisy handwritten dates. Train on some rows of digits, calibrate on others, and look
# at the rest.

import matplotlib.pyplot as plt
import numpy as np

from hingeline import ChainSSVM
from hingeline.data import load_digit_dates
from hingeline.evaluation.calibration import CalibratedChain
from hingeline.report import plot_reliability

data = load_digit_dates(n_train=300, n_test=800, noise=0.4)
reader = ChainSSVM(random_state=0).fit(data.X_train, data.y_train)
calibrated = CalibratedChain(reader).fit(data.X_test[:400], data.y_test[:400])
X, y = data.X_test[400:], data.y_test[400:]

# %%
# Does 0.9 mean nine out of ten? The plot has groups of equal size, from the least sure digits to
# the most sure ones.

probability = calibrated.predict_proba_tokens(X)
predicted = reader.predict(X)
right = [own == true for own, true in zip(predicted, y, strict=True)]
figure, axes = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
plot_reliability(probability, right, ax=axes, title="As sure as it says")

# %%
# This is the queue, from the least sure digit to the most sure one. Every 75th image is shown, with
# what was read and what it is.

sure, correct = np.concatenate(probability), np.concatenate(right)
images, found, truth = (np.concatenate(part) for part in (X, predicted, y))
queue = np.argsort(sure, kind="stable")
figure, panels = plt.subplots(1, 8, figsize=(9.5, 2.1), layout="constrained")
for panel, k in zip(panels, queue[:600:75], strict=True):
    panel.imshow(images[k].reshape(8, 8), cmap="gray_r")
    colour = "#0a5fa5" if correct[k] else "#c44e06"
    panel.set_title(f"read {found[k]}\n{sure[k]:.0%} sure", fontsize=10, color=colour)
    panel.set(xlabel=f"is {truth[k]}", xticks=[], yticks=[])

# %%
# If you check only part of the digits, how many of the mistakes do you find?

share = np.arange(1, len(queue) + 1) / len(queue)
caught = (~correct[queue]).cumsum() / (~correct).sum()
fifth = caught[np.searchsorted(share, 0.2)]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(share, caught, label="least sure first")
axes.plot([0, 1], [0, 1], color="0.7", label="in any order")
axes.plot([0.2, 0.2, 0], [0, fifth, fifth], ":", color="#c44e06")
axes.annotate(f"a fifth of the work,\n{fifth:.0%} of the mistakes", (0.22, fifth - 0.16))
axes.set(xlabel="share of digits checked", ylabel="share of mistakes found")
axes.legend(loc="lower right")
axes.grid(alpha=0.3)

"""
Numbers for every token: handwritten dates
==========================================

A token can be a vector: pixels, an embedding, measurements. Here it is the image of a handwritten
digit, the last digit of a date. A sequence covers eight working days in a row: a digit is followed
by the next one, or after a weekend by the one three later.
"""

# %%
# Read the images digit by digit, then as a sequence.

import matplotlib.pyplot as plt
import numpy as np

from hingeline import ChainSSVM, MulticlassSSVM
from hingeline.data import load_digit_dates

data = load_digit_dates(n_train=600, n_test=400, noise=0.3)
truth = np.array(data.y_test)

flat = MulticlassSSVM(C=0.1, random_state=0)
flat.fit(np.vstack(data.X_train), np.concatenate(data.y_train))
alone = flat.predict(np.vstack(data.X_test)).reshape(truth.shape)

chain = ChainSSVM(C=0.1, random_state=0).fit(data.X_train, data.y_train)
together = np.stack(chain.predict(data.X_test))
for name, found in (("digit by digit", alone), ("as a sequence", together)):
    right = found == truth
    print(f"{name:15} digits {right.mean():.3f}, all eight {right.all(axis=1).mean():.3f}")

# %%
# Show the row that gains most, with what each model reads.

row = int(((together == truth).sum(axis=1) - (alone == truth).sum(axis=1)).argmax())
figure, panels = plt.subplots(1, 8, figsize=(8, 1.7), layout="constrained")
for k, panel in enumerate(panels):
    panel.imshow(data.X_test[row][k].reshape(8, 8), cmap="gray_r")
    panel.set_title(f"{alone[row, k]}  {together[row, k]}", color="black", fontsize=11)
    panel.set(xticks=[], yticks=[], xlabel=data.dates_test[row][k][5:])
figure.suptitle("digit by digit, and as a sequence", fontsize=11)

# %%
# The weights from digit to digit show what the chain has learned of the calendar.

figure, axes = plt.subplots(figsize=(4.4, 3.8), layout="constrained")
picture = axes.imshow(chain.transition_coef_, cmap="RdBu_r", vmin=-1, vmax=1)
axes.set(xlabel="to", ylabel="from", xticks=range(10), yticks=range(10))
figure.colorbar(picture, label="weight")

# %%
# ``EarlyStopping`` ends training when the score on held-out rows no longer improves. (These rows
# share images with the training rows, so their scores are too good to be quoted.)

from hingeline import EarlyStopping

chain = ChainSSVM(C=1.0, tol=1e-4, random_state=0)
stopping = EarlyStopping(chain, data.X_train[500:], data.y_train[500:], patience=3)
chain.set_params(callbacks=[stopping]).fit(data.X_train[:500], data.y_train[:500])
print(f"stopped after {chain.n_iter_} passes: {chain.stop_reason_}")
print("held-out scores", " ".join(f"{score:.3f}" for score in stopping.scores_))

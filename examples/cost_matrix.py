"""
Mistakes that cost more than others
===================================

A cost matrix gives the cost of taking one class for another. Training then keeps a larger margin
where a mistake is expensive.
"""

# %%
# Let missing an 8 cost five times as much as any other mistake.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import train_test_split

from hingeline import MulticlassSSVM

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y, test_size=0.5, random_state=0)
cost = 1.0 - np.eye(10)
cost[8, :8] = cost[8, 9] = 5.0  # row: truth, column: prediction

figure, panels = plt.subplots(1, 2, figsize=(8, 3.9), layout="constrained", sharey=True)
for panel, (name, loss) in zip(
    panels, (("all mistakes cost 1", "zero_one"), ("a missed 8 costs 5", cost)), strict=True
):
    model = MulticlassSSVM(C=0.1, loss=loss, random_state=0).fit(X_train, y_train)
    found = model.predict(X_test)
    paid = cost[y_test, found].sum()
    print(f"{name:23} accuracy {np.mean(found == y_test):.4f}, mistakes cost {paid:.0f}")
    table = confusion_matrix(y_test, found)
    np.fill_diagonal(table, 0)
    panel.imshow(table, cmap="Oranges", vmax=8)
    for i, j in zip(*np.nonzero(table), strict=True):
        panel.text(j, i, table[i, j], ha="center", va="center", fontsize=8)
    panel.set(title=name, xlabel="predicted", xticks=range(10), yticks=range(10))
panels[0].set_ylabel("true")

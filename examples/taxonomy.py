"""
Classes in a tree
=================

If only the shape of a digit matters, taking a 3 for a 2 is a smaller mistake than taking it for
a 1. A taxonomy of the classes expresses this: training keeps a larger margin between classes that
are far apart in the tree.
"""

# %%
# Labels are paths of a shape and a digit. You can set a cost for every node above the classes. Here
# a mistake within a shape costs 0.25 and any other 1, so that C means the same as without the tree.
# By default, the cost is the number of edges between two classes.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import train_test_split

from hingeline import MulticlassSSVM, Taxonomy
from hingeline.evaluation.metrics import hierarchical_scores

SHAPES = {"bar": "147", "bow": "235", "loop": "0689"}
paths = np.array(sorted(f"{shape}/{digit}" for shape, own in SHAPES.items() for digit in own))
names = np.array(sorted(paths, key=lambda path: path[-1]))
costs = {"bar": 0.25, "bow": 0.25, "loop": 0.25, None: 1.0}  # None is above all
tree = Taxonomy.from_paths(names, cost=costs)

X, y = load_digits(return_X_y=True)
X = (
    X.reshape(-1, 4, 2, 4, 2).sum(axis=(2, 4)).reshape(-1, 16) / 64
)  # coarse pictures: more mistakes
X_train, X_test, y_train, y_test = train_test_split(X, names[y], test_size=0.5, random_state=0)

# %%
# With the tree, fewer mistakes take one shape for another. Lines in the pictures separate shapes.

figure, panels = plt.subplots(1, 2, figsize=(8, 4.3), layout="constrained", sharey=True)
for panel, (name, loss) in zip(
    panels, (("all mistakes cost 1", "zero_one"), ("by the tree", tree)), strict=True
):
    model = MulticlassSSVM(C=1.0, loss=loss, random_state=0).fit(X_train, y_train)
    found = model.predict(X_test)
    table = confusion_matrix(y_test, found, labels=paths)
    far = np.mean([a.split("/")[0] != b.split("/")[0] for a, b in zip(y_test, found, strict=True)])
    f1 = hierarchical_scores(y_test, found, tree).hierarchical_f1
    paid = (table * tree.to_matrix(paths)).sum() / len(y_test)
    print(
        f"{name:20} wrong {np.mean(found != y_test):.1%}, wrong shape {far:.1%}, "
        f"hierarchical F1 {f1:.3f}, mean cost {paid:.3f}"
    )
    np.fill_diagonal(table, 0)
    panel.imshow(table, cmap="Oranges", vmax=25)
    for i, j in zip(*np.nonzero(table), strict=True):
        panel.text(j, i, table[i, j], ha="center", va="center", fontsize=8)
    for at in (2.5, 5.5):
        panel.axhline(at, color="#0a5fa5", linewidth=1)
        panel.axvline(at, color="#0a5fa5", linewidth=1)
    panel.set(title=name, xlabel="predicted")
    panel.set_xticks(range(10), paths, rotation=90)
    panel.set_yticks(range(10), paths)
panels[0].set_ylabel("true")

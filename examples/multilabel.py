"""
Sets of labels
==============

The labels of one document depend on each other. ``MultilabelSSVM`` also scores pairs of labels and
chooses the whole set at once.
"""

# %%
# Documents have six topics. Two further labels follow from the topics, not from the words: "just
# one of topics 0 and 1", and "both of topics 2 and 3".

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_multilabel_classification
from sklearn.model_selection import train_test_split

from hingeline import MultilabelSSVM
from hingeline.evaluation.metrics import multilabel_scores

X, Y = make_multilabel_classification(
    n_samples=1200, n_features=40, n_classes=6, n_labels=2, length=60, random_state=0
)
Y = np.column_stack([Y, Y[:, 0] ^ Y[:, 1], Y[:, 2] & Y[:, 3]])
names = [*(f"topic {k}" for k in range(6)), "0 or 1, not both", "2 and 3"]
X_train, X_test, Y_train, Y_test = train_test_split(X / 10.0, Y, test_size=0.5, random_state=0)

# %%
# Compare no pairs, a tree of pairs and all pairs.

for edges in ("none", "tree", "full"):
    model = MultilabelSSVM(C=0.3, edges=edges, random_state=0).fit(X_train, Y_train)
    scores = multilabel_scores(Y_test, model.predict(X_test))
    print(
        f"{edges:5} whole sets right {scores.subset_accuracy:.3f}, F1 {scores.example_f1:.3f}, "
        f"gap {model.duality_gap_ / model.primal_objective_:.2%}"
    )

# %%
# Which labels go together? The plot shows what each pair adds to the score.

from hingeline.report import label_affinities, plot_affinities

figure, axes = plt.subplots(figsize=(6.4, 5), layout="constrained")
plot_affinities(label_affinities(model), names, ax=axes, title="Blue: labels that go together")

# %%
# Is the predicted set really the best one? ``certify`` tells for each example whether it is proven.

found = model.certify(X_test)
print(f"best sets proven for {np.mean(found.exact):.0%} of the test examples")

"""
Images as graphs
================

Label the pixels of noisy pictures, once each pixel separately, and once together with its
neighbours in a graph.
"""

# %%
# The pictures show sky above grass with a house on the horizon, in colours with much noise.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from hingeline import Graph, GraphSSVM

ROWS, COLUMNS = 12, 14
COLOURS = np.array([[0.3, 0.5, 0.9], [0.3, 0.7, 0.3], [0.8, 0.4, 0.3]])
NAMES = ["sky", "grass", "house"]


def make_image(rng):
    """A picture and its labels."""
    horizon = rng.integers(4, 8)
    labels = (np.arange(ROWS)[:, None] >= horizon) * np.ones((1, COLUMNS), int)
    left, wide, high = rng.integers(1, 8), rng.integers(3, 6), rng.integers(2, 4)
    labels[horizon - high : horizon + 2, left : left + wide] = 2
    return COLOURS[labels] + 0.5 * rng.normal(size=(ROWS, COLUMNS, 3)), labels


rng = np.random.default_rng(0)
images, labels = zip(*(make_image(rng) for _ in range(40)), strict=True)
y = [own.ravel() for own in labels]

# %%
# A graph is an array of node features and a list of pairs. Pairs to the right and pairs downwards
# have separate weights, because sky is above grass, not the other way round. (``Graph.from_image``
# also accepts regions: superpixels instead of pixels.)

alone = [Graph(image.reshape(-1, 3)) for image in images]
joined = [Graph.from_image(image) for image in images]
found = {}
for name, X in (("every pixel on its own", alone), ("with its neighbours", joined)):
    model = GraphSSVM(C=0.03, random_state=0).fit(X[:20], y[:20])
    found[name] = model.predict(X[20:])
    print(
        f"{name:22} {model.score(X[20:], y[20:]):.1%} of the test pixels right, "
        f"gap {model.duality_gap_ / model.primal_objective_:.2%}"
    )

# %%
# Show a test image, the predictions and the truth.

flat = ListedColormap(COLOURS)
shown = {
    "image": np.clip(images[20], 0, 1),
    **{name: maps[0].reshape(ROWS, COLUMNS) for name, maps in found.items()},
    "truth": labels[20],
}
figure, panels = plt.subplots(1, 4, figsize=(9.5, 2.5), layout="constrained")
for panel, (name, picture) in zip(panels, shown.items(), strict=True):
    panel.imshow(picture, cmap=flat, vmin=0, vmax=2)
    panel.set(title=name, xticks=[], yticks=[])

# %%
# These are the weights of vertical pairs, upper label by lower label. Grass below sky has a high
# weight, sky below grass a low one.

for name, row in zip(NAMES, model.pairwise_coef_[1], strict=True):
    print(f"{name:6}" + "".join(f"{value:8.2f}" for value in row))
proven = model.certify(joined[20:]).exact
print(f"best labelling proven for {proven.sum()} of {len(proven)} test images")

"""
A structure of your own
=======================

Find the one event in a recording. The input has time steps and channels; the output is an interval.
The loss, 1 minus the intersection over the union, is not a sum over time steps, and no library has
this structure. Three methods are enough.
"""

# %%
# Write three methods: the features of an output, its loss, and the best output for given weights,
# which tries all intervals. With ``loss_scale`` above 0, the loss is added; training needs this.

import numpy as np

from hingeline import SSVM, Structure


class Interval(Structure):
    """An interval [start, end) of a recording."""

    def joint_feature(self, x, y):
        """Sum of the channels over the interval, and its length."""
        return np.append(x[y[0] : y[1]].sum(axis=0), y[1] - y[0])

    def loss(self, y_true, y):
        both = max(0, min(y_true[1], y[1]) - max(y_true[0], y[0]))
        return 1.0 - both / (y_true[1] - y_true[0] + y[1] - y[0] - both)

    def decode(self, x, w, y_true, loss_scale):
        """argmax over all intervals of w·f(x, y) + loss_scale·loss(y_true, y)."""
        total = np.append(0.0, np.cumsum(x @ w[:-1] + w[-1]))
        start, end = np.triu_indices(len(total), k=1)
        score = total[end] - total[start]
        if loss_scale > 0:
            both = np.maximum(np.minimum(y_true[1], end) - np.maximum(y_true[0], start), 0)
            score = score + loss_scale * (1 - both / (y_true[1] - y_true[0] + end - start - both))
        best = np.argmax(score)
        return np.array([start[best], end[best]], dtype=np.int32)


# %%
# Recordings are noise, but during the event the channels are shifted a little. Before training,
# ``check_structure`` compares decoding with a search through all outputs.

from hingeline.testing import check_structure


def make_recordings(n, random, steps=40):
    start = random.integers(0, steps - 10, n)
    y = [np.array([s, s + random.integers(5, 11)]) for s in start]
    X = [random.normal(size=(steps, 4)) for _ in range(n)]
    for x, (begin, end) in zip(X, y, strict=True):
        x[begin:end] += [1.2, -0.9, 0.6, 0.0]
    return X, y


def all_intervals(x):
    return [np.array(pair) for pair in zip(*np.triu_indices(len(x) + 1, k=1), strict=True)]


random = np.random.default_rng(0)
X, y = make_recordings(60, random)
check_structure(Interval(), X[:2], y[:2], outputs=all_intervals, n_trials=3)

# %%
# Train with the same solvers and the same certificate as for every other structure.

model = SSVM(Interval(), C=0.1, tol=1e-2, random_state=0).fit(X, y)
X_test, y_test = make_recordings(300, random)
print(f"at most {model.duality_gap_ / model.primal_objective_:.2%} above the optimum")
print(f"mean intersection over union, new recordings: {1 + model.score(X_test, y_test):.3f}")
print(f"weights of channels and of length: {np.round(model.weights_, 2)}")

# %%
# Show six recordings: scores of the time steps in grey, the true interval and the one found.

import matplotlib.pyplot as plt

found = model.predict(X_test[:6])
figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
scores = [x @ model.weights_[:-1] for x in X_test[:6]]
axes.imshow(scores, cmap="Greys", aspect="auto", alpha=0.6)
for name, colour, shift, intervals in (
    ("true", "#c44e06", -0.3, y_test[:6]),
    ("found", "#0a5fa5", 0.3, found),
):
    starts, ends = np.transpose(intervals)
    axes.hlines(
        np.arange(6) + shift, starts - 0.5, ends - 0.5, color=colour, linewidth=5, label=name
    )
axes.set(xlabel="time step", ylabel="recording", yticks=range(6), yticklabels=range(1, 7))
figure.legend(loc="outside upper right", ncols=2)

# %%
# Methods written as loops, static and decorated with numba's ``@njit``, are compiled into the
# solver and run many times faster. The guide on structures of your own shows how.

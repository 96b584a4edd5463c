"""
A structure of your own: matching two sets
==========================================

Which point of one picture is which point of the other? The input is features of every pair of
points. The output is a partner in the second set for each point of the first; no partner is used
twice. Decoding is the assignment problem, solved by SciPy's Hungarian method.
"""

# %%
# Decoding is plain Python that calls SciPy. The other two methods are loops over pairs and are
# compiled. A structure may mix the two.

from itertools import permutations

import numpy as np
from numba import njit
from scipy.optimize import linear_sum_assignment

from hingeline import SSVM, Structure


class Matching(Structure):
    """x: (points, candidates, features) of pairs; y: the partner of every point."""

    @staticmethod
    @njit
    def joint_feature(x, y):
        """Sum of the features of the pairs that are matched."""
        total = np.zeros(x.shape[2])
        for i in range(len(y)):
            total += x[i, y[i]]
        return total

    @staticmethod
    @njit
    def loss(y_true, y):
        return float(np.sum(y_true != y))

    def decode(self, x, w, y_true, loss_scale):
        """argmax over all matchings of w·f(x, y) + loss_scale·loss(y_true, y)."""
        scores = x @ w
        if loss_scale:
            scores = scores + loss_scale * (np.arange(x.shape[1]) != y_true[:, None])
        return linear_sum_assignment(scores, maximize=True)[1]

    def outputs(self, x):
        """All matchings: for ``check_structure`` only."""
        return map(np.array, permutations(range(x.shape[1]), x.shape[0]))


# %%
# Points have a place and two descriptors. In the second picture, all values are slightly different,
# some descriptors very different, and some points have no partner. The features of a pair are its
# distances in each value.

from hingeline.testing import check_structure

NOISE = np.array([0.6, 0.6, 1.5, 0.3])


def make_pictures(n, random, points=9, strangers=3):
    X, y, places = [], [], []
    for _ in range(n):
        first = random.normal(size=(points, len(NOISE)))
        moved = first + NOISE * random.normal(size=first.shape)
        second = np.vstack([moved, random.normal(size=(strangers, len(NOISE)))])
        order = random.permutation(len(second))
        X.append(-np.abs(first[:, None] - second[order]))
        y.append(np.argsort(order)[:points])
        places.append((first[:, :2], second[order, :2]))
    return X, y, places


random = np.random.default_rng(0)
X, y, _ = make_pictures(80, random)
X_few, y_few, _ = make_pictures(3, random, points=3, strangers=2)
check_structure(Matching(), X_few, y_few)  # against all 60 matchings

# %%
# Train, and compare with a matching in which all distances have the same weight.

model = SSVM(Matching(), C=0.1, random_state=0).fit(X, y)
X_test, y_test, places = make_pictures(200, random)


def share_right(found):
    return np.mean(np.array(found) == np.array(y_test))


alike = share_right([Matching().decode(x, np.ones(len(NOISE)), None, 0.0) for x in X_test])
learnt = share_right(model.predict(X_test))
print(f"at most {model.duality_gap_ / model.primal_objective_:.2%} above the optimum")
print(f"right partners: {learnt:.1%} with learnt weights, {alike:.1%} with equal ones")
print(f"weights: {np.round(model.weights_, 2)}, noise: {NOISE}")

# %%
# Show one pair of pictures. Lines join partners.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
first, second = (side + [shift, 0] for side, shift in zip(places[0], (0, 7), strict=True))
partners = model.predict(X_test[:1])[0]
for i, (mine, true) in enumerate(zip(partners, y_test[0], strict=True)):
    colour = "#0a5fa5" if mine == true else "#c44e06"
    axes.plot(*np.transpose([first[i], second[mine]]), color=colour, linewidth=1.2)
axes.plot(*first.T, "o", color="#333333")
axes.plot(*second.T, "s", color="#333333")
axes.plot([], [], color="#0a5fa5", label="right")
axes.plot([], [], color="#c44e06", label="wrong")
axes.set(xticks=[], yticks=[], xlabel="first picture                          second picture")
figure.legend(loc="outside upper right", ncols=2)

"""
A structure of your own: ranking
================================

Rank the items of a list so that the best come first. The measure is NDCG, which discounts items
that come late. The input is features of the items; the output is the rank of each. Because the
features contain the discounts of NDCG, decoding is one sort, even with the loss.
"""

# %%
# Items of the first five true ranks are worth 5 to 1, others nothing; rank r counts
# ``1 / log2(r + 2)``. Up to a constant, the value of an output is
# ``Σ_i discount(y_i)·(w·x_i − loss_scale·worth_i)``. It is largest if items are sorted by the
# bracket. All methods are compiled.

from itertools import permutations

import numpy as np
from numba import njit

from hingeline import SSVM, Structure


@njit
def discount(rank):
    return 1.0 / np.log2(rank + 2.0)


@njit
def gains(y_true):
    """What items are worth, in units of the best possible sum."""
    worth = np.maximum(5.0 - y_true, 0.0)
    return worth / np.sum(worth * discount(y_true))


class Ranking(Structure):
    """x: (items, features); y: the rank of every item, 0 for the first."""

    @staticmethod
    @njit
    def joint_feature(x, y):
        """Sum of the features, discounted by rank."""
        total = np.zeros(x.shape[1])
        for i in range(len(y)):
            total += discount(y[i]) * x[i]
        return total

    @staticmethod
    @njit
    def loss(y_true, y):
        """1 minus the NDCG."""
        return np.sum(gains(y_true) * (discount(y_true) - discount(y)))

    @staticmethod
    @njit
    def decode(x, w, y_true, loss_scale):
        """argmax over all rankings of w·f(x, y) + loss_scale·loss(y_true, y): a sort."""
        value = x @ w
        if loss_scale > 0.0:
            value -= loss_scale * gains(y_true)
        ranks = np.empty(len(x), dtype=np.int32)
        ranks[np.argsort(-value)] = np.arange(len(x), dtype=np.int32)
        return ranks

    def outputs(self, x):
        """All rankings: for ``check_structure`` only."""
        return map(np.array, permutations(range(len(x))))


# %%
# The data are queries with their documents. What matters is how a document differs from others of
# the same query; some features differ more between queries than within them.

from hingeline.testing import check_structure

TASTE = np.array([1.0, -1.0, 0.6, 0.3, 0.0])
BETWEEN = np.array([4.0, 0.3, 2.0, 0.0, 1.0])  # how much queries differ


def make_queries(n, random, items=15):
    X, y = [], []
    for _ in range(n):
        own = random.normal(size=(items, 5))
        wanted = own @ TASTE + 0.7 * random.normal(size=items)
        X.append(own + BETWEEN * random.normal(size=5))
        y.append(np.argsort(np.argsort(-wanted)))
    return X, y


random = np.random.default_rng(0)
X, y = make_queries(100, random)
check_structure(Ranking(), *make_queries(3, random, items=4))  # against all 24 rankings

# %%
# Train, and compare with ridge regression of the worth of single documents.

from sklearn.linear_model import Ridge

model = SSVM(Ranking(), C=1.0, random_state=0).fit(X, y)
X_test, y_test = make_queries(300, random)
ridge = Ridge().fit(np.vstack(X), np.concatenate([np.maximum(5.0 - ranks, 0.0) for ranks in y]))


def score(found):
    losses = [Ranking.loss(a, b) for a, b in zip(y_test, found, strict=True)]
    return 1.0 - np.array(losses)


ours = score(model.predict(X_test))
single = score([np.argsort(np.argsort(-ridge.predict(x))) for x in X_test])
print(f"at most {model.duality_gap_ / model.primal_objective_:.2%} above the optimum")
print(f"mean NDCG of new queries: {ours.mean():.3f}, by regression of items {single.mean():.3f}")
print(f"weights: {np.round(model.weights_ / model.weights_[0], 2)}, true ones: {TASTE}")

# %%
# Plot all test queries, from the worst NDCG to the best.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
share = np.linspace(0, 1, len(ours))
axes.plot(share, np.sort(ours), color="#0a5fa5", label="listwise: this structure")
axes.plot(share, np.sort(single), color="#c44e06", label="pointwise: regression")
axes.set(xlabel="share of queries", ylabel="NDCG at most", ylim=(None, 1.0))
axes.grid(alpha=0.3)
figure.legend(loc="outside upper right", ncols=2)

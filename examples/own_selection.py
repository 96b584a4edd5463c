"""
A structure of your own: selection under constraints
====================================================

Choose sentences for a summary that is short enough and says nothing twice. In general, choose
variables that are 0 or 1, each with features and the cost of a mistake; each example has its own
linear constraints. Decoding is an integer program, solved by HiGHS through SciPy.
"""

# %%
# Decoding must be exact. Without ``mip_rel_gap=0``, HiGHS may stop 0.01 % short of the best value,
# and the certificate would not hold. With it, only its tolerance of 1e-6 remains.

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from hingeline import SSVM, Structure
from hingeline.testing import check_structure


class Program(NamedTuple):
    """Variables and the constraints ``lower ≤ matrix @ y ≤ upper``."""

    features: np.ndarray  # (variables, features)
    cost: np.ndarray  # of a mistake in each variable
    matrix: np.ndarray  # (constraints, variables)
    lower: np.ndarray
    upper: np.ndarray


class Selection(Structure):
    """x: a Program; y: the value of every variable. The loss reads the costs from x."""

    def joint_feature(self, x, y):
        return y @ x.features

    def loss(self, x, y_true, y):
        return float(x.cost @ (y_true != y))

    def decode(self, x, w, y_true, loss_scale):
        """argmax over all feasible y of w·f(x, y) + loss_scale·loss(x, y_true, y)."""
        value = x.features @ w
        if loss_scale:
            value = value + loss_scale * x.cost * (1 - 2 * y_true)
        found = milp(
            -value,
            integrality=np.ones(len(value)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(x.matrix, x.lower, x.upper),
            options={"mip_rel_gap": 0.0},
        )
        return np.round(found.x).astype(np.int32)

    def outputs(self, x):
        """All feasible choices: for ``check_structure`` only."""
        choices = np.array(list(product((0, 1), repeat=len(x.cost))))
        sums = choices @ x.matrix.T
        return choices[((sums >= x.lower) & (sums <= x.upper)).all(axis=1)]


# %%
# Each text has 14 sentences. An editor likes some features and dislikes others, keeps within a
# length, takes at most one of three sentences that say the same, and at least one of the first
# four. Mistakes cost more in long sentences.

TASTE = np.array([1.5, 1.0, -1.0, 0.5, 0.0])


def make_texts(n, random, sentences=14):
    X, y = [], []
    for _ in range(n):
        features = random.normal(size=(sentences, len(TASTE)))
        length = random.integers(5, 30, sentences)
        same = np.arange(sentences) // 3 == np.arange(sentences)[:, None] // 3
        first = np.arange(sentences) < 4
        matrix = np.vstack([length, same, first]).astype(float)
        upper = np.array([0.35 * length.sum(), *np.ones(sentences), sentences])
        lower = np.array([*np.zeros(sentences + 1), 1.0])
        x = Program(features, length / length.mean(), matrix, lower, upper)
        wanted = Program(np.append(features, random.normal(size=(sentences, 1)), axis=1), *x[1:])
        X.append(x)
        y.append(Selection().decode(wanted, np.append(TASTE, 0.7), None, 0.0))
    return X, y


random = np.random.default_rng(0)
X, y = make_texts(60, random)
check_structure(Selection(), *make_texts(3, random, sentences=7), n_trials=4)

# %%
# Train, and compare with a classifier of single sentences, which takes the surest ones first, as
# long as they fit.

from sklearn.linear_model import LogisticRegression

model = SSVM(Selection(), C=0.1, random_state=0).fit(X, y)
X_test, y_test = make_texts(200, random)
single = LogisticRegression().fit(np.vstack([x.features for x in X]), np.concatenate(y))


def take_surest(x):
    chosen = np.zeros(len(x.cost), dtype=int)
    for i in np.argsort(-single.decision_function(x.features)):
        chosen[i] = 1
        chosen[i] = (x.matrix @ chosen <= x.upper).all()
    return chosen


def mean_loss(found):
    return np.array([*map(Selection().loss, X_test, y_test, found)])


ours, greedy = mean_loss(model.predict(X_test)), mean_loss(map(take_surest, X_test))
print(f"at most {model.duality_gap_ / model.primal_objective_:.2%} above the optimum")
print(f"mean loss of new texts: {ours.mean():.2f}, sentence by sentence {greedy.mean():.2f}")
print(f"weights: {np.round(model.weights_ / model.weights_[1], 2)}, true ones: {TASTE}")

# %%
# Plot all test texts, from the smallest loss to the largest.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
share = np.linspace(0, 1, len(ours))
axes.plot(share, np.sort(ours), color="#0a5fa5", label="integer program")
axes.plot(share, np.sort(greedy), color="#c44e06", label="sentence by sentence")
axes.set(xlabel="share of texts", ylabel="loss at most")
axes.grid(alpha=0.3)
figure.legend(loc="outside upper right", ncols=2)

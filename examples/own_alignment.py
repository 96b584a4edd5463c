"""
A structure of your own: aligning sequences
===========================================

Which letter of a word became which letter of its misspelling? The input is two sequences; the
output is an alignment, in which letters are kept or replaced, left out, or put in. Edit distance
has fixed prices for these operations; here they are learnt. Decoding is the dynamic program of
Needleman and Wunsch, compiled by numba.
"""

# %%
# Outputs must be as long as the true one. So an alignment is, for each letter of the first
# sequence, its place in the second or −1. The two sequences are rows of one array; the shorter one
# is filled up with −1.

from itertools import combinations

import numpy as np
from numba import njit

from hingeline import SSVM, Structure
from hingeline.testing import check_structure

LETTERS = 8
LEFT_OUT, PUT_IN = LETTERS**2, LETTERS**2 + LETTERS  # where weights of these operations begin


@njit
def lengths(x):
    return np.sum(x[0] >= 0), np.sum(x[1] >= 0)


class Alignment(Structure):
    """x: two rows of letters; y: for each letter of the first its place in the second, or −1."""

    @staticmethod
    @njit
    def joint_feature(x, y):
        """How often each operation is used."""
        count = np.zeros(PUT_IN + LETTERS)
        n, m = lengths(x)
        for j in range(m):
            count[PUT_IN + x[1, j]] += 1
        for i in range(n):
            if y[i] < 0:
                count[LEFT_OUT + x[0, i]] += 1
            else:
                count[x[0, i] * LETTERS + x[1, y[i]]] += 1
                count[PUT_IN + x[1, y[i]]] -= 1
        return count

    @staticmethod
    @njit
    def loss(y_true, y):
        """Letters whose place is wrong."""
        return float(np.sum(y_true != y))

    @staticmethod
    @njit
    def decode(x, w, y_true, loss_scale):
        """argmax over all alignments of w·f(x, y) + loss_scale·loss(y_true, y)."""
        n, m = lengths(x)
        best = np.zeros((n + 1, m + 1))  # of the first i and the first j letters
        last = np.zeros((n + 1, m + 1), dtype=np.int32)  # 0 left out, 1 put in, 2 aligned
        for i in range(n + 1):
            for j in range(m + 1):
                if i > 0:
                    truth = y_true[i - 1] if loss_scale > 0.0 else -1
                    cost = loss_scale * (truth != -1)
                    best[i, j] = best[i - 1, j] + w[LEFT_OUT + x[0, i - 1]] + cost
                if j > 0:
                    value = best[i, j - 1] + w[PUT_IN + x[1, j - 1]]
                    if i == 0 or value > best[i, j]:
                        best[i, j], last[i, j] = value, 1
                if i > 0 and j > 0:
                    value = best[i - 1, j - 1] + w[x[0, i - 1] * LETTERS + x[1, j - 1]]
                    value += loss_scale * (truth != j - 1)
                    if value > best[i, j]:
                        best[i, j], last[i, j] = value, 2
        y = np.full(n, -1, dtype=np.int32)
        i, j = n, m
        while i > 0 or j > 0:
            if last[i, j] == 2:
                y[i - 1] = j - 1
            i, j = i - (last[i, j] != 1), j - (last[i, j] != 0)
        return y

    def outputs(self, x):
        """All alignments: for ``check_structure`` only."""
        n, m = lengths(x)
        for size in range(min(n, m) + 1):
            for rows in combinations(range(n), size):
                for places in combinations(range(m), size):
                    y = np.full(n, -1)
                    y[list(rows)] = places
                    yield y


# %%
# In a misspelling, letters become their neighbours, and some are often left out or put in.

DROPS = np.array([0.4, 0.02, 0.02, 0.3, 0.02, 0.02, 0.02, 0.02])
ADDS = np.array([0.01, 0.01, 0.2, 0.01, 0.01, 0.01, 0.15, 0.01])


def make_pairs(n, random, low=6, high=12):
    X, y = [], []
    for _ in range(n):
        source = random.integers(LETTERS, size=random.integers(low, high))
        target, place = [], []
        for letter in source:
            target += [new for new in range(LETTERS) if random.random() < ADDS[new]]
            place.append(-1 if random.random() < DROPS[letter] else len(target))
            if place[-1] >= 0:
                target.append(letter ^ 1 if random.random() < 0.4 else letter)
        x = np.full((2, max(len(source), len(target))), -1)
        x[0, : len(source)], x[1, : len(target)] = source, target
        X, y = [*X, x], [*y, np.array(place)]
    return X, y


random = np.random.default_rng(0)
X, y = make_pairs(150, random)
check_structure(Alignment(), *make_pairs(3, random, 3, 5), n_trials=4)

# %%
# Train, and compare with edit distance: the same structure with weights −1 for each change.

model = SSVM(Alignment(), C=0.1, random_state=0).fit(X, y)
X_test, y_test = make_pairs(300, random)
edits = np.append(np.eye(LETTERS).ravel() - 1.0, np.full(2 * LETTERS, -1.0))
found = model.predict(X_test), [Alignment.decode(x, edits, y[0], 0.0) for x in X_test]
learnt, plain = (np.mean(np.concatenate(f) == np.concatenate(y_test)) for f in found)
print(f"at most {model.duality_gap_ / model.primal_objective_:.2%} above the optimum")
print(f"letters aligned right: {learnt:.1%}, by edit distance {plain:.1%}")

# %%
# Show the learnt prices. Rows are letters of the word, columns are what became of them.

import matplotlib.pyplot as plt
from matplotlib.colors import CenteredNorm

aligned, left_out, _ = np.split(model.weights_, [LEFT_OUT, PUT_IN])
table = np.column_stack([aligned.reshape(LETTERS, -1), left_out])
figure, axes = plt.subplots(figsize=(5.5, 4.2), layout="constrained")
shown = axes.imshow(table, cmap="RdBu", norm=CenteredNorm())
axes.set_xticks(range(LETTERS + 1), [*"abcdefgh", "left out"])
axes.set_yticks(range(LETTERS), [*"abcdefgh"])
figure.colorbar(shown, label="weight")

"""
A structure of your own: a grammar
==================================

Find the constituents of a sentence. The input is words, the output a binary tree of labelled nodes.
Decoding is the dynamic program of Cocke, Kasami and Younger over all trees, compiled by numba.
"""

# %%
# A tree of n words has 2n − 1 nodes. Its vector has start, end and label of each: a node, then its
# left part, then its right part, so that parts can be found by counting. Rules (label, left label,
# right label) and words (label, word) have weights.

import numpy as np
from numba import njit

from hingeline import SSVM, Structure
from hingeline.testing import check_structure

LEXICON = {"N": "dogs birds fish ducks parks", "V": "see like fish ducks parks", "P": "in like by"}
VOCABULARY = sorted(set(" ".join(LEXICON.values()).split()))
LABELS, WORDS, RULES = 4, len(VOCABULARY), 4**3


class Grammar(Structure):
    """x: numbers of words; y: rows (start, end, label) of the nodes, in one vector."""

    @staticmethod
    @njit
    def joint_feature(x, y):
        """How often each rule is used, and each word below each label."""
        count = np.zeros(RULES + LABELS * WORDS)
        nodes = y.reshape((-1, 3))
        for k in range(len(nodes)):
            start, end, label = nodes[k, 0], nodes[k, 1], nodes[k, 2]
            if end - start == 1:
                count[RULES + label * WORDS + x[start]] += 1
            else:
                right = k + 2 * (nodes[k + 1, 1] - start)  # behind all nodes of the left part
                count[(label * LABELS + nodes[k + 1, 2]) * LABELS + nodes[right, 2]] += 1
        return count

    @staticmethod
    @njit
    def loss(y_true, y):
        """Nodes of y that are not in the true tree."""
        wrong = len(y) / 3
        for node in y.reshape((-1, 3)):
            for true in y_true.reshape((-1, 3)):
                wrong -= node[0] == true[0] and node[1] == true[1] and node[2] == true[2]
        return wrong

    @staticmethod
    @njit
    def decode(x, w, y_true, loss_scale):
        """argmax over all trees of w·f(x, y) + loss_scale·loss(y_true, y)."""
        n = len(x)
        true = np.zeros((n, n + 1, LABELS))
        for k in range(0, len(y_true), 3):
            true[y_true[k], y_true[k + 1], y_true[k + 2]] = 1.0
        best = np.zeros((n, n + 1, LABELS))  # of the trees over start:end with this label
        chosen = np.zeros((n, n + 1, LABELS), dtype=np.int32)  # split and labels of the parts
        for width in range(1, n + 1):
            for start in range(n - width + 1):
                end = start + width
                for a in range(LABELS):
                    top = w[RULES + a * WORDS + x[start]] if width == 1 else -np.inf
                    for split in range(start + 1, end):
                        for pair in range(LABELS**2):  # labels of the two parts
                            score = best[start, split, pair // LABELS] + w[a * LABELS**2 + pair]
                            score += best[split, end, pair % LABELS]
                            if score > top:
                                top, chosen[start, end, a] = score, split * LABELS**2 + pair
                    best[start, end, a] = top + loss_scale * (1.0 - true[start, end, a])
        y = np.zeros((2 * n - 1, 3), dtype=np.int32)
        y[0, 1], y[0, 2] = n, np.argmax(best[0, n])
        for k in range(len(y)):  # a node writes its parts
            start, end = y[k, 0], y[k, 1]
            if end - start > 1:
                split, pair = divmod(chosen[start, end, y[k, 2]], LABELS**2)
                right = k + 2 * (split - start)
                y[k + 1, 0], y[k + 1, 1], y[k + 1, 2] = start, split, pair // LABELS
                y[right, 0], y[right, 1], y[right, 2] = split, end, pair % LABELS
        return y.ravel()


# %%
# A small grammar makes the sentences. All ways to write a symbol are equally likely. Labels are the
# first letters of the symbols; some words have two readings.

GRAMMAR = {"S": "NP VP", "NP": "N|N|N|NP PP|N NP", "VP": "V|V NP|V NP|VP PP", "PP": "P NP"}


def grow(symbol, start, random):
    if symbol in LEXICON:
        word = VOCABULARY.index(random.choice(LEXICON[symbol].split()))
        return [word], [start, start + 1, "SNVP".index(symbol)]
    left, _, right = str(random.choice(GRAMMAR[symbol].split("|"))).partition(" ")
    words, nodes = grow(left, start, random)
    if right:
        more, others = grow(right, start + len(words), random)
        words, label = words + more, "SNVP".index(symbol[0])
        nodes = [start, start + len(words), label, *nodes, *others]
    return words, nodes


def make_sentences(n, random):
    pairs = [pair for _ in range(n) if len((pair := grow("S", 0, random))[0]) <= 15]
    return [list(map(np.array, side)) for side in zip(*pairs, strict=True)]


random = np.random.default_rng(0)
X, y = make_sentences(200, random)
check_structure(Grammar(), X[:4], y[:4])

# %%
# Train, and compare with trees that branch to the right and have each word's most frequent label.

model = SSVM(Grammar(), C=10.0, random_state=0).fit(X, y)
X_test, y_test = make_sentences(300, random)
counts = sum(map(Grammar.joint_feature, X, y))[RULES:].reshape(LABELS, WORDS)


def branch(x):
    nodes = [(i, len(x), 2 * (i > 0), i, i + 1, counts[:, x[i]].argmax()) for i in range(len(x))]
    return np.delete(np.ravel(nodes), slice(-6, -3))  # the last word is one node


n_nodes = sum(map(len, y_test)) / 3
trees = [*map(branch, X_test)], model.predict(X_test)
baseline, error = (sum(map(Grammar.loss, y_test, part)) / n_nodes for part in trees)
print(f"at most {model.duality_gap_ / model.primal_objective_:.2%} above the optimum")
print(f"wrong nodes: {error:.1%}, of trees that branch to the right {baseline:.1%}")

# %%
# Draw the first long test sentence. Nodes that are right are blue.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
which = [len(x) > 8 for x in X_test].index(True)
x, tree, true = X_test[which], trees[1][which].reshape(-1, 3), y_test[which].reshape(-1, 3).tolist()
for k, (start, end, label) in enumerate(tree):
    middle, known = (start + end) / 2, [start, end, label] in true
    for a, b, _ in tree[[k + 1, k + 2 * (tree[k + 1, 1] - start)]] if end - start > 1 else ():
        axes.plot([middle, (a + b) / 2], [end - start, b - a], color="#999999", zorder=0)
    box = {"boxstyle": "round", "color": "#0a5fa5" if known else "#c44e06"}
    axes.text(middle, end - start, "SNVP"[label], color="white", ha="center", va="center", bbox=box)
axes.set(xlim=(0, len(x)), ylim=(0.4, len(x) + 0.6), yticks=[])
words = axes.set_xticks(np.arange(len(x)) + 0.5, [VOCABULARY[word] for word in x])

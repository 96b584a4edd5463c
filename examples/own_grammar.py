"""
A structure of your own: a grammar
==================================

Find the constituents of a sentence. Input: words; output: a binary tree whose nodes have labels.
Decoding is the dynamic program of Cocke, Kasami and Younger over all trees, compiled by numba into
the solver.
"""

# %%
# A tree of n words has 2n − 1 nodes. As a vector: start, end and label of each, a node before
# its left part and that before the right one, so that parts are found by counting. Weights are of
# rules (label, left label, right label) and of words (label, word).

import numpy as np
from numba import njit

from hingeline import SSVM, Structure

LEXICON = {
    "N": "dogs birds fish ducks men parks",
    "V": "see like fish ducks parks",
    "P": "in like by",
}
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
        if loss_scale > 0.0:
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
                        for b in range(LABELS):
                            for c in range(LABELS):
                                score = best[start, split, b] + best[split, end, c]
                                score += w[(a * LABELS + b) * LABELS + c]
                                if score > top:
                                    top = score
                                    chosen[start, end, a] = (split * LABELS + b) * LABELS + c
                    best[start, end, a] = top + loss_scale * (1.0 - true[start, end, a])
        y = np.zeros((2 * n - 1, 3), dtype=np.int32)
        y[0, 1] = n
        for a in range(LABELS):
            if best[0, n, a] > best[0, n, y[0, 2]]:
                y[0, 2] = a
        for k in range(len(y)):  # a node writes its parts
            start, end = y[k, 0], y[k, 1]
            if end - start > 1:
                code = chosen[start, end, y[k, 2]]
                split = code // LABELS**2
                right = k + 2 * (split - start)
                y[k + 1, 0], y[k + 1, 1], y[k + 1, 2] = start, split, code // LABELS % LABELS
                y[right, 0], y[right, 1], y[right, 2] = split, end, code % LABELS
        return y.ravel()


# %%
# Sentences of a small grammar. Labels are the first letters of its symbols, S, N, V and P; some
# words have two readings.

from hingeline.testing import check_structure

GRAMMAR = {
    "S": [("NP VP", 1.0)],
    "NP": [("N", 0.5), ("NP PP", 0.3), ("N NP", 0.2)],
    "VP": [("V", 0.2), ("V NP", 0.5), ("VP PP", 0.3)],
    "PP": [("P NP", 1.0)],
}


def grow(symbol, start, random):
    """Words, and the nodes above them."""
    if symbol in LEXICON:
        word = random.choice(LEXICON[symbol].split())
        return [VOCABULARY.index(word)], [start, start + 1, "SNVP".index(symbol)]
    ways, chances = zip(*GRAMMAR[symbol], strict=True)
    parts, words, nodes = random.choice(ways, p=chances).split(), [], []
    for part in parts:
        more, below = grow(part, start + len(words), random)
        words, nodes = words + more, nodes + below
    top = [start, start + len(words), "SNVP".index(symbol[0])] if len(parts) > 1 else []
    return words, top + nodes


def make_sentences(n, random, longest=12):
    drawn = (grow("S", 0, random) for _ in range(100 * n))
    pairs = [pair for pair in drawn if len(pair[0]) <= longest][:n]
    return [np.array(x) for x, _ in pairs], [np.array(y) for _, y in pairs]


random = np.random.default_rng(0)
X, y = make_sentences(150, random)
check_structure(Grammar(), *make_sentences(2, random, 3), n_trials=3)  # 2048 trees of 3 words

# %%
# Train, and compare with trees that branch to the right, with the most frequent labels.

model = SSVM(Grammar(), C=0.1, random_state=0).fit(X, y)
X_test, y_test = make_sentences(300, random)
counts = sum(map(Grammar.joint_feature, X, y))
inner = counts[:RULES].reshape(LABELS, -1).sum(axis=1).argmax()
single = counts[RULES:].reshape(LABELS, WORDS).argmax(axis=0)


def branch(x):
    pairs = [[i, len(x), inner, i, i + 1, single[x[i]]] for i in range(len(x) - 1)]
    return np.array([*np.ravel(pairs), len(x) - 1, len(x), single[x[-1]]], dtype=int)


def share_right(found):
    wrong = [Grammar.loss(*pair) for pair in zip(y_test, found, strict=True)]
    return 1 - 3 * sum(wrong) / sum(map(len, y_test))


learnt, right = share_right(model.predict(X_test)), share_right(map(branch, X_test))
print(f"at most {model.duality_gap_ / model.primal_objective_:.2%} above the optimum")
print(f"right nodes: {learnt:.1%}, of trees that branch to the right {right:.1%}")

# %%
# A new sentence; nodes that are right are blue.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
x, tree = X_test[0], model.predict(X_test[:1])[0].reshape(-1, 3)
for k, (start, end, label) in enumerate(tree):
    middle, known = (start + end) / 2, [start, end, label] in y_test[0].reshape(-1, 3).tolist()
    for part in (k + 1, k + 2 * (tree[k + 1, 1] - start)) if end - start > 1 else ():
        a, b = tree[part, :2]
        axes.plot([middle, (a + b) / 2], [end - start, b - a], color="#999999", zorder=0)
    box = {"boxstyle": "round", "color": "#0a5fa5" if known else "#c44e06"}
    axes.text(middle, end - start, "SNVP"[label], color="white", ha="center", va="center", bbox=box)
axes.set(xlim=(0, len(x)), ylim=(0.4, len(x) + 0.6), yticks=[])
axes.set_xticks(np.arange(len(x)) + 0.5, [VOCABULARY[word] for word in x])

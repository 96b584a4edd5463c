"""A small task in which constraints help: records of three fields, few of them labelled."""

from __future__ import annotations

import numpy as np

from hingeline import constraints as cs


def records(seed, n, vocabulary=15):
    """Words and labels: field A first, then B and C in any order, each ended by a comma."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        words, labels = [], []
        for field in ["A", *rng.permutation(["B", "C"]).tolist()]:
            for s in range(rng.integers(2, 5)):
                if s == 0 and rng.random() < 0.7:
                    word = f"cue{field}"
                elif rng.random() < 0.8:
                    word = f"{field}{rng.integers(vocabulary)}"
                else:
                    word = f"w{rng.integers(10)}"
                words.append(word)
                labels.append(field)
            words.append(",")
            labels.append(field)
        X.append(words)
        y.append(labels)
    return X, y


def knowledge():
    """What is known of these records."""
    cues = [cs.Words([f"cue{field}"], field) for field in "ABC"]
    share = cs.Share("A", at_least=0.25, at_most=0.4)
    return [cs.StartsWith("A"), cs.NoRepeats(), cs.ChangeOnlyAt(","), *cues, share]

"""
Feature dicts, as for CRFsuite
==============================

Code that makes feature dicts for sklearn-crfsuite works unchanged: dicts, lists and sets of
features are all accepted. This example measures what features of the neighbours add.
"""

# %%
# Make three sets of features for the same words.

import matplotlib.pyplot as plt

from hingeline import ChainSSVM
from hingeline.data import load_notes
from hingeline.evaluation.metrics import span_f1_score

notes = load_notes()


def describe(words: list[str], t: int) -> dict[str, object]:
    """Features of the word alone; they may be strings, numbers and truth values."""
    word = words[t]
    return {
        "word": word,
        "title": word.istitle(),
        "digit": word.isdigit(),
        "length": len(word) / 10,
    }


def describe_with_neighbours(words: list[str], t: int) -> dict[str, object]:
    """The same, and the words before and after it."""
    features = describe(words, t)
    features["before"] = words[t - 1] if t else "(start)"
    features["behind"] = words[t + 1] if t + 1 < len(words) else "(end)"
    features["title before"] = bool(t) and words[t - 1].istitle()
    return features


WAYS = {
    "the word": lambda words, t: {"word": words[t]},
    "and its look": describe,
    "and its neighbours": describe_with_neighbours,
}

scores = {}
for name, way in WAYS.items():
    X_train, X_test = (
        [[way(words, t) for t in range(len(words))] for words in part]
        for part in (notes.X_train, notes.X_test)
    )
    tagger = ChainSSVM(C=1.0, random_state=0).fit(X_train, notes.y_train)
    scores[name] = span_f1_score(notes.y_test, tagger.predict(X_test))
    print(f"{name:20} {tagger.n_features_in_:4} features, F1 {scores[name]:.3f}")

# %%
# The default templates cover all of these features and need no dicts.

tagger = ChainSSVM(random_state=0).fit(notes.X_train, notes.y_train)
scores["default templates"] = span_f1_score(notes.y_test, tagger.predict(notes.X_test))

figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
bars = axes.barh(list(scores), list(scores.values()), color="#0a5fa5")
axes.bar_label(bars, fmt="%.2f", padding=4)
axes.invert_yaxis()
axes.set(xlabel="F1 of spans, test notes", xlim=(0, 1.1))
axes.spines[["top", "right"]].set_visible(False)

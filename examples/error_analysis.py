"""
What goes wrong, and why
========================

From a score to causes: which types, which confusions, known words or new ones, which features.
"""

# %%
# Scores by type, with intervals.

from collections import Counter

import matplotlib.pyplot as plt

from hingeline import ChainSSVM
from hingeline.data import load_notes
from hingeline.evaluation.metrics import evaluate

notes = load_notes()
tagger = ChainSSVM(scheme="auto", random_state=0).fit(notes.X_train, notes.y_train)
predicted = tagger.predict(notes.X_test)
result = evaluate(notes.y_test, predicted, bootstrap=200)
print(result)

# %%
# Which tag is taken for which?

for true, found, count in result.confusions(5):
    print(f"{count:4} times {true} was taken for {found}")

# %%
# Known words against new ones.

known = {word for sentence in notes.X_train for word in sentence}
counts: Counter = Counter()
for words, tags, found in zip(notes.X_test, notes.y_test, predicted, strict=True):
    for word, tag, label in zip(words, tags, found, strict=True):
        kind = tag[2:] or "other"
        counts[kind, word in known, "all"] += 1
        counts[kind, word in known, "wrong"] += tag != label

kinds = ["PER", "LOC", "DATE", "other"]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for shift, is_known, name in ((-0.2, True, "seen in training"), (0.2, False, "new")):
    shares = [
        counts[kind, is_known, "wrong"] / max(counts[kind, is_known, "all"], 1) for kind in kinds
    ]
    axes.bar([k + shift for k in range(4)], shares, 0.4, label=name)
axes.set(xticks=range(4), xticklabels=kinds, ylabel="share of tokens wrong")
axes.legend()

# %%
# One mistake, taken apart: what spoke for the wrong labels, against the true ones.

from hingeline.evaluation.inspection import explain

number = next(i for i, p in enumerate(predicted) if list(p) != notes.y_test[i])
print(*notes.X_test[number])
print(explain(tagger, notes.X_test, index=number, against=notes.y_test[number]).text(6))

"""
What goes wrong, and why
========================

This example looks for the causes behind a score: which types are wrong, which labels are confused,
whether words are known or new, and which features matter.
"""

# %%
# Start with scores by type, with confidence intervals.

from collections import Counter

import matplotlib.pyplot as plt

from hingeline import ChainSSVM
from hingeline.data import load_notes
from hingeline.evaluation.metrics import evaluate

notes = load_notes(n_train=12)  # few, so that there are mistakes to look at
tagger = ChainSSVM(scheme="auto", random_state=0).fit(notes.X_train, notes.y_train)
predicted = tagger.predict(notes.X_test)
result = evaluate(notes.y_test, predicted, bootstrap=200)
print(result)

# %%
# Which tags are confused?

for true, found, count in result.confusions(5):
    print(f"{count:4} times {true} was taken for {found}")

# %%
# Compare known words with new ones.

known = {word for sentence in notes.X_train for word in sentence}
counts: Counter = Counter()
for words, tags, found in zip(notes.X_test, notes.y_test, predicted, strict=True):
    for word, tag, label in zip(words, tags, found, strict=True):
        kind = tag[2:] or "other"
        counts[kind, word in known, "all"] += 1
        counts[kind, word in known, "wrong"] += tag != label

kinds = ["PER", "LOC", "DATE"]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for shift, is_known, name, colour in (
    (-0.2, True, "words seen in training", "#0a5fa5"),
    (0.2, False, "new words", "#c44e06"),
):
    wrong, of = ([counts[kind, is_known, what] for kind in kinds] for what in ("wrong", "all"))
    shares = [100 * a / b for a, b in zip(wrong, of, strict=True)]
    bars = axes.bar([k + shift for k in range(3)], shares, 0.38, label=name, color=colour)
    axes.bar_label(bars, [f"{a} of {b}" for a, b in zip(wrong, of, strict=True)], padding=2)
axes.set(xticks=range(3), xticklabels=kinds, ylabel="% of tokens wrong", ylim=(0, 50))
axes.set_title("Only new names and places go wrong")
axes.spines[["top", "right"]].set_visible(False)
axes.legend()

# %%
# Explain one mistake: the features that spoke for the wrong labels and against the true ones.

from hingeline.evaluation.inspection import explain

number = next(i for i, p in enumerate(predicted) if list(p) != notes.y_test[i])
print(*notes.X_test[number])
print(explain(tagger, notes.X_test, index=number, against=notes.y_test[number]).text(6))

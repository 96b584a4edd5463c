"""
Constraints, step by step
=========================

Rules that labels should keep can be written down, checked against data, and enforced at prediction,
without training again.
"""

# %%
# Train a tagger on very few notes.

from hingeline import ChainSSVM
from hingeline.data import load_notes
from hingeline.evaluation.metrics import span_f1_score

notes = load_notes()
tagger = ChainSSVM(random_state=0).fit(notes.X_train[:12], notes.y_train[:12])
found = [list(tags) for tags in tagger.predict(notes.X_test)]
print(f"F1 {span_f1_score(notes.y_test, found):.3f}")

# %%
# Write down the rules: a number begins a date, these are cities, these are surnames, and a surname
# continues a name. Such lists are often available when labels are not.

from hingeline.constraints import Follows, Words, check

rules = [
    Words(r"\d+", "B-DATE"),
    Words(["Porto", "Bergen", "Leiden", "Graz", "Tartu", "Lima"], "B-LOC"),
    Words(["Almeida", "Berg", "Castro", "Duarte", "Ek", "Fuchs", "Garcia", "Horvat"], "I-PER"),
    Follows("I-PER", ("B-PER", "I-PER")),
    Follows("I-LOC", ("B-LOC", "I-LOC")),
]

# %%
# Do the true labels keep the rules? Rules that gold labels break do harm. Do the predictions?

print(check(rules, notes.X_test, notes.y_test))
print(check(rules, notes.X_test, found))

# %%
# Find the best labelling that keeps the rules, from the scores of the tagger. The search is exact.

import numpy as np

from hingeline.constraints import constrained_decode


def predict_under(rules: list, tagger: ChainSSVM, X: list[list[str]]) -> list[list[str]]:
    """Labels of sentences that keep the rules."""
    tokens = tagger.encoder_.transform(X)
    scores = tokens.matrix @ tagger.emission_coef_.T + tagger.intercept_
    scores[tokens.offsets[:-1]] += tagger.start_coef_
    scores[tokens.offsets[1:] - 1] += tagger.end_coef_
    best = constrained_decode(rules, X, tagger.classes_, scores, tagger.transition_coef_)
    return [list(tags) for tags in np.split(tagger.classes_[best], tokens.offsets[1:-1])]


kept = predict_under(rules, tagger, notes.X_test)
print(check(rules, notes.X_test, kept))
print(f"F1 {span_f1_score(notes.y_test, kept):.3f}")

# %%
# Show the note in which the rules change most, before and after.

import matplotlib.pyplot as plt

COLOURS = {"PER": "#b9d7f0", "LOC": "#f3cfb3", "DATE": "#cfe6c4", "": "#ffffff"}
changes = [np.sum(np.array(a) != b) for a, b in zip(found, kept, strict=True)]
number = int(np.argmax(changes))
figure, axes = plt.subplots(figsize=(9, 1.5), layout="constrained")
rows = {"no rules": found[number], "rules": kept[number]}
for height, (name, tags) in zip((1, 0), rows.items(), strict=True):
    axes.text(-0.6, height, name, ha="right", va="center")
    for k, (word, tag) in enumerate(zip(notes.X_test[number], tags, strict=True)):
        box = {"facecolor": COLOURS[tag[2:]], "edgecolor": "0.6", "boxstyle": "round,pad=0.35"}
        axes.text(k, height, f"{word}\n{tag}", ha="center", va="center", fontsize=9, bbox=box)
axes.set(xlim=(-1.6, len(tags) - 0.4), ylim=(-0.6, 1.6))
axes.axis("off")

# %%
# How much do the rules gain, depending on the number of labelled notes?

sizes, without, under = [6, 12, 25, 50, 100], [], []
for n in sizes:
    tagger = ChainSSVM(random_state=0).fit(notes.X_train[:n], notes.y_train[:n])
    without.append(span_f1_score(notes.y_test, tagger.predict(notes.X_test)))
    under.append(span_f1_score(notes.y_test, predict_under(rules, tagger, notes.X_test)))
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.semilogx(sizes, under, marker="o", color="#c44e06", label="rules at prediction")
axes.semilogx(sizes, without, marker="o", color="#0a5fa5", label="no rules")
axes.set(xlabel="training notes", ylabel="F1 of spans, test notes", xticks=sizes)
axes.set_xticklabels(sizes)
axes.minorticks_off()
axes.legend()
axes.grid(alpha=0.3)

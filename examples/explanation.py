"""
Why this label?
===============

The score of a labelling is a sum of weights, so every decision can be explained exactly.
"""

# %%
# Train a tagger, and find the note of which it is least sure.

import matplotlib.pyplot as plt

from hingeline import ChainSSVM
from hingeline.data import load_notes
from hingeline.evaluation.inspection import explain, top_features, transition_table

notes = load_notes()
tagger = ChainSSVM(scheme="auto", random_state=0).fit(notes.X_train, notes.y_train)
number = int(tagger.predict_margin(notes.X_test).argmin())
print(*notes.X_test[number])
for labels, score in tagger.predict_nbest([notes.X_test[number]], 2)[0]:
    print(f"{score:8.3f}", *labels)

# %%
# The lead of the best labelling over the second best is the sum of contributions. The plot shows
# the first ten.

found = explain(tagger, notes.X_test, index=number)
rows = found.rows[:10][::-1]
figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
colours = ["#0a5fa5" if row.contribution > 0 else "#c44e06" for row in rows]
axes.barh(
    [f"{row.name} at “{notes.X_test[number][row.position]}”" for row in rows],
    [row.contribution for row in rows],
    color=colours,
)
axes.axvline(0, color="0.5", linewidth=0.8)
axes.set(xlabel=f"for {' '.join(found.chosen)},\nagainst {' '.join(found.other)}")
axes.spines[["top", "right"]].set_visible(False)

# %%
# The strongest weights show what the model relies on in general.

for row in top_features(tagger, 2):
    if row.label in ("B-PER", "B-LOC"):
        print(f"{row.label:7} {row.weight:+.3f}  {row.feature}")
moves = sorted(transition_table(tagger), key=lambda row: -row.weight)
print("likes most:", *(f"{row[0]} → {row[1]} ({row.weight:+.2f})" for row in moves[:3]))

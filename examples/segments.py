"""
Spans as wholes, and a lexicon
==============================

A tagger decides word by word. ``SegmentSSVM`` cuts a sentence into segments and scores each one as
a whole: by its words, by its length, and by properties that only the whole has, such as being in a
list of places. "New York" is in that list; "New" and "York" are not.
"""

# %%
# Train on forty notes. Labels go in and come out as tags.

import matplotlib.pyplot as plt

from hingeline import ChainSSVM, SegmentSSVM
from hingeline.data import load_notes
from hingeline.evaluation.metrics import evaluate
from hingeline.features import SegmentTemplates

notes = load_notes(n_train=40, n_test=400)
places = ["Porto", "New York", "San Marino", "Bergen", "Cape Town", "Leiden", "Graz", "San Remo"]
places += ["New Haven", "Tartu", "Cape Cod", "Lima"]
models = {
    "word by word": ChainSSVM(random_state=0),
    "segments": SegmentSSVM(random_state=0),
    "segments, list of places": SegmentSSVM(
        segment_features=SegmentTemplates(lexicon={"place": places}), random_state=0
    ),
}
scores = {}
for name, model in models.items():
    model.fit(notes.X_train, notes.y_train)
    scores[name] = evaluate(notes.y_test, model.predict(notes.X_test)).span_f1
    gap = model.duality_gap_ / model.primal_objective_
    print(f"{name:25} F1 of spans {scores[name]:.3f}, certified gap {gap:.1%}")

# %%
# Predict the spans of a sentence: first word, word after the last, label.

model = models["segments, list of places"]
words = ["ask", "Jana", "Ito", "about", "the", "room", "in", "San", "Marino", "on", "7", "May"]
print(model.predict_spans([words])[0])

# %%
# Show the three best ways to cut the sentence, with their scores.

best = model.predict_nbest([words], 3)[0]
figure, axes = plt.subplots(figsize=(8, 2.2), layout="constrained")
colours = {"PER": "#fdd0a2", "LOC": "#c6dbef", "DATE": "#c7e9c0"}
for row, (tags, score) in enumerate(best):
    for t, (word, tag) in enumerate(zip(words, tags, strict=True)):
        colour = colours.get(tag[2:], "white")
        left = 0.06 if tag.startswith("B") else 0.0
        axes.barh(-row, 1 - left, 0.7, left=t + left, color=colour)
        axes.text(t + 0.5, -row, word, ha="center", va="center", fontsize=9)
    axes.text(len(words) + 0.2, -row, f"{score:.2f}", va="center")
for kind, colour in colours.items():
    axes.barh(0, 0, color=colour, label=kind)
axes.set(xlim=(0, len(words) + 1), xticks=[], yticks=[])
axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.25), frameon=False)
axes.spines[:].set_visible(False)

# %%
# How much does the list count? This is the weight of "in the list of places" for every label.

for label, weight in zip(model.classes_, model.segment_coef_[:, 0], strict=True):
    print(f"{label:5} {weight:+.2f}")

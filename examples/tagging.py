"""
From words to a tagger
======================

Words and tags go in as they are, and a tagger comes out that knows people, places and dates, also
by names that it has never seen. The notes are built in, so nothing is downloaded.
"""

# %%
# Sentences are lists of words, labels are lists of tags. Words get the default templates: the word
# and its neighbours, pairs of them, its shape, its beginning and its end.

from hingeline import ChainSSVM
from hingeline.data import load_notes

notes = load_notes()
for word, tag in zip(notes.X_train[1], notes.y_train[1], strict=True):
    print(f"{word:10} {tag}")

tagger = ChainSSVM(scheme="auto", random_state=0).fit(notes.X_train, notes.y_train)
print(f"\n{tagger.n_features_in_} features, scheme {tagger.scheme_}")
print(f"at most {tagger.duality_gap_ / tagger.primal_objective_:.2%} above the optimum")

# %%
# Every other name in the test notes occurs in no training note. ``evaluate`` counts spans: one is
# right when its type and both of its ends are.

from hingeline.evaluation.metrics import evaluate

found = tagger.predict(notes.X_test)
print(evaluate(notes.y_test, found))

# %%
# How many notes does it take? Training is a matter of milliseconds, so one can simply try.

import matplotlib.pyplot as plt

from hingeline.evaluation.metrics import span_f1_score

sizes = [2, 4, 8, 16, 32, 64, 400]
scores = []
for n in sizes:
    small = ChainSSVM(scheme="auto", random_state=0).fit(notes.X_train[:n], notes.y_train[:n])
    scores.append(span_f1_score(notes.y_test, small.predict(notes.X_test)))

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
axes.semilogx(sizes, scores, marker="o")
axes.set(xlabel="training notes", ylabel="F1 of spans, test notes", xticks=sizes, ylim=(0, 1))
axes.set_xticklabels(sizes)
axes.minorticks_off()
axes.grid(alpha=0.3)

# %%
# What is known of single words can be said at prediction; the rest of the labelling follows.

note = ["tickets", "for", "Milan", ",", "back", "on", "3", "May"]
print("as it is:             ", *tagger.predict([note])[0])
print("Milan is a place here:", *tagger.predict([note], allowed=[{2: "B-LOC"}])[0])

# %%
# A model is one file without pickle. The same from the command line, with a file of one word and
# tag per line: ``hingeline train notes.conll --model notes.hinge``.

import tempfile
from pathlib import Path

import hingeline

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "notes.hinge"
    tagger.save(path)
    again = hingeline.load(path)
    print(f"{path.stat().st_size:,} bytes:", *again.predict([note])[0])

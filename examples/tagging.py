"""
From words to a tagger
======================

This example trains a tagger on words and tags. It finds people, places and dates, even if it has
never seen their names. The notes come with the library, so nothing is downloaded.
"""

# %%
# Sentences are lists of words, labels are lists of tags. The default templates make features from
# each word: the word and its neighbours, pairs of them, its shape, its beginning and its ending.

from hingeline import ChainSSVM
from hingeline.data import load_notes

notes = load_notes()
for word, tag in zip(notes.X_train[1], notes.y_train[1], strict=True):
    print(f"{word:10} {tag}")

tagger = ChainSSVM(scheme="auto", random_state=0).fit(notes.X_train, notes.y_train)
print(f"\n{tagger.n_features_in_} features, scheme {tagger.scheme_}")
print(f"at most {tagger.duality_gap_ / tagger.primal_objective_:.2%} above the optimum")

# %%
# Every second name in the test notes occurs in no training note. ``evaluate`` counts spans: a span
# is right if its type and both of its ends are right.

from hingeline.evaluation.metrics import evaluate

found = tagger.predict(notes.X_test)
print(evaluate(notes.y_test, found))

# %%
# How many notes does it take? Training takes milliseconds, so you can simply try.

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
# If you know the label of a word, pass it at prediction; the other labels adapt to it.

note = ["tickets", "for", "Milan", ",", "back", "on", "3", "May"]
print("as it is:             ", *tagger.predict([note])[0])
print("Milan is a place here:", *tagger.predict([note], allowed=[{2: "B-LOC"}])[0])

# %%
# A model is saved as one file, without pickle. On the command line, with a file that has one word
# and its tag per line, run ``hingeline train notes.conll --model notes.hinge``.

import tempfile
from pathlib import Path

import hingeline

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "notes.hinge"
    tagger.save(path)
    again = hingeline.load(path)
    print(f"{path.stat().st_size:,} bytes:", *again.predict([note])[0])

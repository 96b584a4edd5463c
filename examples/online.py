"""
Learning from a stream
======================

Sentences arrive day by day, with words and labels that were not there before. Old sentences are
forgotten.
"""

# %%
# With ``passes=3``, each new note is visited three times, however many came before. This takes
# little time, but gives no certificate.

import matplotlib.pyplot as plt

from hingeline import ChainSSVM
from hingeline.data import load_notes
from hingeline.evaluation.metrics import span_f1_score

notes = load_notes(n_train=600)
tagger = ChainSSVM(C=1.0, random_state=0)
seen, scores = [], []
for first in range(0, 60, 2):  # two notes a day
    tagger.partial_fit(notes.X_train[first : first + 2], notes.y_train[first : first + 2], passes=3)
    seen.append(tagger.n_examples_)
    scores.append(span_f1_score(notes.y_test, tagger.predict(notes.X_test)))
tagger.partial_fit(notes.X_train[60:300], notes.y_train[60:300], passes=3)
print(f"{tagger.n_examples_} notes, {tagger.n_features_in_} features")
print(f"stopped: {tagger.stop_reason_}")

# %%
# Compare with one fit on everything so far.

whole = [
    span_f1_score(
        notes.y_test,
        ChainSSVM(C=1.0, random_state=0)
        .fit(notes.X_train[:n], notes.y_train[:n])
        .predict(notes.X_test),
    )
    for n in seen[::3]
]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(seen, scores, marker=".", label="stream, each note seen three times")
axes.plot(seen[::3], whole, "o", color="#c44e06", label="a fit on all of them")
axes.set(xlabel="notes so far", ylabel="F1 of spans, test notes", ylim=(0, 1))
axes.legend(loc="lower right")
axes.grid(alpha=0.3)

# %%
# Without ``passes=``, the problem of all notes is solved to a certificate, from the state reached.

tagger.partial_fit(notes.X_train[300:325], notes.y_train[300:325])
print(f"{tagger.n_examples_} notes, gap {tagger.duality_gap_ / tagger.primal_objective_:.2%}")

# %%
# Forget old notes: the weights then come from the other notes only. The model file can hold notes
# and multipliers, so that another process can continue learning.

import tempfile
from pathlib import Path

import hingeline

tagger.forget(keep_last=100)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "tagger.hinge"
    tagger.save(path, state=True)
    later = hingeline.load(path)
later.partial_fit(notes.X_train[325:425], notes.y_train[325:425], memory=150)
print(f"{later.n_examples_} notes in memory")

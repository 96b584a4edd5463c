"""
Few labels and rules
====================

This example trains a tagger from five labelled citations, two hundred unlabelled ones, and a few
rules: citations begin with the authors, every field occurs once, fields end with a punctuation
mark.
"""

# %%
# The citations are generated. A field ends with a punctuation mark, and the date may come second.

import random

NAMES = ["Almeida", "Berg", "Castro", "Duarte", "Ek", "Fuchs", "Garcia", "Horvat", "Ito", "Jensen"]
NAMES += ["Keller", "Lang", "Moreau", "Novak", "Olsen", "Petrov", "Quinn", "Rossi", "Sato", "Ueda"]
THINGS = ["margins", "chains", "graphs", "kernels", "labels", "trees", "duals", "planes", "words"]
THINGS += ["images", "rules", "bounds", "costs", "risks", "parsers", "structures", "sequences"]
WAYS = ["Learning", "Fast", "Large", "Sparse", "Exact", "Convex", "Random", "Deep", "Simple"]
WAYS += ["Robust", "Joint", "Online", "Latent", "Hidden", "Local", "Global"]
FIELDS = ["Machine Learning", "Data Mining", "Neural Computation", "Statistics", "Vision", "Logic"]
LABELS = ["author", "date", "journal", "pages", "title"]


def citation(draw: random.Random) -> tuple[list[str], list[str]]:
    """Words and labels of one citation."""
    names = (f"{draw.choice('ABCDEFG')} . {draw.choice(NAMES)}" for _ in range(draw.randint(1, 3)))
    things = [draw.choice(THINGS) for _ in range(draw.randint(1, 3))]
    of, first = draw.choice(FIELDS), draw.randint(1, 400)
    where = [f"Journal of {of}", f"Proceedings of {of}", f"{of} {draw.randint(1, 60)}", f"In {of}"]
    fields = [
        ("author", " and ".join(names)),
        ("title", f"{draw.choice(WAYS)} {' '.join(things)} for {draw.choice(THINGS)}"),
        ("journal", draw.choice(where)),
        ("pages", f"{draw.choice(['pages', ''])} {first} - {first + draw.randint(5, 30)}"),
        ("date", f"{draw.randint(1980, 2015)}"),
    ]
    if draw.random() < 0.4:
        fields.insert(1, fields.pop())
    marked = [(label, f"{text} {draw.choice('.,')}".split()) for label, text in fields]
    return (
        [word for _, part in marked for word in part],
        [label for label, part in marked for _ in part],
    )


draw = random.Random(3)
words, labels = map(list, zip(*(citation(draw) for _ in range(405)), strict=True))
X = [
    [
        [f"w={word.lower()}"] + ["number"] * word.isdigit() + ["capital"] * word[0].isupper()
        for word in sentence
    ]
    for sentence in words
]

# %%
# Write the rules, and check whether the five labelled citations keep them.

from hingeline.constraints import AtMostOneSegment, ChangeOnlyAt, StartsWith, Words, check

rules = [
    StartsWith("author"),
    AtMostOneSegment(*LABELS),
    ChangeOnlyAt("[.,]"),
    Words(r"(19|20)\d\d", "date"),
    Words(["pages"], "pages"),
    Words(["Journal", "Proceedings"], "journal"),
]
print(check(rules, words[:5], labels[:5]))

# %%
# Pass ``None`` as the labels of unlabelled sequences. Their weight, ``C_u``, is chosen without
# labels.

from hingeline import ChainSSVM, SemiSupervisedSSVM

test, truth = X[205:], labels[205:]
supervised = ChainSSVM(random_state=0).fit(X[:5], labels[:5])
model = SemiSupervisedSSVM(ChainSSVM(random_state=0), rules, classes=LABELS, random_state=0)
model.fit(X[:205], [*labels[:5], *[None] * 200], words=words[:205])
print(f"supervised:      {supervised.score(test, truth):.1%} of the test tokens")
print(f"semi-supervised: {model.score(test, truth):.1%}")

# %%
# Supervised training catches up as more citations are labelled by hand.

import matplotlib.pyplot as plt

sizes = [5, 10, 20, 40, 80, 160]
scores = [ChainSSVM(random_state=0).fit(X[:n], labels[:n]).score(test, truth) for n in sizes]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.semilogx(sizes, scores, marker="o", label="labels only")
axes.plot(5, model.score(test, truth), "o", color="#c44e06")
axes.axhline(
    model.score(test, truth), color="#c44e06", linestyle=":", label="5 labelled, 200 not, and rules"
)
axes.set(xlabel="labelled citations", ylabel="test tokens right", xticks=sizes)
axes.set_xticklabels(sizes)
axes.minorticks_off()
axes.legend()
axes.grid(alpha=0.3)

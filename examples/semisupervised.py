"""A tagger from five labelled citations, two hundred unlabelled ones and what is known of them.

The citations are generated, so nothing is downloaded. Run: python examples/semisupervised.py
"""

import random

from hingeline import ChainSSVM, SemiSupervisedSSVM
from hingeline.constraints import AtMostOneSegment, ChangeOnlyAt, StartsWith, Words, check

NAMES = ["Almeida", "Berg", "Castro", "Duarte", "Ek", "Fuchs", "Garcia", "Horvat", "Ito", "Jensen"]
THINGS = ["margins", "chains", "graphs", "kernels", "labels", "trees", "duals", "planes", "words"]
WAYS = ["Learning", "Fast", "Large", "Sparse", "Exact", "Convex", "Random", "Deep", "Simple"]
PLACES = ["Machine Learning", "Data Mining", "Neural Computation", "Pattern Analysis"]
LABELS = ["author", "date", "journal", "pages", "title"]


def citation(draw: random.Random) -> tuple[list[str], list[str]]:
    """Return the words and labels of one citation; a field ends with its punctuation mark."""
    authors = " and ".join(
        f"{draw.choice('ABCDEFG')} . {draw.choice(NAMES)}" for _ in range(draw.randint(1, 3))
    )
    title = f"{draw.choice(WAYS)} {draw.choice(THINGS)} for {draw.choice(THINGS)}"
    first = draw.randint(1, 400)
    fields = [
        ("author", authors + " ."),
        ("title", title + " ."),
        ("journal", f"Journal of {draw.choice(PLACES)} ,"),
        ("pages", f"pages {first} - {first + draw.randint(5, 30)} ,"),
        ("date", f"{draw.randint(1980, 2015)} ."),
    ]
    if draw.random() < 0.4:  # the date may come second
        fields.insert(1, fields.pop())
    words, labels = [], []
    for label, text in fields:
        words += text.split()
        labels += [label] * len(text.split())
    return words, labels


def features(words: list[str]) -> list[list[str]]:
    """Return the attributes of every token: the word, and whether it is a number or a capital."""
    return [
        [f"w={word.lower()}"] + ["number"] * word.isdigit() + ["capital"] * word[0].isupper()
        for word in words
    ]


def main() -> None:
    """Train with and without the unlabelled citations."""
    draw = random.Random(3)
    words, labels = zip(*(citation(draw) for _ in range(405)), strict=True)
    X = [features(x) for x in words]
    test, y_test = X[205:], labels[205:]
    supervised = ChainSSVM(random_state=0).fit(X[:5], list(labels[:5]))

    rules = [
        StartsWith("author"),
        AtMostOneSegment(*LABELS),
        ChangeOnlyAt("[.,]"),
        Words(r"(19|20)\d\d", "date"),
        Words(["pages"], "pages"),
        Words(["Journal"], "journal"),
    ]
    print("The rules on the five labelled citations:")
    print(check(rules, words[:5], labels[:5]))

    y = [*labels[:5], *[None] * 200]  # None: no labels
    model = SemiSupervisedSSVM(ChainSSVM(random_state=0), rules, classes=LABELS, random_state=0)
    model.fit(X[:205], y, words=words[:205])
    print(f"supervised:      {100 * supervised.score(test, y_test):.1f} % of test tokens")
    print(f"semi-supervised: {100 * model.score(test, y_test):.1f} %")
    print(f"step kept: C_u = {model.steps_[model.selected_].C_u:g}, chosen without labels")

    number = max(range(200), key=lambda i: len(words[205 + i]))
    found = model.predict([test[number]], constrained=True, words=[words[205 + number]])[0]
    for word, label in zip(words[205 + number], found, strict=True):
        print(f"{word:12} {label}")


if __name__ == "__main__":
    main()

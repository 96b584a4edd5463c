"""conlleval's rules in plain Python, token by token: an oracle for spans and their scores."""

from __future__ import annotations


def split(label):
    prefix, _, kind = label.partition("-")
    return prefix, kind


def ends(before, tag, before_kind, kind):
    """Whether a chunk ended between two words."""
    if (before, tag) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}:
        return True
    if (before, tag) in {("E", "E"), ("E", "I"), ("E", "O")}:
        return True
    return before != "O" and before_kind != kind


def starts(before, tag, before_kind, kind):
    """Whether a chunk starts at the second of two words."""
    if (before, tag) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}:
        return True
    if (before, tag) in {("E", "E"), ("E", "I"), ("O", "E")}:
        return True
    return tag != "O" and before_kind != kind


def chunks(labels):
    """(type, first, after the last) of one sentence."""
    found, begin = [], None
    before = ("O", "")
    for t, label in enumerate([*labels, "O"]):
        here = split(label)
        if begin is not None and ends(before[0], here[0], before[1], here[1]):
            found.append((before[1], begin, t))
            begin = None
        if starts(before[0], here[0], before[1], here[1]):
            begin = t
        before = here
    return found


def counts(y_true, y_pred):
    """{type: [correct, guessed, true]}, counted in one pass over the words as conlleval does."""
    table = {}

    def count(kind, column):
        table.setdefault(kind, [0, 0, 0])[column] += 1

    for true, guessed in zip(y_true, y_pred, strict=True):
        both = False  # inside a chunk that agrees so far
        last_true = last_guessed = ("O", "")
        for a, b in zip([*true, "O"], [*guessed, "O"], strict=True):
            a, b = split(a), split(b)
            true_ends = ends(last_true[0], a[0], last_true[1], a[1])
            guessed_ends = ends(last_guessed[0], b[0], last_guessed[1], b[1])
            if both:
                if true_ends and guessed_ends and last_true[1] == last_guessed[1]:
                    both = False
                    count(last_true[1], 0)
                elif true_ends != guessed_ends or a[1] != b[1]:
                    both = False
            true_starts = starts(last_true[0], a[0], last_true[1], a[1])
            guessed_starts = starts(last_guessed[0], b[0], last_guessed[1], b[1])
            if true_starts and guessed_starts and a[1] == b[1]:
                both = True
            if true_starts:
                count(a[1], 2)
            if guessed_starts:
                count(b[1], 1)
            last_true, last_guessed = a, b
    return table

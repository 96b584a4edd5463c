"""Labels for spans: another scheme for the same spans, and what is wrong with labels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hingeline.schemes.reading import Span, span_arrays
from hingeline.schemes.tags import (
    RULES,
    encode,
    find_scheme,
    is_nested,
    join_tag,
    plain,
    refuse_foreign,
    scheme_name,
    split_tag,
)


def convert_scheme(labels: Sequence[Any], source: str, target: str) -> list[Any]:
    """Labels of another scheme for the same spans.

    Labels that the source scheme forbids are read as :func:`spans` does by default, so converting
    to the same scheme repairs them. IO cannot tell neighbours of one type apart.

    Parameters
    ----------
    labels : sequence of str, or list of such sequences
    source, target : str
        Two of :data:`SCHEMES`.

    Returns
    -------
    list of str, or list of such lists

    Examples
    --------
    >>> convert_scheme(["I-NP", "I-NP", "B-NP", "O"], "IOB1", "IOBES")
    ['B-NP', 'E-NP', 'S-NP', 'O']
    """
    source, target = scheme_name(source), scheme_name(target)
    if not is_nested(labels):
        return _convert([plain(labels)], source, target)[0]
    return _convert([plain(sequence) for sequence in labels], source, target)


def _convert(sequences: list[list[Any]], source: str, target: str) -> list[list[str]]:
    classes, codes, offsets = encode(sequences)
    tags = [split_tag(label) for label in classes]
    refuse_foreign(tags, source)
    _, _, first, stop = span_arrays(classes, codes, offsets, None)
    kinds = [tags[code][1] for code in codes[first].tolist()]
    found = list(zip(kinds, first.tolist(), stop.tolist(), strict=True))
    labels = _write(found, offsets.tolist(), target)
    return [labels[i:j] for i, j in pairwise(offsets.tolist())]


def explain_invalid(labels: Sequence[Any], scheme: str) -> list[str]:
    """What a scheme forbids in one sequence, a sentence for each wrong label.

    Parameters
    ----------
    labels : sequence of str
    scheme : str
        One of :data:`SCHEMES`.

    Returns
    -------
    list of str
        Empty if the sequence is valid. Tokens are counted from 0.

    Examples
    --------
    >>> explain_invalid(["B-NP", "O", "I-NP"], "IOB2")
    ['I-NP at token 2 follows O; IOB2 wants B-NP there.']
    """
    name, rules = find_scheme(scheme)
    given = plain(labels)
    tags = [split_tag(label) for label in given]
    foreign = [
        f"{given[t]} at token {t} is not a tag of {name}, whose prefixes are "
        f"{', '.join(rules.opens)} and O."
        for t, (prefix, _) in enumerate(tags)
        if prefix != "O" and prefix not in rules.opens
    ]
    if foreign:
        return foreign
    # Exactly the valid sequences stay as they are when their spans are written again.
    wanted = _convert([given], name, name)[0]
    sentences = []
    for t, label in enumerate(given):
        if wanted[t] == label:
            continue
        prefix, want = tags[t][0], split_tag(wanted[t])[0]
        before = f"follows {given[t - 1]}" if t else "starts the sequence"
        after = f"is followed by {given[t + 1]}" if t + 1 < len(given) else "ends the sequence"
        reasons = []
        if rules.opens[prefix] is not rules.opens[want]:
            reasons.append(before)
        if rules.closes[prefix] is not rules.closes[want]:
            reasons.append(after)
        sentences.append(
            f"{label} at token {t} {' and '.join(reasons)}; {name} wants {wanted[t]} there."
        )
    return sentences


def _write(found: list[Span], offsets: list[int], name: str) -> list[str]:
    """Labels of spans, which are in order and do not overlap; types may be empty."""
    labels = ["O"] * offsets[-1]
    cuts = set(offsets)
    opening, inner, closing, only = RULES[name].written
    touched = ("", -1)  # type and end of the span before
    for kind, first, stop in found:
        labels[first:stop] = [join_tag(inner, kind)] * (stop - first)
        if stop - first == 1:
            labels[first] = join_tag(only, kind)
        else:
            labels[first] = join_tag(opening, kind)
            labels[stop - 1] = join_tag(closing, kind)
        if touched == (kind, first) and first not in cuts:
            if name == "IOB1":
                labels[first] = join_tag("B", kind)
            if name == "IOE1":
                labels[first - 1] = join_tag("E", kind)
        touched = (kind, stop)
    return labels

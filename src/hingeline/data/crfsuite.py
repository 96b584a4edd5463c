"""CRFsuite's text: one token per line, its label and its attributes with their values."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hingeline.data.samples import LabelledSequences
from hingeline.data.text import (
    Source,
    Target,
    TextSource,
    atomic_text,
    number_text,
    open_text,
    shown,
)

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
#: An attribute: escaped or plain characters, then perhaps a colon and a value.
_ITEM = re.compile(r"([^\\:]*(?:\\.[^\\:]*)*)(?::([^\\:]*))?", re.DOTALL)
#: Bytes of memory that a sequence and a text seen first take.
_SEQUENCE, _TEXT = 160, 300


def read_crfsuite(source: Source) -> LabelledSequences:
    r"""Read ``label TAB attribute TAB attribute:value …``; an empty line ends a sequence.

    Inside a label or an attribute ``\:`` stands for a colon and ``\\`` for a backslash. An
    attribute without a value has the value 1; the values of one that is repeated add up.

    An attribute with two colons is refused, and a value that is not a finite number. The result is
    a list of lists of dicts, as python-crfsuite takes them, and the labels.

    Examples
    --------
    >>> import io
    >>> X, y = read_crfsuite(io.StringIO("B\tw=a\tlength:2.5\nO\tw=\\:\n"))
    >>> X, y
    ([[{'w=a': 1.0, 'length': 2.5}, {'w=:': 1.0}]], [['B', 'O']])
    """
    X: list[list[dict[str, float]]] = []
    y: list[list[str]] = []
    # Each text is parsed once, so that names are shared.
    known: dict[str, tuple[str, float]] = {}
    labels: dict[str, str] = {}
    inside = False
    with open_text(source) as text:
        for number, line in text.lines():
            if not line.strip("\t "):
                inside = False
                continue
            size = 0
            if not inside:
                X.append([])
                y.append([])
                inside, size = True, _SEQUENCE
            label, *items = line.split("\t")
            attributes: dict[str, float] = {}
            for item in items:
                if not item:  # two tabs in a row, or a tab at the end
                    continue
                pair = known.get(item)
                if pair is None:
                    pair = known[item] = _parse_item(text, number, item)
                    size += _TEXT + 2 * len(item)
                name, value = pair
                before = attributes.get(name)  # where there is none, tokens share the number
                attributes[name] = value if before is None else before + value
            if label not in labels:
                labels[label] = _parse_label(text, number, label)
                size += _TEXT + 2 * len(label)
            X[-1].append(attributes)
            y[-1].append(labels[label])
            text.keep(size + sys.getsizeof(attributes))
    return LabelledSequences(X, y)


def _parse_label(text: TextSource, number: int, label: str) -> str:
    match = _ITEM.fullmatch(label)
    if match is None or match.group(2) is not None:
        raise text.error(
            number,
            f"the label {shown(label)} has a bare colon or ends in a backslash; write \\: for a "
            "colon and \\\\ for a backslash.",
        )
    if not label:
        raise text.error(
            number, "there is no label before the first tab; write any label where it is unknown."
        )
    return _ESCAPE.sub(r"\1", label)


def _parse_item(text: TextSource, number: int, item: str) -> tuple[str, float]:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise text.error(
            number,
            f"{shown(item)} has more than one colon, or ends in a backslash; write \\: for a colon "
            "and \\\\ for a backslash inside a name.",
        )
    name, value = match.groups()
    if "\\" in name:
        name = _ESCAPE.sub(r"\1", name)
    if not name:
        raise text.error(number, f"{shown(item)} has no name before the colon; add it.")
    if not value:
        return name, 1.0
    try:
        scale = math.nan if "_" in value else float(value)
    except ValueError:
        scale = math.nan
    if not math.isfinite(scale):
        raise text.error(
            number,
            f"{shown(value)} in {shown(item)} is not a finite number; write \\: for a colon inside "
            "a name.",
        )
    return name, scale


def write_crfsuite(
    target: Target, X: Sequence[Sequence[Any]], y: Sequence[Sequence[Any]] | None = None
) -> None:
    """Write labelled sequences of attributes.

    A token is a dict from attributes to numbers, or a list of attributes. A text as value makes
    the attribute ``name:value``, as in python-crfsuite. Without y the label is ``O`` everywhere,
    for text that is to be tagged.
    """
    if y is not None and len(y) != len(X):
        raise ValueError(f"X has {len(X)} sequences and y has {len(y)}.")
    with atomic_text(target) as out:
        for i, tokens in enumerate(X):
            labels = ["O"] * len(tokens) if y is None else [str(label) for label in y[i]]
            if len(labels) != len(tokens) or not tokens:
                raise ValueError(
                    f"X[{i}] has {len(tokens)} tokens and y[{i}] has {len(labels)} labels: they "
                    "must have the same length, at least 1."
                )
            for t, (token, label) in enumerate(zip(tokens, labels, strict=True)):
                items = [_escape(label, f"y[{i}][{t}]")]
                if isinstance(token, Mapping):
                    items.extend(_item(name, value, i, t) for name, value in token.items())
                else:
                    items.extend(_escape(name, f"X[{i}][{t}]") for name in token)
                out.write("\t".join(items) + "\n")
            out.write("\n")


def _item(name: Any, value: Any, i: int, t: int) -> str:
    if isinstance(value, str):  # python-crfsuite makes one attribute of both
        return _escape(f"{name}:{value}", f"X[{i}][{t}]")
    try:
        finite = math.isfinite(value)
    except TypeError:
        finite = False
    if not finite:
        raise ValueError(
            f"X[{i}][{t}] has the value {value!r} for {shown(str(name))}: values must be finite "
            "numbers, or texts."
        )
    text = _escape(name, f"X[{i}][{t}]")
    return text if value == 1 else f"{text}:{number_text(value)}"


def _escape(name: Any, place: str) -> str:
    if not isinstance(name, str) or not name.strip(" ") or any(c in "\t\n\r" for c in name):
        raise ValueError(
            f"{place} has {name!r}: names and labels must be text, not blank, without tabs and "
            "line ends."
        )
    return name.replace("\\", "\\\\").replace(":", "\\:")

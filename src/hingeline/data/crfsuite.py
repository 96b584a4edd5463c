"""CRFsuite's text: one token per line, its label and its attributes with their values."""

import math
import numbers
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hingeline.data.samples import LabelledSequences, check_lengths
from hingeline.data.text import File, TextSource, atomic_text, number_text, open_text, shown

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
#: An attribute: escaped or plain characters, then perhaps a colon and a value.
_ITEM = re.compile(r"([^\\:]*(?:\\.[^\\:]*)*)(?::([^\\:]*))?", re.DOTALL)
_WRITE = r"write \: for a colon and \\ for a backslash inside a name"
_SEQUENCE = 160  # Bytes of memory that a sequence takes; texts that differ do not compress so far.


def read_crfsuite(source: File) -> LabelledSequences:
    r"""Read ``label TAB attribute TAB attribute:value …``; an empty line ends a sequence.

    Inside a label or an attribute ``\:`` stands for a colon and ``\\`` for a backslash. An
    attribute without a value has the value 1; the values of one that is repeated add up.

    Attributes with two colons and values that are not finite numbers are refused. The result is
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
        for _, line in text.lines():
            if not line.strip("\t "):
                inside = False
                continue
            if not inside:
                X.append([])
                y.append([])
                text.keep(_SEQUENCE)
                inside = True
            label, *items = line.split("\t")
            attributes: dict[str, float] = {}
            for item in items:
                if not item:  # two tabs in a row, or a tab at the end
                    continue
                if item not in known:
                    known[item] = _parse_item(text, item)
                name, value = known[item]
                before = attributes.get(name)  # where there is none, tokens share the number
                attributes[name] = value if before is None else before + value
            if label not in labels:
                labels[label] = _parse_label(text, label)
            X[-1].append(attributes)
            y[-1].append(labels[label])
            text.keep(sys.getsizeof(attributes))
    return LabelledSequences(X, y)


def _parse_label(text: TextSource, label: str) -> str:
    match = _ITEM.fullmatch(label)
    what = f"the label {shown(label)} has a bare colon or ends in a backslash"
    text.require(match and match.group(2) is None, f"{what}; {_WRITE}.")
    what = "there is no label before the first tab"
    text.require(label, f"{what}; write any label where it is unknown.")
    return _ESCAPE.sub(r"\1", label)


def _parse_item(text: TextSource, item: str) -> tuple[str, float]:
    match = _ITEM.fullmatch(item)
    if match is None:
        what = f"{shown(item)} has more than one colon, or ends in a backslash"
        raise text.error(f"{what}; {_WRITE}.")
    name, value = match.groups()
    name = _ESCAPE.sub(r"\1", name) if "\\" in name else name
    if not name:
        raise text.error(f"{shown(item)} has no name before the colon; add it.")
    if not value:
        return name, 1.0
    try:
        scale = math.nan if "_" in value else float(value)
    except ValueError:
        scale = math.nan
    if not math.isfinite(scale):
        raise text.error(f"{shown(value)} in {shown(item)} is not a finite number; {_WRITE}.")
    return name, scale


def write_crfsuite(
    target: File, X: Sequence[Sequence[Any]], y: Sequence[Sequence[Any]] | None = None
) -> None:
    """Write labelled sequences of attributes.

    A token is a dict from attributes to numbers, or a list of attributes. A string as value makes
    the attribute ``name:value``, as in python-crfsuite. Without y every label is ``O``, for text
    that is still to be tagged.
    """
    y = [["O"] * len(tokens) for tokens in X] if y is None else y
    check_lengths([len(tokens) for tokens in X], y)
    with atomic_text(target) as out:
        for i, tokens in enumerate(X):
            for t, (token, label) in enumerate(zip(tokens, y[i], strict=True)):
                items = [_escape(str(label), f"y[{i}][{t}]")]
                if isinstance(token, Mapping):
                    items.extend(_item(*pair, f"X[{i}][{t}]") for pair in token.items())
                else:
                    items.extend(_escape(name, f"X[{i}][{t}]") for name in token)
                out.write("\t".join(items) + "\n")
            out.write("\n")


def _item(name: Any, value: Any, place: str) -> str:
    if isinstance(value, str):  # python-crfsuite makes one attribute of both
        return _escape(f"{name}:{value}", place)
    if not isinstance(value, (numbers.Real, np.bool_)) or not math.isfinite(value):
        what = f"{place} has the value {value!r} for {shown(str(name))}"
        raise ValueError(f"{what}: values must be finite numbers, or texts.")
    text = _escape(name, place)
    return text if value == 1 else f"{text}:{number_text(float(value))}"


def _escape(name: Any, place: str) -> str:
    if not isinstance(name, str) or not name.strip(" ") or any(c in "\t\n\r" for c in name):
        what = f"{place} has {name!r}: names and labels must be text"
        raise ValueError(f"{what}, not blank, without tabs and line ends.")
    return name.replace("\\", "\\\\").replace(":", "\\:")

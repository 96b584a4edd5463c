"""Tags and schemes: what a label says about its token's place in a span."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_TAG = re.compile(r"O|([BIELSU])(?:-(.*))?", re.DOTALL)
#: What a span is called whose tags have no type.
NO_TYPE = "_"


class Scheme:
    """What the prefixes of a scheme say.

    ``prefixes`` lists each with two marks: does its token open its span, and close it (``+`` yes,
    ``-`` no, ``?`` either)? ``written`` are those of a first, inner, last and only token.
    ``starts``, ``inside`` and ``ends`` are strict mode's pairs of neighbouring prefixes at which
    a span starts, goes on or has ended; ``=`` for one type, ``!`` for two, ``*`` for any, and
    ``.`` for any prefix.
    """

    def __init__(self, prefixes: str, written: str, starts: str, inside: str, ends: str) -> None:
        meaning = {"+": True, "-": False, "?": None}
        self.opens = {mark[0]: meaning[mark[1]] for mark in prefixes.split()}
        self.closes = {mark[0]: meaning[mark[2]] for mark in prefixes.split()}
        self.written = tuple(written)
        self.starts = starts.split()
        self.inside = inside.split()
        self.ends = ends.split()


# fmt: off
RULES = {
    "IO": Scheme("I??", "IIII", "OI* II!", "II=", "IO* II!"),
    "IOB1": Scheme("B+? I??", "IIII",
                    "OI* BI* II! IB= BB=", "BI= II=", "IO* IB* II! BO* BI! BB="),
    "IOB2": Scheme("B+? I-?", "BIIB", ".B*", "BI= II=", "IO* IB* II! BO* BB* BI!"),
    "IOE1": Scheme("I?? E?+", "IIII",
                    "OI* EI* II! EE=", "II= IE=", "IO* II! IE! EI= EE="),
    "IOE2": Scheme("I?- E?+", "IIEE", "OI* OE* EI* EE* II! IE!", "II= IE=", "E.*"),
    "IOBES": Scheme("B+- I-- E-+ S++", "BIES", ".B* .S*", "BI= BE= II= IE=", "S.* E.*"),
    "BILOU": Scheme("B+- I-- L-+ U++", "BILU", ".B* .U*", "BI= BL= II= IL=", "U.* L.*"),
}
# fmt: on
#: Names of the schemes.
SCHEMES = tuple(RULES)
_ALIASES = {"BIO": "IOB2", "BIOES": "IOBES", "BILUO": "BILOU"}


def is_tag(label: Any) -> bool:
    """Whether a label can be a tag of some scheme."""
    return isinstance(label, str) and _TAG.fullmatch(label) is not None


def split_tag(label: Any) -> tuple[str, str]:
    """Prefix and type of a tag; the type is empty where it has none."""
    match = _TAG.fullmatch(label) if isinstance(label, str) else None
    if match is None:
        raise ValueError(
            f"{label!r} is not a span tag: tags are O, or one of B, I, E, S, L, U with a type, "
            "as in B-NP."
        )
    return match[1] or "O", match[2] or ""


def join_tag(prefix: str, kind: str) -> str:
    """The tag of a prefix and a type."""
    return f"{prefix}-{kind}" if kind else prefix


def find_scheme(scheme: str) -> tuple[str, Scheme]:
    """A scheme by any of its names, and the one it goes by here."""
    name = scheme.upper() if isinstance(scheme, str) else ""
    name = _ALIASES.get(name, name)
    if name not in RULES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}.")
    return name, RULES[name]


def scheme_name(scheme: str) -> str:
    """The name by which :data:`SCHEMES` knows a scheme; a ``ValueError`` if it does not."""
    return find_scheme(scheme)[0]


def refuse_foreign(tags: Iterable[tuple[str, str]], name: str) -> None:
    """Refuse tags whose prefix the scheme does not have."""
    known = RULES[name].opens
    for prefix, kind in tags:
        if prefix != "O" and prefix not in known:
            raise ValueError(
                f"{join_tag(prefix, kind)!r} is not a tag of {name}, whose prefixes are "
                f"{', '.join(known)} and O."
            )


def is_nested(labels: Iterable[Any]) -> bool:
    """Whether labels are sequences of labels."""
    return any(isinstance(item, (list, tuple, np.ndarray)) for item in labels)


def plain(labels: Any) -> list[Any]:
    """Labels of one sequence as a list of Python objects."""
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)


def encode(sequences: Sequence[Sequence[Any]]) -> tuple[list[Any], Array, Array]:
    """Distinct labels, the number of each token's, and where sequences begin."""
    flat = [label for labels in sequences for label in labels]
    classes = list(dict.fromkeys(flat))
    index = {label: k for k, label in enumerate(classes)}
    codes = np.fromiter(map(index.__getitem__, flat), dtype=np.int64, count=len(flat))
    offsets = np.cumsum([0] + [len(labels) for labels in sequences])
    return classes, codes, offsets


def number_types(values: list[str]) -> Array:
    """A number for every type, equal where they are."""
    index: dict[str, int] = {}
    return np.array([index.setdefault(value, len(index)) for value in values], dtype=np.int64)

"""The header of an ARFF file: its attributes, and how values are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hingeline.data.text import TextSource, shown

_NUMERIC = ("numeric", "real", "integer")
#: A quoted text with backslash escapes, in two groups; linear in its length.
QUOTED = r"""'([^'\\]*(?:\\.[^'\\]*)*)'|"([^"\\]*(?:\\.[^"\\]*)*)\""""
_NAME = re.compile(rf"(?:{QUOTED}|([^\s'\"{{][^\s{{]*))(?=[\s{{])")
_QUOTED_VALUE = re.compile(rf"{QUOTED}|(?!)()")
_BLANKS = re.compile(r"\s*")


@dataclass(frozen=True)
class Attribute:
    """A column: numeric, or nominal with the number of each of its values."""

    name: str
    values: dict[str, float] | None = None

    def number(self, value: str) -> float:
        """The number that stands for a value; ValueError where none does."""
        if self.values is not None:
            if value not in self.values:
                raise ValueError(f"is not among the {len(self.values)} values declared")
            return self.values[value]
        if "_" in value:
            raise ValueError("is not a number")
        try:
            number = float(value)
        except ValueError:
            raise ValueError("is not a number") from None
        if not np.isfinite(number):
            raise ValueError("is not a finite number")
        return number


def read_header(text: TextSource, lines: Iterator[tuple[int, str]]) -> list[Attribute]:
    """The attributes, in order; takes the lines up to and including ``@data``."""
    attributes: list[Attribute] = []
    seen: set[str] = set()
    number = 1
    for number, line in lines:
        stripped = line.strip()
        if not stripped or stripped.startswith("%"):
            continue
        keyword, *rest = stripped.split(maxsplit=1)
        keyword = keyword.lower()
        if keyword == "@data":
            if not attributes:
                raise text.error(number, "@data comes before any @attribute; declare the columns.")
            return attributes
        if keyword == "@attribute":
            attribute = _read_attribute(text, number, rest[0] if rest else "")
            if attribute.name in seen:
                raise text.error(
                    number, f"the attribute {shown(attribute.name)} is declared twice; rename one."
                )
            seen.add(attribute.name)
            attributes.append(attribute)
        elif keyword != "@relation":
            raise text.error(
                number,
                f"expected @relation, @attribute or @data, found {shown(stripped)}; is this ARFF?",
            )
    raise text.error(number, "there is no @data line; is the file complete?")


def _read_attribute(text: TextSource, number: int, declaration: str) -> Attribute:
    match = _NAME.match(declaration)
    if match is None:
        raise text.error(
            number, f"{shown(declaration)} is not a name and a type; write @attribute NAME numeric."
        )
    name = chosen(match)
    kind = declaration[match.end() :].strip()
    if kind.lower() in _NUMERIC:
        return Attribute(name)
    if not (kind.startswith("{") and kind.endswith("}")):
        raise text.error(
            number,
            f"attribute {shown(name)} has the type {shown(kind)}; only numeric and nominal "
            "attributes are read, remove or convert it.",
        )
    values = split_values(kind[1:-1])
    if values is None or "" in values or len(set(values)) < len(values):
        raise text.error(
            number,
            f"the values of attribute {shown(name)} are not a list such as {{a, b}} of different "
            "values; correct the line.",
        )
    try:
        numbers = [Attribute(name).number(value) for value in values]
    except ValueError:
        numbers = [float(k) for k in range(len(values))]
    return Attribute(name, dict(zip(values, numbers, strict=True)))


def chosen(match: re.Match[str], first: int = 1) -> str:
    """The text of whichever of quoted, quoted, plain matched."""
    single, double, plain = match.group(first, first + 1, first + 2)
    if plain is not None:
        return plain
    return re.sub(r"\\(.)", r"\1", single if single is not None else double)


def split_values(text: str) -> list[str] | None:
    """Values between commas, quotes undone; None if malformed."""
    if "'" not in text and '"' not in text:
        if "{" in text or "}" in text:
            return None
        return [value.strip() for value in text.split(",")]
    values: list[str] = []
    position = 0
    while True:
        position = _end_of_blanks(text, position)
        if text[position : position + 1] in ("'", '"'):
            match = _QUOTED_VALUE.match(text, position)
            if match is None:
                return None
            values.append(chosen(match))
            position = _end_of_blanks(text, match.end())
        else:
            comma = text.find(",", position)
            end = len(text) if comma < 0 else comma
            value = text[position:end].rstrip()
            if any(character in value for character in "'\"{}"):
                return None
            values.append(value)
            position = end
        if position == len(text):
            return values
        if text[position] != ",":
            return None
        position += 1


def _end_of_blanks(text: str, position: int) -> int:
    match = _BLANKS.match(text, position)
    assert match is not None  # it matches nothing at all
    return match.end()

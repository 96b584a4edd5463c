"""Functions of words that templates name; computed once per distinct value of a column.

A function maps a string to a string, or to None where it has nothing to say: a prefix of a word
that is too short, a test that fails. None gives no feature, alone or in a conjunction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

Value = str | None
Function = Callable[[str], Value]


class _Classes(dict[int, str]):
    """Character -> what it looks like, filled as characters turn up."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character.isupper():
            kind = "X"
        elif character.isalpha():
            kind = "x"
        elif character.isdigit():
            kind = "d"
        else:
            kind = character
        self[code] = kind
        return kind


_CLASSES = _Classes()


def _shape(text: str) -> str:
    return text.translate(_CLASSES)


@lru_cache(maxsize=2**14)
def _collapsed(shape: str) -> str:
    return "".join(character for character, _ in groupby(shape))


def _collapsed_shape(text: str) -> str:
    return _collapsed(text.translate(_CLASSES))


def _prefix(count: int, text: str) -> Value:
    return text[:count] if len(text) >= count else None


def _suffix(count: int, text: str) -> Value:
    return text[-count:] if len(text) >= count else None


def _holds(test: Callable[[str], Any], text: str) -> Value:
    return "" if test(text) else None


def _true_or_false(test: Callable[[str], Any], text: str) -> str:
    return "true" if test(text) else "false"


def _found(search: Callable[[str], Any], text: str) -> Value:
    match = search(text)
    return match.group() if match else None


def _found_or_empty(search: Callable[[str], Any], text: str) -> str:
    match = search(text)
    return match.group() if match else ""


#: name -> what its argument is: nothing, a count, an optional word or a regular expression.
ARGUMENTS = {
    "lower": None,
    "upper": None,
    "prefix": "count",
    "suffix": "count",
    "shape": "collapse",
    "isdigit": None,
    "isupper": None,
    "istitle": None,
    "match": "regex",
    "find": "regex",
}
#: These have no value: a feature is there or it is not.
TESTS = frozenset({"isdigit", "isupper", "istitle", "match"})
#: Wapiti's commands, which give a value even where nothing matches; only its templates have them.
_WAPITI = {"%t": _true_or_false, "%m": _found_or_empty}

_PLAIN: dict[str, Function] = {
    "lower": str.lower,
    "upper": str.upper,
    "isdigit": partial(_holds, str.isdigit),
    "isupper": partial(_holds, str.isupper),
    "istitle": partial(_holds, str.istitle),
}


@dataclass(frozen=True)
class Call:
    """One function with its argument, as a template names it."""

    name: str
    argument: str | int | None = None

    @property
    def is_test(self) -> bool:
        """Whether it only says yes or nothing."""
        return self.name in TESTS

    def function(self) -> Function:
        """What to compute; ``re.error`` for a bad regular expression."""
        if self.name in _PLAIN:
            return _PLAIN[self.name]
        if self.name == "shape":
            return _shape if self.argument is None else _collapsed_shape
        if self.name in ("prefix", "suffix"):
            assert isinstance(self.argument, int)
            return partial(_prefix if self.name == "prefix" else _suffix, self.argument)
        search = re.compile(str(self.argument)).search
        if self.name in _WAPITI:
            return partial(_WAPITI[self.name], search)
        return partial(_holds if self.name == "match" else _found, search)


def check_call(name: str, argument: str | int | None) -> Call:
    """A call with its argument checked; a ``ValueError`` says what is wrong with it."""
    if name not in ARGUMENTS:
        raise ValueError(f"there is no function {name!r}: there are {', '.join(ARGUMENTS)}")
    wanted = ARGUMENTS[name]
    if wanted is None and argument is not None:
        raise ValueError(f"{name} takes no second argument, got {argument!r}")
    if wanted == "count" and not (isinstance(argument, int) and argument >= 1):
        raise ValueError(f"{name} wants a number of characters ≥ 1, e.g. {name}(word[0],3)")
    if wanted == "collapse" and argument not in (None, "collapse"):
        raise ValueError(f"{name} takes nothing or collapse, got {argument!r}")
    if wanted == "regex":
        if not isinstance(argument, str):
            raise ValueError(f"{name} wants a regular expression, e.g. {name}(word[0],'^[A-Z]')")
        try:
            re.compile(argument)
        except re.error as error:
            raise ValueError(f"{argument!r} is not a regular expression: {error}") from None
    return Call(name, argument)


def apply_calls(calls: Sequence[Call], values: Sequence[str]) -> list[Value]:
    """The calls, innermost first, on every value."""
    results: list[Value] = list(values)
    for call in calls:
        function = call.function()
        results = [None if value is None else function(value) for value in results]
    return results

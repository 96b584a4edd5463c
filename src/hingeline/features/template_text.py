"""Templates as people write them: CRF++ and Wapiti files, and strings such as ``"word[-1]"``.

Templates name functions of words, which are computed once per distinct value of a column. A
function maps a string to a string, or to None where it has nothing to say: a prefix of a word that
is too short, a test that fails. None gives no feature, alone or in a conjunction.
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
def _collapse(shape: str) -> str:
    return "".join(character for character, _ in groupby(shape))


def _collapse_shape(text: str) -> str:
    return _collapse(text.translate(_CLASSES))


def _prefix(count: int, text: str) -> Value:
    return text[:count] if len(text) >= count else None


def _suffix(count: int, text: str) -> Value:
    return text[-count:] if len(text) >= count else None


def _holds(test: Callable[[str], Any], text: str) -> Value:
    return "" if test(text) else None


def _say_whether(test: Callable[[str], Any], text: str) -> str:
    return "true" if test(text) else "false"


def _find(search: Callable[[str], Any], text: str, otherwise: Value = None) -> Value:
    match = search(text)
    return match.group() if match else otherwise


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
_WAPITI: dict[str, Any] = {"%t": _say_whether, "%m": partial(_find, otherwise="")}

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
            return _shape if self.argument is None else _collapse_shape
        if self.name in ("prefix", "suffix"):
            assert isinstance(self.argument, int)
            return partial(_prefix if self.name == "prefix" else _suffix, self.argument)
        search = re.compile(str(self.argument)).search
        if self.name in _WAPITI:
            return partial(_WAPITI[self.name], search)
        return partial(_holds if self.name == "match" else _find, search)


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


#: Templates look at most this far from their token.
FARTHEST = 1000


@dataclass(frozen=True)
class Term:
    """A value near the token: a column, what is computed of it, and how far away."""

    column: int
    calls: tuple[Call, ...]
    offset: int

    @property
    def source(self) -> tuple[int, tuple[Call, ...]]:
        """The term without its position."""
        return self.column, self.calls

    @property
    def is_test(self) -> bool:
        """Whether the term has no value of its own."""
        return bool(self.calls) and self.calls[-1].is_test


@dataclass(frozen=True)
class Template:
    """Terms with the text around them: ``literals[0] value literals[1] value …`` is the name.

    Templates with the same literals share their features, as CRF++'s do: a bag of words.
    """

    text: str
    literals: tuple[str, ...]
    terms: tuple[Term, ...]

    @property
    def sources(self) -> tuple[tuple[int, tuple[Call, ...]], ...]:
        """The terms without their positions."""
        return tuple(term.source for term in self.terms)


def parse_templates(templates: str | Sequence[str], names: Sequence[str]) -> list[Template]:
    """Templates from the text of a file or a list of strings, for columns of these names."""
    if isinstance(templates, str):
        parsed = _parse_file(templates, names)
        what = "the template text has no template: write lines such as U00:%x[0,0]."
    else:
        parsed = []
        for k, text in enumerate(templates):
            if not isinstance(text, str):
                raise TypeError(f"templates[{k}] must be a string, got {text!r}.")
            parsed.append(_parse_python(text, f"templates[{k}]", names))
        what = 'templates is empty: list strings such as "word[0]".'
    if not parsed:
        raise ValueError(what)
    first: dict[tuple[str, ...], Template] = {}
    for template in parsed:
        other = first.setdefault(template.literals, template)
        if other.sources != template.sources:
            raise ValueError(
                f"templates {other.text!r} and {template.text!r} have the same identifier but "
                "read different columns: give each its own."
            )
    return list(dict.fromkeys(parsed))


# Strings such as "word[-1]|lower(word[0])" --------------------------------------------------

_WORD = re.compile(r"\s*([^\s\[\](),|'\"]+)\s*")
_OFFSET = re.compile(r"\[\s*([+-]?\d+)\s*\]\s*")
_QUOTED = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\s*""")


class _Reader:
    """Reads one template from left to right."""

    def __init__(self, text: str, where: str, names: Sequence[str]) -> None:
        self.text, self.where, self.names = text, where, names
        self.at = 0

    def fail(self, why: str) -> ValueError:
        return ValueError(f"{self.where}={self.text!r}: {why}.")

    def next(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def skip(self, mark: str) -> bool:
        if self.text.startswith(mark, self.at):
            self.at += 1
            return True
        return False

    def template(self) -> list[Term]:
        terms = [self.term()]
        while self.skip("|"):
            terms.append(self.term())
        if self.at != len(self.text):
            raise self.fail(f"{self.text[self.at :]!r} was not expected")
        return terms

    def term(self) -> Term:
        word = self.next(_WORD)
        if word is None:
            raise self.fail("a column such as word[0] or a function of one is missing")
        if not self.skip("("):
            return self.column(word.group(1))
        inner = self.term()
        argument: str | int | None = None
        if self.skip(","):
            argument = self.argument()
        if not self.skip(")"):
            raise self.fail("a closing ) is missing")
        self.next(re.compile(r"\s*"))
        try:
            call = check_call(word.group(1), argument)
        except ValueError as error:
            raise self.fail(str(error)) from None
        return Term(inner.column, (*inner.calls, call), inner.offset)

    def argument(self) -> str | int:
        quoted = self.next(_QUOTED)
        if quoted:
            single, double = quoted.groups()
            if single is not None:
                return str(single.replace("\\'", "'"))
            return str(double.replace('\\"', '"'))
        word = self.next(_WORD)
        if word is None:
            raise self.fail("an argument is missing after the comma")
        return int(word.group(1)) if word.group(1).isdecimal() else str(word.group(1))

    def column(self, name: str) -> Term:
        offset = self.next(_OFFSET)
        if offset is None:
            hint = f"{name}(word[0])" if name in ARGUMENTS else f"{name}[0]"
            raise self.fail(f"{name!r} needs a position, e.g. {hint}")
        try:
            position = column_position(name, self.names)
        except ValueError as error:
            raise self.fail(str(error)) from None
        return Term(position, (), _check_offset(int(offset.group(1)), self.fail))


def _check_offset(offset: int, fail: Callable[[str], ValueError]) -> int:
    if abs(offset) > FARTHEST:
        raise fail(f"position {offset} is farther than {FARTHEST} tokens away")
    return offset


def column_position(name: str, names: Sequence[str]) -> int:
    """The number of a column given by name or, where no column has that name, by number."""
    if name in names:
        return list(names).index(name)
    if name.isdecimal():
        if int(name) < len(names):
            return int(name)
        raise ValueError(f"there is no column {name}: there are {len(names)}, counted from 0")
    raise ValueError(f"there is no column {name!r}: there are {', '.join(map(repr, names))}")


def _parse_python(text: str, where: str, names: Sequence[str]) -> Template:
    terms = _Reader(text, where, names).template()
    written = [write_term(term, names) for term in terms]
    pieces = [
        text if term.is_test else f"{text}=" for text, term in zip(written, terms, strict=True)
    ]
    literals = (pieces[0], *(f"|{piece}" for piece in pieces[1:]), "")
    return Template("|".join(written), literals, tuple(terms))


def write_term(term: Term, names: Sequence[str]) -> str:
    """The one way to write a term."""
    text = f"{names[term.column]}[{term.offset}]"
    for call in term.calls:
        if call.argument is None:
            text = f"{call.name}({text})"
        elif ARGUMENTS[call.name] == "regex":
            quoted = str(call.argument).replace("'", "\\'")
            text = f"{call.name}({text},'{quoted}')"
        else:
            text = f"{call.name}({text},{call.argument})"
    return text


# Files of CRF++ and Wapiti -----------------------------------------------------------------------

_MACRO = re.compile(r'%(.)\[([@*]?)([+-]?\d+),(\d+)(?:,"((?:[^"\\]|\\.)*)")?\]')
#: Wapiti's classes of characters; a capital is the complement.
_WAPITI_CLASSES = {
    "a": r"[^\W\d_]", "d": r"\d", "l": r"[a-z]", "p": r"[!-/:-@\[-`{-~]", "s": r"\s", "u": r"[A-Z]",
    "w": r"[^\W_]", "A": r"[\W\d_]", "D": r"\D", "L": r"[^a-z]", "P": r"[^!-/:-@\[-`{-~]",
    "S": r"\S", "U": r"[^A-Z]", "W": r"[\W_]",
}  # fmt: skip


def _parse_file(text: str, names: Sequence[str]) -> list[Template]:
    templates = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        where = f"template line {number}, {line!r}"
        if not line or line.startswith("#"):
            continue
        kind = line[0].upper()
        if kind == "U":
            templates.append(_parse_line(line, where, names))
        elif kind == "B":
            if "%" in line:
                raise ValueError(
                    f"{where}: observations on pairs of labels are not part of the chain, whose "
                    "label pairs have one weight each; write a plain B and the observation as U."
                )
        elif kind == "*":
            raise ValueError(
                f"{where}: Wapiti's * is a U and a B template in one, and observations on pairs "
                "of labels are not part of the chain; write it as U."
            )
        else:
            raise ValueError(
                f"{where}: a template starts with U (or is a plain B); for strings such as "
                '"word[-1]|word[0]" pass a list.'
            )
    return templates


def _parse_line(line: str, where: str, names: Sequence[str]) -> Template:
    literals, terms, at = [], [], 0
    for macro in _MACRO.finditer(line):
        command, mark, offset, column, regex = macro.groups()
        literals.append(line[at : macro.start()])
        at = macro.end()
        if mark:
            kind = "absolute" if mark == "@" else "indirect"
            raise ValueError(
                f"{where}: Wapiti's {kind} position {mark}{offset} is not supported; use a "
                "position relative to the token."
            )
        calls: tuple[Call, ...] = ()
        if command in "xX" and regex is None:
            pass
        elif command in "tTmM" and regex is not None:
            calls = (Call(f"%{command.lower()}", _translate(regex, where)),)
        else:
            raise ValueError(f"{where}: {macro.group()} is not %x[row,col] nor %t or %m.")
        if command.isupper():
            calls = (*calls, Call("lower"))
        if int(column) >= len(names):
            raise ValueError(
                f"{where}: there is no column {column}; there are {len(names)}, counted from 0 "
                "and without the labels."
            )
        offset_ = _check_offset(int(offset), lambda why: ValueError(f"{where}: {why}."))
        terms.append(Term(int(column), calls, offset_))
    literals.append(line[at:])
    if any("%" in literal for literal in literals):
        raise ValueError(f"{where}: a % is not part of a %x[row,col].")
    return Template(line, tuple(literals), tuple(terms))


def _translate(regex: str, where: str) -> str:
    """Wapiti's regular expression as Python's: ``^ $ . * ?`` and classes; its * is lazy."""
    out, k = [], 0
    while k < len(regex):
        character = regex[k]
        if character == "\\" and k + 1 < len(regex):
            k += 1
            out.append(_WAPITI_CLASSES.get(regex[k]) or re.escape(regex[k]))
        elif character in "*?":
            if not out or out[-1] in ("^", "*?", "?"):
                raise ValueError(f"{where}: {character} repeats nothing; write \\{character}.")
            out.append("*?" if character == "*" else "?")
        elif (character == "^" and k == 0) or character == ".":
            out.append(character)
        elif character == "$" and k == len(regex) - 1:
            out.append(r"\Z")
        else:
            out.append(re.escape(character))
        k += 1
    return "".join(out)

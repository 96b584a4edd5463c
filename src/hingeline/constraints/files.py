r"""Constraints from TOML files, and as plain data in model files.

A table's header names the kind of constraint, its keys are those of the Python class::

    [defaults]              # optional: weight, penalty, hard of all constraints
    weight = 1000

    [[starts_with]]
    labels = ["author", "editor"]

    [[words]]
    pattern = '(19|20)\d\d'   # or words = ["a", "list"]
    label = "date"

    [[share]]
    label = "author"
    equals = 0.30
"""

import difflib
import inspect
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

from hingeline.constraints import rules
from hingeline.constraints.base import PUNCTUATION, Constraint, CorpusConstraint, InstanceConstraint

_KINDS: dict[str, Any] = {"label_shares": rules.Share.from_labels} | {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): kind
    for name, kind in vars(rules).items()
    if isinstance(kind, type) and issubclass(kind, (CorpusConstraint, InstanceConstraint))
    if kind.__module__ == rules.__name__ and name[0] != "_" and kind is not rules.Predicate
}
_COMMON = ("weight", "penalty", "hard")
_SHIPPED = ("citations", "seminars")
_HEADER = re.compile(r"\s*\[\[?\s*[\"']?([\w.-]+)[\"']?\s*\]\]?\s*(#.*)?$")
_ENTRY = re.compile(r"\s*[\"']?([\w-]+)[\"']?\s*[=.]")


def load_constraints(
    source: str | PathLike[str], y: Iterable[Any] | None = None
) -> list[Constraint]:
    """Read constraints from a TOML file.

    Parameters
    ----------
    source : str or path
        A file, or the name of a set that comes with the library: ``"citations"`` (fields of a
        citation, as in the literature) or ``"seminars"`` (seminar announcements, IOB2 tags).
    y : iterable of label sequences, the labelled set that ``[label_shares]`` needs; optional

    Examples
    --------
    >>> load_constraints("citations")[0].labels
    ('author', 'editor')
    """
    path: Any = Path(source)
    name = str(source)
    if path.is_dir():
        raise IsADirectoryError(f"{source} is a folder; pass a TOML file.")
    if not path.exists():
        if name not in _SHIPPED:
            how = "pass a TOML file or one of the sets that come with the library"
            raise FileNotFoundError(f"{source}: no such file; {how}: {', '.join(_SHIPPED)}.")
        name += ".toml"
        path = resources.files("hingeline.constraints") / name
    return _File(name, path.read_bytes(), y).read()


def write_rule(rule: Constraint) -> dict[str, Any]:
    """A constraint as plain data; empty for a kind of one's own and where a field is a function."""
    kinds = {kind: name for name, kind in _KINDS.items() if isinstance(kind, type)}
    values = {field.name: getattr(rule, field.name) for field in fields(rule)}
    if type(rule) not in kinds or any(map(callable, values.values())):
        return {}
    return {"kind": kinds[type(rule)]} | {name: _thaw(value) for name, value in values.items()}


def read_rule(stored: Mapping[str, Any]) -> Constraint:
    """What :func:`write_rule` wrote; a ``ValueError`` where it makes no sense."""
    try:
        values = {name: _freeze(value) for name, value in stored.items()}
        rule = _KINDS[values.pop("kind")](*values.pop("labels", ()), **values)
        if isinstance(rule, Constraint):
            hash(rule)  # labels that are no labels would fail when they are looked up
            return rule
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise ValueError(f"{stored!r:.60} is not a constraint: get a fresh copy of the model.")


class _File:
    """One file: its tables, and the lines they come from."""

    def __init__(self, name: str, content: bytes, y: Iterable[Any] | None) -> None:
        self.name, self.y = name, y
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise self.error("the file is not UTF-8; save it as UTF-8.", line) from None
        #: (kind, number of the table[, key]) -> the line where it stands.
        self.places: dict[tuple[Any, ...], int] = {}
        here: tuple[Any, ...] = ()
        for n, line_text in enumerate(text.splitlines(), start=1):
            if match := _HEADER.match(line_text):
                earlier = sum(place[0] == match[1] and len(place) == 2 for place in self.places)
                here = (match[1], earlier)
                self.places[here] = n
            elif match := _ENTRY.match(line_text):
                self.places.setdefault((*here, match[1]) if here else (match[1], 0), n)
        try:
            self.tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
            line = int(found[1]) if found else max(len(text.splitlines()), 1)
            reason = str(error).split(" (at ")[0]
            what = f"this is not TOML: {reason}; strings need quotes, lists square brackets."
            raise self.error(what, line) from None

    def error(self, message: str, *place: Any) -> ValueError:
        """An error at a line; or at a table, by kind and number, or at a key of it."""
        line = place[0] if isinstance(place[0], int) else self.find_line(*place)
        return ValueError(f"{self.name}:{line}: {message}")

    def find_line(self, kind: str, number: int = 0, key: str | None = None) -> int:
        """The line of a table's header, or of a key in it; as near as the text tells."""
        places = ((kind, number, key), (kind, number), (kind, 0))
        return next((self.places[place] for place in places if place in self.places), 1)

    def read(self) -> list[Constraint]:
        self.defaults = self.tables.pop("defaults", {})
        if not isinstance(self.defaults, dict):
            raise self.error("defaults must be one table: write [defaults] on a line.", "defaults")
        self.check_keys("[defaults]", self.defaults, _COMMON, "defaults", 0)
        found: list[tuple[int, list[Constraint]]] = []
        for kind, tables in self.tables.items():
            if kind not in _KINDS:
                text = f"there is no constraint [[{kind}]]{_suggest(kind, _KINDS)}; there are "
                raise self.error(f"{text}{', '.join(sorted(_KINDS))}.", kind)
            if isinstance(tables, dict):
                tables = [tables]
            if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
                raise self.error(f"{kind} must be a table: write [[{kind}]] on a line.", kind)
            for number, table in enumerate(tables):
                found.append((self.find_line(kind, number), self.make(table, kind, number)))
        if not found:
            raise self.error("the file names no constraint, as [[starts_with]] would.", 1)
        found.sort(key=lambda item: item[0])  # in the order of the file
        return [constraint for _, made in found for constraint in made]

    def check_keys(self, name: str, table: Any, known: Collection[str], *place: Any) -> None:
        for key in table:
            if key not in known:
                text = f"{name} has no key {key!r}{_suggest(key, known)}; it has "
                raise self.error(f"{text}{', '.join(known)}.", *place, key)

    def make(self, table: dict[str, Any], *place: Any) -> list[Constraint]:
        kind = place[0]
        build, keys = _KINDS[kind], _list_keys(kind)
        self.check_keys(f"[[{kind}]]", table, keys, *place)
        values = self.translate(table, *place)
        needed = [key for key, must in keys.items() if must and key not in values]
        if needed:
            wanted = "words (a list) or pattern" if needed[0] == "words" else needed[0]
            raise self.error(f"[[{kind}]] needs the key {wanted}.", *place)
        labels = values.pop("labels", [])
        given = map(_freeze, labels if isinstance(labels, list) else [labels])
        try:
            if kind != "label_shares":
                return [build(*given, **self.defaults | values)]
            if self.y is None:
                raise ValueError("label_shares needs the labelled set: pass y=.")
            return list(build(self.y, **self.defaults | values))
        except (TypeError, ValueError) as error:
            reason = re.sub(r"^[A-Z][A-Za-z]+(: | (?=needs))", "", str(error))
            culprit = self.find_culprit(table, str(error), *place)
            raise self.error(f"[[{kind}]] {reason}", *culprit) from None

    def find_culprit(self, table: dict[str, Any], reason: str, *place: Any) -> tuple[Any, ...]:
        """What a message of a class speaks of."""
        for key in table:
            shown = {"pattern": "regular expression"}.get(key, key)
            if re.search(rf"\b{re.escape(shown)}\b", reason):
                return (*place, key)
        for key in self.defaults:
            if key in reason:
                return ("defaults", 0, key)
        labels = [key for key in table if key.startswith("label") and "label" in reason]
        return (*place, *labels[:1])

    def translate(self, table: dict[str, Any], *place: Any) -> dict[str, Any]:
        """From the keys of a file to those of the classes."""
        kind, values, wrong = place[0], dict(table), {}
        if kind in ("words", "only_words", "change_only_at", "change_share"):
            target = "words" if "words" in kind else "where"
            given = values.get(target)
            if target == "where" and given == "punctuation":
                values["where"] = PUNCTUATION
            elif isinstance(given, str):
                other = ' or where = "punctuation"' if target == "where" else ""
                text = f"must be a list of words; write pattern = for a regular expression{other}."
                wrong[target] = f"{target} {text}"
            if "pattern" in values:
                values[target] = pattern = values.pop("pattern")
                if given is not None:
                    wrong["pattern"] = f"takes {target} or pattern, not both."
                elif not isinstance(pattern, str):
                    wrong["pattern"] = f"pattern must be a string, got {pattern!r}."
        for key in {"label", "after", "first", "second"} & values.keys():
            values[key] = _freeze(values[key])
        for key in ("ignore_case", "start", "hard"):
            if not isinstance(values.get(key, False), bool):
                wrong[key] = f"{key} must be true or false, got {values[key]!r}."
        for key, text in wrong.items():
            raise self.error(f"[[{kind}]] {text}", *place, key)
        return values


def _list_keys(kind: str) -> dict[str, bool]:
    """The keys that a table of this kind may have, and whether it must; classes check labels."""
    keys: dict[str, bool] = {}
    for name, parameter in inspect.signature(_KINDS[kind]).parameters.items():
        if name == "common":
            keys |= dict.fromkeys([*_COMMON, "scale" if kind == "label_shares" else "name"], False)
        elif name != "y":
            keys[name] = parameter.default is parameter.empty and name != "labels"
            if name in ("words", "where"):
                keys["pattern"] = False
    return keys


def _freeze(value: Any) -> Any:
    return tuple(map(_freeze, value)) if isinstance(value, list) else value


def _thaw(value: Any) -> Any:
    if isinstance(value, tuple):
        return [*map(_thaw, value)]
    return value.item() if hasattr(value, "item") else value


def _suggest(word: str, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean {near[0]}?)" if near else ""

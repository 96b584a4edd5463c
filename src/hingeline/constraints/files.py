r"""Constraints from TOML files.

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
from collections.abc import Iterable
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
    y : iterable of label sequences, the labelled set that ``[label_shares]`` asks for; optional

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


class _File:
    """One file: its tables, and the lines they come from."""

    def __init__(self, name: str, content: bytes, y: Iterable[Any] | None) -> None:
        self.name = name
        self.y = y
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise self.error(line, "the file is not UTF-8; save it as UTF-8.") from None
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
            what = f"this is not TOML: {reason}; strings want quotes, lists square brackets."
            raise self.error(line, what) from None

    def error(self, line: int, message: str) -> ValueError:
        return ValueError(f"{self.name}:{line}: {message}")

    def complain(self, kind: str, number: int, key: str | None, message: str) -> ValueError:
        """An error at a key of a table."""
        return self.error(self.find_line(kind, number, key), f"[[{kind}]] {message}")

    def read(self) -> list[Constraint]:
        self.check_defaults()
        found: list[tuple[int, list[Constraint]]] = []
        for kind, tables in self.tables.items():
            if kind == "defaults":
                continue
            line = self.find_line(kind, 0)
            if kind not in _KINDS:
                text = f"there is no constraint [[{kind}]]{_suggest(kind, _KINDS)}; there are "
                raise self.error(line, f"{text}{', '.join(sorted(_KINDS))}.")
            if isinstance(tables, dict):
                tables = [tables]
            if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
                raise self.error(line, f"{kind} must be a table: write [[{kind}]] on a line.")
            for number, table in enumerate(tables):
                found.append((self.find_line(kind, number), self.make(kind, number, table)))
        if not found:
            raise self.error(1, "the file names no constraint, as [[starts_with]] would.")
        found.sort(key=lambda item: item[0])  # in the order of the file
        return [constraint for _, made in found for constraint in made]

    def check_defaults(self) -> None:
        self.defaults = self.tables.get("defaults", {})
        if not isinstance(self.defaults, dict):
            line = self.find_line("defaults", 0)
            raise self.error(line, "defaults must be one table: write [defaults] on a line.")
        for key in self.defaults:
            if key not in _COMMON:
                known, near = ", ".join(_COMMON), _suggest(key, _COMMON)
                line = self.find_line("defaults", 0, key)
                raise self.error(line, f"[defaults] knows {known}, not {key!r}{near}.")

    def make(self, kind: str, number: int, table: dict[str, Any]) -> list[Constraint]:
        build, keys = _KINDS[kind], _list_keys(kind)
        for key in table:
            if key not in keys:
                text = f"has no key {key!r}{_suggest(key, keys)}; it has {', '.join(keys)}."
                raise self.complain(kind, number, key, text)
        values = self.translate(kind, number, table)
        needed = [key for key, must in keys.items() if must and key not in values]
        if needed:
            wanted = "words (a list) or pattern" if needed[0] == "words" else needed[0]
            raise self.complain(kind, number, None, f"needs the key {wanted}.")
        labels = values.pop("labels", [])
        given = map(_freeze, labels if isinstance(labels, list) else [labels])
        try:
            if kind != "label_shares":
                return [build(*given, **self.defaults | values)]
            if self.y is None:
                raise ValueError("label_shares needs the labelled set: pass y=.")
            return list(build(self.y, **self.defaults | values))
        except (TypeError, ValueError) as error:
            line = self.find_culprit(kind, number, table, str(error))
            reason = re.sub(r"^[A-Z][A-Za-z]+(: | (?=needs))", "", str(error))
            raise self.error(line, f"[[{kind}]] {reason}") from None

    def find_culprit(self, kind: str, number: int, table: dict[str, Any], reason: str) -> int:
        """The line that a message of a class speaks of."""
        for key in table:
            shown = {"pattern": "regular expression"}.get(key, key)
            if re.search(rf"\b{re.escape(shown)}\b", reason):
                return self.find_line(kind, number, key)
        for key in self.defaults:
            if key in reason:
                return self.find_line("defaults", 0, key)
        labels = [key for key in table if key.startswith("label") and "label" in reason]
        return self.find_line(kind, number, *labels[:1])

    def translate(self, kind: str, number: int, table: dict[str, Any]) -> dict[str, Any]:
        """From the keys of a file to those of the classes."""
        values = dict(table)
        if kind in ("words", "only_words", "change_only_at", "change_share"):
            target = "words" if "words" in kind else "where"
            given = values.get(target)
            if target == "where" and given == "punctuation":
                values["where"] = PUNCTUATION
            elif isinstance(given, str):
                other = ' or where = "punctuation"' if target == "where" else ""
                text = f"must be a list of words; write pattern = for a regular expression{other}."
                raise self.complain(kind, number, target, f"{target} {text}")
            if "pattern" in values:
                values[target] = pattern = values.pop("pattern")
                if given is not None or not isinstance(pattern, str):
                    text = f"pattern must be a string, got {pattern!r}."
                    text = text if given is None else f"takes {target} or pattern, not both."
                    raise self.complain(kind, number, "pattern", text)
        for key in ("label", "after", "first", "second"):
            if key in values:
                values[key] = _freeze(values[key])
        for key in ("ignore_case", "start", "hard"):
            if not isinstance(values.get(key, False), bool):
                text = f"{key} must be true or false, got {values[key]!r}."
                raise self.complain(kind, number, key, text)
        return values

    def find_line(self, kind: str, number: int, key: str | None = None) -> int:
        """The line of a table's header, or of a key in it; as near as the text tells."""
        places = ((kind, number, key), (kind, number), (kind, 0))
        return next((self.places[place] for place in places if place in self.places), 1)


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


def _suggest(word: str, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean {near[0]}?)" if near else ""

"""ARFF with sets of labels, as Mulan and MEKA use it."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

import numpy as np
import scipy.sparse as sp

from hingeline.data.samples import MultilabelData
from hingeline.data.text import (
    Source,
    Target,
    TextSource,
    atomic_text,
    file_beside,
    number_text,
    open_text,
    shown,
)

# Mulan's XML file that names the labels of an ARFF file.


def read_mulan_labels(source: Source) -> list[str]:
    """Read the names of labels from Mulan's XML file, nested ones after those around them.

    XML that is malformed or declares a document type is refused: entities are not expanded.
    """
    names: list[str] = []
    with open_text(source) as text:
        parser = expat.ParserCreate(encoding="utf-8")

        def refuse(*_: Any) -> None:
            raise text.error(
                parser.CurrentLineNumber, "a document type is declared; remove the declaration."
            )

        def start(tag: str, given: dict[str, str]) -> None:
            if tag.rpartition(":")[2] == "label":
                if not given.get("name"):
                    raise text.error(parser.CurrentLineNumber, "a label has no name; add name=….")
                names.append(given["name"])

        parser.StartDoctypeDeclHandler = refuse
        parser.StartElementHandler = start
        try:
            for _, lines in text.blocks():
                parser.Parse(b"\n".join(lines) + b"\n", False)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise text.error(
                error.lineno, f"the XML is malformed ({expat.ErrorString(error.code)}); correct it."
            ) from None
        if not names:
            raise text.error(None, "there is no <label name=…>; is this Mulan's list of labels?")
        return names


def write_mulan_labels(target: Target, names: Sequence[str]) -> None:
    """Write names of labels as Mulan's XML file."""
    with atomic_text(target) as out:
        out.write('<?xml version="1.0" encoding="utf-8"?>\n')
        out.write('<labels xmlns="http://mulan.sourceforge.net/labels">\n')
        for name in names:
            out.write(f"<label name={quoteattr(name)}></label>\n")
        out.write("</labels>\n")


# The header of an ARFF file: its attributes, and how values are written.

_NUMERIC = ("numeric", "real", "integer")
#: A quoted text with backslash escapes, in two groups; linear in its length.
QUOTED = r"""'([^'\\]*(?:\\.[^'\\]*)*)'|"([^"\\]*(?:\\.[^"\\]*)*)\""""
_NAME = re.compile(rf"(?:{QUOTED}|([^\s'\"{{][^\s{{]*))(?=[\s{{])")
#: A value of a list and the comma behind it; possessive, so that it takes linear time.
_VALUE = re.compile(rf"\s*+(?:(?:{QUOTED})\s*+|([^,'\"{{}}]*+))(?:(,)|\Z)")


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


def _content(text: TextSource) -> Iterator[tuple[int, str]]:
    """Lines that are neither blank nor comments, without blanks at their ends."""
    for number, line in text.lines():
        stripped = line.strip()
        if stripped and not stripped.startswith("%"):
            yield number, stripped


def read_header(text: TextSource, lines: Iterator[tuple[int, str]]) -> list[Attribute]:
    """The attributes, in order; takes the lines up to and including ``@data``."""
    attributes: list[Attribute] = []
    seen: set[str] = set()
    number = 1
    for number, stripped in lines:
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
        return plain.rstrip()
    return re.sub(r"\\(.)", r"\1", single if single is not None else double)


def split_values(text: str) -> list[str] | None:
    """Values between commas, quotes undone; None if malformed."""
    if "'" not in text and '"' not in text:
        if "{" in text or "}" in text:
            return None
        return [value.strip() for value in text.split(",")]
    values: list[str] = []
    position = 0
    while match := _VALUE.match(text, position):
        values.append(chosen(match))
        if match.group(4) is None:
            return values
        position = match.end()
    return None


Array = np.ndarray[Any, Any]

_PAIR = re.compile(rf"\s*([0-9]+)\s+(?:{QUOTED}|([^,{{}}'\"\s]+))\s*(?:(,)|$)")
#: Most columns for which names are made up; a file of a few bytes may have billions.
_MAX_UNNAMED = 1_000_000
_PLAIN = re.compile(r"[^\s'\",{}%\\?]+")


def read_arff(source: Source, labels: Source | Sequence[str] | int | None = None) -> MultilabelData:
    r"""Read an ARFF file, dense or sparse.

    Attributes may be numeric or nominal. A nominal value that is a number stands for itself if
    all values of its attribute are numbers; otherwise values are numbered from 0 as declared.

    Parameters
    ----------
    source : path, "-", file object or TextSource
        UTF-8, gzipped or not.
    labels : path, file object, list of str or int, optional
        Which attributes are labels: a Mulan XML file, names, or a number of attributes, counted
        from the end if negative. They must have the values 0 and 1. Default: none.

    Returns
    -------
    MultilabelData
        ``X`` is dense where the file's rows are, else sparse.

    Raises
    ------
    ParseError
        Missing values (``?``), undeclared values, attributes of other types, malformed lines.

    Examples
    --------
    >>> import io
    >>> text = "@relation r\n@attribute a numeric\n@attribute b {0,1}\n@data\n2.5,1\n"
    >>> data = read_arff(io.StringIO(text), labels=["b"])
    >>> data.X.tolist(), data.Y.toarray().tolist(), data.label_names
    ([[2.5]], [[1]], ['b'])
    """
    with open_text(source) as text:
        lines = _content(text)
        attributes = read_header(text, lines)
        names = [attribute.name for attribute in attributes]
        wanted = _label_columns(text, names, labels)
        rows = _Rows(text, attributes)
        for number, line in lines:
            rows.add(number, line)
        matrix = rows.matrix()
        is_label = np.zeros(len(names), dtype=bool)
        is_label[wanted] = True
        Y = sp.csr_matrix(matrix[:, wanted])
        rows.check_indicator(Y, [names[k] for k in wanted])
        kept = np.flatnonzero(~is_label)
        return MultilabelData(
            matrix[:, kept],
            Y.astype(np.uint8),
            [names[k] for k in kept],
            [names[k] for k in wanted],
        )


def _label_columns(text: TextSource, names: list[str], labels: Any) -> list[int]:
    if labels is None:
        return []
    if isinstance(labels, (int, np.integer)):
        if abs(int(labels)) > len(names):
            raise text.error(
                None, f"labels is {labels}, but there are {len(names)} attributes; give fewer."
            )
        columns = list(range(len(names)))
        return columns[: int(labels)] if labels >= 0 else columns[int(labels) :]
    if not isinstance(labels, (list, tuple)):
        labels = read_mulan_labels(labels)
    numbers = {name: k for k, name in enumerate(names)}
    for label in labels:
        if label not in numbers:
            raise text.error(
                None,
                f"the label {shown(str(label))} is not among the attributes; name the labels file "
                "that belongs to this file.",
            )
    return [numbers[label] for label in dict.fromkeys(labels)]


# Data -------------------------------------------------------------------------------------------


class _Rows:
    """The rows of an ARFF file; all dense or all sparse."""

    def __init__(self, text: TextSource, attributes: list[Attribute]) -> None:
        self.text = text
        self.attributes = attributes
        self.sparse: bool | None = None
        self._columns = array("q")
        self._values = array("d")
        self._starts = array("q", [0])
        self._lines = array("q")
        # Where every value is a plain number, rows are read at once and checked at the end.
        self._numbers_only = all(
            a.values is None or all(_is_number(v) for v in a.values) for a in attributes
        )

    def add(self, number: int, row: str) -> None:
        """Read a row, given without blanks at its ends."""
        sparse = row.startswith("{")
        if self.sparse is None:
            self.sparse = sparse
            if sparse:
                self._check_omitted(number)
        if sparse != self.sparse:
            raise self.text.error(
                number, "sparse rows {…} and dense rows are mixed; write all rows in one way."
            )
        done = len(self._values), len(self._columns)
        try:
            if not self._numbers_only or "_" in row:
                raise ValueError
            if sparse:
                self._quick_sparse(row)
            else:
                fields = row.split(",")
                if len(fields) != len(self.attributes):
                    raise ValueError
                self._values.extend(map(float, fields))
        except (ValueError, OverflowError):
            del self._values[done[0] :], self._columns[done[1] :]
            (self._slow_sparse if sparse else self._slow_dense)(number, row)
        self._starts.append(len(self._values))
        self._lines.append(number)

    def _quick_sparse(self, row: str) -> None:
        if not row.endswith("}"):
            raise ValueError
        for item in row[1:-1].split(",") if row[1:-1].strip() else ():
            column, value = item.split()
            self._columns.append(int(column))
            self._values.append(float(value))

    def _slow_dense(self, number: int, row: str) -> None:
        values = split_values(row)
        if values is None or len(values) != len(self.attributes):
            found = "a malformed row" if values is None else f"{len(values)} values"
            raise self.text.error(
                number,
                f"expected {len(self.attributes)} values separated by commas, found {found}; "
                "correct the line.",
            )
        self._values.extend(
            self._number(number, attribute, value)
            for attribute, value in zip(self.attributes, values, strict=True)
        )

    def _slow_sparse(self, number: int, row: str) -> None:
        inner = row[1:-1]
        position = 0 if inner.strip() else len(inner) + 1
        while position <= len(inner):
            match = _PAIR.match(inner, position) if row.endswith("}") else None
            if match is None:
                raise self.text.error(
                    number, f"{shown(row)} is not a row such as {{0 1, 3 2.5}}; correct the line."
                )
            if len(match.group(1)) > 9 or int(match.group(1)) >= len(self.attributes):
                raise self._no_column(number, match.group(1))
            k = int(match.group(1))
            self._columns.append(k)
            self._values.append(self._number(number, self.attributes[k], chosen(match, 2)))
            position = match.end() if match.group(5) else len(inner) + 1

    def _number(self, line: int, attribute: Attribute, value: str) -> float:
        if value == "?":
            raise self.text.error(
                line,
                f"the value of {shown(attribute.name)} is missing (?); fill it in or drop the row.",
            )
        try:
            return attribute.number(value)
        except ValueError as error:
            raise self.text.error(
                line,
                f"the value {shown(value)} of {shown(attribute.name)} {error}; correct the line.",
            ) from None

    def _no_column(self, line: int, column: str) -> Exception:
        return self.text.error(
            line,
            f"there is no attribute {shown(column)}, they are numbered 0 to "
            f"{len(self.attributes) - 1}; correct the line.",
        )

    def _check_omitted(self, number: int) -> None:
        """In sparse rows what is left out is the first nominal value, which must be 0 for us."""
        for attribute in self.attributes:
            if attribute.values is not None and next(iter(attribute.values.values())) != 0.0:
                raise self.text.error(
                    number,
                    f"sparse rows leave out the first value of {shown(attribute.name)}, which is "
                    "not 0; declare 0 first.",
                )

    def matrix(self) -> Any:
        """All rows, checked."""
        values = np.array(self._values, dtype=np.float64)
        if not self.sparse:
            dense = values.reshape(-1, len(self.attributes))
            for k, attribute in enumerate(self.attributes):
                self._check_column(attribute, dense[:, k], np.arange(len(dense)))
            return dense
        columns = np.array(self._columns, dtype=np.int64)
        starts = np.array(self._starts, dtype=np.int64)
        rows = np.repeat(np.arange(len(self._lines)), np.diff(starts))
        if (wrong := (columns < 0) | (columns >= len(self.attributes))).any():
            k = int(np.argmax(wrong))
            raise self._no_column(self._lines[int(rows[k])], str(columns[k]))
        shape = (len(self._lines), len(self.attributes))
        order = np.lexsort((columns, rows))
        same = np.diff(columns[order]) == 0
        same &= np.diff(rows[order]) == 0
        if same.any():
            k = int(order[1:][same][0])
            raise self.text.error(
                self._lines[int(rows[k])], f"attribute {columns[k]} occurs twice; give it once."
            )
        matrix = sp.csr_matrix(
            (values[order], columns[order].astype(np.int32), starts), shape=shape
        )
        by_column = np.argsort(columns, kind="stable")
        cuts = np.searchsorted(columns[by_column], np.arange(len(self.attributes) + 1))
        for attribute, (lo, hi) in zip(self.attributes, pairwise(cuts.tolist()), strict=True):
            entries = by_column[lo:hi]
            self._check_column(attribute, values[entries], rows[entries])
        matrix.eliminate_zeros()
        return matrix

    def _check_column(self, attribute: Attribute, values: Array, rows: Array) -> None:
        """Finite numbers, and for nominal attributes declared ones; rows tell the lines."""
        good = np.isfinite(values)
        if attribute.values is not None:
            good &= np.isin(values, list(attribute.values.values()))
        if not good.all():
            k = int(np.argmin(good))
            what = "declared" if attribute.values is not None else "a finite number"
            raise self.text.error(
                self._lines[int(rows[k])],
                f"the value {values[k]:g} of {shown(attribute.name)} is not {what}; correct the "
                "line.",
            )

    def check_indicator(self, Y: sp.csr_matrix, names: list[str]) -> None:
        """Labels must be 0 or 1."""
        if (wrong := Y.data != 1.0).any():
            k = int(np.argmax(wrong))
            row = int(np.searchsorted(Y.indptr, k, side="right")) - 1
            raise self.text.error(
                self._lines[row],
                f"the label {shown(names[Y.indices[k]])} is {Y.data[k]:g}; labels must be 0 or 1.",
            )


def _is_number(text: str) -> bool:
    try:
        Attribute("").number(text)
    except ValueError:
        return False
    return True


def write_arff(target: Target, data: MultilabelData, relation: str = "data") -> None:
    """Write rows with labels as ARFF, labels last; sparse rows if X is sparse.

    Parameters
    ----------
    target : path, "-" or file object
        Compressed if the name ends in ``.gz``.
    data : MultilabelData
        Features and labels without names are called ``x1, x2, …`` and ``label0, label1, …``.
    relation : str, default="data"
        Name of the relation.
    """
    n_features, n_labels = data.X.shape[1], data.Y.shape[1]
    features, labels = attribute_names(data)
    if len(features) != n_features or len(labels) != n_labels:
        raise ValueError("there must be as many names as features and labels.")
    if len(set(features) | set(labels)) < n_features + n_labels:
        raise ValueError("two features or labels have the same name: rename one.")
    dense = not sp.issparse(data.X)
    matrix = sp.csr_matrix(sp.hstack([sp.csr_matrix(data.X), data.Y.astype(np.float64)]))
    matrix.sum_duplicates()
    if not np.all(np.isfinite(matrix.data)):
        raise ValueError("X has values that are not finite: they cannot be written.")
    with atomic_text(target) as out:
        out.write(f"@relation {_quote(relation)}\n\n")
        out.writelines(f"@attribute {_quote(name)} numeric\n" for name in features)
        out.writelines(f"@attribute {_quote(name)} {{0,1}}\n" for name in labels)
        out.write("\n@data\n")
        for lo, hi in pairwise(matrix.indptr.tolist()):
            texts = map(number_text, matrix.data[lo:hi].tolist())
            pairs = zip(matrix.indices[lo:hi].tolist(), texts, strict=True)
            if dense:
                row = ["0"] * matrix.shape[1]
                for k, value in pairs:
                    row[k] = value
                out.write(",".join(row) + "\n")
            else:
                out.write("{" + ",".join(f"{k} {value}" for k, value in pairs) + "}\n")


def attribute_names(data: MultilabelData) -> tuple[list[str], list[str]]:
    """Names of features and labels, made up where there are none."""
    found = []
    for given, n, name in (
        (data.feature_names, data.X.shape[1], "x{}"),
        (data.label_names, data.Y.shape[1], "label{}"),
    ):
        if given is None and n > _MAX_UNNAMED:
            raise ValueError(
                f"there are {n:,} columns, all of which ARFF would declare: renumber them, at most "
                f"{_MAX_UNNAMED:,} are named."
            )
        first = 1 if name == "x{}" else 0
        found.append([name.format(k + first) for k in range(n)] if given is None else given)
    return found[0], found[1]


def _quote(name: str) -> str:
    if "\n" in name or "\r" in name:
        raise ValueError(f"the name {shown(name)} has a line end: rename it.")
    if _PLAIN.fullmatch(name) and not name.startswith("@"):
        return name
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


# Rows with Mulan's list of labels beside them -----------------------------------------------------


def read_label_sets(source: Source, labels: Any = None) -> MultilabelData:
    """Rows and labels, the latter by default those of Mulan's XML file in the same folder."""
    if labels is None:
        endings = [f"{part}.arff{gz}" for part in ("", "-train", "-test") for gz in (".gz", "")]
        labels = file_beside(source, *((ending, ".xml") for ending in endings))
        if labels is None:
            raise ValueError(
                "which attributes are labels is not in the file: name Mulan's XML file, or the "
                "number of labels, with the option labels."
            )
    return read_arff(source, labels)


def write_label_sets(target: Target, data: MultilabelData) -> None:
    """Rows with labels last, and for a path the XML file that names the labels."""
    data = data._replace(label_names=attribute_names(data)[1])
    write_arff(target, data)
    if isinstance(target, (str, os.PathLike)) and target != "-" and data.label_names:
        path = Path(target)
        stem = path.name.removesuffix(".gz").removesuffix(".arff")
        write_mulan_labels(path.with_name(f"{stem}.xml"), data.label_names)

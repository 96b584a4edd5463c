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

Array = np.ndarray[Any, Any]

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
        out.writelines(f"<label name={quoteattr(name)}></label>\n" for name in names)
        out.write("</labels>\n")


# The header: attributes, and how values are written.

#: A quoted text with backslash escapes, in two groups; linear in its length.
_QUOTED = r"""'([^'\\]*(?:\\.[^'\\]*)*)'|"([^"\\]*(?:\\.[^"\\]*)*)\""""
_NAME = re.compile(rf"(?:{_QUOTED}|([^\s'\"{{][^\s{{]*))(?=[\s{{])")
#: A value of a list, or a number and a value of a sparse row, and the comma behind it; the first
#: is possessive, so that it takes linear time.
_VALUE = re.compile(rf"()\s*+(?:(?:{_QUOTED})\s*+|([^,'\"{{}}]*+))(?:(,)|\Z)")
_PAIR = re.compile(rf"\s*([0-9]+)\s+(?:{_QUOTED}|([^,{{}}'\"\s]+))\s*(?:(,)|$)")


def _unquote(single: str | None, double: str | None, plain: str | None) -> str:
    """The text of whichever matched."""
    if plain is not None:
        return plain.rstrip()
    return re.sub(r"\\(.)", r"\1", single if single is not None else double or "")


def _split(text: str, pattern: re.Pattern[str]) -> list[tuple[str, str]] | None:
    """Numbers and values between commas, quotes undone; None if malformed."""
    items: list[tuple[str, str]] = []
    position = 0
    while match := pattern.match(text, position):
        number, *value, comma = match.groups()
        items.append((number, _unquote(*value)))
        if comma is None:
            return items
        position = match.end()
    return None


def _split_values(text: str) -> list[str] | None:
    """Values between commas, quotes undone; None if malformed."""
    if "'" not in text and '"' not in text:
        return None if "{" in text or "}" in text else [v.strip() for v in text.split(",")]
    items = _split(text, _VALUE)
    return None if items is None else [value for _, value in items]


@dataclass(frozen=True)
class _Attribute:
    """A column: numeric, or nominal with the number of each of its values."""

    name: str
    values: dict[str, float] | None = None
    plain: bool = True  # whether all values are numbers that stand for themselves

    def number(self, value: str) -> float:
        """The number that stands for a value; ValueError where none does."""
        if self.values is not None:
            if value not in self.values:
                raise ValueError(f"is not among the {len(self.values)} values declared")
            return self.values[value]
        try:
            number = float("" if "_" in value else value)
        except ValueError:
            raise ValueError("is not a number") from None
        if not np.isfinite(number):
            raise ValueError("is not a finite number")
        return number


def _read_header(text: TextSource, lines: Iterator[tuple[int, str]]) -> list[_Attribute]:
    """The attributes, in order; takes the lines up to and including ``@data``."""
    attributes: dict[str, _Attribute] = {}
    number = 1
    for number, line in lines:
        keyword, *rest = line.split(maxsplit=1)
        if keyword.lower() == "@data":
            if not attributes:
                raise text.error(number, "@data comes before any @attribute; declare the columns.")
            return list(attributes.values())
        if keyword.lower() == "@attribute":
            attribute = _read_attribute(text, number, rest[0] if rest else "")
            if attribute.name in attributes:
                raise text.error(
                    number, f"the attribute {shown(attribute.name)} is declared twice; rename one."
                )
            attributes[attribute.name] = attribute
        elif keyword.lower() != "@relation":
            raise text.error(
                number,
                f"expected @relation, @attribute or @data, found {shown(line)}; is this ARFF?",
            )
    raise text.error(number, "there is no @data line; is the file complete?")


def _read_attribute(text: TextSource, number: int, declaration: str) -> _Attribute:
    match = _NAME.match(declaration)
    if match is None:
        raise text.error(
            number, f"{shown(declaration)} is not a name and a type; write @attribute NAME numeric."
        )
    name, kind = _unquote(*match.groups()), declaration[match.end() :].strip()
    if kind.lower() in ("numeric", "real", "integer"):
        return _Attribute(name)
    if not (kind.startswith("{") and kind.endswith("}")):
        raise text.error(
            number,
            f"attribute {shown(name)} has the type {shown(kind)}; only numeric and nominal "
            "attributes are read, remove or convert it.",
        )
    values = _split_values(kind[1:-1])
    if values is None or "" in values or len(set(values)) < len(values):
        raise text.error(
            number,
            f"the values of attribute {shown(name)} are not a list such as {{a, b}} of different "
            "values; correct the line.",
        )
    try:
        return _Attribute(name, {value: _Attribute(name).number(value) for value in values})
    except ValueError:
        return _Attribute(name, {value: float(k) for k, value in enumerate(values)}, plain=False)


def read_arff(source: Source, labels: Source | Sequence[str] | int | None = None) -> MultilabelData:
    r"""Read an ARFF file, dense or sparse.

    Attributes may be numeric or nominal. A nominal value that is a number stands for itself if
    all values of its attribute are numbers; otherwise values are numbered from 0 as declared.

    Missing values (``?``), undeclared values and attributes of other types are refused. X is dense
    where the file's rows are, else sparse.

    Parameters
    ----------
    source : path, "-", file object or TextSource; UTF-8, gzipped or not
    labels : path, file object, list of str or int, optional
        Which attributes are labels: a Mulan XML file, names, or a number of attributes, counted
        from the end if negative. They must have the values 0 and 1. Default: none.

    Examples
    --------
    >>> import io
    >>> text = "@relation r\n@attribute a numeric\n@attribute b {0,1}\n@data\n2.5,1\n"
    >>> data = read_arff(io.StringIO(text), labels=["b"])
    >>> data.X.tolist(), data.Y.toarray().tolist(), data.label_names
    ([[2.5]], [[1]], ['b'])
    """
    with open_text(source) as text:
        # Comments and blank lines are skipped wherever they stand.
        stripped = ((number, line.strip()) for number, line in text.lines())
        lines = ((number, line) for number, line in stripped if line and line[0] != "%")
        attributes = _read_header(text, lines)
        names = [attribute.name for attribute in attributes]
        wanted = _label_columns(text, names, labels)
        rows = _Rows(text, attributes)
        for number, line in lines:
            rows.add(number, line)
        matrix = rows.matrix()
        Y = sp.csr_matrix(matrix[:, wanted])
        if (wrong := Y.data != 1.0).any():
            k = int(np.argmax(wrong))
            raise text.error(
                rows.lines[int(np.searchsorted(Y.indptr, k, side="right")) - 1],
                f"the label {shown(names[wanted[Y.indices[k]]])} is {Y.data[k]:g}; labels must be "
                "0 or 1.",
            )
        kept = np.setdiff1d(np.arange(len(names)), wanted)
        features, chosen = ([names[k] for k in columns] for columns in (kept, wanted))
        return MultilabelData(matrix[:, kept], Y.astype(np.uint8), features, chosen)


def _label_columns(text: TextSource, names: list[str], labels: Any) -> list[int]:
    if labels is None:
        return []
    columns = list(range(len(names)))
    if isinstance(labels, (int, np.integer)):
        if abs(int(labels)) > len(names):
            raise text.error(
                None, f"labels is {labels}, but there are {len(names)} attributes; give fewer."
            )
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


class _Rows:
    """The rows of an ARFF file; all dense or all sparse."""

    def __init__(self, text: TextSource, attributes: list[_Attribute]) -> None:
        self.text = text
        self.attributes = attributes
        self.sparse: bool | None = None
        self.lines = array("q")
        self._columns = array("q")  # of sparse rows
        self._values = array("d")
        self._starts = array("q", [0])
        # Where every value is a plain number, rows are read at once and checked at the end.
        self._plain = all(attribute.plain for attribute in attributes)

    def add(self, number: int, row: str) -> None:
        """Read a row, given without blanks at its ends."""
        sparse = row.startswith("{")
        if self.sparse is None:
            self.sparse = sparse
            # In sparse rows what is left out is the first nominal value, which must be 0 for us.
            for attribute in self.attributes if sparse else ():
                if attribute.values is not None and next(iter(attribute.values.values())) != 0.0:
                    raise self.text.error(
                        number,
                        f"sparse rows leave out the first value of {shown(attribute.name)}, which "
                        "is not 0; declare 0 first.",
                    )
        if sparse != self.sparse:
            raise self.text.error(
                number, "sparse rows {…} and dense rows are mixed; write all rows in one way."
            )
        done = len(self._values), len(self._columns)
        try:
            if not self._plain or "_" in row or (sparse and not row.endswith("}")):
                raise ValueError
            if sparse:
                for item in row[1:-1].split(",") if row[1:-1].strip() else ():
                    column, value = item.split()
                    self._columns.append(int(column))
                    self._values.append(float(value))
            else:
                self._values.extend(map(float, row.split(",")))
                if len(self._values) - done[0] != len(self.attributes):
                    raise ValueError
        except (ValueError, OverflowError):
            del self._values[done[0] :], self._columns[done[1] :]
            for k, value in self._split(number, row):
                self._values.append(self._number(number, self.attributes[k], value))
                if sparse:
                    self._columns.append(k)
        self._starts.append(len(self._values))
        self.lines.append(number)

    def _split(self, number: int, row: str) -> list[tuple[int, str]]:
        """Columns and values of a row, as text."""
        width = len(self.attributes)
        if not self.sparse:
            values = _split_values(row)
            if values is None or len(values) != width:
                found = "a malformed row" if values is None else f"{len(values)} values"
                raise self.text.error(
                    number,
                    f"expected {width} values separated by commas, found {found}; correct the "
                    "line.",
                )
            return list(enumerate(values))
        pairs = _split(row[1:-1], _PAIR) if row.endswith("}") else None
        if row.strip("{ \t}") == "" and row.endswith("}"):
            pairs = []
        if pairs is None:
            raise self.text.error(
                number, f"{shown(row)} is not a row such as {{0 1, 3 2.5}}; correct the line."
            )
        for column, _ in pairs:
            if len(column) > 9 or int(column) >= width:
                raise self._no_column(number, column)
        return [(int(column), value) for column, value in pairs]

    def _number(self, line: int, attribute: _Attribute, value: str) -> float:
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

    def matrix(self) -> Any:
        """All rows, checked: finite numbers, and for nominal attributes declared ones."""
        values = np.array(self._values, dtype=np.float64)
        shape = len(self.lines), len(self.attributes)
        matrix: Any = self._sparse_matrix(values, shape) if self.sparse else values.reshape(shape)
        by_column = matrix.tocsc() if self.sparse else None
        for k, attribute in enumerate(self.attributes):
            if by_column is None:
                part, rows = matrix[:, k], range(shape[0])
            else:
                there = slice(by_column.indptr[k], by_column.indptr[k + 1])
                part, rows = by_column.data[there], by_column.indices[there]
            good = np.isfinite(part)
            if attribute.values is not None:
                good &= np.isin(part, list(attribute.values.values()))
            if not good.all():
                wrong = int(np.argmin(good))
                what = "declared" if attribute.values is not None else "a finite number"
                raise self.text.error(
                    self.lines[int(rows[wrong])],
                    f"the value {part[wrong]:g} of {shown(attribute.name)} is not {what}; correct "
                    "the line.",
                )
        if self.sparse:
            matrix.eliminate_zeros()
        return matrix

    def _sparse_matrix(self, values: Array, shape: tuple[int, int]) -> sp.csr_matrix:
        columns = np.array(self._columns, dtype=np.int64)
        starts = np.array(self._starts, dtype=np.int64)
        rows = np.repeat(np.arange(shape[0]), np.diff(starts))
        if (wrong := (columns < 0) | (columns >= shape[1])).any():
            k = int(np.argmax(wrong))
            raise self._no_column(self.lines[int(rows[k])], str(columns[k]))
        matrix = sp.csr_matrix((values, columns.astype(np.int32), starts), shape=shape)
        matrix.sort_indices()
        again = (np.diff(matrix.indices) == 0) & (np.diff(rows) == 0)
        if again.any():
            k = int(np.argmax(again))
            raise self.text.error(
                self.lines[int(rows[k])],
                f"attribute {matrix.indices[k]} occurs twice; give it once.",
            )
        return matrix


#: Most columns for which names are made up; a file of a few bytes may have billions.
_MAX_UNNAMED = 1_000_000
_PLAIN = re.compile(r"[^\s'\",{}%\\?]+")


def write_arff(target: Target, data: MultilabelData, relation: str = "data") -> None:
    """Write rows with labels as ARFF, labels last; sparse rows if X is sparse.

    Features and labels without names are called ``x1, x2, …`` and ``label0, label1, …``.
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

    def names(given: list[str] | None, n: int, name: str, first: int) -> list[str]:
        if given is not None:
            return given
        if n > _MAX_UNNAMED:
            raise ValueError(
                f"there are {n:,} columns, all of which ARFF would declare: renumber them, at most "
                f"{_MAX_UNNAMED:,} are named."
            )
        return [f"{name}{k}" for k in range(first, n + first)]

    features = names(data.feature_names, data.X.shape[1], "x", 1)
    return features, names(data.label_names, data.Y.shape[1], "label", 0)


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
